"""Known mistakes of `ard_mf`, beside those of `tests/mutants.py`."""

import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.models.ratings import ard_mf
from tests.mutants import plant

A = ard_mf.METHOD


@plant(A, "objective", "joint")
def the_means_are_no_rows(p, data, h):
    return ard_mf.objective(p, data, h) + jnp.sum(jnp.log(p.tau))


@plant(A, "conditionals.tau", "conditionals")
def a_precision_of_the_users_alone(p, data, h):
    right = ard_mf.conditional_tau(p, data, h)
    return dist.Gamma(right.concentration, right.rate - 0.5 * ard_mf.squares(p, h)[1])
