"""Normal values in the place of cells, and the choice of a start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws.ordinal import log_between
from bayesfac.core.math import expectation
from bayesfac.core.method import REGISTRY
from bayesfac.parts.observed import thresholds as cuts

MEAN, VARIANCE = jnp.linspace(-2.0, 2.0, 9), jnp.linspace(0.05, 0.8, 9)


def test_a_normal_cell_is_itself():
    y, weight = jnp.linspace(1.0, 3.0, 9), 2.5
    found = bayes.as_normal(lambda x: -0.5 * weight * (y - x) ** 2, MEAN, VARIANCE)
    np.testing.assert_allclose(found[0], y, rtol=1e-6)
    np.testing.assert_allclose(found[1], weight, rtol=1e-6)


@pytest.mark.parametrize("link", ["probit", "logistic"])
@pytest.mark.parametrize("ends", [(-0.3, 0.4), (-jnp.inf, -1.0), (0.5, jnp.inf)])
def test_targets_and_weights_are_slopes_of_the_expected_log_likelihood(link, ends):
    """The derivatives of E log P in the mean of the score, by central differences of fine quadratures."""

    def value(x):
        return log_between(ends[0] - x, ends[1] - x, link)

    step = 1e-3
    fine = [expectation(value, MEAN + k * step, VARIANCE, 40) for k in (-1, 0, 1)]
    slope = (fine[2] - fine[0]) / (2 * step)
    bend = (fine[2] - 2 * fine[1] + fine[0]) / step**2
    target, weight = bayes.as_normal(value, MEAN, VARIANCE)
    seen = weight > bayes.LEAST
    assert seen.sum() >= 5
    # three nodes against forty
    np.testing.assert_allclose(weight[seen], -bend[seen], atol=0.02)
    np.testing.assert_allclose((weight * (target - MEAN))[seen], slope[seen], atol=0.02)


def test_cells_that_say_nothing_keep_a_small_weight():
    target, weight = bayes.as_normal(lambda x: 0.0 * x, MEAN, VARIANCE)
    np.testing.assert_allclose(weight, bayes.LEAST)
    np.testing.assert_allclose(target, MEAN)


def test_the_unit_of_levels_is_their_noise_about_the_scores():
    rng = np.random.default_rng(0)
    y, x = jnp.asarray(rng.integers(1, 6, 500), float), jnp.asarray(0.4 * rng.normal(size=500))
    x = x + 0.3 * (y - y.mean())
    nothing = bayes.Seen({}, jnp.zeros(500), jnp.zeros(500), jnp.zeros(500))
    seen = cuts.as_values(y)(nothing, x, jnp.full(500, 0.2))
    np.testing.assert_allclose(seen.weight, 1.0)
    away = jnp.mean((seen.target - (x - x.mean())) ** 2) + 0.2
    np.testing.assert_allclose(away, 1.0, rtol=1e-6)


def test_the_start_that_predicts_left_out_cells_is_used(monkeypatch):
    """Among a good start, one far away and one that is not a number, in any order, the good one."""
    monkeypatch.setattr(bayes, "SWEEPS", 1)
    monkeypatch.setattr(bayes, "DRAWS", 0)
    rng = np.random.default_rng(1)
    U, V = rng.normal(size=(2, 40, 2))
    full = U @ V.T
    row, col = np.nonzero(rng.random(full.shape) < 0.5)
    y = full[row, col] + 0.05 * rng.normal(size=len(row))
    data = bf.Ratings(row, col, y)
    bpmf = REGISTRY["bpmf"]
    hyper = bpmf.prepare(data, bpmf.Hyper(2))
    observe = bayes.normal(data.y, 1.0, 1.0)
    problem = bayes.Problem(data.cells, (None, None), hyper, observe)
    mu, precision = jnp.zeros(2), jnp.eye(2)

    def start(size):
        tables = (jnp.asarray(U), jnp.asarray(V) * size)
        return [bayes.certain(table, mu, precision) for table in tables]

    first = jnp.asarray(400.0), jnp.zeros(())
    for order in ((1.0, jnp.nan, 1e-3), (jnp.nan, 1e-3, 1.0)):
        sides, _ = jax.jit(lambda starts: bayes.estimated(starts, problem, first))(
            [start(size) for size in order]
        )
        found = sides[0].mean @ sides[1].mean.T
        assert np.sqrt(np.mean((found - full) ** 2)) < 0.2


def expected_joint(sides, alpha, y, cells, h):
    """The expected log joint of bpmf plus the entropy of the rows, up to a constant."""
    second = [side[0][:, :, None] * side[0][:, None] + side[1] for side in sides]
    means, squares = (
        jnp.einsum(f"n{k},n{k}->n", U[cells.row], V[cells.col])
        for k, (U, V) in (("k", [side[0] for side in sides]), ("kl", second))
    )
    value = 0.5 * len(y) * jnp.log(alpha) - 0.5 * alpha * jnp.sum(y**2 - 2 * y * means + squares)
    value += (h.alpha_shape - 1) * jnp.log(alpha) - h.alpha_rate * alpha
    for mean, cov, mu, L in sides:
        log, K, n = jnp.linalg.slogdet(L)[1], len(mu), len(mean)
        away = (mean - mu).T @ (mean - mu) + cov.sum(0)
        value += 0.5 * (n * log - jnp.trace(L @ away) + jnp.linalg.slogdet(cov)[1].sum())
        value += 0.5 * (log - h.beta0 * mu @ L @ mu)  # mu ~ N(0, (beta0 L)^-1)
        value += 0.5 * ((K - K - 1) * log - h.rate * jnp.trace(L))  # L ~ Wishart(K, I / rate)
    return value


def test_scales_end_where_an_independent_bound_is_stationary():
    method = REGISTRY["bpmf"]
    data, h = method.example(jax.random.key(3))
    p, y = method.init(jax.random.key(4), data, h), data.y - h.offset
    observe = bayes.normal(y, h.alpha_shape, h.alpha_rate)
    problem = bayes.Problem(data.cells, (None, None), h, observe)
    sides = [bayes.certain(p.U, p.mu_U, p.Lambda_U), bayes.certain(p.V, p.mu_V, p.Lambda_V)]
    first = bayes.nothing_seen(problem, (p.alpha, jnp.zeros(())))
    end = jax.jit(lambda sides: bayes.swept(problem, first, sides, 0, 3000))(sides)
    found = [tuple(side[:4]) for side in end.sides], end.seen.own[0]
    slopes = jax.jit(jax.grad(lambda found: expected_joint(*found, y, data.cells, h)))(found)
    worst = {
        jax.tree_util.keystr(at): jnp.abs(x).max()
        for at, x in jax.tree_util.tree_leaves_with_path(slopes)
    }
    assert max(worst.values()) < 1e-5, worst
