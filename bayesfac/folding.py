"""Add new rows to a finished fit: fit their parameters, hold all others."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.data.cards import Card, describe
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import plain, positions_of, same_labels
from bayesfac.core.data.scaling import raw_features, rescaled
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.data.views import Views
from bayesfac.core.errors import BayesfacError, ConvergenceWarning
from bayesfac.core.method import contain, flattened, from_sites, site_dims
from bayesfac.inference.gradient import as_rows
from bayesfac.inference.lbfgs import STUCK, advance, begin
from bayesfac.inference.result import Result, check_sites, derived
from bayesfac.inference.unconstrained import off_edge, supports

if TYPE_CHECKING:
    from bayesfac.api import Fit

STEPS = 500  # of the descent to new users, at most


def fold_in(fit: "Fit", data: Any) -> "Fit":
    """The fit with the rows of `data` instead of its own rows; see `Fit.fold_in`.

    Views and tasks must have the features of training, and the tasks must be tasks of training; labels of
    new rows are used. Rated items must be items of training, on the same scale. The parameters of new rows
    are optimised for each draw, so their own uncertainty is left out.
    """
    method = fit.method
    data = contain(method, data)
    if "no_fold_in" in method.traits or method.fold_in is None and not isinstance(data, Ratings):
        why = method.traits.get("no_fold_in", "it has no step for them")
        raise BayesfacError(
            f"{fit.name} has no way to add rows to a fit: {why}. Fit it to all rows"
        )
    data, held = _as_training(fit, data)
    shape = next(iter(held.values())).shape[:2]
    flat = {site: value.reshape(-1, *value.shape[2:]) for site, value in held.items()}
    rows = _step_by_draw(fit, data, flat) if method.fold_in else _descend(fit, data, flat)
    result = Result(draws={n: v.reshape(*shape, *v.shape[1:]) for n, v in rows.items()})
    if fit.is_point:
        params = from_sites(method, {site: value[0] for site, value in rows.items()})
        result = replace(fit.result, params=params)
    elif method.fold_in:
        result = replace(result, stats=fit.stats, trace=fit.trace)
    if method.fold_in is None:
        result = derived(method, data, fit.hyper, result)
    return replace(fit, result=result, data=_card(fit.data, data))


def _as_training(fit: "Fit", data: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The data with the columns of training, and the draws of the sites of their tasks."""
    card, held = fit.data, {site: np.asarray(value) for site, value in fit._as_draws().items()}
    if isinstance(data, Tasks):
        _check_features(card, data.host.features)
        data = rescaled(data, card.scales) if card.scales else data
        at = positions_of(card.coords["task"], data.tasks)
        if (at < 0).any():
            raise ValueError(
                f"Expected rows of the tasks {list(card.coords['task'])}, "
                f"got {plain(data.tasks[int(np.argmin(at))])!r}"
            )
        dims = {site: site_dims(fit.method, site) for site in held}
        return data, {
            site: np.take(value, at, 2 + dims[site].index("task"))
            if "task" in dims[site]
            else value
            for site, value in held.items()
        }
    if isinstance(data, Views):
        _check_features(card, data.features)
        return fit.method.ready(data, fit.hyper), held
    if data.levels != card.levels:
        raise ValueError(f"Expected the levels of training, {card.levels}, got {data.levels}")
    data = data.on(card.coords["item"])
    if fit.method.reads_features and card.encodings:
        data = data.encoded(card.encodings)
    return fit.method.ready(data, fit.hyper), held


def _step_by_draw(fit: "Fit", data: Any, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The new rows by the method's own step, one draw after another."""
    method, step, rows = fit.method, fit.method.fold_in, []
    assert step is not None
    one = jax.jit(lambda p, data: step(p, data, fit.hyper))
    for k in range(len(next(iter(held.values())))):
        p = from_sites(method, {site: value[k] for site, value in held.items()})
        rows.append(flattened(one(p, data)._asdict()))
        check_sites(from_sites(method, rows[-1]), "of the new rows")
    return {site: np.stack([np.asarray(row[site]) for row in rows]) for site in held}


def _descend(fit: "Fit", data: Ratings, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """New users by descent on the method's objective, all draws side by side. All users start at the mean of
    the training users, so that only their ratings tell them apart."""
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
        warnings.warn(message, ConvergenceWarning, stacklevel=4)
    new = {site: np.asarray(value) for site, value in users(jnp.asarray(at.z)).items()}
    whole = {site: value for site, value in held.items() if site not in axis} | new
    for k in range(len(at.z)):
        one = {site: value[k] for site, value in whole.items()}
        check_sites(from_sites(method, one), "of the new rows")
    return whole


def _check_features(card: Card, features: Mapping[str, pd.Index]) -> None:
    """The new rows must have the views of training, column by column; labels may be absent."""
    known = {n[8:]: index for n, index in card.coords.items() if n.startswith("feature.")}
    known |= {name: raw_features(known[name], scale) for name, scale in card.scales.items()}
    views, new = ([name for name in names if name != LABELS] for names in (known, features))
    if set(views) != set(new):
        raise ValueError(f"Expected the views {views} of training, got {new}")
    for name, index in features.items():
        if not same_labels(known[name], index):
            raise ValueError(
                f"Expected the {len(known[name])} columns of {name!r} in training, got others"
            )


def _card(old: Card, data: Any) -> Card:
    """The card of the new rows, with the columns of training."""
    new = describe(data)
    if not isinstance(data, Tasks):
        return replace(new, col_counts=old.col_counts)
    labels = old.coords[f"feature.{LABELS}"]
    coords: Mapping[str, pd.Index] = {**new.coords, f"feature.{LABELS}": labels}
    cells, rng = data.n_rows * len(labels), np.random.default_rng(0)
    chosen = rng.choice(cells, min(cells, len(old.probe)), replace=False)
    row, label = np.divmod(np.sort(chosen), len(labels))
    probe = pd.DataFrame({"row": data.rows[row], "label": labels[label]})
    return replace(
        new, coords=dict(coords), levels=old.levels, col_counts=old.col_counts, probe=probe
    )  # fmt: skip
