"""Where the point of a composed factorization begins: scales by empirical Bayes, for any priors.

The scales of priors, the rows, and the law's own parameters come from mean-field sweeps that include the
uncertainty of the rows (`core/laws/empirical_bayes.py`), with any precisions. Then the factors take the
coordinates in which their precisions have the forms of their priors (`parts/estimate.py`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.compose.laws import Evidence, Law
from bayesfac.core.laws.empirical_bayes import Seen, biases
from bayesfac.core.programs import compiled_for
from bayesfac.parts.composition import Composition
from bayesfac.parts.estimate import estimated
from bayesfac.parts.matrix import Matrix, codes
from bayesfac.parts.sites import put
from bayesfac.parts.tensor import Tensor as Modes
from bayesfac.parts.tensor import annealed

LEAST = 1e-4  # smallest variance of biases, as a share of that of the scores


class Scales(NamedTuple):
    """The settings of empirical Bayes, whatever the priors of the factorization are."""

    n_components: Any
    rate: Any
    beta0: Any
    ridge_shape: Any
    ridge_rate: Any


def init_of(c: Composition, law: Law) -> Any:
    """`init` of a tensor: see `annealed`."""

    @compiled_for(2, once=True)
    def init(key: jax.Array, data: Any, h: Any) -> Any:
        seen = law.evidence(c.init(key, data, h), data, h)
        begin = lambda key: c.init(key, data, h)  # noqa: E731
        return annealed(key, begin, c.at(h), data, h, seen.y, seen.unit)

    return init


def start_of(c: Composition, law: Law) -> Any:
    """`start` of the solver: where deterministic engines begin."""
    init = init_of(c, law) if isinstance(c.structure, Modes) else c.init

    @compiled_for(2, once=True)
    def start(key: jax.Array, data: Any, h: Any) -> Any:
        p = init(key, data, h)
        if h.scales == "joint":
            return p
        s, seen, found = c.at(h), law.evidence(p, data, h), dict[str, Any]()
        learned = {f.precision.site for f in s.every}
        if s.biases:
            seen, found = _beside_biases(s, seen, data)
        usual = {"rate": seen.unit, "beta0": 0.01, "ridge_shape": 1.0, "ridge_rate": 0.1}
        scales = Scales(**{name: getattr(h, name, usual.get(name)) for name in Scales._fields})
        given = seen.y, seen.unit, seen.own, seen.observe, seen.early
        rows, known = estimated(s.main, p, data, h, *given, scales=scales)
        sites, share = law.settled(p, known)
        scaled = {k: share * v if k in learned else v for k, v in (found | rows).items()}
        return put(p, scaled | sites)

    return start


def _beside_biases(s: Matrix, seen: Evidence, data: Any) -> tuple[Evidence, dict[str, Any]]:
    """The evidence for the products alone, given regularised biases; and {site: value} of the biases."""
    found = dict[str, Any]()
    offsets = jnp.zeros_like(seen.y)
    for f, b in zip(s.biases, biases(data.cells, seen.y - jnp.mean(seen.y)), strict=True):
        found |= {f.rows: b, f.precision.site: 1 / (jnp.mean(b**2) + LEAST * seen.unit**2)}
        offsets += b[codes(data.cells, f)]

    def observe(own: Any, x: jax.Array, variance: jax.Array) -> Seen:
        new = seen.observe(own, x + offsets, variance)
        return new._replace(target=new.target - offsets)

    found_early = seen.early
    alone = seen._replace(y=seen.y - offsets, observe=observe)
    if found_early is None:
        return alone, found

    def early(new: Seen, x: jax.Array, variance: jax.Array) -> Seen:
        changed = found_early(new, x + offsets, variance)
        return changed._replace(target=changed.target - offsets)

    return alone._replace(early=early), found
