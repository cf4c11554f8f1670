"""Cross-validation: what is learned from what, and what is measured, row by row."""

import itertools
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import lookup
from bayesfac.labels.comparators import as_labels, l2f, ml_knn, tram
from bayesfac.labels.evaluation import deal
from bayesfac.labels.evaluation.methods_and_measures import METRICS

HERES = ("heres", {"n_components": 2}, bf.FixedPoint(10))
QUICK = {"progress": False, "folds": 3}
MEASURED = ["micro_f1", "hamming_loss", "average_precision", "brier"]


@cache
def two_tasks():
    """Rows of two tasks that take turns, named, with labels that their views tell."""
    return bf.Tasks(*tables(), task=["a", "b"] * 12)


def tables(n=24, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, 3)) < 0.5) * 1.0
    rows = [f"row {i}" for i in rng.permutation(n)]
    words = pd.DataFrame(y @ rng.random((3, 5)) + 0.1 * rng.random((n, 5)), rows)
    links = pd.DataFrame(y @ rng.random((3, 4)) + 0.1 * rng.random((n, 4)), rows)
    return {"words": words, "links": links}, pd.DataFrame(y, rows, columns=["x", "y", "z"])


def truth(data):
    return pd.DataFrame(data["labels"].toarray(), data.rows, data.labels)


def rates(train, test):
    """Scores of a function: every row gets the labels' rates."""
    return np.tile(truth(train).to_numpy().mean(0), (test.n_rows, 1))


def parts(data, fold, number):
    """Row numbers of training and test."""
    return np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def run(methods, data=None, **given):
    return bf.evaluate(methods, {"made up": data or two_tasks()}, **QUICK | given)


def numbers(found):
    """All but the seconds."""
    return found.cells.drop(columns="seconds")


# ---------------------------------------------------------------------- folds


def test_every_row_is_tested_once_and_every_task_in_every_fold():
    data = two_tasks()
    fold = deal(data, 5, seed=3)
    assert np.bincount(fold).tolist() == [5, 5, 5, 5, 4]
    for span in data.bounds:
        assert np.ptp(np.bincount(fold[span], minlength=5)) <= 1
    assert (deal(data, 5, seed=3) == fold).all() and (deal(data, 5, seed=4) != fold).any()
    assert sorted(deal(data, 24, seed=0)) == list(range(24)), "one row each"


def test_all_methods_see_the_same_folds_and_no_label_of_the_test_rows():
    seen = {"one": [], "two": []}

    def watch(name):
        def scores(train, test):
            assert train.labelled.all() and not test.labelled.any()
            assert not test["labels"].nnz and not set(train.rows) & set(test.rows)
            assert test.n_rows + train.n_rows == 24
            seen[name].append(list(test.rows))
            return rates(train, test)

        return scores

    found = run({name: watch(name) for name in seen})
    assert seen["one"] == seen["two"]
    assert sorted(itertools.chain(*seen["one"])) == sorted(two_tasks().rows)
    assert found.cells.shape[0] == 6 and found.cells["fold"].tolist() == [0, 1, 2] * 2


def test_scores_meet_the_rows_they_are_of():
    """Whoever knows the answers is perfect, also by name in any order."""
    known = truth(two_tasks())

    def arrays(train, test):
        return known.loc[test.rows].to_numpy()

    def frames(train, test):
        return known.loc[test.rows[::-1], ["z", "x", "y"]]

    found = run({"array": arrays, "frame": frames}, metrics=METRICS)
    assert (found.mean("micro_f1").to_numpy() == 1).all()
    assert (found.mean("subset_accuracy").to_numpy() == 1).all()
    assert (found.mean("ranking_loss").to_numpy() == 0).all()
    assert (found.sd("example_f1").to_numpy() == 0).all()
    assert found.mean("log_loss").isna().all(axis=None), "scores of a function are no probabilities"


# ---------------------------------------------------------------------- the three kinds of methods


def by_hand(data, method, fold, number, inductive):
    """The factorization's cell written out."""
    train, test = parts(data, fold, number)
    labelled = np.isin(np.arange(data.n_rows), train)
    hyper, engine = HERES[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        seen = data.take(train) if inductive else data.take(slice_of(data), labelled=labelled)
        fit = bf.fit(method, seen, engine, seed=0, progress=False, **hyper)
    new = data.take(test, labelled=np.zeros(data.n_rows, bool))
    fit = fit.fold_in(new) if inductive else fit
    answer = fit.predict(new.grid())
    tables = (each.reshape(len(test), -1) for each in (answer.mean, answer.score))
    return truth(data).loc[new.rows].to_numpy(), *tables


def slice_of(data):
    return np.arange(data.n_rows)


@pytest.mark.parametrize("inductive", [True, False])
def test_a_factorization_folds_the_test_rows_in_or_says_that_it_saw_them(inductive):
    data, method = two_tasks(), lookup("heres")
    method = method if inductive else replace(method, fold_in=None)
    found = run({"it": (method, *HERES[1:])}, folds=2, metrics=MEASURED).cells
    fold = deal(data, 2, 0)
    Y, p, score = by_hand(data, method, fold, 1, inductive)
    expected = [
        bf.multilabel.micro_f1(Y, p > 0.5), bf.multilabel.hamming_loss(Y, p > 0.5),
        bf.multilabel.average_precision(Y, score), bf.multilabel.brier(Y, np.clip(p, 0, 1)),
    ]  # fmt: skip
    assert found.loc[1, MEASURED].tolist() == pytest.approx(expected, rel=1e-9)
    assert all("heres did not converge" in note for note in found["notes"])
    assert all(("transductive" in note) != inductive for note in found["notes"])


@pytest.mark.parametrize("name", ["ml_knn", "tram", "l2f"])
def test_a_comparator_gets_its_tables_and_keeps_its_own_rule(name):
    data, fold = two_tasks(), deal(two_tasks(), 3, 0)
    found = run({"it": (name, {"k": 3, "scaled": False})}, metrics=MEASURED).cells
    for number in range(3):
        train, test = parts(data, fold, number)
        views = {v: data[v].toarray() for v in data.names}
        tell = {"ml_knn": ml_knn, "tram": tram, "l2f": l2f}[name]
        given = [{v: x[at] for v, x in views.items()} for at in (train, test)]
        if name != "l2f":
            given = [np.hstack(list(part.values())) for part in given]
        y = data["labels"].toarray()
        score = tell(given[0], y[train], given[1], k=3)
        expected = bf.multilabel.micro_f1(y[test], as_labels(score, name))
        assert found.loc[number, "micro_f1"] == pytest.approx(expected, rel=1e-12)
        assert found.loc[number, "average_precision"] == pytest.approx(
            bf.multilabel.average_precision(y[test], score)
        )


def test_rankings_compare_scores_before_they_are_clipped():
    """Slightly shrunken regressions of rare labels: many probabilities sit at the clip, and no score does."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(60, 4)), np.zeros((60, 12))
    y[np.arange(60), rng.integers(12, size=60)] = 1
    data = bf.Tasks({"x": x}, y)
    given = {"n_components": 12, "penalty": 1.0}
    measures = ["average_precision", "brier"]
    found = run({"it": ("cplst", given)}, data, metrics=measures, folds=2).cells
    fold = deal(data, 2, 0)
    for number in range(2):
        train, test = parts(data, fold, number)
        fit = bf.fit("cplst", data.take(train), progress=False, **given)
        new = data.take(test, labelled=np.zeros(60, bool))
        answer = fit.fold_in(new).predict(new.grid())
        assert (answer.mean == answer.mean.min()).mean() > 0.1, "no probabilities at the clip"
        assert (answer.score == answer.score.min()).sum() == 1
        np.testing.assert_allclose(answer.mean, np.clip(answer.score, 1e-3, 1 - 1e-3), atol=1e-6)
        score = answer.score.reshape(-1, 12)
        assert found.loc[number, "average_precision"] == pytest.approx(
            bf.multilabel.average_precision(y[test], score), rel=1e-9
        )
        clipped = bf.multilabel.average_precision(y[test], answer.mean.reshape(-1, 12))
        assert found.loc[number, "average_precision"] != pytest.approx(clipped, rel=1e-3)
        brier = bf.multilabel.brier(y[test], answer.mean.reshape(-1, 12))
        assert found.loc[number, "brier"] == pytest.approx(brier, rel=1e-9)


def test_names_of_comparators_and_factorizations_are_told_apart():
    assert not set(bf.comparators.NAMED) & set(bf.methods().index)


def test_empty_sets_count_as_said():
    data = bf.Tasks({"x": np.eye(6)}, np.zeros((6, 2)))
    silent = {"silent": lambda train, test: np.zeros((test.n_rows, 2))}
    assert run(silent, data).mean("example_f1").iloc[0, 0] == 1
    assert run(silent, data, empty=0.0).mean("example_f1").iloc[0, 0] == 0


def test_a_fold_without_a_positive_row_of_a_label_is_no_obstacle():
    views, labels = tables()
    labels["z"] = [1.0] + [0.0] * 23
    data = bf.Tasks(views, labels)
    found = run({"heres": HERES, "near": "ml_knn", "rates": rates}, data, folds=2).cells
    assert found[["macro_f1", "micro_f1"]].notna().all(axis=None)
    said = found.loc[found["method"] == "heres", "notes"].tolist()
    assert sum("no row has the label z" in note for note in said) == 1


def test_probabilities_are_measured_where_there_are_some():
    found = run(
        {"heres": HERES, "tram": ("tram", {"k": 3})}, folds=2, metrics=["brier", "log_loss"]
    )
    assert found.mean("brier")["heres"].between(0, 1).all()
    assert found.mean("log_loss")["heres"].notna().all()
    assert found.mean("brier")["tram"].isna().all()


# ---------------------------------------------------------------------- tuning


def planted(train, test, noise=0.0, low=1.0):
    """Scores that are right, but for noise, times `low`."""
    known = truth(two_tasks()).loc[test.rows].to_numpy()
    rng = np.random.default_rng(len(test.rows))
    return low * np.clip(known + noise * rng.normal(size=known.shape), 0, 1)


@pytest.mark.parametrize(
    "by", ["micro_f1", "hamming_loss", "ranking_loss", bf.multilabel.hamming_loss,
           lambda Y, predicted: float((Y == predicted).mean())],
)  # fmt: skip
def test_the_better_setting_is_chosen_in_every_fold(by):
    grid = {"noise": [3.0, 0.0, 9.0], "low": [1.0]}
    found = run({"it": bf.Tuned((planted, {"noise": 9.0}), grid, by=by)})
    assert set(found.cells["chosen"]) == {"noise=0.0, low=1.0"}
    assert found.cells["threshold"].isna().all()
    assert (found.cells["micro_f1"] == 1).all()


def test_the_threshold_is_chosen_on_the_same_rows():
    found = run(
        {"half": (planted, {"low": 0.2}), "it": bf.Tuned((planted, {"low": 0.2}), threshold=True)}
    )
    assert (found.mean("micro_f1")["half"] == 0).all()
    assert (found.mean("micro_f1")["it"] == 1).all()
    chosen = found.cells.set_index("method")["threshold"]
    assert chosen["half"].isna().all() and chosen["it"].tolist() == [0.2] * 3
    given = run({"it": bf.Tuned((planted, {"low": 0.2}), threshold=[0.9, 0.11])})
    assert given.cells["threshold"].tolist() == [0.11] * 3


@pytest.mark.parametrize("by", ["micro_f1", "hamming_loss"])
def test_a_threshold_does_not_depend_on_the_scale_of_the_scores(by):
    """Margins, votes, small numbers: wherever the own rule predicts nothing, the same labels are found."""

    def scaled(train, test, factor, shift):
        return factor * planted(train, test, noise=0.2) + shift

    scales = {"a": (0.4, 0.0), "b": (1e-3, 0.0), "c": (1.0, -7.0), "d": (50.0, -400.0)}
    found = run(
        {name: bf.Tuned((scaled, dict(zip(("factor", "shift"), scale, strict=True))), by=by, threshold=True)
         for name, scale in scales.items()},
    ).mean("micro_f1")  # fmt: skip
    assert np.ptp(found.to_numpy()) < 1e-12 and found.iloc[0, 0] > 0.8


def test_the_own_rule_stays_where_nothing_is_better():
    found = run({"it": bf.Tuned(planted, threshold=True)})
    assert found.cells["threshold"].isna().all() and (found.mean("micro_f1") == 1).all(axis=None)


def test_settings_are_chosen_on_rows_that_nothing_else_saw():
    calls = []

    def watch(train, test, size):
        calls.append((size, set(train.rows), set(test.rows)))
        return rates(train, test)

    run({"it": bf.Tuned(watch, {"size": [1, 2]}, share=0.25)}, folds=2)
    for (_, inner, held), (_, again, same), (_, train, test) in (calls[:3], calls[3:]):
        assert inner == again and held == same
        assert inner | held == train and not inner & held and not train & test
        assert len(held) == 4, "a quarter of six rows is two, of each of two tasks: 1.5, rounded"


def test_comparators_and_factorizations_are_tuned_too():
    grid = {"k": [2, 4]}
    found = run(
        {"near": bf.Tuned("ml_knn", grid, threshold=True), "tram": bf.Tuned("tram", grid)}
    ).cells
    assert set(found["chosen"]) <= {"k=2", "k=4"}
    assert found["threshold"].notna().tolist() == [True] * 3 + [False] * 3
    one = run({"heres": bf.Tuned(HERES, {"n_components": [2]})}, folds=2).cells
    plain = run({"heres": HERES}, folds=2).cells
    assert (one["chosen"] == "n_components=2").all(), "one setting needs no choice"
    assert one["micro_f1"].tolist() == plain["micro_f1"].tolist()


def test_settings_that_the_data_do_not_allow_are_noted_and_not_chosen():
    found = run({"near": bf.Tuned("ml_knn", {"k": [0, 2]})}).cells
    assert (found["chosen"] == "k=2").all()
    assert found["notes"].str.startswith("while tuning: k=0 refused: Expected").all()
    with pytest.raises(BayesfacError, match="Expected settings that the data allow, got none: "):
        run({"near": bf.Tuned("ml_knn", {"k": [0, -1]})})


# ---------------------------------------------------------------------- warnings and errors


def test_other_warnings_are_passed_on():
    def loud(train, test):
        warnings.warn("mind the gap", stacklevel=1)
        warnings.warn("slow: in detail", bf.ConvergenceWarning, stacklevel=1)
        return rates(train, test)

    with pytest.warns(UserWarning, match="mind the gap") as told:
        found = run({"it": loud})
    assert len(told) == 3
    assert found.cells["notes"].tolist() == ["slow"] * 3


def test_an_error_names_its_cell_and_what_was_finished_stays(tmp_path):
    calls = itertools.count()

    def breaks(train, test):
        if next(calls) == 1:
            raise ZeroDivisionError("by nought")
        return rates(train, test)

    with pytest.raises(
        BayesfacError, match="^'it' on 'made up', fold 1: ZeroDivisionError: by nought$"
    ):
        run({"fine": rates, "it": breaks}, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    assert len(run({"fine": rates, "it": breaks}, folder=tmp_path).cells) == 6
    assert next(calls) == 4, "one more each for the fold that broke, and the next"


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (lambda train, test: np.zeros((1, 3)), r"scores of 8 rows x 3 labels, got \(1, 3\)"),
        (lambda train, test: np.full((8, 3), np.nan), "finite scores, got nan in row 0, column 0"),
        (lambda train, test: truth(train), "scores of the test rows and all labels by name"),
    ],
)
def test_scores_that_are_none_are_refused(scores, said):
    with pytest.raises(
        BayesfacError, match=f"^'it' on 'made up', fold 0: ValueError: Expected {said}"
    ):
        run({"it": scores})


# ---------------------------------------------------------------------- tables as users have them


def test_kinds_of_tables_agree():
    x, y = tables()
    X, Y = x["words"].to_numpy(), y.to_numpy()
    fixed = np.asfortranarray(X)
    fixed.setflags(write=False)
    kinds = {
        "dense": (X, Y), "sparse": (sp.csc_matrix(X), sp.coo_matrix(Y)), "frame": (pd.DataFrame(X), Y),
        "fixed": (fixed, Y), "tasks": bf.Tasks(X, Y),
    }  # fmt: skip
    found = bf.evaluate({"near": "ml_knn", "linear": "ls_ml"}, kinds, **QUICK).mean("micro_f1")
    assert np.ptp(found.to_numpy(), axis=0) == pytest.approx([0, 0], abs=1e-12)


def test_a_tuned_cell_forgets_its_programs(monkeypatch):
    """Hundreds for each fold: a long table would fill the memory."""
    forgotten = []
    monkeypatch.setattr("jax.clear_caches", lambda: forgotten.append(1))
    run({"near": bf.Tuned("ml_knn", {"k": [1, 2]}), "plain": "ml_knn"}, folds=2)
    assert len(forgotten) == 2, "one for each fold of the tuned one, none for the plain one"
