"""Heaps of draws are counted where there are some, and only there."""

import numpy as np
import pytest

from bayesfac.report.diagnostics.align import heaps

SEEDS = [range(5), pytest.param(range(5, 20), marks=pytest.mark.slow)]


def one_heap(kind: str, rng: np.random.Generator, size: int = 300, width: int = 40) -> np.ndarray:
    """Draws that lie in one heap, however oddly."""
    normal = rng.normal(size=(size, width))
    if kind == "flat in one direction":
        normal[:, 0] = rng.uniform(-30, 30, size)
    if kind == "a drift":
        normal = np.cumsum(normal, 0)
    if kind == "slow chains":
        for t in range(1, size):
            normal[t] = 0.9 * normal[t - 1] + 0.43 * normal[t]
    if kind == "heavy tails":
        normal = normal / np.sqrt(rng.gamma(1.5, 1, (size, 1)))
    if kind == "a ring":
        angle = rng.uniform(0, 2 * np.pi, size)
        normal[:, :2] += 20 * np.stack([np.cos(angle), np.sin(angle)], 1)
    return normal


@pytest.mark.parametrize(
    "kind",
    ["normal", "flat in one direction", "a drift", "slow chains", "heavy tails", "a ring"],
)
@pytest.mark.parametrize("seeds", SEEDS)
def test_one_heap_is_one(kind: str, seeds: range) -> None:
    found = [heaps([one_heap(kind, np.random.default_rng(seed))]).max() for seed in seeds]
    assert found == [0] * len(seeds)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("width", [1, 4, 400])
@pytest.mark.parametrize("seeds", SEEDS)
def test_separate_heaps_are_told_apart(count: int, width: int, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        truth = np.sort(rng.integers(count, size=300))
        if width == 1:
            centres = 12.0 * np.arange(count)[:, None]
        else:
            centres = rng.normal(size=(count, width)) * 20
            gaps = np.linalg.norm(centres[:, None] - centres[None], axis=2) + 1e9 * np.eye(count)
            if gaps.min() < 12:  # two centres that fell together are one heap
                continue
        found = heaps([centres[truth] + rng.normal(size=(300, width))])
        assert found.max() + 1 == count
        assert len({*zip(found, truth, strict=True)}) == count


def test_a_few_stray_draws_are_no_heap() -> None:
    draws = np.random.default_rng(0).normal(size=(400, 10))
    draws[:4] += 100
    assert heaps([draws]).max() == 0
    draws[:40] += 100
    assert np.bincount(heaps([draws])).tolist() == [360, 40]


def test_every_site_counts_equally() -> None:
    rng = np.random.default_rng(0)
    small, large = rng.normal(size=(200, 5)) + 5, 1e6 * rng.normal(size=(200, 5))
    small[:80] -= 30
    assert heaps([small, large]).max() == 1


def test_draws_that_are_all_the_same_are_one_heap() -> None:
    assert heaps([np.ones((50, 3))]).tolist() == [0] * 50
    assert heaps([np.ones((1, 3))]).tolist() == [0]
