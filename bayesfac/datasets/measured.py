"""Made-up measurements: views of the same rows with sparse loadings."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bayesfac.core import checks
from bayesfac.core.data.linked.measured import Measurements
from bayesfac.datasets.generators import check_sizes


class Loadings(NamedTuple):
    """The truth of `make_measurements`: scores are U V[view]'."""

    U: np.ndarray
    V: dict[str, np.ndarray]


def make_measurements(
    n_rows: int = 200,
    features: Mapping[str, int] | None = None,
    rank: int = 4,
    *,
    laws: Mapping[str, str] | None = None,
    noise: float = 1.0,
    density: float = 0.3,
    missing: float = 0.1,
    absent: float = 0.1,
    seed: int = 0,
) -> tuple[Measurements, Loadings]:
    """Views of the same rows with sparse loadings, as in the papers of MOFA, and the true factors.

    U and the loadings that are not zero are standard normal. Each component is in a view with probability
    .6, at least in one, and there a share `density` of its loadings is not zero. Normal views have noise with
    the standard deviation `noise`.

    Parameters
    ----------
    features : mapping, optional
        {view: its number of features}; by default {"genes": 100, "drugs": 40, "marks": 30}.
    laws : mapping, optional
        {view: "normal", "bernoulli" (0 and 1) or "counts"}; by default "marks" has 0 and 1, and all others
        are normal.
    missing, absent : float
        The share of cells that are missing, and that of rows without any cell in a view; all rows have the
        first view.

    Examples
    --------
    >>> data, truth = make_measurements(20, {"genes": 8, "marks": 5}, rank=2)
    >>> data.table("genes").shape, truth.V["marks"].shape
    ((20, 8), (5, 2))
    """
    sizes = dict(features or {"genes": 100, "drugs": 40, "marks": 30})
    laws = {"marks": "bernoulli"} | dict(laws or {})
    check_sizes(noise, n_rows=n_rows, rank=rank, **sizes)
    for name, law in laws.items():
        if law not in ("normal", "bernoulli", "counts"):
            raise ValueError(
                f"Expected 'normal', 'bernoulli' or 'counts' for {name!r}, got {law!r}"
            )
    rng = checks.generator(seed)
    U = rng.standard_normal((n_rows, rank))
    active = rng.random((len(sizes), rank)) < 0.6
    active[0] |= ~active.any(0)
    V, tables = {}, {}
    for number, (name, size) in enumerate(sizes.items()):
        loads = (rng.random((size, rank)) < density) & active[number]
        V[name] = np.where(loads, rng.standard_normal((size, rank)), 0.0)
        x, law = U @ V[name].T, laws.get(name, "normal")
        y: np.ndarray = x + noise * rng.standard_normal(x.shape)
        if law == "bernoulli":
            y = 1.0 * (rng.random(x.shape) < 1 / (1 + np.exp(-x)))
        elif law == "counts":
            y = rng.poisson(np.exp(np.minimum(0.5 + x, 6.0))).astype(float)
        away = rng.random(y.shape) < missing
        away[rng.random(n_rows) < (absent if number else 0.0)] = True
        away[rng.integers(n_rows, size=size), np.arange(size)] = False  # every feature has a value
        tables[name] = np.where(away, np.nan, y)
    return Measurements(tables), Loadings(U, V)
