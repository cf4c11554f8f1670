"""Known mistakes of `ard_mf` and `cmf`, beside those of `tests/tools/mutants.py`."""

import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.laws import cuts
from bayesfac.models.collective import cmf
from bayesfac.models.ratings import ard_mf
from bayesfac.parts import factors
from bayesfac.parts.matrices import products
from bayesfac.parts.priors import keyed
from tests.tools.mutants import plant

A = ard_mf.METHOD


@plant(A, "objective", "joint")
def the_means_are_no_rows(p, data, h):
    return ard_mf.objective(p, data, h) + jnp.sum(jnp.log(p.tau))


@plant(A, "conditionals.tau", "conditionals")
def a_precision_of_the_users_alone(p, data, h):
    right = A.gibbs.conditionals["tau"](p, data, h)
    items = jnp.sum((p.V - p.mu_V) ** 2, 0) + h.beta0 * p.mu_V**2
    return dist.Gamma(right.concentration, right.rate - 0.5 * items)


# -- cmf ------------------------------------------------------------------------------------------
C = cmf.METHOD


@plant(C, "objective", "joint")
def words_have_no_prior(p, data, h):
    return cmf.objective(p, data, h) - factors.energy([keyed("word")], p, data, h)


@plant(C, "objective", "joint")
def thresholds_have_no_prior(p, data, h):
    return cmf.objective(p, data, h) - cuts.energy(p.cuts["tags"])


@plant(C, "conditionals.U", "conditionals")
def users_do_not_see_their_tags(p, data, h, z, kind):
    far = p.U | {"tag": 0 * p.U["tag"]}
    right = p._replace(U=far) if kind == "user" else p
    return C.gibbs.conditionals["U"](right, data, h, z, kind)


@plant(C, "conditionals.alpha", "conditionals")
def one_noise_for_all_matrices(p, data, h, z, name):
    return C.gibbs.conditionals["alpha"](p, data, h, z, "ratings")


@plant(C, "update", "golden")
def the_mean_of_a_precision_and_not_its_mode_in_cmf(p, data, h):
    z = cmf.LAW.touching(p, products(p.U, data), data, h)
    new = {kind: C.gibbs.conditionals["Lambda"](p, data, h, z, kind).mean for kind in p.U}
    return C.solver.update(p, data, h)._replace(Lambda=new)
