r"""Bayesian probabilistic tensor factorization: a CP decomposition with Normal-Wishart priors.

Xiong, Chen, Huang, Schneider & Carbonell, "Temporal Collaborative Filtering with Bayesian Probabilistic
Tensor Factorization", SDM 2010. The method predicts values with three or more labels, for example a user, an
item and a month. All modes have the same prior. The paper's chain over time, t_k ~ N(t_{k-1}, .), is left
out, so that a mode need not be time. A cell with M labels (i, j, ..., t) has a value y and depends on the
product of M rows, x = sum_k u_ik v_jk ... w_tk.

    J = sum_cells [ alpha/2 (y - m - x)^2 - 1/2 log alpha ] + b alpha - (a - 1) log alpha
      + sum over all modes, with rows u_i and n of them, of
        1/2 sum_i (u_i - mu)' Lambda (u_i - mu) - n/2 log|Lambda|                    (eq. 8)
      + beta0/2 mu' Lambda mu - 1/2 log|Lambda|                                     (eq. 9)
      + rate/2 tr Lambda - (nu0 - K - 1)/2 log|Lambda|                (W0 = I / rate, nu0 = K)

    paper              here                 shape
    U, V, T            U.MODE               labels of the mode x K
    mu_U, mu_V, mu_T   mu.MODE              K
    Lambda_U, _V, _T   Lambda.MODE          K x K, positive definite
    alpha              alpha                scalar   (None where fixed)
    mu0, beta0         0, beta0;  nu0 = K, and W0 = I / rate

Given the other modes, a row is a linear regression on products v o w of their rows. So every step is one of
`bpmf` with v o w instead of v. The work grows with the cells x K^2, and no table of all cells is made.

The posterior does not change when components are reordered, or when a component changes its sign in an even
number of modes. Only the priors determine how large a component is in one mode and how small in another. The
blocks change this scale slowly, so a Gibbs sweep also draws it, component by component (`rescale`). Unlike
u.v, products of three rows cannot be rotated, so components have a meaning of their own. But if components
are nearly collinear in one mode, they can almost be rotated in the others, and the blocks do this slowly:
three further moves, `mix`, `travel` and `trade`, are made for such tensors (`_paths.py`).

The joint mode is a poor estimate: the density is high where factors are small and Lambda is large. With
`scales="estimated"` a point fit sets mu, Lambda and alpha once, by empirical Bayes
(`core/laws/empirical_bayes.py`), and the solver then minimises J over the rows alone. With `scales="joint"`
the solver sets each site in turn to its conditional mode.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.tensor import Tensor, few_cells
from bayesfac.core.method import Notes, register
from bayesfac.core.multilinear import multiplied
from bayesfac.core.programs import compiled_for
from bayesfac.models.tensors import _paths as paths
from bayesfac.parts import tensor as parts
from bayesfac.parts.composition import composed
from bayesfac.parts.estimate import point
from bayesfac.parts.observed.normal import Normal
from bayesfac.parts.priors import keyed

# settings that programs take as arguments: see `Method.numbers`
NUMBERS = ("alpha", "alpha_shape", "alpha_rate", "beta0", "rate", "offset")


class Params(NamedTuple):
    U: dict[str, jax.Array]
    mu: dict[str, jax.Array]
    Lambda: dict[str, jax.Array]
    alpha: jax.Array | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    alpha: float | None = None  # a number fixes the noise precision
    alpha_shape: float = 1.0  # alpha ~ Gamma(shape, rate)
    alpha_rate: float | None = None  # None: the variance of the values
    beta0: float = 0.01
    rate: float | None = None  # None: so that products vary as those of `bpmf`
    scales: str = "estimated"  # or "joint": how a point fit sets mu, Lambda and alpha
    offset: float | None = None  # None: the mean value
    modes: tuple[str, ...] | None = None  # None: those of the data, in the order of the cells


def objective(p: Params, data: Tensor, h: Hyper) -> jax.Array:
    """Eq. 4-9, for any number of modes."""
    alpha = h.alpha if p.alpha is None else p.alpha
    rest = data.y - h.offset - multiplied(tables(p, h), data.cells)
    J = 0.5 * alpha * jnp.sum(rest**2) - 0.5 * len(data) * jnp.log(alpha)
    if p.alpha is not None:
        J += h.alpha_rate * alpha - (h.alpha_shape - 1) * jnp.log(alpha)
    for mode, U in p.U.items():
        away, mu, Lambda = U - p.mu[mode], p.mu[mode], p.Lambda[mode]
        J += 0.5 * jnp.sum(away @ Lambda * away) - 0.5 * len(away) * jnp.linalg.slogdet(Lambda)[1]
        J += 0.5 * (h.beta0 * mu @ Lambda @ mu + h.rate * jnp.trace(Lambda))
    return J


def model(data: Tensor, h: Hyper) -> None:
    """Eq. 4-9, for any number of modes."""
    K, rows = h.n_components, []
    for mode, n in zip(data.modes, data.shape, strict=True):
        law = dist.Wishart(float(K), scale_tril=jnp.eye(K) / h.rate**0.5)
        Lambda = numpyro.sample(f"Lambda.{mode}", law)
        law = dist.MultivariateNormal(jnp.zeros(K), precision_matrix=h.beta0 * Lambda)
        mu = numpyro.sample(f"mu.{mode}", law)
        law = dist.MultivariateNormal(mu, precision_matrix=Lambda)
        with numpyro.plate(mode, n):
            rows.append(numpyro.sample(f"U.{mode}", law))
    alpha = h.alpha
    if alpha is None:
        alpha = numpyro.sample("alpha", dist.Gamma(h.alpha_shape, h.alpha_rate))
    mean = h.offset + multiplied(rows, data.cells)
    with numpyro.plate("cell", mean.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, alpha**-0.5), obs=data.y)


def tables(p: Params, hyper: Hyper) -> list[jax.Array]:
    """The rows of all modes, in the order of the cells' labels, because JAX sorts the keys of a mapping."""
    return [p.U[mode] for mode in hyper.modes or ()]


def prepare(data: Tensor, hyper: Hyper) -> Hyper:
    most = math.prod(data.shape) // max(data.shape)
    checks.count(hyper, "n_components", most, "the product of all modes but the largest")
    K, M = hyper.n_components, len(data.shape)
    rate = (data.spread**2 * K ** (M - 2)) ** (1 / M)
    hyper = checks.filled(Normal().prepare(data, hyper), rate=rate, modes=data.modes)
    checks.positive(hyper, "beta0", "rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    if hyper.modes != data.modes:
        raise ValueError(f"Expected the modes of the data, {data.modes}, got {hyper.modes}")
    return hyper


@compiled_for(2, once=True, numbers=NUMBERS)
def init(key: jax.Array, data: Tensor, hyper: Hyper) -> Params:
    """The best of a few annealed starts."""
    return parts.annealed(METHOD.parts, METHOD.parts.init, key, data, hyper)


@compiled_for(2, once=True, numbers=NUMBERS)
def start(key: jax.Array, data: Tensor, hyper: Hyper) -> Params:
    """Start a point fit: mu, Lambda and alpha by empirical Bayes; the solver keeps them fixed."""
    return point(METHOD.parts, init(key, data, hyper), data, hyper)


def mix(key: jax.Array, p: Params, data: Tensor, hyper: Hyper) -> Params:
    """Draw the level and the mixture of the components of each mode with its mu and Lambda: `_paths.py`."""
    U, mu, Lambda = dict(p.U), dict(p.mu), dict(p.Lambda)
    for m, mode in enumerate(data.modes):
        if len(U[mode]) <= paths.LARGEST:
            given = [U[each] for each in data.modes], mu[mode], Lambda[mode]
            new = paths.mixed(
                jax.random.fold_in(key, m), m, *given, Normal().precision(p, hyper), data, hyper
            )
            U[mode], mu[mode], Lambda[mode] = new
    return Params(U, mu, Lambda, p.alpha)


def travel(key: jax.Array, p: Params, data: Tensor, hyper: Hyper) -> Params:
    """Move the rows of all modes together, by a Hamiltonian path: `_paths.py`."""
    mu, Lambda = ([site[mode] for mode in data.modes] for site in (p.mu, p.Lambda))
    given = tables(p, hyper), mu, Lambda, Normal().precision(p, hyper)
    rows = paths.path(key, *given, data, hyper.offset)
    return p._replace(U=dict(zip(data.modes, rows, strict=True)))


def trade(key: jax.Array, p: Params, data: Tensor, hyper: Hyper) -> Params:
    """Move size from one of two components to the other, a few times: `_paths.py`."""
    if hyper.n_components < 2:
        return p
    alpha, names = Normal().precision(p, hyper), data.modes

    def once(number: jax.Array, state: tuple) -> tuple:
        U, mu, Lambda = state
        own = jax.random.fold_in(key, number)
        return paths.traded(own, U, mu, Lambda, alpha, data, hyper)

    begin = tuple([site[mode] for mode in names] for site in (p.U, p.mu, p.Lambda))
    end = jax.lax.fori_loop(0, paths.TRADES, once, begin)
    U, mu, Lambda = (dict(zip(names, each, strict=True)) for each in end)
    return Params(U, mu, Lambda, p.alpha)


def example(key: jax.Array) -> tuple[Tensor, Hyper]:
    data = few_cells(key)
    hyper = Hyper(2, alpha_shape=2.0, alpha_rate=1.0, beta0=2.0, rate=1.2, scales="joint")
    return data, prepare(data, hyper)


METHOD = register(
    composed(
        "cp", cite="xiong2010bptf", home=__name__, data=Tensor, Params=Params, Hyper=Hyper,
        structure=parts.Tensor(keyed), observed=Normal(), objective=objective, model=model, example=example,
        prepare=prepare, init=init,
        moves={"mix": mix, "travel": travel, "trade": trade}, solver=dict(start=start),
        notes=Notes(
            traits={"no_fold_in": "rows of a tensor belong to one of several modes"},
            numbers=NUMBERS,
        ),
    )
)  # fmt: skip
