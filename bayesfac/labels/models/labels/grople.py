r"""Group preserving label embedding (GroPLE), by proximal gradients and Newton steps.

Kumar, Pujari, Padmanabhan & Kagita, "Group preserving label embedding for multi-label classification",
Pattern Recognition 2019; numbers as in Kumar's thesis (2018), eq. 6.1-6.15.

    J = |2Y - 1 - U V'|^2 + ridge |U|^2 (labelled rows) + sparsity sum_k sum_r |V[group k, r]|
        + coupling (|X Z - U|^2 + tr((alpha R + gamma I) Z'Z) + beta |Z|_1),     R = 1 - corr(U)

    paper                  here              shape
    U                      U                 rows x d
    V = (V^1, ..., V^K)    V                 labels x d: transposed; V^k is the rows of group k
    Z                      Z[view]           features x d
    lambda_1, lambda_2     ridge, sparsity
    alpha, beta            the same; gamma is an addition
    R                      1 - corr(U)       d x d: over labelled rows

The method predicts many labels from features, and uses groups of similar labels. The thesis minimises (6.1)
over U and V, and then (6.11) over Z with that U. Here both are one J. With a small coupling, U and V hardly
depend on X, as in the thesis; with a larger one the features influence the embedding too.

R has a zero diagonal, so unless R = 0 it has an eigenvalue -r < 0, with eigenvector q. With more features
than rows, X w = 0 for some w. Then Z + t w q' adds -alpha r t^2 |w|^2 and terms linear in |t| to (6.11). So
(6.11) has no minimum for any alpha > 0, and J has no posterior. The term gamma corrects this. The largest r
of any U is the root of 4 floor(d/2) ceil(d/2): with signs s of q, q'(corr(U) - 11')q <= (s'q)^2 - (1'q)^2.
`prepare` refuses a gamma below alpha times this r if there are more features than labelled rows. The default
is alpha d. In other cases `remarks` warns if a smaller gamma makes the problem of Z non-convex. The printed
gradient alpha Z R lacks a factor 2, and (6.14) adds a D x D and a d x d table. The printed start of Z lacks
X'U; here Z starts at zero, and U and V at the first singular vectors of 2Y - 1.

A sweep updates V, U and Z, and then all three together. Z: passes of coordinate descent set every entry to
its exact minimum, instead of the printed gradient steps; in one entry J is convex for every R, because the
diagonal of R is zero. V: one proximal gradient step for all groups at once, on the d x d table U'U. U: a step
through (V'V + (ridge + coupling) I)^-1, which is the exact minimum if alpha is 0, and is halved until J does
not rise. Before V and U, every column is rescaled (s U, V / s, s Z). These steps decide which groups of V and
which entries of Z are zero. The others move together by a Newton step (`_grople_joint`), because U M and V
M^-T fit the labels equally well for any M, and alternating steps are slow in those directions. A training row
without labels has U at its x Z; it affects only the scales of features (`ready`). A new row changes nothing.

The NumPyro model has normal labels of precision 2, V with a multivariate Laplace law in each column of each
group, Laplace Z, normal U around X Z, and the factor exp(-ridge |U|^2 - coupling tr((alpha R + gamma I)
Z'Z)). The posterior is *generalised*. Its density does not change when columns are reordered; signs are
determined, as R depends on them. If the data have several tasks, their rows are treated alike.

Length: more than 300 lines with the private files. J has two non-smooth penalties, each with its own step,
and the method needs a spectral clustering of labels and a law for V.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks, events
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.kernels import tables
from bayesfac.core.math import inner
from bayesfac.core.method import Axes, Choose, Method, Notes, Permutation, Solver, register
from bayesfac.core.precision import doubled
from bayesfac.labels import laws as answers
from bayesfac.labels.data.scaling import Units
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _grople_groups as label_groups
from bayesfac.labels.models.labels import _grople_steps as steps
from bayesfac.labels.models.labels._grople_groups import GroupLaplace
from bayesfac.labels.models.labels._grople_joint import joint
from bayesfac.labels.models.labels._left_out import ready

BETAS = (0.1, 1.0)  # candidates for beta
PASSES, FIRST = 3, 10  # passes over the entries of Z, in a sweep and at the start


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    Z: dict[str, jax.Array]


class Hyper(NamedTuple):
    n_components: int | None = None  # d; None: one per label, at most 100; absent labels share one
    n_groups: int | None = None  # K; None: one per label, at most 10; absent labels share one
    ridge: float = 1e-3
    sparsity: float = 1.0
    coupling: float = 0.1
    alpha: float = 0.01
    beta: float | None = None  # None: by rows held out
    gamma: float | None = None  # None: alpha d
    groups: tuple[int, ...] | None = None  # the group of every label; None: spectral clustering
    scaled: bool = True  # divide features by their spread, centre dense ones, add a constant
    cut: float | None = None  # labels with a higher score are predicted; None: by rows held out
    label_sd: float | tuple[float, ...] | None = None  # of numbers; None: by rows held out
    binary: bool = True  # set from the data: labels are 0 and 1
    units: Units = ()  # set from the data: mean and sd of labels that are numbers


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    embedding.check(data)
    answers.checked_cut(hyper.cut)
    if hyper.beta is None:
        hyper = hyper._replace(beta=BETAS[0])
    d = hyper.n_components
    d = min(100, answers.count(data, signs=True)) if d is None else d
    checks.whole("n_components", d, 100_000, "columns of the embedding")
    if hyper.alpha != 0:
        checks.positive(hyper, "alpha")
    gamma = hyper.alpha * d if hyper.gamma is None else hyper.gamma
    groups = label_groups.checked(data, hyper.groups, hyper.n_groups)
    hyper = hyper._replace(n_components=d, gamma=gamma, groups=groups, n_groups=max(groups) + 1)
    checks.positive(hyper, "ridge", "sparsity", "coupling", "beta", *["gamma"] * (gamma != 0))
    steps.bounded(data, hyper)
    return answers.read(data, hyper)


def choices(data: Tasks, hyper: Hyper, chosen: Any) -> list[dict[str, float]]:
    """Candidates for beta, the weight of the absolute values of Z."""
    return [] if hyper.beta is not None or chosen else [{"beta": one} for one in BETAS]


@doubled
def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    """Singular vectors of 2Y - 1, scaled to minimise the `ridge` and `sparsity` terms; Z fitted to them."""
    U, V = steps.singular(key, data, hyper.n_components)
    norms = hyper.sparsity * jnp.sum(label_groups.norms(V, hyper.groups), 0)
    size = 2 * hyper.ridge * jnp.sum(U**2, 0)
    s = jnp.cbrt(jnp.where(size > 0, norms / jnp.where(size > 0, size, 1), 1))
    (view,) = data.names
    none = jnp.zeros((data.n_features[view], V.shape[1]), V.dtype)
    Z = steps.step_Z(none, s * U, data, hyper, FIRST)
    return Params(jnp.where(steps.rows(data), s * U, embedding.times(data, Z)), V / s, {view: Z})


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    (Z,), y, known = p.Z.values(), data.y[LABELS], steps.rows(data)
    at = steps.Point(p.U, p.V, Z, steps.forth(data, p.V), embedding.times(data, Z))
    away = jnp.where(known, 0, at.XZ - p.U)
    constant = 4 * jnp.sum(y**2 - y) + hyper.coupling * jnp.sum(away**2)
    return constant + steps.cost(at, known, hyper)


def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """Rescale columns; steps of V (6.4), U (6.3) and Z (6.11); then one step of all three."""
    (view,), known = data.names, steps.rows(data)
    at = steps.Point(p.U, p.V, p.Z[view], steps.forth(data, p.V), embedding.times(data, p.Z[view]))
    at = steps.stretched(at, known, hyper)
    V = steps.step_V(at, steps.signs_back(data, at.U), known, hyper)
    at = at._replace(V=V, YV=steps.forth(data, V))
    U, short = steps.step_U(at, known, hyper)
    events.tell("the step of (6.3) was shortened", short)
    Z = steps.step_Z(at.Z, U, data, hyper, PASSES)
    at = joint(at._replace(U=U, Z=Z, XZ=embedding.times(data, Z)), data, hyper)
    return Params(jnp.where(known, at.U, at.XZ), at.V, {view: at.Z})


def model(data: Tasks, hyper: Hyper) -> None:
    (view,), d = data.names, hyper.n_components
    rate = hyper.coupling * hyper.beta
    law = dist.Laplace(0, 1 / rate).expand((data.n_features[view], d))
    Z = numpyro.sample(f"Z.{view}", law.to_event(2))
    V = numpyro.sample("V", GroupLaplace(hyper.groups, d, hyper.sparsity))
    near = dist.Normal(embedding.times(data, Z), (2 * hyper.coupling) ** -0.5)
    U = numpyro.sample("U", near.to_event(2))
    numpyro.factor("bound", -steps.bound(U, Z, steps.rows(data), hyper))
    scores = data.seen(LABELS, jnp.pad(U, ((0, 0), (0, 1)), constant_values=1)) / 2
    sides = jnp.pad(V, ((0, 0), (0, 1)), constant_values=1)  # Y is near (U V' + 1) / 2
    labels = tables.Table(scores, sides, data.cells[LABELS], 4.0, "squared")
    numpyro.sample(f"view.{LABELS}", labels, obs=data.y.get(LABELS))


def fold_in(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """New rows have U at x Z; new rows with labels have it at the minimum of their own terms of J."""
    (Z,) = p.Z.values()
    XZ = embedding.times(data, Z)
    if LABELS not in data.blocks:
        return p._replace(U=XZ)
    A = p.V.T @ p.V + (hyper.ridge + hyper.coupling) * jnp.eye(p.V.shape[1])
    known = steps.rows(data)
    right = steps.signs(steps.forth(data, p.V), p.V, known) + hyper.coupling * XZ
    return p._replace(U=jnp.where(known, jnp.linalg.solve(A, right.T).T, XZ))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return answers.of_labels((inner(p.U, p.V, query) + 1) / 2, query, hyper, 0.125)


def remarks(p: Params, data: Tasks, hyper: Hyper) -> list[str]:
    """Notes on labels that cannot be learned, and a warning if the problem of Z is not convex."""
    notes = answers.remarks(p, data, hyper)
    least = float(jnp.linalg.eigvalsh(steps.curvature(p.U, steps.rows(data), hyper))[0])
    if least < -1e-6 * hyper.alpha * p.V.shape[1]:
        worst = f"alpha R + gamma I has an eigenvalue of {least:.3g}"
        notes.append(
            f"{worst}: J may have no minimum, and the fit is at best a local minimum; raise gamma"
        )
    return notes


def gauge(names: tuple[str, ...]) -> tuple[Permutation, ...]:
    return tuple(Permutation({"U": 1, "V": 1, Z: 1}) for Z in names if Z.startswith("Z."))


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    data = answers.one_view(key)
    return data, prepare(data, Hyper(2, 1, 0.3, 0.5, 0.6, 0.2, 0.4))


# fmt: off
METHOD = register(Method(
    name="grople", cite="kumar2019grople", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, fold_in=fold_in,
    prepare=prepare, ready=ready,
    solver=Solver(update=update), choose=Choose(candidates=choices),
    axes=Axes(
        dims={"U": ("row", "component"), "V": ("feature.labels", "component"),
            "Z": ("feature.{key}", "component")},
        gauge=gauge,
    ),
    notes=Notes(remarks=remarks, traits=answers.LABELS_ALONE),
))
# fmt: on
