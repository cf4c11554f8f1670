"""Alignment undoes known rotations and relabellings, and says when it cannot."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from bayesfac.core.method import Permutation, Rotation
from bayesfac.report.diagnostics.align import align, align_permutation, align_rotation
from bayesfac.report.diagnostics.matching import readable_axes
from tests.report.fake_topics import sampled_views
from tests.report.fakes import (
    ratings_draws,
    sampled_ratings,
    sampled_stages,
    staged_draws,
)


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
    product = match.draws[0] @ match.draws[1].swapaxes(1, 2)
    np.testing.assert_allclose(product, noisy_u @ noisy_v.swapaxes(1, 2), atol=1e-9)
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


def test_a_whole_fit_turns_means_and_precisions_too() -> None:
    fit, truth = sampled_ratings(chains=2, draws=40), ratings_draws(chains=1, draws=1, turn=False)
    aligned = align(fit, reference={name: site[0, 0] for name, site in truth.items()})
    for name in ("U", "V", "mu_U", "Lambda_U"):
        raw, moved = fit.draws[name], aligned.draws[name]
        assert moved.shape == raw.shape
        assert moved.std((0, 1)).max() < 0.5 * raw.std((0, 1)).max()
    quadratic = lambda d: np.einsum("cdk,cdkl,cdl->cd", d["mu_U"], d["Lambda_U"], d["mu_U"])  # noqa: E731
    np.testing.assert_allclose(quadratic(aligned.draws), quadratic(fit.draws), rtol=1e-5)
    assert aligned.draws["alpha"] is not None and aligned.residual.shape == (2, 40)
    assert "median residual" in repr(aligned)


def test_every_stage_turns_by_itself_and_derived_sites_stay() -> None:
    fit, truth = sampled_stages(), staged_draws(1, 1, turn=False)
    point = {name: site[0, 0] for name, site in truth.items()}
    for aligned in (align(fit), align(fit, reference=point)):
        assert aligned.residual.shape == (2, 40) and not aligned.ambiguous
        assert 0 < aligned.residual.max() < 0.2
        for name in ("U", "V", "mu", "Lambda"):
            raw, moved = fit.draws[name], aligned.draws[name]
            assert moved.shape == raw.shape
            assert moved.std((0, 1)).max((-1, -2)).max() < 0.5 * raw.std((0, 1)).max()
        product = lambda d: d["U"] @ np.swapaxes(d["V"], -1, -2)  # noqa: E731
        np.testing.assert_allclose(product(aligned.draws), product(fit.draws), atol=1e-9)
        form = lambda d: np.einsum("cdsk,cdskl,cdsl->cds", d["mu"], d["Lambda"], d["mu"])  # noqa: E731
        np.testing.assert_allclose(form(aligned.draws), form(fit.draws), rtol=1e-9)
        np.testing.assert_array_equal(aligned.draws["theta"], fit.draws["theta"])
    np.testing.assert_allclose(aligned.draws["U"].mean((0, 1)), point["U"], atol=0.1)


def test_the_stage_that_cannot_be_matched_is_named(rng: np.random.Generator) -> None:
    fit = sampled_stages()
    draws = {name: site.copy() for name, site in fit.draws.items()}
    for name in ("U", "V"):
        draws[name][:, :, 1, :, 0] = rng.normal(size=draws[name].shape[:2] + draws[name].shape[3:4])
    before = align(fit).residual
    aligned = align(replace(fit, draws=draws))
    assert aligned.ambiguous and aligned.residual.min() > before.max()  # the worst entry counts
    assert [note[:8] for note in aligned.notes if "do not determine" in note] == ["Entry 1:"]


def test_a_fit_with_two_nested_relabellings_keeps_its_predictions() -> None:
    fit = sampled_views(chains=2, draws=30)
    aligned = align(fit)
    product = lambda d: np.einsum("cdnk,cdkq,cdqm->cdnm", d["A"], d["B.pix"], d["C.pix"])  # noqa: E731
    np.testing.assert_allclose(product(aligned.draws), product(fit.draws), atol=1e-7)
    for name in ("A", "B.pix", "C.pix"):
        assert aligned.draws[name].std((0, 1)).max() < 0.2 * fit.draws[name].std((0, 1)).max()


def test_any_tree_can_be_aligned_once_its_gauge_is_said(rng: np.random.Generator) -> None:
    topics = rng.dirichlet(np.ones(12) * 0.2, 3)
    shuffled = np.stack([[topics[o] for o in np.argsort(rng.random((25, 3)), axis=1)]] * 2)
    dims = ("chain", "draw", "topic", "word")
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"phi": (dims, shuffled)})})
    aligned = align(tree, gauge=[Permutation(axes={"phi": 0})])
    np.testing.assert_allclose(aligned.draws["phi"].std((0, 1)), 0, atol=1e-12)
    with pytest.raises(ValueError, match="Expected gauge="):
        align(tree)
    tree.attrs["method"] = json.dumps("no_such_method")
    with pytest.raises(LookupError, match="no_such_method"):
        align(tree)


def test_a_point_fit_has_nothing_to_align() -> None:
    from tests.report.fakes import point_ratings

    with pytest.raises(ValueError, match="Expected a fit with draws, got the point fit"):
        align(point_ratings())


def test_four_thousand_draws_take_seconds(rng: np.random.Generator) -> None:
    base = rng.normal(size=(1000, 20)).astype(np.float32)
    draws = np.matmul(base, orthogonal(rng, 4000, 20).astype(np.float32))
    began = time.perf_counter()
    match = align_rotation([draws])
    seconds = time.perf_counter() - began
    assert match.residual.max() < 1e-3 and seconds < 30  # about 4 on a quiet core


def test_gauge_records_are_what_this_module_expects() -> None:
    assert Rotation(factors=("U", "V"), axes={"U": 1, "V": 1}).forms == ()
