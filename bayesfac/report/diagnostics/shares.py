"""The probability of a feature among those of its view, whatever columns a method made of the views."""

from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.views import Views

CELLS = 2**20  # rows x features that are predicted at a time


def among_features(fit: Any, test: Views, p: np.ndarray) -> np.ndarray:
    """`p`, the predictions of the stored cells of `test`, divided by their sums over each row of a view.

    These sums are one, unless a method has put views side by side or added columns when it scaled a view.
    Without the division, the log scores of such a fit would count which view or column a feature is in.
    """
    known = fit.data.features
    if all(len(known.get(name, ())) == len(test.features[name]) for name in test.names):
        return p
    sums = [_sums(fit, test, name)[np.asarray(test.cells[name].row)] for name in test.names]
    total = np.concatenate(sums)
    return p / np.where(total > 0, total, 1)


def _sums(fit: Any, test: Views, name: str) -> np.ndarray:
    """The sum over the features of a view, for every row."""
    features, found = test.features[name], []
    height = max(1, CELLS // len(features))
    for first in range(0, test.n_rows, height):
        rows = test.rows[first : first + height]
        cells = {"row": np.repeat(rows, len(features)), "feature": np.tile(features, len(rows))}
        mean = fit.predict(pd.DataFrame(cells).assign(view=name)).mean
        found.append(mean.reshape(len(rows), -1).sum(1))
    return np.concatenate(found)
