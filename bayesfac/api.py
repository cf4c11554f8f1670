"""The main functions: `fit`, `load` and `methods`."""

import os
from typing import Any

import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.core.method import REGISTRY, Method
from bayesfac.fits import saving
from bayesfac.fits.fit import Fit
from bayesfac.fits.running import run


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
    method : str or Method
        A name from `bf.methods()`, what `bf.factorization` returns, or the file of its recipe.
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
    return run(Fit, method, data, engine, seed=seed, init=init, progress=progress, **hyper)


def load(path: str | os.PathLike[str]) -> Fit:
    """Read a fit that `Fit.save` wrote; any other folder, or a damaged one, raises an error."""
    return Fit(**saving.load(path))


class Listing(pd.DataFrame):
    """A table that prints every row and every column, however wide the texts are."""

    def __repr__(self) -> str:
        lines = []
        for kind, rows in self.groupby("data"):
            lines.append(f"{kind}")
            for name, row in rows.iterrows():
                lines += [f"  {name:<12} {row['what']}", f"{'':15}{row['cite']}: {row['engines']}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return str(self.to_html())


def methods() -> pd.DataFrame:
    """All methods: what they do, their data, solver, engines and paper. The first engine is the solver."""
    rows = [
        {
            "method": method.name,
            "what": method.paper,
            "data": method.data.__name__,
            "solver": method.default_engine,
            "engines": ", ".join(method.engines),
            "cite": method.cite,
        }
        for _, method in sorted(REGISTRY.items())
    ]
    return Listing(pd.DataFrame(rows).set_index("method"))
