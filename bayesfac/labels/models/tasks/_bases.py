"""LSA-MML: columns in the unit ball, the terms of J that couple the bases, and the step for one basis."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import ParameterFreeTransform

from bayesfac.core.kernels import tables
from bayesfac.labels.data.tasks import Tasks

PASSES = 3  # over the columns of a basis in a step
SLACK = 1e-4  # added to E_v, times the sum of squares: no exactly fitted view takes all weight
EDGE = 1e-4  # from the sphere, where gradient engines start: `ToBall` maps the sphere to infinity


# -- columns in the unit ball ---------------------------------------------------------------------
class _ColumnsInBall(constraints.ParameterFreeConstraint):
    event_dim = 2

    def __call__(self, x: Any) -> Any:
        return jnp.all(jnp.sum(x**2, -2) <= 1 + 1e-6, -1)

    def feasible_like(self, prototype: Any) -> Any:
        return jnp.zeros_like(prototype)

    def inside(self, x: jax.Array) -> jax.Array:
        """Move columns on the sphere, where the solver may end, a little inside."""
        length = jnp.linalg.norm(x, axis=-2, keepdims=True)
        return jnp.where(length > 1 - EDGE, (1 - EDGE) * x / length, x)


columns_in_ball = _ColumnsInBall()


class ToBall(ParameterFreeTransform):
    """z -> z / sqrt(1 + |z|^2) for every column; its determinant is (1 + |z|^2)^-(d + 2)/2 in d
    dimensions."""

    domain = constraints.real_matrix
    codomain = columns_in_ball

    def __call__(self, x: jax.Array) -> jax.Array:
        return x / jnp.sqrt(1 + jnp.sum(x**2, -2, keepdims=True))

    def _inverse(self, y: jax.Array) -> jax.Array:
        return y / jnp.sqrt(1 - jnp.sum(y**2, -2, keepdims=True))

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: Any = None
    ) -> jax.Array:
        d = x.shape[-2]
        return -0.5 * (d + 2) * jnp.sum(jnp.log1p(jnp.sum(x**2, -2)), -1)


@biject_to.register(_ColumnsInBall)
def _to_ball(constraint: Any) -> ToBall:
    return ToBall()


class UniformBall(dist.Distribution):
    """Independent columns, uniform in the unit ball; `log_prob` omits the constant."""

    arg_constraints: dict[str, Any] = {}
    support = columns_in_ball

    def __init__(self, d: int, columns: int) -> None:
        super().__init__((), (d, columns))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return jnp.zeros(jnp.shape(value)[:-2], jnp.result_type(float))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        direction, radius = jax.random.split(key)
        z = jax.random.normal(direction, (*sample_shape, *self.event_shape))
        shape = (*sample_shape, 1, self.event_shape[1])
        r = jax.random.uniform(radius, shape) ** (1 / self.event_shape[0])
        return z * r / jnp.linalg.norm(z, axis=-2, keepdims=True)


# -- errors, dependence and steps -----------------------------------------------------------------
def errors(P: jax.Array, B: dict[str, jax.Array], data: Tasks) -> jax.Array:
    """E_v = |X_v - P B_v'|^2 plus slack, for every view."""
    result = []
    for v in data.names:
        E = tables.squared_error(data.cells[v], data.y[v], data.seen(v, P), B[v])
        result.append(jnp.maximum(E, 0) + SLACK * jnp.sum(data.y[v] ** 2))
    return jnp.stack(result)


def misfit(E: jax.Array, hyper: Any, cells: tuple[int, ...]) -> jax.Array:
    """sum_v alpha_v^r E_v with the fixed or the best alpha, or the term of `noise`; concave in E."""
    if hyper.alpha is not None:
        return jnp.asarray(hyper.alpha) ** hyper.r @ E
    if hyper.noise:
        return 0.5 * jnp.asarray(cells) @ jnp.log(E)
    s, least = hyper.r - 1, jnp.min(E)  # scaled, so that no power overflows
    return least * jnp.sum((least / E) ** (1 / s)) ** -s


def centred_gram(B: jax.Array) -> jax.Array:
    """C B'B C."""
    G = B - jnp.mean(B, 1, keepdims=True)
    return G.T @ G


def dependence(B: dict[str, jax.Array]) -> jax.Array:
    """sum_{v != w} HSIC(B_v, B_w) over ordered pairs: |sum_v C K_v C|^2 without the terms v = w."""
    grams = [centred_gram(each) for each in B.values()]
    K = grams[0].shape[0]
    pairs = jnp.sum(sum(grams) ** 2) - sum(jnp.sum(G**2) for G in grams)
    return pairs / (K - 1) ** 2


@jax.jit
def basis_step(Q: jax.Array, L: jax.Array, B: jax.Array) -> jax.Array:
    """Lower tr B Q B' - 2 tr B L' over columns in the ball, one column after the other.

    With the other columns fixed, column k costs Q_kk |b|^2 - 2 b'c. The minimum in the ball is b = c / Q_kk
    if this point is inside, and c / |c| otherwise or if Q_kk is not positive. So b = c / max(Q_kk, |c|).

    Examples
    --------
    >>> basis_step(jnp.eye(1) * 4, jnp.array([[2.0]]), jnp.zeros((1, 1))).item()
    0.5
    >>> basis_step(jnp.eye(1) * -4, jnp.array([[2.0]]), jnp.zeros((1, 1))).item()
    1.0
    """
    rows = L.T

    def column(step: jax.Array, T: jax.Array) -> jax.Array:
        k = step % len(Q)
        c = rows[k] - Q[k] @ T + Q[k, k] * T[k]
        size = jnp.maximum(Q[k, k], jnp.linalg.norm(c))
        b = c / jnp.where(size > 0, size, 1)
        return T.at[k].set(jnp.where(size > 0, b, T[k]))

    return jax.lax.fori_loop(0, PASSES * len(Q), column, B.T).T
