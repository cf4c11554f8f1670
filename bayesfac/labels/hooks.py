"""What the wing answers where other code asks for something of one kind of data."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.choosing import choose_for
from bayesfac.choosing.settings import Chosen
from bayesfac.core.data.cards import PROBES, Card, card_of, describe, stratified
from bayesfac.core.data.features import told_of_scaling
from bayesfac.core.data.reading import plain, positions_of
from bayesfac.core.method import Method, site_dims
from bayesfac.fits.later import as_training, card_of_new, check_features, of_training
from bayesfac.labels.by_rows import choose_by_rows
from bayesfac.labels.data.scaling import rescaled, told
from bayesfac.labels.data.tasks import LABELS, Tasks


@card_of.register
def _card(data: Tasks) -> Card:
    summary: dict[str, float] = {"rows": data.n_rows, "tasks": data.n_tasks}
    summary |= {"labelled rows": int(data.labelled.sum()), "labels": len(data.labels)}
    stored = np.zeros(data.n_rows, int)
    for name in data.names:
        cells = data.cells[name]
        summary[f"features of {name}"] = cells.shape[1]
        summary[f"stored in {name}"] = len(cells)
        stored += np.bincount(np.asarray(cells.row), minlength=data.n_rows)
    positive = np.zeros(len(data.labels), int)
    if LABELS in data.blocks and data.y is not None:
        col = np.asarray(data.cells[LABELS].col)[data.known]
        positive = np.bincount(col, minlength=len(data.labels))
        summary["labels per labelled row"] = float(positive.sum() / max(1, data.labelled.sum()))
    rng = np.random.default_rng(0)
    row = stratified(stored, PROBES, rng)
    label = stratified(positive, len(row), rng)
    label = rng.permutation(np.resize(label, len(row))) if len(label) else label
    probe = pd.DataFrame({"row": data.rows[row[: len(label)]], "label": data.labels[label]})
    probe = probe.drop_duplicates(ignore_index=True)
    coords, scales = data.coords(), data.host.scales
    return Card("Tasks", coords, summary, data.levels, stored, positive, probe, scales=scales)


told_of_scaling.register(Tasks, told)


@choose_for.register
def _by_rows(data: Tasks, method: Method, found: Chosen, seed: int) -> Chosen:
    """Candidates, cut and sds by rows that lose their labels."""
    return choose_by_rows(method, data, found, seed)


@as_training.register
def _with_columns_of_training(
    data: Tasks, fit: Any, held: dict[str, np.ndarray], rows: str
) -> tuple[Any, dict[str, np.ndarray]]:
    """The rows with the columns and scales of training, and the draws of the sites for their tasks."""
    card = fit.data
    data = _with_views(card, data)
    data = rescaled(data, card.scales) if card.scales else data
    at = positions_of(card.coords["task"], data.tasks)
    if (at < 0).any():
        raise ValueError(
            f"Expected rows of the tasks {list(card.coords['task'])}, "
            f"got {plain(data.tasks[int(np.argmin(at))])!r}"
        )
    dims = {site: site_dims(fit.method, site) for site in held}
    return data, {
        site: np.take(value, at, 2 + dims[site].index("task")) if "task" in dims[site] else value
        for site, value in held.items()
    }


def _with_views(card: Card, data: Tasks) -> Tasks:
    """The rows with the views of the training data. A view that no row has is treated as missing."""
    known = of_training(card)
    lacking = {v: known[v] for v in known if v != LABELS and v not in data.names}
    if not lacking or not set(data.names) <= set(known):
        check_features(card, data.features)
        return data
    check_features(card, data.features | lacking)
    pieces = data.pieces({block: data[block] for block in data.blocks})
    return Tasks.of_pieces(pieces, data.features | lacking, {})


@card_of_new.register
def _with_labels_of_training(data: Tasks, old: Card, rows: str, given: Any) -> Card:
    """The card of new rows, with the labels of training; `given` are these rows before scaling."""
    new = describe(data, given)
    labels = old.coords[f"feature.{LABELS}"]
    coords: Mapping[str, pd.Index] = {**new.coords, f"feature.{LABELS}": labels}
    cells, rng = data.n_rows * len(labels), np.random.default_rng(0)
    chosen = rng.choice(cells, min(cells, len(old.probe)), replace=False)
    row, label = np.divmod(np.sort(chosen), len(labels))
    probe = pd.DataFrame({"row": data.rows[row], "label": labels[label]})
    return replace(
        new, coords=dict(coords), levels=old.levels, col_counts=old.col_counts, probe=probe
    )  # fmt: skip
