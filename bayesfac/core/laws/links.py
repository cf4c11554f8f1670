"""The link from features to the rows of a factor, given the rows: a multivariate regression."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core import events
from bayesfac.core.data.features import Design, Features, SparseDesign
from bayesfac.core.math import factor

STEPS = 1000  # largest number of steps of conjugate gradients


class Links(dist.Distribution):
    """B (F x K) given rows r_i = B'x_i + e_i with e_i ~ N(0, L^-1), where B ~ N(0, (ridge I_F x L)^-1).

    With A = X'X + ridge I, B is matrix normal: its mean is A^-1 X'R, the precision of its rows is A, and that
    of its columns L (Simm et al. 2017). For a dense X, one Cholesky factor of A gives the mean and a draw.
    For a sparse X, A is never formed: conjugate gradients solve A B = X'(R + E) + ridge^1/2 E', where the
    rows of E and E' are noise of precision L, and the solution is a draw.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    reparametrized_params: list[str] = []
    pytree_data_fields = ("design", "rows", "ridge", "precision")

    def __init__(self, design: Features, rows: jax.Array, ridge: Any, precision: jax.Array) -> None:
        self.design, self.rows, self.ridge, self.precision = design, rows, ridge, precision
        super().__init__((), (design.width, rows.shape[1]))

    @property
    def mean(self) -> jax.Array:
        return self._solved(self.design.across(self.rows))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            return jax.vmap(self.sample)(jax.random.split(key, sample_shape))
        at_rows, at_features = jax.random.split(key)
        noise = self._noise(at_features, self.event_shape)
        if isinstance(self.design, Design):
            L = self._root()
            drawn = jax.scipy.linalg.solve_triangular(L, noise, lower=True, trans=1)
            return jax.scipy.linalg.cho_solve((L, True), self.design.across(self.rows)) + drawn
        injected = self.rows + self._noise(at_rows, self.rows.shape)
        return self._solved(self.design.across(injected) + jnp.sqrt(self.ridge) * noise)

    def log_prob(self, value: jax.Array) -> jax.Array:
        (F, K), L = self.event_shape, self._root()
        away = L.T @ (value - self.mean)
        square = jnp.sum(away @ self.precision * away)
        logs = K * jnp.sum(jnp.log(jnp.diag(L))) + F / 2 * jnp.linalg.slogdet(self.precision)[1]
        return logs - 0.5 * (square + F * K * jnp.log(2 * jnp.pi))

    def trace_of_inverse(self) -> jax.Array:
        """tr A^-1; for a sparse X a lower bound, from the diagonal of A."""
        if isinstance(self.design, SparseDesign):
            return jnp.sum(1 / (self.design.squares + self.ridge))
        L = self._root()
        eye = jnp.eye(len(L), dtype=L.dtype)
        return jnp.sum(jax.scipy.linalg.solve_triangular(L, eye, lower=True) ** 2)

    def _noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Rows of normal noise of precision L = C C': z C^-1."""
        C = jnp.linalg.cholesky(self.precision)
        eye = jnp.eye(len(C), dtype=C.dtype)
        inverse = jax.scipy.linalg.solve_triangular(C, eye, lower=True)
        return jax.random.normal(key, shape, C.dtype) @ inverse

    def _root(self) -> jax.Array:
        """The Cholesky factor of A."""
        eye = jnp.eye(self.design.width, dtype=self.rows.dtype)
        gram = getattr(self.design, "gram", None)
        if gram is None:  # for a sparse X, in tests
            gram = self.design.across(self.design.times(eye))
        return factor(gram + self.ridge * eye)

    def _solved(self, right: jax.Array) -> jax.Array:
        """A^-1 right."""
        if isinstance(self.design, SparseDesign):
            return conjugate_gradients(self.design, self.ridge, right)
        return jax.scipy.linalg.cho_solve((self._root(), True), right)


def conjugate_gradients(X: SparseDesign, ridge: Any, right: jax.Array) -> jax.Array:
    """(X'X + ridge I)^-1 right, all columns at once, preconditioned by the diagonal."""
    scale = (1 / (X.squares + ridge))[:, None]
    goal = jnp.finfo(right.dtype).eps ** 1.6 * jnp.sum(right**2, 0)

    def unfinished(state: tuple) -> jax.Array:
        rest, count = state[1], state[-1]
        return jnp.any(jnp.sum(rest**2, 0) > goal) & (count < STEPS)

    def step(state: tuple) -> tuple:
        B, rest, ahead, energy, count = state
        image = X.across(X.times(ahead)) + ridge * ahead
        bend = jnp.sum(ahead * image, 0)
        length = jnp.where(bend > 0, energy / jnp.where(bend > 0, bend, 1), 0)
        B, rest = B + length * ahead, rest - length * image
        new = jnp.sum(rest * scale * rest, 0)
        turn = jnp.where(energy > 0, new / jnp.where(energy > 0, energy, 1), 0)
        return B, rest, scale * rest + turn * ahead, new, count + 1

    first = scale * right
    begin = (jnp.zeros_like(right), right, first, jnp.sum(right * first, 0), jnp.zeros((), int))
    B, rest, *_, count = jax.lax.while_loop(unfinished, step, begin)
    events.tell(f"conjugate gradients for B stopped after {STEPS} steps", count >= STEPS)
    return B


def energy_of_link(B: jax.Array, ridge: jax.Array, precision: jax.Array) -> jax.Array:
    """Minus the log density of B, without constants: 1/2 ridge tr L B'B - F/2 log|L| - FK/2 log ridge."""
    square = ridge * jnp.sum(B @ precision * B) - len(B) * jnp.linalg.slogdet(precision)[1]
    return 0.5 * (square - B.size * jnp.log(ridge))


def ridge_energy(ridge: jax.Array, hyper: Any) -> jax.Array:
    """Minus the log density of ridge, without constants."""
    return hyper.ridge_rate * ridge - (hyper.ridge_shape - 1) * jnp.log(ridge)
