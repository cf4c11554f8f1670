"""The parts that HiMLS and HiMLSD share: layers of factors R ... M ... C' over tasks and blocks, and sweeps.

A block is a view, or the labels. With R_i^(1:l) = R_i S_i^(2) ... S_i^(l) and C_b^(1:l) = C_b D_b^(2) ...
D_b^(l), block b of task i is R_i^(1:L) M_bi C_b^(1:L)'. Every update of either method needs two tables N and
Z for the rows of each block, and two for its columns. N - Z is minus half the gradient of the squared error,
or minus the gradient of the divergence, in the table R M or in C. The updates of all factors follow from
these tables by products of small matrices. Only the tables need a pass over the data. If there are many
cells, Numba computes the tables, so all other arithmetic is compiled separately.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.kernels import tables
from bayesfac.core.math import inner, safe_log
from bayesfac.core.method import Permutation
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import Units, scaled, varying
from bayesfac.labels.data.tasks import LABELS, Tasks

DIMS = {
    "R": ("row", "row cluster"),
    "S": ("task", "in {key}", "out {key}"),
    "C": ("feature.{key}", "column cluster"),
    "D": ("in {key}", "out {key}"),
    "M": ("task", "row space", "column space"),
    "common": ("row space", "column space"),
    "N": ("task", "row space {key}", "column space {key}"),
    "left": ("row", "score"),
}
Pair = tuple[jax.Array, jax.Array]
SPARE, MOST = 150, 300  # clusters besides those of the labels by default, and clusters at most


class Hyper(NamedTuple):
    layers: tuple[tuple[int, int], ...] | None = None  # [p, q], from the data up; None: by labels
    weight: float | None = None  # alpha; None: by rows held out
    coupling: float = 1e3  # beta
    shared: bool = False
    shape: float = 1.0
    rate: float = 0.1
    pretraining: int = 30  # sweeps of every layer before the fit
    start: str | None = None  # "labels", "svd", "plsa" or "random"; None: by rows held out
    scaled: bool = True  # divide features by their spread, split negative ones into two parts
    cut: float | None = None  # labels with a higher score are predicted; None: by rows held out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows held out
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


class Params(NamedTuple):
    R: jax.Array
    S: dict[str, jax.Array] | None
    C: dict[str, jax.Array]
    D: dict[str, jax.Array] | None
    M: dict[str, jax.Array] | None
    common: jax.Array | None = None
    N: dict[str, jax.Array] | None = None  # derived: spaces of the labels in every layer
    left: jax.Array | None = None  # derived: the rows times N, all layers side by side


class Layout(NamedTuple):
    """The shapes that a compiled step depends on; data with other values are not compiled again."""

    n_rows: int
    n_tasks: int
    blocks: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]  # task, first row, end

    def spans(self, block: str) -> Iterator[tuple[int, slice]]:
        """(task, rows) of every task that has the block."""
        return ((i, slice(*at)) for i, *at in dict(self.blocks)[block])


def layout(data: Tasks) -> Layout:
    """The rows of every block in every task."""
    spans = {b: tuple((i, at.start, at.stop) for i, at in data.spans(b)) for b in data.blocks}
    return Layout(data.n_rows, data.n_tasks, tuple(spans.items()))


class Error(NamedTuple):
    """The functions that differ between the two methods.

    rows(cells, y, A, C)            the tables N and Z of the rows of A, where X ~ A C'
    columns(cells, y, A, C)         the tables N and Z of the rows of C
    size(A)                         the norms of the columns of a factor that match the error
    step(H, num, den, hyper)        the multiplicative update of any factor
    factor(M, num, den, hyper)      the best common factor of all spaces of a task, entry by entry
    view(M, num, den, other, hyper) the update of the space of a view, coupled to that of the labels
    label(M, num, den, others, V, hyper)   the update of the space of the labels, coupled to those of V views
    pulls(p, data, hyper, layer)    for the spaces of every block, the sums of N and Z over rows; or None
    best_rows(p, data, hyper)       R, updated entry by entry; or None if `step` updates R as well
    best_columns(p, data, hyper, block)     C of a block, as `best_rows`
    """

    rows: Callable[..., Pair]
    columns: Callable[..., Pair]
    size: Callable[[jax.Array], jax.Array]
    step: Callable[..., jax.Array]
    factor: Callable[..., jax.Array]
    view: Callable[..., jax.Array]
    label: Callable[..., jax.Array]
    pulls: Callable[..., dict[str, Pair]] | None = None
    best_rows: Callable[..., jax.Array] | None = None
    best_columns: Callable[..., jax.Array] | None = None

    @property
    def multiplicative(self) -> "Error":
        """The same error, with multiplicative updates of R and C too, as in pre-training."""
        return self._replace(pulls=None, best_rows=None, best_columns=None)


def check(data: Tasks, hyper: Any) -> Any:
    """Check the data and the settings; set `binary` and `units` from the data."""
    checks.nonnegative(data, only=LABELS if hyper.scaled else None)
    labels.check(data)
    labels.checked_cut(hyper.cut)
    if hyper.layers is None:
        hyper = hyper._replace(layers=((usual_size(data),) * 2,))
    if hyper.weight is None:
        hyper = hyper._replace(weight=1.0)
    if hyper.start is None:
        hyper = hyper._replace(start="labels")
    checks.whole("the number of layers", len(hyper.layers), 9, "the largest number of layers")
    for p, q in hyper.layers:
        checks.whole("row clusters", p, data.n_rows, "the number of rows")
        checks.whole("column clusters", q, max(data.n_features.values()), "the widest block")
    checks.positive(hyper, "weight")
    checks.at_least_one(hyper, "shape")
    if hyper.rate != 0 or hyper.shape > 1:
        checks.positive(hyper, "rate")
    if hyper.pretraining != 0:
        checks.whole(
            "pretraining", hyper.pretraining, 10_000, "sweeps of every layer before the fit"
        )
    checks.one_of(hyper, "start", ("labels", "svd", "plsa", "random"))
    if hyper.coupling != 0:
        checks.positive(hyper, "coupling")
    elif data.bare and not hyper.shared:
        raise ValueError(
            f"Expected labels in every task where coupling is 0, got none in {data.bare[0]!r}"
        )
    return labels.read(data, hyper, centred=False)


def usual_size(data: Tasks) -> int:
    """A cluster for each label that some row has and SPARE more, but at most two thirds of the number of
    features that vary.

    With as many clusters as features, the rows reproduce the features exactly and share nothing with labels.
    """
    many, widths = labels.count(data), varying(data)
    size = max(many, min(many + SPARE, 2 * sum(widths.values()) // 3))
    return min(size, MOST, data.n_rows, max(many, *widths.values()))


def choices(
    data: Tasks, hyper: Any, chosen: Any, weights: tuple[float, float]
) -> list[dict[str, Any]]:
    """Candidates for the weight of the labels and for the start, as far as they are not given.

    A large weight is combined with a start by labels: with "svd", rows would lose their features for the
    labels.
    """
    pairs = [("labels", weights[0]), ("svd", weights[0]), ("labels", weights[1])]
    each = [{"start": start, "weight": weight} for start, weight in pairs]
    own = [{k: v for k, v in one.items() if getattr(hyper, k) is None} for one in each]
    different = [one for i, one in enumerate(own) if one and one not in own[:i]]
    return [] if chosen else different


def ready(data: Tasks, hyper: Any) -> Tasks:
    """Scaled views without negative cells: a column with negative cells is split into its two parts."""
    return scaled(data, parts=True, labels=hyper.units) if hyper.scaled else data


# -- factors --------------------------------------------------------------------------------------
def depth(hyper: Any) -> int:
    """L, the number of layers."""
    return len(hyper.layers)


def between(
    tables: dict[str, jax.Array] | None, prefix: str, first: int, last: int
) -> list[jax.Array]:
    """The tables PREFIXfirst..PREFIXlast."""
    return [(tables or {})[f"{prefix}{layer}"] for layer in range(first, last + 1)]


def product(*factors: jax.Array) -> jax.Array:
    """F_1 F_2 ..., multiplied in the order that needs the fewest operations.

    The highest layer has the fewest columns, so products that begin there are small.
    """
    return factors[0] if len(factors) == 1 else jnp.linalg.multi_dot(factors)


def turned(factors: list[jax.Array]) -> list[jax.Array]:
    """The factors of (F_1 F_2 ...)'."""
    return [factor.T for factor in reversed(factors)]


def factors_above(p: Any, i: int, layer: int) -> list[jax.Array]:
    """R_i^(2), ..., R_i^(l) of task i."""
    return [s[i] for s in between(p.S, "", 2, layer)]


def row_factors(p: Any, at: slice, i: int, layer: int) -> list[jax.Array]:
    """R_i^(1), ..., R_i^(l) of the rows `at` of task i."""
    return [p.R[at], *factors_above(p, i, layer)]


def column_factors(p: Any, block: str, layer: int) -> list[jax.Array]:
    """C_b^(1), ..., C_b^(l)."""
    return [p.C[block], *between(p.D, f"{block}.", 2, layer)]


@partial(jax.jit, static_argnums=(1, 2))
def column_factor(p: Any, block: str, layer: int) -> jax.Array:
    """C_b^(1:l)."""
    return product(*column_factors(p, block, layer))


def space(p: Any, block: str, i: int) -> jax.Array:
    """M_bi, or the common space."""
    return p.M[block][i] if p.common is None else p.common


@partial(jax.jit, static_argnums=(1, 2, 3))
def row_table(p: Any, rows: Layout, block: str, layer: int) -> jax.Array:
    """R_i^(1:L) M_bi of all rows that have the block; zeros elsewhere."""
    table = jnp.zeros((rows.n_rows, space(p, block, 0).shape[1]), p.R.dtype)
    for i, at in rows.spans(block):
        table = table.at[at].set(product(*row_factors(p, at, i, layer), space(p, block, i)))
    return table


def weigh(block: str, hyper: Any) -> float:
    """alpha for the labels, 1 for a view."""
    return hyper.weight if block == LABELS else 1.0


# -- objective and model --------------------------------------------------------------------------
def energy(p: Any, hyper: Any) -> Any:
    """Minus the log density of the gamma priors of all factors, without constants."""
    factors = jax.tree.leaves((p.R, p.S, p.C, p.D, p.M, p.common))
    return sum(hyper.rate * jnp.sum(f) - (hyper.shape - 1) * jnp.sum(safe_log(f)) for f in factors)


def misfit(p: Any, data: Tasks, hyper: Any, error: Callable[..., jax.Array]) -> Any:
    """The weighted errors of all blocks."""
    L = depth(hyper)
    return sum(
        weigh(b, hyper)
        * error(data.cells[b], data.y[b], row_table(p, layout(data), b, L), column_factor(p, b, L))
        for b in data.blocks
    )


class FromZero(dist.Gamma):
    """The gamma law on [0, inf), with 0: multiplicative updates end at exact zeros, where shape 1 has a
    density."""

    support = dist.constraints.nonnegative

    def log_prob(self, value: jax.Array) -> jax.Array:
        constant = self.concentration * jnp.log(self.rate) - gammaln(self.concentration)
        return constant + (self.concentration - 1) * safe_log(value) - self.rate * value


def sample(data: Tasks, hyper: Any, how: str) -> Params:
    """Sample the parameters and the tables; the caller adds the coupling."""

    def factor(site: str, *shape: int) -> jax.Array:
        if hyper.rate == 0:  # the paper's J has a mode, but the posterior is improper
            law: Any = dist.ImproperUniform(dist.constraints.nonnegative, (), shape)
        else:
            law = FromZero(hyper.shape, hyper.rate).expand(shape).to_event(len(shape))
        return numpyro.sample(site, law)

    T, (p1, q1), (pL, qL) = data.n_tasks, hyper.layers[0], hyper.layers[-1]
    sizes = list(zip(range(2, 10), hyper.layers, hyper.layers[1:], strict=False))
    R = factor("R", data.n_rows, p1)
    S = {f"{k}": factor(f"S.{k}", T, low[0], high[0]) for k, low, high in sizes}
    C = {b: factor(f"C.{b}", d, q1) for b, d in data.n_features.items()}
    D = {f"{b}.{k}": factor(f"D.{b}.{k}", low[1], high[1]) for b in C for k, low, high in sizes}
    M = None if hyper.shared else {b: factor(f"M.{b}", T, pL, qL) for b in C}
    common = factor("common", pL, qL) if hyper.shared else None
    p = Params(R, S, C, D, M, common)
    for b in data.blocks:
        A, G = row_table(p, layout(data), b, depth(hyper)), column_factor(p, b, depth(hyper))
        law_of = tables.Table(A, G, data.cells[b], weigh(b, hyper), how)
        numpyro.sample(f"view.{b}", law_of, obs=None if data.y is None else data.y[b])
    return p


# -- sweeps ---------------------------------------------------------------------------------------
def spaces_below(p: Any, data: Tasks, hyper: Any, layer: int) -> dict[str, jax.Array]:
    """R^(l+1:L) M C^(l+1:L)': the spaces of this layer that the layers above imply."""
    spaces = {}
    for b in p.C:
        M = p.M[b] if p.common is None else jnp.stack([p.common] * data.n_tasks)
        for S in reversed(between(p.S, "", layer + 1, depth(hyper))):
            M = S @ M
        for D in reversed(between(p.D, f"{b}.", layer + 1, depth(hyper))):
            M = M @ D.T
        spaces[b] = M
    return spaces


def left(p: Any, data: Tasks, hyper: Any) -> jax.Array:
    """R_i^(1:l) N_i^(l) of every layer, side by side."""
    rows = []
    for i, at in enumerate(data.bounds):
        spaces = [p.N[str(k)] for k in range(1, depth(hyper) + 1)]
        parts = [product(*row_factors(p, at, i, k), n[i]) for k, n in enumerate(spaces, 1)]
        rows.append(jnp.concatenate(parts, 1))
    return jnp.concatenate(rows)


def score(p: Any, query: Query | Grid, hyper: Any) -> jax.Array:
    """Eq. 3 with equal weights: the mean over the layers. For 0/1 labels it is the probability of 1."""
    right = [column_factor(p, LABELS, k) for k in range(1, depth(hyper) + 1)]
    return inner(p.left, jnp.concatenate(right, 1), query) / depth(hyper)


def gauge(names: tuple[str, ...]) -> tuple[Permutation, ...]:
    """Clusters of rows and of columns may be reordered in every layer; at the top, in all blocks together."""
    blocks = [name[2:] for name in names if name.startswith("C.")]
    L = 1 + sum(name.startswith("S.") for name in names)
    spaces = [name for name in names if name.startswith("M.")]
    shared = "common" in names
    symmetries = []
    for k in range(1, L + 1):
        rows = {"R": 1} if k == 1 else {f"S.{k}": 2}
        top = {"common": 0} if shared else dict.fromkeys(spaces, 1)
        above = {f"S.{k + 1}": 1} if k < L else top
        symmetries.append(Permutation(rows | above, f"row cluster {k}"))
    columns = {b: {f"C.{b}": 1} if L == 1 else {f"D.{b}.{L}": 1} for b in blocks}
    top = {"common": 1} if shared else dict.fromkeys(spaces, 2)
    merged = {site: axis for part in columns.values() for site, axis in part.items()}
    symmetries.append(Permutation(merged | top, "column cluster"))
    for b in blocks:
        for k in range(1, L):
            both = {f"C.{b}" if k == 1 else f"D.{b}.{k}": 1, f"D.{b}.{k + 1}": 0}
            symmetries.append(Permutation(both, f"column cluster {k} of {b}"))
    return tuple(symmetries)


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    """Nine rows in two tasks, two views (the second task has only one), and two layers."""
    hyper = Hyper(((3, 2), (2, 2)), 0.7, 0.5, shape=1.5, rate=0.8, pretraining=0, start="random")
    return (data := labels.few_tasks(key)), check(data, hyper)
