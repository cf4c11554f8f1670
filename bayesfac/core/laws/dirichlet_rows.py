"""The variational distribution of Dirichlet rows whose products are the probabilities of the data.

Cells have probabilities P_c = sum_z prod of one share from each table (P(w|x) = sum_z A_xz C_zw), and
weights n_c. Given the distributions of the tables, the best distribution of z in each cell is proportional
to products of

    exp E log A,   so that   ELBO = sum_c n_c log P_c(exp E log) + log prior(exp E log) + entropies,
    conc = 1 + the derivatives of both terms in E log A.

The derivatives of the first term are the expected counts of z; those of a Dirichlet prior are its a - 1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import polygamma

from bayesfac.core.laws import beliefs, response
from bayesfac.core.laws.simplex import TiltedDirichlet
from bayesfac.core.math import safe_log
from bayesfac.core.method import Variational, flattened

PROBED = 5000  # number of cells whose probabilities a probe sums


def record(
    seen: Callable[[Any, Any], tuple[jax.Array, jax.Array]],
    log_prior: Callable[[Any, Any], jax.Array],
) -> Variational:
    """The record of a method in which all sites are Dirichlet rows.

    seen(p, data)            the probabilities P_c of the cells at these tables, and their weights n_c
    log_prior(logs, hyper)   the log density of tables with these logarithms, up to a constant; `flat` is that
                             of Dirichlet rows. If it is not linear in the logarithms, it must be convex, so
                             that its value at their expectations is a lower bound
    """

    def likelihood(p: Any, data: Any) -> jax.Array:
        P, weight = seen(p, data)
        return jnp.sum(weight * safe_log(P))

    def given(p: Any, data: Any, hyper: Any) -> Any:
        """The laws given z, whose shares are products of the tables p."""
        counts = jax.tree.map(jnp.multiply, p, jax.grad(likelihood)(p, data))
        own = jax.grad(log_prior)(jax.tree.map(safe_log, p), hyper)
        return jax.tree.map(lambda n, a: {"conc": 1 + n + a}, counts, own)

    def update(q: Any, data: Any, hyper: Any) -> Any:
        return given(each(q, typical), data, hyper)

    def expected(q: Any, data: Any, hyper: Any) -> jax.Array:
        return likelihood(each(q, typical), data) + log_prior(each(q, beliefs.expected_log), hyper)

    def widened(key: jax.Array, q: Any, data: Any, hyper: Any) -> tuple[Any, jax.Array]:
        factor = respond(key, q, data, seen, lambda logs: log_prior(logs, hyper))
        return each(q, lambda belief: flatter(belief, factor)), factor

    return Variational(given, update, expected, laws, widened, below=True)


def flat(concentrations: Callable[[Any], dict[str, float]]) -> Callable[[Any, Any], jax.Array]:
    """The `log_prior` of Dirichlet rows, from {field: concentration}."""

    def log_prior(logs: Any, hyper: Any) -> jax.Array:
        total = jnp.zeros(())
        for name, a in concentrations(hyper).items():
            total += (a - 1) * sum(map(jnp.sum, jax.tree.leaves(getattr(logs, name))))
        return total

    return log_prior


def each(q: Any, function: Callable[[beliefs.Belief], Any]) -> Any:
    """A function of the belief about every site."""
    return jax.tree.map(function, q, is_leaf=lambda x: isinstance(x, dict) and "conc" in x)


def typical(belief: beliefs.Belief) -> jax.Array:
    """exp E log of the shares: rows that sum to less than one."""
    return jnp.exp(beliefs.expected_log(belief))


class DirichletRows(dist.Dirichlet):
    """Dirichlet rows that are drawn in the same way as in Gibbs, twenty times as fast as by JAX."""

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        rows = self.concentration.reshape(-1, self.event_shape[0])
        drawn = TiltedDirichlet(rows, jnp.zeros_like(rows)).sample(key, sample_shape)
        return drawn.reshape(*sample_shape, *self.concentration.shape)


def laws(q: Any) -> dict[str, dist.Distribution]:
    """The Dirichlet laws of all sites."""
    return flattened(each(q, lambda belief: DirichletRows(belief["conc"]))._asdict())


def flatter(belief: beliefs.Belief, factor: jax.Array) -> beliefs.Belief:
    """Rows with the same means, and standard deviations `factor` times as large.

    Shares lie between 0 and 1, so a row with few counts cannot be much wider: its concentrations sum to at
    least 1. A negative sum is no distribution, and near zero the gamma numbers behind a draw underflow.
    """
    total = jnp.sum(belief["conc"], -1, keepdims=True)
    wide = jnp.maximum((total + 1) / factor**2 - 1, jnp.minimum(total, 1))
    return {"conc": belief["conc"] * wide / total}


def respond(
    key: jax.Array, q: Any, data: Any, seen: Callable, log_prior: Callable[[Any], jax.Array]
) -> jax.Array:
    """The factor of sds by linear response, for the logarithms of the cells' probabilities.

    The moments are m = E log A. Under q, a row has the covariance V = diag psi'(conc) - psi'(sum conc). All
    rows together have (V^-1 - the second derivatives of sum n log P + log prior in m)^-1.
    """
    logs = each(q, beliefs.expected_log)

    def total(logs: Any) -> jax.Array:
        P, weight = seen(jax.tree.map(jnp.exp, logs), data)
        return jnp.sum(weight * safe_log(P)) + log_prior(logs)

    def uncertain(d: Any) -> Any:
        """d without rows of a single share, which is 1."""
        return jax.tree.map(lambda x: x if x.shape[-1] > 1 else jnp.zeros_like(x), d)

    def times(d: Any) -> Any:
        bent = jax.grad(lambda at: response.dot(jax.grad(total)(at), d))(logs)
        own = jax.tree.map(_precise, q, d, is_leaf=lambda x: isinstance(x, dict) and "conc" in x)
        return jax.tree.map(jnp.subtract, own, uncertain(bent))

    def smoothed(d: Any) -> Any:
        return jax.tree.map(_spread, q, d, is_leaf=lambda x: isinstance(x, dict) and "conc" in x)

    def probe(key: jax.Array) -> Any:
        def signed(logs: Any) -> jax.Array:
            P, weight = seen(jax.tree.map(jnp.exp, logs), data)
            a, b = jax.random.split(key)
            signs = jax.random.rademacher(a, P.shape, P.dtype)
            used = jax.random.uniform(b, P.shape) < PROBED / P.size
            return jnp.sum(jnp.where(used & (weight > 0), signs * safe_log(P), 0))

        return uncertain(jax.grad(signed)(logs))

    return response.factor(key, times, smoothed, probe)


def _spread(belief: beliefs.Belief, d: jax.Array) -> jax.Array:
    """V d."""
    conc = belief["conc"]
    whole = polygamma(1, jnp.sum(conc, -1, keepdims=True))
    return polygamma(1, conc) * d - whole * jnp.sum(d, -1, keepdims=True)


def _precise(belief: beliefs.Belief, d: jax.Array) -> jax.Array:
    """V^-1 d."""
    conc = belief["conc"]
    flat = 1 / polygamma(1, conc)
    whole = polygamma(1, jnp.sum(conc, -1, keepdims=True))
    if conc.shape[-1] == 1:  # V is zero
        return d
    share = whole / (1 - whole * jnp.sum(flat, -1, keepdims=True))
    return flat * d + share * flat * jnp.sum(flat * d, -1, keepdims=True)
