"""Bring the draws of a factorization into one frame, so that its factors can be interpreted.

The joint density does not change when all factors are rotated by one orthogonal matrix, or when components
are relabelled. Draws differ by such moves, so the mean of raw factors has no meaning. Here every draw is
rotated (orthogonal Procrustes) or relabelled (Hungarian method) to match one pivot. The result has a
residual for each draw, and the number of modes that remain. If aligned draws are still in several groups
with empty space between them (heaps), each heap is a mode: a different explanation of the data.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
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

LOOKED = 400  # draws whose pairs are compared
CHUNK = 2**15  # numbers of each draw that are multiplied at a time
DIRECTIONS = 5  # principal directions in which gaps are searched
LEAST, FEWEST = 0.05, 10  # least share, and least number, of draws on each side of a gap
# Least width of a gap, in mean distances of the neighbouring draws. One in 5,000 sets of 400 evenly spread
# draws has such a gap, (1 + 20 / 38)^-38 for each of 360 in 5 directions; two normal heaps of 150 draws have
# such a gap when they are 7 sds apart.
WIDE = 20.0


@dataclass(frozen=True, eq=False)
class Aligned:
    """Draws in one frame: `draws` by site with dims (chain, draw, ...), and `residual` per draw.

    With several gauges, or with entries (stages, members) that are rotated separately, `residual` is the
    largest. `heap` is the mode of evenly spaced draws (chain, some draws); `turned` names the moved sites.
    """

    draws: dict[str, np.ndarray]
    residual: np.ndarray
    ambiguous: bool
    notes: tuple[str, ...]
    heap: np.ndarray
    turned: tuple[str, ...] = ()

    @property
    def modes(self) -> int:
        """The number of modes that remain."""
        return int(self.heap.max()) + 1

    @property
    def modes_in_words(self) -> str:
        """The number of modes, their shares of the draws, and whether chains change mode."""
        if self.modes == 1:
            return "One mode: all draws describe the same solution."
        shares = ", ".join(f"{(self.heap == m).mean():.0%}" for m in range(self.modes))
        stuck = (self.heap == self.heap[:, :1]).all()
        how = "no chain leaves its mode" if stuck else "chains move between modes"
        return f"{self.modes} modes remain, with {shares} of the draws: {how}."

    def r_hat(self) -> dict[str, np.ndarray]:
        """R-hat of every entry of the moved sites, {site: array}.

        An ambiguous alignment raises an error, as R-hat would depend on the choice of the match.
        """
        if self.ambiguous:
            raise BayesfacError(
                f"Expected factors that alignment determines, got {len(self.notes)} doubt(s): "
                f"{self.notes[0]} Use `fit.diagnostics()`, which judges identified quantities"
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
    """Align all draws of a fit, or of an ArviZ DataTree, so that their factors can be compared.

    Parameters
    ----------
    source : Fit or DataTree
        A fit with draws, or any DataTree with a group `posterior`.
    reference : Fit, Params or mapping, optional
        A point fit to which all draws are aligned, so that it can be compared with the posterior.
    gauge : sequence of Rotation and Permutation, optional
        The symmetries of the joint density; by default those that the method declares. Required for a
        DataTree of another library (`bf.Rotation`, `bf.Permutation`).

    Returns
    -------
    Aligned
        `draws`, `residual` per draw, `modes`, `ambiguous` with reasons in `notes`, and `r_hat()`.

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
    """`align` for plain arrays: {site: (chain, draw, ...)}."""
    point = _point(reference)
    chains, length = next(iter(draws.values())).shape[:2]
    flat = {site: np.reshape(x, (chains * length, *x.shape[2:])) for site, x in draws.items()}
    residual, ambiguous = np.zeros(chains * length), False
    notes: list[str] = []
    for free in gauge:
        match = _apply(free, flat, _to_match(free, gauge, flat), point)
        residual = np.maximum(residual, match.residual)
        ambiguous |= match.ambiguous
        notes += match.notes
    names = (site for free in gauge for site in moved_sites(free) if site in flat)
    moved = tuple(dict.fromkeys(names))
    shaped = {site: x.reshape(chains, length, *x.shape[1:]) for site, x in flat.items()}
    heap = _heaps([shaped[site] for site in moved], chains, length)
    return Aligned(shaped, residual.reshape(chains, length), ambiguous, tuple(notes), heap, moved)


def _heaps(moved: list[np.ndarray], chains: int, length: int) -> np.ndarray:
    """The heap of evenly spaced draws, (chain, some draws)."""
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
    """Find the match from the factors (or the sites `clean`), then move all sites of the gauge in `flat`."""
    if isinstance(free, Rotation) and free.each:
        return _entries(free, flat, point)
    if isinstance(free, Permutation):
        return _relabelled(free, flat, clean, point)
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


def _relabelled(
    free: Permutation,
    flat: dict[str, np.ndarray],
    clean: list[str],
    point: Mapping[str, np.ndarray] | None,
) -> Match:
    """Find the order and the signs of components from the sites `clean`, then move all sites of the gauge."""
    pivot = None if point is None else [point[name] for name in clean]
    axes, groups = [free.axes[n] for n in clean], [free.group(n) for n in clean]
    match = align_permutation(
        [flat[name] for name in clean], axes, pivot, groups=groups, even=bool(free.modes)
    )
    flat |= zip(clean, match.draws, strict=True)
    for name, axis in free.axes.items():
        if name not in clean and name in flat:
            flat[name] = relabel(flat[name], axis, match.moves, match.of_group(free.group(name)))
    for name in free.forms:
        if name in flat:
            signs = match.of_group(free.group(name))
            once = relabel(flat[name], 0, match.moves, signs)
            flat[name] = relabel(once, 1, match.moves, signs)
    return match


def _entries(
    free: Rotation, flat: dict[str, np.ndarray], point: Mapping[str, np.ndarray] | None
) -> Match:
    """Match every entry of the leading axis (stage, member) separately; residuals are the largest."""
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
    notes = [f"Entry {i}: {note}" for i, match in enumerate(matches) for note in match.notes]
    return Match(
        draws=[turned[name] for name in free.factors],
        moves=np.stack([match.moves for match in matches], 1),
        residual=np.max([match.residual for match in matches], 0),
        ambiguous=any(match.ambiguous for match in matches),
        notes=tuple(notes),
    )


def _to_match(
    free: Rotation | Permutation, gauge: Sequence[Any], present: Mapping[str, Any]
) -> list[str]:
    """The sites to match on: those that no other gauge moves, if there are any."""
    others = {name for other in gauge if other is not free for name in other.axes}
    mine = [name for name in free.axes if name in present]
    return [name for name in mine if name not in others] or mine


def _read(source: Any, gauge: Any) -> tuple[dict[str, np.ndarray], Sequence[Any]]:
    if isinstance(source, xr.DataTree):
        posterior = source["posterior"].to_dataset()
        order = [dim for dim in ("chain", "draw", "sample") if dim in posterior.dims]
        arrays = {str(n): v.transpose(*order, ...).to_numpy() for n, v in posterior.items()}
        draws = {n: a if len(order) == 2 else a[None] for n, a in arrays.items()}
        if gauge is None and "method" not in source.attrs:
            raise ValueError(
                "Expected gauge= for a DataTree without the attribute 'method', got none"
            )
        made = source.attrs.get("recipe", source.attrs.get("method", ""))
        return draws, gauge or gauge_of(lookup(json.loads(made)), draws)
    if source.draws is None:
        raise ValueError(f"Expected a fit with draws, got the point fit {source.name!r}")
    draws = dict(source.draws)
    return draws, gauge if gauge is not None else gauge_of(source.method, draws)


def _point(reference: Any) -> Mapping[str, np.ndarray] | None:
    if reference is None or isinstance(reference, Mapping):
        return reference
    params = reference if hasattr(reference, "_asdict") else reference.params
    return {name: np.asarray(value) for name, value in sites(params).items()}


# -- modes --------------------------------------------------------------------------------------
def heaps(sites: Sequence[np.ndarray]) -> np.ndarray:
    """The heap of every draw: 0 for the largest heap, 1 for the next, ...

    Parameters
    ----------
    sites : sequence of arrays (S, ...)
        Aligned draws; all sites count equally.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> one, other = rng.normal(size=(100, 30)), 3 + rng.normal(size=(50, 30))
    >>> np.bincount(heaps([np.concatenate([one, other])])).tolist()
    [100, 50]
    """
    gram = np.sum([_gram(site) for site in sites], axis=0)
    least = max(FEWEST, int(np.ceil(LEAST * len(gram))))
    parts = sorted(_split(gram, np.arange(len(gram)), least), key=len, reverse=True)
    label = np.empty(len(gram), int)
    for number, members in enumerate(parts):
        label[members] = number
    return label


def _gram(site: np.ndarray) -> np.ndarray:
    """Inner products of all pairs of centred draws, divided by the site's mean square."""
    flat = site.reshape(len(site), -1)
    total, size = np.zeros((len(flat), len(flat))), 0.0
    for start in range(0, flat.shape[1], CHUNK):
        part = np.asarray(flat[:, start : start + CHUNK], float)
        size += float((part**2).sum()) / len(part)
        part = part - part.mean(0)
        total += part @ part.T
    return total / max(size, np.finfo(float).tiny)


def _split(gram: np.ndarray, members: np.ndarray, least: int) -> Iterator[np.ndarray]:
    """Split the members at the widest gap, and the halves again, until no gap is left."""
    here = gram[np.ix_(members, members)]
    here = here - here.mean(0) - here.mean(1)[:, None] + here.mean()
    values, vectors = np.linalg.eigh(here)
    noise = 1e-12 * max(float(np.trace(gram)), np.finfo(float).tiny)
    largest = range(1, min(DIRECTIONS, len(members)) + 1)
    gaps = [_gap(vectors[:, -k], least) for k in largest if values[-k] > noise]
    width, below = max(gaps, key=lambda gap: gap[0], default=(0.0, members < 0))
    if width < WIDE:
        yield members
    else:
        yield from _split(gram, members[below], least)
        yield from _split(gram, members[~below], least)


def _gap(score: np.ndarray, least: int) -> tuple[float, np.ndarray]:
    """Width of the widest gap, in mean distances of `least` draws on each side, and the draws below it."""
    below = np.zeros(len(score), bool)
    if len(score) < 2 * least:
        return 0.0, below
    order = np.argsort(score)
    x = score[order]
    at = np.arange(least - 1, len(x) - least)  # the last draw below a gap
    beside = (x[at] - x[at - least + 1] + x[at + least] - x[at + 1]) / (2 * least - 2)
    beside = np.maximum(beside, 1e-9 * max(x[-1] - x[0], np.finfo(float).tiny))
    widths = (x[at + 1] - x[at]) / beside
    best = int(np.argmax(widths))
    below[order[: at[best] + 1]] = True
    return float(widths[best]), below
