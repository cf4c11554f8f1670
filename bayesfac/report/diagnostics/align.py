"""Bring the draws of a factorization into one frame, so that its factors can be read.

The joint density stays the same when all factors are turned by one orthogonal matrix, or when the
components swap names. Draws, chains and engines wander through these copies freely: the mean of raw
factors means nothing. Here every draw is moved to one pivot, turned (orthogonal Procrustes) or
relabelled (the Hungarian method), and what is left over is reported: a residual per draw, and how many
separate explanations remain.

Works on any arrays, on a fit, and on any ArviZ DataTree with a `posterior` group.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

import bayesfac.models  # noqa: F401  # registers the methods that a file may name
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Permutation, Rotation, gauge_of, lookup, moved_sites, sites
from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics.matching import Match, relabel, turn
from bayesfac.report.diagnostics.matching import align_permutation as align_permutation
from bayesfac.report.diagnostics.matching import align_rotation as align_rotation
from bayesfac.report.diagnostics.modes import LOOKED, heaps


@dataclass(frozen=True, eq=False)
class Aligned:
    """Draws in one frame: `draws` by site with dims (chain, draw, ...), `residual` per draw.

    Of several gauges, or entries (stages, members) that turn by themselves: the worst of them.
    `heap` numbers, for evenly spaced draws (chain, some draws), the heap each lies in.
    """

    draws: dict[str, np.ndarray]
    residual: np.ndarray
    ambiguous: bool
    notes: tuple[str, ...]
    heap: np.ndarray
    turned: tuple[str, ...] = ()

    @property
    def modes(self) -> int:
        """How many separate explanations remain."""
        return int(self.heap.max()) + 1

    @property
    def modes_in_words(self) -> str:
        """The same, and whether chains go from one to the other."""
        if self.modes == 1:
            return "One mode: all draws tell the same explanation."
        shares = ", ".join(f"{(self.heap == m).mean():.0%}" for m in range(self.modes))
        stuck = (self.heap == self.heap[:, :1]).all()
        how = "no chain leaves its own" if stuck else "chains go from one to another"
        return f"{self.modes} modes remain, with {shares} of the draws: {how}."

    def r_hat(self) -> dict[str, np.ndarray]:
        """R-hat of every number of the sites that were moved, {site: array}.

        Refused where another frame would have done nearly as well: the numbers would say how the
        draws were matched, not whether the chains agree.
        """
        if self.ambiguous:
            raise BayesfacError(
                f"Expected factors that alignment determines, got {len(self.notes)} doubt(s): "
                f"{self.notes[0]} Look at `fit.diagnostics()`, which is of identified quantities"
            )
        return {site: arviz_versions.rhat(self.draws[site]) for site in self.turned}

    def __repr__(self) -> str:
        typical = float(np.median(self.residual)) if self.residual.size else 0.0
        head = f"Aligned({', '.join(self.draws)}; median residual {typical:.3f})"
        return "\n  ".join([head, self.modes_in_words, *self.notes])


def align(
    source: Any,
    reference: Any = None,
    *,
    gauge: Sequence[Rotation | Permutation] | None = None,
) -> Aligned:
    """Bring all draws of a fit, or of an ArviZ DataTree, into one frame.

    Parameters
    ----------
    source : Fit or DataTree
        What was sampled.
    reference : Fit, Params or mapping, optional
        A point to turn to, so that the posterior can stand beside it.
    gauge : sequence of Rotation and Permutation, optional
        What may be turned or relabelled; by default what the method declares. A DataTree that
        another library wrote needs it: `bf.Rotation`, `bf.Permutation`.

    Returns
    -------
    Aligned
        `draws`, `residual` per draw, `modes`, `ambiguous` with `notes` that say why, and `r_hat()`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, v = rng.normal(size=(2, 30, 2))
    >>> turns = np.linalg.qr(rng.normal(size=(1, 5, 2, 2)))[0]
    >>> tree = xr.DataTree.from_dict({"posterior": xr.Dataset({
    ...     "U": (("chain", "draw", "user", "component"), u @ turns),
    ...     "V": (("chain", "draw", "item", "component"), v @ turns)})})
    >>> free = [Rotation(factors=("U", "V"), axes={"U": 1, "V": 1})]
    >>> bool(np.allclose(align(tree, {"U": u, "V": v}, gauge=free).draws["U"], u))
    True
    """
    draws, declared = _read(source, gauge)
    return align_draws(draws, declared, reference)


def align_draws(
    draws: Mapping[str, np.ndarray], gauge: Sequence[Rotation | Permutation], reference: Any = None
) -> Aligned:
    """The same for plain arrays: {site: (chain, draw, ...)}."""
    point = _point(reference)
    chains, length = next(iter(draws.values())).shape[:2]
    flat = {site: np.reshape(x, (chains * length, *x.shape[2:])) for site, x in draws.items()}
    residual, ambiguous = np.zeros(chains * length), False
    notes: list[str] = []
    for free in gauge:
        match = _apply(free, flat, _settled(free, gauge, flat), point)
        residual = np.maximum(residual, match.residual)
        ambiguous |= match.ambiguous
        notes += match.notes
    moved = tuple(
        dict.fromkeys(site for free in gauge for site in moved_sites(free) if site in flat)
    )
    shaped = {site: x.reshape(chains, length, *x.shape[1:]) for site, x in flat.items()}
    heap = _heaps([shaped[site] for site in moved], chains, length)
    return Aligned(shaped, residual.reshape(chains, length), ambiguous, tuple(notes), heap, moved)


def _heaps(moved: list[np.ndarray], chains: int, length: int) -> np.ndarray:
    """The heap of evenly spaced draws, (chain, some of them)."""
    step = -(-chains * length // LOOKED)
    few = [site[:, ::step] for site in moved]
    if not few:
        return np.zeros((chains, 1), int)
    return heaps([site.reshape(-1, *site.shape[2:]) for site in few]).reshape(few[0].shape[:2])


def _apply(
    free: Rotation | Permutation,
    flat: dict[str, np.ndarray],
    clean: list[str],
    point: Mapping[str, np.ndarray] | None,
) -> Match:
    """Match on the telling sites, then move every site of the gauge, in place in `flat`."""
    if isinstance(free, Rotation) and free.each:
        return _entries(free, flat, point)
    if isinstance(free, Rotation):
        pivot = None if point is None else [point[name] for name in free.factors]
        match = align_rotation([flat[name] for name in free.factors], pivot)
        flat |= zip(free.factors, match.draws, strict=True)
        for name, axis in free.axes.items():
            if name not in free.factors and name in flat:
                flat[name] = turn(flat[name], axis, match.moves)
        for name in free.forms:
            if name in flat:  # R' M R: turn the columns, then the rows
                flat[name] = turn(turn(flat[name], 1, match.moves), 0, match.moves)
        return match
    pivot = None if point is None else [point[name] for name in clean]
    axes, signed = [free.axes[n] for n in clean], [n in free.signed for n in clean]
    match = align_permutation([flat[name] for name in clean], axes, pivot, signed)
    flat |= zip(clean, match.draws, strict=True)
    for name, axis in free.axes.items():
        if name not in clean and name in flat:
            signs = match.signs if name in free.signed else None
            flat[name] = relabel(flat[name], axis, match.moves, signs)
    return match


def _entries(
    free: Rotation, flat: dict[str, np.ndarray], point: Mapping[str, np.ndarray] | None
) -> Match:
    """Every entry of the sites' leading axis by itself: its own matches, the worst of their residuals."""
    mine = {name: flat[name] for name in (*free.factors, *free.axes, *free.forms) if name in flat}
    one = Rotation(free.factors, {name: axis - 1 for name, axis in free.axes.items()}, free.forms)
    matches, turned = [], {name: np.empty_like(site) for name, site in mine.items()}
    for entry in range(mine[free.factors[0]].shape[1]):
        part = {name: site[:, entry] for name, site in mine.items()}
        pivot = None if point is None else {name: point[name][entry] for name in free.factors}
        matches.append(_apply(one, part, [], pivot))
        for name, site in part.items():
            turned[name][:, entry] = site
    flat |= turned
    return Match(
        draws=[turned[name] for name in free.factors],
        moves=np.stack([match.moves for match in matches], 1),
        residual=np.max([match.residual for match in matches], 0),
        ambiguous=any(match.ambiguous for match in matches),
        notes=tuple(
            f"Entry {i}: {note}" for i, match in enumerate(matches) for note in match.notes
        ),
    )


def _settled(
    free: Rotation | Permutation, gauge: Sequence[Any], present: Mapping[str, Any]
) -> list[str]:
    """The sites to match on: where no other gauge has its labels mixed up still."""
    others = {name for other in gauge if other is not free for name in other.axes}
    mine = [name for name in free.axes if name in present]
    return [name for name in mine if name not in others] or mine


def _read(source: Any, gauge: Any) -> tuple[dict[str, np.ndarray], Sequence[Any]]:
    if isinstance(source, xr.DataTree):
        posterior = source["posterior"].to_dataset()
        order = [dim for dim in ("chain", "draw", "sample") if dim in posterior.dims]
        arrays = {
            str(n): v.transpose(*order, ...).to_numpy() for n, v in posterior.data_vars.items()
        }
        draws = {n: a if len(order) == 2 else a[None] for n, a in arrays.items()}
        if gauge is None and "method" not in source.attrs:
            raise ValueError("Expected gauge= for a DataTree that bayesfac did not write, got none")
        return draws, gauge or gauge_of(lookup(json.loads(source.attrs["method"])), draws)
    if source.draws is None:
        raise ValueError(f"Expected a fit with draws, got the point fit {source.name!r}")
    draws = dict(source.draws)
    return draws, gauge if gauge is not None else gauge_of(source.method, draws)


def _point(reference: Any) -> Mapping[str, np.ndarray] | None:
    if reference is None or isinstance(reference, Mapping):
        return reference
    params = reference if hasattr(reference, "_asdict") else reference.params
    return {name: np.asarray(value) for name, value in sites(params).items()}
