"""Normal-Wishart priors of the rows of a factor, as in Bayesian matrix factorization.

Lambda ~ Wishart(K, I / rate), mu ~ N(0, (beta0 Lambda)^-1) and rows x_i ~ N(mu, Lambda^-1). This file has
the law of rows, modes of conditionals, and a draw of the relative scale of factors.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from bayesfac.core.laws.distributions import Modal, NormalRows
from bayesfac.core.laws.links import Links
from bayesfac.core.method import laws_in

NORMAL = (dist.Normal, dist.MultivariateNormal, NormalRows, Links)  # laws whose mode is their mean


class RowAffine(Transform):
    """x = mu + root z for all rows; the inverse is one triangular solve for all rows."""

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(self, mu: jax.Array, root: jax.Array) -> None:
        self.mu, self.root = mu, root

    def __call__(self, z: jax.Array) -> jax.Array:
        return self.mu + z @ self.root.T

    def _inverse(self, x: jax.Array) -> jax.Array:
        flat = jnp.reshape(x - self.mu, (-1, self.mu.shape[-1]))
        z = jax.scipy.linalg.solve_triangular(self.root, flat.T, lower=True).T
        return jnp.reshape(z, x.shape)

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: Any = None
    ) -> jax.Array:
        return jnp.broadcast_to(jnp.sum(jnp.log(jnp.diag(self.root))), jnp.shape(x)[:-1])

    def tree_flatten(self) -> tuple:
        return (self.mu, self.root), (("mu", "root"), {})


def normal_rows(mu: jax.Array, precision: jax.Array) -> dist.TransformedDistribution:
    """x ~ N(mu, precision^-1) as a transformed standard normal, which NUTS can sample instead. `mu` is one
    mean, or one for each row."""
    root = dist.MultivariateNormal(
        jnp.zeros_like(precision[0]), precision_matrix=precision
    ).scale_tril
    return dist.TransformedDistribution(
        dist.Normal(jnp.zeros_like(mu), 1).to_event(1), RowAffine(mu, root)
    )


def mode(conditional: dist.Distribution) -> jax.Array:
    """The mode of a full conditional, to which iterated conditional modes set the block; of rows that are at
    least 0, rows nearer to it than those before."""
    if isinstance(conditional, dist.Independent):
        return mode(conditional.base_dist)
    if isinstance(conditional, dist.Wishart):
        K, nu = conditional.event_shape[0], conditional.concentration
        return (nu - K - 1) / nu * conditional.mean
    if isinstance(conditional, dist.Gamma):
        return (conditional.concentration - 1) / conditional.rate
    if isinstance(conditional, dist.Beta):
        a, b = conditional.concentration1 - 1, conditional.concentration0 - 1
        return a / (a + b)
    if isinstance(conditional, Modal):
        return conditional.mode
    if isinstance(conditional, NORMAL):
        return conditional.mean
    raise TypeError(
        "Expected a normal, Gamma, Beta or Wishart law, whose mode is known, got "
        f"{type(conditional).__name__}"
    )


def to_modes(p: Any, conditionals: Any, held: tuple[str, ...], *given: Any) -> Any:
    """Set every site whose field is not in `held` to the mode of its conditional, in turn."""
    for site, law in laws_in(conditionals, p).items():
        if site.partition(".")[0] not in held:
            p = _with(p, site, mode(law(p, *given)))
    return p


def drawn(key: jax.Array, p: Any, conditionals: Any, *given: Any) -> Any:
    """Set every site to a draw from its conditional, in turn."""
    for number, (site, law) in enumerate(laws_in(conditionals, p).items()):
        p = _with(p, site, law(p, *given).sample(jax.random.fold_in(key, number)))
    return p


def _with(p: Any, site: str, value: Any) -> Any:
    name, dot, key = site.partition(".")
    return p._replace(**{name: {**getattr(p, name), key: value} if dot else value})


def balance(key: jax.Array, a: jax.Array, b: jax.Array, tilt: float = 0.0) -> jax.Array:
    """Draw t from the density proportional to exp(-a e^{-2t} - b e^{2t} - tilt t).

    With its mode t0, A = a e^{-2 t0} and B = b e^{2 t0}, this is exp(-A (e^{-x} + x) - B (e^x - x)) of x =
    2(t - t0). Draws are by rejection: as e^{-x} + e^x >= 2 + x^2 and e^x >= 1 + x, the density of x is below
    that of N(0, 1/c), c = 2 min(A, B). The two are close for large c if the tilt is 0.
    """
    root = jnp.sqrt(tilt**2 + 16 * a * b)
    s = 4 * a / (root + tilt) if tilt > 0 else (root - tilt) / (4 * b)  # e^{2 t0}
    A, B = a / s, b * s
    c = 2 * jnp.minimum(A, B)

    def attempt(state: tuple) -> tuple:
        key, x, rejected, count = state
        key, kx, ku = jax.random.split(key, 3)
        new = jax.random.normal(kx, c.shape, c.dtype) / jnp.sqrt(c)
        excess = A * (jnp.expm1(-new) + new) + B * (jnp.expm1(new) - new) - c * new**2 / 2
        accept = jnp.log(jax.random.uniform(ku, c.shape, c.dtype)) < -excess
        return key, jnp.where(rejected & accept, new, x), rejected & ~accept, count + 1

    # for c near 0 or NaN the loop ends after 10,000 attempts with NaN, which the engine reports
    start = (key, jnp.full_like(c, jnp.nan), jnp.isfinite(c), 0)
    x = jax.lax.while_loop(lambda s: jnp.any(s[2]) & (s[3] < 10_000), attempt, start)[1]
    return (jnp.log(s) + x) / 2
