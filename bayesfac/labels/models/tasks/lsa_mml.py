r"""Latent semantic aware multi-view multi-label learning (LSA-MML), by alternating ridge systems.

Zhang, Yu, Hu, Zhu, Liu & Wang, "Latent semantic aware multi-view multi-label classification", AAAI 2018,
eq. 8-23.

    J = sum_v alpha_v^r E_v + beta |P W' - Y|^2 (labelled rows) - gamma sum_{v != w} HSIC(B_v, B_w)
        + ridge (|P|^2 + |W|^2),     E_v = |X_v - P B_v'|^2,   columns of B_v in the unit ball, sum alpha = 1
    HSIC(B, B') = (K - 1)^-2 tr(B'B C B''B' C),   C = I - 11'/K

    paper           here             shape
    P'              P                rows x K      instances are columns in the paper
    B^(v)           B[view]          features x K
    W               W                labels x K
    alpha           alpha            views: `alpha` if it is given, else the best (22) for these E_v
    beta, gamma     weight, alignment
    X^(v), Y        data.y[block] on data.cells[block]; a row enters E_v where its task has the view

The method predicts several labels from several views. All views share the codes P, and HSIC rewards bases B_v
that depend on each other. The printed (8) lacks the minus before HSIC; the text maximises the dependence, as
this module does. J contains no alpha: with (22) inserted, sum alpha_v^r E_v becomes (sum
E_v^(-1/(r-1)))^-(r-1), which is concave in E. Its tangent at the start of a step, with weights alpha_v^r, is
therefore an upper bound, so every step lowers J. The option `noise` replaces this term by N_v / 2 log E_v,
with N_v cells in view v. This is the normal likelihood with the precision integrated out under the prior 1 /
precision. Its weights are N_v / (2 E_v).

HSIC makes the problem of a basis non-convex. The paper's ADMM (18) starts every sweep without multipliers, so
near a minimum on the boundary of the balls its result costs more than the start. Here the columns of a basis
are replaced one after the other. The minimum of one column in its ball has a closed form for any sign of its
curvature (`basis_step`). So J never rises, no step is shortened, and the sweeps end where the gradient is
zero or points out of a ball. ridge > 0 keeps the systems of W and P regular with few labelled rows; the paper
has ridge 0. `init` and `update` run in double precision, as features may have any scale.

The NumPyro model has normal tables with precision 2 alpha_v^r if `alpha` is fixed, and otherwise the factor
exp(-sum alpha_v^r E_v). It also has the factor of HSIC, columns of B uniform in the ball, and normal P and W.
The posterior is *generalised*. Its density does not change when columns are reordered; signs are determined,
as C centres over columns. If the data have several tasks, their rows are treated alike.

Length: more than 300 lines with `_bases`; no other method uses its law on the ball.
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
from bayesfac.core.method import Axes, Choose, Method, Notes, Permutation, Solver, register
from bayesfac.core.precision import doubled
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import Units, scaled, varying
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.tasks import _bases as bases
from bayesfac.labels.models.tasks._bases import UniformBall
from bayesfac.labels.models.tasks._row_groups import SharedRows, alone


class Params(NamedTuple):
    P: jax.Array
    B: dict[str, jax.Array]
    W: jax.Array
    weights: jax.Array | None = None  # derived: alpha_v^r, or N_v / 2 E_v, by view


MOST = 100  # largest number of columns by default
RIDGES, STRONG = (0.1, 1.0), 10.0  # candidates for the ridge; the strong one for few rows only


class Hyper(NamedTuple):
    n_components: int | None = None  # K; None: 100, or the rows, or all features that vary
    weight: float = 0.05  # beta; small, because rows without labels have only their features
    alignment: float = 1.0
    r: float = 2.0
    alpha: tuple[float, ...] | None = None
    noise: bool = False
    ridge: float | None = None  # None: by rows held out
    scaled: bool = True  # divide features by their spread, centre dense ones, add a constant
    cut: float | None = None  # labels with a higher score are predicted; None: by rows held out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows held out
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    labels.check(data)
    labels.checked_cut(hyper.cut)
    if hyper.n_components is None:
        width = sum(varying(data).values())
        hyper = hyper._replace(n_components=max(2, min(MOST, data.n_rows, width)))
    if hyper.ridge is None:
        hyper = hyper._replace(ridge=RIDGES[0])
    checks.whole("n_components", hyper.n_components, 10**5, "columns")
    if hyper.n_components < 2:
        raise ValueError(
            "Expected n_components of at least 2 (HSIC divides by n_components - 1), got 1"
        )
    checks.positive(hyper, "weight", "r")
    checks.positive(hyper, *(name for name in ("alignment", "ridge") if getattr(hyper, name) != 0))
    if hyper.r <= 1:
        raise ValueError(f"Expected r above 1 (at 1 a single view takes all weight), got {hyper.r}")
    if hyper.ridge == 0 and (known := int(data.labelled.sum())) < hyper.n_components:
        want = f"ridge above 0 (or W is not unique), or {hyper.n_components} labelled rows"
        raise ValueError(f"Expected {want}, got ridge=0 and {known}")
    alpha = hyper.alpha if hyper.alpha is None else tuple(map(float, hyper.alpha))
    if alpha and (len(alpha) != len(data.names) or min(alpha) <= 0 or abs(sum(alpha) - 1) > 1e-6):
        raise ValueError(f"Expected alpha above 0 for {data.names}, of sum 1, got {hyper.alpha}")
    return labels.read(data, hyper._replace(alpha=alpha))


def choices(data: Tasks, hyper: Hyper, chosen: Any) -> list[dict[str, float]]:
    """Candidates for the ridge of P and W, which prevents many columns from fitting the labels of few rows.

    The strong one needs fewer than two labelled rows for each column. With more rows it shrinks all scores
    towards zero, where held-out rows cannot place the cut precisely.
    """
    if hyper.ridge is not None or chosen:
        return []
    few = int(data.labelled.sum()) < 2 * prepare(data, hyper).n_components
    return [{"ridge": one} for one in (*RIDGES, *([STRONG] if few else []))]


def ready(data: Tasks, hyper: Hyper) -> Tasks:
    return scaled(data, 1.0, above_noise=True, labels=hyper.units) if hyper.scaled else data


@doubled
def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """B is uniform in the balls, and P and W are fitted to it."""
    K, B = hyper.n_components, {}
    for v, k in zip(data.names, jax.random.split(key, len(data.names)), strict=True):
        B[v] = UniformBall(data.n_features[v], K).sample(k)
    p = Params(jnp.zeros((data.n_rows, K)), B, jnp.zeros((len(data.labels), K)))
    return update_W(update_P(p, data, hyper), data, hyper)


def view_weights(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    """alpha_v^r (22): the gradient of `misfit` in the errors E_v."""
    return jax.grad(bases.misfit)(bases.errors(p.P, p.B, data), hyper, data.cells_by_view)


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    total = bases.misfit(bases.errors(p.P, p.B, data), hyper, data.cells_by_view)
    total -= hyper.alignment * bases.dependence(p.B)
    P = data.seen(LABELS, p.P)
    total += hyper.weight * tables.squared_error(data.cells[LABELS], data.y[LABELS], P, p.W)
    return total + hyper.ridge * (jnp.sum(p.P**2) + jnp.sum(p.W**2))


@doubled
def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """P (12, 14), every B_v (16), W (20); alpha (22) is updated before each of them."""
    p = update_P(p, data, hyper)
    for view in data.names:
        p = p._replace(B={**p.B, view: update_B(p, data, hyper, view)})
    return update_W(p, data, hyper)


def update_P(p: Params, data: Tasks, hyper: Hyper, weights: Any = None) -> Params:
    weights = view_weights(p, data, hyper) if weights is None else weights
    weight = dict(zip(data.names, weights, strict=True)) | {LABELS: hyper.weight}
    side = {**p.B, LABELS: p.W}
    each = (weight[b] * tables.product(data.cells[b], data.y[b], side[b]) for b in data.blocks)
    shift: Any = sum(each)
    gram = {b: weight[b] * side[b].T @ side[b] for b in side}
    ridge = hyper.ridge * jnp.eye(p.W.shape[1])
    precision = jnp.stack([sum((gram[b] for b in blocks), ridge) for _, _, blocks in data.parts()])
    spans = tuple(at for _, at, _ in data.parts())
    return p._replace(P=SharedRows(shift, precision, spans).mean)


def update_B(p: Params, data: Tasks, hyper: Hyper, view: str) -> jax.Array:
    """Lower tr B Q B' - 2 tr B L' over the balls, with Q = a P'P - g C (sum_w K_w) C and L = a X'P."""
    a = view_weights(p, data, hyper)[data.names.index(view)]
    P, B, K = data.seen(view, p.P), p.B[view], p.P.shape[1]
    beside = sum(bases.centred_gram(other) for w, other in p.B.items() if w != view)
    g = 2 * hyper.alignment / (K - 1) ** 2
    Q = a * P.T @ P - g * jnp.asarray(beside)
    L = a * tables.transposed(data.cells[view], data.y[view], P)
    return bases.basis_step(Q, L, B)


def update_W(p: Params, data: Tasks, hyper: Hyper) -> Params:
    P = data.seen(LABELS, p.P)
    shift = tables.transposed(data.cells[LABELS], data.y[LABELS], P)
    precision = P.T @ P + hyper.ridge / hyper.weight * jnp.eye(P.shape[1])
    return p._replace(W=alone(shift, precision).mean)


def model(data: Tasks, hyper: Hyper) -> None:
    K = hyper.n_components
    P = numpyro.sample("P", labels.ridge_law(data.n_rows, K, hyper.ridge))
    B = {v: numpyro.sample(f"B.{v}", UniformBall(data.n_features[v], K)) for v in data.names}
    W = numpyro.sample("W", labels.ridge_law(len(data.labels), K, hyper.ridge))
    numpyro.factor("alignment", hyper.alignment * bases.dependence(B))
    weight = {LABELS: hyper.weight}
    if hyper.alpha is None:
        E = bases.errors(P, B, data)
        numpyro.factor("views", -bases.misfit(E, hyper, data.cells_by_view))
    else:
        weight |= {v: a**hyper.r for v, a in zip(data.names, hyper.alpha, strict=True)}
    for b, w in weight.items():
        law = tables.Table(data.seen(b, P), {**B, LABELS: W}[b], data.cells[b], w, "squared")
        numpyro.sample(f"view.{b}", law, obs=None if data.y is None else data.y[b])


def derive(p: Params, data: Tasks, hyper: Hyper) -> dict[str, Any]:
    return {"weights": view_weights(p, data, hyper)}


def fold_in(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """New rows by (14), with the weights of the views from training."""
    return update_P(p, data, hyper, p.weights)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return labels.of_labels(inner(p.P, p.W, query), query, hyper, 0.5 / hyper.weight)


def gauge(names: tuple[str, ...]) -> tuple[Permutation, ...]:
    return (Permutation({"P": 1, "W": 1, **{n: 1 for n in names if n.startswith("B.")}}),)


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    data = labels.few_tasks(key)
    return data, prepare(data, Hyper(3, 0.8, 0.6, alpha=(0.4, 0.6), ridge=0.3))


# fmt: off
METHOD = register(Method(
    name="lsa_mml", cite="zhang2018lsamml", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, derive=derive,
    fold_in=fold_in, prepare=prepare, ready=ready,
    solver=Solver(update=update), choose=Choose(candidates=choices),
    axes=Axes(
        dims={"P": ("row", "component"), "B": ("feature.{key}", "component"),
            "W": ("feature.labels", "component"), "weights": ("view",)},
        gauge=gauge,
    ),
    notes=Notes(remarks=labels.remarks, traits=labels.TRAITS),
))
# fmt: on
