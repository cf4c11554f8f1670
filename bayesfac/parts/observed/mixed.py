"""Cells whose values have laws of several kinds, as those of views of measurements."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints


class Possible(constraints.Constraint):
    """The values that have a density or a probability, cell by cell."""

    is_discrete, event_dim = False, 0

    def __init__(self, law: "Mixed") -> None:
        self.law = law

    def __call__(self, value: Any) -> jax.Array:
        def of(law: Any, *units: Any) -> jax.Array:
            own, values = self.law._own(value, *units), getattr(law, "values", None)
            known = law.support(own)
            return known if values is None else known & jnp.isin(own, jnp.asarray(values))

        return self.law._each(of)


class Mixed(dist.Distribution):
    """Each cell has one of some laws: that whose number `kind` has. `laws` are laws of all cells, of which
    the numbers at cells of other kinds are not used, in units of their own: a value is offset + scale times
    that of its law, with one offset and one scale for each kind.

    `usual` are values that each law can have, for the cells of other kinds.
    """

    arg_constraints: dict[str, Any] = {}
    pytree_data_fields = ("kind", "laws", "offset", "scale", "usual")

    def __init__(
        self, kind: jax.Array, laws: Sequence[Any], offset: Any, scale: Any, usual: Sequence[float]
    ) -> None:
        self.kind, self.laws, self.usual = kind, tuple(laws), tuple(usual)
        self.offset, self.scale = tuple(offset), tuple(scale)
        super().__init__(jnp.shape(kind), ())

    def _each(self, of: Callable[[Any, Any, Any, Any, int], jax.Array]) -> jax.Array:
        parts = zip(self.laws, self.offset, self.scale, self.usual, strict=True)
        first, *rest = (jnp.asarray(of(*part, k)) for k, part in enumerate(parts))
        for k, found in enumerate(rest, 1):
            first = jnp.where(self.kind == k, found, first)
        return first

    def _own(self, value: Any, offset: Any, scale: Any, usual: Any, k: int) -> jax.Array:
        """The values in units of a law; at cells of other kinds one that it can have."""
        return jnp.where(self.kind == k, (jnp.asarray(value) - offset) / scale, usual)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return Possible(self)

    @property
    def mean(self) -> jax.Array:
        return self._each(lambda law, offset, scale, _, k: offset + scale * law.mean)

    @property
    def variance(self) -> jax.Array:
        return self._each(lambda law, offset, scale, _, k: scale**2 * law.variance)

    def log_prob(self, value: Any) -> jax.Array:
        def of(law: Any, *units: Any) -> jax.Array:
            return law.log_prob(self._own(value, *units)) - jnp.log(jnp.asarray(units[1]))

        return self._each(of)

    def cdf(self, value: Any) -> jax.Array:
        return self._each(lambda law, *units: law.cdf(self._own(value, *units)))

    def below(self, value: Any) -> jax.Array:
        """The probability strictly below `value`, which is smaller than `cdf` where a law is discrete."""

        def of(law: Any, *units: Any) -> jax.Array:
            own = self._own(value, *units)
            if hasattr(law, "below"):
                return law.below(own)
            return law.cdf(own) - (jnp.exp(law.log_prob(own)) if law.is_discrete else 0)

        return self._each(of)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        def of(law: Any, offset: Any, scale: Any, _: Any, k: int) -> jax.Array:
            return offset + scale * law.sample(jax.random.fold_in(key, k), sample_shape)

        return self._each(of)
