"""The variational law of rows for users with thresholds of their own, or with shared thresholds.

The row of a user and the first threshold, (u_i, t_i), have one joint normal law. A cell depends only on their
difference, so separate laws would count the same uncertainty twice. Logarithms of gaps are points at their
mode given all else (EM), and the ELBO is a bound of the log evidence plus their prior density. Shared
thresholds are points. In q, `U` has the rows (u_i, t_i), `theta` the log gaps, and `centre` the population's
free coordinates.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform

from bayesfac.core.laws import beliefs
from bayesfac.parts import factor_beliefs
from bayesfac.parts.factors import Factor, Factors
from bayesfac.parts.observed.thresholds import spreads

rising = OrderedTransform()  # free coordinates -> thresholds


class RowsWithThresholds(dist.Distribution):
    """(u_i, t_i) is normal, and the gaps above the first threshold t_i are known.

    A value is the row (u_i, theta_i). Its density treats theta in the free coordinates t_i and log gaps.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_vector
    pytree_data_fields = ("normal", "gaps")

    def __init__(self, normal: dist.Distribution, gaps: jax.Array) -> None:
        self.normal, self.gaps = normal, gaps
        super().__init__(normal.batch_shape, (normal.event_shape[0] + gaps.shape[1],))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        found = self.normal.sample(key, sample_shape)
        above = found[..., -1:] + jnp.cumsum(jnp.exp(self.gaps), 1)
        return jnp.concatenate([found, above], -1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self.normal.log_prob(value[..., : self.normal.event_shape[0]]) - self.gaps.sum(1)

    def entropy(self) -> jax.Array:
        return self.normal.entropy() + self.gaps.sum(1)


def begin(U: jax.Array, centre: jax.Array, free: jax.Array) -> dict[str, Any]:
    """The laws at a point; `free` are the users' coordinates, or `centre` if thresholds are shared."""
    if free.ndim == 1:
        return {"centre": {"point": free}}
    both = beliefs.certain(jnp.concatenate([U, free[:, :1]], 1))
    own = {"mean": centre, "var": jnp.zeros_like(centre)}
    return {"U": both, "theta": {"gaps": free[:, 1:]}, "centre": own}


# -- points ------------------------------------------------------------------------------------------------
def points(q: Any) -> jax.Array:
    """Log gaps of users; if thresholds are shared, all free coordinates in one row."""
    return q.centre["point"][None] if q.theta is None else q.theta["gaps"]


def with_points(q: Any, t: jax.Array) -> Any:
    """The law with these points."""
    return q._replace(centre={"point": t[0]}) if q.theta is None else q._replace(theta={"gaps": t})


def at(q: Any, t: jax.Array) -> Any:
    """q with the thresholds and spreads at points instead of laws; the first threshold is 0, as x is relative
    to it."""
    if spreads(q) is not None:
        q = q._replace(log_spread=spreads(q))
    if q.theta is None:
        return q._replace(centre=t[0])
    return q._replace(theta=rising(jnp.pad(t, ((0, 0), (1, 0)))))


def prior_of_points(q: Any, c: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array | float]:
    """Mean and sd; c is that of the centre, s are the sds of users about it."""
    return (c, 1.0) if q.theta is None else (q.centre["mean"][1:], s[1:])


def climbed(t: jax.Array, most: jax.Array, density: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Rows of t after the best of three steps that increase their density: gradient / most, a quarter,
    none."""
    step = jax.grad(lambda t: jnp.sum(density(t)))(t) / most
    tries = t + jnp.array([0.0, 0.25, 1.0])[:, None, None] * step
    best = jnp.argmax(jax.lax.map(density, tries), 0)
    return tries[best, jnp.arange(len(t))]


# -- the prior ---------------------------------------------------------------------------------------------
def coordinates(q: Any) -> jax.Array:
    """The means of the users' free coordinates."""
    return jnp.concatenate([q.U["mean"][:, -1:], q.theta["gaps"]], 1)


def energy(q: Any, c: jax.Array, s: jax.Array) -> jax.Array:
    """The expected energy of thresholds, with the Jacobian."""
    if q.theta is None:
        return 0.5 * jnp.sum((q.centre["point"] - c) ** 2)
    own, t = q.centre, coordinates(q)
    wide = jnp.sum(q.U["cov"][:, -1, -1]) / s[0] ** 2 + len(t) * jnp.sum(own["var"] / s**2)
    away = jnp.sum(((t - own["mean"]) / s) ** 2) + jnp.sum((own["mean"] - c) ** 2 + own["var"])
    return 0.5 * (wide + away) + jnp.sum(q.theta["gaps"])


def prior(q: Any, f: Factor, data: Any, hyper: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The prior of the rows; those of users include the first threshold."""
    precision, shift = factor_beliefs.prior(f, q, data, hyper)
    if f.axis == "item" or q.theta is None:
        return precision, shift
    tau = s[:1, None] ** -2.0
    both = jax.scipy.linalg.block_diag(precision, tau.astype(precision.dtype))
    level = jnp.broadcast_to(tau[0] * q.centre["mean"][0], (*shift.shape[:-1], 1))
    return both, jnp.concatenate([shift, level], -1)


def update(q: Any, c: jax.Array, s: jax.Array) -> Any:
    """The law of the population's thresholds given the users'."""
    if q.theta is None:
        return q
    precision = 1 + len(q.theta["gaps"]) / s**2
    mean = (c + coordinates(q).sum(0) / s**2) / precision
    return q._replace(centre={"mean": mean, "var": 1 / precision})


def laws(every: Factors, q: Any) -> dict[str, dist.Distribution]:
    """The laws of all sites; the law of `U` includes `theta`."""
    found = factor_beliefs.laws(every, q)
    if spreads(q) is not None:
        found |= {"log_spread": dist.Delta(spreads(q))}
    if q.theta is None:
        return found | {"centre": dist.Delta(q.centre["point"], event_dim=1)}
    both = RowsWithThresholds(found["U"], q.theta["gaps"])
    return found | {"U": both, "centre": beliefs.normal(q.centre)}


def split(draws: dict[str, jax.Array], hyper: Any) -> dict[str, jax.Array]:
    """{"U", "theta"} from the rows of `RowsWithThresholds`."""
    both, K = draws["U"], hyper.n_components
    if both.shape[-1] == K:
        return draws
    return draws | {"U": both[..., :K], "theta": both[..., K:]}
