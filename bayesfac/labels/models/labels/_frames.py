"""Frames (matrices with orthonormal columns) as functions of unconstrained matrices: the polar expansion.

Jauch, Hoff & Dunson, "Monte Carlo simulation on the Stiefel manifold via polar expansion", Journal of
Computational and Graphical Statistics 2021. A parameter Q with Q'Q = I is written as polar(A), where A is any
real matrix of full column rank. So samplers can work with A, which has no constraint.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.labels import laws as labels
from bayesfac.labels.data.tasks import LABELS, Tasks


@jax.custom_jvp
def inverse_root(S: jax.Array) -> jax.Array:
    """S^(-1/2) of a symmetric positive definite matrix, with derivatives of every order.

    The derivatives are finite also if eigenvalues are equal, as at S = I; those of eigenvectors are not.
    """
    values, Q = jnp.linalg.eigh(S)
    return (Q / jnp.sqrt(values)) @ Q.T


@inverse_root.defjvp
def _inverse_root_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    # R R = S^-1, so R dR + dR R = -S^-1 dS S^-1; between eigenvectors with values a and b of S that is
    # -dS / (sqrt a sqrt b (sqrt a + sqrt b)), the divided difference of x^(-1/2)
    R = inverse_root(*primals)
    (dS,) = tangents
    return R, lyapunov(R, -R @ R @ dS @ R @ R)


def lyapunov(R: jax.Array, C: jax.Array) -> jax.Array:
    """X with R X + X R = C, for a symmetric positive definite R."""

    def solve(_: Any, C: jax.Array) -> jax.Array:
        values, Q = jnp.linalg.eigh(R)
        return Q @ ((Q.T @ C @ Q) / (values[:, None] + values)) @ Q.T

    return jax.lax.custom_linear_solve(lambda X: R @ X + X @ R, C, solve, symmetric=True)


def polar(A: jax.Array) -> jax.Array:
    """A (A'A)^(-1/2), the orthonormal factor of the polar decomposition. polar(A R) = polar(A) R if R'R = I.

    Examples
    --------
    >>> Q = polar(jnp.asarray([[3.0, 0.0], [0.0, 0.5], [0.0, 0.0]]))
    >>> (jnp.round(Q, 4) + 0).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    return A @ inverse_root(A.T @ A)


def nearest(M: jax.Array) -> jax.Array:
    """The Q with Q'Q = I that maximises tr Q'M: polar(M) if M has full column rank."""
    left, _, right = jnp.linalg.svd(M, full_matrices=False)
    return left @ right


def leading(S: jax.Array, count: int) -> jax.Array:
    """The first `count` eigenvectors of a symmetric matrix."""
    return jnp.linalg.eigh(S)[1][:, ::-1][:, :count]


def turned(Q: jax.Array, like: jax.Array) -> jax.Array:
    """Q R with the orthogonal R that makes it nearest to `like`; the result depends only on the span of Q."""
    return Q @ nearest(Q.T @ like)


class Frame(dist.Distribution):
    """Real matrices A, rows x columns, with log density nu/2 (log |A'A| - tr A'A + columns) + constant.

    A'A has a Wishart law with nu + rows degrees of freedom and scale I / nu. polar(A) is independent of A'A
    and uniform among frames. The log density is at most 0, and is 0 where A'A = I.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    pytree_aux_fields = ("nu",)

    def __init__(self, rows: int, columns: int, nu: float = 1.0) -> None:
        self.nu = nu
        super().__init__((), (rows, columns))

    def log_prob(self, value: jax.Array) -> jax.Array:
        gram = jnp.swapaxes(value, -1, -2) @ value
        trace = jnp.trace(gram, axis1=-2, axis2=-1)
        return 0.5 * self.nu * (jnp.linalg.slogdet(gram)[1] - trace + self.event_shape[1])

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        rows, columns = self.event_shape
        direction, size = jax.random.split(key)
        Q = nearest(jax.random.normal(direction, (*sample_shape, rows, columns)))
        scale = jnp.eye(columns) / self.nu**0.5
        root = dist.WishartCholesky(self.nu + rows, scale_tril=scale).sample(size, sample_shape)
        return Q @ jnp.swapaxes(root, -1, -2)


def few_rows(key: jax.Array, every: bool = False) -> Tasks:
    """Nine rows of five features with three labels; two rows are unlabelled unless `every` is true."""
    data = labels.one_view(key)
    x, y = data["words"].toarray(), np.hstack([data[LABELS].toarray(), np.ones((9, 1))])
    y[::2, 2] = 0
    y[~data.labelled] = [0, 0, 1] if every else np.nan
    return Tasks({"words": x}, y)
