"""New rows for a fit that is done."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.api import Fit
from bayesfac.core.data.cards import Card, describe
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import plain
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.data.views import Views
from bayesfac.core.errors import BayesfacError, ConvergenceWarning
from bayesfac.core.method import contain, flattened, from_sites, site_dims
from bayesfac.inference.gradient import as_rows
from bayesfac.inference.lbfgs import STUCK, advance, begin
from bayesfac.inference.result import Result, check_sites, derived
from bayesfac.inference.unconstrained import off_edge, supports

STEPS = 500  # of the descent to new users, at most


def fold_in(fit: Fit, data: Any) -> Fit:
    """The fit with the rows of `data` in the place of its own: those fitted, all else held, draw by draw.

    Views and tasks must have the features that training knew, and tasks be some of its tasks; labels of the
    new rows help where they are given. Items that are rated must be some of training's, on the same scale.
    The new rows of a draw are the best ones given that draw, not drawn themselves.
    """
    method = fit.method
    data = contain(method, data)
    if "no_fold_in" in method.traits or method.fold_in is None and not isinstance(data, Ratings):
        why = method.traits.get("no_fold_in", "it has no step for them")
        raise BayesfacError(
            f"{fit.name} has no way to add rows to a fit: {why}. Fit it to all of them"
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


def _as_training(fit: Fit, data: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The data with the columns of training, and the sites of its tasks; an error where they do not fit."""
    card, held = fit.data, {site: np.asarray(value) for site, value in fit._as_draws().items()}
    if isinstance(data, Tasks):
        at = _places(card, data)
        return data, {site: _of_tasks(fit, site, value, at) for site, value in held.items()}
    if isinstance(data, Views):
        _check_features(card, data.features)
        return fit.method.ready(data, fit.hyper), held
    if data.levels != card.levels:
        raise ValueError(f"Expected the levels of training, {card.levels}, got {data.levels}")
    return fit.method.ready(data.on(card.coords["item"]), fit.hyper), held


def _step_by_draw(fit: Fit, data: Any, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The method's own step, one draw after the other."""
    method, step, rows = fit.method, fit.method.fold_in, []
    assert step is not None
    one = jax.jit(lambda p, data: step(p, data, fit.hyper))
    for k in range(len(next(iter(held.values())))):
        p = from_sites(method, {site: value[k] for site, value in held.items()})
        rows.append(flattened(one(p, data)._asdict()))
        check_sites(from_sites(method, rows[-1]), "of the new rows")
    return {site: np.stack([np.asarray(row[site]) for row in rows]) for site in held}


def _descend(fit: Fit, data: Ratings, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The users that lower the method's objective most, all draws side by side: from the mean of training's
    users, so that nothing but their own ratings tells them apart."""
    method, hyper = fit.method, fit.hyper
    axis = {site: site_dims(method, site).index("user") + 1 for site in held if _of_user(fit, site)}

    def many(site: str, user: np.ndarray) -> np.ndarray:
        return np.repeat(user, data.n_users, axis[site])

    # any user tells the shapes; the mean only of what is sampled: what is derived may be infinite
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
    if open_ := {why or "more steps are needed" for why in at.why} & {
        STUCK,
        "more steps are needed",
    }:
        warnings.warn(
            f"new users of {fit.name}: {'; '.join(open_)}", ConvergenceWarning, stacklevel=4
        )
    found = {site: np.asarray(value) for site, value in users(jnp.asarray(at.z)).items()}
    whole = {site: value for site, value in held.items() if site not in axis} | found
    for k in range(len(at.z)):
        one = {site: value[k] for site, value in whole.items()}
        check_sites(from_sites(method, one), "of the new rows")
    return whole


def _of_user(fit: Fit, site: str) -> bool:
    return "user" in site_dims(fit.method, site)


def _check_features(card: Card, features: Mapping[str, pd.Index]) -> None:
    """The new rows have the views of training, column by column."""
    known = {n[8:]: index for n, index in card.coords.items() if n.startswith("feature.")}
    if known.keys() != features.keys():
        raise ValueError(f"Expected the views {list(known)} of training, got {list(features)}")
    for name, index in known.items():
        if not index.equals(features[name]):
            raise ValueError(
                f"Expected the {len(index)} columns of {name!r} in training, got others"
            )


def _places(card: Card, data: Tasks) -> np.ndarray:
    """Which of the tasks of training the new ones are."""
    known = {n: i for n, i in card.coords.items() if n.startswith("feature.")}
    views = [f"feature.{name}" for name in data.blocks]
    if missing := sorted(set(known) - set(views) - {f"feature.{LABELS}"}):
        raise ValueError(f"Expected every view of training, got none called {missing[0][8:]!r}")
    for name in views:
        if name not in known:
            raise ValueError(f"Expected the views of training, got also {name[8:]!r}")
        if not known[name].equals(data.host.features[name[8:]]):
            raise ValueError(
                f"Expected the {len(known[name])} columns of {name[8:]!r} in training, got others"
            )
    tasks = card.coords["task"]
    at = tasks.get_indexer(data.tasks)
    if (at < 0).any():
        raise ValueError(
            f"Expected rows of the tasks {list(tasks)}, got {plain(data.tasks[int(np.argmin(at))])!r}"
        )
    return at


def _of_tasks(fit: Fit, site: str, value: np.ndarray, at: np.ndarray) -> np.ndarray:
    """A site's draws for these tasks only."""
    dims = site_dims(fit.method, site)
    return np.take(value, at, 2 + dims.index("task")) if "task" in dims else np.asarray(value)


def _card(old: Card, data: Any) -> Card:
    """New rows, and the columns that training knew."""
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
