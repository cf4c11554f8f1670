"""Linear response: how much wider predictions are than they would be if rows were independent."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

STEPS, PROBES = 10, 4  # of conjugate gradients; on ratings five steps give two digits
SEEN = 5e-4  # a factor nearer to 1 would be shown as 0.0 %
# Of `plsa` on made-up texts: with factors of 1.30 and 1.67 (twice) sds were 1.02 to 1.10 times those of long
# runs of Gibbs; with 2.02 to 2.21 (four times) they were 1.18 to 1.42 times as large.
LARGE = 1.8


def factor(
    key: jax.Array,
    times: Callable[[Any], Any],
    smoothed: Callable[[Any], Any],
    probe: Callable[[jax.Array], Any],
) -> jax.Array:
    """The factor by which sds of predictions are too small if rows are treated as independent.

    By linear response (Giordano, Broderick & Jordan, JMLR 2018), the covariance of the means of all rows is
    H^-1, with H minus the second derivatives of the ELBO in these means: `times(d)` is H d. Independent rows
    have the covariance S: `smoothed(d)` is S d, and S^-1 has the blocks of H. `probe(key)` is the gradient a
    of a sum of predictions with random signs, and a'H^-1 a / a'Sa estimates the ratio of their variances. If
    all means are zero, as for values that are all equal, a is zero and the factor is 1. The factor is NaN if
    a'H^-1 a is not positive for one of the probes, because the ELBO then has no strict maximum.
    """

    def ratio(key: jax.Array) -> jax.Array:
        a = probe(key)
        found = jax.scipy.sparse.linalg.cg(times, a, maxiter=STEPS, M=smoothed)[0]
        alone = dot(a, smoothed(a))
        return jnp.where(alone == 0, 1, dot(a, found) / jnp.where(alone == 0, 1, alone))

    ratios = jax.lax.map(ratio, jax.random.split(key, PROBES))
    return jnp.sqrt(jnp.where(jnp.min(ratios) > 0, jnp.mean(ratios), jnp.nan))


def signs(key: jax.Array, variance: jax.Array) -> jax.Array:
    """Random signs of predictions, each divided by its sd; a prediction without variance keeps its sign."""
    sign = jax.random.rademacher(key, variance.shape, variance.dtype)
    return sign / jnp.sqrt(jnp.where(variance == 0, 1, variance))


def dot(a: Any, b: Any) -> jax.Array:
    """The inner product of two changes of all rows."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda x, y: jnp.sum(x * y), a, b))


def told(factor: float, beside: str) -> list[str]:
    """A note on how the factor changed standard deviations; none if it would be shown as 0.0 %."""
    if abs(factor - 1) < SEEN:
        return []
    change = f"{abs(factor - 1):.1%} {'wider' if factor > 1 else 'narrower'}"
    told = f"standard deviations of rows are {change} than {beside}, by linear response"
    doubt = "a factor of this size may be too large: compare with bf.Gibbs()"
    return [f"{told}; {doubt}" if factor > LARGE else told]
