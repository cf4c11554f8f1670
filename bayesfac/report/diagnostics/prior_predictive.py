"""Draw data sets from the prior of a method, and compare them with the data."""

from dataclasses import dataclass
from functools import cached_property, partial, singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import scipy.sparse as sp

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.core import checks
from bayesfac.core.data.cells import Query
from bayesfac.core.data.counts import Counts
from bayesfac.core.data.views import Views
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.units import unit_of
from bayesfac.core.method import Method, contain, lookup, settle
from bayesfac.inference import joint
from bayesfac.report import drawing
from bayesfac.report.diagnostics.findings import Finding, Judged
from bayesfac.report.pages.templates import number, percent
from bayesfac.report.plots.figure import Picture, colour, panel, short

Drawn = tuple[dict[str, tuple[np.ndarray, ...]], np.ndarray]
CELLS = 2**14  # the largest number of cells of the data that are drawn
NUMBERS = {
    "mean": lambda y: y.mean(1),
    "sd": lambda y: y.std(1),
    "lowest": lambda y: y.min(1),
    "highest": lambda y: y.max(1),
}


@dataclass(frozen=True, eq=False)
class PriorPredictive(Judged):
    """Outcomes drawn from the prior at cells of the data.

    Attributes
    ----------
    outcomes : array
        draws x cells.
    seen : array
        The values of the data in these cells; for `wrmf` the preferences, which are 1 if a pair was counted.
    scale : (float, float)
        The range of possible outcomes: half a level beyond the end levels, or the range of the data.
    """

    name: str
    outcomes: np.ndarray
    seen: np.ndarray
    scale: tuple[float, float]
    kind: str

    @property
    def outside(self) -> float:
        """The share of outcomes outside the scale."""
        low, high = self.scale
        return float(((self.outcomes < low) | (self.outcomes > high)).mean())

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Mean, sd, lowest and highest outcome: of the data, and quantiles of the drawn data sets.

        `rank` is the share of drawn data sets below the data; ties count half.
        """
        rows = {}
        for what, statistic in NUMBERS.items():
            drawn, here = statistic(self.outcomes), float(statistic(self.seen[None])[0])
            low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
            rank = float((drawn < here).mean() + (drawn == here).mean() / 2)
            rows[what] = {"data": here, "5 %": low, "median": middle, "95 %": high, "rank": rank}
        return pd.DataFrame.from_dict(rows, orient="index")

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Whether the range, the mean and the sd of the data are likely under the prior."""
        return _range(self), _centre(self), _spread(self)

    def __repr__(self) -> str:
        draws, cells = self.outcomes.shape
        head = f"Prior predictive of {self.name}: {draws} draws of {cells:,} {self.kind}"
        table = self.summary.to_string(float_format=lambda x: f"{x:.3g}")
        return "\n".join([head, *(f"  {f.marked}" for f in self.findings), "", table])

    def picture(self) -> Picture:
        """Distribution functions of the data and of the data sets drawn from the prior."""
        low, high = np.quantile(self.outcomes, [0.01, 0.99])
        margin = (self.scale[1] - self.scale[0]) / 20
        ends = min(low, self.scale[0] - margin), max(high, self.scale[1] + margin)
        grid = np.linspace(*ends, 401)
        curves = np.stack([_shares(one, grid) for one in self.outcomes])
        below, middle, above = np.quantile(curves, [0.05, 0.5, 0.95], axis=0)
        title = short(f"{self.name}: before it sees any data", 60)
        with panel(title, "outcome", "share at or below", legend="") as (figure, axes):
            axes.fill_between(grid, below, above, color=colour(0), alpha=0.25, lw=0)
            axes.plot(grid, middle, color=colour(0), label="drawn from the prior")
            axes.plot(grid, _shares(self.seen, grid), color=colour(1), label="the data")
            for end in self.scale:
                axes.axvline(end, color=drawing.GREY, ls=":")
            axes.legend(loc="lower center", bbox_to_anchor=(0.66, 0.02))
        how = "Blue: the middle and 90 % of data sets drawn from the prior; orange: the data, which should "
        how += "run through the blue; dotted: the range of possible outcomes."
        finding = Finding(self.level, f"Here: {self.findings[0].text}")
        return Picture(figure, f"Prior predictive of {self.name}", how, finding)


def prior_predictive(
    method: str | Method, data: Any, *, draws: int = 200, seed: int = 0, **hyper: Any
) -> PriorPredictive:
    """Draw data sets from a method's prior, at the cells of the data.

    If most of the drawn outcomes are impossible, or if the data are unlikely under the prior, a scale of the
    prior is wrong. As in a fit, missing hyper-parameters are set from the data. The prior of `pmf` then
    matches the data by design. Hierarchical models such as `bpmf` and `ordinal_mf` have wide priors of means
    and precisions, and the findings say so.

    If the prior has factors that are not densities, draws are chosen from a large pool, with the factors as
    weights. It is an error if too few draws would be chosen, if a factor depends on the data, or if a view
    has features that are not counts, because topic models draw whole counts.

    Parameters
    ----------
    method : str
        A name from `bf.methods()`.
    data : Ratings, Views, Tasks, or their input
        At most 16,384 random cells are drawn. For views they include zeros; for tasks they are labels.
    draws : int
        The number of data sets.
    **hyper
        The method's hyper-parameters.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> prior = bf.prior_predictive("pmf", ratings, draws=50, n_components=2)
    >>> prior.outcomes.shape == (50, len(ratings)), prior.level
    (True, 'good')
    >>> bf.prior_predictive("pmf", ratings, draws=50, n_components=2, scale_user=30.0).level
    'care'
    """
    method = lookup(method)
    checks.whole("draws", draws, 10**6, "data sets")
    data = contain(method, data)
    if not data.two_way:
        raise BayesfacError(f"Expected data with two axes to draw from a prior, got {data!r}")
    settled = settle(method, data, hyper)
    if why := method.notes.traits.get("no_prior_predictive"):
        raise BayesfacError(f"{method.name} has no prior predictive: {why}")
    data = method.ready(data, settled)
    _check_counts(method, data)
    where, seen = cells_of(data, checks.generator(seed))
    # in single precision, one of a few hundred precision matrices of a wide prior cannot be inverted
    with jax.enable_x64(True):
        outcomes = _outcomes(method, joint.doubled(data), settled, where, draws, seed)
    if data.site:
        mean, sd = map(np.asarray, unit_of(settled, Query(*where[data.site])))
        outcomes, seen = (mean + sd * y for y in (outcomes, seen))
    if not np.isfinite(outcomes).all():
        raise BayesfacError(f"{method.name} drew NaN or infinity from its prior: check its scales")
    return PriorPredictive(method.name, outcomes, seen, _scale(data, seen), f"{data.unit}s")


def _check_counts(method: Method, data: Any) -> None:
    """Raise an error for views whose features are not whole counts: the model draws whole counts."""
    if data.site:
        return
    for name in data.names:
        values = data[name].data
        if len(part := values[values != np.rint(values)]):
            raise BayesfacError(
                f"{method.name} has no prior predictive with these settings: it draws whole counts, and the "
                f"features of {name!r} are real numbers ({part[0]:.3g}); pass counts and scale='none'"
            )


def _outcomes(
    method: Method, data: Any, hyper: Any, where: Any, draws: int, seed: int
) -> np.ndarray:
    """draws x cells."""
    hidden = joint.hidden(method, data)
    if data.listed and not data.implicit:
        query = Query(*map(jnp.asarray, where["rating"]))
        hidden = data.replaced(cells=query, y=None)
    factors = _check_proper(method, data, hyper)
    keys = jax.random.split(jax.random.key(seed), draws)
    if factors:
        keys = _weighted(method, data, hidden, hyper, jax.random.key(seed), draws)
    return np.asarray(_draw(method, hyper, keys, hidden, where), np.float64)


@partial(jax.jit, static_argnums=(0, 1))
def _draw(method: Method, hyper: Any, keys: jax.Array, hidden: Any, where: Any) -> jax.Array:
    """draws x cells, one draw after the other, so that parameters need not be stored."""

    def one(key: jax.Array) -> jax.Array:
        seeded = numpyro.handlers.seed(method.model, key)
        sites = numpyro.handlers.trace(seeded).get_trace(hidden, hyper)
        drawn = [(sites[site]["value"], at) for site, at in where.items()]
        # a vector holds ratings, which were drawn at these cells only
        return jnp.concatenate([value[at] if value.ndim == 2 else value for value, at in drawn])

    return jax.lax.map(one, keys)


@partial(jax.jit, static_argnums=(0, 1))
def _log_factors(method: Method, hyper: Any, keys: jax.Array, hidden: Any) -> jax.Array:
    def one(key: jax.Array) -> jax.Array:
        seeded = numpyro.handlers.seed(method.model, key)
        return joint.log_factors(numpyro.handlers.trace(seeded).get_trace(hidden, hyper))

    return jax.lax.map(one, keys)


def _weighted(
    method: Method, data: Any, hidden: Any, hyper: Any, key: jax.Array, draws: int
) -> jax.Array:
    """Keys of draws from the prior with its factors."""
    if name := joint.data_factor(method, data, hyper):
        why = joint.DEPENDS.format(name)
    else:
        truths = joint.chosen(lambda k: _log_factors(method, hyper, k, hidden), key, draws)
        if not (why := truths.reason):
            return truths.keys
    raise BayesfacError(f"{method.name} has no prior predictive with these settings: {why}")


@singledispatch
def cells_of(data: Any, rng: np.random.Generator) -> Drawn:
    """{site: rows and columns} of random cells, and the values of the data in these cells."""
    at = some(len(data), rng)
    return {data.site: tuple(data.code[at].T)}, data.value[at]


@cells_of.register
def _of_counts(data: Counts, rng: np.random.Generator) -> Drawn:
    """Zeros too. Of counts with confidences the model explains the preferences, 0 and 1."""
    at = some(data.n_users * data.n_items, rng)
    user, item = np.divmod(at, data.n_items)
    value = data.value if data.weight is None else np.asarray(data.y, float)
    table = sp.csr_matrix((value, (data.user, data.item)), data.shape)
    return {"rating": (user, item)}, np.asarray(table[user, item]).ravel()


@cells_of.register
def _of_views(data: Views, rng: np.random.Generator) -> Drawn:
    """Zeros too."""
    where, seen = dict[str, tuple[np.ndarray, ...]](), []
    for name in data.names:
        table = data[name]
        at = some(table.shape[0] * table.shape[1], rng, len(data.names))
        row, col = np.divmod(at, table.shape[1])
        where[f"view.{name}"] = row, col
        seen.append(np.asarray(table[row, col], float).ravel())
    return where, np.concatenate(seen)


def some(n: int, rng: np.random.Generator, views: int = 1) -> np.ndarray:
    """Random numbers below n, of which each of several views has its share."""
    return np.sort(rng.choice(n, min(n, CELLS // views), replace=False))


def _check_proper(method: Method, data: Any, hyper: Any) -> list[str]:
    """Refuse improper priors, from which nothing can be drawn; return the names of factors."""
    flat, factors = list[str](), list[str]()

    def hold(site: dict[str, Any]) -> jax.Array | None:
        law: Any = site["fn"] if site["type"] == "sample" else None
        if isinstance(law, dist.Unit):
            factors.append(site["name"])
        whole: Any = law
        while hasattr(law, "base_dist"):
            law = law.base_dist
        if not isinstance(law, dist.ImproperUniform):
            return None
        flat.append(site["name"])
        return jnp.ones(whole.shape())

    held = numpyro.handlers.substitute(method.model, substitute_fn=hold)
    # with the values of the data, as a factor may depend on them
    jax.eval_shape(lambda key: numpyro.handlers.seed(held, key)(data, hyper), jax.random.key(0))
    if flat:
        raise BayesfacError(
            f"{method.name} has no prior predictive with these settings: its prior of {', '.join(flat)} is "
            "flat, and a flat prior cannot be drawn from"
        )
    return factors


def _scale(data: Any, seen: np.ndarray) -> tuple[float, float]:
    levels = (0.0, 1.0) if data.implicit and data.weight is not None else data.levels
    if levels is None:
        return float(seen.min()), float(seen.max())
    return (3 * levels[0] - levels[1]) / 2, (3 * levels[-1] - levels[-2]) / 2


def _shares(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.sort(values), grid, side="right") / len(values)


def _range(prior: PriorPredictive) -> Finding:
    """At least half of the outcomes should be possible."""
    low, high = prior.scale
    text = f"{percent(prior.outside)} of the outcomes lie beyond {number(low)} to {number(high)}."
    if prior.outside > 0.5:
        return Finding("care", text, "The prior is too wide: make its scales smaller.")
    return Finding("good", text)


def _centre(prior: PriorPredictive) -> Finding:
    """The data's mean should lie within one sd of the mean of the outcomes."""
    centre, sd, mean = prior.outcomes.mean(), prior.outcomes.std(), prior.seen.mean()
    text = f"The data's mean is {number(mean)}, the prior's is {number(centre)} ± {number(sd)}."
    if abs(mean - centre) > sd:
        return Finding("care", text, "The prior is off centre: set the offset to the data's mean.")
    return Finding("good", text)


def _spread(prior: PriorPredictive) -> Finding:
    """The data's sd should be at most twice the sd of a drawn data set.

    Where levels end the scale, a wide prior also makes a data set of nearly equal outcomes, all at one end;
    such data sets differ from one another.
    """
    sd, typical = prior.seen.std(), float(np.median(prior.outcomes.std(1)))
    text = f"The data's sd is {number(sd)}, that of the prior's draws {number(typical)}."
    if sd > 2 * typical and prior.outcomes.std() > sd:
        text += " Outcomes are alike within a draw and differ between draws."
        return Finding("care", text, "The prior of the centre is too wide: make its scale smaller.")
    if sd > 2 * typical:
        return Finding("care", text, "The prior is too narrow: make its scales larger.")
    return Finding("good", text)
