"""Known mistakes in methods of counts, in gplvm and in cp, each with the check that has to find it."""

import jax.numpy as jnp

from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.math import inner
from bayesfac.models.counts import hpf, wrmf
from bayesfac.models.ratings import gplvm
from bayesfac.models.tensors import cp
from bayesfac.parts import factors
from bayesfac.parts.priors import keyed
from tests.tools.mutants import plant

F, W = hpf.METHOD, wrmf.METHOD


@plant(F, "objective", "joint")
def zeros_of_counts_are_missing(p, data, h):
    x = inner(jnp.exp(p.log_theta), jnp.exp(p.log_beta), data.cells)
    every = jnp.exp(p.log_theta).sum(0) @ jnp.exp(p.log_beta).sum(0)
    return hpf.objective(p, data, h) + jnp.sum(x) - every


@plant(F, "update", "optimum")
def the_mode_of_theta_and_not_of_its_logarithm(p, data, h):
    return hpf.update(p, data, h._replace(shape_user=h.shape_user - 1))


@plant(F, "conditionals.log_xi", "conditionals")
def activity_of_one_component(p, data, h, z):
    return hpf.conditional_log_xi(p, data, h._replace(n_components=1), z)


@plant(W, "objective", "joint")
def zeros_are_as_sure_as_ones(p, data, h):
    zeros = jnp.sum((p.U.T @ p.U) * (p.V.T @ p.V)) - jnp.sum(inner(p.U, p.V, data.cells) ** 2)
    return wrmf.objective(p, data, h) + 0.5 * h.alpha * zeros / h.noise**2


@plant(W, "conditionals.U", "conditionals")
def own_pairs_count_in_both_sums(p, data, h):
    right = W.gibbs.conditionals["U"](p, data, h)
    return GaussianRows(
        right.rows, right.target, right.V, right.weight + h.noise**-2, right.precision, right.shift
    )


# -- gplvm ----------------------------------------------------------------------------------------
GP = gplvm.METHOD


@plant(GP, "objective", "joint")
def prior_of_the_positions_counts_twice(p, data, h):
    return gplvm.objective(p, data, h) + 0.5 * jnp.sum(p.X**2)


@plant(GP, "conditionals.W", "conditionals")
def functions_forget_the_mean_of_items(p, data, h):
    return gplvm.conditional_W(p._replace(bias_item=jnp.zeros_like(p.bias_item)), data, h)


# -- cp -------------------------------------------------------------------------------------------
C = cp.METHOD


@plant(C, "objective", "joint")
def the_last_mode_has_no_prior(p, data, h):
    return cp.objective(p, data, h) - factors.energy([keyed(data.modes[-1])], p, data, h)


@plant(C, "conditionals.U", "conditionals")
def rows_do_not_see_the_last_mode(p, data, h, mode):
    one = p.U | {data.modes[-1]: jnp.ones_like(p.U[data.modes[-1]])}
    right = p if mode == data.modes[-1] else p._replace(U=one)
    return C.gibbs.conditionals["U"](right, data, h, mode)


@plant(C, "moves.rescale", "moves")
def only_one_mode_is_rescaled(key, p, data, h):
    mode = data.modes[0]
    return p._replace(U=p.U | {mode: C.gibbs.moves["rescale"](key, p, data, h).U[mode]})


@plant(C, "update", "golden")
def the_mean_of_a_precision_and_not_its_mode(p, data, h):
    new = {m: C.gibbs.conditionals["Lambda"](p, data, h, m).mean for m in data.modes}
    return cp.METHOD.solver.update(p, data, h)._replace(Lambda=new)
