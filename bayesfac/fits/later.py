"""Rows that come later. `fold_in` draws or optimises the rows of a finished fit; all other parameters stay.
`update` continues the fit with more ratings: new rows are drawn first, then all rows are swept."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.data.cards import Card, describe
from bayesfac.core.data.features import no_features
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import plain, positions_of, same_labels
from bayesfac.core.errors import BayesfacError, ConvergenceWarning, DataWarning
from bayesfac.core.method import contain, flattened, from_sites, site_dims, sites
from bayesfac.fits import new_rows
from bayesfac.fits.fitted import F, Fitted
from bayesfac.fits.new_rows import Sites
from bayesfac.fits.running import run
from bayesfac.inference.gibbs import Gibbs
from bayesfac.inference.gradient import as_rows
from bayesfac.inference.lbfgs import STUCK, advance, begin
from bayesfac.inference.result import check_sites, derived
from bayesfac.inference.unconstrained import off_edge, supports

STEPS = 500  # of the descent to new users, at most
# features that are labels of the other side: which users rated an item, and which items a user rated
PATTERNS = {"user": "implicit_item_feature", "item": "implicit_user_feature"}


def fold_in(fit: F, data: Any, rows: str = "user") -> F:
    """The fit with the rows of `data` instead of its own rows; see `Fit.fold_in`."""
    method = fit.method
    data = given = on_levels(fit.data, contain(method, data))
    axis = rows if rows in data.columns else "row"
    if rows not in ("user", "item") or (rows == "item" and axis == "row"):
        raise ValueError(f"Expected rows='user', or 'item' for ratings and counts, got {rows!r}")
    held = {site: np.asarray(value) for site, value in fit._as_draws().items()}
    by_law = _by_law(fit, data, _one(held), axis)
    _check_can(fit, data, rows, by_law)
    data, held = as_training(data, fit, held, rows)
    if by_law and not fit.is_point:
        key = jax.random.fold_in(jax.random.key(fit.seed), len(rows))
        new = new_rows.drawn(method, fit.hyper, data, held, axis, key)
    else:
        new = _fitted(fit, data, held, rows, by_law)
    # statistics of the run are still true for the parameters that stay; the log joint was that of other rows
    stats = {name: x for name, x in fit.stats.items() if name != "lp"}
    result = replace(fit.result, draws=held | new, stats=stats)
    if fit.is_point:
        every = {site: value[0, 0] for site, value in (held | new).items()}
        result = replace(fit.result, params=from_sites(method, every))
    elif method.fold_in:
        result = replace(result, stats=fit.stats)
    if method.fold_in is None:
        result = derived(method, data, fit.hyper, result)
    card = card_of_new(data, fit.data, rows, given)
    return replace(fit, result=result, data=card, recalibration=None)


def _by_law(fit: Fitted, data: Any, held: Sites, axis: str) -> bool:
    """Whether the new rows have conditional distributions, from which they are drawn.

    New rows with cells in several matrices have none, and a point fit of views has a step of its own.
    """
    method = fit.method
    if not data.alone:
        if data.site or fit.is_point or "no_fold_in" in method.notes.traits:
            return False
        if not set(new_rows.own_sites(method, held, axis)) <= set(method.solver.own_rows):
            return False
    return new_rows.drawable(method, fit.hyper, held, axis)


def _one(held: Sites) -> dict[str, np.ndarray]:
    return {site: value[0, 0] for site, value in held.items()}


def _check_can(fit: Fitted, data: Any, rows: str, by_law: bool) -> None:
    """Raise an error if the method can neither draw nor fit the rows."""
    method, why = fit.method, ""
    if by_law and "coupled" not in method.notes.traits and not fit.is_point:
        return
    if "no_fold_in" in method.notes.traits:
        why = method.notes.traits["no_fold_in"]
    elif method.fold_in is None and not data.by_pair:
        why = "it has no step for them"
    elif rows == "item" and not by_law:
        why = "new items are drawn from conditionals, which it does not have"
    if why:
        what = "a point fit" if fit.is_point else "a fit"
        raise BayesfacError(
            f"{fit.name} has no way to add rows to {what}: {why}. Fit it to all rows"
        )


def _fitted(
    fit: Fitted, data: Any, held: dict[str, np.ndarray], rows: str, by_law: bool
) -> dict[str, np.ndarray]:
    """The optimal sites of the new rows for every draw: in closed form, by a step of the method, or by
    descent."""
    method, shape = fit.method, next(iter(held.values())).shape[:2]
    if by_law and fit.is_point:
        own = new_rows.at_mean(method, held, rows, data.shape[rows == "item"])
        start = _one(held) | {site: value[0] for site, value in own.items()}
        p = from_sites(method, {site: jnp.asarray(value) for site, value in start.items()})
        if new_rows.moded(method, fit.hyper, data, p, tuple(own)):
            found = sites(new_rows.at_modes(method, fit.hyper, data, p, tuple(own)))
            check_sites(from_sites(method, found), "of the new rows")
            return {site: np.asarray(found[site])[None, None] for site in own}
    if rows == "item":
        raise BayesfacError(
            f"{fit.name} has no way to add items to a point fit: its rows are not normal. Fit draws with "
            "bf.Gibbs, which can take new items"
        )
    flat = {site: value.reshape(-1, *value.shape[2:]) for site, value in held.items()}
    new = _step_by_draw(fit, data, flat) if method.fold_in else _descend(fit, data, flat)
    return {site: value.reshape(*shape, *value.shape[1:]) for site, value in new.items()}


@singledispatch
def as_training(
    data: Any, fit: Fitted, held: dict[str, np.ndarray], rows: str
) -> tuple[Any, dict[str, np.ndarray]]:
    """The data with the columns of the training data, and the draws of the sites for their tasks."""
    card = fit.data
    if not data.by_pair:
        check_features(card, data.features)
        return fit.method.ready(data, fit.hyper), held
    other = "item" if rows == "user" else "user"
    data = _of_known(card, data, other).on(card.coords[other], other)
    if fit.method.reads_features and card.encodings:
        data = data.encoded(card.encodings, (rows,))
    data = fit.method.ready(data, fit.hyper)
    pattern = f"implicit_{other}"  # in this table the new rows would be columns
    if pattern in data.x:
        size = len(card.coords[other]), held[f"B.{pattern}"].shape[2]
        data = data.replaced(x=data.x | {pattern: no_features(*size)})
    return data, held


def on_levels(card: Card, data: Any) -> Any:
    """Ratings on the levels of training. Without levels of their own they get those; others are an error."""
    if not data.by_pair or data.levels == card.levels:
        return data
    if data.levels is not None or not data.alone:
        raise ValueError(f"Expected the levels of training, {card.levels}, got {data.levels}")
    return Ratings(data, levels=card.levels).named(data.name)


def _of_known(card: Card, data: Ratings, side: str) -> Ratings:
    """The ratings of items (or users) that training knew; a warning names the others. Without any, all."""
    labels = data.items if side == "item" else data.users
    known = positions_of(card.coords[side], labels) >= 0
    if known.all():
        return data
    every = [np.arange(size) for size in data.shape]
    every[side == "item"] = np.flatnonzero(known)
    kept = data.within(*every)
    if kept is None:
        return data
    lost = plain(labels[~known][0])
    message = (
        f"{(~known).sum()} {side}(s) that training did not know are left out, such as {lost!r}; the other "
        f"{len(kept)} of {len(data)} ratings are used"
    )
    warnings.warn(message, DataWarning, stacklevel=6)
    return kept


def _step_by_draw(fit: Fitted, data: Any, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The new rows by the method's own step, one draw after another."""
    method, step, rows = fit.method, fit.method.fold_in, []
    assert step is not None
    one = jax.jit(lambda p, data: step(p, data, fit.hyper))
    for k in range(len(next(iter(held.values())))):
        p = from_sites(method, {site: value[k] for site, value in held.items()})
        rows.append(flattened(one(p, data)._asdict()))
        check_sites(from_sites(method, rows[-1]), "of the new rows")
    return {site: np.stack([np.asarray(row[site]) for row in rows]) for site in held}


def _descend(fit: Fitted, data: Ratings, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Fit new users by descent on the method's objective, for all draws at the same time. All new users
    start at the mean of the training users, so that only their ratings make them different."""
    method, hyper = fit.method, fit.hyper
    dims = {site: site_dims(method, site) for site in held}
    axis = {site: names.index("user") + 1 for site, names in dims.items() if "user" in names}

    def many(site: str, user: np.ndarray) -> np.ndarray:
        return np.repeat(user, data.n_users, axis[site])

    # the first user gives the shapes; only sampled sites have a mean, as derived ones may be infinite
    some = {site: many(site, held[site].take([0], at)) for site, at in axis.items()}
    first = from_sites(method, {site: value[0] for site, value in (held | some).items()})
    every = supports(method, data, hyper, first)
    maps = {site: map_ for site, map_ in every.items() if site in axis}
    means = {site: many(site, held[site].mean(axis[site], keepdims=True)) for site in maps}
    start = {site: map_.inv(off_edge(map_, means[site])) for site, map_ in maps.items()}
    z, restore = as_rows(start, several=True)
    rest = {site: jnp.asarray(value) for site, value in held.items() if site not in axis}

    def users(z: jax.Array) -> dict[str, jax.Array]:
        return {site: maps[site](value) for site, value in restore(z).items()}

    def total(z: jax.Array, p: dict[str, jax.Array], data: Ratings) -> jax.Array:
        own = {site: value[0] for site, value in users(z[None]).items()}
        return method.objective(from_sites(method, p | own), data, hyper)

    slopes = jax.jit(
        lambda z, p, data: jax.lax.map(lambda zp: jax.value_and_grad(total)(*zp, data), (z, p))
    )
    points = np.array(z)

    def look(z: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points[live] = z
        value, slope = slopes(jnp.asarray(points), rest, data)
        return np.asarray(value)[live], np.asarray(slope)[live]

    at = begin(look, np.array(z))
    for _ in range(STEPS):
        if not len(at.live):
            break
        advance(look, at, memory=10, tol=0, gtol=1e-9)
    more = "more steps are needed"
    if unsolved := {why or more for why in at.why} & {STUCK, more}:
        message = f"new users of {fit.name}: {'; '.join(unsolved)}"
        warnings.warn(message, ConvergenceWarning, stacklevel=5)
    new = {site: np.asarray(value) for site, value in users(jnp.asarray(at.z)).items()}
    whole = {site: value for site, value in held.items() if site not in axis} | new
    for k in range(len(at.z)):
        one = {site: value[k] for site, value in whole.items()}
        check_sites(from_sites(method, one), "of the new rows")
    return whole


def of_training(card: Card) -> dict[str, pd.Index]:
    """The columns of every block of training, before they were scaled."""
    known = card.features
    own = card.scales.items()
    return known | {name: known[name][: len(scale.centre)] for name, scale in own}


def check_features(card: Card, features: Mapping[str, pd.Index]) -> None:
    """The new rows must have the views of training, column by column; labels may be absent."""
    known, block = of_training(card), card.form.site.removeprefix("view.")
    views, new = ([name for name in names if name != block] for names in (known, features))
    if set(views) != set(new):
        raise ValueError(f"Expected the views {views} of training, got {new}")
    for name, index in features.items():
        if not same_labels(known[name], index):
            raise ValueError(
                f"Expected the {len(known[name])} columns of {name!r} in training, got others"
            )


@singledispatch
def card_of_new(data: Any, old: Card, rows: str, given: Any) -> Card:
    """The card of the new rows, with the columns of training; `given` are these rows before scaling."""
    new = describe(data, given)
    held, counts = ("user", "row_counts") if rows == "item" else ("item", "col_counts")
    kept = {counts: getattr(old, counts)}
    for name in ("aside", "elsewhere"):
        own, theirs = getattr(new, name), getattr(old, name)
        kept[name] = own | {held: theirs[held]} if held in theirs else own
    return replace(new, **kept)


# -- more ratings ---------------------------------------------------------------------------------
def update(fit: F, data: Any, sweeps: int) -> F:
    """The fit to all of these ratings; see `Fit.update`."""
    method, card = fit.method, fit.data
    checks.whole_number("sweeps", sweeps, 0)
    if not method.data.by_pair:
        raise BayesfacError(
            f"Expected a fit of ratings or counts, got a fit of {fit.name}: fit it again"
        )
    if not fit.is_point and not method.gibbs.conditionals:
        raise BayesfacError(
            f"{fit.name} has no Gibbs conditionals, so its draws cannot be continued: fit it again"
        )
    data = on_levels(card, contain(method, data))
    for axis, labels in (("user", data.users), ("item", data.items)):
        if (lost := positions_of(labels, card.coords[axis]) < 0).any():
            raise ValueError(
                f"Expected all ratings, old and new (a fit does not store ratings), got none of "
                f"{axis} {plain(card.coords[axis][int(np.argmax(lost))])!r}"
            )
    if method.reads_features and card.encodings:
        data = data.encoded(card.encodings, tuple(card.encodings))
    settings = {"seed": (fit.seed + 1) % 2**32, "progress": False, **fit.hyper._asdict()}
    if fit.is_point:
        engine = replace(fit.engine, folder=None)  # the folder has the run of the old ratings
        return run(type(fit), method, data, engine, init=grown(fit, data, 0), **settings)
    chains, draws = next(iter(fit._as_draws().values())).shape[:2]
    engine = Gibbs(sweeps, draws, chains, jitter=0)
    if isinstance(fit.engine, Gibbs):
        # a fit that was saved with thin= has fewer draws than its engine made, with more sweeps between them
        apart = 1 if fit.partial else -(-fit.engine.draws // draws)
        size = {"draws": draws, "chains": chains, "thin": fit.engine.thin * apart}
        engine = replace(fit.engine, warmup=sweeps, jitter=0.0, folder=None, **size)
    starts = [_begun(fit, data, chain) for chain in range(chains)]
    return run(type(fit), method, data, engine, init=starts, **settings)


def grown(fit: Fitted, data: Any, chain: int) -> dict[str, np.ndarray]:
    """{site: value} of the last draw of a chain, for the users and items of `data`. New users and items get
    the mean of the known ones, also where users or items are features."""
    start = {site: np.asarray(value[chain, -1]) for site, value in fit._as_draws().items()}
    for axis, index in describe(data).coords.items():
        at = positions_of(fit.data.coords[axis], index)
        for site, value in start.items():
            for along, name in enumerate(site_dims(fit.method, site)):
                if name not in (axis, PATTERNS.get(axis)):
                    continue
                mean = value.mean(along, keepdims=True)
                start[site] = np.concatenate([value, mean], along).take(at, along)  # -1: the mean
    return start


def _begun(fit: Fitted, data: Any, chain: int) -> dict[str, np.ndarray]:
    """Where a chain begins: at its last draw, with new users and then new items drawn given all others."""
    method, p = fit.method, grown(fit, data, chain)
    data = method.ready(data, fit.hyper)
    for axis, labels in (("user", data.users), ("item", data.items)):
        new = positions_of(fit.data.coords[axis], labels) < 0
        one = {site: value[None, None] for site, value in p.items()}
        if not new.any() or not new_rows.drawable(method, fit.hyper, p, axis):
            continue
        key = jax.random.fold_in(jax.random.key(fit.seed), chain)
        for site, value in new_rows.drawn(method, fit.hyper, data, one, axis, key).items():
            along = site_dims(method, site).index(axis)
            mask = new.reshape([-1 if k == along else 1 for k in range(value.ndim - 2)])
            p[site] = np.where(mask, value[0, 0], p[site])
    return p
