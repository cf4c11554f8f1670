"""The variational law of `cp`: each row of each mode is normal with its full covariance (see cp.py).

Given the other modes, a row depends on products of their rows. The second moments of products are products:

    S_i^-1 = E Lambda + E alpha sum prod_m (m m' + S),   m_i = S_i (E[Lambda mu] + E alpha sum t prod_m m)
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.data.tensor import Tensor
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import beliefs, response
from bayesfac.core.laws.beliefs import Belief, doubled, half, second, square, times_rows, whole
from bayesfac.core.method import Variational
from bayesfac.core.multilinear import multiplied, others

CELLS = 5000  # number of cells whose predictions a probe sums


def begin(p: Any, data: Tensor, hyper: Any) -> Any:
    """The laws after one sweep from a point, which has no variance."""
    laws = {m: beliefs.wishart_begin(p.U[m], p.mu[m], p.Lambda[m]) for m in p.U}
    U, mu, Lambda = ({m: law[k] for m, law in laws.items()} for k in range(3))
    alpha = None
    if p.alpha is not None:
        shape = jnp.asarray(hyper.alpha_shape + 0.5 * len(data), p.alpha.dtype)
        alpha = {"shape": shape, "rate": shape / p.alpha}
    return update(p._replace(U=U, mu=mu, Lambda=Lambda, alpha=alpha), data, hyper)


def rows_of_modes(q: Any, data: Tensor) -> list[Belief]:
    """The laws of the rows, in the order in which cells name the modes."""
    return [q.U[mode] for mode in data.modes]


def moments(sides: list[Belief], cells: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the products at the cells.

    The variance is a sum over modes: second moments of earlier modes, covariance of this mode, squares of
    later.
    """
    variance = jnp.zeros(())
    for m, own in enumerate(sides):
        before = [second(side) for side in sides[:m]]
        behind = [square(side["mean"]) for side in sides[m + 1 :]]
        parts = [*before, own["cov"], *behind]
        variance += multiplied([doubled(parts[0]), *map(half, parts[1:])], cells)
    return multiplied([side["mean"] for side in sides], cells), variance


def misfit(q: Any, data: Tensor, hyper: Any) -> jax.Array:
    """The expected sum of squares of the values minus the products."""
    x, variance = moments(rows_of_modes(q, data), data.cells)
    return jnp.sum((data.y - hyper.offset - x) ** 2 + variance)


def noise(q: Any, hyper: Any) -> jax.Array | float:
    return hyper.alpha if q.alpha is None else beliefs.gamma(q.alpha).mean


def rows(q: Any, number: int, data: Tensor, hyper: Any) -> Belief:
    """The normal laws of the rows of a mode, given everything else."""
    mode, sides = data.modes[number], rows_of_modes(q, data)
    mine, K = data.cells.modes[number], hyper.n_components
    precision = beliefs.expected_precision(q.Lambda[mode])
    weight = jnp.full_like(data.y, 1) * noise(q, hyper)
    twice = others([half(second(side)) for side in sides], number, data.cells)
    once = others([side["mean"] for side in sides], number, data.cells)
    cov = beliefs.inverse(precision + whole(sparse.spread(mine, weight, twice), K))
    shift = precision @ q.mu[mode]["mean"]
    shift += sparse.spread(mine, weight * (data.y - hyper.offset), once)
    return {"mean": times_rows(cov, shift), "cov": cov}


def update(q: Any, data: Tensor, hyper: Any) -> Any:
    """A sweep: noise, then rows, mu and Lambda of each mode."""
    if q.alpha is not None:
        rate = hyper.alpha_rate + 0.5 * misfit(q, data, hyper)
        q = q._replace(alpha={**q.alpha, "rate": rate})
    for number, mode in enumerate(data.modes):
        own = rows(q, number, data, hyper)
        mu, wide = beliefs.wishart_settle(own, q.Lambda[mode], hyper)
        q = q._replace(U={**q.U, mode: own}, mu={**q.mu, mode: mu}, Lambda={**q.Lambda, mode: wide})
    return q


def expected(q: Any, data: Tensor, hyper: Any) -> jax.Array:
    """Minus the expected objective."""
    alpha = noise(q, hyper)
    log = jnp.log(hyper.alpha) if q.alpha is None else beliefs.expected_log(q.alpha)
    fit = 0.5 * (len(data) * log - alpha * misfit(q, data, hyper))
    if q.alpha is not None:
        fit += (hyper.alpha_shape - 1) * log - hyper.alpha_rate * alpha
    for m in q.U:
        fit -= beliefs.wishart_energy(q.U[m], q.mu[m], q.Lambda[m], hyper)
    return fit


def laws(q: Any) -> dict[str, dist.Distribution]:
    found: dict[str, dist.Distribution] = {}
    for m in q.U:
        found |= {f"U.{m}": beliefs.normal(q.U[m]), f"mu.{m}": beliefs.normal(q.mu[m])}
        found[f"Lambda.{m}"] = beliefs.wishart(q.Lambda[m])
    return found if q.alpha is None else found | {"alpha": beliefs.gamma(q.alpha)}


def widened(key: jax.Array, q: Any, data: Tensor, hyper: Any) -> tuple[Any, jax.Array]:
    """Multiply the width of the rows by one factor, from the linear response of products at random labels."""
    means = {m: own["mean"] for m, own in q.U.items()}
    cells, covs = data.cells, [q.U[m]["cov"] for m in data.modes]
    size = min(len(data), CELLS)

    def elbo(means: Any) -> jax.Array:
        rows = {m: {**q.U[m], "mean": x} for m, x in means.items()}
        new = q._replace(U=rows)
        return expected(new, data, hyper)

    def times(d: Any) -> Any:
        return jax.grad(lambda at: -response.dot(jax.grad(elbo)(at), d))(means)

    def smoothed(d: Any) -> Any:
        return {m: times_rows(q.U[m]["cov"], x) for m, x in d.items()}

    def probe(key: jax.Array) -> Any:
        *keys, last = jax.random.split(key, len(covs) + 1)
        each = zip(keys, cells.codes, strict=True)
        at = [jax.random.choice(k, code, (size,), replace=False) for k, code in each]
        picked = [means[m][i] for m, i in zip(data.modes, at, strict=True)]
        variance = jnp.zeros(size)
        for m, (cov, i) in enumerate(zip(covs, at, strict=True)):
            rest = jnp.stack(picked[:m] + picked[m + 1 :]).prod(0)
            variance += jnp.sum(times_rows(cov[i], rest) * rest, 1)
        signs = response.signs(last, variance)

        def total(means: Any) -> jax.Array:
            found = [means[m][i] for m, i in zip(data.modes, at, strict=True)]
            return jnp.sum(signs[:, None] * jnp.stack(found).prod(0))

        return jax.grad(total)(means)

    with sparse.use("jax"):  # the form of the loops that has second derivatives
        factor = response.factor(key, times, smoothed, probe)
    wide = {m: {**own, "cov": factor**2 * own["cov"]} for m, own in q.U.items()}
    return q._replace(U=wide), factor


VARIATIONAL = Variational(begin, update, expected, laws, widened)
