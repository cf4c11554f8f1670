"""Finished cells of a cross-validation: on disk, after an interruption, from several processes."""

import json
from dataclasses import replace
from functools import wraps
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, CorruptFile
from bayesfac.core.keys import as_json
from bayesfac.core.method import REGISTRY, lookup
from bayesfac.labels.evaluation.methods_and_measures import METRICS
from tests.labels.evaluation.test_evaluation import HERES, QUICK, rates, run, tables, two_tasks


def numbers(found):
    """All but the seconds."""
    return found.cells.drop(columns="seconds")


# ---------------------------------------------------------------------- finished cells


class Counted:
    """A function that counts its calls; the label tells two of them apart."""

    def __init__(self, stop=None):
        self.calls, self.stop = 0, stop

    def method(self):
        def scores(train, test):
            self.calls += 1
            if self.calls == self.stop:
                raise KeyboardInterrupt
            return rates(train, test)

        return scores


def test_finished_cells_are_not_run_again(tmp_path):
    counted = Counted()
    ways = {"counted": counted.method(), "near": "ml_knn"}
    first = run(ways, folder=tmp_path / "cells")
    assert counted.calls == 3 and len(list((tmp_path / "cells").iterdir())) == 6
    again = run({**ways, "new": "ls_ml"}, folder=tmp_path / "cells")
    assert counted.calls == 3
    pd.testing.assert_frame_equal(again.cells[:6], first.cells)
    other = run(ways, folder=str(tmp_path / "cells"), metrics=["brier", "subset_accuracy"])
    assert counted.calls == 3 and other.metrics == ("brier", "subset_accuracy")
    run({"another name": "ml_knn"}, folder=tmp_path / "cells")
    assert len(list((tmp_path / "cells").iterdir())) == 9, "a name alone decides nothing"


def test_whatever_decides_a_cell_makes_it_another(tmp_path):
    counted = Counted()
    one = counted.method()
    given = {"methods": {"one": one}, "datasets": {"d": two_tasks()}}
    changes = [
        {}, {"seed": 1}, {"folds": 4}, {"empty": 0.0}, {"methods": {"two": one}},
        {"methods": {"one": bf.Tuned(one)}}, {"metrics": ["micro_f1", rates_of]},
        {"datasets": {"d": bf.Tasks(*tables(seed=1), task=["a", "b"] * 12)}},
    ]  # fmt: skip
    before = 0
    for change in changes:
        bf.evaluate(**{**given, **QUICK, "folder": tmp_path, **change})
        assert counted.calls == before + change.get("folds", 3), change
        before = counted.calls
    for change in changes:
        bf.evaluate(**{**given, **QUICK, "folder": tmp_path, **change})
    assert counted.calls == before
    with patch("bayesfac.labels.evaluation.trials.version", lambda package: "0.0.0"):
        bf.evaluate(**given, **QUICK, folder=tmp_path)
    assert counted.calls == before + 3


def rates_of(Y, predicted):
    return predicted.mean()


def test_numbers_that_are_none_come_back_as_they_were(tmp_path):
    far = {"far": lambda train, test: rates(train, test), "near": "ml_knn"}
    first = run(far, folder=tmp_path, metrics=METRICS)
    pd.testing.assert_frame_equal(run(far, folder=tmp_path, metrics=METRICS).cells, first.cells)
    assert first.cells["brier"].isna().any()


def test_ctrl_c_gives_what_there_is_and_the_next_call_goes_on(tmp_path):
    counted = Counted(stop=3)
    ways = {"near": "ml_knn", "counted": counted.method()}
    cut = run(ways, folder=tmp_path)
    assert cut.partial and len(cut.cells) == 5 and "5 of 6 cells finished" in repr(cut)
    assert cut.mean()["counted"].isna().all() and cut.mean()["near"].notna().all()
    whole = run(ways, folder=tmp_path)
    assert not whole.partial and len(whole.cells) == 6 and counted.calls == 4
    pd.testing.assert_frame_equal(whole.cells[:5], cut.cells)
    nothing = run({"counted": Counted(stop=1).method()})
    assert nothing.partial and nothing.cells.empty and nothing.mean().isna().all(axis=None)
    assert "–" in repr(nothing)


def test_what_is_finished_is_shown_and_nothing_is_run(tmp_path):
    counted = Counted(stop=3)
    ways = {"near": "ml_knn", "counted": counted.method()}
    cut = run(ways, folder=tmp_path)
    seen = run(ways, folder=tmp_path, finished=True)
    pd.testing.assert_frame_equal(seen.cells, cut.cells)
    assert seen.partial and counted.calls == 3 and "5 of 6 cells" in repr(seen)
    run(ways, folder=tmp_path)
    assert not run(ways, folder=tmp_path, finished=True).partial
    for folder in (None, tmp_path / "mistyped"):
        with pytest.raises(ValueError, match=f"finished cells are, got {folder}"):
            run(ways, folder=folder, finished=True)


def test_a_fit_that_was_cut_short_is_no_finished_cell(tmp_path):
    def cut(method, data, engine, **given):
        return replace(
            fit := bf.fit(method, data, engine, **given), result=replace(fit.result, partial=True)
        )

    with patch("bayesfac.labels.evaluation.trials.run_fit", cut):
        found = run({"heres": HERES}, folder=tmp_path, folds=2)
    assert found.partial and found.cells.empty and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('"micro_f1": 0', '"micro_f1": 1'),
        lambda text: text.replace('"notes": []', '"notes": ["fine"]'),
        lambda text: "[]",
        lambda text: '{"what": "something else"}',
        lambda text: text.replace("version 1", "version 9"),
        lambda text: "\udcff",
    ],
)
def test_a_damaged_or_foreign_file_is_refused_in_one_line(tmp_path, change):
    run({"it": rates}, folder=tmp_path)
    path = sorted(tmp_path.iterdir())[0]
    text = path.read_text("utf-8")
    assert change(text) != text
    path.write_bytes(change(text).encode("utf-8", "surrogateescape"))
    with pytest.raises(
        CorruptFile, match="^Expected a finished cell of bf.evaluate or bf.auto in .*without it"
    ) as told:
        run({"it": rates}, folder=tmp_path)
    assert str(path) in str(told.value) and "\n" not in str(told.value)


def test_a_cell_under_another_name_is_refused(tmp_path):
    run({"it": rates}, folder=tmp_path)
    one, other, _ = sorted(tmp_path.iterdir())
    other.write_bytes(one.read_bytes())
    with pytest.raises(CorruptFile, match=other.name):
        run({"it": rates}, folder=tmp_path)


def test_a_cell_can_be_read_by_people(tmp_path):
    run({"it": rates}, folder=tmp_path, folds=2)
    text = json.loads(sorted(tmp_path.iterdir())[0].read_text("utf-8"))
    assert (text["dataset"], text["method"]) == ("made up", "it") and text["fold"] in (0, 1)
    assert set(text["result"]["scores"]) == set(METRICS)


# ---------------------------------------------------------------------- processes


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    ways = {
        "heres": HERES,
        "near": bf.Tuned("ml_knn", {"k": [2, 3]}),
        "rates": lambda t, n: rates(t, n),
    }
    one = run(ways, folds=2, metrics=METRICS)
    two = run(ways, folds=2, metrics=METRICS, jobs=2, folder=tmp_path)
    pd.testing.assert_frame_equal(numbers(two), numbers(one), check_exact=True)
    assert len(list(tmp_path.iterdir())) == 6
    again = run(ways, folds=2, metrics=METRICS, folder=tmp_path)
    pd.testing.assert_frame_equal(again.cells, two.cells, check_exact=True)
    with pytest.raises(
        BayesfacError, match="^'it' on 'made up', fold [01]: ValueError: Expected scores"
    ):
        run({"it": lambda train, test: np.zeros((1, 1))}, folds=2, jobs=2)

    def stops(train, test):
        raise KeyboardInterrupt

    cut = run({"near": "ml_knn", "it": stops}, folds=2, jobs=2, folder=tmp_path)
    assert cut.partial and set(cut.cells["method"]) <= {"near"}


def test_the_bar_counts_all_cells_and_begins_with_the_finished_ones(tmp_path):
    steps = []

    class Bar:
        def __init__(self, progress, total, what):
            steps.append((progress, total))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, n):
            steps.append(n)

    run({"it": rates}, folder=tmp_path)
    with patch("bayesfac.labels.evaluation.bar", Bar):
        run({"it": rates, "near": "ml_knn"}, folder=tmp_path, progress=True)
    assert steps == [(True, 6), 3, 1, 1, 1]


# ---------------------------------------------------------------------- settings told apart


def adder(n):
    return lambda x: x + n


def turned(f):
    return wraps(f)(lambda x: 1 - f(x))


def halved(f):
    return wraps(f)(lambda x: f(x) / 2)


SAME = [
    ({"a": 1, "b": (1, 2)}, {"b": [1, 2], "a": 1}),
    (np.float64(0.5), 0.5),
    (np.arange(3.0), np.arange(3.0)),
    (np.arange(3.0), pd.Series(np.arange(3.0))),
    (sp.csr_matrix(np.eye(2)), sp.csc_matrix(np.eye(2))),
    ({"x", "y", "z"}, {"z", "y", "x"}),
    (bf.FixedPoint(5), bf.FixedPoint(5)),
    (adder(1), adder(2)),  # what a function refers to is not seen: its label has to tell
    (max, max),
]
OTHER = [
    (1, True), (1, "1"), (0.5, 0.25), (np.nan, None), ("ab", ["ab"]), ([1, 2], [2, 1]),
    (np.arange(3.0), np.arange(4.0)), (np.eye(2000), np.eye(2000) + np.eye(2000, k=1) * 1e-9),
    (sp.csr_matrix(np.eye(2)), sp.csr_matrix(np.eye(3)[:2])), (bf.FixedPoint(5), bf.FixedPoint(6)),
    (bf.FixedPoint(), bf.LBFGS()), (bf.Tuned("tram", {"k": [3]}), bf.Tuned("tram", {"k": [4]})),
    (lambda x: x + 1, lambda x: x + 2), (lambda x: x.a, lambda x: x.b), (max, min),
    (lambda x, n=1: x, lambda x, n=2: x), (lambda x: [y + 1 for y in x], lambda x: [y + 2 for y in x]),
    (turned(rates), halved(rates)), (lambda x, *, a, b: a - b, lambda x, *, b, a: b - a),
    (pd.Series([1.0, 2.0], ["a", "b"]), pd.Series([1.0, 2.0], ["b", "a"])),
    (pd.DataFrame({"a": [1.0], "b": [2.0]}), pd.DataFrame({"b": [1.0], "a": [2.0]})),
    (lambda x: x[..., 0], lambda x: x[..., 1]), (0.5, "0.5"), ({"a": 0.5}, {"a": "0.5"}), (b"a", "b'a'"),
]  # fmt: skip


@pytest.mark.parametrize("pair", SAME)
def test_equal_settings_are_told_alike(pair):
    one, other = (json.dumps(as_json(value)) for value in pair)
    # functions have their place in their name
    assert one == other


@pytest.mark.parametrize("pair", OTHER)
def test_other_settings_are_told_apart(pair):
    one, other = (json.dumps(as_json(value)) for value in pair)
    assert one != other


def test_what_cannot_be_told_is_refused_only_where_it_matters(tmp_path):
    class Callable:
        def __call__(self, train, test):
            return rates(train, test)

    assert len(run({"it": Callable()}).cells) == 3
    with pytest.raises(TypeError, match="^Expected settings of numbers, text, arrays, functions"):
        run({"it": Callable()}, folder=tmp_path)


def micro_f1(method, folder=None):
    data, _ = bf.datasets.make_tasks(30, 1, {"w": 4}, n_labels=2, labelled=1.0, seed=0)
    asked = {"metrics": ["micro_f1"], "folds": 2, "progress": False, "folder": folder}
    return bf.evaluate({"near": method}, {"d": data}, **asked).mean().iloc[0, 0]


def test_a_default_of_a_keyword_decides_a_cell(tmp_path):
    def near(train, test, *, level=0.1):
        return np.full((test.n_rows, 2), level)

    first = micro_f1(near, tmp_path)
    near.__kwdefaults__ = {"level": 0.9}
    assert micro_f1(near, tmp_path) == micro_f1(near) != first


def test_the_functions_of_a_users_own_method_decide_a_cell(tmp_path):
    try:
        for one in (lookup("lsml"), lookup("cplst")):
            made = eval("lambda key, data, hyper: f(key, data, hyper)", {"f": one.init})
            made.__module__ = "mine"
            REGISTRY["mine"] = replace(one, name="mine", init=made)
            assert micro_f1("mine", tmp_path) == micro_f1("mine")
    finally:
        REGISTRY.pop("mine", None)
