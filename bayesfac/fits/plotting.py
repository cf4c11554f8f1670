"""Plots of a fit by name, such as `fit.plot.trace()`. The report shows the same pictures."""

from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.reading import plain, positions_of
from bayesfac.core.errors import BayesfacError, unknown
from bayesfac.fits.explaining import explain
from bayesfac.fits.fitted import Fitted
from bayesfac.fits.membership import clusters
from bayesfac.fits.variance import variance_explained
from bayesfac.report.arviz_versions import SHORTEST
from bayesfac.report.diagnostics.diagnose import diagnostics
from bayesfac.report.diagnostics.held_out import WORDS, Scores, score
from bayesfac.report.drawing import kept_open
from bayesfac.report.plots import fit_plots
from bayesfac.report.plots.chain_plots import objective, spotlight, trace
from bayesfac.report.plots.held_out_plots import beside, coverage_curve


class Plots:
    """The plots of one fit. Each method returns the Matplotlib axes, or an array of several.

    A notebook displays the figure; a script calls `matplotlib.pyplot.show()` or `axes.figure.savefig(path)`.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> fit = bf.fit("pmf", ratings, n_components=2, progress=False)
    >>> fit.plot.trace().get_ylabel()
    'objective (nats)'
    """

    def __init__(self, fit: Fitted) -> None:
        self._fit = fit
        self._name = f"{fit.name} by {type(fit.engine).__name__}"

    def __repr__(self) -> str:
        return f"Plots of {self._name}: {', '.join(self._names())}"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(unknown("plot", name, self._names()))

    def _names(self) -> list[str]:
        return [name for name in vars(type(self)) if not name.startswith("_")]

    def coverage(self, test: Any) -> Any:
        """The share of held-out values that are inside central intervals, for intervals of every level."""
        scores = score(self._fit, test)
        if not isinstance(scores, Scores):
            raise BayesfacError("Expected ratings or labels, got counts, which have no intervals")
        return self._shown(coverage_curve, {self._name: scores})

    def trace(self) -> Any:
        """The objective of a point fit or of SVI; for a sampler, the draws of four identified quantities."""
        diagnosis = diagnostics(self._fit)
        if diagnosis.kind != "sampler" or diagnosis.quantities["probe"].shape[1] < SHORTEST:
            return self._shown(objective, self._name, self._fit, diagnosis)
        return self._shown(trace, self._name, *spotlight(diagnosis))

    def levels(self, query: Any = None) -> Any:
        """The probability of each level for twelve cells of a query, from low to high predictions.

        The query is as for `predict`; by default, the cells for which diagnostics are computed. For held-out
        ratings, a dot marks the observed level.
        """
        prediction = self._fit.predict(self._fit.data.probe if query is None else query)
        observed = getattr(query, "value", None)  # of a table a column, whose index may be anything
        observed = None if observed is None else np.asarray(observed)
        return self._shown(fit_plots.levels, self._name, prediction, observed)

    def point_beside(self, draws: Fitted, query: Any = None) -> Any:
        """The predictions of this point fit against means and 90 % intervals of a fit with draws.

        The query is as for `predict`; by default, the cells for which diagnostics are computed.
        """
        if not self._fit.is_point or getattr(draws, "is_point", True):
            raise BayesfacError("Expected point.plot.point_beside(draws), got other kinds of fits")
        card = self._fit.data
        if not card.form.site:
            raise BayesfacError("Expected ratings or labels, got counts, which have no intervals")
        which = "probe" if query is None else "queried"
        _, cells, _ = card.locate(card.probe if query is None else query)
        axis = card.columns[0]
        code = positions_of(card.coords[axis], cells[axis])
        activity = np.where(code >= 0, card.row_counts[code], 0)
        names = self._name, f"{draws.name} by {type(draws.engine).__name__}"
        at, other = self._fit.predict(cells).mean, draws.predict(cells)
        drawn = other.mean, *other.interval(0.9)
        return self._shown(beside, names, at, drawn, activity, WORDS[card.kind], which)

    def factors(self, site: str | None = None) -> Any:
        """The largest entries of up to four components in aligned draws, with 90 % intervals.

        `site` is the name of the factor to show, such as "U"; by default that of the items, or those of the
        features of all views.
        """
        return self._shown(fit_plots.factors, self._name, self._fit, site)

    def explain(self, data: Any, user: Any, item: Any) -> Any:
        """What the user's ratings add to the rating that the fit expects of an item: see `fit.explain`."""
        return self._shown(fit_plots.explained, self._name, explain(self._fit, data, user, item))

    def variance_explained(self) -> Any:
        """The share of each view that each component explains: see `fit.variance_explained`."""
        table = variance_explained(self._fit)
        return self._shown(fit_plots.variance_explained, self._name, table)

    def scores(self, components: tuple[int, int] = (1, 2), colour: Any = None) -> Any:
        """The rows of measurements in two components, with colours for a known value or class of each row.

        `colour` is a Series with the labels of the rows, or as many values as there are rows.
        """
        variance_explained(self._fit)  # refuses fits whose components are not those of views
        K, rows = self._fit.hyper.n_components, self._fit.data.coords["user"]
        if len(components) != 2 or not all(k in range(1, K + 1) for k in components):
            raise ValueError(f"Expected two components from 1 to {K}, got {components!r}")
        label = str(getattr(colour, "name", None) or "")
        if isinstance(colour, pd.Series):
            at = positions_of(pd.Index(colour.index), rows)
            if (at < 0).any():
                raise ValueError(
                    f"Expected a value for every row, got none for {plain(rows[int(np.argmin(at))])!r}"
                )
            colour = colour.to_numpy()[at]
        elif colour is not None and len(colour := np.asarray(colour)) != len(rows):
            raise ValueError(f"Expected {len(rows)} values, one for each row, got {len(colour)}")
        return self._shown(
            fit_plots.scores, self._name, self._fit, tuple(components), colour, label
        )

    def clusters(self) -> Any:
        """The number of rows in each cluster, by the probability of the cluster: see `bf.clusters`."""
        return self._shown(fit_plots.clusters, self._name, clusters(self._fit))

    def _shown(self, draw: Any, *args: Any) -> Any:
        """Draw a picture in pyplot, and return its axes."""
        with kept_open():
            figure = draw(*args).figure
        axes = np.array([one for one in figure.axes if one.has_data()], dtype=object)
        return axes[0] if len(axes) == 1 else axes
