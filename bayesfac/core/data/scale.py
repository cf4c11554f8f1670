"""How the columns of a view were scaled, which a fit keeps."""

from typing import NamedTuple

import numpy as np


class Scale(NamedTuple):
    """How the columns of one view, or the labels, are changed.

    centre, spread   subtracted from and divided into every column; a spread of 0 means a constant column,
                     which becomes zero
    mirrored         the columns whose negative part becomes a column of its own; the column keeps the
                     positive part
    constant         the value of the added column; 0: none
    """

    centre: np.ndarray
    spread: np.ndarray
    mirrored: np.ndarray
    constant: float
