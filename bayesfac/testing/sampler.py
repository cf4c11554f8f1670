"""The exact check of the conditionals of the Gibbs sampler against the joint."""

from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.method import Method, laws_of, sites
from bayesfac.inference.result import replace_sites
from bayesfac.testing.tools import example, listed, require, same


@listed
def check_conditionals(method: Method, key: jax.Array) -> str | None:
    """Between two values of its block, the log ratio of every conditional is that of the joint.

    With auxiliary variables w: p(x' | w) / p(x | w) = p(x') p(w | x') / (p(x) p(w | x)), for any w.
    """
    if not method.gibbs.conditionals:
        return method.notes.traits.get("no_gibbs", "the method declares no conditionals")
    case = example(method, key)
    data, hyper, (p, q) = case.data, case.hyper, case.points[:2]
    blocks = laws_of(method, p)
    w: tuple[Any, ...] = ()
    if method.gibbs.augment:
        w = (method.gibbs.augment(p, data, hyper).sample(key),)

    @jax.jit
    def auxiliary(p: Any) -> jax.Array:
        if method.gibbs.augment is None:
            return jnp.zeros(())
        return jnp.sum(method.gibbs.augment(p, data, hyper).log_prob(w[0]))

    def joint(p: Any) -> jax.Array:
        return case.joint(p, data)[0] + auxiliary(p)

    @jax.jit
    def ratios(p: Any, q: Any) -> dict[str, jax.Array]:
        parts = {}
        for site, conditional in blocks.items():
            block = conditional(p, data, hyper, *w)
            new, old = (jnp.sum(block.log_prob(sites(x)[site])) for x in (q, p))
            parts[site] = new - old
        return parts

    for site, part in ratios(p, q).items():
        whole = joint(replace_sites(p, {site: sites(q)[site]})) - joint(p)
        same(part, whole, f"log ratio of the conditional of {site} and of the joint")
        draw = jax.eval_shape(lambda f=blocks[site]: f(p, data, hyper, *w).sample(key))
        require(draw.shape == sites(p)[site].shape, f"a draw of {site} has shape {draw.shape}")
    return None
