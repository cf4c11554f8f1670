r"""Hierarchical multi-latent spaces (HiMLS) with the squared error, by coordinate descent.

Yang, Davulcu, Zhu & He, "A generalized hierarchical multi-latent space model for heterogeneous learning",
IEEE TKDE 2016; eq. 1-21, 44, Algorithm 1.

    J = sum_i sum_j |X_ij - R_i^(1:L) M_ij C_j^(1:L)'|^2 + alpha sum_i |Y_i - R_i^(1:L) M_iY C_Y^(1:L)'|^2
        + beta sum_i sum_j |M_ij - M_iY|^2 + sum of (rate h - (shape - 1) log h) over all factors' entries h

    paper             here            shape
    R_i^(1), R_i^u    R               rows x p_1          all tasks, one below the other
    R_i^(l), l > 1    S["l"]          tasks x p_{l-1} x p_l
    C_j^(1), C_Y^(1)  C[block]        features of the view, or labels, x q_1
    C_j^(l), C_Y^(l)  D["block.l"]    q_{l-1} x q_l
    M_ij, M_iY        M[block]        tasks x p_L x q_L; with `shared` (44) one `common` p_L x q_L
    alpha, beta       weight, coupling
    X_ij, Y_i         data.y[block] on data.cells[block], rows data.span(block, i); block "labels" is Y

The method predicts labels for rows of several tasks that have different views. Each block of data is a
product of row clusters, a small table M, and column clusters, in several layers.

Differences from the paper: (16) updates R^(l), l > 1, from labelled rows alone. Unlabelled rows share that
factor, so J may rise in the paper. Here all rows are used, and J never rises. (10)-(21) minimise a bound, in
which terms of degree two become h^2 / h_old and terms linear in h become h_old (1 + log(h / h_old)); the
gamma prior is included by h <= (h^2 / h_old + h_old) / 2. But J is quadratic in each factor, so the linear
terms need no bound. Without it, the update is h_old num / den without the printed root, and J falls faster. R
and C, the tables with most entries, need no bound at all: each of their entries is set to its minimum, given
all others (for plain non-negative factors: Cichocki & Phan 2009). Pre-training multiplies R and C too,
because at a rough start exact minima set whole clusters to zero. The pseudo-inverse of step 3 may have
negative entries; they start at small positive values. The paper's J has rate 0 and shape 1. The scale of a
factor is then arbitrary and the posterior improper: `bf.fit` accepts this for a point estimate, and engines
that draw from the posterior refuse it.

`ready` scales views and splits columns with negative cells into two parts. By default the spaces are strongly
coupled. With a weak coupling, columns that only labels use predict the training rows and nothing else. The
weight, the start and the cut are chosen by rows whose labels are held out. The start has a cluster for each
label (`_pretraining.by_labels`), or is NNDSVD of all blocks, which is better for many features with little
information.

`layers` with one pair is MLS. On `data.concatenated()` this is MLS-T, on `data.pooled()` MLS-V, and on both
MLS-S. The NumPyro model has normal tables with precision 2 (labels 2 alpha), gamma factors, and the factor
exp(-beta |M_ij - M_iY|^2). J omits the normalising constant of this factor, so the posterior is
*generalised*. The private files `_layers`, `_layer_sweeps` and `_pretraining` contain the code that HiMLS and
HiMLSD share.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.kernels import nonnegative, tables
from bayesfac.core.method import Axes, Choose, Method, Notes, Solver, register
from bayesfac.core.programs import compiled_for
from bayesfac.labels import laws as labels
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.tasks import _layer_sweeps as sweeps
from bayesfac.labels.models.tasks import _layers as shared
from bayesfac.labels.models.tasks import _pretraining as pretraining
from bayesfac.labels.models.tasks._layers import Hyper, Params

WEIGHTS = (0.3, 30.0)  # candidates for the weight of a label, compared with a scaled feature


def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    return pretraining.pretrain(key, data, hyper, SQUARED.multiplicative)


def coupling(p: Params, hyper: Hyper) -> jax.Array | float:
    if p.M is None:
        return 0.0
    gaps = (jnp.sum((p.M[b] - p.M[LABELS]) ** 2) for b in p.M if b != LABELS)
    return hyper.coupling * sum(gaps)


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    error = shared.misfit(p, data, hyper, tables.squared_error)
    return error + coupling(p, hyper) + shared.energy(p, hyper)


def rows(cells: Cells, y: jax.Array, A: jax.Array, C: jax.Array) -> shared.Pair:
    """X C and A C'C."""
    return tables.product(cells, y, C), A @ (C.T @ C)


def columns(cells: Cells, y: jax.Array, A: jax.Array, C: jax.Array) -> shared.Pair:
    """X'A and C A'A."""
    return tables.transposed(cells, y, A), C @ (A.T @ A)


def size(A: jax.Array) -> jax.Array:
    return jnp.linalg.norm(A, axis=0)


@compiled_for(3)
def step(H: jax.Array, num: jax.Array, den: jax.Array, hyper: Hyper) -> jax.Array:
    """h^2 (den + rate / 2) = h h_old num + h_old (shape - 1) / 2; (7) has h_old num instead of h num."""
    return nonnegative.positive_root(den + hyper.rate / 2, H * num, H * (hyper.shape - 1) / 2)


def factor(M: dict[str, jax.Array], num: jax.Array, den: jax.Array, hyper: Hyper) -> jax.Array:
    """The bound for one factor g that multiplies all M_ij and M_iY; the coupling is multiplied by g^2."""
    gap = sum((m - M[LABELS]) ** 2 for m in M.values())
    den = den + hyper.coupling * gap + hyper.rate / 2 * sum(M.values())
    return nonnegative.positive_root(den, num, len(M) * (hyper.shape - 1) / 2)


def pulls(p: Params, data: Tasks, hyper: Hyper, layer: int) -> dict[str, shared.Pair]:
    """R'N and R'Z of every block and task. R'Z is (R'R) M (C'C), so no table of all rows is needed."""
    parts, pulled = sweeps.row_tables(p, data, hyper, SQUARED, layer), {}
    for b, (N, _) in parts.items():
        C, w = shared.column_factor(p, b, layer), shared.weigh(b, hyper)
        num, den = ([jnp.zeros_like(shared.space(p, b, 0))] * data.n_tasks for _ in "nd")
        for i, at in data.spans(b):
            R = shared.product(*shared.row_factors(p, at, i, layer))
            num[i] = w * (R.T @ N[at])
            den[i] = w * (R.T @ R @ shared.space(p, b, i) @ (C.T @ C))
        pulled[b] = jnp.stack(num), jnp.stack(den)
    return pulled


def best_rows(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    """Set every entry of R to its minimum, in turn."""
    L = shared.depth(hyper)
    parts = sweeps.row_tables(p, data, hyper, SQUARED, L)
    num, _ = sweeps.row_sums(parts, p.R, p, shared.layout(data), hyper, 1)
    right = {b: shared.column_factor(p, b, L) for b in data.blocks}
    inner = {b: shared.weigh(b, hyper) * (C.T @ C) for b, C in right.items()}
    found = []
    for i, at, blocks in data.parts():  # these rows have the same G G', where X ~ R G
        above = {b: [*shared.factors_above(p, i, L), shared.space(p, b, i)] for b in blocks}
        grams = (shared.product(*F, inner[b], *shared.turned(F)) for b, F in above.items())
        gram = sum(grams, jnp.zeros(()))
        found.append(nonnegative.descend(p.R[at], num[at], gram, hyper.shape, hyper.rate))
    return jnp.concatenate(found)


def best_columns(p: Params, data: Tasks, hyper: Hyper, b: str) -> jax.Array:
    """Set every entry of C of this block to its minimum, in turn."""
    A, w = sweeps.rows_seen(p, data, hyper, b), shared.weigh(b, hyper)
    num = w * tables.transposed(data.cells[b], data.y[b], A)
    return nonnegative.descend(p.C[b], num, w * (A.T @ A), hyper.shape, hyper.rate)


def of_view(
    M: jax.Array, num: jax.Array, den: jax.Array, other: jax.Array, hyper: Hyper
) -> jax.Array:
    """(14), (20)."""
    return step(M, num + hyper.coupling * other, den + hyper.coupling * M, hyper)


def of_labels(
    M: jax.Array, num: jax.Array, den: jax.Array, others: jax.Array, V: int, hyper: Hyper
) -> jax.Array:
    """(15), (21)."""
    return step(M, num + hyper.coupling * others, den + hyper.coupling * V * M, hyper)


SQUARED = shared.Error(
    rows, columns, size, step, factor, of_view, of_labels, pulls, best_rows, best_columns
)


update = partial(sweeps.sweep, error=SQUARED)
derive = partial(sweeps.derive, error=SQUARED)
fold_in = partial(sweeps.fold_in, error=SQUARED)


def model(data: Tasks, hyper: Hyper) -> None:
    p = shared.sample(data, hyper, "squared")
    numpyro.factor("coupling", -coupling(p, hyper))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    score = shared.score(p, query, hyper)
    return labels.of_labels(score, query, hyper, 0.5 / hyper.weight)


# fmt: off
METHOD = register(Method(
    name="himls", cite="yang2016himls", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=shared.example, derive=derive,
    fold_in=fold_in, prepare=shared.check, ready=shared.ready,
    solver=Solver(update=update), choose=Choose(candidates=partial(shared.choices, weights=WEIGHTS)),
    axes=Axes(dims=shared.DIMS, gauge=shared.gauge),
    notes=Notes(remarks=labels.remarks, traits=labels.TRAITS),
))
# fmt: on
