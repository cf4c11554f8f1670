"""Match every draw to a pivot: by the best orthogonal matrix, or by the best order of components.

These functions take and return arrays; `bayesfac.report.diagnostics.align` applies them to a fit.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

BLOCK = 128  # draws multiplied at a time, which bounds the work space
FEW = 0.05  # a smaller share of draws, or of a singular value, is negligible
COSINE = 0.5  # a direction whose cosine with the pivot is smaller is not determined
MARGIN = 0.2  # components whose swap costs less, in units of their distance, are hard to tell apart
SWEEPS, TOLERANCE = 200, 1e-10  # varimax: sweeps at most, relative gain at the end


class Match(NamedTuple):
    """The result of matching draws to a pivot.

    draws       the moved draws, in the order and shapes of the input
    moves       (S, K, K) orthogonal matrices, or (S, K) orders of the components
    residual    (S,) distance from the pivot after the move, relative to the pivot
    ambiguous   whether another move fits nearly as well
    notes       warnings in words
    signs       (group, S, K) of the relabelled components, if their signs are free
    """

    draws: list[np.ndarray]
    moves: np.ndarray
    residual: np.ndarray
    ambiguous: bool
    notes: tuple[str, ...]
    signs: np.ndarray | None = None

    def of_group(self, group: int) -> np.ndarray | None:
        """The signs of a group of sites; None for -1, sites whose signs are fixed."""
        return None if self.signs is None or group < 0 else self.signs[group]


# -- rotations ----------------------------------------------------------------------------------
def align_rotation(
    factors: Sequence[np.ndarray], pivot: Sequence[np.ndarray] | None = None
) -> Match:
    """Rotate every draw onto one pivot by orthogonal Procrustes.

    Parameters
    ----------
    factors : sequence of arrays (S, n, K)
        The sites that share one rotation, S draws each.
    pivot : sequence of arrays (n, K), optional
        For example a point fit's factors, whose axes are kept. By default the mean of the draws,
        rotated to the draw whose Gram matrix has the most central spectrum; its axes are those of
        varimax, the strongest first, with positive skew.

    Notes
    -----
    The match is unique if no direction of a draw is orthogonal to the pivot, so `ambiguous` depends on
    the smallest cosine between the column spaces. Nearly equal singular values make only the order of the
    axes arbitrary, which is a note.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(30, 2))
    >>> turns = np.linalg.qr(rng.normal(size=(5, 2, 2)))[0]
    >>> match = align_rotation([truth @ turns], pivot=[truth])
    >>> bool(np.allclose(match.draws[0], truth)), match.ambiguous
    (True, False)
    """
    factors = [_checked(draws, 3) for draws in factors]
    gram = _cross(factors, None)
    if pivot is None:
        start = _central(np.linalg.eigvalsh(gram))
        turns = _procrustes(_cross(factors, [draws[start] for draws in factors]))
        target = _mean_turned(factors, turns)
        axes = readable_axes(np.concatenate(target))
        target = [mean @ axes for mean in target]
    else:
        target = [np.asarray(point, float) for point in pivot]
    cross = _cross(factors, target)
    turns = _procrustes(cross)
    size = sum((mean**2).sum() for mean in target)
    overlap = np.einsum("skl,skl->s", cross, turns)
    rest = np.trace(gram, axis1=1, axis2=2) + size - 2 * overlap
    residual = np.sqrt(np.maximum(rest, 0) / max(size, np.finfo(float).tiny))
    ambiguous, notes = _rotation_notes(gram, cross, target)
    return Match([turn(d, 1, turns) for d in factors], turns, residual, ambiguous, notes)


def readable_axes(loadings: np.ndarray) -> np.ndarray:
    """The orthogonal matrix of varimax for loadings (n, K), columns sorted by size, with positive skew."""
    axes = np.linalg.svd(loadings, full_matrices=False)[2].T  # the same start for every rotation
    axes = axes @ _varimax(loadings @ axes)
    turned = loadings @ axes
    axes = axes[:, np.argsort(-(turned**2).sum(0), kind="stable")]
    skew = ((loadings @ axes) ** 3).sum(0)
    return axes * np.where(skew < 0, -1.0, 1.0)


def _varimax(loadings: np.ndarray) -> np.ndarray:
    turn, best = np.eye(loadings.shape[1]), 0.0
    for _ in range(SWEEPS):
        turned = loadings @ turn
        squares = turned**2  # a third power would take as long as all the rest
        slope = loadings.T @ (turned * (squares - squares.mean(0)))
        left, strength, right = np.linalg.svd(slope)
        turn, total = left @ right, float(strength.sum())
        if total <= best * (1 + TOLERANCE):
            break
        best = total
    return turn


def _cross(factors: list[np.ndarray], target: list[np.ndarray] | None) -> np.ndarray:
    """F' T summed over the sites, per draw (F' F without a target), in float64."""
    points: Sequence[Any] = [None] * len(factors) if target is None else target
    totals = []
    for draws, point in zip(factors, points, strict=True):
        blocks = (np.swapaxes(b, 1, 2) @ (b if point is None else point) for b in _blocks(draws))
        totals.append(np.concatenate(list(blocks)))
    return np.sum(totals, axis=0)


def _procrustes(cross: np.ndarray) -> np.ndarray:
    left, _, right = np.linalg.svd(cross)
    return left @ right


def _mean_turned(factors: list[np.ndarray], turns: np.ndarray) -> list[np.ndarray]:
    means = []
    for draws in factors:
        pairs = zip(_blocks(draws), _blocks(turns), strict=True)
        means.append(sum((block @ turn).sum(0) for block, turn in pairs) / len(draws))
    return means


def _rotation_notes(
    gram: np.ndarray, cross: np.ndarray, target: list[np.ndarray]
) -> tuple[bool, tuple[str, ...]]:
    here = sum(mean.T @ mean for mean in target)
    cosines = np.linalg.svd(_whiten(gram) @ cross @ _whiten(here), compute_uv=False)
    typical = float(np.median(cosines[:, -1]))
    notes = []
    if typical < COSINE:
        notes.append(
            f"One direction of the factors has a cosine of only {typical:.2f} with the reference draw: "
            "the data do not determine it. Look at predictions, or fit fewer components."
        )
    strength = np.sqrt(np.maximum(np.linalg.eigvalsh(here)[::-1], 0))
    close = np.flatnonzero(strength[:-1] - strength[1:] <= FEW * strength[:-1])
    if len(close):
        notes.append(
            f"Singular values {', '.join(f'{i + 1} and {i + 2}' for i in close)} are nearly equal: "
            "the order of the axes has no meaning."
        )
    return typical < COSINE, tuple(notes)


def _whiten(gram: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(gram)
    largest = np.maximum(values[..., -1:], np.finfo(float).tiny)
    scale = 1 / np.sqrt(np.maximum(values, largest * 1e-12))
    return (vectors * scale[..., None, :]) @ np.swapaxes(vectors, -1, -2)


# -- permutations -------------------------------------------------------------------------------
def align_permutation(
    draws: Sequence[np.ndarray],
    axes: Sequence[int],
    pivot: Sequence[np.ndarray] | None = None,
    *,
    groups: Sequence[int] | None = None,
    even: bool = False,
) -> Match:
    """Reorder the components of every draw to match one pivot, by the Hungarian method.

    Parameters
    ----------
    draws : sequence of arrays (S, ...)
        The sites that share one order of components; all have the same weight.
    axes : sequence of int
        The component axis of each site, not counting the axis of draws.
    pivot : sequence of arrays, optional
        By default the mean of the draws, reordered to the draw whose components have the most
        central sizes.
    groups : sequence of int, optional
        The number of the group of each site, -1 for a site whose signs are fixed, as all are by default. The
        sites of a group change their sign together; with `even` in an even number of groups.

    Examples
    --------
    >>> topics = np.array([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]])
    >>> match = align_permutation([np.stack([topics, topics[::-1]])], [0], pivot=[topics])
    >>> match.moves.tolist(), bool((match.draws[0] == topics).all())
    ([[0, 1], [1, 0]], True)
    >>> match = align_permutation([np.stack([topics, -topics])], [0], pivot=[topics], groups=[0])
    >>> bool((match.draws[0] == topics).all())
    True
    """
    draws = [_checked(site, 2) for site in draws]
    groups = [-1] * len(draws) if groups is None else groups
    parts = [
        np.moveaxis(site, axis + 1, 1).reshape(len(site), site.shape[axis + 1], -1)
        for site, axis in zip(draws, axes, strict=True)
    ]
    if pivot is None:
        sizes = sum(np.sort(np.linalg.norm(part, axis=2), axis=1) for part in parts)
        start = _central(np.asarray(sizes))
        target = _mean_matched(parts, [part[start] for part in parts], groups, even)
    else:
        points = (np.moveaxis(np.asarray(p), a, 0) for p, a in zip(pivot, axes, strict=True))
        target = [point.reshape(len(point), -1) for point in points]
    cost, sign = _distances(parts, target, groups, even)
    order = _assign(cost)
    signs = np.stack([_of_order(one, order) for one in sign])
    matched = np.take_along_axis(cost, order[..., None], 1)
    rest = np.trace(matched, axis1=1, axis2=2) / len(parts)
    ambiguous, notes = _swap_notes(matched, target, groups, even)
    residual = np.sqrt(np.maximum(rest, 0))
    free = signs if max(groups) >= 0 else None
    match = Match(draws, order, residual, ambiguous, notes, free)
    sites = zip(draws, axes, groups, strict=True)
    moved = [relabel(site, axis, order, match.of_group(group)) for site, axis, group in sites]
    return match._replace(draws=moved)


def _mean_matched(
    parts: list[np.ndarray], start: list[np.ndarray], groups: Sequence[int], even: bool
) -> list[np.ndarray]:
    """The mean of all draws, relabelled to match the draw `start`."""
    cost, sign = _distances(parts, start, groups, even)
    order = _assign(cost)
    signs = [_of_order(one, order)[..., None] for one in sign]
    moved = [np.take_along_axis(part, order[..., None], 1) for part in parts]
    pairs = zip(moved, groups, strict=True)
    return [(part if group < 0 else signs[group] * part).mean(0) for part, group in pairs]


def _distances(
    parts: list[np.ndarray], target: list[np.ndarray], groups: Sequence[int], even: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances (S, K, K) from component k of a draw to component l of the target, and the best signs
    (group, S, K, K)."""
    rest, agree = np.zeros(()), [np.zeros(())] * max(1, max(groups) + 1)
    for part, point, group in zip(parts, target, groups, strict=True):
        cross = np.concatenate([block @ point.T for block in _blocks(part)])
        length = np.concatenate([(block**2).sum(2) for block in _blocks(part)])
        weight = 1 / max((point**2).sum(), np.finfo(float).tiny)
        rest = rest + weight * (length[:, :, None] + (point**2).sum(1))
        if group >= 0:
            agree[group] = agree[group] + weight * cross
        else:
            rest = rest - 2 * weight * cross
    both = np.stack([np.broadcast_to(one, rest.shape) for one in agree])
    sign = np.where(both < 0, -1.0, 1.0)
    if even:  # an odd number of changes: the group that cares least changes too
        least = np.abs(both).argmin(0)[None] == np.arange(len(both))[:, None, None, None]
        sign = np.where(least & (sign.prod(0) < 0), -sign, sign)
    return rest - 2 * (sign * both).sum(0), sign


def _assign(cost: np.ndarray) -> np.ndarray:
    """order[s, l]: the component of draw s that gets the label l."""
    from scipy.optimize import linear_sum_assignment  # slow, and no fit needs it

    return np.stack([linear_sum_assignment(table.T)[1] for table in cost])


def _of_order(sign: np.ndarray, order: np.ndarray) -> np.ndarray:
    """sign[s, order[s, l], l]."""
    return np.take_along_axis(sign, order[:, None, :], 1)[:, 0]


def _swap_notes(
    matched: np.ndarray, target: list[np.ndarray], groups: Sequence[int], even: bool
) -> tuple[bool, tuple[str, ...]]:
    """Notes on pairs of components that fit nearly as well when their labels are swapped."""
    own = np.diagonal(matched, axis1=1, axis2=2)
    gain = matched + np.swapaxes(matched, 1, 2) - own[:, :, None] - own[:, None, :]
    apart = 2 * _distances([point[None] for point in target], target, groups, even)[0][0]
    loose = (gain < MARGIN * apart + np.finfo(float).eps).mean(0)
    pairs = np.argwhere(np.triu(loose > FEW, 1))
    notes = tuple(
        f"Components {k} and {m} are hard to tell apart: in {loose[k, m]:.0%} of the draws "
        "swapped labels fit nearly as well."
        for k, m in pairs
    )
    return bool(len(pairs)), notes


# -- arrays of draws ----------------------------------------------------------------------------
def _checked(draws: np.ndarray, ndim: int) -> np.ndarray:
    draws = np.asarray(draws)
    if draws.ndim < ndim or not len(draws):
        raise ValueError(f"Expected draws of {ndim} dimensions or more, got shape {draws.shape}")
    return draws if draws.dtype.kind == "f" else draws.astype(float)


def _blocks(draws: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(draws), BLOCK):
        yield np.asarray(draws[start : start + BLOCK], float)


def _central(spectra: np.ndarray) -> int:
    """Index of the draw whose spectrum is nearest to the mean spectrum."""
    return int(np.argmin(((spectra - spectra.mean(0)) ** 2).sum(1)))


def turn(site: np.ndarray, axis: int, turns: np.ndarray) -> np.ndarray:
    """`site @ R` along one axis (not counting the axis of draws), with one R per draw."""
    moved = np.moveaxis(site, axis + 1, -1)
    rows = moved.reshape(len(site), -1, moved.shape[-1])
    turned = np.empty(rows.shape, site.dtype)
    for start in range(0, len(site), BLOCK):
        part = slice(start, start + BLOCK)
        turned[part] = rows[part] @ turns[part]
    return np.moveaxis(turned.reshape(moved.shape), -1, axis + 1)


def relabel(site: np.ndarray, axis: int, order: np.ndarray, signs: np.ndarray | None) -> np.ndarray:
    """Components along one axis (not counting the axis of draws) in each draw's order, with its signs."""
    shape = [len(site), *[1] * (site.ndim - 1)]
    shape[axis + 1] = -1
    moved = np.take_along_axis(site, order.reshape(shape), axis + 1)
    return moved if signs is None else moved * signs.reshape(shape).astype(site.dtype)
