"""Known mistakes in the Gibbs steps of topic models, each with the check that has to find it."""

import jax.numpy as jnp

from bayesfac.core.laws.simplex import TiltedDirichlet
from bayesfac.models.topics import _splitting as splitting
from bayesfac.models.topics import ltm, mggm, mvplsa, plsa
from tests.tools.mutants import crossed, plant


@plant(plsa.METHOD, "conditionals.A", "conditionals")
def the_parts_without_the_prior(p, data, h, parts):
    return splitting.conditional_A(p, data, h._replace(a=1.0), parts)


@plant(plsa.METHOD, "conditionals.C", "conditionals")
def every_word_counts_twice(p, data, h, parts):
    right = splitting.conditional_C(p, data, h, parts)
    return TiltedDirichlet(2 * right.concentration - h.c, right.tilt)


@plant(mvplsa.METHOD, "conditionals.B", "conditionals")
def parts_of_another_view(p, data, h, parts, name):
    return splitting.conditional_B(p, data, h, crossed(parts), name)


@plant(ltm.METHOD, "conditionals.A", "conditionals")
def rows_without_neighbours(p, data, h, parts):
    return splitting.conditional_A(p, data, h, parts)


@plant(mggm.METHOD, "conditionals.A", "conditionals")
def rows_that_ignore_the_weights_of_graphs(p, data, h, parts):
    return mggm.conditional_A(p._replace(alpha=jnp.ones_like(p.alpha)), data, h, parts)


@plant(mggm.METHOD, "conditionals.alpha", "conditionals")
def weights_without_the_penalty(p, data, h, parts):
    return mggm.conditional_alpha(p, data, h._replace(penalty=1.0), parts)
