"""Alignment of whole fits and trees, the number of modes, and R-hat of aligned factors."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Permutation, Rotation
from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics.align import align, align_draws
from tests.report import fakes


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_a_whole_fit_turns_means_and_precisions_too() -> None:
    fit, truth = (
        fakes.sampled_ratings(chains=2, draws=40),
        fakes.ratings_draws(chains=1, draws=1, turn=False),
    )
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
    fit, truth = fakes.sampled_stages(), fakes.staged_draws(1, 1, turn=False)
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
    fit = fakes.sampled_stages()
    draws = {name: site.copy() for name, site in fit.draws.items()}
    for name in ("U", "V"):
        draws[name][:, :, 1, :, 0] = rng.normal(size=draws[name].shape[:2] + draws[name].shape[3:4])
    before = align(fit).residual
    aligned = align(replace(fit, draws=draws))
    assert aligned.ambiguous and aligned.residual.min() > before.max()  # the worst entry counts
    assert [note[:8] for note in aligned.notes if "do not determine" in note] == ["Entry 1:"]


def test_a_fit_with_two_nested_relabellings_keeps_its_predictions() -> None:
    fit = fakes.sampled_views(chains=2, draws=30)
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
    with pytest.raises(ValueError, match="Expected a fit with draws, got the point fit"):
        align(fakes.point_ratings())


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
    assert "2 modes remain, with 75%, 25% of the draws: no chain leaves its mode" in repr(apart)
    mixed = apart.draws["C"].reshape(-1, 4, 30)[rng.permutation(320)].reshape(4, 80, 4, 30)
    assert "chains move between modes" in repr(align_draws({"C": mixed}, gauge))


def test_raw_factors_disagree_and_aligned_ones_agree() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(30, 2)) * [3, 1]
    turns = np.linalg.qr(rng.normal(size=(4, 1, 2, 2)))[0]  # every chain in a frame of its own
    draws = (u + 0.1 * rng.normal(size=(4, 100, 30, 2))) @ turns
    aligned = align_draws({"U": draws, "V": draws}, [Rotation(("U", "V"), {"U": 1, "V": 1})])
    assert arviz_versions.rhat(draws).min() > 1.5 and aligned.r_hat()["U"].max() < 1.05
    assert aligned.modes == 1 and aligned.turned == ("U", "V")


def test_no_r_hat_where_the_match_is_a_matter_of_taste() -> None:
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, 60, 30, 2))
    aligned = align_draws({"U": draws, "V": draws}, [Rotation(("U", "V"), {"U": 1, "V": 1})])
    assert aligned.ambiguous
    with pytest.raises(BayesfacError, match=r"Expected factors that alignment determines, got 1"):
        aligned.r_hat()
