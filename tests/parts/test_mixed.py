"""Cells with laws of several kinds."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.laws.ordinal import Levels
from bayesfac.parts.observed.mixed import Mixed

KIND = jnp.array([0, 1, 0, 2])
LAWS = (
    dist.Normal(jnp.array([0.0, 9, 1, 9]), 2.0),
    Levels((0.0, 1.0), jnp.log(jnp.array([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5], [0.5, 0.5]]))),
    dist.Poisson(jnp.array([1.0, 1, 1, 3])),
)
LAW = Mixed(KIND, LAWS, (10.0, 0.0, 0.0), (3.0, 1.0, 1.0), (0.0, 0.0, 0.0))
NORMAL = dist.Normal(jnp.array([10.0, 13]), 6.0)


def test_moments_and_densities_are_those_of_each_kind_in_its_units():
    assert np.allclose(LAW.mean, [10, 0.8, 13, 3])
    assert np.allclose(LAW.variance, [36, 0.16, 36, 3])
    value = jnp.array([4.0, 1, 20, 2])
    own = [*NORMAL.log_prob(value[::2]), np.log(0.8), dist.Poisson(3.0).log_prob(2)]
    assert np.allclose(LAW.log_prob(value), [own[0], own[2], own[1], own[3]], atol=1e-6)


def test_what_lies_below_a_value():
    value, masses = jnp.array([4.0, 1, 20, 2]), np.exp(dist.Poisson(3.0).log_prob(np.arange(3)))
    normal = NORMAL.cdf(value[::2])
    assert np.allclose(LAW.cdf(value), [normal[0], 1, normal[1], masses.sum()], atol=1e-6)
    assert np.allclose(LAW.below(value), [normal[0], 0.2, normal[1], masses[:2].sum()], atol=1e-6)


def test_gradients_know_nothing_of_other_kinds():
    def total(mean: jax.Array) -> jax.Array:
        laws = dist.Normal(mean, 1.0), dist.Poisson(jnp.exp(mean))
        law = Mixed(jnp.array([0, 1]), laws, (0.0, 0.0), (1.0, 1.0), (0.0, 0.0))
        return law.log_prob(jnp.array([-2.5, 3.0])).sum()  # -2.5 is no count

    slope = jax.grad(total)(jnp.array([0.5, 0.0]))
    assert np.allclose(slope, [-3.0, 2.0])


def test_samples_are_possible_and_have_the_mean():
    drawn = np.asarray(LAW.sample(jax.random.key(0), (4000,)))
    assert np.abs(drawn.mean(0) - LAW.mean).max() < 5 * (36 / 4000) ** 0.5
    assert np.isin(drawn[:, 1], (0, 1)).all() and (drawn[:, 3] % 1 == 0).all()
    assert LAW.support(drawn[0]).all()
    assert LAW.support(jnp.array([-2.5, 0.5, 0.5, 0.5])).tolist() == [True, False, True, False]
