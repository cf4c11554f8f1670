"""Laws of several matrices, each of which has values of its own kind, given the scores {matrix: x}.

    z = (y - offset) / scale ~ N(x, 1 / alpha),   alpha ~ Gamma(alpha_shape, alpha_rate)     (real values)
    P(y <= level l) = Phi(theta_l - x),   theta by the free coordinates `cuts`      (`core/laws/cuts.py`)

Each matrix has its own alpha or cuts. Auxiliary variables are latent normals of all cells with levels (Albert
& Chib, JASA 1993), matrix by matrix; given these, each cell observes its score as a normal value. There is
no VB.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.relations import RATINGS, Relations
from bayesfac.core.laws import cuts
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws.ordinal import Between, Levels, averaged, level_codes
from bayesfac.parts.matrices import Scores
from bayesfac.parts.sites import put


class Matrix(NamedTuple):
    """The description of a matrix that predictions need; `levels` is None if its values are real."""

    name: str
    row: str
    col: str
    offset: float
    scale: float
    levels: tuple[float, ...] | None

    def coded(self, data: Relations) -> jax.Array:
        """The level numbers, counted from 0."""
        return level_codes(data.observed(self.name), self.levels)

    def standard(self, data: Relations) -> jax.Array:
        """The values in units of their standard deviation."""
        return (data.observed(self.name) - self.offset) / self.scale

    @property
    def site(self) -> str:
        """The NumPyro site of the values."""
        return "rating" if self.name == RATINGS else f"view.{self.name}"


def real(h: Any) -> list[Matrix]:
    """The matrices of real values."""
    return [m for m in h.matrices if m.levels is None]


def levelled(h: Any) -> list[Matrix]:
    """The matrices of levels."""
    return [m for m in h.matrices if m.levels is not None]


class PerMatrix(NamedTuple):
    """Normal values with own noise, or levels with shared thresholds, of the matrices in `h.matrices`."""

    floating: tuple[str, ...] = ("cuts",)

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        return {"alpha": (), "cuts": ("{key}_threshold",)}

    @property
    def conditionals(self) -> dict[str, Any]:
        return {"alpha.{key}": self.given_alpha}

    def held(self, h: Any) -> tuple[str, ...]:
        return ("alpha", "cuts")

    def unit(self, data: Relations, h: Any) -> float:
        return 1.0

    def first(self, data: Relations, h: Any) -> dict[str, jax.Array]:
        """Noise as large as the values, and thresholds at the quantiles of the levels' shares."""
        found = {f"alpha.{m.name}": jnp.ones(()) for m in real(h)}
        for m in levelled(h):
            count = jnp.bincount(m.coded(data), length=len(m.levels or ()))
            found[f"cuts.{m.name}"] = cuts.begin(count)
        return found

    def energy(self, p: Any, x: Scores, data: Relations, h: Any) -> jax.Array:
        fit = sum(
            (cuts.energy(p.cuts[m.name]) for m in levelled(h)), -self.log_levels(p, x, data, h)
        )
        for m in real(h):
            alpha, rest = p.alpha[m.name], m.standard(data) - x[m.name]
            fit += 0.5 * alpha * jnp.sum(rest**2) - 0.5 * len(rest) * jnp.log(alpha)
            fit += h.alpha_rate * alpha - (h.alpha_shape - 1) * jnp.log(alpha)
        return fit

    def log_levels(self, p: Any, x: Scores, data: Relations, h: Any) -> jax.Array:
        """The log probability of all levels of the matrices whose scores are given."""
        total = jnp.zeros(())
        for m in levelled(h):
            if m.name in x:
                total += jnp.sum(cuts.log_levels(p.cuts[m.name], x[m.name], m.coded(data)))
        return total

    def given_alpha(self, p: Any, x: Scores, data: Relations, h: Any, z: Any, name: str) -> Any:
        m = next(m for m in real(h) if m.name == name)
        rest = m.standard(data) - x[name]
        rate = h.alpha_rate + 0.5 * jnp.sum(rest**2)
        return dist.Gamma(h.alpha_shape + 0.5 * len(rest), rate)

    # -- auxiliary variables ---------------------------------------------------------------------------
    def augment(self, p: Any, x: Scores, data: Relations, h: Any) -> Between:
        parts = [
            jnp.stack([x[m.name], *cuts.limits(p.cuts[m.name], m.coded(data))]) for m in levelled(h)
        ]
        return Between(*jnp.concatenate([jnp.zeros((3, 0)), *parts], 1))

    def touching(self, p: Any, x: Scores, data: Relations, h: Any) -> jax.Array:
        """The centres of parabolas below log P that touch it at x. The solver has these instead of latent
        normals: the second derivative of log P is at least -1, so J never rises."""
        parts = [cuts.touching(p.cuts[m.name], x[m.name], m.coded(data)) for m in levelled(h)]
        return jnp.concatenate([jnp.zeros(0), *parts])

    def target(self, p: Any, data: Relations, h: Any, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        targets, weights, first = [], [], 0
        for m in h.matrices:
            if m.levels is None:
                targets.append(m.standard(data))
                weights.append(jnp.full_like(targets[-1], p.alpha[m.name]))
            else:
                size = len(data.observed(m.name))
                targets.append(z[first : first + size])
                weights.append(jnp.ones_like(targets[-1]))
                first += size
        return jnp.concatenate(targets), jnp.concatenate(weights)

    # -- thresholds ------------------------------------------------------------------------------------
    @property
    def moves(self) -> dict[str, Any]:
        return {"thresholds": self.walked}

    def walked(self, key: jax.Array, p: Any, x: Scores, data: Relations, h: Any) -> Any:
        """Metropolis steps of the thresholds, with latent normals integrated out."""
        new = {}
        for number, m in enumerate(levelled(h)):
            given = p.cuts[m.name], x[m.name], m.coded(data)
            new[f"cuts.{m.name}"] = cuts.walked(jax.random.fold_in(key, number), *given)
        return put(p, new)

    def lowered(self, p: Any, x: Scores, data: Relations, h: Any) -> Any:
        """Newton steps of the thresholds."""
        given = ((m.name, p.cuts[m.name], x[m.name], m.coded(data)) for m in levelled(h))
        return put(p, {f"cuts.{name}": cuts.lowered(*own) for name, *own in given})

    def grown(self, p: Any, t: jax.Array, x: Scores, data: Relations, h: Any) -> tuple:
        """Thresholds stay: the scores of one kind alone grow."""
        return p, self.log_levels(p, x, data, h)

    # -- the model, predictions and the start of a point ---------------------------------------------------
    def sampled(self, p: Any, x: Scores, data: Relations, h: Any) -> None:
        for m in h.matrices:
            if m.levels is None:
                noise = dist.Gamma(h.alpha_shape, h.alpha_rate)
                sd = numpyro.sample(f"alpha.{m.name}", noise) ** -0.5
                law: Any = dist.Normal(m.offset + m.scale * x[m.name], m.scale * sd)
            else:
                free = dist.Normal(cuts.middle(len(m.levels)), 1).to_event(1)
                law = cuts.levels(numpyro.sample(f"cuts.{m.name}", free), x[m.name], m.levels)
            with numpyro.plate(f"cell.{m.name}", len(x[m.name])):
                numpyro.sample(m.site, law, obs=data.observed(m.name))

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> dist.Distribution:
        """The value in the matrix `h.predicts`."""
        m = next(m for m in h.matrices if m.name == h.predicts)
        if m.levels is None:
            mean, variance = s.predicted(p, query, h)
            noise = 1 / jnp.asarray(p.alpha[m.name], mean.dtype)
            return dist.Normal(m.offset + m.scale * mean, m.scale * jnp.sqrt(noise + variance))

        def levels(x: jax.Array) -> Levels:
            return cuts.levels(p.cuts[m.name], x, m.levels)

        def law(cells: Any) -> tuple:
            mean, at = s.drawn(p, cells, h)
            return levels(mean), lambda point: levels(at(point))

        return averaged(law, h.n_components + 1, query)

    def observer(self, data: Relations, h: Any) -> bayes.Observe:
        """`observe(own, x, variance)` of empirical Bayes; `own` has the cuts of matrices of levels, and alpha
        and the mean variance of left-out scores of the others."""

        def observe(own: dict, x: jax.Array, variance: jax.Array) -> bayes.Seen:
            parts = []
            for m in h.matrices:
                at = data.spans[m.name]
                if m.levels is None:
                    law: Any = bayes.normal(m.standard(data), h.alpha_shape, h.alpha_rate)
                else:
                    law = partial(cuts.observed, m.coded(data))
                parts.append(law(own[m.name], x[at], variance[at]))
            new, *cells = zip(*parts, strict=True)
            named = {m.name: law for m, law in zip(h.matrices, new, strict=True)}
            return bayes.Seen(named, *map(jnp.concatenate, cells))

        return observe
