"""The quantities that calibration ranks: they do not change if factors are rotated or relabelled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import log_density

from bayesfac.core.data.cells import query_of
from bayesfac.core.method import Method, Permutation, Rotation, gauge_of, sites
from bayesfac.inference.joint import observed

Numbers = dict[str, jax.Array]


def probes(data: Any) -> dict[str, tuple[int, ...]]:
    """{name: cell} of up to three cells to predict: two observed cells and one unobserved cell."""
    seen = np.full(data.shape, not data.listed)
    if data.listed:
        seen[tuple(data.code.T)] = True
    elif data.by_cut:
        seen[~data.labelled] = False
    here, there = np.argwhere(seen), np.argwhere(~seen)
    cells = [*here[[0, len(here) // 2]], *there[len(there) // 2 :][:1]]
    return {
        f"prediction ({', '.join(map(str, cell))}), {what}": tuple(map(int, cell))
        for cell, what in zip(cells, ("seen", "seen", "unseen"), strict=False)
    }


def identified(method: Method, p: Any, data: Any, hyper: Any, cells: Any) -> Numbers:
    """Every identified number of one value of Params given the data, by name."""
    numbers = {"log joint": -method.objective(p, data, hyper)}
    numbers["log likelihood"] = log_likelihood(method, p, data, hyper)
    numbers |= {name: value for name, value in sites(p).items() if jnp.ndim(value) == 0}
    numbers |= predictions(method, p, data, hyper, cells)
    for free in gauge_of(method, sites(p)):
        if isinstance(free, Permutation):
            numbers |= largest(free, sites(p))
        elif not free.floating:
            numbers |= spectra(free, sites(p))
    return numbers


def log_likelihood(method: Method, p: Any, data: Any, hyper: Any) -> jax.Array:
    """The log likelihood. It depends on both data and parameters, so its ranks detect most errors."""
    trace = log_density(method.model, (data, hyper), {}, sites(p))[1]
    seen = [site for name, site in trace.items() if observed(name)]
    return sum((jnp.sum(s["fn"].log_prob(s["value"])) for s in seen), jnp.zeros(()))


def predictions(method: Method, p: Any, data: Any, hyper: Any, cells: Any) -> Numbers:
    """The predicted means of the cells."""
    if method.derive:
        p = p._replace(**method.derive(p, data, hyper))
    query = query_of(jnp.asarray(list(cells.values())))
    mean = method.predict(p, query, hyper).mean
    return dict(zip(cells, mean, strict=True))


def spectra(free: Rotation, p: Numbers) -> Numbers:
    """Singular values of the product of factors, for each pair of factors with a rotation of its own, and
    eigenvalues of the matrices M that become R'MR."""
    u, v = (p[site] for site in free.factors)
    values = {f"singular value of {free.factors[0]}": singular_values(u, v)}
    values |= {
        f"eigenvalue of {s}": jnp.linalg.eigvalsh(p[s])[..., ::-1] for s in free.forms if s in p
    }
    return {
        f"{name} {'.'.join(str(i + 1) for i in at)}": table[at]
        for name, table in values.items()
        for at in np.ndindex(table.shape)
    }


def singular_values(u: jax.Array, v: jax.Array) -> jax.Array:
    """Singular values of U V', the largest first, from the K x K matrices U'U and V'V."""
    value, Q = jnp.linalg.eigh(jnp.swapaxes(u, -1, -2) @ u)
    root = Q * jnp.sqrt(jnp.maximum(value, 0))[..., None, :]
    square = jnp.swapaxes(root, -1, -2) @ (jnp.swapaxes(v, -1, -2) @ v) @ root
    return jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(square), 0))[..., ::-1]


def largest(free: Permutation, p: Numbers) -> Numbers:
    """The size of the largest component: the geometric mean of its norms over all sites with components."""
    logs = [
        0.5 * jnp.log(jnp.sum(jnp.moveaxis(p[site], axis, -1) ** 2, range(p[site].ndim - 1)))
        for site, axis in free.axes.items()
        if site in p
    ]
    return {f"largest {free.name}": jnp.exp(jnp.max(sum(logs) / len(logs)))} if logs else {}
