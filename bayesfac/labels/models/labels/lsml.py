r"""Least squares with a subspace of the features that all labels share (LS-ML), solved exactly.

Ji, Tang, Yu & Ye, "Extracting shared subspace for multi-label classification", KDD 2008; "A shared-subspace
learning framework for multi-label classification", ACM TKDD 2010.

    J = sum_l weight |X u_l - y_l|^2 (labelled rows) + alpha |u_l - T v_l|^2 + beta |u_l|^2,     T'T = I

    paper        here                    shape
    u_l          column of U[view]       features x labels
    Theta'       T[view]                 features x r
    v_l          row of V                labels x r
    1/n          weight                  n labelled rows
    alpha, beta  alpha, beta
    r            n_components

The method predicts many labels from features. Each label has its own weights u_l, and all labels share a
subspace of the features. Let R(c) = (weight X'X + c I)^-1 weight X'Y, the ridge regression of all labels, and
let Q be the first r eigenvectors of the labels x labels matrix R(alpha + beta)'R(beta). Then the global
minimum is

    U = R(alpha + beta) + (R(beta) - R(alpha + beta)) Q Q',     T spans R(beta) Q,     V = U'T
    J = weight |Y|^2 - weight tr Y'X R(alpha + beta) - alpha (sum of the first r eigenvalues)

So the penalty is beta in r directions of the labels, and alpha + beta in all other directions. (Proof: V and
U are closed forms of T. Inserted in J, they leave tr (T'S1 T)^-1 T'S2 T to maximise, with M = weight X'X +
(alpha + beta) I, S1 = I - alpha M^-1 and S2 = M^-1 X'YY'X M^-1. This is a generalised eigenproblem of the
features, and T = R(beta) Q makes it one of the labels.) One sweep reaches the minimum, up to the error of
conjugate gradients. `ready` scales the features and adds a constant feature, which is so large that its
coefficient is hardly penalised; it is part of T. By default alpha, beta and the cut of the scores are chosen
by leave-one-out predictions (`_left_out`). For given Q these are two ridge regressions, in closed form.

The default `weight` is 1/n, so that J is an average over rows. Labels of precision 2/n carry little
information. For a posterior, take weight = 1 and n times alpha and beta, which have the same minimum.

The NumPyro model has T = polar(site), where the site is a free matrix with a distribution (`_frames.Frame`)
under which polar(site) is uniform. The penalties are equal to a normal V with precision 2 alpha beta / (alpha
+ beta), and a normal U about s T V' with precision 2 (alpha + beta), where s = alpha / (alpha + beta). The
labels are normal, and the features are given. The density does not change when T and V are rotated together.
If the data have several tasks, their rows are treated alike.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.kernels import tables
from bayesfac.core.math import entries, normals, shared_subspace
from bayesfac.core.method import Axes, Choose, Method, Notes, Rotation, Solver, register
from bayesfac.core.precision import doubled
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import Units, varying
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _frames as frames
from bayesfac.labels.models.labels._frames import Frame, polar
from bayesfac.labels.models.labels._left_out import LeftOut, ready


class Params(NamedTuple):
    U: dict[str, jax.Array]
    T: dict[str, jax.Array]
    V: jax.Array
    A: jax.Array | None = None  # derived: X U


class Hyper(NamedTuple):
    n_components: int | None = None  # r; None: 5 floor((labels - 1) / 5), or 1, or the features
    alpha: float | None = None  # None: by rows left out
    beta: float | None = None  # None: by rows left out
    weight: float | None = None  # None: 1 / n
    scaled: bool = True  # divide features by their spread, centre dense ones, add a constant
    cut: float | None = None  # labels with a higher score are predicted; None: by rows left out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows left out
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    embedding.check(data)
    L, (view,) = labels.count(data), data.names
    limit, some = min(len(data.labels), data.n_features[view]), max(1, (L - 1) // 5 * 5)
    most = max(1, varying(data)[view])
    r = min(some, limit, most) if hyper.n_components is None else hyper.n_components
    checks.whole("n_components", r, limit, "the smaller of labels and features")
    weight = 1 / int(data.labelled.sum()) if hyper.weight is None else hyper.weight
    hyper = labels.read(data, hyper._replace(n_components=r, weight=weight))
    given = [name for name in ("alpha", "beta") if getattr(hyper, name) is not None]
    checks.positive(hyper, "weight", *given)
    if None in (hyper.alpha, hyper.beta) or labels.unread(hyper):
        return labels.with_reading(*left_out(ready(data, hyper), hyper))
    return hyper._replace(cut=labels.checked_cut(hyper.cut))


def left_out(data: Tasks, hyper: Hyper) -> tuple[Hyper, np.ndarray, np.ndarray]:
    """The penalties with the smallest squared error of rows left out; their labels and scores."""
    rows, w = LeftOut(data), hyper.weight
    usual = rows.penalty() if None in (hyper.alpha, hyper.beta) else 1.0
    alphas = (0.1, 1.0, 10.0) if hyper.alpha is None else (hyper.alpha / w / usual,)
    betas = (0.1, 0.3, 1.0) if hyper.beta is None else (hyper.beta / w / usual,)
    tried = [(a * usual, b * usual) for a in alphas for b in betas]
    scores = [without_own_row(rows, a, b, hyper.n_components) for a, b in tried]
    best = int(np.argmin([rows.error(score) for score in scores]))
    hyper = hyper._replace(alpha=w * tried[best][0], beta=w * tried[best][1])
    return hyper, rows.Y, scores[best]


def without_own_row(rows: LeftOut, a: float, b: float, r: int) -> np.ndarray:
    """The scores X U of every row by the other rows, with penalties in units of `weight`."""
    strong, weak = rows(rows.Y, a + b), rows(rows.Y, b)
    both = (rows.s2 + rows.share * (a + b)) * (rows.s2 + rows.share * b)
    seen = rows.U.T @ rows.Y
    Q = np.linalg.eigh(seen.T @ ((rows.s2 / both)[:, None] * seen))[1][:, -r:]
    return strong + (weak - strong) @ Q @ Q.T


@doubled
def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """T has uniform random orthonormal columns, and U is a ridge regression."""
    (view,) = data.names
    U = regression(data, hyper)(hyper.alpha + hyper.beta)
    T = frames.nearest(normals(key, (len(U), hyper.n_components)))
    return Params({view: U}, {view: T}, U.T @ T)


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    (U,), (T,) = p.U.values(), p.T.values()
    total = hyper.weight * embedding.squared_error(data, embedding.times(data, U))
    total += hyper.alpha * jnp.sum((U - polar(T) @ p.V.T) ** 2)
    return total + hyper.beta * jnp.sum(U**2) - Frame(*T.shape).log_prob(T)


def regression(data: Tasks, hyper: Hyper) -> Callable[[float], jax.Array]:
    """The function R: ridge regression of all labels with a penalty c."""
    Y, _ = embedding.answers_of(data, data.y[LABELS])
    right = hyper.weight * embedding.back(data, Y)
    return lambda c: embedding.ridge(data, right, c, hyper.weight)


@doubled
def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """The global minimum, with T rotated towards its old value."""
    ridge, (view,) = regression(data, hyper), data.names
    free = ridge(hyper.beta)
    U, Q = shared_subspace(ridge(hyper.alpha + hyper.beta), free, hyper.n_components)
    T = frames.turned(frames.nearest(free @ Q), p.T[view])
    return Params({view: U}, {view: T}, U.T @ T)


def model(data: Tasks, hyper: Hyper) -> None:
    (view,), L, a, b = data.names, len(data.labels), hyper.alpha, hyper.beta
    T = numpyro.sample(f"T.{view}", Frame(data.n_features[view], hyper.n_components))
    V = numpyro.sample("V", labels.ridge_law(L, hyper.n_components, a * b / (a + b)))
    about = dist.Normal(a / (a + b) * polar(T) @ V.T, (2 * (a + b)) ** -0.5)
    U = numpyro.sample(f"U.{view}", about.to_event(2))
    A = data.seen(LABELS, embedding.times(data, U))
    law = tables.Table(A, jnp.eye(L), data.cells[LABELS], hyper.weight, "squared")
    numpyro.sample(f"view.{LABELS}", law, obs=data.y.get(LABELS))


def derive(p: Params, data: Tasks, hyper: Hyper) -> dict[str, Any]:
    (U,) = p.U.values()
    return {"A": embedding.times(data, U)}


def fold_in(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """New rows have no parameters of their own."""
    return p._replace(**derive(p, data, hyper))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return labels.of_labels(entries(p.A, query), query, hyper, 0.5 / hyper.weight)


def gauge(names: tuple[str, ...]) -> tuple[Rotation, ...]:
    return tuple(Rotation((T, "V"), {T: 1, "V": 1}) for T in names if T.startswith("T."))


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    data = frames.few_rows(key)
    return data, prepare(data, Hyper(2, 0.6, 0.2, 0.7))


# fmt: off
METHOD = register(Method(
    name="lsml", cite="ji2010lsml", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, derive=derive,
    fold_in=fold_in, prepare=prepare, ready=ready,
    solver=Solver(update=update), choose=Choose(left_out=left_out),
    axes=Axes(
        dims={"U": ("feature.{key}", "feature.labels"), "T": ("feature.{key}", "component"),
            "V": ("feature.labels", "component"), "A": ("row", "feature.labels")},
        gauge=gauge,
    ),
    notes=Notes(remarks=labels.remarks, traits=labels.LABELS_ALONE),
))
# fmt: on
