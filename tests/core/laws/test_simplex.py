"""The mixture of tables of Dirichlet rows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.laws.simplex import MixedDirichlet

KEY = jax.random.key(0)
WEIGHT = jnp.array([0.3, -1.0, 0.7])
PARTS = jax.random.uniform(KEY, (3, 2, 4), minval=0.5, maxval=6.0)  # parts x rows x columns


def test_log_density_is_that_of_numpyros_mixture():
    rows = dist.Dirichlet(PARTS).to_event(1)
    theirs = dist.MixtureSameFamily(dist.Categorical(logits=WEIGHT), rows)
    tables = dist.Dirichlet(jnp.ones(4)).sample(KEY, (5, 2))
    mine = MixedDirichlet(WEIGHT, PARTS).log_prob(tables)
    np.testing.assert_allclose(mine, theirs.log_prob(tables), rtol=1e-9)


def test_the_law_given_counts_is_prior_times_likelihood():
    """Up to one constant, the probability of the counts."""
    counts = jnp.array([[3.0, 0, 1, 0], [0, 0, 2, 5]])
    prior = MixedDirichlet(WEIGHT, PARTS)
    tables = dist.Dirichlet(jnp.ones(4)).sample(KEY, (5, 2))
    joint = prior.log_prob(tables) + jnp.sum(counts * jnp.log(tables), (-1, -2))
    lacks = joint - prior.given(counts).log_prob(tables)
    np.testing.assert_allclose(lacks, lacks[0], rtol=1e-9)


def test_draws_have_the_mean_and_choose_one_part_for_all_rows():
    law = MixedDirichlet(jnp.zeros((1, 2)), jnp.array([[[[90.0, 10]] * 2, [[10.0, 90]] * 2]]))
    drawn = np.asarray(law.sample(KEY, (4000,)))
    assert drawn.shape == (4000, 1, 2, 2)
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-9)
    np.testing.assert_allclose(drawn.mean((0, 1)), law.mean[0], atol=0.03)  # se .4 / sqrt(4000)
    assert np.corrcoef(drawn[:, 0, 0, 0], drawn[:, 0, 1, 0])[0, 1] > 0.95
