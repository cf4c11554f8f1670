"""A fit as an ArviZ DataTree with the user's labels, and as a checksummed netCDF file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import arviz_base
import numpy as np
import pandas as pd
import xarray as xr

from bayesfac.core.data.cards import check_same
from bayesfac.core.errors import BayesfacError
from bayesfac.core.files import ask_space, atomic
from bayesfac.core.method import site_dims
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.stored_draws import Thinned

LARGE = 4 * 2**30


def to_datatree(fit: Any, *, thin: int = 1, max_bytes: int = LARGE) -> xr.DataTree:
    """The draws of a fit as an ArviZ DataTree.

    Parameters
    ----------
    fit : Fit
        A fit with draws; SVI has one chain of independent draws.
    thin : int
        Keep every `thin`-th draw.
    max_bytes : int
        Raise an error instead of building a larger tree.

    Returns
    -------
    DataTree
        `posterior` (dims chain, draw and those of the method, with the user's labels as coordinates)
        and `sample_stats`; method, engine, hyper-parameters, seed and versions are JSON in `attrs`.

    Examples
    --------
    >>> import bayesfac as bf
    >>> fit = bf.fit("pmf", bf.datasets.load("ratings"), bf.Gibbs(10, 20, 1), progress=False)
    >>> to_datatree(fit).posterior["U"].dims
    ('chain', 'draw', 'user', 'component')
    """
    if fit.draws is None:
        raise ValueError(f"Expected a fit with draws, got a point fit of {fit.name}: see .params")
    _check_size({s: v.nbytes // thin for s, v in fit.draws.items()}, thin, max_bytes)
    draws = {site: np.asarray(values[:, ::thin]) for site, values in fit.draws.items()}
    dims = {site: list(site_dims(fit.method, site)) for site in draws}
    groups = {"posterior": draws}
    if fit.stats:
        groups["sample_stats"] = {k: np.asarray(v)[:, ::thin] for k, v in fit.stats.items()}
    attrs = {name: json.dumps(value, default=str) for name, value in _provenance(fit).items()}
    coords = {name: labels(index) for name, index in _coords(fit, draws, dims).items()}
    return arviz_base.from_dict(groups, coords=coords, dims=dims, attrs={"/": attrs})


def with_data(fit: Any, data: Any, *, thin: int = 1, max_bytes: int = LARGE) -> xr.DataTree:
    """`to_datatree` with `observed_data` and `log_likelihood`, so that ArviZ's own `loo` runs.

    A variable has the name of the model's site, `rating` or `view.labels`. Its axis is `cell`, with the
    labels of each cell as coordinates. The log likelihood of a cell is its term of the log joint: a log
    density, or minus a loss. `Fit.loo` keeps only the scores of the cells, and so needs less memory.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.load("ratings")
    >>> fit = bf.fit("pmf", ratings, bf.Gibbs(10, 20, 2), progress=False)
    >>> with_data(fit, ratings).log_likelihood["rating"].dims
    ('chain', 'draw', 'cell')
    """
    tree = to_datatree(fit, thin=thin, max_bytes=max_bytes)
    data = fit.method.ready(data, fit.hyper)
    check_same(fit.data, data)
    query, cells, _ = fit.data.locate(data)
    told = pointwise.told(fit.method, data, query, fit.data.levels)
    pointwise.refuse_entangled(fit.method, data)
    draws = Thinned(fit.draws, thin)
    shape = next(iter(draws.values())).shape[:2]
    _check_size({"log_likelihood": 8 * len(told) * int(np.prod(shape))}, thin, max_bytes)
    table = np.empty((len(told), int(np.prod(shape))))
    for at, factor, _ in pointwise.by_block(fit.method, fit.hyper, draws, told, max_bytes // 4):
        table[at] = factor
    site = fit.data.form.site
    likelihood = {site: table.T.reshape(*shape, len(told))}
    groups = {"observed_data": {site: told.value}, "log_likelihood": likelihood}
    more = arviz_base.from_dict(groups, dims={site: ["cell"]})
    who = {name: ("cell", labels(column)) for name, column in cells.items()}
    for name in groups:
        tree[name] = xr.DataTree(more[name].to_dataset().assign_coords(who))
    return tree


def labels(index: Any) -> np.ndarray:
    r"""Labels in a type that netCDF can store: numbers, dates and text unchanged, all others as text.

    NetCDF has no text with the character NUL, which becomes the sign for it.

    >>> labels(["ann", 2, None, "a\0"])
    array(['ann', '2', 'None', 'a␀'], dtype='<U4')
    """
    array = np.asarray(pd.Index(index))
    if array.dtype.kind in "biuM" or (array.dtype.kind == "f" and not np.isnan(array).any()):
        return array
    return np.array([str(label).replace("\0", "␀") for label in array.tolist()], dtype=str)


def _coords(fit: Any, draws: Mapping[str, Any], dims: Mapping[str, list[str]]) -> dict[str, Any]:
    """Coordinates of every axis: the user's labels, the levels of the scale, or 0, 1, ..."""
    sizes = {d: n for s in draws for d, n in zip(dims[s], draws[s].shape[2:], strict=True)}
    known, levels = dict(fit.data.coords), fit.data.levels
    if levels and sizes.get("level") == len(levels):
        known["level"] = pd.Index(levels)
    return {dim: known.get(dim, np.arange(n)) for dim, n in sizes.items()}


def _provenance(fit: Any) -> dict[str, Any]:
    settings = fit.hyper._asdict().items()
    hyper = {k: v for k, v in settings if isinstance(v, str) or not np.iterable(v)}
    engine = {"name": type(fit.engine).__name__, **vars(fit.engine)}
    about = {"method": fit.name, "hyper": hyper, "engine": engine, "seed": fit.seed}
    about |= {"recipe": fit.method.recipe} if fit.method.recipe else {}
    return {**about, "seconds": fit.seconds, "partial": fit.partial, "info": fit.info}


def _check_size(sizes: Mapping[str, int], thin: int, max_bytes: int) -> None:
    """Refuse arrays that are too large together; `thin` is how much they are thinned already."""
    total = sum(sizes.values())
    if total > max_bytes:
        limit, size = (f"{n / 2**30:.3g} GiB" for n in (max_bytes, total))
        most = max(sizes, key=sizes.__getitem__)
        raise BayesfacError(
            f"Expected at most {limit} of draws, got {size}, most of it {most!r}: "
            f"keep every n-th draw with thin={-(-total // max_bytes) * thin}, or raise max_bytes"
        )


# -- files --------------------------------------------------------------------------------------
def to_netcdf(tree: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write a DataTree as one compressed netCDF file with checksums; a failed write leaves no file.

    Other programs can read the file too: `xarray.open_datatree(path)`.
    """
    # in memory first: HDF5 itself ends Python with a segmentation fault when it meets a full disk
    content = tree.to_netcdf(engine="h5netcdf", encoding=_encoding(tree))
    ask_space(Path(path), len(content))
    with atomic(path) as part:
        part.write_bytes(content)


def _encoding(tree: xr.DataTree) -> dict[str, dict[str, Any]]:
    """Compression and checksums for arrays of numbers; HDF5 has none for text of variable length."""
    packed = {"zlib": True, "complevel": 4, "shuffle": True, "fletcher32": True}
    return {
        node.path: {
            str(name): packed
            for name, values in node.to_dataset(inherit=False).variables.items()
            if values.dtype.kind in "biuf" and values.ndim
        }
        for node in tree.subtree
    }
