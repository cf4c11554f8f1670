"""Gibbs MMMF: the mixture behind the hinge, one EM sweep by hand, and binary data too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import bayesfac as bf
from bayesfac.core.laws.distributions import InverseGaussian
from bayesfac.core.math import inner
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings import gibbs_mmmf

GIBBS = REGISTRY["gibbs_mmmf"]


@pytest.mark.parametrize("z", [-1.7, -0.2, 0.4, 2.3])
def test_the_hinge_is_a_mixture_of_gaussians(z):
    """Polson & Scott 2011, theorem 1."""

    def mixture(w):
        return np.exp(-((z + w) ** 2) / (2 * w)) / np.sqrt(2 * np.pi * w)

    total = integrate.quad(mixture, 0, np.inf)[0]
    np.testing.assert_allclose(total, np.exp(-2 * max(z, 0)), rtol=1e-7)


@pytest.mark.parametrize("mean", [0.05, 1.0, 40.0])
def test_inverse_gaussian_draws_and_density(mean):
    g = InverseGaussian(jnp.full(200_000, mean))
    draws = np.asarray(g.sample(jax.random.key(0)))
    sd = mean**1.5
    assert abs(draws.mean() - mean) < 5 * sd / np.sqrt(len(draws))
    # 1/g has mean 1/m + 1 and variance 1/m + 2
    assert abs((1 / draws).mean() - 1 / mean - 1) < 5 * np.sqrt((1 / mean + 2) / len(draws))
    density = integrate.quad(
        lambda x: np.exp(InverseGaussian(jnp.asarray(mean)).log_prob(x)), 0, np.inf
    )
    np.testing.assert_allclose(density[0], 1, rtol=1e-6)


def golden(method):
    """One EM sweep by hand on a dense table: U and theta; then J itself."""
    data, h = GIBBS.example(jax.random.key(3))
    p = GIBBS.init(jax.random.key(4), data, h)
    g = {}
    n, c, C, R = data.n_users, np.array([-1.0, 0, 1]), h.cost, 4
    U, V, theta = (np.asarray(getattr(p, s)) for s in ("U", "V", "theta"))
    J = 0.0
    for i, j, y in zip(data.user, data.item, data.value, strict=True):
        for r in range(1, R):
            T = 1 if r >= y else -1
            z = C * (1 - T * (theta[i, r - 1] - U[i] @ V[j]))
            g[i, j, r] = (1 / abs(z), T)
            J += 2 * max(0, z)
    J += 0.5 * (((theta - c) / h.scale_theta) ** 2).sum()
    for x, mu, L in ((U, p.mu_U, p.Lambda_U), (V, p.mu_V, p.Lambda_V)):
        mu, L = np.asarray(mu), np.asarray(L)
        J += 0.5 * (np.einsum("ik,kl,il", x - mu, L, x - mu) - len(x) * np.linalg.slogdet(L)[1])
        J += 0.5 * (h.beta0 * mu @ L @ mu + h.rate * np.trace(L))
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-12)
    block = method.gibbs.conditionals["U"](p, data, h, 1 / method_shortfall(p, data, h)).mean
    L, mu = np.asarray(p.Lambda_U), np.asarray(p.mu_U)
    for i in range(n):
        P, b = L.copy(), L @ mu
        for (k, j, r), (weight, T) in g.items():
            if k == i:
                P += C**2 * weight * np.outer(V[j], V[j])
                b = b + C**2 * weight * (theta[i, r - 1] - T * (1 + 1 / (C * weight))) * V[j]
        np.testing.assert_allclose(block[i], np.linalg.solve(P, b), rtol=1e-9)
    block = method.gibbs.conditionals["theta"](p, data, h, 1 / method_shortfall(p, data, h)).mean
    for i in range(n):
        for r in range(1, R):
            seen = [(w, T, U[i] @ V[j]) for (k, j, q), (w, T) in g.items() if (k, q) == (i, r)]
            P = h.scale_theta**-2 + sum(C**2 * w for w, _, _ in seen)
            b = c[r - 1] * h.scale_theta**-2
            b += sum(C**2 * w * (x + T * (1 + 1 / (C * w))) for w, T, x in seen)
            np.testing.assert_allclose(block[i, r - 1], b / P, rtol=1e-9)


def method_shortfall(p, data, h):
    return gibbs_mmmf.HINGE.shortfall(p, inner(p.U, p.V, data.cells), data, h)


def test_golden_step():
    golden(GIBBS)


@pytest.mark.filterwarnings(
    "ignore::bayesfac.core.errors.ConvergenceWarning"
)  # kinks: Adam rattles
def test_em_never_rises_and_ends_near_what_adam_finds():
    """From blunt hinges to sharp ones, EM gets past the bends: a hundredth of the whole fall is allowed."""
    ratings = bf.datasets.make_ratings(30, 25, 2, density=0.6, seed=0, noise=0.5)
    options = {"n_components": 2, "scales": "joint", "progress": False}  # Adam moves all sites too
    em = bf.fit("gibbs_mmmf", ratings, bf.FixedPoint(3000, tol=1e-6), **options)
    adam = bf.fit("gibbs_mmmf", ratings, bf.MAP(2000), init=em, **options)
    assert np.diff(em.trace).max() <= 1e-8 * abs(em.trace[-1])
    begin = GIBBS.objective(GIBBS.init(jax.random.key(0), ratings, em.hyper), ratings, em.hyper)
    assert em.trace[-1] - adam.trace[-1] < 0.01 * (begin - em.trace[-1])


def test_likes_and_dislikes_too():
    ratings = bf.datasets.make_ratings(30, 25, 2, density=0.6, seed=0).above(3)
    fit = bf.fit("gibbs_mmmf", ratings, bf.Gibbs(50, 50, 1), n_components=2, progress=False)
    assert fit.draws["theta"].shape == (1, 50, 30, 1)
    assert (fit.predict(ratings).level == ratings.value).mean() > 0.8


def test_a_point_on_many_levels_is_better_than_biases_of_users_and_items():
    """-10 to 10 in halves: 41 levels, noise far above the margin; thresholds stay in order."""
    rng = np.random.default_rng(2)
    x = 2.5 * rng.normal(size=(40, 1)) + 2.5 * rng.normal(size=30)
    x += 3 * rng.normal(size=(40, 1)) * rng.normal(size=30) + rng.normal(size=x.shape)
    cells = rng.choice(x.size, 480, replace=False)
    y = np.clip(np.rint(2 * x), -20, 20).flat[cells] / 2
    ratings = bf.Ratings(cells // 30, cells % 30, y, levels=np.arange(-10, 10.5, 0.5))
    train, test = bf.split.holdout(ratings, 0.2, seed=0)
    fit = bf.fit("gibbs_mmmf", train, n_components=3, progress=False)
    pmf = bf.fit("pmf", train, n_components=1, scale_user=1e-3, scale_item=1e-3, progress=False)
    error, biases = (bf.metrics.rmse(f.predict(test).mean, test.value) for f in (fit, pmf))
    assert fit.converged and error < 0.9 * biases
    assert (np.diff(fit.params.theta, axis=1) > 0).mean() > 0.9


def test_levels_that_factors_explain_exactly_converge_in_single_precision():
    """Half of the hinges bend at the end, where single precision would raise J in every second sweep."""
    with jax.enable_x64(False):
        data = bf.datasets.make_ratings(120, 90, 2, density=0.15, seed=0)
        short = bf.FixedPoint(max_iter=1000)
        fit = bf.fit("gibbs_mmmf", data, short, progress=False, n_components=4, cost=3.3)
    assert fit.params.U.dtype == np.float32
    assert fit.converged
    assert not any("rose" in note for note in fit.notes)


def test_a_fit_begins_after_more_sweeps_than_the_candidates_of_its_cost(monkeypatch):
    """With more sweeps the start has a lower objective."""
    monkeypatch.setattr(gibbs_mmmf, "FEW", 60)
    monkeypatch.setattr(gibbs_mmmf, "PRICE", 0.0)
    own, sweeps = gibbs_mmmf.started, []

    def started(key, data, hyper, numbers, many):
        sweeps.append(many)
        return own(key, data, hyper, numbers, many)

    monkeypatch.setattr(gibbs_mmmf, "started", started)
    data = bf.datasets.make_ratings(150, 100, 2, density=0.6, seed=0, noise=0.5)
    fit = bf.fit("gibbs_mmmf", data, bf.FixedPoint(1, tol=0.5), n_components=2, progress=False)
    assert sweeps[-1] == 300 and set(sweeps[:-1]) == {60}
    few = gibbs_mmmf.start(jax.random.key(0), data, fit.hyper, 1)
    many = gibbs_mmmf.start(jax.random.key(0), data, fit.hyper, 5)
    J = [float(gibbs_mmmf.objective(p, data, fit.hyper)) for p in (few, many)]
    assert J[1] < J[0]
