"""Distributions of whole tables of counts, in which zeros are not listed, and of Poisson factors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betainc, digamma, gammaincc, gammaln, xlogy
from numpyro.distributions import constraints

from bayesfac.core.data.cells import Cells, Query
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.simplex import gammas
from bayesfac.core.kernels.splitting import split_counts
from bayesfac.core.kernels.tables import CellwiseLaw
from bayesfac.core.math import apart, inner, normals, safe_log, uniforms

NODES, TOGETHER = (
    256,
    8,
)  # of an integral over normal scores, and the cells for which it is computed at once
FEW = [halves / 2 for halves in range(1, 11)]  # shapes of Gamma numbers that are sums of few
ROUNDS = 200  # largest number of rounds of proposals; each accepts more than nine in ten


class LogGamma(dist.Distribution):
    """The logarithm of a Gamma(shape, rate) number: real, with its mode at log(shape / rate) for any shape.

    A Gamma number of small shape is often too small for a float, but its logarithm is not.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    reparametrized_params: list[str] = []
    pytree_data_fields = ("shape_", "rate")

    def __init__(self, shape: Any, rate: Any) -> None:
        self.shape_, self.rate = jnp.broadcast_arrays(jnp.asarray(shape), jnp.asarray(rate))
        super().__init__(self.rate.shape, ())

    @property
    def mode(self) -> jax.Array:
        return jnp.log(self.shape_) - jnp.log(self.rate)

    @property
    def mean(self) -> jax.Array:
        return digamma(self.shape_) - jnp.log(self.rate)

    def log_prob(self, value: jax.Array) -> jax.Array:
        a, b = self.shape_, self.rate
        return a * (jnp.log(b) + value) - b * jnp.exp(value) - gammaln(a)

    def entropy(self) -> jax.Array:
        a = self.shape_
        return a + gammaln(a) - a * digamma(a)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        shape = (*sample_shape, *self.batch_shape)
        rate = jnp.broadcast_to(self.rate, shape)
        return log_gamma(key, jnp.broadcast_to(self.shape_, shape)) - jnp.log(rate)


def log_gamma(key: jax.Array, shape: jax.Array) -> jax.Array:
    """Logarithms of Gamma(shape, 1) numbers, drawn all at once (Marsaglia & Tsang 2000).

    With d = shape + 2/3, c = 1 / sqrt(9 d) and v = (1 + c x)^3 for a normal x, d v is a Gamma(shape + 1)
    number if log u < x^2/2 + d (1 - v + log v). Multiplied by u^(1/shape), it is a Gamma(shape) number. JAX
    draws such numbers one after another on a CPU, which takes longer than the rest of a sweep.
    """
    d = shape + 2 / 3
    c = 1 / jnp.sqrt(9 * d)
    walk, last = jax.random.split(key)

    def draw(state: tuple) -> tuple:
        log_v, done, number = state
        a, b = jax.random.split(jax.random.fold_in(walk, number))
        x = normals(a, d.shape, d.dtype)
        root = jnp.maximum(1 + c * x, jnp.finfo(d.dtype).tiny)
        new = 3 * jnp.log(root)
        bound = x**2 / 2 + d * (1 - root**3 + new)
        u = uniforms(b, d.shape, d.dtype)
        accept = (jnp.log1p(-u) < bound) & (1 + c * x > 0) & ~done
        return jnp.where(accept, new, log_v), done | accept, number + 1

    start = jnp.zeros_like(d), jnp.zeros(d.shape, bool), 0
    log_v = jax.lax.while_loop(lambda s: ~jnp.all(s[1]) & (s[2] < ROUNDS), draw, start)[0]
    below = jnp.log1p(-uniforms(last, d.shape, d.dtype)) / shape
    return jnp.log(d) + log_v + below


class GammaNumbers(dist.Distribution):
    """Gamma(shape, rate) numbers, all of one shape, which is a number of Python or an array."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.positive
    reparametrized_params: list[str] = []
    pytree_data_fields = ("rate",)
    pytree_aux_fields = ("shape_",)

    def __init__(self, shape: Any, rate: jax.Array) -> None:
        self.shape_, self.rate = shape, rate
        super().__init__(rate.shape, ())

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """On an accelerator few halves are an exponential number for each two, and for an odd one half the
        square of a normal number, so that no draw is rejected."""
        shape, dtype = (*sample_shape, *self.batch_shape), self.rate.dtype
        if sparse.backend() == "numba":
            rate = jnp.broadcast_to(self.rate, shape)
            every = jnp.full(rate.size, self.shape_, dtype)
            return gammas(key, every, rate.ravel()).reshape(shape)
        if self.shape_ not in FEW:
            return jnp.exp(log_gamma(key, jnp.full(shape, self.shape_, dtype))) / self.rate
        product = jnp.ones(shape, dtype)
        for number in range(int(self.shape_)):
            product *= 1 - uniforms(jax.random.fold_in(key, number), shape, dtype)
        last = normals(jax.random.fold_in(key, len(FEW)), shape, dtype)
        odd = 0.5 * last**2 if self.shape_ % 1 else 0.0
        # of few factors, whose product does not vanish in single precision
        return (odd - jnp.log(product)) / self.rate

    def log_prob(self, value: jax.Array) -> jax.Array:
        return dist.Gamma(self.shape_, self.rate).log_prob(value)


class PoissonTable(CellwiseLaw):
    """Independent Poisson counts with the rates A G', over all cells of a table.

    A value is the list of counts in `cells`, all other cells are zero; a sample is the table.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_vector
    pytree_data_fields = ("A", "G", "cells")

    def __init__(self, A: jax.Array, G: jax.Array, cells: Cells) -> None:
        self.A, self.G, self.cells = A, G, cells
        super().__init__((), (cells.row.shape[0],))

    def log_prob(self, value: jax.Array) -> jax.Array:
        listed = value * safe_log(inner(self.A, self.G, self.cells)) - gammaln(value + 1)
        return jnp.sum(listed) - jnp.sum(self.A, 0) @ jnp.sum(self.G, 0)

    def of_cells(self, query: Query, value: jax.Array) -> jax.Array:
        """The terms of single cells in `log_prob`; the cells may be zeros."""
        rate = inner(self.A, self.G, query)
        return value * safe_log(rate) - gammaln(value + 1) - rate

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        rate = self.A @ self.G.T
        drawn = jax.random.poisson(key, rate, (*sample_shape, *rate.shape))
        return drawn.astype(rate.dtype)


class Sums(NamedTuple):
    """The number of counts of each component, by row and by column."""

    by_row: jax.Array
    by_col: jax.Array


class Splitting(dist.Distribution):
    """Every count of a table is divided among components, multinomial with shares a_ik g_jk / (a_i . g_j).

    A value holds the `Sums` of the parts. `log_prob` omits a term that depends on the value alone: the number
    of ways to divide the counts into such sums.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    pytree_data_fields = ("A", "G", "cells", "y")

    def __init__(self, A: jax.Array, G: jax.Array, cells: Cells, y: jax.Array) -> None:
        self.A, self.G, self.cells, self.y = A, G, cells, y
        super().__init__((), A.shape)

    def log_prob(self, value: Sums) -> jax.Array:
        shares = jnp.sum(xlogy(value.by_row, self.A)) + jnp.sum(xlogy(value.by_col, self.G))
        return shares - jnp.sum(self.y * safe_log(inner(self.A, self.G, self.cells)))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> Sums:
        if sample_shape:
            raise NotImplementedError("one division of all counts at a time")
        return Sums(*split_counts(key, self.cells, self.y, self.A, self.G))


class UnsurePoisson(dist.Distribution):
    """Poisson counts whose rate has this mean and this variance; with a variance, negative binomial."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.nonnegative_integer
    pytree_data_fields = ("rate", "spread")

    def __init__(self, rate: jax.Array, spread: Any) -> None:
        self.rate, self.spread = jnp.broadcast_arrays(rate, jnp.asarray(spread, rate.dtype))
        super().__init__(self.rate.shape, ())

    @property
    def mean(self) -> jax.Array:
        return self.rate

    @property
    def variance(self) -> jax.Array:
        return self.rate + self.spread

    @property
    def _size(self) -> jax.Array:
        """The shape of the Gamma law of the rate; 1 if the rate is known."""
        unsure = self.spread > 0
        return jnp.where(unsure, self.rate**2 / jnp.where(unsure, self.spread, 1), 1)

    def log_prob(self, value: Any) -> jax.Array:
        y, m, r = value, self.rate, self._size
        known = y * safe_log(m) - m
        ways = gammaln(y + r) - gammaln(r)
        unsure = ways + r * (jnp.log(r) - jnp.log(r + m)) + y * (safe_log(m) - jnp.log(r + m))
        return jnp.where(self.spread > 0, unsure, known) - gammaln(y + 1)

    def cdf(self, value: Any) -> jax.Array:
        y, r = jnp.floor(value), self._size
        up = jnp.maximum(y, 0) + 1
        known = gammaincc(up, self.rate)
        unsure = betainc(r, up, r / (r + self.rate))
        return jnp.where(y < 0, 0, jnp.where(self.spread > 0, unsure, known))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        a, b = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        size = jnp.broadcast_to(self._size, shape)
        factor = jnp.exp(log_gamma(a, size) - jnp.log(size))
        rate = self.rate * jnp.where(self.spread > 0, factor, 1)
        return jax.random.poisson(b, rate, shape).astype(self.rate.dtype)


class NegativeBinomial(dist.Distribution):
    """Counts with mean r e^c: y successes of probability 1 / (1 + e^-c) before r failures, r any number.

    With `wide`, the c of a cell is itself normal with this variance. It is integrated by the trapezoid rule.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.nonnegative_integer
    reparametrized_params: list[str] = []
    pytree_data_fields = ("r", "c", "wide")

    def __init__(self, r: Any, c: jax.Array, wide: jax.Array | None = None) -> None:
        self.r, self.c, self.wide = jnp.asarray(r, c.dtype), c, wide
        super().__init__(c.shape, ())

    @property
    def _wide(self) -> jax.Array:
        return jnp.zeros_like(self.c) if self.wide is None else self.wide

    @property
    def mean(self) -> jax.Array:
        return self.r * jnp.exp(self.c + self._wide / 2)

    @property
    def variance(self) -> jax.Array:
        m, v = self.mean, self._wide
        return m + m**2 * (jnp.exp(v) / self.r + jnp.expm1(v))

    def log_prob(self, value: Any) -> jax.Array:
        def at(c: jax.Array, y: jax.Array) -> jax.Array:
            ways = gammaln(y + self.r) - gammaln(self.r) - gammaln(y + 1)
            return ways + y * c - (y + self.r) * jax.nn.softplus(c)

        return self._averaged(at, value, lambda x, w: jax.nn.logsumexp(x, -1, b=w))

    def cdf(self, value: Any) -> jax.Array:
        def at(c: jax.Array, y: jax.Array) -> jax.Array:
            whole = betainc(self.r, jnp.maximum(jnp.floor(y), 0) + 1, jax.nn.sigmoid(-c))
            return jnp.where(y < 0, 0, whole)

        return self._averaged(at, value, jnp.matmul)

    def _averaged(self, at: Callable, value: Any, mean: Callable) -> jax.Array:
        """at(c, value), or where c is not known the `mean` of its values at NODES points."""
        y = jnp.asarray(value, self.c.dtype)
        known = at(self.c, y)
        if self.wide is None:
            return known
        flat = [jnp.broadcast_to(x, known.shape).ravel() for x in (self.c, self.wide, y)]
        at_z = np.linspace(-8, 8, NODES)
        density = np.exp(-0.5 * at_z**2)
        z, weight = (jnp.asarray(x, y.dtype) for x in (at_z, density / density.sum()))

        def spread(cells: jax.Array) -> jax.Array:
            c, wide, y = (x[cells][:, None] for x in flat)
            return mean(at(c + wide**0.5 * z, y), weight)

        return jnp.reshape(apart(flat[1] > 0, spread, known.ravel(), TOGETHER), known.shape)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        a, b, z = jax.random.split(key, 3)
        shape, dtype = (*sample_shape, *self.batch_shape), self.c.dtype
        c = self.c + jnp.sqrt(self._wide) * normals(z, shape, dtype)
        log_rate = log_gamma(a, jnp.broadcast_to(self.r, shape)) + c
        return jax.random.poisson(b, jnp.exp(log_rate), shape).astype(dtype)


class WeightedTable(CellwiseLaw):
    """Independent normal values about U V' over all cells of a table, each with its own precision.

    A listed cell has the precision `weight` times that of the cells that are not listed, and these are zero.
    A value is the list of values in `cells`; a sample is the table. The sum over all cells needs K x K
    numbers: sum_ij (u_i . v_j)^2 = trace((U'U) (V'V)).
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_vector
    pytree_data_fields = ("U", "V", "cells", "weight", "precision")

    def __init__(
        self, U: jax.Array, V: jax.Array, cells: Cells, weight: jax.Array, precision: Any
    ) -> None:
        self.U, self.V, self.cells, self.weight = U, V, cells, weight
        self.precision = jnp.asarray(precision, U.dtype)
        super().__init__((), (cells.row.shape[0],))

    def log_prob(self, value: jax.Array) -> jax.Array:
        error = weighted_error(self.cells, value, self.weight, self.U, self.V)
        sizes = jnp.sum(jnp.log(self.weight)), float(len(self.U)) * len(self.V)
        constant = sizes[0] + sizes[1] * jnp.log(self.precision / (2 * jnp.pi))
        return 0.5 * (constant - self.precision * error)

    def of_cells(self, query: Query, value: jax.Array) -> jax.Array:
        """The terms of single cells in `log_prob`, each with the weight of a cell that is not listed."""
        mean = inner(self.U, self.V, query)
        return dist.Normal(mean, self.precision**-0.5).log_prob(value)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        mean = self.U @ self.V.T
        each = jnp.ones_like(mean).at[self.cells.row, self.cells.col].set(self.weight)
        noise = normals(key, (*sample_shape, *mean.shape), mean.dtype)
        return mean + noise / jnp.sqrt(self.precision * each)


def weighted_error(
    cells: Cells, y: jax.Array, weight: jax.Array, U: jax.Array, V: jax.Array
) -> jax.Array:
    """sum_ij c_ij (y_ij - u_i . v_j)^2 over all cells; cells that are not listed have c = 1 and y = 0."""
    x = inner(U, V, cells)
    return jnp.sum(weight * (y - x) ** 2 - x**2) + jnp.sum((U.T @ U) * (V.T @ V))
