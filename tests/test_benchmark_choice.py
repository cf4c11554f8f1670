"""Benchmarks choose settings inside a split: labels of tested rows have no say in settings or scores."""

import importlib
import warnings
from functools import partial

import numpy as np
import pytest

import bayesfac as bf
from tests.test_benchmarks import FOLDER

CHEAP = [
    *(
        f"{name} {way}"
        for name in ("ML-kNN", "TRAM", "LS-ML", "L2F")
        for way in ("+ task", "by task")
    ),
    *("shares of labels", "shares by task"),
    pytest.param("HERES", marks=pytest.mark.slow),
]


@pytest.fixture
def scripts(monkeypatch):
    """The two benchmarks as modules."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return {name: importlib.import_module(name) for name in ("heterogeneous", "semantics")}


@pytest.fixture
def text(scripts, monkeypatch):
    """The made-up rows, and a function that judges a line on them with the labels in question."""
    module = scripts["heterogeneous"]
    text = module.load(0)
    monkeypatch.setitem(module.WIDE, "n_components", 3)

    def judged(name, labels):
        monkeypatch.setattr(module, "load", lambda subset: text._replace(labels=labels))
        line = module.LINES[name]
        grid = {key: values[:2] for key, values in module.GRID[line.method].items()}
        if "r" in grid:
            grid["r"] = [None]
        if line.way == "+ task":
            grid["indicator"] = module.INDICATOR
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.ConvergenceWarning)
            return module.judge(line, grid, 0, 0)

    return text, judged


@pytest.mark.parametrize("name", CHEAP)
def test_tested_labels_choose_nothing_on_rcv1(scripts, text, name):
    rows, judged = text
    known = scripts["heterogeneous"].drawn(rows.task, 1 / 2, 0)
    other = np.where(known[:, None], rows.labels, 1 - rows.labels)
    one, two = judged(name, rows.labels), judged(name, other)
    for rule in ("own rule", "threshold"):
        assert one[rule]["settings"] == two[rule]["settings"]
        assert one[rule]["cut"] == two[rule]["cut"]
        # all labels of tested rows are turned, and the predictions are the same
        assert one[rule]["Hamming"] == pytest.approx(1 - two[rule]["Hamming"], abs=2e-4)
    first = np.where(known[:, None], np.eye(4)[:1], rows.labels)
    assert judged(name, first)["threshold"] != one["threshold"]  # labels of known rows do count


@pytest.mark.parametrize("line", ["ML-kNN", "shares"])
def test_tested_labels_choose_nothing_in_semantics(scripts, monkeypatch, line):
    module = scripts["semantics"]
    views, y = module.load("made up")
    known = module.halves(len(y), 0)
    judged = partial(module.judge, "made up", line, {"k": [3, 6]} if line == "ML-kNN" else {}, 0)
    one = judged()
    monkeypatch.setattr(module, "load", lambda _: (views, np.where(known[:, None], y, 1 - y)))
    two = judged()
    for rule in ("own rule", "threshold"):
        assert one[rule]["settings"] == two[rule]["settings"]
        assert one[rule]["cut"] == two[rule]["cut"]
        assert one[rule]["Hamming"] == pytest.approx(1 - two[rule]["Hamming"], abs=2e-4)


def test_the_code_that_tells_the_task_is_not_scored(scripts):
    module = scripts["heterogeneous"]
    names, rng = np.array(module.TOPICS), np.random.default_rng(0)
    every = (rng.random((200, len(names))) < 0.1).astype(float)
    codes = np.isin(names, ["CCAT", "ECAT", "GCAT"])
    labels, task = module.branches(every)
    np.testing.assert_array_equal(labels, every[:, ~codes])
    other = every.copy()
    other[:, ~codes & ~np.char.startswith(names, "M")] = 0  # topics of the three branches
    np.testing.assert_array_equal(module.branches(other)[1], task)


def test_settings_are_the_best_of_the_inner_rows(scripts):
    nested = importlib.import_module("common.nested").nested
    Y = np.array([[1, 0], [0, 1], [1, 1]])
    scores = {"good": 0.1 + 0.2 * Y, "bad": 0.3 - 0.2 * Y, "loud": np.full(Y.shape, 0.9)}
    of = partial(dict.get, scores)
    choose = partial(nested, {"which": list(scores)}, rule=lambda p: p > 0.5)
    measure = bf.multilabel.micro_f1
    found = choose(
        inner=(Y, lambda s: of(s["which"])),
        outer=(1 - Y, lambda s: of(s["which"])),
        by=measure,
        measures={"F1": measure},
    )
    assert found["threshold"]["settings"] == {
        "which": "good"
    }  # with a threshold of 0.3 all is right
    assert found["own rule"]["settings"] == {
        "which": "loud"
    }  # above one half only "loud" says anything
    assert found["threshold"]["F1"] == 0.0
