"""The agreement of a method's predictions with its model and with one another."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.cards import describe
from bayesfac.core.data.cells import Grid, Known, Query, query_of
from bayesfac.core.data.linked.relations import Relations
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.laws.ordinal import Levels
from bayesfac.core.method import Method, site_dims, sites
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.by_draw import simulated
from bayesfac.inference.result import replace_sites
from bayesfac.testing.tools import Example, example, listed, require, same

STEPS = (-2.0, -0.5, 0.0, 1.0, 3.0)  # points where two laws are compared, in sds from the mean
OUTCOMES = 4000


@listed
def check_predict(method: Method, key: jax.Array) -> str | None:
    """Predictions cell by cell and as a block agree, also by programs for known cells alone; predictions
    exist also for labels without training data (-1)."""
    case = example(method, key)
    data, hyper, p = case.data, case.hyper, case.points[0]
    p = derived(case, p)
    rows = np.arange(data.shape[0])
    cols = query_of(np.argwhere(np.ones((1, *data.shape[1:])))).col
    cells = Query(np.repeat(rows, len(cols)), np.concatenate([cols] * len(rows)))
    unseen = Query(np.array([-1, 0]), cols[[0, 0]])

    @jax.jit
    def ask(p: Any) -> list[tuple[jax.Array, jax.Array]]:
        queries = Grid(rows, cols), cells, Known(*cells[:2]), unseen
        answers = [method.predict(p, query, hyper) for query in queries]
        return [(a.mean, jnp.broadcast_to(a.variance, a.mean.shape)) for a in answers]

    block, each, known, new = ask(p)
    require(block[0].shape == (len(rows), len(cols)), f"a block of predictions is {block[0].shape}")
    same([x.ravel() for x in block], each, "predictions as a block and cell by cell")
    same(known, each, "predictions of known cells alone and among any cells")
    fine = np.isfinite(new).all() and (new[1] >= 0).all()
    require(fine, "no finite prediction for a row without training data")
    return None


@listed
def check_observed(method: Method, key: jax.Array) -> str | None:
    """At the training cells `predict` gives the law of the model's observed site for the same parameters.
    Simulated outcomes, which intervals are computed from, have the mean of this law."""
    case = example(method, key)
    located = describe(case.data).locate(case.data)[0]
    query = Query(jnp.asarray(located.row), jnp.asarray(located.col))

    @jax.jit
    def ask(p: Any) -> tuple[dict[str, tuple[jax.Array, jax.Array]], jax.Array]:
        p = derived(case, p)
        outcome = method.predict(p, query, case.hyper)
        return compared(case, p, query, outcome, key), missed(outcome, key)

    pairs, errors = ask(case.points[0])
    for what, (ours, theirs) in pairs.items():
        same(ours, theirs, f"{what} of predict and of the model", 1e-8)
    # a correct cell exceeds six standard errors with probability 1e-9
    require(errors < 6, f"simulated outcomes have a mean {errors:.1f} standard errors off")
    return None


@listed
def check_unseen(method: Method, key: jax.Array) -> str | None:
    """A user and an item without training data (-1) are predicted as draws from their prior: with the mean
    and the variance of predictions whose sites of this user or item are drawn from the model."""
    case = example(method, key)
    if not isinstance(case.data, Ratings) or isinstance(case.data, Relations):
        return f"the new rows that are checked are those of Ratings and Counts, not of {method.data.__name__}"
    if case.data.host.features:
        return "the features of an unknown user or item are unknown, those of a known one are not"
    for trait in ("no_prior_predictive", "coupled"):
        if why := method.notes.traits.get(trait):
            return why
    p, nobody, first = case.points[0], jnp.array([-1]), jnp.array([0])
    for axis, query in (("user", Query(nobody, first)), ("item", Query(first, nobody))):
        own = {site for site in sites(p) if axis in site_dims(method, site)}

        def answer(p: Any, query: Query) -> jax.Array:
            outcome = method.predict(derived(case, p), query, case.hyper)
            return jnp.stack([outcome.mean[0], jnp.broadcast_to(outcome.variance, (1,))[0]])

        def anybody(key: jax.Array, own: set = own) -> jax.Array:
            held = {site: value for site, value in sites(p).items() if site not in own}
            with numpyro.handlers.block(), numpyro.handlers.trace() as trace:
                seeded = numpyro.handlers.seed(method.model, key)
                numpyro.handlers.substitute(seeded, data=held)(case.data.hide(), case.hyper)
            drawn = replace_sites(p, {site: trace[site]["value"] for site in own})
            return answer(drawn, Query(first, first))

        many = jax.jit(lambda keys: jax.lax.map(anybody, keys))(jax.random.split(key, OUTCOMES))
        told, (means, variances) = jax.jit(answer)(p, query), many.T
        spread = variances + (means - means.mean()) ** 2
        for what, ours, theirs in (("mean", told[0], means), ("variance", told[1], spread)):
            error = theirs.std() / OUTCOMES**0.5 + 1e-9
            gap = (ours - theirs.mean()) / error
            message = f"{ours:.4g}, but {theirs.mean():.4g} by draws of the prior ({gap:.1f} standard errors)"
            require(abs(gap) < 6, f"the {what} of a new {axis} is {message}")
    return None


@listed
def check_fold_in(method: Method, key: jax.Array) -> str | None:
    """At the end of the solver, training rows keep their predictions if `fold_in` adds them as new rows.

    A hundredth of the range of predictions is allowed, because some methods take a fixed number of small
    steps.
    """
    if method.fold_in is None:
        return method.notes.traits.get("no_fold_in", "the method declares no fold_in")
    case = example(method, key)
    data, hyper, p = case.data, case.hyper, derived(case, case.optimum)
    every = Grid(*map(np.arange, data.shape))

    @jax.jit
    def ask(p: Any) -> tuple[jax.Array, jax.Array]:
        folded = method.fold_in(p, data, hyper)  # type: ignore[misc]
        return tuple(method.predict(at, every, hyper).mean for at in (p, folded))

    before, after = map(np.asarray, ask(p))
    gap = np.abs(after - before).max() / np.ptp(before)
    message = (
        f"training rows that are folded in have other predictions, by {gap:.3g} of their range"
    )
    require(gap <= 0.01, message)
    return None


def derived(case: Example, p: Any) -> Any:
    """The parameters with what the method derives from them and the data."""
    method = case.method
    return p._replace(**method.derive(p, case.data, case.hyper)) if method.derive else p


def compared(
    case: Example, p: Any, query: Query, outcome: dist.Distribution, key: jax.Array
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """{what: (value of predict, value of the observed site)} at the training cells."""
    method, data, hyper = case.method, case.data, case.hyper
    if isinstance(outcome, dist.Delta):  # one more count adds log P(w | x) to the log density
        laws = pointwise.laws(method, p, data, hyper)
        parts = [
            jax.grad(lambda y, law=laws[f"view.{name}"]: jnp.sum(law.log_prob(y)))(y)
            for name, y in data.y.items()
        ]
        return {"log probabilities": (jnp.log(outcome.mean), jnp.concatenate(parts))}

    def observed(y: jax.Array) -> jax.Array:
        return pointwise.factors(method, p, data, hyper, query, y)

    if hasattr(outcome, "score"):
        # `predict` uses the centre of the model's law of a binary label as a probability
        slope = jax.grad(lambda y: jnp.sum(observed(y)))(outcome.score)
        return {"modes": (jnp.zeros_like(slope), slope)}
    if isinstance(outcome, Levels):
        values = jnp.broadcast_to(outcome.scale[:, None], (len(outcome.scale), len(query.row)))
    else:
        sd = jnp.where(jnp.isfinite(outcome.variance), outcome.variance, 1) ** 0.5
        values = possible(outcome, outcome.mean + jnp.asarray(STEPS)[:, None] * sd, key)
    # exp(-loss) is a density up to a factor for each cell, so differences between values are compared
    tables = (jax.vmap(law)(values) for law in (outcome.log_prob, observed))
    ours, theirs = (table - table.mean(0) for table in tables)
    return {"log densities": (ours, theirs)}


def possible(outcome: dist.Distribution, values: jax.Array, key: jax.Array) -> jax.Array:
    """The values, those of counts rounded, and a simulated one for each that the law cannot have."""
    support = outcome.support
    if support is None:
        return values
    values = jnp.round(values) if support.is_discrete else values
    drawn = simulated(outcome, key, len(values))
    return jnp.where(support(values), values, jnp.reshape(drawn, values.shape))


def missed(outcome: dist.Distribution, key: jax.Array) -> jax.Array:
    """The difference of the mean of simulated outcomes in standard errors, for the worst cell."""
    sd = jnp.broadcast_to(outcome.variance**0.5, outcome.mean.shape)
    gap = jnp.abs(simulated(outcome, key, OUTCOMES).mean(0) - outcome.mean)
    return jnp.max(jnp.where(jnp.isfinite(sd), gap / (sd / OUTCOMES**0.5 + 1e-9), 0))
