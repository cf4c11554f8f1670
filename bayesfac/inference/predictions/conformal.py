"""Intervals corrected on held-out cells by split conformal prediction (Gui, Barber & Ma 2023).

A held-out cell has the score |y - mean| / sd. An interval of a level a is the mean, plus and minus so many
standard deviations as the ceil((n + 1) a)-th smallest of the n scores. If the score of a new cell is
exchangeable with these, each of its n + 1 ranks is as likely, so the interval contains the outcome with a
probability of at least a, however wrong the fit is.
"""

from typing import NamedTuple

import numpy as np

WHERE = {"cells": "", "top": " at the top"}  # which held-out cells a fit can be corrected on


class Recalibration(NamedTuple):
    """The scores of held-out cells in ascending order, and which cells they are: a key of `WHERE`."""

    what: str
    scores: np.ndarray

    def width(self, level: float) -> float:
        """Half of the interval, in standard deviations; an error if the cells are too few for the level.

        >>> Recalibration("cells", np.arange(1.0, 100)).width(0.9)
        90.0
        """
        n = len(self.scores)
        # less the rounding error of the product: 0.9 * 100 must not count as 91
        rank = int(np.ceil((n + 1) * level - 1e-9))
        if rank > n:
            raise ValueError(
                f"Expected a level of at most {n / (n + 1):.4g} from {n} held-out cells, got {level}"
            )
        return float(self.scores[rank - 1])

    def pit(self, signed: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The PIT that goes with the intervals, of outcomes so many sd above the mean.

        Outcomes inside the interval of a level are at most level / 2 from 1/2, and others are not, but for
        those of the last rank inside: the uniform numbers u place an outcome inside its rank, so that
        the PIT of exchangeable cells is uniform.
        """
        below, most = (np.searchsorted(self.scores, np.abs(signed), s) for s in ("left", "right"))
        rank = (below + u * (most - below + 1)) / (len(self.scores) + 1)
        return 0.5 + np.sign(signed) * rank / 2

    def __str__(self) -> str:
        return f"intervals recalibrated on {len(self.scores):,} held-out cells{WHERE[self.what]}"
