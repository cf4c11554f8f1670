"""Laws of several matrices, each of which has values of its own kind, given the scores {matrix: x}.

    z = (y - offset) / scale ~ N(x, 1 / alpha),   alpha ~ Gamma(alpha_shape, alpha_rate)     (real values)
    P(y <= level l) = Phi(theta_l - x),   theta by the free coordinates `cuts`      (`core/laws/cuts.py`)

Each matrix has its own alpha or cuts. Auxiliary variables are latent normals of all cells with levels (Albert
& Chib, JASA 1993), matrix by matrix; given these, each cell observes its score as a normal value. There is
no VB.
"""

from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.linked.relations import RATINGS, Relations
from bayesfac.core.laws import cuts
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws.ordinal import Between, averaged, level_codes
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


def named(h: Any, name: str) -> Matrix:
    """The matrix of this name."""
    return next(m for m in h.matrices if m.name == name)


class PerMatrix(NamedTuple):
    """Normal values with own noise, or levels with shared thresholds, of the matrices in `h.matrices`."""

    floating: tuple[str, ...] = ("cuts",)
    sites: dict[str, tuple[str, ...]] = {"alpha": (), "cuts": ("{key}_threshold",)}  # never changed

    @property
    def conditionals(self) -> dict[str, Any]:
        return {"alpha.{key}": self.given_alpha}

    def held(self, h: Any) -> tuple[str, ...]:
        return ("alpha", "cuts")

    def unit(self, data: Relations, h: Any) -> float:
        return 1.0

    def first(self, data: Relations, h: Any) -> dict[str, jax.Array]:
        """Noise as large as the values, and thresholds at the quantiles of the levels' shares."""
        found = {f"alpha.{m.name}": jnp.ones(()) for m in h.matrices if m.levels is None}
        own = [m for m in h.matrices if m.levels is not None]
        count = {m.name: jnp.bincount(m.coded(data), length=len(m.levels)) for m in own}
        return found | {f"cuts.{name}": cuts.begin(number) for name, number in count.items()}

    def energy(self, p: Any, x: Scores, data: Relations, h: Any) -> jax.Array:
        """Of the matrices in x."""
        fit = jnp.zeros(())
        for m in (named(h, name) for name in x):
            if m.levels is None:
                alpha, rest = p.alpha[m.name], m.standard(data) - x[m.name]
                fit += 0.5 * alpha * jnp.sum(rest**2) - 0.5 * len(rest) * jnp.log(alpha)
                fit += h.alpha_rate * alpha - (h.alpha_shape - 1) * jnp.log(alpha)
            else:
                t = p.cuts[m.name]
                fit += cuts.energy(t) - jnp.sum(cuts.log_levels(t, x[m.name], m.coded(data)))
        return fit

    def given_alpha(self, p: Any, x: Scores, data: Relations, h: Any, z: Any, name: str) -> Any:
        rest = named(h, name).standard(data) - x[name]
        rate = h.alpha_rate + 0.5 * jnp.sum(rest**2)
        return dist.Gamma(h.alpha_shape + 0.5 * len(rest), rate)

    def target(self, p: Any, data: Relations, h: Any, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        sizes = [len(data.observed(m.name)) for m in h.matrices if m.levels is not None]
        latent = iter(jnp.split(z, list(accumulate(sizes))))
        target = [m.standard(data) if m.levels is None else next(latent) for m in h.matrices]
        alpha = [p.alpha[m.name] if m.levels is None else 1.0 for m in h.matrices]
        weight = [jnp.full_like(y, own) for y, own in zip(target, alpha, strict=True)]
        return jnp.concatenate(target), jnp.concatenate(weight)

    # -- levels ------------------------------------------------------------------------------------------
    def levels(self, p: Any, x: Scores, data: Relations, h: Any) -> dict[str, tuple]:
        """{matrix: (cuts, scores, level numbers)}, which functions of `core/laws/cuts.py` take."""
        own = [m for m in h.matrices if m.levels is not None]
        return {m.name: (p.cuts[m.name], x[m.name], m.coded(data)) for m in own}

    def augment(self, p: Any, x: Scores, data: Relations, h: Any) -> Between:
        own = self.levels(p, x, data, h).values()
        parts = [jnp.stack([scores, *cuts.limits(t, code)]) for t, scores, code in own]
        return Between(*jnp.concatenate([jnp.zeros((3, 0)), *parts], 1))

    def touching(self, p: Any, x: Scores, data: Relations, h: Any) -> jax.Array:
        """The centres of parabolas below log P that touch it at x, which the solver has instead of latent
        normals. The second derivative of log P is at least -1, so J never rises."""
        parts = [cuts.touching(*own) for own in self.levels(p, x, data, h).values()]
        return jnp.concatenate([jnp.zeros(0), *parts])

    def lowered(self, p: Any, x: Scores, data: Relations, h: Any) -> Any:
        """Newton steps of the thresholds."""
        own = self.levels(p, x, data, h).items()
        return put(p, {f"cuts.{name}": cuts.lowered(*given) for name, given in own})

    @property
    def moves(self) -> dict[str, Any]:
        return {"thresholds": self.walked}

    def walked(self, key: jax.Array, p: Any, x: Scores, data: Relations, h: Any) -> Any:
        """Metropolis steps of the thresholds, with latent normals integrated out."""
        new = {}
        for number, (name, own) in enumerate(self.levels(p, x, data, h).items()):
            new[f"cuts.{name}"] = cuts.walked(jax.random.fold_in(key, number), *own)
        return put(p, new)

    def grown(self, p: Any, t: jax.Array, x: Scores, data: Relations, h: Any) -> tuple:
        """Thresholds stay: the scores of one kind alone grow, in the matrices in x."""
        return p, -self.energy(p, x, data, h)

    # -- the model, predictions and the start of a point ---------------------------------------------------
    def sampled(self, p: Any, x: Scores, data: Relations, h: Any) -> None:
        for m in h.matrices:
            if m.levels is None:
                alpha = numpyro.sample(f"alpha.{m.name}", dist.Gamma(h.alpha_shape, h.alpha_rate))
                law: Any = dist.Normal(m.offset + m.scale * x[m.name], m.scale * alpha**-0.5)
            else:
                free = dist.Normal(cuts.middle(len(m.levels)), 1).to_event(1)
                law = cuts.levels(numpyro.sample(f"cuts.{m.name}", free), x[m.name], m.levels)
            with numpyro.plate(f"cell.{m.name}", len(x[m.name])):
                site = "rating" if m.name == RATINGS else f"view.{m.name}"
                numpyro.sample(site, law, obs=data.observed(m.name))

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> dist.Distribution:
        """The value in the matrix `h.predicts`."""
        m = named(h, h.predicts)
        if m.levels is None:
            mean, variance = s.predicted(p, query, h)
            noise = 1 / jnp.asarray(p.alpha[m.name], mean.dtype)
            return dist.Normal(m.offset + m.scale * mean, m.scale * jnp.sqrt(noise + variance))

        levels = partial(cuts.levels, p.cuts[m.name], values=m.levels)

        def law(cells: Any) -> tuple:
            mean, at = s.drawn(p, cells, h)
            return levels(mean), lambda point: levels(at(point))

        return averaged(law, h.n_components + 1, query)

    def observer(self, data: Relations, h: Any) -> bayes.Observe:
        """`observe(own, x, variance)` of empirical Bayes; `own` has the cuts of matrices of levels, and alpha
        and the mean variance of left-out scores of the others."""
        laws: dict[str, Any] = {
            m.name: bayes.normal(m.standard(data), h.alpha_shape, h.alpha_rate)
            if m.levels is None
            else partial(cuts.observed, m.coded(data))
            for m in h.matrices
        }

        def observe(own: dict, x: jax.Array, variance: jax.Array) -> bayes.Seen:
            cells = data.spans
            parts = [law(own[n], x[cells[n]], variance[cells[n]]) for n, law in laws.items()]
            new, *rest = zip(*parts, strict=True)
            return bayes.Seen(dict(zip(laws, new, strict=True)), *map(jnp.concatenate, rest))

        return observe
