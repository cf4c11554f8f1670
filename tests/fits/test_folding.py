"""New rows for a fit that is done: the paper's row step with all else held, worked out in NumPy beside it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, NumericalError
from bayesfac.core.method import lookup, sites
from bayesfac.labels.data.scaling import rescaled
from bayesfac.labels.data.tasks import LABELS

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
NAMES = ["x", "y", "z"]
HYPER = {
    "heres": {"n_components": 3, "sparsity": 0.1, "weight": 0.8},
    "lsa_mml": {"n_components": 3, "ridge": 0.1, "weight": 0.8, "alpha": (0.4, 0.6)},
    "himls": {"layers": ((3, 3),), "pretraining": 20, "start": "plsa"},
    "himlsd": {"layers": ((3, 3),), "pretraining": 20, "start": "plsa"},
}
ROWS = {"heres": "F", "lsa_mml": "P", "himls": "R", "himlsd": "R"}
METHODS = sorted(HYPER)


def drawn(sizes, seed, known=0.7, lacking="c"):
    """Rows that mix three topics, and the labels of those with a large share; one task has no links."""
    topics = np.random.default_rng(99).gamma(1.0, 1.0, (12, 3))
    rng, views, labels = np.random.default_rng(seed), {}, {}
    for task, n in sizes.items():
        share = rng.dirichlet(np.full(3, 0.3), n)
        x = 3 * share @ topics.T + 0.1 * rng.random((n, 12))
        rows = [f"{task}{seed}.{i}" for i in range(n)]
        views[task] = {"words": pd.DataFrame(x[:, :7], rows), "links": pd.DataFrame(x[:, 7:], rows)}
        labels[task] = pd.DataFrame((share > 0.4) * 1.0, rows, columns=NAMES)
        labels[task][rng.random(n) > known] = np.nan
        if task == lacking:
            del views[task]["links"]
    return views, labels


@cache
def training():
    return bf.Tasks(*drawn({"a": 12, "b": 10, "c": 10}, 1))


@cache
def point(name, sweeps=1000, **hyper):
    engine = bf.FixedPoint(sweeps, tol=0, every=sweeps)
    return bf.fit(name, training(), engine, progress=False, **(HYPER[name] | hyper))


@cache
def draws():
    engine = bf.Gibbs(warmup=5, draws=5, chains=1)
    return bf.fit("heres", training(), engine, progress=False, **HYPER["heres"])


def new(sizes=None, seed=5, known=0.0, lacking="c"):
    return bf.Tasks(*drawn(sizes or {"b": 3, "a": 4}, seed, known, lacking))


def of_rows(fit, values, data):
    """Some rows of training, in the order that `data` has them."""
    return np.asarray(values)[fit.data.coords["row"].get_indexer(data.rows)]


# ---------------------------------------------------------------------- rows that training knew


@pytest.mark.parametrize("name", METHODS)
def test_rows_without_labels_come_back_as_training_had_them(name):
    """heres and lsa_mml solve for the rows: off only by what training was off its end after 1,000 sweeps. The
    others step towards them, and training was hundredths of a probability off its own end."""
    data, fit = training(), point(name)
    hidden = data.take(~data.labelled)
    folded = fit.fold_in(hidden)
    ask = hidden.grid(NAMES)
    far = 1e-4 if name in ("heres", "lsa_mml") else 0.05
    np.testing.assert_allclose(folded.predict(ask).mean, fit.predict(ask).mean, rtol=0, atol=far)
    assert folded.predict(hidden).labels.equals(ask)  # no labels there: asked for all of them


@pytest.mark.parametrize("name", METHODS)
def test_held_factors_are_those_of_the_fit(name):
    data, fit = training(), point(name)
    folded = fit.fold_in(data.take(~data.labelled))
    before, after = sites(fit.params), sites(folded.params)
    assert before.keys() == after.keys()
    for site in before.keys() - {ROWS[name], "left"}:
        np.testing.assert_array_equal(before[site], after[site], err_msg=site)
    assert folded.trace is fit.trace and folded.name == fit.name and folded.is_point


WEIGHTS = [
    {},
    {"alpha": None},
    {"alpha": None, "noise": True},
]


@pytest.mark.parametrize("hyper", WEIGHTS, ids=["given", "best", "noise"])
def test_lsa_mml_takes_the_next_step_of_training(hyper):
    """Its sweep begins with the rows, so folding in all of them is exactly that part of one more."""
    data, fit = training(), point("lsa_mml", **hyper)
    once = fit.method.solver.update(fit.params, rescaled(data, fit.data.scales), fit.hyper)
    np.testing.assert_allclose(fit.fold_in(data).params.P, once.P, rtol=1e-8, atol=1e-10)


def test_the_steps_lead_as_low_as_training_came():
    """From rows that are all alike to the objective of training's own: the factors of several layers do not
    determine a row, and two that are equally good may differ."""
    data, fit = training(), point("himls", 30, layers=((3, 3), (2, 2)))
    hidden = data.take(~data.labelled)
    folded = fit.fold_in(hidden)

    def J(rows):
        return float(fit.method.objective(folded.params._replace(R=rows), hidden, fit.hyper))

    own = of_rows(fit, fit.params.R, hidden)
    alike = np.broadcast_to(np.asarray(fit.params.R).mean(0), own.shape)
    assert J(alike) - J(folded.params.R) > 0.98 * (J(alike) - J(own)) > 0


# ---------------------------------------------------------------------- by hand


def solved(blocks, tables, weights, ridge):
    """The rows of least squares: (sum w X B) (sum w B'B + ridge)^-1, over the blocks that a row has."""
    gram = sum(weights[b] * tables[b].T @ tables[b] for b in blocks) + ridge
    return sum(weights[b] * x @ tables[b] for b, x in blocks.items()) @ np.linalg.inv(gram)


def by_hand(name, p, fit, data):
    """What fold_in should make of every row: of `heres` by (10), of `lsa_mml` by (14)."""
    heres, hyper, tasks = name == "heres", fit.hyper, fit.data.coords["task"]
    data = rescaled(data, fit.data.scales)
    tables = {b: np.asarray(B) for b, B in p["B"].items()} | ({} if heres else {LABELS: p["W"]})
    weights = dict.fromkeys(data.names, 1.0) | {LABELS: hyper.weight**2}
    if not heres:
        weights = dict(zip(data.names, np.asarray(p["weights"]), strict=True))
        weights |= {LABELS: hyper.weight}
    found = []
    for k in range(data.n_rows):
        i, known = data.task[k], data.labelled[k]
        has = [v for v in data.names if data.host.present[v][i]] + [LABELS] * int(known)
        ridge = np.diag(p["D"][tasks.get_loc(data.tasks[i])]) if heres else hyper.ridge * np.eye(3)
        found.append(solved({b: data[b][k].toarray()[0] for b in has}, tables, weights, ridge))
    return np.array(found)


NEW = {
    "two tasks, in another order": ({"b": 3, "a": 4}, 0.0, "c"),
    "all tasks, some labels": ({"c": 2, "a": 3, "b": 4}, 0.5, "c"),
    "a task without a view it had": ({"a": 3, "b": 2}, 0.5, "a"),
    "one task, all labels": ({"b": 3}, 1.0, "c"),
}


@pytest.mark.parametrize("case", NEW)
@pytest.mark.parametrize("name", ["heres", "lsa_mml"])
def test_new_rows_are_solved_for(name, case):
    fit = point(name)
    sizes, known, lacking = NEW[case]
    data = new(sizes, 5, known, lacking)
    folded = fit.fold_in(data)
    wanted = by_hand(name, fit.params._asdict(), fit, data)
    rows = np.asarray(getattr(folded.params, ROWS[name]))
    np.testing.assert_allclose(rows, wanted, rtol=1e-7, atol=1e-9)
    side = np.asarray(fit.params.B[LABELS] if name == "heres" else fit.params.W)
    ask = pd.DataFrame({"row": data.rows[::-1], "label": "y"})
    mean = np.clip(wanted[::-1] @ side[1], 1e-3, 1 - 1e-3)
    np.testing.assert_allclose(folded.predict(ask).mean, mean, atol=1e-7)


def test_every_draw_has_its_own_rows(tmp_path):
    fit, data = draws(), new({"c": 2, "a": 3, "b": 4}, known=0.5)
    folded = fit.fold_in(data)
    assert folded.draws["F"].shape == (1, 5, 9, 3) and folded.draws["D"].shape == (1, 5, 3, 3)
    hands = []
    for k in range(5):
        B = {site[2:]: value[0, k] for site, value in fit.draws.items() if site.startswith("B.")}
        p = {"B": B, "D": fit.draws["D"][0, k]}
        hands.append(by_hand("heres", p, fit, data))
        np.testing.assert_allclose(folded.draws["F"][0, k], hands[-1], rtol=1e-7, atol=1e-9)
    assert folded.stats is fit.stats and not folded.is_point
    prediction = folded.predict({"row": data.rows, "label": ["x"] * 9})
    each = [
        np.clip(F @ fit.draws["B.labels"][0, k, 0], 1e-3, 1 - 1e-3) for k, F in enumerate(hands)
    ]
    np.testing.assert_allclose(prediction.mean, np.mean(each, 0), atol=1e-7)
    np.testing.assert_allclose(prediction.sd_mean, np.std(each, 0), atol=1e-7)
    posterior = folded.posterior["posterior"]
    assert posterior["F"].coords["row"].values.tolist() == data.rows.tolist()
    folded.save(tmp_path / "fit")
    again = bf.load(tmp_path / "fit")
    np.testing.assert_array_equal(again.predict(data).mean, folded.predict(data).mean)
    twice = again.fold_in(new({"a": 2}, 6))  # a fit that was folded, saved and loaded is a fit
    once = fit.fold_in(new({"a": 2}, 6))
    np.testing.assert_allclose(twice.draws["F"], once.draws["F"], rtol=1e-12)


# ---------------------------------------------------------------------- rows by label


@pytest.mark.parametrize("name", METHODS)
def test_new_rows_are_asked_for_by_label(name):
    fit, data = point(name), bf.Tasks(drawn({"b": 3, "a": 4}, 5)[0])  # that know of no labels
    folded = fit.fold_in(data)
    assert data.tasks.tolist() == ["b", "a"] and folded.data.coords["task"].tolist() == ["b", "a"]
    every = folded.predict(data)
    assert len(every) == 21 and not every.flagged.any() and np.isfinite(every.mean).all()
    assert every.labels["row"].tolist() == np.repeat(data.rows, 3).tolist()
    ask = {"row": ["a5.2", "b5.0", "nobody", "a1.0"], "label": ["z", "x", "x", "x"]}
    some = folded.predict(ask)
    assert some.flagged.tolist() == [False, False, True, True]  # the fit has other rows now
    table = every.labels.assign(mean=every.mean).set_index(["row", "label"])["mean"]
    np.testing.assert_allclose(some.mean[:2], [table["a5.2", "z"], table["b5.0", "x"]], rtol=1e-9)
    assert folded.data.levels == (0.0, 1.0) and set(every.level) <= {0.0, 1.0}
    assert folded.data.shape == (7, 3) and set(folded.data.probe["row"]) <= set(data.rows)
    assert not folded.data.probe.duplicated().any()
    np.testing.assert_allclose(folded.everywhere().mean.ravel(), every.mean, rtol=1e-7)


@pytest.mark.parametrize("name", METHODS)
def test_what_is_folded_in_beside_does_not_matter(name):
    fit, whole = point(name), new()
    together = fit.fold_in(drawn({"b": 3, "a": 4}, 5)[0])  # what Tasks reads, as `fit` does
    part = whole.take(whole.task == 1)
    alone = fit.fold_in(part)
    assert list(part.tasks) == ["a"]
    np.testing.assert_allclose(alone.predict(part).mean, together.predict(part).mean, rtol=1e-7)


@pytest.mark.parametrize("name", METHODS)
def test_rows_of_a_task_that_lacks_a_view_come_alone(name):
    """Task c has no links in training, and its new rows have none either."""
    fit, views = point(name), drawn({"b": 3, "c": 4}, 5)[0]
    alone, together = fit.fold_in({"c": views["c"]}), fit.fold_in(views)
    ask = pd.DataFrame({"row": [f"c5.{i}" for i in range(4)], "label": "y"})
    np.testing.assert_allclose(alone.predict(ask).mean, together.predict(ask).mean, rtol=1e-7)


@pytest.mark.parametrize("name", METHODS)
def test_views_tell_and_labels_help(name):
    fit, sizes = point(name), {"a": 30, "b": 30}
    told, bare = new(sizes, known=1.0), new(sizes)
    truth = told.value
    blind, seeing = (fit.fold_in(data).predict(told.grid(NAMES)) for data in (bare, told))
    usual = max(truth.mean(), 1 - truth.mean())
    assert (blind.level == truth).mean() > usual + 0.1  # 180 cells: three standard errors
    # who minimises one term more makes that term smaller
    assert np.mean((seeing.mean - truth) ** 2) < np.mean((blind.mean - truth) ** 2)


@pytest.mark.parametrize("name", METHODS)
def test_saved_and_loaded_fits_fold_alike(name, tmp_path):
    fit, data = point(name), new()
    folded = fit.fold_in(data)
    wanted = folded.predict(data).mean
    fit.save(tmp_path / "fit")
    folded.save(tmp_path / "folded")
    np.testing.assert_array_equal(
        bf.load(tmp_path / "fit").fold_in(data).predict(data).mean, wanted
    )
    again = bf.load(tmp_path / "folded")
    np.testing.assert_array_equal(again.predict(data).mean, wanted)
    assert {k: list(v) for k, v in again.data.coords.items()} == {
        k: list(v) for k, v in folded.data.coords.items()
    }


@pytest.mark.parametrize("name", ["heres", "lsa_mml"])
def test_folding_in_twice_is_folding_in_the_last(name):
    fit, last = point(name), new({"a": 2}, 6)
    twice, once = fit.fold_in(new()).fold_in(last), fit.fold_in(last)
    np.testing.assert_allclose(twice.predict(last).mean, once.predict(last).mean, rtol=1e-10)


def test_fits_without_pretraining_fold_in_too():
    fit = point("himls", 30, pretraining=0)
    rows = fit.fold_in(training()).params.R
    assert np.ptp(rows, 0).max() > 0.1


# ---------------------------------------------------------------------- errors

WORDS, LINKS = np.ones((2, 7)), np.ones((2, 5))
BOTH = {"words": WORDS, "links": LINKS}
BAD = [
    ({"z": BOTH}, ValueError, r"Expected rows of the tasks \['a', 'b', 'c'\], got 'z'"),
    ({"a": BOTH, 7: BOTH}, ValueError, r"Expected rows of the tasks \['a', 'b', 'c'\], got 7$"),
    ({"a": {"word": WORDS}}, ValueError, r"views \['links', 'words'\] of training, got \['word'\]"),
    ({"a": {**BOTH, "more": WORDS}}, ValueError, r"of training, got \['links', 'more', 'words'\]"),
    ({"a": {**BOTH, "words": LINKS}}, ValueError, "the 7 columns of 'words' in training, got others"),
    ({"a": {**BOTH, "words": pd.DataFrame(WORDS, columns=[*"abcdefg"])}}, ValueError, "7 columns of 'words'"),
    (bf.Tasks({"a": BOTH}, {"a": np.ones((2, 2))}), ValueError, "the 3 columns of 'labels' in training"),
    (bf.Views(BOTH), TypeError, "Expected Tasks for heres, got Views"),
    (bf.Ratings(np.eye(2)), TypeError, "Expected Tasks for heres, got Ratings"),
    ({"a": {**BOTH, "words": WORDS * np.nan}}, ValueError, "Task 'a': .* finite values in view 'words'"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BAD)))
def test_rows_that_do_not_fit_are_refused(case):
    data, error, said = BAD[case]
    with pytest.raises(error, match=said):
        point("heres").fold_in(data)


def test_methods_without_such_a_step_say_so():
    for name, why in (
        ("mlc_hmf", "it has no step for them"),
        ("ltm", "a row depends on its neighbours"),
    ):
        fit = replace(point("heres"), method=lookup(name))  # refused before anything is looked at
        with pytest.raises(
            BayesfacError, match=f"{name} has no way to add rows to a point fit: {why}"
        ):
            fit.fold_in(new() if name == "mlc_hmf" else {"x": np.eye(2)})


def test_rows_that_end_in_nan_are_an_error():
    fit = point("himls")
    broken = replace(fit.method, fold_in=lambda p, data, h: p._replace(R=np.nan * p.R[:1]))
    fit = replace(fit, method=broken)
    with pytest.raises(NumericalError, match="NaN or infinity in R of the new rows"):
        fit.fold_in({"a": BOTH})
