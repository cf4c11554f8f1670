"""Distributions of rows: normal rows with common precisions, and columns that are zero for whole tasks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.laws.distributions import InverseGaussian, NormalRows
from bayesfac.core.math import factor
from bayesfac.labels.data.tasks import Tasks

SETTINGS = ("task", "common", "both", "given")


class Cluster(NamedTuple):
    """The positions of tasks whose rows share a sparsity, and the weight of the sparsity."""

    tasks: tuple[int, ...]
    alpha: float


def members(data: Tasks, clusters: str) -> list[tuple[int, ...]]:
    """The tasks of every cluster, for a setting of `clusters`."""
    each: list[tuple[int, ...]] = [(i,) for i in range(data.n_tasks)]
    every = [tuple(range(data.n_tasks))]
    given = [tasks for _, tasks in sorted(data.clusters.items())]
    settings = {"task": each, "common": every, "both": each + every, "given": given}
    return settings[clusters]


def checked(sparsity: Any, clusters: int) -> float | tuple[float, ...]:
    """Check the weights: one for all clusters, or one for each."""
    several = sparsity if isinstance(sparsity, tuple | list) else (sparsity,)
    if len(several) not in (1, clusters) or not all(0 < a < float("inf") for a in several):
        raise ValueError(
            f"Expected sparsity above 0, one number or one for each of {clusters} clusters, got {sparsity}"
        )
    return float(several[0]) if len(several) == 1 else tuple(map(float, several))


def clusters_of(data: Tasks, hyper: Any) -> tuple[Cluster, ...]:
    """g(k) and alpha_k; for "both" (alpha, ..., alpha, T alpha), as in the paper's experiments."""
    tasks = members(data, hyper.clusters)
    alpha = hyper.sparsity
    if not isinstance(alpha, tuple):
        alpha = (alpha,) * len(tasks)
        if hyper.clusters == "both":
            alpha = (*alpha[:-1], data.n_tasks * alpha[-1])
    return tuple(Cluster(t, a) for t, a in zip(tasks, alpha, strict=True))


class SharedRows(NormalRows):
    """Independent normal rows x_i ~ N(P_g^-1 b_i, P_g^-1), where all rows of the slice spans[g] share P_g."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    pytree_data_fields = ("shift", "precision")
    pytree_aux_fields = ("spans",)

    def __init__(self, shift: jax.Array, precision: jax.Array, spans: tuple[slice, ...]) -> None:
        self.shift, self.precision, self.spans = shift, precision, spans
        super().__init__((), shift.shape)

    @property
    def dtype(self) -> Any:
        return self.shift.dtype

    def draws(self, noise: jax.Array | None) -> jax.Array:
        if noise is not None and noise.ndim == 3:
            return jax.vmap(self.draws, 1, 1)(noise)
        solve = jax.lax.linalg.triangular_solve
        rows = []
        for at, P in zip(self.spans, self.precision, strict=True):
            # x' L L' = b'; `factor` may add a ridge for solvers only, so draws do not use it
            L = factor(P) if noise is None else jnp.linalg.cholesky(P)
            half = solve(L, self.shift[at], left_side=False, lower=True, transpose_a=True)
            if noise is not None:
                half = half + noise[at]
            rows.append(solve(L, half, left_side=False, lower=True))
        return jnp.concatenate(rows)

    def log_prob(self, value: jax.Array) -> jax.Array:
        away, total = value - self.mean, jnp.zeros(())
        for at, P in zip(self.spans, self.precision, strict=True):
            x = away[at]
            size = len(x) * (jnp.linalg.slogdet(P)[1] - P.shape[0] * jnp.log(2 * jnp.pi))
            total += 0.5 * (size - jnp.sum((x @ P) * x))
        return total


def alone(shift: jax.Array, precision: jax.Array) -> SharedRows:
    """`SharedRows` in which all rows share one precision."""
    return SharedRows(shift, precision[None], (slice(0, len(shift)),))


def squares_of_tasks(F: jax.Array, spans: tuple[slice, ...]) -> jax.Array:
    """Sum of squares of every column over the rows of each task: tasks x p."""
    return jnp.stack([jnp.sum(F[at] ** 2, 0) for at in spans])


def norms(
    F: jax.Array, spans: tuple[slice, ...], clusters: tuple[Cluster, ...], smooth: float
) -> jax.Array:
    """sqrt(|column r over the rows of cluster k|^2 + smooth^2): clusters x p."""
    by_task = squares_of_tasks(F, spans)
    sums = [jnp.sum(by_task[jnp.asarray(c.tasks)], 0) for c in clusters]
    return jnp.sqrt(jnp.stack(sums) + smooth**2)


def per_task(value: jax.Array, clusters: tuple[Cluster, ...], tasks: int) -> jax.Array:
    """Sum the rows of a clusters x p table over the clusters of each task: tasks x p."""
    sums = jnp.zeros((tasks, value.shape[1]), value.dtype)
    for one, row in zip(clusters, value, strict=True):
        sums = sums.at[jnp.asarray(one.tasks)].add(row)
    return sums


class GroupSparse(dist.Distribution):
    """Rows F with density exp(-sum_k alpha_k sum_r norm_kr): a multivariate Laplace law of every column over
    the rows of each cluster. Clusters may overlap. Samples come from `SWEEPS` Gibbs sweeps."""

    SWEEPS = 50
    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    pytree_aux_fields = ("spans", "clusters", "smooth", "columns")

    def __init__(
        self, spans: tuple[slice, ...], clusters: tuple[Cluster, ...], smooth: float, columns: int
    ) -> None:
        self.spans, self.clusters, self.smooth, self.columns = spans, clusters, smooth, columns
        super().__init__((), (spans[-1].stop, columns))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -penalty(value, self.spans, self.clusters, self.smooth)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            keys = jax.random.split(key, sample_shape)
            flat = jax.vmap(self.sample)(jnp.ravel(keys))
            return jnp.reshape(flat, (*sample_shape, *self.event_shape))

        def step(F: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            scale, noise = jax.random.split(key)
            w = scales(F, self.spans, self.clusters, self.smooth).sample(scale)
            precision = per_task(mixed(w, self.clusters), self.clusters, len(self.spans))
            z = jax.random.normal(noise, F.shape)
            parts = [z[at] / jnp.sqrt(row) for at, row in zip(self.spans, precision, strict=True)]
            return jnp.concatenate(parts), None

        first = jax.random.normal(key, self.event_shape)
        return jax.lax.scan(step, first, jax.random.split(key, self.SWEEPS))[0]


def penalty(
    F: jax.Array, spans: tuple[slice, ...], clusters: tuple[Cluster, ...], smooth: float
) -> jax.Array:
    """sum_k alpha_k sum_r norm_kr."""
    alpha = jnp.asarray([c.alpha for c in clusters])
    return jnp.sum(alpha @ norms(F, spans, clusters, smooth))


def scales(
    F: jax.Array, spans: tuple[slice, ...], clusters: tuple[Cluster, ...], smooth: float
) -> InverseGaussian:
    """The law of w_kr given F. Up to a constant, exp(-a s) is the integral over tau of tau^-1/2
    exp(-s^2 / 2 tau - a^2 tau / 2), so w = 1 / (a^2 tau) is inverse Gaussian with mean 1 / (a s), shape 1."""
    alpha = jnp.asarray([c.alpha for c in clusters])[:, None]
    return InverseGaussian(1 / (alpha * norms(F, spans, clusters, smooth)))


def mixed(w: jax.Array, clusters: tuple[Cluster, ...]) -> jax.Array:
    """1 / tau_kr."""
    return jnp.asarray([c.alpha for c in clusters])[:, None] ** 2 * w
