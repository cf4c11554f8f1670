"""Every factorization, written twice: the paper's point solver and its generative twin.

>>> import bayesfac as bf
>>> ratings = bf.datasets.load("ratings")
>>> train, test = bf.split.holdout(ratings, 0.1, seed=0)
>>> point = bf.fit("pmf", train, n_components=3, progress=False)
>>> len(point.predict(test).mean) == len(test)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesfac import baselines as baselines
    from bayesfac import comparators as comparators
    from bayesfac import datasets as datasets
    from bayesfac import metrics as metrics
    from bayesfac import multilabel as multilabel
    from bayesfac import ranks as ranks
    from bayesfac import sklearn as sklearn
    from bayesfac import split as split
    from bayesfac.api import Fit as Fit
    from bayesfac.api import compare as compare
    from bayesfac.api import fit as fit
    from bayesfac.api import load as load
    from bayesfac.api import methods as methods
    from bayesfac.core.data import Ratings as Ratings
    from bayesfac.core.errors import ConvergenceWarning as ConvergenceWarning
    from bayesfac.core.errors import DataWarning as DataWarning
    from bayesfac.core.method import Permutation as Permutation
    from bayesfac.core.method import Rotation as Rotation
    from bayesfac.core.tasks import Tasks as Tasks
    from bayesfac.core.views import Views as Views
    from bayesfac.evaluation import Tuned as Tuned
    from bayesfac.evaluation import evaluate as evaluate
    from bayesfac.inference import LBFGS as LBFGS
    from bayesfac.inference import MAP as MAP
    from bayesfac.inference import NUTS as NUTS
    from bayesfac.inference import SVI as SVI
    from bayesfac.inference import FixedPoint as FixedPoint
    from bayesfac.inference import Gibbs as Gibbs
    from bayesfac.membership import clusters as clusters
    from bayesfac.membership import columns_on as columns_on
    from bayesfac.membership import together as together
    from bayesfac.paths import path as path
    from bayesfac.report.align import align as align
    from bayesfac.report.loo_compare import loo_compare as loo_compare
    from bayesfac.report.prior import prior_predictive as prior_predictive
    from bayesfac.simulation import Calibration as Calibration
    from bayesfac.simulation import sbc as sbc

__version__ = "0.1.0"

# name -> where it lives; imported on first use, so that `bayesfac --help` need not load JAX
_HOME = {
    **dict.fromkeys(("fit", "load", "methods", "compare", "Fit"), "bayesfac.api"),
    **dict.fromkeys(("Ratings", "Tasks", "Views"), "bayesfac.core.data"),
    **dict.fromkeys(("ConvergenceWarning", "DataWarning"), "bayesfac.core.errors"),
    "evaluate": "bayesfac.evaluation",
    "loo_compare": "bayesfac.report.loo_compare",
    "path": "bayesfac.paths",
    "align": "bayesfac.report.align",
    **dict.fromkeys(("Permutation", "Rotation"), "bayesfac.core.method"),
    "prior_predictive": "bayesfac.report.prior",
    "Tuned": "bayesfac.evaluation",
    **dict.fromkeys(("sbc", "Calibration"), "bayesfac.simulation"),
    **dict.fromkeys(("clusters", "columns_on", "together"), "bayesfac.membership"),
    **dict.fromkeys(("FixedPoint", "LBFGS", "MAP", "SVI", "NUTS", "Gibbs"), "bayesfac.inference"),
}
_MODULES = (
    "baselines", "comparators", "datasets", "metrics", "multilabel", "ranks", "report", "sklearn", "split",
    "testing",
)  # fmt: skip

__all__ = [
    "LBFGS",
    "MAP",
    "NUTS",
    "SVI",
    "Calibration",
    "ConvergenceWarning",
    "DataWarning",
    "Fit",
    "FixedPoint",
    "Gibbs",
    "Permutation",
    "Ratings",
    "Rotation",
    "Tasks",
    "Tuned",
    "Views",
    "align",
    "baselines",
    "clusters",
    "comparators",
    "compare",
    "datasets",
    "evaluate",
    "fit",
    "load",
    "loo_compare",
    "methods",
    "metrics",
    "multilabel",
    "path",
    "prior_predictive",
    "ranks",
    "sbc",
    "sklearn",
    "split",
    "together",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"bayesfac.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'bayesfac' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, *_MODULES, "__version__"])
