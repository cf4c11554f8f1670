"""New users of ratings and new rows of topic models, beside the row step worked out in NumPy."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, DataWarning
from bayesfac.core.method import REGISTRY, from_sites, sites

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
rng = np.random.default_rng(0)
REAL = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 6)) + 0.2 * rng.normal(size=(20, 6))
REAL[rng.random(REAL.shape) < 0.2] = np.nan
LEVELS = np.where(np.isnan(REAL), np.nan, np.digitize(REAL, [-1, 0, 1]) + 1.0)
COUNTS = rng.poisson(1 + 6.0 * (np.arange(15)[:, None] % 3 == np.arange(8) % 3)).astype(float)
BY_DESCENT = [
    pytest.param(n, marks=[] if n in ("pmf", "pmmmf") else pytest.mark.slow)
    for n, m in sorted(REGISTRY.items())
    if m.data is bf.Ratings and "no_fold_in" not in m.notes.traits
]  # fmt: skip


def ratings(name, rows=slice(None)):
    if "levels" not in REGISTRY[name].Hyper._fields:
        return bf.Ratings(REAL[rows])
    two = name == "bmmmf"
    return bf.Ratings(np.minimum(LEVELS[rows], 2) if two else LEVELS[rows], levels=2 if two else 4)


@cache
def point(name, **hyper):
    engine = bf.FixedPoint(300, tol=1e-10) if REGISTRY[name].solver.update else bf.LBFGS(300)
    few = {k: 2 for k in ("n_components", "members") if k in REGISTRY[name].Hyper._fields}
    return bf.fit(name, ratings(name), engine, progress=False, **few | hyper)


# ---------------------------------------------------------------------- users


def test_new_users_are_ridge_regressions():
    fit, new = point("pmf", biases=False), bf.Ratings(REAL[:5])
    V, h = np.asarray(fit.params.V), fit.hyper
    wanted = []
    for row in REAL[:5]:
        own, y = V[~np.isnan(row)], row[~np.isnan(row)] - h.offset
        gram = own.T @ own / h.noise**2 + np.eye(2) / h.scale_user**2
        wanted.append(np.linalg.solve(gram, own.T @ y / h.noise**2))
    folded = fit.fold_in(new)
    np.testing.assert_allclose(folded.params.U, wanted, atol=1e-6)
    np.testing.assert_array_equal(folded.params.V, fit.params.V)
    assert folded.hyper == fit.hyper and folded.is_point
    assert folded.data.shape == (5, 6) and not folded.predict(new).flagged.any()


@pytest.mark.parametrize("name", BY_DESCENT)
def test_users_of_training_come_back(name):
    """As low as the solver came, or lower; alone as among others; all else as it was."""
    fit, data = point(name), ratings(name)
    folded = fit.fold_in(data)
    J = [float(fit.method.objective(f.params, data, fit.hyper)) for f in (fit, folded)]
    assert J[1] <= J[0] + 1e-6 * abs(J[0])
    few = ratings(name, slice(3))
    alone = fit.fold_in(few).predict(few).mean
    np.testing.assert_allclose(alone, folded.predict(few).mean, atol=1e-4)
    own = {site for site, dims in fit.method.axes.dims.items() if "user" in dims}
    before, after = sites(fit.params), sites(folded.params)
    assert before.keys() == after.keys()
    for site in before.keys() - own:
        np.testing.assert_array_equal(before[site], after[site], err_msg=site)


def test_where_levels_end_at_infinity_no_mean_is_taken():
    """Of a user who only gave the least level, and of one who only gave the best."""
    extremes = bf.Ratings(np.array([[1.0, 1, 1], [3, 3, 3], [1, 2, 3]]), levels=3)
    fit = bf.fit("pmmmf", extremes, bf.LBFGS(50), n_components=1, progress=False)
    assert {-np.inf, np.inf} <= set(np.asarray(fit.params.cut).ravel())
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert np.isfinite(fit.fold_in(extremes).predict(extremes).mean).all()


def test_every_draw_has_its_own_users(tmp_path):
    """Of a method without conditionals: the users of a draw are those of a point with its other sites."""
    fit = bf.fit("pmmmf", ratings("pmmmf"), bf.SVI(300, draws=3), n_components=2, progress=False)
    new = ratings("pmmmf", slice(5))
    folded = fit.fold_in(new)
    assert folded.draws["U"].shape == (1, 3, 5, 2)
    means = folded.predict(new).draws_of_mean()
    like = point("pmmmf")
    for draw in (0, 2):
        p = {site: value[0, draw] for site, value in fit.draws.items()}
        one = replace(
            like, result=replace(like.result, params=from_sites(fit.method, p)), hyper=fit.hyper
        )
        np.testing.assert_allclose(means[0, draw], one.fold_in(new).predict(new).mean, atol=1e-4)
    folded.save(tmp_path / "fit")
    np.testing.assert_array_equal(
        bf.load(tmp_path / "fit").predict(new).mean, folded.predict(new).mean
    )


def test_new_users_do_not_change_what_is_known_of_the_run():
    """Diagnostics said that VB stopped after -1 looks, and forgot divergences and interruptions."""
    engine = bf.VB(warmup=5, chains=1, draws=20)
    fit = bf.fit("pmf", ratings("pmf"), engine, n_components=1, progress=False)
    folded = fit.fold_in(ratings("pmf", slice(3)))
    assert fit.converged and folded.converged and folded.notes == fit.notes
    assert folded.trace is fit.trace
    assert folded.diagnostics().findings[0] == fit.diagnostics().findings[0]
    stats = {"lp": np.zeros((1, 20)), "diverging": np.arange(20)[None] == 3}
    cut = replace(fit, result=replace(fit.result, stats=stats, partial=True))
    again = cut.fold_in(ratings("pmf", slice(3)))
    assert again.partial and list(again.stats) == ["diverging"]  # the log joint had other users
    assert again.stats["diverging"].sum() == 1


def test_users_are_asked_for_by_label_and_items_may_lack():
    cells = [(u, i, 1.0 + (u + ord(i)) % 3) for u in range(6) for i in "abc"]
    train = bf.Ratings(*map(list, zip(*cells, strict=True)))
    fit = bf.fit("pmf", train, n_components=1, progress=False)
    folded = fit.fold_in(bf.Ratings(["zoe", "zoe", "yan"], ["c", "a", "c"], [3.0, 1.0, 2.0]))
    found = folded.predict({"user": ["zoe", "yan", "xia"], "item": ["b", "b", "a"]})
    assert found.flagged.tolist() == [False, False, True] and np.isfinite(found.mean).all()
    with pytest.raises(ValueError, match="Expected items of the training data, got 'd'"):
        fit.fold_in(bf.Ratings(["zoe"], ["d"], [1.0]))
    with pytest.raises(
        ValueError, match=r"Expected the levels of training, None, got \(1.0, 2.0, 3.0\)"
    ):
        fit.fold_in(bf.Ratings(["zoe"], ["a"], [1.0], levels=3))


@pytest.mark.parametrize("engine", [None, bf.Gibbs(5, 10, 1)])
@pytest.mark.parametrize("rows", ["user", "item"])
def test_labels_that_training_did_not_know_are_named_and_the_others_are_used(engine, rows):
    cells = [(u, i, 1.0 + (u + ord(i)) % 3) for u in range(6) for i in "abc"]
    train = bf.Ratings(*map(list, zip(*cells, strict=True)))
    fit = bf.fit("pmf", train, engine, n_components=1, progress=False)
    new, old = ["zoe", "zoe", "yan", "yan", "xia"], ["c", "new", "b", "newer", "newest"]
    if rows == "item":
        old = [2, 77, 4, 88, 99]
    names = [new, old] if rows == "user" else [old, new]
    told = bf.Ratings(*names, [3.0, 1.0, 2.0, 2.0, 1.0])
    what = (
        f"3 {'item' if rows == 'user' else 'user'}.* such as {old[1]!r}; the other 2 of 5 ratings"
    )
    with pytest.warns(DataWarning, match=what) as heard:
        folded = fit.fold_in(told, rows=rows)
    assert heard[0].filename == __file__
    assert list(folded.data.coords[rows]) == ["xia", "yan", "zoe"]
    assert folded.data.cells(rows).tolist() == [0, 1, 1]  # of xia only the prior is known
    names = [np.array(side)[[0, 2]] for side in names]
    alone = fit.fold_in(bf.Ratings(*names, [3.0, 2.0]), rows=rows)
    asked = {"user": names[0], "item": names[1]}
    if engine is None:  # draws have other random numbers if there are more rows
        np.testing.assert_allclose(folded.predict(asked).mean, alone.predict(asked).mean, rtol=1e-5)


def test_levels_are_those_of_training(tmp_path):
    fit = bf.fit("ordinal_mf", ratings("ordinal_mf"), n_components=1, progress=False)
    table = ratings("ordinal_mf", slice(3)).frame()
    folded, wanted = fit.fold_in(table), fit.fold_in(bf.Ratings(table, levels=4))
    assert folded.data.levels == fit.data.levels
    np.testing.assert_array_equal(folded.predict(table).mean, wanted.predict(table).mean)
    table.loc[1, "rating"] = 2.5
    with pytest.raises(ValueError, match=r"2.5 in row 1"):
        fit.fold_in(table)
    whole = ratings("ordinal_mf").frame()
    assert fit.update(whole).data.levels == fit.data.levels


def test_where_no_descent_finds_users_it_is_said():
    with pytest.raises(
        BayesfacError, match="gibbs_mmmf has no way to add rows .* no slope where it"
    ):
        point("gibbs_mmmf").fold_in(ratings("gibbs_mmmf"))


# ---------------------------------------------------------------------- rows of topic models


@pytest.mark.parametrize("name", ["plsa", "mvplsa"])
def test_new_rows_have_their_best_shares(name):
    """Hofmann's folding-in is concave in a row's shares a: at the top every topic k with a share has slope
    sum_w n_w C_kw / (aC)_w equal to the row's total, and no topic has a larger one."""
    views = {"x": COUNTS[:, :5], "y": COUNTS[:, 5:]} if name == "mvplsa" else {"x": COUNTS}
    more = {"n_topics": 3} if name == "mvplsa" else {}
    fit = bf.fit(name, bf.Views(views), n_components=3, progress=False, **more)
    new = {view: x[:4] + 1 for view, x in views.items()}
    folded = fit.fold_in(new)
    p = folded.params
    G = [np.asarray(p.B[v] @ p.C[v]) for v in sorted(views)] if more else [np.asarray(p.C)]
    A, n = np.asarray(p.A), np.hstack([new[v] for v in sorted(new)])
    G = np.hstack(G)
    slope = (n / (A @ G)) @ G.T
    np.testing.assert_allclose((A * slope), A * n.sum(1, keepdims=True), atol=0.05)
    assert (slope <= n.sum(1, keepdims=True) * 1.01).all()
    one = fit.fold_in({view: x[[2]] for view, x in new.items()})
    np.testing.assert_allclose(one.params.A, A[[2]], rtol=1e-8)
    assert folded.data.shape[0] == 4 and not folded.predict(bf.Views(new)).flagged.any()
    with pytest.raises(ValueError, match=r"Expected the views \[.* of training, got \['z'\]"):
        fit.fold_in({"z": COUNTS})
    with pytest.raises(ValueError, match="columns of 'x' in training, got others"):
        fit.fold_in(views | {"x": COUNTS[:, :2]})


@pytest.mark.parametrize("name", ["plsa", "mvplsa"])
def test_draws_have_draws_of_new_rows(name):
    """Beside the posterior of each row's shares, by quadrature at every draw of the topics. Every row had its
    likeliest shares."""
    views = {"x": COUNTS[:, :5], "y": COUNTS[:, 5:]} if name == "mvplsa" else {"x": COUNTS}
    more = {"n_topics": 2, "b": 2.0} if name == "mvplsa" else {}
    engine = bf.Gibbs(200, 1000, 2)
    fit = bf.fit(
        name, bf.Views(views), engine, n_components=2, a=1.5, c=1.2, progress=False, **more
    )
    new = {view: np.zeros((3, x.shape[1])) for view, x in views.items()}
    new["x"][[0, 1, 1], [0, 1, 4]] = 2, 1, 7
    drawn = np.asarray(fit.fold_in(new).draws["A"])[..., 0].reshape(-1, 3)
    p = {s: np.asarray(x).reshape(-1, *x.shape[2:]) for s, x in fit.draws.items()}
    G = p["B.x"] @ p["C.x"] if more else p["C"]
    share = (np.arange(400) + 0.5) / 400
    law = np.stack([share, 1 - share]).T @ G  # draws x shares x words
    logs = np.log(law) @ new["x"].T + 0.5 * np.log(share * (1 - share))[:, None]
    weight = np.exp(logs - logs.max(1, keepdims=True))
    weight /= weight.sum(1, keepdims=True)
    mean, square = (np.einsum("s,dsr->r", share**k, weight) / len(law) for k in (1, 2))
    # 2,000 draws: a standard error is about .007
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.04)
    np.testing.assert_allclose(drawn.std(0), (square - mean**2) ** 0.5, atol=0.03)


def test_rows_without_a_count_know_nothing():
    fit = bf.fit("plsa", bf.Views(COUNTS), n_components=3, progress=False)
    new = np.zeros((2, 8))
    new[0] = COUNTS[0]
    np.testing.assert_allclose(fit.fold_in(bf.Views(new)).params.A[1], 1 / 3)
