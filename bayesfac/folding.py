"""New rows for a fit that is done."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from bayesfac.api import Fit
from bayesfac.core.cards import Card, describe
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import contain, flattened, from_sites, site_dims
from bayesfac.core.reading import plain
from bayesfac.core.tasks import LABELS, Tasks
from bayesfac.inference.result import Result, check_sites


def fold_in(fit: Fit, data: Any) -> Fit:
    """The fit with the rows of `data` in the place of its own: those fitted, all else held, draw by draw.

    The views must have the features that training knew, and the tasks be some of its tasks. Labels of the new
    rows help where they are given.
    """
    method = fit.method
    step = method.fold_in
    if step is None:
        raise BayesfacError(f"{fit.name} has no way to add rows to a fit: fit it to all of them")
    data = contain(method, data)
    at = _places(fit.data, data)
    held = {site: _of_tasks(fit, site, value, at) for site, value in fit._as_draws().items()}
    shape = next(iter(held.values())).shape[:2]
    one = jax.jit(lambda p, data: step(p, data, fit.hyper))
    rows = []
    for where in np.ndindex(*shape):
        p = from_sites(method, {site: value[where] for site, value in held.items()})
        rows.append(flattened(one(p, data)._asdict()))
        check_sites(from_sites(method, rows[-1]), "of the new rows")
    draws = {
        site: np.stack([np.asarray(row[site]) for row in rows]).reshape(
            *shape, *np.shape(rows[0][site])
        )
        for site in held
    }
    card = _card(fit.data, data)
    if fit.is_point:
        params = from_sites(method, {site: value[0, 0] for site, value in draws.items()})
        return replace(fit, result=replace(fit.result, params=params), data=card)
    return replace(fit, result=Result(draws=draws, stats=fit.stats, trace=fit.trace), data=card)


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


def _card(old: Card, data: Tasks) -> Card:
    """New rows, and the labels that training knew."""
    new = describe(data)
    labels = old.coords[f"feature.{LABELS}"]
    coords: Mapping[str, pd.Index] = {**new.coords, f"feature.{LABELS}": labels}
    cells, rng = data.n_rows * len(labels), np.random.default_rng(0)
    chosen = rng.choice(cells, min(cells, len(old.probe)), replace=False)
    row, label = np.divmod(np.sort(chosen), len(labels))
    probe = pd.DataFrame({"row": data.rows[row], "label": labels[label]})
    return replace(
        new, coords=dict(coords), levels=old.levels, col_counts=old.col_counts, probe=probe
    )  # fmt: skip
