r"""Shares only: how often each label occurs, overall and in each task. The features are not used.

Lindley & Smith, "Bayes Estimates for the Linear Model", JRSS B 34, 1972: means of groups shrunk towards
their common mean; the solver takes the exact optimum of each block in turn.

    J(b, d) = w sum_il (y_il - b_l - d_t(i)l)^2 + r |b|^2 + q |d|^2,    over the labelled rows i

    paper       here              shape
    mu          b                 labels
    theta - mu  d                 tasks x labels
    1/2 s^2     weight, w
    -           ridge, r
    1/2 s_d^2   penalty, q
    -           D, derived: d_t(i), the row's own       rows x labels

A letter of the paper may be used in this file once this table names the letter. The fields of Params
are the sample sites of `model`, so a point, a draw and a prediction have the same names.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.kernels import tables
from bayesfac.core.math import inner, pick
from bayesfac.core.method import Axes, Method, Notes, Sampler, Solver, register
from bayesfac.labels import laws as labels
from bayesfac.labels.data.tasks import LABELS, Tasks


class Params(NamedTuple):
    b: jax.Array
    d: jax.Array
    D: jax.Array | None = None  # derived


class Hyper(NamedTuple):
    weight: float = 1.0
    ridge: float = 0.1
    penalty: float = 1.0
    binary: bool = True  # `prepare` sets this: whether all labels are 0 or 1


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    """Refuse wrong settings, and compute settings that depend on the data."""
    labels.check(data)
    checks.positive(hyper, "weight", "ridge", "penalty")
    return hyper._replace(binary=data.binary)


def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    kb, kd = jax.random.split(key)
    L = len(data.labels)
    return Params(jax.random.normal(kb, (L,)), jax.random.normal(kd, (data.n_tasks, L)))


def table(p: Params, data: Tasks) -> tuple[jax.Array, jax.Array]:
    """Two factors of the expected labels: b + d_t(i) in every labelled row i, and the identity."""
    return data.seen(LABELS, p.b + p.d[data.task]), jnp.eye(len(p.b))


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    """Priors included: minus the log joint of `model`, up to a constant."""
    fit = tables.squared_error(data.cells[LABELS], data.y[LABELS], *table(p, data))
    return hyper.weight * fit + hyper.ridge * jnp.sum(p.b**2) + hyper.penalty * jnp.sum(p.d**2)


def totals(data: Tasks) -> tuple[jax.Array, jax.Array]:
    """The labelled rows of every task (tasks x 1), and the sums of their labels (tasks x labels)."""
    y, cells = data.y[LABELS], data.cells[LABELS]
    sums = jnp.zeros((data.n_tasks, len(data.labels)), y.dtype)
    rows = jnp.asarray(data.host.labelled, y.dtype)[:, None]
    return rows, sums.at[jnp.asarray(data.task)[cells.row], cells.col].add(y)


def conditional_b(p: Params, data: Tasks, hyper: Hyper) -> dist.Distribution:
    """b | d, y: precision 2 w n + 2 r."""
    n, y = totals(data)
    precision = 2 * (hyper.weight * jnp.sum(n) + hyper.ridge)
    mean = 2 * hyper.weight * jnp.sum(y - n * p.d, 0) / precision
    return dist.Normal(mean, precision**-0.5).to_event(1)


def conditional_d(p: Params, data: Tasks, hyper: Hyper) -> dist.Distribution:
    """d | b, y: in task t precision 2 w n_t + 2 q."""
    n, y = totals(data)
    precision = 2 * (hyper.weight * n + hyper.penalty)
    return dist.Normal(2 * hyper.weight * (y - n * p.b) / precision, precision**-0.5).to_event(2)


def update(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """One sweep: each block moves to the mean of its conditional, so the objective never rises."""
    p = p._replace(b=conditional_b(p, data, hyper).mean)
    return p._replace(d=conditional_d(p, data, hyper).mean)


def model(data: Tasks, hyper: Hyper) -> None:
    """The generative twin; the observed site has the name that the container expects."""
    L = len(data.labels)
    b = numpyro.sample("b", dist.Normal(0, (2 * hyper.ridge) ** -0.5).expand((L,)).to_event(1))
    d = numpyro.sample("d", labels.ridge_law(data.n_tasks, L, hyper.penalty))
    law = tables.Table(*table(Params(b, d), data), data.cells[LABELS], hyper.weight, "squared")
    numpyro.sample(f"view.{LABELS}", law, obs=data.y.get(LABELS))


def derive(p: Params, data: Tasks, hyper: Hyper) -> dict[str, jax.Array]:
    """Prediction asks by row: the share of the row's task."""
    return {"D": p.d[data.task]}


def fold_in(p: Params, data: Tasks, hyper: Hyper) -> Params:
    """New rows have the shares of their task."""
    return p._replace(**derive(p, data, hyper))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """A label, for one value of Params; engines map `predict` over draws. An unknown task has score b."""
    score = pick(p.b, query.col) + inner(p.D, jnp.eye(len(p.b)), query)
    return labels.of_labels(score, query, hyper, 0.5 / hyper.weight)


def example(key: jax.Array) -> tuple[Tasks, Hyper]:
    """Nine rows in two tasks, tiny: the contract runs on this example."""
    data = labels.few_tasks(key)
    return data, prepare(data, Hyper(0.8, 0.3, 0.6))


METHOD = register(
    Method(
        name="skeleton_labels",
        cite="lindley1972bayes",
        data=Tasks,
        Params=Params,
        Hyper=Hyper,
        prepare=prepare,
        init=init,
        objective=objective,
        model=model,
        derive=derive,
        fold_in=fold_in,
        predict=predict,
        example=example,
        solver=Solver(update=update),
        gibbs=Sampler(conditionals={"b": conditional_b, "d": conditional_d}),
        axes=Axes(
            dims={
                "b": ("feature.labels",),
                "d": ("task", "feature.labels"),
                "D": ("row", "feature.labels"),
            },
        ),
        notes=Notes(traits=labels.LABELS_ALONE),
    )
)
