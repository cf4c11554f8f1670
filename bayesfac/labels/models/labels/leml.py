r"""Low-rank empirical risk minimisation (LEML) of several labels, some unknown, by alternating ridge steps.

Yu, Jain, Kar & Dhillon, "Large-scale multi-label learning with missing labels", ICML 2014, eq. 4-9.

    J(W, H) = sum_(i,l) known loss(y_il, x_i W h_l) + penalty/2 (|W|^2 + |H|^2)

    squared    (y - s)^2
    logistic   log(1 + e^s) - y s

    paper        here          shape
    W            W[view]       features x K
    H            H             labels x K
    lambda       penalty
    Omega        the cells of labelled rows that are not NaN

The method predicts many labels from features, and works with labels that are unknown in some rows. It bounds
every loss by a parabola that touches it at the present score. The curvature of the parabola is c = 2 for the
squared loss, where bound and loss are equal, and 1/4 for the logistic loss. An unknown cell costs nothing,
which lies below the parabola too. So all labels share one K x K system, H <- H - (G'A + penalty H)(c A'A +
penalty I)^-1, with A = X W and G the gradient in the scores. In the eigenvectors of H'H = Q E Q' the columns
of W separate into systems c e_k X'X + penalty I; the paper applies conjugate gradients to vec W instead. At
large scores the parabola is far above the logistic loss, and there `bf.LBFGS()` is faster. The paper's third
loss, the squared hinge, is omitted, because it is not a likelihood. `ready` scales the features and adds a
constant. By default the penalty and the cut are chosen by held-out rows (`_held_out`).

The NumPyro model has normal factors, and normal labels of precision 2 or Bernoulli labels. Unknown cells are
not in the likelihood. The density does not change when W and H are rotated together.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.math import inner, normals
from bayesfac.core.method import Axes, Choose, Method, Notes, Rotation, Solver, register
from bayesfac.core.precision import doubled
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import Units
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _held_out
from bayesfac.labels.models.labels._left_out import ready

LEAST = math.log(labels.CERTAIN / (1 - labels.CERTAIN))  # log odds below every cut


class Params(NamedTuple):
    W: dict[str, jax.Array]
    H: jax.Array
    A: jax.Array | None = None  # derived: X W


class Hyper(NamedTuple):
    n_components: int | None = None  # K; None: as many as labels, at most 100
    penalty: float | None = None  # None: by rows held out
    loss: str = "squared"
    scaled: bool = True  # divide features by their spread, centre dense ones, add a constant
    cut: float | None = None  # predict labels with a higher probability; None: by rows held out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows held out
    gaps: bool = False  # set from the data: some rows have unknown labels
    never: tuple[int, ...] = ()  # set from the data: positions of labels that no row has
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    embedding.check(data, gaps=True, binary=hyper.loss == "logistic")
    usual = min(100, labels.count(data, signs=hyper.loss == "logistic"))
    K = usual if hyper.n_components is None else hyper.n_components
    checks.whole("n_components", K, 100_000, "columns of the embedding")
    checks.positive(hyper, *["penalty"] * (hyper.penalty is not None))
    checks.one_of(hyper, "loss", tuple(embedding.CURVATURE))
    never = tuple(np.flatnonzero(~data.had).tolist())
    hyper = hyper._replace(n_components=K, never=never, gaps=not data.known.all())
    hyper = labels.read(data, hyper)
    if hyper.penalty is None or labels.unread(hyper):
        return labels.with_reading(*left_out(ready(data, hyper), hyper))
    return hyper._replace(cut=labels.checked_cut(hyper.cut))


def left_out(data: Tasks, hyper: Hyper) -> tuple[Hyper, np.ndarray, np.ndarray]:
    """The penalty with the smallest loss on rows held out, and the labels and scores of these rows."""
    return _held_out.left_out(data, hyper, embedding.CURVATURE[hyper.loss])


@doubled
def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """H is random, and W is fitted to it."""
    H = normals(key, (len(data.labels), hyper.n_components)) / len(data.labels) ** 0.5
    (view,) = data.names
    W = {view: jnp.zeros((data.n_features[view], hyper.n_components))}
    return update_W(Params(W, H), data, hyper)


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    law = scores(embedding.codes(p, data), p, data, hyper)
    return law.loss(data.y[LABELS]) + hyper.penalty / 2 * (embedding.squared(p.W, p.H))


def scores(A: jax.Array, p: Params, data: Tasks, hyper: Hyper) -> embedding.Scores:
    return embedding.Scores(A, p.H, data, hyper.loss, hyper.gaps)


@doubled
def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    return update_W(update_H(p, data, hyper), data, hyper)


def update_H(p: Params, data: Tasks, hyper: Hyper) -> Params:
    A = data.seen(LABELS, embedding.codes(p, data))
    slope = scores(A, p, data, hyper).to_labels(data.y[LABELS]) + hyper.penalty * p.H
    bend = embedding.CURVATURE[hyper.loss] * A.T @ A + hyper.penalty * jnp.eye(A.shape[1])
    return p._replace(H=p.H - jnp.linalg.solve(bend, slope.T).T)


def update_W(p: Params, data: Tasks, hyper: Hyper) -> Params:
    A = embedding.codes(p, data)
    pull = scores(A, p, data, hyper).to_rows(data.y[LABELS])
    (view,) = data.names
    slope = embedding.back(data, pull) + hyper.penalty * p.W[view]
    value, Q = jnp.linalg.eigh(p.H.T @ p.H)
    weight = embedding.CURVATURE[hyper.loss] * jnp.maximum(value, 0)
    step = embedding.ridge(data, slope @ Q, hyper.penalty, weight) @ Q.T
    return p._replace(W={view: p.W[view] - step})


def model(data: Tasks, hyper: Hyper) -> None:
    K, ridge = hyper.n_components, hyper.penalty / 2
    (view,) = data.names
    W = numpyro.sample(f"W.{view}", labels.ridge_law(data.n_features[view], K, ridge))
    H = numpyro.sample("H", labels.ridge_law(len(data.labels), K, ridge))
    law = embedding.Scores(embedding.times(data, W), H, data, hyper.loss, hyper.gaps)
    numpyro.sample(f"view.{LABELS}", law, obs=data.y.get(LABELS))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    score = inner(p.A, p.H, query)
    if hyper.loss == "squared":
        return labels.of_labels(score, query, hyper, 0.5)
    # because of the penalty, a label that no row has could keep odds above the smallest cuts
    never = jnp.isin(query.col, jnp.asarray(hyper.never, int))
    return labels.of_odds(jnp.where(never, jnp.minimum(score, LEAST), score), hyper.cut)


def gauge(names: tuple[str, ...]) -> tuple[Rotation, ...]:
    turning = dict.fromkeys((name for name in names if name in ("H", "A") or name[:2] == "W."), 1)
    return tuple(Rotation((W, "H"), turning) for W in names if W.startswith("W."))


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    data = labels.one_view(key, gaps=True)
    return data, prepare(data, Hyper(2, 0.6, "logistic"))


# fmt: off
METHOD = register(Method(
    name="leml", cite="yu2014leml", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, derive=embedding.derive,
    fold_in=embedding.fold_in, prepare=prepare, ready=ready,
    solver=Solver(update=update), choose=Choose(left_out=left_out),
    axes=Axes(
        dims={"W": ("feature.{key}", "component"), "H": ("feature.labels", "component"),
            "A": ("row", "component")},
        gauge=gauge,
    ),
    notes=Notes(remarks=labels.remarks, traits=labels.LABELS_ALONE),
))
# fmt: on
