r"""Conditional principal label space transformation (CPLST): ridge regression of low rank, solved exactly.

Chen & Lin, "Feature-aware label space dimension reduction for multi-label classification", NIPS 2012. It
extends PLST of Tai & Lin, "Multilabel classification with principal label space transformation", Neural
Computation 2012.

    J = weight |Y - 1 b' - X W V'|^2 (labelled rows) + penalty |W|^2 + |b|^2 / (2 scale^2),     V'V = I

    paper          here       shape
    V'             V          labels x d     labels are columns of V in the paper
    W              W[view]    features x d
    y-bar          b          labels
    Z              Y - 1 b'   rows x labels
    M              n_components

The method predicts many labels from features. It replaces the labels by d codes and predicts the codes by
ridge regression. The paper's bound is the error of encoding, |Z - Z V V'|^2, plus the error of the learned
codes, |X W - Z V|^2. As V'V = I, their sum is |Z - X W V'|^2 (Pythagoras). This is J without the ridge
penalty of W and the prior of b. PLST takes the V that minimises the first error alone.

In the paper b is the mean of the labels. Here b has the prior Normal(0, scale), and is close to the mean if X
is centred. Given V, W and b have closed forms. Let C subtract from the columns of a table of labelled rows
the part that b explains, and B = (weight X'C X + penalty I)^-1 weight X'C Y. Then J = const - tr V'S V with S
= weight Y'C X B, V spans the first d eigenvectors of S, and W = B V. So one sweep reaches the global minimum,
up to the error of conjugate gradients. `ready` scales the features; b is the intercept. By default, d, the
penalty and the cut are chosen by leave-one-out predictions, in closed form for a given V (`_left_out`).

The NumPyro model has V = polar(site), where the site is a free matrix with a distribution (`_frames.Frame`)
under which polar(site) is uniform. At an optimum the site itself has orthonormal columns. W, b and the labels
are normal, the labels with precision 2 weight; the features are not modelled. The density does not change
when W and V are rotated together. If the data have several tasks, their rows are treated alike.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.kernels import tables
from bayesfac.core.math import inner, normals
from bayesfac.core.method import Axes, Choose, Method, Notes, Rotation, Solver, register
from bayesfac.core.precision import doubled
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import Units, scaled
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _frames as frames
from bayesfac.labels.models.labels._frames import Frame, polar
from bayesfac.labels.models.labels._left_out import LeftOut


class Params(NamedTuple):
    W: dict[str, jax.Array]
    V: jax.Array
    b: jax.Array
    A: jax.Array | None = None  # derived: X W


class Hyper(NamedTuple):
    n_components: int | None = None  # d; None: by rows left out
    weight: float = 1.0
    penalty: float | None = None  # None: by rows left out
    scale: float = 10.0
    scaled: bool = True  # divide features by their spread, centre dense ones
    cut: float | None = None  # labels with a higher score are predicted; None: by rows left out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows left out
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    embedding.check(data)
    if hyper.n_components is not None:
        checks.whole("n_components", hyper.n_components, len(data.labels), "the number of labels")
    checks.positive(hyper, "weight", "scale", *["penalty"] * (hyper.penalty is not None))
    hyper = labels.read(data, hyper)
    if None in (hyper.n_components, hyper.penalty) or labels.unread(hyper):
        return labels.with_reading(*left_out(ready(data, hyper), hyper))
    return hyper._replace(cut=labels.checked_cut(hyper.cut))


def left_out(data: Tasks, hyper: Hyper) -> tuple[Hyper, np.ndarray, np.ndarray]:
    """The penalty and d with the smallest squared error of rows left out; their labels and scores."""
    rows, L = LeftOut(data, centred=True), len(data.labels)
    penalty = rows.penalty() * hyper.weight if hyper.penalty is None else hyper.penalty
    lam = penalty / hyper.weight
    seen, away = rows.U.T @ rows.Y, rows(rows.Y, lam) - rows.centre
    V = np.linalg.eigh(seen.T @ ((rows.s2 / (rows.s2 + rows.share * lam))[:, None] * seen))[1]
    sizes = {hyper.n_components or -(-labels.count(data) * k // 4) for k in (1, 2, 3, 4)}
    scores = {d: rows.centre + away @ V[:, L - d :] @ V[:, L - d :].T for d in sorted(sizes)}
    best = min(scores, key=lambda d: rows.error(scores[d]))
    hyper = hyper._replace(penalty=penalty, n_components=best)
    return hyper, rows.Y, scores[best]


def ready(data: Tasks, hyper: Hyper) -> Tasks:
    return scaled(data, labels=hyper.units) if hyper.scaled else data


@doubled
def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """V has uniform random orthonormal columns; W and b are fitted to it."""
    V = frames.nearest(normals(key, (len(data.labels), hyper.n_components)))
    return given_V(V, regression(data, hyper)[0], data, hyper)


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    A, C = sides(p, data)
    total = hyper.weight * embedding.squared_error(data, A @ C.T)
    total += hyper.penalty * embedding.squared(p.W)
    total += jnp.sum(p.b**2) / (2 * hyper.scale**2)
    return total - Frame(*p.V.shape).log_prob(p.V)


def sides(p: Params, data: Tasks) -> tuple[jax.Array, jax.Array]:
    """The two factors of the mean of Y: [X W, 1] over labelled rows, and [V, b]."""
    A = jnp.hstack([embedding.codes(p, data), jnp.ones((data.n_rows, 1))])
    return data.seen(LABELS, A), jnp.hstack([polar(p.V), p.b[:, None]])


@doubled
def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """The best V, rotated towards its old value, and W and b for it."""
    B, S = regression(data, hyper)
    V = frames.turned(frames.leading(S, hyper.n_components), p.V)
    return given_V(V, B, data, hyper)


def centred(A: jax.Array, data: Tasks, hyper: Hyper) -> jax.Array:
    """C A."""
    A = data.seen(LABELS, A)
    return data.seen(LABELS, A - mean_of(A, data, hyper))


def mean_of(A: jax.Array, data: Tasks, hyper: Hyper) -> jax.Array:
    """The best b for a table A: weight n / (weight n + 1 / (2 scale^2)) times its mean."""
    ridge = 1 / (2 * hyper.scale**2)
    return hyper.weight * jnp.sum(A, 0) / (hyper.weight * int(data.labelled.sum()) + ridge)


def regression(data: Tasks, hyper: Hyper) -> tuple[jax.Array, jax.Array]:
    """B and S of the header."""
    w, (Y, _) = hyper.weight, embedding.answers_of(data, data.y[LABELS])

    def apply(W: jax.Array) -> jax.Array:
        rows = centred(embedding.times(data, W), data, hyper)
        return w * embedding.back(data, rows) + hyper.penalty * W

    right = w * embedding.back(data, centred(Y, data, hyper))
    if embedding.few_features(data):
        B = jax.scipy.linalg.solve(apply(jnp.eye(len(right))), right, assume_a="pos")
    else:
        B = embedding.conjugate(apply, right, w * embedding.squares(data) + hyper.penalty)
    return B, right.T @ B


def given_V(V: jax.Array, B: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """The parameters for a given V, with the best W = B V and b."""
    (view,) = data.names
    p = Params({view: B @ V}, V, jnp.zeros(len(V)))
    Y, _ = embedding.answers_of(data, data.y[LABELS])
    fitted = data.seen(LABELS, embedding.codes(p, data)) @ V.T
    return p._replace(b=mean_of(Y - fitted, data, hyper))


def model(data: Tasks, hyper: Hyper) -> None:
    (view,), L, d = data.names, len(data.labels), hyper.n_components
    W = numpyro.sample(f"W.{view}", labels.ridge_law(data.n_features[view], d, hyper.penalty))
    V = numpyro.sample("V", Frame(L, d))
    b = numpyro.sample("b", dist.Normal(0, hyper.scale).expand((L,)).to_event(1))
    A, C = sides(Params({view: W}, V, b), data)
    law = tables.Table(A, C, data.cells[LABELS], hyper.weight, "squared")
    numpyro.sample(f"view.{LABELS}", law, obs=data.y.get(LABELS))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    score = inner(p.A, polar(p.V), query) + p.b[query.col]
    return labels.of_labels(score, query, hyper, 0.5 / hyper.weight)


def gauge(names: tuple[str, ...]) -> tuple[Rotation, ...]:
    turning = dict.fromkeys((name for name in names if name in ("V", "A") or name[:2] == "W."), 1)
    return tuple(Rotation((W, "V"), turning) for W in names if W.startswith("W."))


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    data = frames.few_rows(key)
    return data, prepare(data, Hyper(2, 0.8, 0.6, 1.5))


# fmt: off
METHOD = register(Method(
    name="cplst", cite="chen2012cplst", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, derive=embedding.derive,
    fold_in=embedding.fold_in, prepare=prepare, ready=ready,
    solver=Solver(update=update), choose=Choose(left_out=left_out),
    axes=Axes(
        dims={"W": ("feature.{key}", "component"), "V": ("feature.labels", "component"),
            "b": ("feature.labels",), "A": ("row", "component")},
        gauge=gauge,
    ),
    notes=Notes(remarks=labels.remarks, traits=labels.LABELS_ALONE),
))
# fmt: on
