"""`fit.recalibrated`: a fit whose intervals are corrected on held-out data."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.reading import plain
from bayesfac.core.errors import BayesfacError, UnknownName, check_names
from bayesfac.core.method import contain
from bayesfac.fits.fitted import F
from bayesfac.fits.later import on_levels
from bayesfac.inference.predictions.conformal import WHERE, Recalibration

FEWEST = 50  # held-out cells from which intervals are corrected
PLACES = 10  # the top of a list


def recalibrated(fit: F, held_out: Any, what: str = "cells") -> F:
    """The fit with predictive intervals that are corrected on held-out ratings.

    `predict(...).interval(level)` of the new fit is the mean, plus and minus so many standard deviations as
    contain this share of the held-out ratings (split conformal prediction: Gui, Barber & Ma 2023,
    "Conformalized matrix completion"). Means, standard deviations, probabilities and recommendations stay as
    they are. The PIT goes with the intervals, so `bf.compare` shows the coverage of the new ones. A flagged
    cell keeps its interval, since no held-out cell was like it. `save` keeps the correction; `fold_in` and
    `update` give fits without it.

    What is guaranteed: if the cells at which an interval is used are exchangeable with the held-out ones, it
    contains the rating with at least the probability `level`, however wrong the model is. This is an average
    over users, items and held-out sets; for a single user or item nothing is guaranteed. Nor is anything for
    cells that come about in another way, such as later ratings, or items that nobody chose to rate.

    Parameters
    ----------
    held_out : Ratings
        At least 50 ratings that the fit was not trained on, of users and items with training data. Test the
        new fit on others.
    what : {"cells", "top"}
        "cells" corrects on all of them. "top" corrects on the ten with the highest predictions of each user
        with more than ten, for intervals at the top of a list that is as long.

    Examples
    --------
    >>> import bayesfac as bf
    >>> train, rest = bf.split.holdout(bf.datasets.make_gaussian(40, 30, 2, seed=0)[0], 0.4, seed=0)
    >>> held_out, test = bf.split.holdout(rest, 0.5, seed=0)
    >>> fit = bf.fit("pmf", train, n_components=2, progress=False).recalibrated(held_out)
    >>> print(str(fit).splitlines()[-1])
    intervals recalibrated on 72 held-out cells
    >>> lower, upper = fit.predict(test).interval(0.9)
    """
    check_names("what", (what,), WHERE)
    if not fit.data.form.by_pair or fit.method.data.implicit:
        raise BayesfacError(f"Expected a fit of ratings for recalibrated, got a fit of {fit.name}")
    held_out = on_levels(fit.data, contain(fit.method, held_out))
    prediction = replace(fit, recalibration=None).predict(held_out)
    if prediction.flagged.any():
        user, item = prediction.labels.iloc[int(np.argmax(prediction.flagged))]
        raise UnknownName(
            "Expected held-out ratings of users and items with training data, got one of user "
            f"{plain(user)!r} for item {plain(item)!r}: leave out those that are flagged in "
            "fit.predict(held_out)"
        )
    mean, sd = prediction.mean, prediction.sd
    at = np.arange(len(mean))
    if what == "top":
        from bayesfac.report.top import first_rows

        at = first_rows(pd.factorize(prediction.labels["user"])[0], mean, PLACES).ravel()
    if len(at) < FEWEST:
        why = f" of users with more than {PLACES}" if what == "top" else ""
        raise ValueError(f"Expected at least {FEWEST} held-out ratings{why}, got {len(at)}")
    scores = np.sort(np.abs(held_out.value[at] - mean[at]) / sd[at])
    return replace(fit, recalibration=Recalibration(what, scores))
