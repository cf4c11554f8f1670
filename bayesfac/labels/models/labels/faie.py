r"""Feature-aware implicit label space encoding (FaIE): codes of rows that fit both labels and features.

Lin, Ding, Hu & Wang, "Multi-label classification via feature-aware implicit label space encoding", ICML 2014.

    J = weight |Y - C D'|^2 + alpha (|C - X W|^2 + penalty |W|^2) + ridge |D|^2,     C'C = I

    paper        here         shape
    C            C            rows x d
    D'           D            labels x d
    W            W[view]      features x d     of the regression that predicts codes
    alpha        alpha

The method predicts many labels from features, by d codes for each row. The paper maximises tr C'(Y Y' + alpha
H) C with H = X (X'X + penalty I)^-1 X'. This measures how well the codes recover the labels, and how well the
features predict the codes. It is J with the best D and W inserted: with weight 1 and ridge 0, J = |Y|^2 +
alpha d - tr C'(Y Y' + alpha H) C, and C spans the first d eigenvectors. The paper has ridge 0; here a small
ridge makes the prior of D proper. A sweep finds the best C in the span of the columns of C, Y and X W
(Rayleigh-Ritz), and then D and W in closed form. The span contains Y, and H <= I, so a few sweeps suffice,
unless alpha is as large as eigenvalue d of Y Y', or d exceeds the rank of Y.

All training rows need labels, because C has a row for each of them. An unlabelled row would have the code X
W, which `fold_in` gives to new rows. `ready` scales the features and adds a constant; Y is not centred. By
default, d, alpha, the penalty and the cut are chosen by leave-one-out predictions, in closed form for given
codes of the training rows (`_left_out`).

The NumPyro model has C = polar(site), where the site is a free matrix with a distribution (`_frames.Frame`)
under which polar(site) is uniform. W, D and the labels are normal; the features are not modelled. Because of
the factor exp(-alpha |C - X W|^2), the joint prior of C and W has an unknown constant: the posterior is
*generalised*. The density does not change when C, D and W are rotated together. If the data have several
tasks, their rows are treated alike.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.reading import plain
from bayesfac.core.kernels import tables
from bayesfac.core.math import inner, normals
from bayesfac.core.method import Axes, Choose, Method, Notes, Rotation, Solver, register
from bayesfac.core.precision import doubled
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import Units
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _frames as frames
from bayesfac.labels.models.labels._frames import Frame, polar
from bayesfac.labels.models.labels._left_out import LeftOut, ready


class Params(NamedTuple):
    C: jax.Array
    D: jax.Array
    W: dict[str, jax.Array]
    A: jax.Array | None = None  # derived: the codes from which labels are predicted


class Hyper(NamedTuple):
    n_components: int | None = None  # d; None: by rows left out
    alpha: float | None = None  # None: by rows left out
    penalty: float | None = None  # None: by rows left out
    weight: float = 1.0
    ridge: float = 1e-3
    scaled: bool = True  # divide features by their spread, centre dense ones, add a constant
    cut: float | None = None  # labels with a higher score are predicted; None: by rows left out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows left out
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    embedding.check(data)
    if not data.labelled.all():
        row = plain(data.rows[int(np.argmin(data.labelled))])
        raise ValueError(
            f"Expected labels of every row (predict unlabelled rows by fold_in), got none of {row!r}"
        )
    if hyper.n_components is not None:
        checks.whole("n_components", hyper.n_components, data.n_rows, "the number of rows")
    given = [name for name in ("alpha", "penalty") if getattr(hyper, name) is not None]
    checks.positive(hyper, "weight", *given, *(["ridge"] if hyper.ridge != 0 else []))
    hyper = labels.read(data, hyper)
    if labels.unread(hyper) or None in (hyper.n_components, hyper.alpha, hyper.penalty):
        return labels.with_reading(*left_out(ready(data, hyper), hyper))
    return hyper._replace(cut=labels.checked_cut(hyper.cut))


def left_out(data: Tasks, hyper: Hyper) -> tuple[Hyper, np.ndarray, np.ndarray]:
    """d, alpha and the penalty with the smallest squared error of rows left out; their labels and scores.

    For each row, the codes are predicted by all other rows. d is chosen first: half of the labels, three
    quarters or all of them. alpha is at most half of eigenvalue d of Y'Y. With a larger alpha the features
    alone determine the codes.
    """
    rows = LeftOut(data)
    penalties = [hyper.penalty]
    if hyper.penalty is None:
        penalties = [rows.penalty() * x for x in (0.3, 1.0, 3.0)]
    strength = np.linalg.eigvalsh(rows.Y.T @ rows.Y)[::-1]
    strength = strength[strength > 1e-6 * strength[0]]
    if hyper.n_components is None:
        some = {-(-labels.count(data) * k // 4) for k in (2, 3, 4)}
        sizes = sorted({max(1, min(d, len(strength))) for d in some})
        each = [hyper._replace(n_components=d) for d in sizes]
        usual = [(middle(alphas(strength, rows, h)), middle(penalties), h) for h in each]
        errors = [rows.error(without_own_row(rows, *settings)) for settings in usual]
        hyper = each[int(np.argmin(errors))]
    tried = [(a, c) for a in alphas(strength, rows, hyper) for c in penalties]
    scores = [without_own_row(rows, a, c, hyper) for a, c in tried]
    best = int(np.argmin([rows.error(score) for score in scores]))
    hyper = hyper._replace(alpha=float(tried[best][0]), penalty=float(tried[best][1]))
    return hyper, rows.Y, scores[best]


def middle(several: list[float]) -> float:
    return several[len(several) // 2]


def alphas(strength: np.ndarray, rows: LeftOut, hyper: Hyper) -> list[float]:
    """The given alpha, or shares of eigenvalue d of Y'Y; the eigenvalues `strength` decrease."""
    if hyper.alpha is not None:
        return [hyper.alpha]
    least = min(strength[: hyper.n_components], default=1.0)
    return [hyper.weight * least / rows.share * x for x in (0.01, 0.1, 0.5)]


def without_own_row(rows: LeftOut, alpha: float, penalty: float, hyper: Hyper) -> np.ndarray:
    """The scores of every row by the codes and the regression of the other rows."""
    share, C = rows.s2 / (rows.s2 + rows.share * penalty), rows.Y
    keep = hyper.weight / (hyper.weight + hyper.ridge)
    for _ in range(5):  # as in `update`
        span = np.linalg.qr(np.hstack([C, rows.Y, rows.U @ (share[:, None] * (rows.U.T @ C))]))[0]
        of_labels, of_features = span.T @ rows.Y, rows.U.T @ span
        gain = hyper.weight * keep * of_labels @ of_labels.T
        gain += alpha * rows.share * of_features.T @ (share[:, None] * of_features)
        C = span @ np.linalg.eigh(gain)[1][:, -hyper.n_components :]
    return rows(C, penalty) @ (keep * C.T @ rows.Y)


@doubled
def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """C has uniform random orthonormal columns; D and W are fitted to it."""
    C = frames.nearest(normals(key, (data.n_rows, hyper.n_components)))
    return given_C(C, regression(C, data, hyper), data, hyper)


def regression(C: jax.Array, data: Tasks, hyper: Hyper) -> jax.Array:
    """(X'X + penalty I)^-1 X'C."""
    return embedding.ridge(data, embedding.back(data, C), hyper.penalty)


def given_C(C: jax.Array, W: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """The parameters for a given C, with the best D, which is Y'C shrunk by the ridge."""
    share, (view,) = hyper.weight / (hyper.weight + hyper.ridge), data.names
    D = share * tables.transposed(data.cells[LABELS], data.y[LABELS], C)
    return Params(C, D, {view: W})


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    C, (W,) = polar(p.C), p.W.values()
    total = hyper.weight * embedding.squared_error(data, C @ p.D.T)
    total += hyper.ridge * jnp.sum(p.D**2)
    total += misfit(C, W, data, hyper) + hyper.alpha * hyper.penalty * jnp.sum(W**2)
    return total - Frame(*p.C.shape).log_prob(p.C)


def misfit(C: jax.Array, W: jax.Array, data: Tasks, hyper: Hyper) -> jax.Array:
    return hyper.alpha * jnp.sum((C - embedding.times(data, W)) ** 2)


@doubled
def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """The best C in the span of C, Y and X W, rotated towards its old value, and D and W for it."""
    (W,), (Y, _) = p.W.values(), embedding.answers_of(data, data.y[LABELS])
    span = jnp.linalg.qr(jnp.hstack([polar(p.C), Y, embedding.times(data, W)]))[0]
    W = regression(span, data, hyper)
    share = hyper.weight**2 / (hyper.weight + hyper.ridge)
    of_labels, of_features = span.T @ Y, span.T @ embedding.times(data, W)
    gain = share * of_labels @ of_labels.T + hyper.alpha * of_features
    best = frames.leading(gain, hyper.n_components)
    turn = frames.turned(best, span.T @ p.C)
    return given_C(span @ turn, W @ turn, data, hyper)


def model(data: Tasks, hyper: Hyper) -> None:
    (view,), d = data.names, hyper.n_components
    C = polar(numpyro.sample("C", Frame(data.n_rows, d)))
    D = numpyro.sample("D", labels.ridge_law(len(data.labels), d, hyper.ridge))
    law = labels.ridge_law(data.n_features[view], d, hyper.alpha * hyper.penalty)
    W = numpyro.sample(f"W.{view}", law)
    numpyro.factor("codes", -misfit(C, W, data, hyper))
    table = tables.Table(C, D, data.cells[LABELS], hyper.weight, "squared")
    numpyro.sample(f"view.{LABELS}", table, obs=data.y.get(LABELS))


def derive(p: Params, data: Tasks, hyper: Hyper) -> dict[str, Any]:
    return {"A": polar(p.C)}


def fold_in(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """The codes of new rows are X W."""
    (W,) = p.W.values()
    A = embedding.times(data, W)
    return p._replace(C=A, A=A)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return labels.of_labels(inner(p.A, p.D, query), query, hyper, 0.5 / hyper.weight)


def gauge(names: tuple[str, ...]) -> tuple[Rotation, ...]:
    turning = dict.fromkeys((n for n in names if n in ("C", "D", "A") or n.startswith("W.")), 1)
    return (Rotation(("C", "D"), turning),)


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    data = frames.few_rows(key, every=True)
    return data, prepare(data, Hyper(2, 0.7, 0.6, 0.8, 0.1))


# fmt: off
METHOD = register(Method(
    name="faie", cite="lin2014faie", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, derive=derive,
    fold_in=fold_in, prepare=prepare, ready=ready,
    solver=Solver(update=update), choose=Choose(left_out=left_out),
    axes=Axes(
        dims={"C": ("row", "component"), "D": ("feature.labels", "component"),
            "W": ("feature.{key}", "component"), "A": ("row", "component")},
        gauge=gauge,
    ),
    notes=Notes(remarks=labels.remarks, traits=labels.LABELS_ALONE),
))
# fmt: on
