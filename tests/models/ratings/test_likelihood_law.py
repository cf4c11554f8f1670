"""Natural gradient steps of rows: shorter where the full step would lower the ELBO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesfac.core.laws.ordinal import log_between
from bayesfac.parts.observed import likelihood_law


def normal(means, variances):
    """Rows of one number."""
    return {"mean": jnp.array(means)[:, None], "cov": jnp.array(variances)[:, None, None]}


def test_rows_step_to_the_best_law_or_as_far_as_their_part_of_the_elbo_rises():
    """The part of each row is highest at its own mean: 10, 4, 1 and -1. All rows have a step from 0 to 10."""
    top = jnp.array([10.0, 4.0, 1.0, -1.0])

    def part(law):
        return -jnp.abs(law["mean"][:, 0] - top)

    own, best = normal([0.0] * 4, [1.0] * 4), normal([10.0] * 4, [0.5] * 4)
    found = likelihood_law.raised(own, best, part(own), part)
    # precisions 1 and 2: a quarter of the step has the precision 1.25 and the mean .25 * 20 / 1.25 = 4
    precision = np.array([2, 1.25, 1 + 1 / 16, 1])
    np.testing.assert_allclose(found["cov"][:, 0, 0], 1 / precision)
    np.testing.assert_allclose(found["mean"][:, 0], [10, 4, 20 / 16 / precision[2], 0])


def test_a_law_that_is_no_number_is_not_taken():
    own, best = normal([0.0, 0.0], [1.0, 1.0]), normal([1.0, jnp.nan], [1.0, 1.0])
    found = likelihood_law.raised(own, best, jnp.zeros(2), lambda law: law["mean"][:, 0])
    np.testing.assert_array_equal(found["mean"][:, 0], [1, 0])


@pytest.mark.parametrize("link", ["probit", "logistic"])
def test_targets_and_weights_are_derivatives_of_the_expected_log_likelihood(link):
    """Without variance they are those of the log likelihood itself; with variance by a fine grid."""
    x, low = jnp.array([-2.0, 0.0, 0.3, 1.0, 2.5]), jnp.array([-jnp.inf, -0.5, 0.0, 0.5, 1.0])
    high = jnp.array([-1.0, 0.5, 1.0, 1.5, jnp.inf])

    def value(x, low=low, high=high):
        return log_between(low - x, high - x, link)

    each, target, weight = likelihood_law.as_normal(value, x, jnp.zeros(5))
    slope, bend = (jax.vmap(f)(x, low, high) for f in (jax.grad(value), jax.grad(jax.grad(value))))
    np.testing.assert_allclose(each, value(x), atol=1e-5)
    np.testing.assert_allclose(weight * (target - x), slope, atol=1e-5)
    np.testing.assert_allclose(weight, -bend, rtol=1e-3)

    grid = jnp.linspace(-8, 8, 2001)
    share = jnp.exp(-(grid**2) / 2) / jnp.sum(jnp.exp(-(grid**2) / 2))

    def exact(x, variance):
        return jax.vmap(value, 1, 1)(x[:, None] + jnp.sqrt(variance)[:, None] * grid) @ share

    variance = jnp.full(5, 0.5)
    by_mean, by_variance = jax.grad(lambda *at: jnp.sum(exact(*at)), (0, 1))(x, variance)
    each, target, weight = likelihood_law.as_normal(value, x, variance)
    np.testing.assert_allclose(each, exact(x, variance), atol=1e-3)
    np.testing.assert_allclose(weight * (target - x), by_mean, atol=3e-3)
    np.testing.assert_allclose(weight, -2 * by_variance, atol=3e-3)
