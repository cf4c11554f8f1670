"""The precision P of the rows of a factor: given, Wishart, or one Gamma number for each component.

Everything that an objective knows of P is

    1/2 tr(P S) - N/2 log|P|

where S is the sum of squares of rows, mean and links (`factors.squares`), and N is their number. A prior of P
has the same form, with its own S0 and N0. So a law of P has few functions, and all others (energies,
conditionals, modes, variational laws, scales) are written once for all of them:

    site, dims            the site of P, "" if P is given, and its axes
    prior(h, K)           S0 and N0
    of(value, h, K)       P and log|P| at a value of the site
    law(S, N)             the distribution of the site given S and N, which include S0 and N0
    belief(S, N)          its parameters in a variational law
    believed(belief, K)   E P and E log|P| under that law
    value(P)              the site's value that gives P
    tilt(h, K)            the exponent c of e^(-c t) that P's prior and Jacobian leave where one component of
                          all rows grows by e^t, and P shrinks to match
    sampled(h, K)         P, after the NumPyro site is sampled
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.laws import beliefs
from bayesfac.core.laws.beliefs import Belief
from bayesfac.core.laws.distributions import Gamma


class Precision(Protocol):
    """What factors ask of the law of their precision."""

    @property
    def site(self) -> str: ...
    @property
    def dims(self) -> tuple[str, ...]: ...
    def prior(self, h: Any, K: int) -> tuple[jax.Array, float]: ...
    def of(self, value: Any, h: Any, K: int) -> tuple[jax.Array, Any]: ...
    def law(self, S: jax.Array, N: float) -> dist.Distribution: ...
    def belief(self, S: jax.Array, N: float) -> Belief: ...
    def believed(self, belief: Any, h: Any, K: int) -> tuple[jax.Array, Any]: ...
    def law_of(self, belief: Belief) -> dist.Distribution: ...
    def value(self, P: jax.Array) -> jax.Array: ...
    def tilt(self, h: Any, K: int) -> float: ...
    def sampled(self, h: Any, K: int) -> jax.Array: ...


class Given(NamedTuple):
    """P = I / sd^2, where the setting `sd` is the standard deviation. It has no site."""

    sd: str
    site: str = ""
    dims: tuple[str, ...] = ()

    def of(self, value: Any, h: Any, K: int) -> tuple[jax.Array, float]:
        return jnp.eye(K) / getattr(h, self.sd) ** 2, 0.0

    def believed(self, belief: Any, h: Any, K: int) -> tuple[jax.Array, float]:
        return self.of(None, h, K)

    def sampled(self, h: Any, K: int) -> jax.Array:
        return self.of(None, h, K)[0]


class Wishart(NamedTuple):
    """P ~ Wishart(K, I / rate), K degrees of freedom.

    P | rest ~ Wishart(N + K + 1, S^-1)
    """

    site: str
    dims: tuple[str, ...] = ("component", "component_")

    def prior(self, h: Any, K: int) -> tuple[jax.Array, float]:
        return h.rate * jnp.eye(K), -1.0

    def of(self, value: jax.Array, h: Any, K: int) -> tuple[jax.Array, jax.Array]:
        return value, jnp.linalg.slogdet(value)[1]

    def law(self, S: jax.Array, N: float) -> dist.Distribution:
        return dist.Wishart(N + len(S) + 1.0, rate_matrix=S)

    def belief(self, S: jax.Array, N: float) -> Belief:
        return {"shape": jnp.asarray(N + len(S) + 1.0, S.dtype), "rate": S}

    def believed(self, belief: Belief, h: Any, K: int) -> tuple[jax.Array, jax.Array]:
        return beliefs.expected_precision(belief), beliefs.expected_logdet(belief)

    def law_of(self, belief: Belief) -> dist.Distribution:
        return beliefs.wishart(belief)

    def value(self, P: jax.Array) -> jax.Array:
        return (P + P.T) / 2

    def tilt(self, h: Any, K: int) -> float:
        return float(K)

    def sampled(self, h: Any, K: int) -> jax.Array:
        law = dist.Wishart(float(K), scale_tril=jnp.eye(K) / h.rate**0.5)
        return numpyro.sample(self.site, law)


class Gammas(NamedTuple):
    """P = diag(tau), tau_k ~ Gamma(shape, rate); `shape` and `rate` are names of settings. Without `dims`,
    tau is one number, the precision of biases.

    tau_k | rest ~ Gamma(N/2 + 1, S_kk/2)
    """

    site: str
    shape: str = "tau_shape"
    rate: str = "tau_rate"
    dims: tuple[str, ...] = ("component",)

    def prior(self, h: Any, K: int) -> tuple[jax.Array, float]:
        return 2 * getattr(h, self.rate) * jnp.eye(K), 2 * (getattr(h, self.shape) - 1)

    def of(self, value: jax.Array, h: Any, K: int) -> tuple[jax.Array, jax.Array]:
        return jnp.diag(jnp.atleast_1d(value)), jnp.sum(jnp.log(value))

    def law(self, S: jax.Array, N: float) -> dist.Distribution:
        return Gamma(N / 2 + 1, self.value(S) / 2)

    def belief(self, S: jax.Array, N: float) -> Belief:
        rate = self.value(S) / 2
        return {"shape": jnp.full(rate.shape, N / 2 + 1, S.dtype), "rate": rate}

    def believed(self, belief: Belief, h: Any, K: int) -> tuple[jax.Array, jax.Array]:
        mean = jnp.atleast_1d(beliefs.gamma(belief).mean)
        return jnp.diag(mean), jnp.sum(beliefs.expected_log(belief))

    def law_of(self, belief: Belief) -> dist.Distribution:
        return beliefs.gamma(belief)

    def value(self, P: jax.Array) -> jax.Array:
        return jnp.diag(P) if self.dims else P[0, 0]

    def tilt(self, h: Any, K: int) -> float:
        return 2.0 * getattr(h, self.shape)

    def sampled(self, h: Any, K: int) -> jax.Array:
        law = dist.Gamma(getattr(h, self.shape), getattr(h, self.rate))
        law = law.expand([K]).to_event(1) if self.dims else law
        return jnp.diag(jnp.atleast_1d(numpyro.sample(self.site, law)))
