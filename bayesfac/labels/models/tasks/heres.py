r"""Heterogeneous representations with structured sparsity (HERES), by reweighted least squares.

Yang & He, "Heterogeneous representation learning with structured sparsity regularization", ICDM 2016; eq.
1-10, Algorithm 1, Corollaries 1-3.

    J = sum_i sum_j |X_ij - F_i B_j'|^2 + lambda^2 sum_i |Y_i - F_i U'|^2
        + sum_k alpha_k sum_r norm_kr + beta (sum_j |B_j|^2 + lambda^2 |U|^2)
    norm_kr = sqrt(sum of F_nr^2 over the rows n of all tasks in cluster k, + smooth^2)

    paper           here            shape
    phi_i'          F               rows x p      all tasks, one below the other
    B_j             B[view]         features x p
    U               B["labels"]     labels x p
    g(k), alpha_k   models.tasks._row_groups.Cluster           tasks (positions), and their weight
    D_i             D               tasks x p, its diagonal
    lambda          weight
    X_ij, Y_i       data.y[block] on data.cells[block], rows data.span(block, i)

The method predicts labels for rows of several tasks that have different views. Labels are one more block,
which only labelled rows have. U (9) is fitted to the labelled rows, and their F (10) is fitted to the labels
too. (5) divides by norms that go to zero; here the norm is smoothed both in J and in D, so the update remains
exact. `clusters` says which tasks share a sparsity: "task" (Corollary 1), "common" (2), "both" (3, as in the
paper, where the common cluster has T times the weight) or "given" (the clusters of the data). `sparsity` is
one number for all clusters or one for each. The posterior does not change when columns are reordered or
change their signs.

A point fit starts from singular vectors. If all rows are one cluster, these have the smallest penalty of all
factors with the same product F [B' lambda U'] (Fan, Ding, Chen & Udell, "Factor group-sparse regularization
for efficient low-rank matrix recovery", NeurIPS 2019). (9) and (10) move other factors towards them very
slowly. All `restarts` of this start end at the same point. Chains start from random directions, because R-hat
needs chains with different starts.

The NumPyro model has normal tables with precision 2 (labels 2 lambda^2), normal B, and the multivariate
Laplace law of F, whose normalising constant depends on no parameter. Every Gibbs sweep first draws the scales
of the Gaussian mixture of this law. Then all rows of a task with the same blocks share one p x p precision.
NUTS and SVI use the smoothed norm itself.

Length: more than 300 lines, because the variational law has a file of its own, `_heres_law.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.kernels import tables
from bayesfac.core.math import inner
from bayesfac.core.method import Axes, Choose, Method, Notes, Permutation, Sampler, Solver, register
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import Units, scaled, varying
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.tasks import _row_groups as groups
from bayesfac.labels.models.tasks._heres_law import VARIATIONAL, weigh
from bayesfac.labels.models.tasks._row_groups import GroupSparse, SharedRows
from bayesfac.labels.models.tasks._singular import leading


class Params(NamedTuple):
    F: jax.Array
    B: dict[str, jax.Array]
    D: jax.Array | None = None  # derived


SPARSITIES = (0.0625, 1.0, 5.0)  # candidates; with few rows also the value of `noiseless`


class Hyper(NamedTuple):
    n_components: int = 100  # p
    weight: float = 0.2  # lambda; small, because rows without labels have only their features
    sparsity: float | tuple[float, ...] | None = None  # alpha_k; None: by rows held out
    clusters: str = "both"
    beta: float = 1.0
    smooth: float = 1e-3
    scaled: bool = True  # divide features by their spread, centre dense ones, add a constant
    cut: float | None = None  # labels with a higher score are predicted; None: by rows held out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows held out
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    if hyper.sparsity is None:
        hyper = hyper._replace(sparsity=SPARSITIES[0])
    checks.whole("n_components", hyper.n_components, 100_000, "columns of the representation")
    checks.positive(hyper, "weight", "beta", "smooth")
    checks.one_of(hyper, "clusters", groups.SETTINGS)
    labels.check(data)
    labels.checked_cut(hyper.cut)
    if hyper.clusters == "given" and not data.clusters:
        raise ValueError("Expected Tasks(..., clusters=...) with clusters='given', got none")
    alpha = groups.checked(hyper.sparsity, len(groups.members(data, hyper.clusters)))
    return labels.read(data, hyper._replace(sparsity=alpha))


def choices(data: Tasks, hyper: Hyper, chosen: Any) -> list[dict[str, float]]:
    """Candidates for the sparsity, which determines how many columns remain and of which sizes."""
    if hyper.sparsity is not None or chosen:
        return []
    width = min(hyper.n_components, sum(varying(data).values()))
    # if columns are more than half as many as labelled rows, they can fit the labels nearly exactly
    several = (noiseless(data, hyper),) if 2 * width > int(data.labelled.sum()) else ()
    return [{"sparsity": a} for a in (*SPARSITIES, *several)]


def noiseless(data: Tasks, hyper: Hyper) -> float:
    """The sparsity above which columns that fit only noise are switched off.

    A column of the best length (see `start`) costs more than it explains if c > 0.385 v^2 / sqrt(beta). In
    noise as large as the features, v is at most about |X| (n^-1/2 + d^-1/2).
    """
    clusters = groups.clusters_of(data, prepare(data, hyper._replace(sparsity=1.0)))
    data = scaled(data) if hyper.scaled else data
    n, d = data.n_rows, sum(data.n_features[v] for v in data.names)
    total = sum(float(data[v].power(2).sum()) for v in data.names)
    even = jnp.full((n, 1), n**-0.5)
    alpha = jnp.asarray([cluster.alpha for cluster in clusters])
    c = float((alpha @ groups.norms(even, data.bounds, clusters, 0.0))[0])
    return max(0.385 * total * (n**-0.5 + d**-0.5) ** 2 / hyper.beta**0.5 / c, SPARSITIES[0])


def ready(data: Tasks, hyper: Hyper) -> Tasks:
    return scaled(data, 1.0, above_noise=True, labels=hyper.units) if hyper.scaled else data


def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """Random directions multiplied by all blocks and back, which gives about the directions of most
    variance."""
    p, F = hyper.n_components, jnp.zeros((data.n_rows, hyper.n_components))
    keys = dict(zip(data.blocks, jax.random.split(key, len(data.blocks)), strict=True))
    for b, d in data.n_features.items():
        F += tables.product(data.cells[b], data.y[b], jax.random.normal(keys[b], (d, p)))
    F = F / (jnp.sqrt(jnp.mean(F**2)) + 1e-12) / p**0.5
    return update_B(Params(F, {}), data, hyper)


def start(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """Singular vectors of all blocks, each with its best length s. c s + beta v^2 / s^2 is smallest at
    s^3 = 2 beta v^2 / c, where v is the singular value and c the penalty of the column at length one."""
    U, V = leading(key, data, hyper.n_components, {b: weigh(b, hyper) for b in data.blocks})
    clusters = groups.clusters_of(data, hyper)
    alpha = jnp.asarray([cluster.alpha for cluster in clusters])
    c = alpha @ groups.norms(U, data.bounds, clusters, hyper.smooth)
    squares = sum(jnp.sum(v**2, 0) for v in V.values())
    return update_B(Params(U * jnp.cbrt(2 * hyper.beta * squares / c), {}), data, hyper)


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    total = groups.penalty(p.F, data.bounds, groups.clusters_of(data, hyper), hyper.smooth)
    for b in data.blocks:
        F = data.seen(b, p.F)
        error = tables.squared_error(data.cells[b], data.y[b], F, p.B[b])
        total += weigh(b, hyper) * (error + hyper.beta * jnp.sum(p.B[b] ** 2))
    return total


def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """Algorithm 1: D (5, 8) from the old rows, B (9), then the rows (10)."""
    D = weights(p, data, hyper)
    p = update_B(p, data, hyper)
    shift, precision, spans = row_system(p, data, hyper, D)
    return p._replace(F=SharedRows(shift, precision, spans).mean)


def weights(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    """The diagonal of D_i, tasks x p (8)."""
    clusters = groups.clusters_of(data, hyper)
    norms = groups.norms(p.F, data.bounds, clusters, hyper.smooth)
    alpha = jnp.asarray([c.alpha for c in clusters])[:, None]
    return groups.per_task(alpha / (2 * norms), clusters, data.n_tasks)


def column_system(p: Params, data: Tasks, hyper: Hyper, b: str) -> tuple[jax.Array, jax.Array]:
    """X'F and F'F + beta I over the rows that have the block."""
    F, ridge = data.seen(b, p.F), hyper.beta * jnp.eye(p.F.shape[1])
    return tables.transposed(data.cells[b], data.y[b], F), F.T @ F + ridge


def update_B(p: Params, data: Tasks, hyper: Hyper) -> Params:
    B = {}
    for b in data.blocks:
        shift, precision = column_system(p, data, hyper, b)
        B[b] = groups.alone(shift, precision).mean
    return p._replace(B=B)


def row_system(p: Params, data: Tasks, hyper: Hyper, D: jax.Array) -> tuple[Any, jax.Array, Any]:
    """X B over the blocks of each row, and B'B + D_i for each part of each task."""
    w = {b: weigh(b, hyper) for b in data.blocks}
    shift = sum(w[b] * tables.product(data.cells[b], data.y[b], p.B[b]) for b in w)
    gram = {b: w[b] * (p.B[b].T @ p.B[b]) for b in w}
    precision = [sum(gram[b] for b in blocks) + jnp.diag(D[i]) for i, _, blocks in data.parts()]
    return shift, jnp.stack(precision), tuple(at for _, at, _ in data.parts())


def augment(p: Params, data: Tasks, hyper: Hyper) -> dist.Distribution:
    """The scales of the mixture, clusters x p."""
    return groups.scales(p.F, data.bounds, groups.clusters_of(data, hyper), hyper.smooth)


def conditional_F(p: Params, data: Tasks, hyper: Hyper, w: jax.Array) -> dist.Distribution:
    clusters = groups.clusters_of(data, hyper)
    D = groups.per_task(groups.mixed(w, clusters), clusters, data.n_tasks) / 2
    shift, precision, spans = row_system(p, data, hyper, D)
    return SharedRows(2 * shift, 2 * precision, spans)


def conditional_B(
    p: Params, data: Tasks, hyper: Hyper, w: jax.Array, block: str
) -> dist.Distribution:
    shift, precision = column_system(p, data, hyper, block)
    double = 2 * weigh(block, hyper)
    return groups.alone(double * shift, double * precision)


def model(data: Tasks, hyper: Hyper) -> None:
    spans, clusters = data.bounds, groups.clusters_of(data, hyper)
    F = numpyro.sample("F", GroupSparse(spans, clusters, hyper.smooth, hyper.n_components))
    for b, d in data.n_features.items():
        scale = (2 * hyper.beta * weigh(b, hyper)) ** -0.5
        law = dist.Normal(0, scale).expand((d, hyper.n_components)).to_event(2)
        B = numpyro.sample(f"B.{b}", law)
        law_of = tables.Table(data.seen(b, F), B, data.cells[b], weigh(b, hyper), "squared")
        numpyro.sample(f"view.{b}", law_of, obs=None if data.y is None else data.y[b])


def derive(p: Params, data: Tasks, hyper: Hyper) -> dict[str, Any]:
    return {"D": weights(p, data, hyper)}


def fold_in(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """New rows by (10), with D from training."""
    shift, precision, spans = row_system(p, data, hyper, p.D)
    return p._replace(F=SharedRows(shift, precision, spans).mean)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    score = inner(p.F, p.B[LABELS], query)
    return labels.of_labels(score, query, hyper, 0.5 / weigh(LABELS, hyper))


def gauge(names: tuple[str, ...]) -> tuple[Permutation, ...]:
    axes = dict.fromkeys(["F", *(name for name in names if name.startswith("B."))], 1)
    return (Permutation(axes, signed=tuple(axes)),)


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    data = labels.few_tasks(key)
    return data, prepare(data, Hyper(3, 0.8, 0.5, beta=0.3, smooth=0.1))


# fmt: off
METHOD = register(Method(
    name="heres", cite="yang2016heres", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, derive=derive,
    fold_in=fold_in, prepare=prepare, ready=ready,
    solver=Solver(update=update, start=start),
    gibbs=Sampler(conditionals={"F": conditional_F, "B": conditional_B}, augment=augment),
    variational=VARIATIONAL, choose=Choose(candidates=choices),
    axes=Axes(
        dims={"F": ("row", "component"), "B": ("feature.{key}", "component"),
            "D": ("task", "component")},
        gauge=gauge,
    ),
    notes=Notes(remarks=labels.remarks, traits=labels.TRAITS),
))
# fmt: on
