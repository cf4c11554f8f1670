"""Continue a finished fit with more ratings: new rows are drawn first, then all rows are swept."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from bayesfac.core import checks
from bayesfac.core.data.cards import describe
from bayesfac.core.data.reading import plain, positions_of
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import contain, site_dims
from bayesfac.fits import new_rows
from bayesfac.fits.fitted import F, Fitted
from bayesfac.fits.folding import on_levels
from bayesfac.fits.running import run
from bayesfac.inference.gibbs import Gibbs

# features that are labels of the other side: which users rated an item, and which items a user rated
PATTERNS = {"user": "implicit_item_feature", "item": "implicit_user_feature"}


def update(fit: F, data: Any, sweeps: int) -> F:
    """The fit to all of these ratings; see `Fit.update`."""
    method, card = fit.method, fit.data
    checks.whole_number("sweeps", sweeps, 0)
    if "user" not in method.data.columns:
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
