"""Matrix factorizations, each fitted in two ways: by the solver of its paper, and as a Bayesian model.

>>> import bayesfac as bf
>>> ratings = bf.datasets.load("ratings")
>>> train, test = bf.split.holdout(ratings, 0.1, seed=0)
>>> point = bf.fit("pmf", train, n_components=3, progress=False)
>>> len(point.predict(test).mean) == len(test)
True
"""

import os as _os
import re as _re
import sys as _sys
from importlib import import_module as _import_module
from importlib.resources import files as _files
from typing import Any as _Any

# XLA reads this variable once, when it is loaded; see core/programs.py.
if "jaxlib" not in _sys.modules:
    _os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"

# {public name: module that defines it}. Names are imported on first use, so that `bayesfac --help` is quick.
_HOME = {
    name: home
    for home, name in _re.findall(
        r"^from (\S+) import (\w+)",
        _files(__name__).joinpath("__init__.pyi").read_text("utf-8"),
        _re.M,
    )
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
