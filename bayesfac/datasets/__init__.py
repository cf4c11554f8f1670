"""Data sets by name, files of the user, and generators.

`load(name)` returns `Ratings` or `Views`, `target(name)` the class labels of views, and `about(name)` the
licence and citation. `ratings` and `digits` need no network. `read(path)` reads a file of your own, and
`read_large(path)` one that does not fit in memory.
"""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.views import Views
from bayesfac.core.errors import check_names
from bayesfac.datasets import fetch, generators, readers
from bayesfac.datasets.files import read, read_pairs, views
from bayesfac.datasets.generators import (
    make_gaussian,
    make_ratings,
    make_relations,
    make_tensor,
    make_topics,
    make_uneven_ratings,
)
from bayesfac.datasets.large import read_large
from bayesfac.datasets.measured import make_measurements
from bayesfac.datasets.registry import LEVELS, RECORDS, Record
from bayesfac.datasets.selected import make_selected

__all__ = [  # noqa: F822  # two names are in LABELLED
    "about",
    "list",
    "load",
    "make_gaussian",
    "make_measurements",
    "make_ratings",
    "make_relations",
    "make_selected",
    "make_tasks",
    "make_tensor",
    "make_topics",
    "make_uneven_ratings",
    "read",
    "read_arff",
    "read_large",
    "read_pairs",
    "target",
]


# data sets of several labels: {name: module of their wing}, imported on first use
LABELLED = {"make_tasks": "bayesfac.labels.generators", "read_arff": "bayesfac.labels.arff"}

MADE: dict[str, Callable[[], Any]] = {  # data sets that need no file
    "ratings": partial(make_ratings, 300, 200, rank=5, density=0.15, seed=0, noise=0.6),
    "uneven-ratings": make_uneven_ratings,
    "digits": lambda: generators.embedded_digits()[0],
}


def __getattr__(name: str) -> Any:
    if name not in LABELLED:
        raise AttributeError(f"module 'bayesfac.datasets' has no attribute {name!r}")
    return getattr(import_module(LABELLED[name]), name)


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)


def list(folder: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """A table of the data sets: kind, size, whether the data are on this machine, licence and source.

    Examples
    --------
    >>> "movielens-100k" in list().index
    True
    """
    rows = {
        record.name: {
            "kind": record.kind,
            "size": record.size,
            "at hand": fetch.at_hand(record, folder),
            "licence": record.licence,
            "source": " or ".join(s.where for s in record.sources) or "made here",
        }
        for record in RECORDS.values()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")


def about(name: str) -> Record:
    """The record of a data set: title, licence, citation, sources.

    Examples
    --------
    >>> about("digits").kind
    'views'
    """
    check_names("data set", (name,), RECORDS)
    return RECORDS[name]


def load(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
    features: bool = False,
) -> Ratings | Views:
    """A data set, ready to fit.

    Parameters
    ----------
    name : str
        One of `list().index`.
    folder : path, optional
        Searched first; also the place for downloads. By default BAYESFAC_DATA, then the system's
        cache folder.
    download : bool
        Whether to download data that are not on this machine.
    progress : bool
        Whether to show a progress bar (only on a terminal).
    features : bool
        With features of users and items, for data sets that have some. MovieLens 100K and 1M have the age,
        sex and occupation of users and the genres of films.

    Examples
    --------
    >>> load("ratings")
    Ratings(300 users x 200 items, 9000 ratings, density 0.15, levels 1..5)
    """
    record = about(name)
    if features and not name.startswith("movielens"):
        raise ValueError(f"Expected features=True for movielens-100k or movielens-1m, got {name!r}")
    if name in MADE:
        return MADE[name]().named(name)
    arrays = fetch.arrays(record, folder, download, progress)
    if record.kind == "views":
        return views(arrays).named(name)
    time, columns = arrays.get("timestamp"), (arrays["user"], arrays["item"], arrays["rating"])
    tables: dict[str, Any] = readers.tables(arrays, name) if features else {}
    return Ratings(*columns, levels=LEVELS, times=time, **tables).named(name)


def target(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> np.ndarray:
    """The class of every row of a data set of views; the other arguments as in `load`.

    Examples
    --------
    >>> target("digits")[:5].tolist()
    [0, 1, 2, 3, 4]
    """
    record = about(name)
    if record.kind != "views":
        raise ValueError(f"Expected a data set of views, got {name!r}: {record.kind} have no class")
    if name == "digits":
        return generators.embedded_digits()[1]
    return fetch.arrays(record, folder, download, progress)["y"].astype(int)
