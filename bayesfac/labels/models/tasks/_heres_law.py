"""The variational law of `heres`: normal rows, with a shared covariance for rows of the same precision.

A part is the labelled or the unlabelled rows of a task. All rows of F in a part have one covariance, and all
rows of B_b have one. With the best scales of the mixture, a norm is replaced by

    sqrt(E sum_n F_nr^2 + smooth^2),

which is at least the expected norm, so the ELBO is a lower bound. In q, `F` is a tuple of distributions, one
for each part of the rows, in their order.
"""

from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.kernels import tables
from bayesfac.core.laws import response
from bayesfac.core.laws.beliefs import Belief, inverse
from bayesfac.core.method import Variational
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.tasks import _row_groups as groups
from bayesfac.labels.models.tasks._row_groups import SharedRows

CELLS = 5000  # number of cells whose scores a probe sums


def weigh(block: str, hyper: Any) -> float:
    return hyper.weight**2 if block == LABELS else 1.0


def means(q: Any) -> jax.Array:
    """The means of all rows of F."""
    return jnp.concatenate([part["mean"] for part in q.F])


def typical(q: Any) -> jax.Array:
    """A table whose squares are the expected squares of F."""
    parts = [p["mean"] ** 2 + jnp.diag(p["cov"]) for p in q.F]
    return jnp.sqrt(jnp.concatenate(parts))


def scatter(own: Belief) -> jax.Array:
    """The expected sum of f f' over rows."""
    return own["mean"].T @ own["mean"] + len(own["mean"]) * own["cov"]


def begin(p: Any, data: Tasks, hyper: Any) -> Any:
    """The laws after one sweep from a point, which has no variance."""
    none = jnp.zeros((p.F.shape[1],) * 2, p.F.dtype)
    F = tuple({"mean": p.F[at], "cov": none} for _, at, _ in data.parts())
    B = {b: {"mean": table, "cov": none} for b, table in p.B.items()}
    return update(p._replace(F=F, B=B, D=None), data, hyper)


def update(q: Any, data: Tasks, hyper: Any) -> Any:
    """The scales of norms, rows of F, then B."""
    clusters = groups.clusters_of(data, hyper)
    norms = groups.norms(typical(q), data.bounds, clusters, hyper.smooth)
    alpha = jnp.asarray([c.alpha for c in clusters])[:, None]
    D = groups.per_task(alpha / (2 * norms), clusters, data.n_tasks)
    w = {b: weigh(b, hyper) for b in data.blocks}
    shift: Any = sum(w[b] * tables.product(data.cells[b], data.y[b], q.B[b]["mean"]) for b in w)
    gram = {b: w[b] * scatter(q.B[b]) for b in w}
    F = []
    for i, at, blocks in data.parts():
        cov = inverse(2 * (sum(gram[b] for b in blocks) + jnp.diag(D[i])))
        F.append({"mean": 2 * shift[at] @ cov, "cov": cov})
    q = q._replace(F=tuple(F))
    B = {}
    for b in data.blocks:
        ridge = hyper.beta * jnp.eye(len(gram[b]), dtype=gram[b].dtype)
        cov = inverse(2 * w[b] * (seen(q, data, b) + ridge))
        observed = tables.transposed(data.cells[b], data.y[b], data.seen(b, means(q)))
        B[b] = {"mean": 2 * w[b] * observed @ cov, "cov": cov}
    return q._replace(B=B)


def seen(q: Any, data: Tasks, block: str) -> jax.Array:
    """The expected sum of f f' over the rows that have the block."""
    parts = zip(q.F, data.parts(), strict=True)
    return sum(scatter(own) for own, (_, _, blocks) in parts if block in blocks)  # type: ignore[return-value]


def expected(q: Any, data: Tasks, hyper: Any) -> jax.Array:
    """A bound on minus the expected objective."""
    clusters = groups.clusters_of(data, hyper)
    total = groups.penalty(typical(q), data.bounds, clusters, hyper.smooth)
    F = means(q)
    for b in data.blocks:
        own, M = q.B[b], data.seen(b, F)
        error = tables.squared_error(data.cells[b], data.y[b], M, own["mean"])
        error += jnp.sum(seen(q, data, b) * scatter(own))
        error -= jnp.sum((M.T @ M) * (own["mean"].T @ own["mean"]))
        total += weigh(b, hyper) * (error + hyper.beta * jnp.trace(scatter(own)))
    return -total


class Parts(SharedRows):
    """`SharedRows` with a method for the entropy."""

    pytree_data_fields = ("shift", "precision")
    pytree_aux_fields = ("spans",)

    def entropy(self) -> jax.Array:
        sizes = jnp.array([at.stop - at.start for at in self.spans], self.dtype)
        K = self.precision.shape[-1]
        each = 0.5 * (K * (1 + jnp.log(2 * jnp.pi)) - jnp.linalg.slogdet(self.precision)[1])
        return sizes @ each


def law(parts: tuple[Belief, ...]) -> Parts:
    """The law of rows in parts, one below the other."""
    ends = list(accumulate((len(part["mean"]) for part in parts), initial=0))
    precision = jnp.stack([inverse(part["cov"]) for part in parts])
    shift = [part["mean"] @ P for part, P in zip(parts, precision, strict=True)]
    spans = tuple(slice(a, b) for a, b in pairwise(ends))
    return Parts(jnp.concatenate(shift), precision, spans)


def laws(q: Any) -> dict[str, dist.Distribution]:
    return {"F": law(q.F)} | {f"B.{b}": law((own,)) for b, own in q.B.items()}


def widened(key: jax.Array, q: Any, data: Tasks, hyper: Any) -> tuple[Any, jax.Array]:
    """Multiply the width of the rows by one factor, from the linear response of scores of random cells."""
    if LABELS not in q.B:
        return q, jnp.ones(())
    both = q.F, q.B
    at = jax.tree.map(lambda own: own["mean"], both, is_leaf=_belief)

    def there(at: Any) -> Any:
        F, B = jax.tree.map(lambda own, mean: {**own, "mean": mean}, both, at, is_leaf=_belief)
        return q._replace(F=F, B=B)

    def times(d: Any) -> Any:
        def slope(at: Any) -> jax.Array:
            return response.dot(jax.grad(lambda at: expected(there(at), data, hyper))(at), d)

        return jax.tree.map(jnp.negative, jax.grad(slope)(at))

    def smoothed(d: Any) -> Any:
        return jax.tree.map(lambda own, x: x @ own["cov"], both, d, is_leaf=_belief)

    def probe(key: jax.Array) -> Any:
        a, b, c = jax.random.split(key, 3)
        U, V = means(q), q.B[LABELS]["mean"]
        size = min(CELLS, 10 * len(U))
        i, j = (jax.random.randint(k, (size,), 0, len(x)) for k, x in ((a, U), (b, V)))
        sizes = jnp.array([len(p["mean"]) for p in q.F])
        part = jnp.repeat(jnp.arange(len(q.F)), sizes, total_repeat_length=len(U))
        variance = jnp.stack([jnp.sum(V @ p["cov"] * V, 1) for p in q.F])[part[i], j]
        variance += jnp.sum(U @ q.B[LABELS]["cov"] * U, 1)[i]
        signs = response.signs(c, variance)

        def total(at: Any) -> jax.Array:
            F, B = jnp.concatenate(at[0]), at[1][LABELS]
            return signs @ jnp.sum(F[i] * B[j], 1)

        return jax.grad(total)(at)

    factor = response.factor(key, times, smoothed, probe)

    def wider(own: Belief) -> Belief:
        return {**own, "cov": factor**2 * own["cov"]}

    F, B = jax.tree.map(wider, both, is_leaf=_belief)
    return q._replace(F=F, B=B), factor


def _belief(x: Any) -> bool:
    return isinstance(x, dict) and "cov" in x


VARIATIONAL = Variational(begin, update, expected, laws, widened, below=True)
