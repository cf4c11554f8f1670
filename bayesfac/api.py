"""The main functions: `fit`, which returns a `Fit`; `load`; and `compare`."""

import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac import components, folding, recommending, saving, updating
from bayesfac.choosing import choose, reduced
from bayesfac.core import checks
from bayesfac.core.data import features
from bayesfac.core.data.cards import Card, describe
from bayesfac.core.data.counts import of_spread
from bayesfac.core.errors import ConvergenceWarning
from bayesfac.core.laws.units import cut_of, in_models_unit
from bayesfac.core.method import COLLAPSED, Method, contain, lookup, settle, sites
from bayesfac.core.programs import keep_programs, make_room
from bayesfac.core.provenance import about, identity
from bayesfac.inference import alone, check_hyper, collapse, ended_early, engine_for
from bayesfac.inference.predictions import related
from bayesfac.inference.predictions.everywhere import Everywhere
from bayesfac.inference.predictions.predict import MEMORY, Prediction
from bayesfac.inference.result import Job, Result, derived, start_from, unused
from bayesfac.inference.widths import against_conditionals


@dataclass(eq=False)
class Fit:
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

    method: Method
    hyper: Any
    engine: Any
    seed: int
    result: Result = field(repr=False)
    data: Card = field(repr=False)
    seconds: float = 0.0
    info: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The method's name."""
        return self.method.name

    @property
    def is_point(self) -> bool:
        """Whether the fit is a point estimate; otherwise it has draws."""
        return self.result.draws is None

    @property
    def params(self) -> Any:
        """The point estimate. Draws have none: a mean of rotated factors is meaningless."""
        if self.is_point:
            return self.result.params
        raise AttributeError(
            "Expected a point fit, got draws: .posterior has them, .aligned() puts their factors in one "
            "frame, .predict(query) averages predictions"
        )

    @property
    def draws(self) -> Mapping[str, np.ndarray] | None:
        """{site: (chain, draw, ...)}, or None for a point."""
        return self.result.draws

    @property
    def stats(self) -> dict[str, np.ndarray]:
        """Statistics of a sampler, {name: (chain, draw)}; `lp` is the log joint density."""
        return self.result.stats

    @property
    def trace(self) -> np.ndarray:
        return self.result.trace

    @property
    def converged(self) -> bool | None:
        return self.result.converged

    @property
    def partial(self) -> bool:
        """Whether the run was interrupted, so that the fit has fewer steps or draws."""
        return self.result.partial

    @property
    def cut(self) -> float | None:
        """The probability above which a label is predicted; None for methods without labels."""
        known = self.data.form.by_cut and hasattr(self.hyper, "cut")
        return cut_of(self.hyper) if known else None

    @property
    def notes(self) -> list[str]:
        """Sentences on how settings were chosen, then remarks of the engine and the method."""
        return [*self.info.get("chosen", ()), *self.result.notes]

    @property
    def tried(self) -> pd.DataFrame | None:
        """What `bf.auto` tried before this fit, best first; None for a fit by `bf.fit`."""
        rows = self.info.get("tried")
        return None if rows is None else pd.DataFrame(rows).astype({"components": "Int64"})

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

    def predict(
        self, query: Any, *, matrix: str | None = None, user_features: Any = None, item_features: Any = None
    ) -> Prediction:  # fmt: skip
        """The predictive distribution of each cell of the query, in the order of the query.

        `query` is a container, or a table of labels without values. The prediction for a user, item or row
        without training data comes from the prior and is flagged. If the training data had features, this
        prior uses the features of new users and items (by default those of the query). For a fit to
        `Relations`, `matrix` names the matrix. For new rows of `Tasks` and `Views` call `fold_in` first.
        """
        return related.predict(self, query, matrix, {"user": user_features, "item": item_features})

    def fold_in(self, data: Any, rows: str = "user") -> "Fit":
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
        return folding.fold_in(self, data, rows)

    def update(self, data: Any, sweeps: int = 50) -> "Fit":
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
        return updating.update(self, data, sweeps, fit)

    def everywhere(self, memory: int = MEMORY) -> Everywhere:
        """Mean and standard deviation of all cells, with labels; computed in blocks of `memory` bytes."""
        return Everywhere(self.method, self.hyper, self._as_draws(), self.data, memory)

    recommend, similar = recommending.recommend, recommending.similar
    save = saving.save
    in_use = property(components.in_use)

    def _as_draws(self) -> Mapping[str, np.ndarray]:
        if self.draws is not None:
            return self.draws
        return {site: np.asarray(value)[None, None] for site, value in sites(self.params).items()}

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

        return kfold(self, contain(self.method, data), k, seed, jobs, refit=fit)

    def sensitivity(
        self, data: Any, query: Any = None, alpha: tuple[float, float] = (0.8, 1.25)
    ) -> Any:
        """How much predictions change with a weaker or stronger prior, or likelihood."""
        from bayesfac.report.diagnostics.sensitivity import sensitivity

        return sensitivity(self, contain(self.method, data), query, alpha)

    @property
    def plot(self) -> Any:
        """Plots by name, such as `fit.plot.trace()`; each returns Matplotlib axes: see `plotting.Plots`."""
        from bayesfac.plotting import Plots

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

    def __repr__(self) -> str:
        engine = type(self.engine).__name__
        if self.is_point:
            state = "converged" if self.converged else "not converged"
            if any(note.startswith(COLLAPSED) for note in self.result.notes):
                state += ", but collapsed"
            after = f"after {(n := len(self.trace) - 1)} evaluation{'s' * (n != 1)}"
            what = f"point, objective {self.trace[-1]:.6g} {after}, {state}"
        else:
            chains, draws = next(iter(self._as_draws().values())).shape[:2]
            what = f"{chains} chain(s) x {draws} draws"
        part = ", interrupted" if self.partial else ""
        line = f"Fit({self.name} by {engine}: {what}{part}, {self.seconds:.1f} s)"
        return "\n".join([line, *self.info.get("chosen", ()), *self.data.remarks])

    def _repr_html_(self) -> str:
        from bayesfac.report.pages.html import fit_html

        return fit_html(self)


def fit(
    method: str | Method,
    data: Any,
    engine: Any = None,
    *,
    seed: int = 0,
    init: Any = None,
    progress: bool = True,
    **hyper: Any,
) -> Fit:
    """Fit a method to data.

    Parameters
    ----------
    method : str
        A name from `bf.methods()`.
    data : Ratings, Views, Tasks, or anything these can read
    engine : FixedPoint, LBFGS, MAP, SVI, NUTS, Gibbs, Quick or VB, optional
        The method's own solver by default.
    seed : int
        The same seed gives the same fit on the same machine and versions.
    init : Fit, Params or {site: array}, or a list of these, optional
        Where to start. Parameters that `init` lacks start as usual. `Gibbs` takes a list, one per chain.
    progress : bool
        Show a progress bar on a terminal or in a notebook. Ctrl-C ends the fit, which keeps what it has.
    **hyper
        The method's hyper-parameters. A setting that is None is chosen from the training data: by a rule, or
        by a search with held-out ratings. `fit.notes` says what was chosen, and
        `bf.fit(method, data, **fit.hyper._asdict())` gives the same fit without a search.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> fit = bf.fit("bpmf", ratings, bf.Gibbs(warmup=20, draws=20, chains=2), n_components=2)
    >>> fit.predict({"user": [0], "item": [3]}).mean.shape
    (1,)
    """
    keep_programs()
    make_room()
    method = lookup(method)
    check_hyper(method, hyper, engine := engine_for(engine, method))
    data = contain(method, data)
    seed = checks.seeded(seed)
    # several BLAS threads would wait for each other, and would occupy the cores that the loops need
    with alone(), threadpool_limits(1, "blas"):
        begun = time.perf_counter()
        chosen = choose(method, data, hyper, seed)
        raw, settled = data, settle(method, data, chosen.hyper)
        card = describe(data := method.ready(raw, settled), raw)
        saving.check(card, engine)
        start = start_from(init, card.coords)
        run = identity(method, data, settled, engine, seed, start)
        probe, _, _ = card.locate(card.probe)
        inside = in_models_unit(settled)
        job = Job(method, data, inside, jax.random.key(seed), start, progress, run, probe)
        result = derived(method, data, settled, found := engine.run(job))
        checked = method.gibbs.conditionals and getattr(engine, "check", False)
        widths = against_conditionals(job, found.draws, probe) if checked else None
        reasons = list(result.notes)
        result.notes.extend([*unused(start, result), *card.remarks])
        result.notes.extend(of_spread(card.summary) if "poisson" in method.notes.traits else [])
        if result.params is not None:
            collapsed = collapse.remarks(method, result.params, inside, card, data)
            result.notes.extend([*method.notes.remarks(result.params, data, settled), *collapsed])
            reasons += [note for note in result.notes if note.startswith(COLLAPSED)]
        seconds = time.perf_counter() - begun
    if said := ended_early(method.name, result, reasons):
        warnings.warn(said, ConvergenceWarning, stacklevel=2)
    told = [*reduced(method, chosen.hyper, settled), *chosen.how, *features.told(method, data, raw)]
    info = about(result.notes) | {"chosen": told, "widths": widths}
    own = method, settled, result.engine or engine, seed
    return components.told(Fit(*own, result, card, seconds, info))


def load(path: str | os.PathLike[str]) -> Fit:
    """Read a fit that `Fit.save` wrote; any other folder, or a damaged one, raises an error."""
    return Fit(**saving.load(path))


def compare(fits: Mapping[str, Any], test: Any, about: str = "", train: Any = None) -> Any:
    """Compare fits on a test set: a table of scores, pictures, and a report by `.to_html(path)`.

    `about` says how the test set was made ("random 90/10, seed 0"); the report repeats this text. With the
    training data as `train`, recommendations are scored too, and compared with the most popular items.
    """
    from bayesfac.report.compare import compare as compare_fits

    return compare_fits(fits, test, about=about, train=train)
