"""Known rotations, orders and signs are undone; ambiguous matches are named."""

from itertools import product

import numpy as np
import pytest

from bayesfac.report.diagnostics import matching
from bayesfac.report.diagnostics.align import align_permutation, align_rotation
from bayesfac.report.diagnostics.matching import readable_axes


def orthogonal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(*shape[:-1], shape[-1], shape[-1])))[0]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_rotations_are_undone_against_a_given_pivot(rng: np.random.Generator) -> None:
    u, v = rng.normal(size=(40, 3)), rng.normal(size=(25, 3))
    turns = orthogonal(rng, 50, 3)
    match = align_rotation([u @ turns, v @ turns], pivot=[u, v])
    np.testing.assert_allclose(match.draws[0], np.broadcast_to(u, (50, 40, 3)), atol=1e-10)
    np.testing.assert_allclose(match.draws[1], np.broadcast_to(v, (50, 25, 3)), atol=1e-10)
    np.testing.assert_allclose(
        match.moves @ np.swapaxes(turns @ match.moves, 1, 2), turns.swapaxes(1, 2), atol=1e-9
    )
    assert match.residual.max() < 1e-6 and not match.ambiguous


def test_without_a_pivot_all_draws_meet_and_the_product_is_kept(rng: np.random.Generator) -> None:
    u, v = rng.normal(size=(60, 4)) * [4, 3, 2, 1], rng.normal(size=(30, 4))
    turns = orthogonal(rng, 80, 4)
    noisy_u = (u + 0.1 * rng.normal(size=(80, 60, 4))) @ turns
    noisy_v = (v + 0.1 * rng.normal(size=(80, 30, 4))) @ turns
    match = align_rotation([noisy_u, noisy_v])
    assert match.draws[0].std(0).max() < 0.2  # before alignment: about 3
    together = match.draws[0] @ match.draws[1].swapaxes(1, 2)
    np.testing.assert_allclose(together, noisy_u @ noisy_v.swapaxes(1, 2), atol=1e-9)
    expected = 0.1 * np.sqrt(90 * 4) / np.sqrt((u**2).sum() + (v**2).sum())
    assert np.median(match.residual) == pytest.approx(expected, rel=0.2)


def test_the_answer_does_not_depend_on_the_frame_the_draws_came_in(
    rng: np.random.Generator,
) -> None:
    factor = np.abs(rng.standard_t(3, size=(50, 3))) + 0.05 * rng.normal(size=(20, 50, 3))
    first = align_rotation([factor @ orthogonal(rng, 20, 3)]).draws[0]
    second = align_rotation([factor @ orthogonal(rng, 20, 3)]).draws[0]
    np.testing.assert_allclose(first.mean(0), second.mean(0), atol=1e-6)


def test_readable_axes_find_simple_structure(rng: np.random.Generator) -> None:
    simple = np.kron(np.diag([3.0, 2.0, 1.0]), np.ones((10, 1)))
    hidden = simple @ orthogonal(rng, 3)
    np.testing.assert_allclose(hidden @ readable_axes(hidden), simple, atol=1e-6)


def test_a_direction_without_data_is_called_ambiguous(rng: np.random.Generator) -> None:
    signal = rng.normal(size=(300, 1)) * 5
    draws = np.concatenate([signal + np.zeros((40, 300, 1)), rng.normal(size=(40, 300, 2))], axis=2)
    match = align_rotation([draws])
    assert match.ambiguous and "do not determine" in match.notes[0]


def test_near_equal_strength_is_a_note_not_an_ambiguity(rng: np.random.Generator) -> None:
    factor = orthogonal(rng, 50)[:, :2] * 3
    match = align_rotation([factor @ orthogonal(rng, 30, 2)])
    assert not match.ambiguous and match.residual.max() < 1e-6
    assert "Singular values 1 and 2 are nearly equal" in match.notes[0]


def test_relabelling_is_undone_jointly_on_several_axes(rng: np.random.Generator) -> None:
    weights, topics = rng.dirichlet(np.ones(5) * 0.3, 40), rng.dirichlet(np.ones(30) * 0.1, 5)
    orders = np.argsort(rng.random((60, 5)), axis=1)
    a = np.stack([weights[:, o] for o in orders])
    c = np.stack([topics[o] for o in orders])
    match = align_permutation([a, c], [1, 0], pivot=[weights, topics])
    np.testing.assert_array_equal(match.draws[0], np.broadcast_to(weights, a.shape))
    np.testing.assert_array_equal(match.draws[1], np.broadcast_to(topics, c.shape))
    np.testing.assert_array_equal(match.moves, np.argsort(orders, axis=1))
    assert match.residual.max() < 1e-6 and not match.ambiguous


def test_relabelling_finds_its_own_pivot(rng: np.random.Generator) -> None:
    topics = rng.dirichlet(np.ones(30) * 0.1, 4)
    orders = np.argsort(rng.random((50, 4)), axis=1)
    noisy = np.stack([topics[o] for o in orders]) + 0.01 * rng.random((50, 4, 30))
    aligned = align_permutation([noisy], [0]).draws[0]
    assert aligned.std(0).max() < 0.01 < noisy.std(0).max()


def test_twin_components_are_called_ambiguous(rng: np.random.Generator) -> None:
    base = rng.dirichlet(np.ones(20), 3)
    base[1] = base[0]
    match = align_permutation([base + 0.02 * rng.random((100, 3, 20))], [0])
    assert match.ambiguous and "Components 0 and 1" in match.notes[0]


def test_signs_are_undone_with_the_labels() -> None:
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(30, 4)), rng.normal(size=(20, 4))
    orders, signs = np.argsort(rng.random((60, 4)), 1), rng.choice([-1.0, 1.0], (60, 1, 4))
    a = np.stack([u[:, o] for o in orders]) * signs
    b = np.stack([v[:, o] for o in orders]) * signs
    size = np.stack([np.abs(u[0, o]) for o in orders])  # turns with the labels, has no sign
    match = align_permutation([a, b, size], [1, 1, 0], groups=[0, 0, -1])
    assert match.residual.max() < 1e-6 and not match.ambiguous
    np.testing.assert_allclose(match.draws[0].std(0).max(), 0, atol=1e-12)
    np.testing.assert_allclose(
        match.draws[0] @ match.draws[1].swapaxes(1, 2), a @ b.swapaxes(1, 2), atol=1e-12
    )
    np.testing.assert_allclose(match.draws[2][0], np.abs(match.draws[0][0, 0]))
    pivot = align_permutation([a, b, size], [1, 1, 0], [u, v, np.abs(u[0])], groups=[0, 0, -1])
    np.testing.assert_allclose(pivot.draws[0], np.broadcast_to(u, a.shape))
    unsigned = align_permutation([a, b, size], [1, 1, 0])
    assert unsigned.residual.mean() > 0.5, "without signs the copies cannot be undone"


def test_draws_are_multiplied_a_block_at_a_time(rng: np.random.Generator, monkeypatch) -> None:
    """The work space does not grow with the draws, and the draws are read a fixed number of times."""
    seen, whole = [], matching._blocks

    def counted(draws):
        for block in whole(draws):
            seen.append(len(block))
            yield block

    monkeypatch.setattr(matching, "_blocks", counted)
    base = rng.normal(size=(50, 3)).astype(np.float32)
    match = align_rotation([base @ orthogonal(rng, 1000, 3).astype(np.float32)])
    assert match.residual.max() < 1e-3
    assert max(seen) <= matching.BLOCK and sum(seen) == 5 * 1000


def test_even_signs_and_orders_are_the_best_of_all() -> None:
    """By brute force over all orders, and all signs of which each component changes an even number."""
    rng = np.random.default_rng(0)
    pivot = [rng.normal(size=(n, 2)) for n in (4, 3, 5)]
    draws = [rng.normal(size=(40, n, 2)) for n in (4, 3, 5)]
    match = align_permutation(draws, [1, 1, 1], pivot, groups=[0, 1, 2], even=True)
    even = [s for s in product([-1, 1], repeat=3) if np.prod(s) > 0]
    for s in range(40):
        costs = {
            (order, one, other): np.mean([
                ((d[s][:, order] * [a, b] - t) ** 2).sum() / (t**2).sum()
                for d, t, a, b in zip(draws, pivot, one, other, strict=True)
            ])
            for order in ((0, 1), (1, 0)) for one in even for other in even
        }  # fmt: skip
        order, one, other = min(costs, key=costs.get)
        assert match.residual[s] == pytest.approx(costs[order, one, other] ** 0.5)
        for moved, d, a, b in zip(match.draws, draws, one, other, strict=True):
            np.testing.assert_allclose(moved[s], d[s][:, order] * [a, b], rtol=1e-12)
    assert match.signs.shape == (3, 40, 2)
    assert (match.signs.prod(0) == 1).all() and (match.signs < 0).any((1, 2)).all()
    free = align_permutation(draws, [1, 1, 1], pivot, groups=[0, 1, 2])
    assert (free.residual <= match.residual + 1e-12).all() and (free.signs.prod(0) < 0).any()
