"""Known mistakes of factorization machines, beside those of `tests/tools/mutants.py`."""

import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.laws.normal_wishart import to_modes
from bayesfac.models.ratings import fm, ordinal_fm
from tests.tools.mutants import plant

F, O = fm.METHOD, ordinal_fm.METHOD  # noqa: E741  # as short as those of other methods


@plant(F, "objective", "joint")
def the_level_is_free(p, data, h):
    return fm.objective(p, data, h) - 0.5 * (p.level / h.scale_level) ** 2


@plant(F, "conditionals.tau", "conditionals")
def the_mean_adds_no_degree_of_freedom(p, data, h, side):
    right = F.gibbs.conditionals["tau"](p, data, h, side)
    return dist.Gamma(right.concentration - 0.5, right.rate)


@plant(F, "conditionals.bias_user", "conditionals")
def biases_of_users_are_about_zero(p, data, h):
    return F.gibbs.conditionals["bias_user"](p._replace(level=jnp.zeros(())), data, h)


@plant(F, "update", "golden")
def scales_are_not_balanced(p, data, h):
    return to_modes(p, F.gibbs.conditionals, (), data, h)


@plant(O, "objective", "joint")
def a_bias_of_items_is_counted_twice(p, data, h):
    return ordinal_fm.objective(p, data, h) + 0.5 * p.tau_bias["item"] * jnp.sum(p.bias_item**2)


@plant(O, "conditionals.V", "conditionals")
def items_forget_the_biases(p, data, h, z):
    return O.gibbs.conditionals["V"](p._replace(bias_user=0 * p.bias_user), data, h, z)
