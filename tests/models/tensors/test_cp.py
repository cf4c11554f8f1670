"""cp: one sweep computed by hand, with two modes the model of bpmf, and components that are found again."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import query_of
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels import sparse
from bayesfac.core.method import REGISTRY, from_sites

CP = REGISTRY["cp"]
QUIET = {"progress": False}


def golden(method):
    """Every block at the mode of its conditional in turn, by sums over a table with holes."""
    data, h = method.example(jax.random.key(3))
    p = jax.tree.map(jnp.asarray, method.init(jax.random.key(4), data, h))  # keys in JAX's order
    names, K = data.modes, h.n_components
    U, mu, Lambda = ({m: np.array(site[m]) for m in names} for site in p[:3])
    alpha, y = float(p.alpha), np.full(data.shape, np.nan)
    y[tuple(data.code.T)] = data.value - h.offset
    for m in sorted(names):  # eq. 9: mode of Wishart(nu0 + n + 1)
        x, n = U[m] - mu[m], len(U[m])
        rate = h.rate * np.eye(K) + x.T @ x + h.beta0 * np.outer(mu[m], mu[m])
        Lambda[m] = (K + n + 1 - K - 1) * np.linalg.inv(rate)
    for m in sorted(names):
        mu[m] = U[m].sum(0) / (h.beta0 + len(U[m]))
    for m in sorted(names):  # eq. 8: one ridge regression for each row
        at = names.index(m)
        one, two = (U[other] for other in names if other != m)
        z = np.einsum("jk,lk->jlk", one, two).reshape(-1, K)
        for i, line in enumerate(np.moveaxis(y, at, 0).reshape(data.shape[at], -1)):
            seen = ~np.isnan(line)
            P = Lambda[m] + alpha * z[seen].T @ z[seen]
            U[m][i] = np.linalg.solve(P, Lambda[m] @ mu[m] + alpha * z[seen].T @ line[seen])
    error = np.nansum((y - np.einsum("ik,jk,lk->ijl", *(U[m] for m in names))) ** 2)
    alpha = (h.alpha_shape + 0.5 * len(data) - 1) / (h.alpha_rate + 0.5 * error)
    new = jax.jit(lambda p: method.solver.update(p, data, h))(p)
    for mine, theirs in zip((U, mu, Lambda), new[:3], strict=True):
        for m in names:
            np.testing.assert_allclose(theirs[m], mine[m], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(new.alpha, alpha, rtol=1e-9)


def test_golden_step():
    golden(CP)


def test_a_third_mode_with_one_label_is_a_matrix():
    """With w = 1 the rows of u see what those of bpmf see, cell by cell, in both forms of the loops."""
    tensor, _ = bf.datasets.make_tensor((6, 5, 1), 2, density=0.7, seed=0)
    ratings = bf.Ratings(*tensor.code.T[:2], tensor.value)
    bpmf = REGISTRY["bpmf"]
    h = CP.prepare(tensor, CP.Hyper(1))
    p = CP.init(jax.random.key(0), tensor, h)
    U = p.U | {"mode_3": jnp.ones((1, 1))}
    p = p._replace(U=U)
    g = bpmf.prepare(ratings, bpmf.Hyper(1, rate=h.rate))
    q = bpmf.init(jax.random.key(0), ratings, g)
    q = q._replace(U=U["mode_1"], V=U["mode_2"], mu_U=p.mu["mode_1"], alpha=p.alpha)
    q = q._replace(Lambda_U=p.Lambda["mode_1"])
    for form in ("numba", "jax"):
        with sparse.use(form):
            mine = CP.gibbs.conditionals["U"](p, tensor, h, "mode_1").mean
            np.testing.assert_allclose(
                mine, bpmf.gibbs.conditionals["U"](q, ratings, g).mean, rtol=1e-9
            )


def test_both_forms_of_the_loops_agree():
    """Objective, gradient and rows, with four modes."""
    data, _ = bf.datasets.make_tensor((5, 4, 3, 2), 2, density=0.6, seed=1)
    h = CP.prepare(data, CP.Hyper(3))

    def seen(p):
        law = CP.gibbs.conditionals["U"](p, data, h, "mode_2")
        value, slope = jax.value_and_grad(CP.objective)(p, data, h)
        return value, slope, law.mean, law.sample(jax.random.key(2))

    found = []
    for form in ("numba", "jax"):
        with sparse.use(form):
            found.append(jax.jit(lambda p: seen(p))(CP.init(jax.random.key(1), data, h)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10), *found)


def congruence(fit, truth):
    """For each true component: the product over modes of |cosine| with a found one, averaged over the draws
    of a chain; in the worst chain, as each has its components in an order of its own."""
    best = []
    for order in itertools.permutations(range(fit.hyper.n_components), truth.U["mode_1"].shape[1]):
        alike = 1.0
        for mode, table in truth.U.items():
            found = np.asarray(fit.draws[f"U.{mode}"])[..., list(order)]
            cosine = (found * table).sum(-2)
            cosine /= np.linalg.norm(found, axis=-2) * np.linalg.norm(table, axis=-2)
            alike = alike * np.abs(cosine)
        best.append(alike.mean(1))
    return np.max([each.min(1) for each in best], 0)


def test_components_are_found_again_and_draws_cover():
    data, truth = bf.datasets.make_tensor((30, 20, 12), 2, noise=0.4, density=0.25, seed=0)
    train, test = bf.split.holdout(data, 0.2, seed=0)
    draws = bf.fit("cp", train, bf.Gibbs(150, 150, 2), n_components=3, **QUIET)
    assert min(congruence(draws, truth)) > 0.9
    seen = draws.predict(test)
    assert 0.4 < bf.metrics.rmse(seen.mean, test.value) < 0.5  # 0.4 is the noise
    assert abs(bf.metrics.coverage(*seen.interval(0.9), test.value) - 0.9) < 0.04  # 2 errors of 360
    point = bf.fit("cp", train, n_components=3, **QUIET)
    assert point.converged
    assert 0.4 < bf.metrics.rmse(point.predict(test).mean, test.value) < 0.55


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_chains_find_all_components(seed):
    """From random factors two or three of these eight chains lose a component, and never find it again."""
    data, _ = bf.datasets.make_tensor((60, 50, 20), 3, density=0.1, seed=seed)
    fit = bf.fit("cp", data, bf.Gibbs(100, 10, 8), n_components=3, **QUIET)
    precision = np.asarray(fit.draws["alpha"]).mean(1)
    assert precision.min() > 0.9 * precision.max()


@pytest.mark.parametrize("seed", [3, 4])
def test_a_point_keeps_all_components(seed):
    """Sweeps from the best start lose a component here if they begin anew with all cells: .72 and .90."""
    data, _ = bf.datasets.make_tensor((60, 50, 20), 3, density=0.1, seed=seed)
    train, test = bf.split.holdout(data, 0.2, seed=seed)
    point = bf.fit("cp", train, n_components=3, **QUIET)
    assert bf.metrics.rmse(point.predict(test).mean, test.value) < 0.55  # of Gibbs: .535 and .512


@pytest.fixture(scope="module")
def few():
    data, _ = bf.datasets.make_tensor((8, 6, 4), 2, density=0.6, seed=0)
    return data, bf.fit("cp", data, bf.Gibbs(30, 30, 2), n_components=2, **QUIET)


def test_a_new_label_is_a_draw_from_its_prior(few):
    """Mean and variance against draws of the row, for one new label, and for labels that are all new."""
    data, fit = few
    p = from_sites(CP, {name: jnp.asarray(x[0, -1]) for name, x in fit.draws.items()})
    rng, h = np.random.default_rng(0), fit.hyper
    for code in ([-1, 2, 1], [-1, -1, -1]):
        rows = [
            np.asarray(p.U[m])[[i]] if i >= 0
            else rng.multivariate_normal(*map(np.asarray, (p.mu[m], jnp.linalg.inv(p.Lambda[m]))), 200_000)
            for m, i in zip(data.modes, code, strict=True)
        ]  # fmt: skip
        x = (rows[0] * rows[1] * rows[2]).sum(1)
        law = CP.predict(p, query_of(np.array([code])), h)
        assert float(law.mean[0]) == pytest.approx(h.offset + x.mean(), abs=6 * x.std() / 447)
        assert float(law.variance[0]) == pytest.approx(x.var() + float(1 / p.alpha), rel=0.1)


def test_a_fit_is_saved_and_loaded(few, tmp_path):
    data, fit = few
    fit.save(tmp_path / "fit")
    again = bf.load(tmp_path / "fit")
    np.testing.assert_array_equal(again.predict(data).mean, fit.predict(data).mean)
    assert again.data.columns == list(data.modes)
    frame = fit.predict(data).frame()
    assert list(frame)[:3] == list(data.modes) and len(frame) == len(data)


def test_diagnostics_and_comparison_name_the_modes(few):
    data, fit = few
    assert "prediction (" in str(fit.diagnostics())
    table = bf.compare({"draws": fit}, data).table
    assert len(table) == 1
    assert len(fit.loo(data).table) == len(data)
    with pytest.raises(BayesfacError, match="cp cannot leave out a user"):
        fit.loo(data, by="user")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda fit: fit.recommend([0], 2), "a fit of Ratings for recommend, got cp, a fit of Tensor"),
        (lambda fit: fit.everywhere(), "a matrix to predict everywhere, got a Tensor"),
        (lambda fit: bf.prior_predictive("cp", one_cell(), n_components=1), "data with two axes"),
        (lambda fit: fit.similar(0), "a fit of Ratings for similar"),
        (lambda fit: fit.fold_in(one_cell()), "rows of a tensor belong to one of"),
        (lambda fit: fit.update(one_cell()), "a fit of ratings or counts"),
        (lambda fit: fit.loo(one_cell()), "the 8 mode_1 labels of training, got 1"),
        (lambda fit: bf.fit("cp", few_ratings()), "Expected Tensor for cp, got Ratings"),
        (lambda fit: bf.fit("pmf", one_cell()), "Ratings for pmf, got Tensor"),
        (lambda fit: bf.auto(one_cell()), "got Tensor"),
        (lambda fit: fit.predict(few_ratings()), "a query of Tensor, got Ratings"),
        (lambda fit: fit.predict(pd.DataFrame({"mode_1": [0]})), "with columns"),
        (lambda fit: bf.path("cp", one_cell()), "Expected a method that L-BFGS solves"),
    ],
)  # fmt: skip
def test_what_a_tensor_cannot_do_is_said(few, call, said):
    with pytest.raises((BayesfacError, ValueError, TypeError), match=said):
        call(few[1])


def one_cell():
    return bf.Tensor([0], [0], [0], [1.0])


def few_ratings():
    return bf.Ratings([0, 1], [0, 1], [1.0, 2.0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 25}, "between 1 and 24"),
        ({"rate": -1.0}, "rate"),
        ({"scales": "free"}, "estimated"),
        ({"modes": ("a", "b", "c")}, "the modes of the data"),
    ],
)
def test_wrong_settings_are_refused(few, change, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("cp", few[0], **{"n_components": 2, **change}, **QUIET)
