"""Values that are normal about their scores, with a noise of its own for every label of one axis.

    y_c ~ N(m + x_c, 1 / alpha_j),   alpha_j ~ Gamma(alike, alike v),   v ~ Gamma(1, 1 / alpha_rate)

j is the label of cell c on the axis `per`: a user, an item, or a label of a mode. v is the variance of the
noise of a usual label. It is learned, as nobody knows before how much the scores leave, and labels with few
cells keep near it. The setting `alike` is not: it has no conjugate law, and few labels tell little of it. A
label that training never saw has the noise of the prior: Student's t with 2 alike degrees of freedom.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Known
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import beliefs
from bayesfac.core.laws.beliefs import Belief
from bayesfac.core.laws.distributions import Gamma, NormalOrStudentT
from bayesfac.core.laws.empirical_bayes import Evidence, Seen, alone
from bayesfac.core.math import total
from bayesfac.core.multilinear import others
from bayesfac.parts.observed.normal import spread


class Noises(NamedTuple):
    """`h` has offset, alike and alpha_rate; of tensors also the modes."""

    per: str

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        return {"alpha": (self.per,), "v": ()}

    @property
    def conditionals(self) -> dict[str, Any]:
        return {"alpha": self.given_alpha, "v": self.given_v}

    def prepare(self, data: Any, h: Any) -> Any:
        if self.per not in (axes := axes_of(h)):
            raise ValueError(f"Expected per to be one of {axes}, got {self.per!r}")
        h = checks.filled(h, alpha_rate=data.spread**2, offset=data.mean)
        checks.positive(h, "alike", "alpha_rate")
        if h.alike <= 1:
            raise ValueError(
                f"Expected alike above 1, so that values of new labels have a variance, got {h.alike!r}"
            )
        return h

    def held(self, h: Any) -> tuple[str, ...]:
        return ("alpha", "v")

    def unit(self, data: Any, h: Any) -> Any:
        return spread(data)

    def first(self, data: Any, h: Any) -> dict[str, jax.Array]:
        v = jnp.asarray(spread(data) ** 2.0)
        return {"alpha": jnp.full(data.shape[self.axis(h)], 1 / v), "v": v}

    # -- labels and cells -------------------------------------------------------------------------------
    def axis(self, h: Any) -> int:
        return axes_of(h).index(self.per)

    def at(self, each: jax.Array, cells: Any, h: Any) -> jax.Array:
        """What each label has, at the cells."""
        return each[cells.codes[self.axis(h)]]

    def sums(self, values: jax.Array, cells: Any, h: Any) -> jax.Array:
        """The sums over the cells of each label."""
        m, ones = self.axis(h), [jnp.ones((n, 1), values.dtype) for n in cells.shape]
        return sparse.spread(cells.modes[m], values, others(ones, m, cells))[:, 0]

    def counts(self, cells: Any, h: Any) -> jax.Array:
        return jnp.diff(cells.modes[self.axis(h)].ptr)

    # -- the start of a point -------------------------------------------------------------------------------
    def evidence(self, p: Any, data: Any, h: Any) -> Evidence:
        """As that of `Normal`: at the end the noise of each label includes the variance of its scores, and
        the precisions of the rows get the mean of the factors."""
        y, cells = data.y - h.offset, data.cells
        count = self.counts(cells, h).astype(y.dtype)

        def usual(alpha: jax.Array) -> jax.Array:
            """v at its mode."""
            return h.alike * len(alpha) / (1 / h.alpha_rate + h.alike * jnp.sum(alpha))

        def observe(known: tuple, x: jax.Array, variance: jax.Array) -> Seen:
            square = (y - x) ** 2
            rate = h.alike * usual(known[0]) + 0.5 * self.sums(square + variance, cells, h)
            alpha = (h.alike - 1 + 0.5 * count) / rate
            own = self.at(alpha, cells, h)
            doubt = alone(own * variance, 1)
            # with the mean of all cells as one cell more, for labels that have few
            each = (self.sums(doubt, cells, h) + jnp.mean(doubt)) / (count + 1)
            return Seen((alpha, 1 / (1 + each)), y, own, square)

        def end(known: tuple) -> tuple[dict[str, Any], Any]:
            alpha, share = known
            own = share * alpha
            return {"alpha": own, "v": usual(own)}, jnp.mean(self.at(share, cells, h))

        begun = jnp.asarray(p.alpha, y.dtype), jnp.ones_like(count)
        return Evidence(y, self.unit(data, h), begun, observe, end=end)

    # -- the joint and the conditionals ---------------------------------------------------------------
    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        alpha = self.at(p.alpha, data.cells, h)
        fit = total(alpha * (data.y - h.offset - x) ** 2 - jnp.log(alpha), data.cells) / 2
        own = h.alike * (p.v * p.alpha - jnp.log(p.v)) - (h.alike - 1) * jnp.log(p.alpha)
        return fit + jnp.sum(own) + p.v / h.alpha_rate

    def target(self, p: Any, data: Any, h: Any) -> tuple[jax.Array, jax.Array]:
        return data.y - h.offset, self.at(p.alpha, data.cells, h)

    def given_alpha(self, p: Any, x: jax.Array, data: Any, h: Any) -> dist.Gamma:
        square, cells = (data.y - h.offset - x) ** 2, data.cells
        rate = h.alike * p.v + 0.5 * self.sums(square, cells, h)
        return Gamma(h.alike + 0.5 * self.counts(cells, h), rate)

    def given_v(self, p: Any, x: jax.Array, data: Any, h: Any) -> dist.Gamma:
        return Gamma(1 + h.alike * len(p.alpha), 1 / h.alpha_rate + h.alike * jnp.sum(p.alpha))

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        v = numpyro.sample("v", dist.Gamma(1.0, 1 / h.alpha_rate))
        with numpyro.plate(self.per, data.shape[self.axis(h)]):
            alpha = numpyro.sample("alpha", dist.Gamma(h.alike, h.alike * v))
        own = self.at(alpha, data.cells, h)
        with numpyro.plate("cell", x.shape[0]):
            numpyro.sample("rating", dist.Normal(h.offset + x, own**-0.5), obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> dist.Distribution:
        mean, variance = s.predicted(p, query, h)
        m = self.axis(h)
        code = query.row if m == 0 else query.col.reshape(len(query.col), -1)[:, m - 1]
        known = code >= 0
        noise = jnp.where(known, 1 / p.alpha[code], p.v)
        if isinstance(query, Grid):
            noise = noise[:, None] if m == 0 else noise
        if isinstance(query, Grid | Known):
            return dist.Normal(h.offset + mean, jnp.sqrt(noise + variance))
        return NormalOrStudentT(known, 2 * h.alike, h.offset + mean, jnp.sqrt(noise), variance)

    # -- the variational law: v and every alpha are Gamma ---------------------------------------------
    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]:
        shape = h.alike + 0.5 * self.counts(data.cells, h).astype(p.alpha.dtype)
        of_v = jnp.asarray(1 + h.alike * len(p.alpha), p.v.dtype)
        return {
            "alpha": {"shape": shape, "rate": shape / p.alpha},
            "v": {"shape": of_v, "rate": of_v / p.v},
        }

    def updated(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        wide = (data.y - h.offset - x) ** 2 + variance
        rate = h.alike * beliefs.gamma(q.v).mean + 0.5 * self.sums(wide, data.cells, h)
        mean = q.alpha["shape"] / rate
        of_v = {**q.v, "rate": 1 / h.alpha_rate + h.alike * jnp.sum(mean)}
        q = q._replace(alpha={**q.alpha, "rate": rate}, v=of_v)
        return q, data.y - h.offset, self.at(mean, data.cells, h)

    def bound(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        wide = (data.y - h.offset - x) ** 2 + variance
        alpha, v = beliefs.gamma(q.alpha).mean, beliefs.gamma(q.v).mean
        log, log_v = beliefs.expected_log(q.alpha), beliefs.expected_log(q.v)
        fit = 0.5 * jnp.sum(self.at(log, data.cells, h) - self.at(alpha, data.cells, h) * wide)
        own = (h.alike - 1) * log + h.alike * (log_v - v * alpha)
        return fit + jnp.sum(own) - v / h.alpha_rate

    def laws(self, q: Any) -> dict[str, dist.Distribution]:
        return {"alpha": beliefs.gamma(q.alpha), "v": beliefs.gamma(q.v)}


def axes_of(h: Any) -> tuple[str, ...]:
    """The axes of the data: users and items, or the modes of a tensor."""
    return getattr(h, "modes", ("user", "item"))
