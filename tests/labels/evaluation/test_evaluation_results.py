"""Tables, ranks and tests of cross-validations, and what `bf.evaluate` refuses."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import UnknownName
from bayesfac.labels.evaluation import Evaluation
from bayesfac.report.plots.figure import Picture
from tests.labels.evaluation.test_evaluation import QUICK, rates, run, tables, two_tasks


def found(scores, metrics=("micro_f1",), partial=False):
    """{(data set, method): values of folds} as an evaluation; two folds."""
    rows = [
        {"dataset": d, "method": m, "fold": k, **dict.fromkeys(metrics, value)}
        for (d, m), values in scores.items()
        for k, value in enumerate(values)
    ]
    datasets, methods = (tuple(dict.fromkeys(names)) for names in zip(*scores, strict=True))
    return Evaluation(pd.DataFrame(rows), datasets, methods, metrics, 2, partial)


TWO = {
    ("birds", "a"): [0.5, 0.6], ("birds", "b"): [0.7, 0.9], ("birds", "c"): [0.55, 0.5501],
    ("bibtex", "a"): [0.3, 0.3], ("bibtex", "b"): [0.1, 0.2], ("bibtex", "c"): [0.2, 0.4],
}  # fmt: skip


# ---------------------------------------------------------------------- tables and tests


def test_means_sds_and_ranks_by_hand():
    of = found(TWO)
    assert of.mean().loc["birds"].tolist() == pytest.approx([0.55, 0.8, 0.55005])
    assert of.sd().loc["birds", "a"] == pytest.approx(np.std([0.5, 0.6], ddof=1))
    assert of.ranks().to_numpy().tolist() == [[2.5, 1, 2.5], [1.5, 3, 1.5]], "0.550 is 0.550"
    assert of.ranks(digits=6).loc["birds"].tolist() == [3, 1, 2]
    assert of.ranks(higher=False).loc["birds"].tolist() == [1.5, 3, 1.5]
    table = of.table()
    assert table.loc["birds", "b"] == "0.800 ± 0.141 (1)"
    assert table.loc["bibtex", "a"] == "0.300 ± 0.000 (1.5)"
    assert table.loc["mean rank"].tolist() == ["2.00", "2.00", "2.00"]
    assert of.table(digits=1).loc["birds", "b"] == "0.8 ± 0.1 (1)"
    assert of.friedman() == bf.ranks.friedman(of.ranks())
    assert of.friedman(alpha=0.1, digits=6) == bf.ranks.friedman(of.ranks(digits=6), 0.1)
    assert of.critical_difference() == bf.ranks.critical_difference(3, 2)


def test_of_losses_the_smaller_is_the_better():
    of = found(TWO, ("hamming_loss", "micro_f1"))
    assert of.ranks().loc["birds"].tolist() == [1.5, 3, 1.5]
    assert of.ranks("micro_f1").loc["birds"].tolist() == [2.5, 1, 2.5]
    assert "hamming_loss (smaller is better)" in repr(of)


def test_a_function_of_ones_own_is_ranked_once_its_direction_is_said():
    of = found(TWO, ("mine",))
    with pytest.raises(ValueError, match="^Expected higher=True or False for 'mine'"):
        of.ranks()
    assert of.table().loc["birds", "b"] == "0.800 ± 0.141"
    assert of.table(higher=True).loc["birds", "b"] == "0.800 ± 0.141 (1)"
    assert of.friedman(higher=False).F == of.friedman(higher=True).F


def test_data_sets_with_gaps_are_shown_but_not_ranked():
    of = found(TWO | {("bibtex", "c"): [0.2]}, partial=True)
    assert np.isnan(of.mean().loc["bibtex", "c"])
    assert list(of.ranks().index) == ["birds"]
    table = of.table()
    assert table.loc["bibtex"].tolist() == ["0.300 ± 0.000", "0.150 ± 0.071", "–"]
    assert table.loc["mean rank"].tolist() == ["2.50", "1.00", "2.50"]
    none = found({key: [np.nan] * 2 if key[1] == "c" else v for key, v in TWO.items()})
    with pytest.raises(ValueError, match="every method has micro_f1, got none: c lack it"):
        none.ranks()
    assert "mean rank" not in none.table().index


def test_folds_where_a_metric_has_no_meaning_are_left_out():
    of = found(TWO | {("birds", "a"): [np.nan, 0.6]})
    assert of.mean().loc["birds", "a"] == 0.6


def test_an_infinite_loss_is_the_last():
    of = found(TWO | {("birds", "b"): [np.inf, 0.6]}, ("log_loss",))
    assert of.ranks().loc["birds"].tolist() == [1.5, 3, 1.5]
    assert of.table().loc["birds", "b"] == "inf ± nan (3)"


@pytest.mark.parametrize("same", [True, False])
def test_the_diagram_has_a_caption_that_is_true(same):
    rng = np.random.default_rng(0)
    step = 0 if same else 0.2
    scores = {
        (f"d{i}", m): rng.random(2) / 4 + step * j for i in range(9) for j, m in enumerate("abc")
    }
    picture = found(scores).cd_diagram()
    assert isinstance(picture, Picture) and picture.png().startswith(b"\x89PNG")
    assert ("does not reject" in picture.caption) == same
    assert f"F_F = {found(scores).friedman().F:.3f}" in picture.caption
    one = found({key: value for key, value in scores.items() if key[0] == "d0"})
    assert "one data set cannot show that methods differ" in one.cd_diagram().caption


def test_names_are_escaped_and_counted():
    of = found({("<b>", "a & b"): [0.5, 0.5], ("<b>", "c"): [0.5, 0.5]})
    page = of._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;" in page and "a &amp; b" in page
    assert repr(of).startswith(
        "Evaluation(2 methods, 1 data set, 2 folds): micro_f1, mean ± sd (rank)"
    )


def test_an_unknown_metric_is_said():
    with pytest.raises(ValueError, match=r"^Expected one of the metrics \('micro_f1',\), got 'f1'"):
        found(TWO).mean("f1")


# ---------------------------------------------------------------------- what is refused


def spoiled():
    views, labels = tables()
    views["words"].iloc[3, 1] = np.nan
    return views, labels


def halved():
    views, labels = tables()
    labels.iloc[2] = np.nan
    return views, labels


def gappy():
    views, labels = tables()
    labels.iloc[2, 0] = np.nan
    return views, labels


def scaled():
    views, labels = tables()
    return views, 2 * labels


def twice():
    views, labels = tables()
    return views, labels.rename(columns={"y": "x"})


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (spoiled, ValueError, "Expected finite values in .*, got nan in row 3, column 1"),
        (halved, ValueError, "Expected labels of every row, got none of row 'row"),
        (gappy, ValueError, "Expected every label of every row, got NaN for some"),
        (lambda: tables()[0], TypeError, r"Expected Tasks or \(views, labels\), got dict"),
        (
            lambda: bf.Tasks(tables()[0]),
            ValueError,
            "Expected labels of every row, got none at all",
        ),
        (scaled, ValueError, "Expected labels 0 and 1, got other numbers"),
        (twice, ValueError, "Expected distinct names in labels, got 'x' twice"),
        (lambda: bf.Views(tables()[0]), TypeError, "Expected Tasks or .*, got Views"),
        (lambda: None, TypeError, "Expected Tasks or .*, got NoneType"),
    ],
)
def test_bad_data_are_refused_by_name(data, error, said):
    with pytest.raises(error, match=f"^datasets 'bad': {said}"):
        bf.evaluate({"it": rates}, {"good": two_tasks(), "bad": data()}, **QUICK)


@pytest.mark.parametrize(
    ("method", "error", "said"),
    [
        ("heress", UnknownName, "Unknown method 'heress'; did you mean 'heres'?"),
        ("mlknn", UnknownName, "Unknown method 'mlknn'; did you mean 'ml_knn'?"),
        ("pmf", TypeError, "Expected a method for Tasks, got pmf, which takes Ratings"),
        (("heres", {"components": 3}), UnknownName, "setting of heres 'components'; did .* 'n_components'"),
        (("ml_knn", {"kk": 3}), UnknownName, "setting of ml_knn 'kk'; did you mean 'k'"),
        (("ml_knn", 3), TypeError, r"Expected name, \(name, settings\) or"),
        (("ml_knn", {"k": 3}, bf.FixedPoint()), TypeError, "Expected an engine for a factorization only"),
        ((), TypeError, "Expected name"),
        (3, TypeError, "Expected a method's name, Tuned or a function, got int"),
        (bf.Tuned("tram", {"kk": [3]}), UnknownName, "setting of tram 'kk'; did you mean 'k'"),
        (bf.Tuned(bf.Tuned("tram")), TypeError, "Expected one grid, got Tuned of Tuned"),
    ],
)  # fmt: skip
def test_bad_methods_are_refused_by_name(method, error, said):
    with pytest.raises(error, match=f"^methods 'bad': .*{said}".replace("?", "[?]")):
        run({"good": rates, "bad": method})


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"grid": ["k"]}, TypeError, "grid as setting -> values, got list"),
        ({"grid": {"k": []}}, ValueError, r"values to try for 'k', got \[\]"),
        ({"grid": {"k": "abc"}}, ValueError, "values to try for 'k', got 'abc'"),
        ({"grid": {"k": 3}}, ValueError, "values to try for 'k', got 3"),
        ({"share": 0}, ValueError, r"a share of the rows within \(0, 1\), got 0"),
        ({"share": True}, ValueError, r"a share of the rows within \(0, 1\), got True"),
        ({"share": np.nan}, ValueError, r"a share of the rows within \(0, 1\), got nan"),
        ({"share": "third"}, ValueError, "a share of the rows"),
        ({"threshold": True, "by": "brier"}, ValueError, "a threshold chosen by one of .*, got 'brier'"),
        ({"threshold": [0.1, np.nan]}, ValueError, "finite thresholds, got nan in row 1"),
        ({"threshold": []}, ValueError, "at least one threshold, got none"),
        ({"by": partial(np.mean, axis=0)}, TypeError, "a metric with a name, got functools.partial"),
        ({"threshold": "half"}, TypeError, "numbers as thresholds, got .*half"),
    ],
)  # fmt: skip
def test_bad_tuning_is_refused_at_once(given, error, said):
    with pytest.raises(error, match=f"^Expected {said}"):
        bf.Tuned("ml_knn", **given)


def test_an_unknown_measure_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="^Unknown metric 'micro_f'; did you mean 'micro_f1'"):
        bf.Tuned("ml_knn", by="micro_f")
    with pytest.raises(UnknownName, match="^Unknown metric 'macro'; did you mean 'macro_f1'"):
        run({"it": rates}, metrics=["macro"])


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"folds": 1}, ValueError, r"folds to be a whole number between 2 and 24 \(rows of 'd'\), got 1"),
        ({"folds": 25}, ValueError, r"folds to be a whole number between 2 and 24 \(rows of 'd'\), got 25"),
        ({"folds": True}, ValueError, "folds to be a whole number .*, got True"),
        ({"folds": 2.0}, ValueError, r"folds to be a whole number .*, got 2\.0"),
        ({"seed": -1}, ValueError, "a seed from 0 to 2\\*\\*32 - 1, got -1"),
        ({"seed": None}, ValueError, "a seed from 0 to 2\\*\\*32 - 1, got None"),
        ({"jobs": 0}, ValueError, "jobs to be a whole number from 1 on, got 0"),
        ({"jobs": True}, ValueError, "jobs to be a whole number from 1 on, got True"),
        ({"empty": "0"}, ValueError, r"empty within \[0, 1\], got '0'"),
        ({"empty": 2}, ValueError, r"empty within \[0, 1\], got 2"),
        ({"empty": np.nan}, ValueError, r"empty within \[0, 1\], got nan"),
        ({"metrics": []}, TypeError, r"a list of metrics, got \[\]"),
        ({"metrics": "micro_f1"}, TypeError, "a list of metrics, got 'micro_f1'"),
        ({"metrics": ["brier", bf.multilabel.brier]}, ValueError, "metrics by .*, got 'brier' twice"),
        ({"methods": {}}, ValueError, "at least one of the methods, got none"),
        ({"methods": ["ml_knn"]}, TypeError, "methods as name -> ..., got list"),
        ({"methods": {1: "ml_knn"}}, TypeError, "methods named by text, got 1"),
        ({"datasets": {}}, ValueError, "at least one of the datasets, got none"),
        ({"datasets": two_tasks()}, TypeError, "datasets as name -> ..., got Tasks"),
        ({"folder": __file__}, ValueError, "a folder for finished cells, got the file"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(given, error, said):
    whole = {"methods": {"it": rates}, "datasets": {"d": two_tasks()}, **QUICK, **given}
    with pytest.raises(error, match=f"^Expected {said}"):
        bf.evaluate(**whole)


def test_one_row_cannot_be_divided():
    with pytest.raises(ValueError, match="folds to be a whole number between 2 and 1"):
        bf.evaluate({"it": rates}, {"d": ([[1.0]], [[1]])}, **QUICK)


def test_nothing_to_hold_out_is_said():
    data = ([[1.0], [2.0]], [[1], [0]])
    with pytest.raises(
        bf.core.errors.BayesfacError, match="at least two training rows to hold some out"
    ):
        bf.evaluate(
            {"it": bf.Tuned(rates, {}, threshold=True)}, {"d": data}, progress=False, folds=2
        )


def test_one_method_has_a_table_without_ranks():
    data = {name: two_tasks() for name in ("a", "b")}
    found = bf.evaluate({"near": "ml_knn"}, data, folds=2, progress=False)
    assert list(found.table().index) == ["a", "b"]
    assert "(" not in "".join(found.table()["near"])
    assert repr(found).count("near") == 1


def test_settings_are_chosen_even_if_every_loss_is_infinite():
    data, _ = bf.datasets.make_tasks(45, 1, {"w": 6}, n_labels=3, labelled=1.0, seed=0)
    tuned = bf.Tuned("br_knn", {"k": [1, 2]}, by="log_loss", threshold=False)
    found = bf.evaluate({"k": tuned}, {"d": data}, folds=2, progress=False)
    assert set(found.cells["chosen"]) <= {"k=1", "k=2"}


def test_comparators_get_features_scaled_as_methods_do():
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(90, 3)), rng.normal(size=(90, 1))
    sets = {
        f"noise x {size}": bf.Tasks(np.hstack([x, size * noise]), (x > 0).astype(float))
        for size in (1, 10_000)
    }
    methods = {"scaled": "ml_knn", "raw": ("ml_knn", {"scaled": False})}
    mean = bf.evaluate(methods, sets, metrics=["micro_f1"], folds=3, progress=False).mean()
    assert mean["scaled"].nunique() == 1 and mean["raw"].nunique() == 2
