"""Heaps of draws are counted where there are some, and only there."""

import numpy as np
import pytest

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Permutation, Rotation
from bayesfac.report.diagnostics.align import align_draws, align_permutation
from bayesfac.report.diagnostics.modes import heaps

SEEDS = range(20)


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
def test_one_heap_is_one(kind: str) -> None:
    found = [heaps([one_heap(kind, np.random.default_rng(seed))]).max() for seed in SEEDS]
    assert found == [0] * len(SEEDS)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("width", [1, 4, 400])
def test_separate_heaps_are_told_apart(count: int, width: int) -> None:
    for seed in SEEDS:
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


def test_signs_are_undone_with_the_labels() -> None:
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(30, 4)), rng.normal(size=(20, 4))
    orders, signs = np.argsort(rng.random((60, 4)), 1), rng.choice([-1.0, 1.0], (60, 1, 4))
    a = np.stack([u[:, o] for o in orders]) * signs
    b = np.stack([v[:, o] for o in orders]) * signs
    size = np.stack([np.abs(u[0, o]) for o in orders])  # turns with the labels, has no sign
    match = align_permutation([a, b, size], [1, 1, 0], signed=[True, True, False])
    assert match.residual.max() < 1e-6 and not match.ambiguous
    np.testing.assert_allclose(match.draws[0].std(0).max(), 0, atol=1e-12)
    np.testing.assert_allclose(
        match.draws[0] @ match.draws[1].swapaxes(1, 2), a @ b.swapaxes(1, 2), atol=1e-12
    )
    np.testing.assert_allclose(match.draws[2][0], np.abs(match.draws[0][0, 0]))
    pivot = align_permutation([a, b, size], [1, 1, 0], [u, v, np.abs(u[0])], [True, True, False])
    np.testing.assert_allclose(pivot.draws[0], np.broadcast_to(u, a.shape))
    unsigned = align_permutation([a, b, size], [1, 1, 0])
    assert unsigned.residual.mean() > 0.5, "without signs the copies cannot be undone"


def topics(rng: np.random.Generator, centre: np.ndarray, chains: int, length: int) -> np.ndarray:
    """Relabelled draws (chain, draw, component, word) about the centre of each chain."""
    draws = centre[:, None] + 0.02 * rng.random((chains, length, *centre.shape[1:]))
    orders = np.argsort(rng.random((chains, length, centre.shape[1])), -1)
    return np.take_along_axis(draws, orders[..., None], 2)


def test_chains_with_other_explanations_are_two_modes() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.dirichlet(np.ones(30) * 0.2, (2, 4))
    gauge = [Permutation({"C": 0})]
    alike = align_draws({"C": topics(rng, np.stack([one] * 4), 4, 80)}, gauge)
    assert alike.modes == 1 and "One mode" in repr(alike)
    assert alike.r_hat()["C"].max() < 1.1
    apart = align_draws({"C": topics(rng, np.stack([one, one, other, one]), 4, 80)}, gauge)
    assert apart.modes == 2
    assert apart.heap.mean(1).tolist() == [0, 0, 1, 0]
    assert "2 modes remain, with 75%, 25% of the draws: no chain leaves its own" in repr(apart)
    mixed = apart.draws["C"].reshape(-1, 4, 30)[rng.permutation(320)].reshape(4, 80, 4, 30)
    assert "chains go from one to another" in repr(align_draws({"C": mixed}, gauge))


def test_raw_factors_disagree_and_aligned_ones_agree() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(30, 2)) * [3, 1]
    turns = np.linalg.qr(rng.normal(size=(4, 1, 2, 2)))[0]  # every chain in a frame of its own
    draws = (u + 0.1 * rng.normal(size=(4, 100, 30, 2))) @ turns
    aligned = align_draws({"U": draws, "V": draws}, [Rotation(("U", "V"), {"U": 1, "V": 1})])
    from bayesfac.report import arviz_versions

    assert arviz_versions.rhat(draws).min() > 1.5 and aligned.r_hat()["U"].max() < 1.05
    assert aligned.modes == 1 and aligned.turned == ("U", "V")


def test_no_r_hat_where_the_match_is_a_matter_of_taste() -> None:
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, 60, 30, 2))
    aligned = align_draws({"U": draws, "V": draws}, [Rotation(("U", "V"), {"U": 1, "V": 1})])
    assert aligned.ambiguous
    with pytest.raises(BayesfacError, match=r"Expected factors that alignment determines, got 1"):
        aligned.r_hat()
