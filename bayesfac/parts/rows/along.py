"""The precision Q of rows along their axis: of a chain, as months, or of a graph, as friends.

What a factor asks of its coupling (`Factor.along`): `at(data, axis, h, n)`, which is Q as a `Chain` or `Net`;
`new(h, rows, mean)`, mean and variance (in units of P^-1) of a row that training never saw; and
`beside(data, axis, n)`, which rows others inform.

A chain is solved by a block Cholesky factor. A graph is solved by conjugate gradients, preconditioned by the
blocks of the rows, up to the rounding of the numbers.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.edges import Joined
from bayesfac.core.data.graphs import degrees, laplacian
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import inverse, times_rows
from bayesfac.core.math import normals

NEAR = 64  # conjugate gradients end at a residual of so many roundings of the right side
STEPS = 500  # of conjugate gradients at most; a draw that is not near enough then is not a number


class Q(Protocol):
    """The precision of the rows along their axis."""

    # log|Q| for n rows
    def logdet(self, n: int) -> Any: ...
    # Q R
    def times(self, R: jax.Array) -> jax.Array: ...
    # A'Z, for Q = A'A
    def noise(self, key: jax.Array, n: int, K: int, dtype: Any) -> jax.Array: ...
    # (Q x P + diag(G_i))^-1 b
    def solved(self, P: jax.Array, G: jax.Array, b: jax.Array) -> jax.Array: ...


# -- an ordered axis ---------------------------------------------------------------------------------------
class Chain(NamedTuple):
    """A = [first; step (x_t - rho x_(t-1))], for rows in their order."""

    first: Any
    step: Any
    rho: Any

    def logdet(self, n: int) -> Any:
        return 2 * (jnp.log(self.first) + (n - 1) * jnp.log(self.step))

    def times(self, R: jax.Array) -> jax.Array:
        return self._back(
            jnp.concatenate([self.first * R[:1], self.step * (R[1:] - self.rho * R[:-1])])
        )

    def noise(self, key: jax.Array, n: int, K: int, dtype: Any) -> jax.Array:
        return self._back(normals(key, (n, K), dtype))

    def _back(self, Z: jax.Array) -> jax.Array:
        """A'Z."""
        own = jnp.concatenate([self.first * Z[:1], self.step * Z[1:]])
        return own.at[:-1].add(-self.step * self.rho * Z[1:])

    def solved(self, P: jax.Array, G: jax.Array, b: jax.Array) -> jax.Array:
        """With the blocks L_t of a Cholesky factor, and W_t = L_t^-1 E, where E is beside the diagonal."""
        square, at = self.step**2, jnp.arange(len(b))
        own = jnp.where(at == 0, self.first**2, square)
        own = own + jnp.where(at < len(b) - 1, square * self.rho**2, 0.0)
        E = -square * self.rho * P

        def down(before: tuple, at: tuple) -> tuple:
            (W, y), (q, block, right) = before, at
            L = jnp.linalg.cholesky(q * P + block - W.T @ W)
            y = _low(L, right - W.T @ y)
            W = _low(L, E)
            return (W, y), (L, W, y)

        def up(after: jax.Array, at: tuple) -> tuple:
            L, W, y = at
            x = jax.scipy.linalg.solve_triangular(L, y - W @ after, lower=True, trans=1)
            return x, x

        none = jnp.zeros_like(b[0])
        kept: Any = jax.lax.scan(down, (jnp.zeros_like(P), none), (own.astype(b.dtype), G, b))[1]
        return jax.lax.scan(up, none, kept, reverse=True)[1]


def _low(L: jax.Array, right: jax.Array) -> jax.Array:
    return jax.scipy.linalg.solve_triangular(L, right, lower=True)


class Walk(NamedTuple):
    """x_1 ~ N(0, 1), x_t ~ N(x_(t-1), step^2), over the mean of these variances, so that P^-1 is the
    covariance of a row on average."""

    setting: str

    def at(self, data: Any, axis: str, h: Any, n: int) -> Chain:
        step = getattr(h, self.setting)
        first = jnp.sqrt(1 + (n - 1) / 2 * step**2)
        return Chain(first, first / step, 1.0)

    def new(self, h: Any, rows: jax.Array, mean: jax.Array) -> tuple[jax.Array, Any]:
        """The row after the last one."""
        return rows[-1], self.at(None, "", h, len(rows)).step ** -2.0

    def beside(self, data: Any, axis: str, n: int) -> np.ndarray:
        return np.ones(n, np.int64)


class Stationary(NamedTuple):
    """x_1 ~ N(0, 1), x_t ~ N(rho x_(t-1), 1 - rho^2): every row has the variance 1."""

    setting: str

    def at(self, data: Any, axis: str, h: Any, n: int) -> Chain:
        rho = getattr(h, self.setting)
        return Chain(1.0, (1 - rho**2) ** -0.5, rho)

    def new(self, h: Any, rows: jax.Array, mean: jax.Array) -> tuple[jax.Array, Any]:
        """The row after the last one."""
        rho = getattr(h, self.setting)
        return mean + rho * (rows[-1] - mean), 1 - rho**2

    def beside(self, data: Any, axis: str, n: int) -> np.ndarray:
        return np.ones(n, np.int64)


# -- a graph -----------------------------------------------------------------------------------------------
class Net(NamedTuple):
    """Q = c (I + strength L) among the rows that have edges, where L is the Laplacian in units of their mean
    degree, and c makes their mean variance 1; and I for all others."""

    graph: Joined
    strength: Any

    @property
    def c(self) -> jax.Array:
        return jnp.sum(self.graph.shares / (1 + self.strength * self.graph.values))

    def logdet(self, n: int) -> Any:
        each = jnp.sum(self.graph.shares * jnp.log1p(self.strength * self.graph.values))
        return jnp.sum(self.graph.linked) * (jnp.log(self.c) + each)

    @property
    def own(self) -> jax.Array:
        """The diagonal of Q without its Laplacian."""
        return jnp.where(self.graph.linked, self.c, 1.0)

    def times(self, R: jax.Array) -> jax.Array:
        return self.own[:, None] * R + self.c * self.strength * rough(self.graph, R)

    def noise(self, key: jax.Array, n: int, K: int, dtype: Any) -> jax.Array:
        g, (one, two) = self.graph.graphs, jax.random.split(key)
        weight, ends = jnp.sqrt(g.weight[0])[g.edge], g.cells.by_row
        sign = jnp.where(g.cells.row < g.cells.col, 1.0, -1.0)
        along = normals(
            two, (len(g.left), K), dtype
        )  # of each edge, + at one end and - at the other
        edges = sparse.spread(ends._replace(index=g.edge), (sign * weight).astype(dtype), along)
        alone = normals(one, (n, K), dtype)
        return jnp.sqrt(self.own)[:, None] * alone + jnp.sqrt(self.c * self.strength) * edges

    def solved(self, P: jax.Array, G: jax.Array, b: jax.Array) -> jax.Array:
        joined = degrees(self.graph.graphs, self.graph.graphs.weight[0])
        diagonal = self.own + self.c * self.strength * joined
        blocks = inverse(diagonal[:, None, None] * P + G)
        return gradients(
            lambda x: self.times(x) @ P + times_rows(G, x), lambda x: times_rows(blocks, x), b
        )


@jax.custom_vjp
def rough(graph: Joined, R: jax.Array) -> jax.Array:
    """L R; it is its own transpose."""
    return laplacian(graph.graphs, graph.graphs.weight[0].astype(R.dtype), R)


rough.defvjp(lambda graph, R: (rough(graph, R), graph), lambda graph, dR: (None, rough(graph, dR)))


class Laplacian(NamedTuple):
    """A graph of the data along the axis."""

    setting: str

    def at(self, data: Any, axis: str, h: Any, n: int) -> Net:
        return Net(data.graphs[axis], getattr(h, self.setting))

    def new(self, h: Any, rows: jax.Array, mean: jax.Array) -> tuple[jax.Array, Any]:
        """A row without edges."""
        return mean, 1.0

    def beside(self, data: Any, axis: str, n: int) -> np.ndarray:
        return np.asarray(data.graphs[axis].linked, np.int64)


def gradients(times: Any, near: Any, b: jax.Array) -> jax.Array:
    """x with M x = b, where `times` multiplies by M and `near` by about its inverse."""
    dot = lambda x, y: jnp.sum(x * y)  # noqa: E731
    rounding = jnp.finfo(b.dtype).eps
    size = jnp.sqrt(dot(b, b))

    def unfinished(state: tuple) -> jax.Array:
        _, r, *_, count = state
        return (jnp.sqrt(dot(r, r)) > NEAR * rounding * size) & (count < STEPS)

    def step(state: tuple) -> tuple:
        x, r, d, along, count = state
        Md = times(d)
        far = along / dot(d, Md)
        x, r = x + far * d, r - far * Md
        z = near(r)
        new = dot(r, z)
        return x, r, z + new / along * d, new, count + 1

    z = near(b)
    x, r, *_ = jax.lax.while_loop(unfinished, step, (jnp.zeros_like(b), b, z, dot(b, z), 0))
    return jnp.where(jnp.sqrt(dot(r, r)) <= jnp.sqrt(rounding) * size, x, jnp.nan)
