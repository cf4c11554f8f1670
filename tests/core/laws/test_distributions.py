"""Gamma and Beta numbers of the kernel beside those of NumPyro's laws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from bayesfac.core.kernels import sparse
from bayesfac.core.laws.distributions import Beta, Gamma

PAIRS = [
    (Gamma, dist.Gamma, (jnp.array([0.4, 3.0, 50.0]), jnp.array([2.0, 0.5, 7.0]))),
    (Beta, dist.Beta, (jnp.array([0.5, 3.0, 40.0]), jnp.array([2.0, 0.7, 9.0]))),
]


@pytest.mark.parametrize("backend", ["numba", "jax"])
@pytest.mark.parametrize(("ours", "theirs", "given"), PAIRS, ids=["Gamma", "Beta"])
def test_numbers_have_the_law(ours, theirs, given, backend):
    law, n = theirs(*given), 4000
    with sparse.use(backend):
        drawn = np.asarray(ours(*given).sample(jax.random.key(0), (n,)))
    assert drawn.shape == (n, 3)
    # the CDF at the numbers is uniform: its mean and its mean square, within five standard errors
    u = np.asarray(law.cdf(jnp.asarray(drawn)))
    assert np.abs(u.mean(0) - 1 / 2).max() < 5 * (1 / 12 / n) ** 0.5
    assert np.abs((u**2).mean(0) - 1 / 3).max() < 5 * (4 / 45 / n) ** 0.5
