"""The class `Fit`: a fitted method, and all that one does with it."""

import os
from functools import partial
from typing import Any, Self

from bayesfac.core.method import contain
from bayesfac.fits import components, later, recommending, saving
from bayesfac.fits.explaining import explain
from bayesfac.fits.fitted import Fitted
from bayesfac.fits.loadings import loadings
from bayesfac.fits.recalibrating import recalibrated
from bayesfac.fits.running import run
from bayesfac.fits.variance import variance_explained
from bayesfac.inference.predictions.everywhere import Everywhere
from bayesfac.inference.predictions.predict import MEMORY


class Fit(Fitted):
    """A method fitted to data by an engine: a point, or draws from a posterior.

    Attributes
    ----------
    method : Method
        The method. It was fitted with the settings `hyper` by the engine `engine`, with `seed`.
    trace : array
        The objective at each iteration, minus the ELBO at each step, or minus the log joint of each draw.
    converged : bool or None
        None for samplers; `diagnostics()` judges them.
    partial : bool
        Whether the run was interrupted.
    seconds : float
        The time of the fit, including compilation and the search for settings.
    data : Card
        Labels and sizes of the training data, and cells for diagnostics; not the data themselves.
    """

    @property
    def posterior(self) -> Any:
        """The draws as an ArviZ DataTree with the user's labels as coordinates; see also `datatree`."""
        if self.is_point:
            raise AttributeError(
                "Expected draws, got a point fit: .params has it; SVI, NUTS or Gibbs sample"
            )
        from bayesfac.report.datatree import to_datatree

        return to_datatree(self)

    def datatree(self, data: Any, *, thin: int = 1, max_bytes: int = 2**32) -> Any:
        """`posterior` with the groups `observed_data` and `log_likelihood`, which `arviz.loo` needs.

        `data` are the training data, because a fit does not store them. If the tree would be larger than
        `max_bytes`, an error says which `thin` is enough. `Fit.loo` needs less memory.

        Examples
        --------
        >>> import bayesfac as bf
        >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
        >>> fit = bf.fit("pmf", ratings, bf.Gibbs(20, 20, 2), n_components=2, progress=False)
        >>> tree = fit.datatree(ratings)  # arviz.loo(tree)
        >>> list(tree.children)
        ['posterior', 'sample_stats', 'observed_data', 'log_likelihood']
        """
        from bayesfac.report.datatree import with_data

        return with_data(self, contain(self.method, data), thin=thin, max_bytes=max_bytes)

    def fold_in(self, data: Any, rows: str = "user") -> Self:
        """A fit with new rows instead of its own: new users, new items (`rows="item"`), or rows of views.

        All other parameters stay. If the method has a Gibbs sampler, the new rows are drawn, with their own
        uncertainty. Otherwise they are optimised for each draw. To add ratings, see `update`.

        Examples
        --------
        >>> import bayesfac as bf
        >>> fit = bf.fit("bpmf", bf.datasets.make_gaussian(30, 20, 2)[0], bf.Gibbs(20, 20, 2), n_components=1)
        >>> fit.fold_in(bf.Ratings(["zoe"], [1], [1.0])).draws["U"].shape
        (2, 20, 1, 1)
        """
        return later.fold_in(self, data, rows)

    def update(self, data: Any, sweeps: int = 50) -> Self:
        """Continue the fit with more ratings and the same settings. `data` are all ratings, old and new.

        Chains continue from their last draws, after new rows have been drawn. They make `sweeps` sweeps of
        warm-up and then as many draws as before. The engine of a point fit continues from the point.

        Examples
        --------
        >>> import bayesfac as bf
        >>> new = bf.datasets.make_ratings(30, 20, 2)
        >>> bf.fit("pmf", new.of_users(0, 20), n_components=2).update(new).params.U.shape
        (30, 2)
        """
        return later.update(self, data, sweeps)

    def everywhere(self, memory: int = MEMORY) -> Everywhere:
        """Mean and standard deviation of all cells, with labels; computed in blocks of `memory` bytes."""
        return Everywhere(self.method, self.hyper, self._as_draws(), self.data, memory)

    recommend, similar = recommending.recommend, recommending.similar
    save = saving.save
    in_use = property(components.in_use)
    loadings, explain, recalibrated = loadings, explain, recalibrated
    variance_explained = variance_explained

    def loo(
        self, data: Any, *, by: str = "cell", memory: int = 2**31, subsample: int | None = None,
        seed: int = 0, thin: int = 1,
    ) -> Any:  # fmt: skip
        """Leave-one-out: how well each cell, or each user, is predicted from all others.

        No model is fitted again. Draws get the weight 1 / (likelihood of the left-out cells), and the largest
        weights are smoothed (PSIS). If Pareto's k is too large, the result says so. On a scale of levels
        the score is the log probability of the level for every method, so that methods can be compared.

        Parameters
        ----------
        data : Ratings or Tasks
            The training data, because a fit does not store them. For tasks, cells are labels.
        by : {"cell", "user"}
            "user" leaves out all ratings of a user, whose factors are integrated out exactly.
        memory : int
            The largest number of bytes to use.
        subsample : int, optional
            The number of cells to evaluate, chosen at random by `seed`.
        thin : int
            Use every n-th draw.
        """
        from bayesfac.report.diagnostics.loo import loo

        data = contain(self.method, data)
        return loo(self, data, by=by, memory=memory, subsample=subsample, seed=seed, thin=thin)

    def kfold(self, data: Any, k: int = 10, seed: int = 0, jobs: int | None = None) -> Any:
        """Like `loo`, but by k fits that each leave out a fold: slower, without weights that could fail.

        `jobs` fits run at a time in separate processes; without it `joblib.parallel_config` decides.
        """
        from bayesfac.report.diagnostics.loo import kfold

        return kfold(self, contain(self.method, data), k, seed, jobs, partial(run, Fit))

    def sensitivity(
        self, data: Any, query: Any = None, alpha: tuple[float, float] = (0.8, 1.25)
    ) -> Any:
        """How much predictions change with a weaker or stronger prior, or likelihood."""
        from bayesfac.report.diagnostics.sensitivity import sensitivity

        return sensitivity(self, contain(self.method, data), query, alpha)

    @property
    def plot(self) -> Any:
        """Plots by name, such as `fit.plot.trace()`; each returns Matplotlib axes: see `plotting.Plots`."""
        from bayesfac.fits.plotting import Plots

        return Plots(self)

    def diagnostics(self) -> Any:
        """A verdict in words, and a table with R-hat and ESS of identified quantities."""
        from bayesfac.report.diagnostics.diagnose import diagnostics

        return diagnostics(self)

    def aligned(self, reference: Any = None) -> Any:
        """The draws with their factors rotated or relabelled to match, and how well they agree."""
        from bayesfac.report.diagnostics.align import align

        return align(self, reference=reference)

    def to_html(self, path: str | os.PathLike[str]) -> str:
        """Write a self-contained report."""
        from bayesfac.report.pages.html import to_html

        return str(to_html(self, path))

    def to_netcdf(self, path: str | os.PathLike[str]) -> None:
        """Write the draws as an ArviZ NetCDF file with checksums, for other tools."""
        from bayesfac.report.datatree import to_netcdf

        to_netcdf(self.posterior, path)

    def _repr_html_(self) -> str:
        from bayesfac.report.pages.html import fit_html

        return fit_html(self)
