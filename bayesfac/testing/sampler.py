"""The Gibbs sampler's parts, each against the joint: exact, without any Monte Carlo."""

from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.method import Method, laws_of, log_joint, sites
from bayesfac.inference.result import replace_sites
from bayesfac.testing.tools import likelihood, listed, points, require, same


@listed
def check_conditionals(method: Method, key: jax.Array) -> str | None:
    """The log ratio of every conditional between two values of its block is the joint's; auxiliary
    variables w count too: p(x' | w) / p(x | w) = p(x') p(w | x') / (p(x) p(w | x)), for any w."""
    if not method.conditionals:
        return method.traits.get("no_gibbs", "it declares no conditionals")
    data, hyper = method.example(key)
    p, q = points(method, key, data, hyper, 2)
    blocks = laws_of(method, p)
    w: tuple[Any, ...] = ()
    if method.augment:
        w = (method.augment(p, data, hyper).sample(key),)

    def joint(p: Any) -> jax.Array:
        whole = log_joint(method, p, data, hyper)
        if method.augment:
            whole += jnp.sum(method.augment(p, data, hyper).log_prob(w[0]))
        return whole

    @jax.jit
    def ratios(p: Any, q: Any) -> dict[str, tuple]:
        found = {}
        for site, conditional in blocks.items():
            old, new = sites(p)[site], sites(q)[site]
            block = conditional(p, data, hyper, *w)
            part = jnp.sum(block.log_prob(new)) - jnp.sum(block.log_prob(old))
            found[site] = part, joint(replace_sites(p, {site: new})) - joint(p)
        return found

    for site, (part, whole) in ratios(p, q).items():
        same(part, whole, f"log ratio of the conditional of {site} and of the joint")
        draw = jax.eval_shape(lambda f=blocks[site]: f(p, data, hyper, *w).sample(key))
        require(draw.shape == sites(p)[site].shape, f"a draw of {site} has shape {draw.shape}")
    return None


@listed
def check_moves(method: Method, key: jax.Array) -> str | None:
    """A move along a gauge changes parameters, and nothing that the data see."""
    if not method.moves:
        return "it declares no moves"
    data, hyper = method.example(key)
    p = points(method, key, data, hyper, 1)[0]
    seen = jax.jit(lambda p: likelihood(method, p, data, hyper))
    for name, move in method.moves.items():
        new = jax.jit(lambda p, f=move: f(key, p, data, hyper))(p)
        same(seen(new), seen(p), f"move {name} changes the likelihood")
        gaps = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), new, p)
        require(max(jax.tree.leaves(gaps)) > 1e-6, f"move {name} moves nothing")
    return None
