"""`bf.auto` on planted data: the right kind and the right number of components win; mistakes of the user."""

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, DataWarning, UnknownName
from bayesfac.labels.judge import OfLabels
from bayesfac.search import automatic as search
from bayesfac.search.automatic import candidates
from bayesfac.search.automatic.judges import OfRatings
from bayesfac.split import holdout

QUIET = {"seconds": 1e6, "progress": False}
PLANTED = bf.datasets.make_gaussian(40, 30, 2, noise=0.3, density=0.4, seed=0)[0]


@pytest.mark.slow
def test_the_number_of_planted_components_wins(tmp_path, monkeypatch):
    fit = bf.auto(PLANTED, methods=["pmf"], components=[1, 2], folder=tmp_path, **QUIET)
    assert (fit.name, fit.hyper.n_components) == ("pmf", 2)
    assert fit.data.summary["ratings"] == len(PLANTED), "the winner is fitted to all data"
    table = fit.tried
    assert sorted(table["candidate"]) == ["biases", "pmf", "pmf"]
    assert table["components"][0] == 2 and table["components"].isna().sum() == 1
    assert (np.diff(table["log score"]) < 0).all() and table["behind"][0] == 0
    assert "chosen by bf.auto: pmf with n_components=2, the best of 2" in fit.notes[0]
    # the same again, without a fit of a candidate
    monkeypatch.setattr(search, "run", None)
    again = bf.auto(PLANTED, methods=["pmf"], components=[1, 2], folder=tmp_path, **QUIET)
    assert again.tried.equals(table) and again.notes == fit.notes
    np.testing.assert_array_equal(again.params.U, fit.params.U)


def test_a_candidate_with_nan_does_not_win(monkeypatch):
    honest = OfRatings.of_fit

    def broken(judge, fit, train, test):
        found = honest(judge, fit, train, test)
        return found._replace(log=found.log * np.nan) if fit.name == "bpmf" else found

    monkeypatch.setattr(OfRatings, "of_fit", broken)
    fit = bf.auto(PLANTED, methods=["bpmf", "pmf"], components=[2], **QUIET)
    assert fit.name == "pmf" and fit.tried["candidate"].tolist() == ["pmf", "biases", "bpmf"]
    assert fit.tried["notes"][2] == "left out: Expected log scores of held-out data, got NaN"


def test_the_folder_of_an_engine_holds_the_fit_to_all_data(tmp_path):
    """Candidates wrote their draws there too, and the next one was refused as another run."""
    engine = bf.Gibbs(10, 20, 2, folder=str(tmp_path / "run"))
    fit = bf.auto(PLANTED, methods=[("pmf", {}, engine)], components=[1, 2], **QUIET)
    assert fit.tried["log score"].notna().all()
    np.testing.assert_array_equal(np.load(tmp_path / "run/draws/U.npy"), fit.draws["U"])


def test_the_table_is_saved_with_the_fit(tmp_path):
    fit = bf.auto(PLANTED, methods=["pmf", "bmmmf"], components=[2], **QUIET)
    assert fit.tried["notes"].iloc[-1].startswith("left out: Expected")
    fit.save(tmp_path / "kept")
    pd.testing.assert_frame_equal(bf.load(tmp_path / "kept").tried, fit.tried)
    assert bf.fit("pmf", PLANTED, n_components=2, progress=False).tried is None


def test_labels_that_depend_on_features_beat_their_frequencies():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = (x @ rng.normal(size=(3, 4)) * 3 + rng.logistic(size=(120, 4)) > 0).astype(float)
    y[::9] = np.nan  # rows without labels stay in training
    # squares cannot say how sure they are; the logistic loss was planted
    logistic = ("leml", {"loss": "logistic", "penalty": 0.1})
    fit = bf.auto(bf.Tasks(x, y), methods=["cplst", logistic], components=[2], **QUIET)
    assert fit.hyper.loss == "logistic"
    assert fit.tried["candidate"].iloc[-1] == "frequencies"
    assert fit.tried["candidate"].iloc[0] == "leml (loss='logistic', penalty=0.1)"


def test_planted_topics_win():
    views, _ = bf.datasets.make_topics(40, {"words": 30}, n_clusters=3, n_topics=3, seed=0)
    fit = bf.auto(views, methods=["plsa"], components=[1, 3], **QUIET)
    assert fit.hyper.n_components == 3
    by_size = fit.tried.set_index("components")["log score"]
    assert by_size[3] > by_size[1] + 0.1
    base = fit.tried.set_index("candidate")["log score"]["frequencies"]
    assert abs(by_size[1] - base) < 0.01, "one component is the frequencies"


def test_counts_are_ranked_beside_popularity():
    """Each of two groups of users takes its own half of the items, which popularity does not know."""
    own = (np.arange(40)[:, None] % 2) == (np.arange(24) % 2)
    counts = bf.Counts(np.random.default_rng(0).poisson(np.where(own, 0.9, 0.05)))
    methods = [
        ("wrmf", {"scale_user": 1.0, "scale_item": 1.0, "noise": 0.3}),
        ("hpf", {"shape_user": 0.3, "shape_item": 0.3}),
    ]
    fit = bf.auto(counts, methods=methods, components=[2], **QUIET)
    table = fit.tried.set_index(fit.tried["candidate"].str.split().str[0])
    assert set(table.index[:2]) == {"wrmf", "hpf"} and table.index[2] == "popularity"
    assert fit.name == table.index[0] and (table["in first ten"] <= 1).all()
    train, test = holdout(counts, 0.1, seed=0)
    same = bf.fit("hpf", train, n_components=2, progress=False, **methods[1][1])
    told = bf.compare({"hpf": same}, test, train=train).table["gain of rank"]
    np.testing.assert_allclose(told, table["gain of rank"][told.index], rtol=1e-6)
    assert f"by the gain of rank of {len(test)} held-out pairs" in "; ".join(fit.notes)


def test_noise_is_told():
    rng = np.random.default_rng(0)
    views = {"x": rng.poisson(1.0, (15, 12))}
    with pytest.warns(DataWarning, match="no method predicts the held-out views better"):
        fit = bf.auto(views, methods=["plsa"], components=[5], **QUIET)
    assert "no method predicts better than the baseline" in fit.notes[0]


def test_no_test_data_reach_the_candidates(monkeypatch):
    """The candidates see what `holdout` leaves; values that are held out change nothing but the scores."""
    seen, honest = [], candidates.run_fit

    def spy(method, data, *rest, **how):
        seen.append(data)
        return honest(method, data, *rest, **how)

    monkeypatch.setattr(candidates, "run_fit", spy)
    x = np.random.default_rng(0).normal(size=(60, 2))
    tasks = bf.Tasks(x, (x @ np.ones((2, 3)) > 0).astype(float))
    bf.auto(tasks, methods=["cplst"], components=[1], **QUIET)
    test = holdout(tasks, OfLabels.share, seed=0)[1]
    assert len(seen) == 1 and not set(seen[0].rows) & set(test.rows)


# -- mistakes -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"methods": ["pmff"]}, UnknownName, "did you mean 'pmf'"),
        ({"methods": "pmf"}, TypeError, "methods as a list of names, got 'pmf'"),
        ({"methods": []}, TypeError, "methods as a list"),
        ({"methods": [("pmf", 3)]}, TypeError, "name, settings, engine"),
        ({"methods": [("pmf", {"noize": 1.0})]}, UnknownName, "did you mean 'noise'"),
        ({"methods": [("mmmf", {}, bf.Gibbs())]}, BayesfacError, "mmmf cannot run with Gibbs"),
        ({"methods": ["plsa"]}, TypeError, "Expected Views for plsa, got Ratings"),
        ({"methods": ["bmmmf"]}, BayesfacError, "Expected a method that takes these data, got none: bmmmf"),
        ({"components": 5}, TypeError, "list of whole numbers, got 5"),
        ({"components": [2.5]}, ValueError, "whole number from 1 on, got 2.5"),
        ({"seconds": 0}, ValueError, "seconds as a number above 0, got 0"),
        ({"seconds": "60"}, ValueError, "got '60'"),
        ({"seed": -1}, ValueError, "seed"),
        ({"jobs": 0}, ValueError, "jobs"),
        ({"second": 3}, TypeError, "second"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)  # fmt: skip
def test_mistakes_are_told_before_anything_is_fitted(wrong, error, message):
    with pytest.raises(error, match=message):
        bf.auto(PLANTED, progress=False, **wrong)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (bf.Ratings([0, 1], [0, 1], [1.0, 2.0]), ValueError, "at least 50 ratings.*got 2"),
        (bf.Counts(np.eye(9)), ValueError, "at least 50 pairs above zero.*got 9"),
        ({"x": np.ones((3, 3))}, ValueError, "at least 50 counts.*got 9"),
        (([[1.0]] * 9, [[1]] * 9), ValueError, "at least 50 labelled rows.*got 9"),
        (([[1.0]] * 60, [[0.5]] * 60), ValueError, "labels 0 and 1"),
        (
            {"x": np.full((9, 9), 1.5)},
            ValueError,
            "counts in at least one view.*got measurements in .'x'",
        ),
        ("ratings.csv", TypeError, "got str"),
        (bf.datasets.make_relations(20, 15, 2, seed=0)[0], TypeError, "got Relations"),
        (
            pd.DataFrame({"user": [0, 1], "item": [0, 1], "rating": [1.0, np.nan]}),
            ValueError,
            "nan",
        ),
    ],
)
def test_data_that_cannot_be_held_out_are_refused(data, error, message):
    with pytest.raises(error, match=f"(?i){message}"):
        bf.auto(data, progress=False)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ValueError, match="Expected a folder for finished candidates, got the file"):
        bf.auto(PLANTED, folder=tmp_path / "x")
