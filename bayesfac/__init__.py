"""Matrix factorizations, each fitted in two ways: by the solver of its paper, and as a Bayesian model.

>>> import bayesfac as bf
>>> ratings = bf.datasets.load("ratings")
>>> train, test = bf.split.holdout(ratings, 0.1, seed=0)
>>> point = bf.fit("pmf", train, n_components=3, progress=False)
>>> len(point.predict(test).mean) == len(test)
True
"""

import os as _os
import sys as _sys
from importlib import import_module as _import_module
from typing import Any as _Any

# XLA reads this variable once, when it is loaded; see core/programs.py.
if "jaxlib" not in _sys.modules:
    _os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"

# {public name: module that defines it}. Names are imported on first use, so that `bayesfac --help` is quick.
# `__init__.pyi` has the same list for type checkers.
_HOME = {
    "datasets": "bayesfac",
    "metrics": "bayesfac",
    "ranks": "bayesfac",
    "references": "bayesfac",
    "sklearn": "bayesfac",
    "split": "bayesfac",
    "testing": "bayesfac",
    "fit": "bayesfac.api",
    "load": "bayesfac.api",
    "methods": "bayesfac.api",
    "AutoRegressive": "bayesfac.compose",
    "Bernoulli": "bayesfac.compose",
    "Graph": "bayesfac.compose",
    "Horseshoe": "bayesfac.compose",
    "NegativeBinomial": "bayesfac.compose",
    "NonNegative": "bayesfac.compose",
    "Normal": "bayesfac.compose",
    "NormalWishart": "bayesfac.compose",
    "Ordinal": "bayesfac.compose",
    "RandomWalk": "bayesfac.compose",
    "Relevance": "bayesfac.compose",
    "Spherical": "bayesfac.compose",
    "SpikeAndSlab": "bayesfac.compose",
    "StudentT": "bayesfac.compose",
    "factorization": "bayesfac.compose",
    "Counts": "bayesfac.core.data.counts",
    "Measurements": "bayesfac.core.data.linked.measured",
    "Relations": "bayesfac.core.data.linked.relations",
    "Ratings": "bayesfac.core.data.ratings",
    "Tensor": "bayesfac.core.data.tensor",
    "Views": "bayesfac.core.data.views",
    "ConvergenceWarning": "bayesfac.core.errors",
    "DataWarning": "bayesfac.core.errors",
    "Permutation": "bayesfac.core.method",
    "Rotation": "bayesfac.core.method",
    "Fit": "bayesfac.fits.fit",
    "clusters": "bayesfac.fits.membership",
    "together": "bayesfac.fits.membership",
    "LBFGS": "bayesfac.inference",
    "MAP": "bayesfac.inference",
    "NUTS": "bayesfac.inference",
    "SVI": "bayesfac.inference",
    "VB": "bayesfac.inference",
    "FixedPoint": "bayesfac.inference",
    "Gibbs": "bayesfac.inference",
    "Quick": "bayesfac.inference",
    "comparators": "bayesfac.labels",
    "multilabel": "bayesfac.labels",
    "columns_on": "bayesfac.labels.columns",
    "Tasks": "bayesfac.labels.data.tasks",
    "Tuned": "bayesfac.labels.evaluation",
    "evaluate": "bayesfac.labels.evaluation",
    "compare": "bayesfac.report.compare",
    "align": "bayesfac.report.diagnostics.align",
    "loo_compare": "bayesfac.report.diagnostics.elpd",
    "prior_predictive": "bayesfac.report.diagnostics.prior_predictive",
    "auto": "bayesfac.search.automatic",
    "engines": "bayesfac.search.engine_costs",
    "path": "bayesfac.search.penalty_path",
    "Calibration": "bayesfac.simulation",
    "sbc": "bayesfac.simulation",
    "Checked": "bayesfac.simulation.checked",
    "check": "bayesfac.simulation.checked",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> _Any:
    if name not in _HOME:
        removed = _import_module("bayesfac.core.errors").REMOVED.get(f"engine {name.lower()}")
        raise AttributeError(removed or f"module 'bayesfac' has no attribute {name!r}")
    home = _HOME[name]
    is_module = home in ("bayesfac", "bayesfac.labels")
    value = _import_module(f"{home}.{name}") if is_module else getattr(_import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
