"""Entries of rows whose law is a mixture of normals: loadings of which many are nearly zero.

    u_ik ~ sum_m pi_m N(0, s_m^2 / tau_k),   tau_k the precision of component k

`SpikeAndSlab` has two scales, a narrow spike and 1 (George & McCulloch, JASA 1993), and learns the share of
the slab for each component. `Horseshoe` has the scales of a grid. A mixture is a family of scales: if u_k
grows by e^t and tau_k shrinks to match, its density changes by a constant alone. So the moves of scales are
those of normal rows.

Given the scale of an entry, which is not kept, its law is normal with the precision tau_k w_ik, w = 1 / s^2.
So conditionals draw w first (`Through`), and modes and VB take its expectation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import digamma, logsumexp
from numpyro.distributions import constraints

from bayesfac.core.laws.beliefs import Belief
from bayesfac.core.laws.distributions import Beta, Modal
from bayesfac.core.laws.normal_wishart import mode

STEP = 0.7  # between the logarithms of a horseshoe's scales
LEAST, MOST = 0.01, 100.0  # the first of its scales, and the last before the slab limits them


class Mixture(Protocol):
    """What factors ask of the law of their entries, given the value or the belief of its site."""

    @property
    def site(self) -> str: ...  # "" if the masses are known
    def scales(self, h: Any) -> jax.Array: ...
    def masses(self, value: Any, h: Any) -> jax.Array: ...  # log pi, (M) or (K, M)
    def energy(
        self, log: jax.Array, h: Any
    ) -> Any: ...  # minus the log prior, by log pi or its mean
    def law(self, w: jax.Array, h: Any) -> dist.Distribution: ...  # of the site given all w
    def sampled(self, h: Any, K: int) -> Any: ...  # the value of the site, sampled in the model
    def begin(self, value: Any, h: Any, n: int) -> Belief: ...
    def believed(self, belief: Any, h: Any) -> jax.Array: ...  # E log pi
    def belief(self, w: jax.Array, h: Any) -> Belief: ...  # given E w
    def law_of(self, belief: Belief) -> dist.Distribution: ...


class SpikeAndSlab(NamedTuple):
    """A spike with the scale h.spike, and a slab with the scale 1 and the share pi_k ~ Beta(share_a, share_b)
    of component k."""

    site: str

    def scales(self, h: Any) -> jax.Array:
        return jnp.array([h.spike, 1.0])

    def masses(self, value: jax.Array, h: Any) -> jax.Array:
        return jnp.stack([jnp.log1p(-value), jnp.log(value)], -1)

    def energy(self, log: jax.Array, h: Any) -> jax.Array:
        return -jnp.sum((h.share_b - 1) * log[:, 0] + (h.share_a - 1) * log[:, 1])

    def counts(self, w: jax.Array, h: Any) -> jax.Array:
        """(K, 2): the entries in the slab, and those in the spike; w is linear in this."""
        out = jnp.sum((w - 1) / (h.spike**-2.0 - 1), 0)
        return jnp.stack([h.share_a + len(w) - out, h.share_b + out], -1)

    def law(self, w: jax.Array, h: Any) -> dist.Distribution:
        return Beta(*self.counts(w, h).T)

    def sampled(self, h: Any, K: int) -> jax.Array:
        law = dist.Beta(h.share_a, h.share_b).expand([K]).to_event(1)
        return numpyro.sample(self.site, law)

    def begin(self, value: jax.Array, h: Any, n: int) -> Belief:
        total = n + h.share_a + h.share_b
        return {"conc": total * jnp.stack([value, 1 - value], -1)}

    def believed(self, belief: Belief, h: Any) -> jax.Array:
        conc = belief["conc"]
        return (digamma(conc) - digamma(jnp.sum(conc, -1, keepdims=True)))[:, ::-1]

    def belief(self, w: jax.Array, h: Any) -> Belief:
        return {"conc": self.counts(w, h)}

    def law_of(self, belief: Belief) -> dist.Distribution:
        return dist.Beta(*belief["conc"].T)


class Horseshoe(NamedTuple):
    """The regularised horseshoe (Piironen & Vehtari, EJS 2017) on a grid: s^2 = c^2 l^2 / (c^2 + l^2), where
    l is half-Cauchy and c is h.slab.

    The trapezoid rule in log l, whose ends have all mass beyond them: for a slab of 10 and entries from 3 %
    of 1 / sqrt(tau) up to twice the slab, the density is right to .7 %.
    """

    site: str = ""

    def grid(self) -> np.ndarray:
        """The numbers log l."""
        return np.arange(np.log(LEAST), np.log(MOST) + STEP / 2, STEP)

    def scales(self, h: Any) -> jax.Array:
        square = jnp.exp(2 * jnp.asarray(self.grid()))
        return jnp.sqrt(square / (1 + square / h.slab**2))

    def masses(self, value: None, h: Any) -> jax.Array:
        log = self.grid()
        mass = STEP / np.pi / np.cosh(log)
        mass[0] = 2 / np.pi * np.arctan(np.exp(log[0] + STEP / 2))
        mass[-1] = 2 / np.pi * np.arctan(np.exp(-log[-1] + STEP / 2))
        return jnp.asarray(np.log(mass / mass.sum()))

    def energy(self, log: jax.Array, h: Any) -> float:
        return 0.0

    def sampled(self, h: Any, K: int) -> None:
        return None

    def believed(self, belief: None, h: Any) -> jax.Array:
        return self.masses(None, h)


# -- what holds for all mixtures; `log` are the masses, and `square` is tau u^2 ---------------------------
def weighed(square: jax.Array, log: jax.Array, s: jax.Array) -> jax.Array:
    """log pi_m N(u; 0, s_m^2 / tau) of every entry and scale, but for tau^(1/2) and a constant."""
    return log - jnp.log(s) - 0.5 * square[..., None] / s**2


def log_density(square: jax.Array, log: jax.Array, s: jax.Array) -> jax.Array:
    """The log density of all entries together, but for tau^(n/2) and a constant."""
    return jnp.sum(logsumexp(weighed(square, log, s), -1))


def shares(square: jax.Array, log: jax.Array, s: jax.Array) -> jax.Array:
    """The probabilities of the scales of every entry."""
    return jax.nn.softmax(weighed(square, log, s), -1)


def expected(square: jax.Array, log: jax.Array, s: jax.Array) -> jax.Array:
    """E w of every entry."""
    return shares(square, log, s) @ s**-2.0


def drawn(key: jax.Array, square: jax.Array, log: jax.Array, s: jax.Array) -> jax.Array:
    """w of every entry."""
    below = jnp.cumsum(shares(square, log, s), -1)
    u = jax.random.uniform(key, square.shape, square.dtype) * below[..., -1]
    return (s**-2.0)[jnp.sum(below[..., :-1] <= u[..., None], -1)]


def rows(log: jax.Array, s: jax.Array, tau: jax.Array) -> dist.Distribution:
    """The law of a row."""
    kinds = dist.Categorical(logits=jnp.broadcast_to(log, (len(tau), len(s))))
    return dist.MixtureSameFamily(kinds, dist.Normal(0, s / tau[:, None] ** 0.5)).to_event(1)


def variance(log: jax.Array, s: jax.Array) -> jax.Array:
    """The variance of an entry times tau."""
    return jnp.exp(log) @ s**2


class Through(Modal):
    """The law of a block whose law given variables w is known, where w is drawn anew and not kept.

    `given(w)` is that law. `sample` draws w given the block's present value, and then the block given w: a
    transition that leaves the law invariant. `mode` is a step of EM: that of `given` at the expectation of w,
    at which the density is no lower than now. `log_density(value)` is up to a constant.
    """

    support = constraints.dependent
    exact = False  # draws are not independent of the present value

    def __init__(
        self,
        given: Callable[[jax.Array], dist.Distribution],
        of: tuple[jax.Array, jax.Array, jax.Array],
        log_density: Callable[[jax.Array], jax.Array],
        shape: tuple[int, ...],
    ) -> None:
        self.given, self.of, self.density = given, of, log_density
        super().__init__((), shape)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        first, later = jax.random.split(key)
        return self.given(drawn(first, *self.of)).sample(later)

    @property
    def mode(self) -> jax.Array:
        return mode(self.given(expected(*self.of)))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self.density(value)
