"""Arithmetic that several methods share: products at cells, row sums, Metropolis steps, Cholesky factors."""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

from bayesfac.core import events
from bayesfac.core.data.cells import Cells, Grid, Known, Query, Rows
from bayesfac.core.data.divided.own_rows import OwnRows, of_all
from bayesfac.core.data.divided.shares import Share
from bayesfac.core.kernels import sparse

LARGE = (
    2**24
)  # larger tables of random numbers are not padded: their draws take longer than compilation


def inner(U: jax.Array, V: jax.Array, cells: Cells | Share | OwnRows | Query | Grid) -> jax.Array:
    """u_i . v_j at the given cells, or in the whole block for a Grid; rows numbered -1 (unknown) are 0.

    For cells of the type `OwnRows`, U has only the rows of this device.
    """
    if isinstance(cells, Cells):
        return _cell_dots(cells, U, V)
    if isinstance(cells, Share):
        return sparse.share_dots(cells, U, V)
    if isinstance(cells, OwnRows):
        return _cell_dots(cells.mine, U, of_all(V))
    if isinstance(cells, Grid):
        return U[..., cells.row, :] @ jnp.swapaxes(V[..., cells.col, :], -1, -2)
    if U.ndim > 2:  # several problems along a leading axis
        return jax.vmap(lambda u, v: inner(u, v, cells))(U, V)
    return jnp.sum(pick(U, cells.row) * pick(V, cells.col), -1)


def total(values: jax.Array, cells: Cells | Share | OwnRows) -> jax.Array:
    """The sum over all observed cells, including those of other devices if the data are divided."""
    return cells.total(values) if isinstance(cells, Share | OwnRows) else jnp.sum(values)


def real_cells(cells: Cells | OwnRows) -> jax.Array | None:
    """1 for each cell, and 0 for cells that only fill up a share; None if there are no such cells."""
    return cells.weight if isinstance(cells, OwnRows) else None


def total_of_rows(table: jax.Array, cells: Cells | OwnRows) -> jax.Array:
    """The sum over a table that has a row for each row of the cells, including those of other devices."""
    return cells.total_of_rows(table) if isinstance(cells, OwnRows) else jnp.sum(table)


def normals(key: jax.Array, shape: tuple[int, ...], dtype: Any = None) -> jax.Array:
    """The numbers of `jax.random.normal`, up to seven times as fast on a CPU for tables of short rows."""
    return _as_one_row(jax.random.normal, key, shape, dtype)


def normals_of_rows(key: jax.Array, rows: jax.Array, K: int, dtype: Any) -> jax.Array:
    """The numbers of `normals(key, (n, K), dtype)` in some rows; n K must be below 2^32."""
    place = rows[:, None].astype(jnp.uint32) * np.uint32(K) + jnp.arange(K, dtype=jnp.uint32)
    least = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype))
    uniform = uniforms_at(key, jnp.zeros_like(place), place, dtype) * (1 - least) + least
    return jax.lax.erf_inv(jnp.maximum(least, uniform)) * np.asarray(2**0.5, dtype)


def uniforms_at(key: jax.Array, high: jax.Array, low: jax.Array, dtype: Any) -> jax.Array:
    """A number in [0, 1) for every pair of words of 32 bits; equal pairs give the same number.

    JAX makes the random numbers of a table from their places in the table in the same way: the cipher
    Threefry gives the bits, and the first bits are the fraction of a number from 1 to 2.
    """
    words = jnp.concatenate([word.astype(jnp.uint32).ravel() for word in (high, low)])
    high_bits, low_bits = jnp.split(threefry_2x32(tuple(jax.random.key_data(key)), words), 2)
    kind, one = jnp.finfo(dtype), jnp.ones((), dtype)
    bits = high_bits ^ low_bits
    if kind.bits == 64:
        bits = (high_bits.astype(jnp.uint64) << np.uint64(32)) | low_bits
    fraction = bits >> np.asarray(kind.bits - kind.nmant, bits.dtype)
    pattern = fraction | jax.lax.bitcast_convert_type(one, bits.dtype)
    return (jax.lax.bitcast_convert_type(pattern, one.dtype) - one).reshape(low.shape)


def uniforms(key: jax.Array, shape: tuple[int, ...], dtype: Any = None) -> jax.Array:
    """The numbers of `jax.random.uniform`; see `normals`."""
    return _as_one_row(jax.random.uniform, key, shape, dtype)


def stirling(x: jax.Array) -> jax.Array:
    """log Gamma(x) of positive numbers, by Stirling's series at x or at x + 8.

    Its relative error is below 2e-13, and it takes a fifth of the time of XLA's function.
    """
    small = x < 8
    low = jnp.where(small, x, 1)
    product = low
    for k in range(1, 8):
        product *= low + k  # x (x + 1) ... (x + 7) = Gamma(x + 8) / Gamma(x)
    z = jnp.where(small, low + 8, x)
    r = 1 / z**2
    series = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r / 1188)))) / z
    whole = (z - 0.5) * jnp.log(z) - z + 0.5 * np.log(2 * np.pi) + series
    return whole - jnp.where(small, jnp.log(product), 0)


def dirichlets(key: jax.Array, concentration: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The numbers of `jax.random.dirichlet`, by one program for many sizes; see `_as_one_row`."""
    if _inside_a_program(key):
        return jax.random.dirichlet(key, concentration, shape)
    table = jax.random.dirichlet(key, concentration, (_padded(shape[0]), *shape[1:]))
    return jax.device_put(np.asarray(table)[: shape[0]])


def _as_one_row(draw: Callable, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    # JAX numbers the entries of a table row by row, and XLA's loop runs along the last axis: a long one,
    # a multiple of the 16 numbers of a vector, gives the same numbers and leaves no remainder
    size = int(np.prod(shape))
    if size > LARGE or _inside_a_program(key):
        return jnp.reshape(draw(key, (size + -size % 16,), dtype)[:size], shape)
    # outside of programs JAX would compile one for each shape, which takes longer than the fit of a small
    # table: a few sizes serve all
    return jax.device_put(np.asarray(draw(key, (_padded(size),), dtype))[:size].reshape(shape))


def _inside_a_program(key: jax.Array) -> bool:
    """Whether JAX is tracing a program; the key itself may be a constant of it."""
    return isinstance(jax.random.key_data(key), jax.core.Tracer)


def _padded(size: int) -> int:
    """The next power of two."""
    return 1 << max(size - 1, 15).bit_length()


def pick(table: jax.Array, index: jax.Array | np.ndarray) -> jax.Array:
    """The rows of a table with these numbers; a row of zeros for the number -1."""
    known = jnp.reshape(jnp.asarray(index) >= 0, (-1,) + (1,) * (table.ndim - 1))
    return jnp.where(known, table[index], 0)


def entries(table: jax.Array, query: Query | Grid) -> jax.Array:
    """The entries of the query, or the whole block for a Grid; zero if a row or column is unknown (-1)."""
    if isinstance(query, Grid):
        return table[jnp.asarray(query.row)][:, jnp.asarray(query.col)]
    row, col = jnp.asarray(query.row), jnp.asarray(query.col)
    return jnp.where((row >= 0) & (col >= 0), table[row, col], 0)


@jax.custom_vjp
def _cell_dots(cells: Cells, U: jax.Array, V: jax.Array) -> jax.Array:
    return sparse.dots(cells, U, V)


def _backward(residuals: tuple, slope: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    # the gradient of a loss on the observed cells, by sorted sums instead of an unsorted scatter
    cells, U, V = residuals
    return None, sparse.spread(cells.by_row, slope, V), sparse.spread(cells.by_col, slope, U)


_cell_dots.defvjp(lambda *kept: (sparse.dots(*kept), kept), _backward)


def row_sums(rows: Rows | Share, values: jax.Array) -> jax.Array:
    """Sums over the observed cells of every row; `values` is row-major, with any trailing axes.

    For a `Share`, the values are those of its cells, and the rows are gathered from all devices.
    """
    if isinstance(rows, Share):
        real = jnp.arange(len(values)) < rows.mine.ptr[-1]
        real = jnp.reshape(real, (-1,) + (1,) * (values.ndim - 1))
        return rows.gathered(row_sums(rows.mine, jnp.where(real, values, 0)))
    n, size = rows.ptr.shape[0] - 1, len(values)
    if values.ndim == 1:
        # a weighted sum of ones, by the Numba loop: XLA's scatter would run along the chains, and with it all
        # that computes the values, in short loops that are six times slower
        one = jnp.ones((1, 1), values.dtype)
        plain = rows._replace(index=jnp.zeros(size, jnp.int32), order=jnp.arange(size))
        return sparse.spread(plain, values, one)[:, 0]
    row = sparse.row_of_cells(rows, size)
    return jax.ops.segment_sum(values, row, n, indices_are_sorted=True)


def normalise(table: jax.Array, fallback: jax.Array) -> jax.Array:
    """Rows scaled to sum to one; a row whose sum is zero becomes the row of `fallback`."""
    total = table.sum(-1, keepdims=True)
    return jnp.where(total > 0, table / jnp.where(total > 0, total, 1), fallback)


def edge(data: Any) -> float:
    """About the largest singular value of a table of noise, which has independent numbers of variance 1 at
    the cells of the data, and zeros elsewhere."""
    return sum((len(data) / n) ** 0.5 for n in data.shape)


def shared_subspace(heavy: Any, light: Any, r: int, xp: Any = jnp) -> tuple[Any, Any]:
    """The closed form of LS-ML: the weights heavy + (light - heavy) Q Q', and Q. `heavy` and `light` are
    ridge regressions with a heavy and a light penalty (features x labels). Q has the first r eigenvectors of
    heavy' light."""
    Q = xp.linalg.eigh(heavy.T @ light)[1][:, ::-1][:, :r]
    return heavy + (light - heavy) @ Q @ Q.T, Q


def lowered(
    cost: Callable[[np.ndarray], Any], start: np.ndarray, steps: int, tol: float
) -> np.ndarray:
    """A minimum of `cost`, which returns a value and its gradient, by L-BFGS in NumPy on the host."""
    from scipy.optimize import minimize

    options = {"maxiter": steps, "ftol": tol}
    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", options=options).x)


def safe_log(x: jax.Array) -> jax.Array:
    """log x, with the smallest positive number instead of zero, so that 0 log 0 is 0."""
    return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def apart(new: jax.Array, compute: Callable[[jax.Array], Any], known: Any, together: int) -> Any:
    """`known`, a tree of tables with one row for each cell, with the rows of `new` cells replaced by
    `compute`.

    `compute` takes the places of `together` new cells at a time, because new cells may need far more work
    than known cells, and usually there are few. Places after the last new cell are `len(new)`, which is no
    cell.
    """
    if not (n := len(new)):
        return known
    size = min(together, n)
    parts = -(-n // size)

    def replaced() -> Any:
        places = jnp.nonzero(new, size=parts * size, fill_value=n)[0].reshape(parts, size)

        def nothing(_: jax.Array) -> Any:
            return jax.tree.map(lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype), known)

        found = jax.lax.map(lambda at: jax.lax.cond(at[0] < n, compute, nothing, at), places)
        return jax.tree.map(lambda x, own: x.at[places].set(own, mode="drop"), known, found)

    return jax.lax.cond(jnp.any(new), replaced, lambda: known)


TOGETHER = 128  # the number of cells with a new user or item that `bilinear` computes at a time


def bilinear(
    U: jax.Array, V: jax.Array, query: Query | Grid, user: tuple, item: tuple
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of u . v; a user or item without training data is a draw from its prior.

    `user` and `item` are (mean, covariance) of the priors. A mean may be a table with one row for each label
    without training data (`Query`). The variance of a known pair is zero.
    """
    if isinstance(query, Grid):
        return inner(U, V, query), jnp.zeros((), U.dtype)
    row, col = jnp.asarray(query.row), jnp.asarray(query.col)
    mean = jnp.sum(jnp.asarray(U)[row] * jnp.asarray(V)[col], -1)
    if isinstance(query, Known):
        return mean, jnp.zeros_like(mean)

    def of_new(at: jax.Array) -> tuple[jax.Array, jax.Array]:
        i, j = row[at], col[at]
        u = jnp.where((i < 0)[:, None], prior_mean(user[0], i), jnp.asarray(U)[i])
        v = jnp.where((j < 0)[:, None], prior_mean(item[0], j), jnp.asarray(V)[j])
        by_user = jnp.where(i < 0, jnp.sum((v @ user[1]) * v, -1), 0)
        by_item = jnp.where(j < 0, jnp.sum((u @ item[1]) * u, -1), 0)
        both = jnp.where((i < 0) & (j < 0), jnp.sum(user[1] * item[1]), 0)
        variance = by_user + by_item + both
        return jnp.sum(u * v, -1).astype(mean.dtype), variance.astype(mean.dtype)

    return apart((row < 0) | (col < 0), of_new, (mean, jnp.zeros_like(mean)), TOGETHER)


def prior_mean(mean: jax.Array, code: Any) -> jax.Array:
    """The prior mean of labels without training data: one for all, or row k for the code -1 - k."""
    return mean if mean.ndim == 1 else mean[jnp.maximum(-1 - jnp.asarray(code), 0)]


def products(
    U: jax.Array, V: jax.Array, query: Query | Grid, user: tuple, item: tuple
) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
    """u . v at the query, and draws of it.

    `user` and `item` are as in `bilinear`. A standard normal point of 1 + K coordinates is turned into a
    draw from the prior: u . v is normal if the user or the item is new, and normal given u if both are new.
    """
    mean, variance = bilinear(U, V, query, user, item)
    if isinstance(query, Grid | Known):
        return mean, lambda point: mean
    new_user, new_item = jnp.asarray(query.row) < 0, jnp.asarray(query.col) < 0

    def at(point: jax.Array) -> jax.Array:
        own, other = prior_mean(user[0], query.row), prior_mean(item[0], query.col)
        u = own + jnp.linalg.cholesky(user[1]) @ point[1:]
        if u.ndim == other.ndim == 1:
            both = u @ other + jnp.sqrt(u @ item[1] @ u) * point[0]
        else:
            both = jnp.sum(u * other, -1) + jnp.sqrt(jnp.sum(u @ item[1] * u, -1)) * point[0]
        return jnp.where(new_user & new_item, both, mean + jnp.sqrt(variance) * point[0])

    return mean, at


def metropolis(
    key: jax.Array,
    t: jax.Array,
    step: jax.Array,
    density: Callable[[jax.Array], jax.Array],
    times: int,
) -> jax.Array:
    """Random-walk Metropolis steps of the rows of t; row i is accepted by its own entry of `density(t)`."""
    current = density(t)
    for number in range(times):
        walk, coin = jax.random.split(jax.random.fold_in(key, number))
        new = t + step * jax.random.normal(walk, t.shape, t.dtype)
        proposed = density(new)
        uniform = jax.random.uniform(coin, current.shape, current.dtype)
        accept = jnp.log(uniform) < proposed - current
        t, current = jnp.where(accept[:, None], new, t), jnp.where(accept, proposed, current)
    return t


def factor(P: jax.Array) -> jax.Array:
    """The Cholesky factor of a positive definite matrix.

    If the factorisation fails because of rounding, a ridge is added to the diagonal and reported by
    `events.tell`. It is the first of r, 10 r, 100 r, ... that succeeds, where r is the rounding error of the
    matrix.

    >>> bool(jnp.isfinite(factor(jnp.ones((3, 3)))).all())
    True
    """
    L = jnp.linalg.cholesky(P)
    events.tell(
        "a linear system was singular at this precision and was solved with a small ridge",
        jnp.isnan(L).any(),
    )
    return _ridged(P, L)


@jax.jit  # without jit, the loop over closures would be compiled at every call
def _ridged(P: jax.Array, L: jax.Array) -> jax.Array:
    first = jnp.finfo(P.dtype).eps * jnp.max(jnp.diagonal(P))

    def broken(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        # no ridge helps a matrix with NaN
        return jnp.isnan(state[0]).any() & jnp.isfinite(P).all() & (state[1] < 1e6 * first)

    def again(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ridge = jnp.maximum(10 * state[1], first)
        return jnp.linalg.cholesky(P + ridge * jnp.eye(len(P), dtype=P.dtype)), ridge

    return jax.lax.while_loop(broken, again, (L, jnp.zeros_like(first)))[0]


def crps_of_sample(draws: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score E|X - y| - E|X - X'| / 2 of draws (draw, ...) at `value`.

    The second mean is over the m (m - 1) pairs of distinct draws, not over all m^2. So the score is an
    unbiased estimate for the distribution of the draws ("fair": Ferro 2014). One draw is a point: |x - y|.
    """
    return crps_of_sorted(np.sort(draws, axis=0), value)


def crps_of_sorted(draws: np.ndarray, value: np.ndarray) -> np.ndarray:
    """`crps_of_sample` of draws in rising order."""
    m = len(draws)
    rank = 2 * np.arange(1, m + 1) - m - 1  # sum_ij |x_i - x_j| = 2 sum_k rank_k x_(k)
    spread = rank @ draws / max(m * (m - 1), 1)
    return np.abs(draws - value).mean(0) - spread


def expectation(
    function: Callable[[jax.Array], Any], x: jax.Array, variance: jax.Array, nodes: int
) -> Any:
    """The expectation of a function of normal values with these means and variances, by Gauss-Hermite
    quadrature.

    >>> round(float(expectation(jnp.square, jnp.array([1.0]), jnp.array([4.0]), 3)[0]), 4)
    5.0
    """
    at, share = np.polynomial.hermite_e.hermegauss(nodes)
    sd = jnp.sqrt(jnp.maximum(variance, 0))  # rounding may make a variance negative
    parts = [function(x + z * sd) for z in at]
    shares = (share / share.sum()).tolist()
    return jax.tree.map(lambda *each: sum(map(operator.mul, shares, each)), *parts)
