"""Laplace's approximation row by row: SVI(guide="blocks")."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bayesfac as bf
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import response
from bayesfac.core.method import REGISTRY, settle, sites
from bayesfac.inference.variational import laplace_rows

QUIET = {"n_components": 2, "progress": False}


def few():
    return bf.datasets.make_ratings(12, 9, 2, seed=0, density=0.6)


def test_the_blocks_are_those_of_the_whole_hessian():
    """Of mmmf: a user's factors and thresholds together, an item's factors."""
    method, data = REGISTRY["mmmf"], few()
    hyper = settle(method, data, {"n_components": 2, "penalty": 1.0, "loss": "logistic"})
    with jax.enable_x64(True):
        p = jax.tree.map(jnp.asarray, method.init(jax.random.key(1), data, hyper))
        at = dict(sites(p))
        shapes = {site: x.shape for site, x in at.items()}

        def energy(x):
            return method.objective(p._replace(**x), data, hyper)

        def times(d):
            return jax.grad(lambda x: sum(jnp.sum(jax.grad(energy)(x)[s] * d[s]) for s in d))(at)

        with sparse.use("jax"):
            root = laplace_rows._root(times, at, ("U", "theta"), jax.random.key(0))
            item = laplace_rows._root(times, at, ("V",), jax.random.key(0))
            whole = jax.jacrev(jax.grad(energy))(at)
        n, m = shapes["U"][0], shapes["V"][0]
        for i in range(n):
            names = ("U", "theta")
            rows = [jnp.concatenate([whole[a][b][i, :, i] for b in names], 1) for a in names]
            np.testing.assert_allclose(root[i] @ root[i].T, jnp.concatenate(rows), atol=1e-9)
        for j in range(m):
            np.testing.assert_allclose(item[j] @ item[j].T, whole["V"]["V"][j, :, j], atol=1e-9)


def test_draws_lie_about_the_point_with_finite_widths(tmp_path):
    engine = bf.SVI(guide="blocks", draws=200, folder=str(tmp_path / "run"))
    fit = bf.fit("mmmf", few(), engine, penalty=1.0, **QUIET)
    point = bf.fit("mmmf", few(), penalty=1.0, **QUIET)
    sd = fit.draws["U"][0].std(0)
    assert np.abs(fit.draws["U"][0].mean(0) - point.params.U).max() < 5 * sd.max() / 200**0.5
    assert (sd > 0).all() and fit.stats["lp"].shape == (1, 200)
    assert "objective has converged" in str(fit.diagnostics())
    assert "by linear response" in fit.notes[-1]
    again = bf.load(fit.save(tmp_path / "fit"))
    assert again.engine == engine


def test_draws_have_the_covariance_of_the_curvature_of_every_row():
    """A quadratic form that joins the factors and thresholds of a user: no row depends on another one, so the
    blocks say all, and their factor is 1. Covariances of 4,000 draws, within five standard errors."""
    users, count = 3, 4000
    rng = np.random.default_rng(0)
    root = rng.normal(size=(users, 4, 4)) + 2 * np.eye(4)
    H, centre = root @ root.swapaxes(1, 2), rng.normal(size=(users, 4))

    def rows(p):
        return jnp.concatenate([p.U, p.theta], 1)

    def objective(p, data, hyper):
        away = rows(p) - centre
        return 0.5 * jnp.einsum("nk,nkl,nl->", away, H, away) + 0.5 * jnp.sum(p.V**2)

    def predict(p, query, hyper):
        return dist.Normal((rows(p) * jnp.arange(1.0, 5)).ravel(), 1.0)

    method = replace(REGISTRY["mmmf"], objective=objective, predict=predict, derive=None)
    U, theta, V = (jnp.asarray(x) for x in (centre[:, :2], centre[:, 2:], np.zeros((2, 2))))
    p = method.Params(**dict.fromkeys(method.Params._fields) | {"U": U, "V": V, "theta": theta})
    known = method, None, ("U", "V", "theta"), count, p
    drawn, factor, steep = jax.jit(laplace_rows._drawn, static_argnums=(0, 1, 2, 3))(
        *known, jax.random.key(1), None, None
    )
    np.testing.assert_allclose([factor, steep], [1, 0], atol=1e-6)
    x = np.concatenate([drawn["U"], drawn["theta"]], 2) - centre
    for i in range(users):
        S = np.linalg.inv(H[i])
        error = np.sqrt((np.outer(np.diag(S), np.diag(S)) + S**2) / count)
        np.testing.assert_array_less(np.abs(x[:, i].T @ x[:, i] / count - S), 5 * error)
        apart = np.abs(S) > 5 * error
        assert apart.sum() > 6, "covariances beyond the diagonal were to be seen"
    between = np.corrcoef(
        np.concatenate([x.reshape(count, -1), drawn["V"].reshape(count, -1)], 1).T
    )
    rest = between - jax.scipy.linalg.block_diag(
        *[between[i : i + 4, i : i + 4] for i in (0, 4, 8)], np.eye(4)
    )
    assert np.abs(rest).max() < 5 / count**0.5


def test_a_note_says_whether_draws_became_wider_or_narrower():
    told = response.told
    assert told(1.0306, "a")[0].startswith("standard deviations of rows are 3.1% wider than a, by")
    assert "are 2.0% narrower than a" in told(0.98, "a")[0]
    assert told(1.0004, "a") == told(0.9996, "a") == []


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("gibbs_mmmf", {"cost": 0.5}, "loss bends sharply"),
        ("bpmf", {"scales": "joint"}, r"numbers have bounds: take bf.VB\(\) or bf.NUTS\(\)$"),
        ("ipmmmf", {"scale_item": 1.0}, r"numbers have bounds: take bf.NUTS\(\)$"),  # it has no VB
    ],
)
def test_what_has_no_blocks_says_why(name, settings, why):
    with pytest.raises(ValueError, match=why):
        bf.fit(name, few(), bf.SVI(guide="blocks", check=False), **settings, **QUIET)
