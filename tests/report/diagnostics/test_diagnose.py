"""Identified quantities stay put under turns and swaps; verdicts fit planted faults."""

import subprocess
import sys
from dataclasses import replace

import arviz_stats
import numpy as np
import pytest

from bayesfac.core.method import Permutation
from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics.align import align
from bayesfac.report.diagnostics.diagnose import (
    diagnostics,
    identified,
    shares,
    singular_values,
    tabulate,
)
from tests.report import fakes


def text_of(found) -> str:
    return " ".join(str(finding) for finding in found.findings)


def test_identified_quantities_do_not_see_the_frame() -> None:
    fit = fakes.sampled_ratings(draws=30)
    turned = replace(fit, draws=align(fit).draws)
    one, other = identified(fit), identified(turned)
    assert set(one) == {
        "lp",
        "alpha",
        "probe",
        "singular_values",
        "eigenvalues.Lambda_U",
        "eigenvalues.Lambda_V",
    }
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-6, atol=1e-8)
    for factor in ("U", "V", "mu_U"):
        assert factor not in one


def test_singular_values_are_those_of_the_product() -> None:
    fit = fakes.sampled_ratings(chains=2, draws=70)
    u, v = fit.draws["U"], fit.draws["V"]
    direct = np.linalg.svd(u @ np.swapaxes(v, -1, -2), compute_uv=False)[..., :2]
    np.testing.assert_allclose(singular_values(u, v), direct, rtol=1e-8)


def test_every_stage_has_a_spectrum_of_its_own() -> None:
    fit = fakes.sampled_stages()
    found = identified(fit)
    u, v = fit.draws["U"], fit.draws["V"]
    direct = np.linalg.svd(u @ np.swapaxes(v, -1, -2), compute_uv=False)[..., :2]
    np.testing.assert_allclose(found["singular_values"], direct, rtol=1e-8)
    lambdas = np.broadcast_to([4.0, 1.0], (2, 40, 3, 2))
    np.testing.assert_allclose(found["eigenvalues.Lambda"], lambdas, rtol=1e-8)
    moved = identified(replace(fit, draws=align(fit).draws))
    for name, values in found.items():
        np.testing.assert_allclose(moved[name], values, rtol=1e-6)
    table = diagnostics(fit).table
    assert {"singular value 2 of stage 0", "eigenvalue of Lambda 1 of stage 2"} <= set(table.index)
    by_hand = direct[:, :, 2, 0].mean()
    assert table.loc["singular value 1 of stage 2", "mean"] == pytest.approx(by_hand)
    assert (table["quantity"] == "singular value").sum() == 6


def test_many_entries_are_looked_at_a_few_draws_at_a_time(monkeypatch) -> None:
    draws = fakes.staged_draws(2, 10)
    whole = singular_values(draws["U"], draws["V"])
    monkeypatch.setattr(
        "bayesfac.report.diagnostics.diagnose.BLOCK", 2
    )  # fewer than the three stages
    np.testing.assert_array_equal(singular_values(draws["U"], draws["V"]), whole)


def test_eigenvalues_are_those_of_the_precision() -> None:
    values = identified(fakes.sampled_ratings(draws=10))["eigenvalues.Lambda_U"]
    np.testing.assert_allclose(values, np.broadcast_to([4.0, 1.0], values.shape), rtol=1e-8)


def test_shares_of_components_survive_label_switching() -> None:
    fit = fakes.sampled_views()
    found = identified(fit)
    assert found["share.cluster"].shape == (2, 60, 3) and found["share.topic.pix"].shape == (
        2,
        60,
        4,
    )
    np.testing.assert_allclose(found["share.cluster"].sum(-1), 1)
    assert (
        found["share.cluster"].std((0, 1)).max() < 0.01 < fit.draws["A"].mean(2).std((0, 1)).max()
    )


def test_chains_that_agree_are_good() -> None:
    found = diagnostics(fakes.sampled_ratings(chains=4, draws=200))
    assert found.ok and found.level == "good" and found.verdict.startswith("Usable for averages")
    assert found.table["r_hat"].max() < 1.02 and found.table["ess_tail"].min() > 400
    assert {"alpha", "log joint", "singular value 1", "eigenvalue of Lambda_U 2"} <= set(
        found.table.index
    )
    assert any(name.startswith("prediction (user ") for name in found.table.index)
    assert "x" not in [line.strip()[:1] for line in repr(found).splitlines()]
    assert list(found.worst.index)[:3] == ["log joint", "alpha", "prediction"]


def test_a_chain_in_another_mode_is_bad() -> None:
    fit = fakes.sampled_ratings(chains=4, draws=100)
    v = fit.draws["V"].copy()
    v[0] *= 1.5
    found = diagnostics(replace(fit, draws={**fit.draws, "V": v}))
    assert not found.ok and "disagree" in text_of(found) and found.short == "not usable"


def test_a_slow_log_joint_with_good_predictions_is_said_as_such() -> None:
    fit = fakes.sampled_ratings(chains=4, draws=200)
    drift = np.cumsum(np.random.default_rng(0).normal(size=(4, 200)), axis=1)
    found = diagnostics(replace(fit, stats={"lp": drift}))
    assert "Log joint: chains disagree" in text_of(
        found
    ) and "Predictions: chains agree" in text_of(found)
    assert found.uses == {"averages": "good", "single": "good", "hyper": "bad", "factors": "good"}
    assert found.verdict.endswith("single predictions and factors; not for hyper-parameters.")


def test_slow_hyper_parameters_do_not_spoil_predictions() -> None:
    fit = fakes.sampled_ratings(chains=4, draws=200)
    alpha = 4 + 0.1 * np.cumsum(np.random.default_rng(0).normal(size=(4, 200)), axis=1)
    found = diagnostics(replace(fit, draws={**fit.draws, "alpha": alpha}))
    assert found.level == "care" and found.ok
    assert "(alpha). Predict with this fit, but do not interpret these numbers yet." in text_of(
        found
    )


def test_one_chain_says_what_it_cannot_know() -> None:
    found = diagnostics(fakes.sampled_ratings(chains=1, draws=800))
    assert (
        found.level == "care" and "One chain" in text_of(found) and "Run 4 chains" in text_of(found)
    )
    assert "two halves" in text_of(found) and np.isfinite(found.table["r_hat"]).any()


def test_few_draws_are_bad() -> None:
    found = diagnostics(fakes.sampled_ratings(chains=2, draws=20))
    assert (
        found.uses["single"] == "bad"
        and found.uses["averages"] == "care"
        and "Effective draws for predictions: only" in text_of(found)
    )
    too_few = diagnostics(fakes.sampled_ratings(chains=2, draws=5))
    assert not too_few.ok and "Too few draws" in text_of(too_few)


@pytest.mark.parametrize(
    ("name", "change", "level", "said"),
    [
        ("diverging", lambda x: np.arange(x.size).reshape(x.shape) % 20 == 0, "care", "divergent"),
        ("diverging", lambda x: np.arange(x.size).reshape(x.shape) == 7, "care", "1 divergent"),
        ("energy", lambda x: np.cumsum(x - 500, axis=1), "care", "E-BFMI down to"),
        ("tree_depth", lambda x: x + 5, "good", "hit the limit of 10"),
    ],
)
def test_what_only_nuts_can_tell(name, change, level, said) -> None:
    fit = fakes.sampled_ratings(chains=4, draws=200, engine=fakes.NUTS(draws=200, chains=4))
    assert diagnostics(fit).level == "good"
    stats = {**fit.stats, name: change(fit.stats[name])}
    found = diagnostics(replace(fit, stats=stats))
    assert found.level == level and said in text_of(found)


def test_energies_of_thinned_draws_say_nothing() -> None:
    """E-BFMI compares the energies of successive transitions; of distant ones it is always near 2."""
    fit = fakes.sampled_ratings(chains=4, draws=200, engine=fakes.NUTS(draws=200, chains=4, thin=5))
    stats = {**fit.stats, "diverging": np.arange(800).reshape(4, 200) == 7}
    found = text_of(diagnostics(replace(fit, stats=stats)))
    assert "E-BFMI" not in found and "1 draws with divergent transitions" in found


def test_variational_fits_have_no_rhat() -> None:
    fit = fakes.sampled_ratings(chains=1, engine=fakes.SVI())
    found = diagnostics(fit)
    assert found.kind == "variational" and found.level == "care" and found.ok
    assert found.table["r_hat"].isna().all() and "too small" in text_of(found)
    falling = replace(fit, trace=np.linspace(900, 100, 400), converged=False)
    assert diagnostics(falling).level == "bad" and "still improving" in text_of(
        diagnostics(falling)
    )
    assert "too few" in text_of(diagnostics(replace(fit, trace=fit.trace[:50])))


def test_what_was_chosen_is_told_in_words():
    """A choice, the components in use, and a remark that a simpler tool is better, which is no good news."""
    logistic = (
        "a logistic regression of each label on all features predicts held-out rows clearly better"
    )
    chosen = ["chosen: cut=0.5, by luck", "components in use: 2 of at most 6", logistic]
    found = diagnostics(fakes.point_ratings(info={"chosen": chosen})).findings
    told = {f.text: f.level for f in found}
    assert told["Settings chosen: cut=0.5, by luck."] == "good"
    assert told["Components in use: 2 of at most 6."] == "good"
    assert told[logistic.capitalize() + "."] == "care"


def test_point_fits_are_judged_by_their_objective() -> None:
    assert diagnostics(fakes.point_ratings()).verdict.startswith("Usable for averages of")
    notes = {**fakes.INFO, "notes": ["the objective rose in 3 of 50 sweeps", "best of 3 restarts"]}
    found = diagnostics(fakes.point_ratings(info=notes))
    assert found.level == "care" and "The objective rose in 3 of 50 sweeps." in text_of(found)
    stopped = diagnostics(fakes.point_ratings(converged=False))
    assert not stopped.ok and "Raise max_iter" in text_of(stopped)
    broken = diagnostics(fakes.point_ratings(trace=np.array([3.0, np.nan])))
    assert not broken.ok and "NaN" in text_of(broken)
    assert stopped.table.empty and "Not usable yet." in repr(stopped)


def test_an_interrupted_run_says_so() -> None:
    found = diagnostics(fakes.sampled_ratings(chains=4, draws=200, partial=True))
    assert found.level == "care" and "Interrupted" in text_of(found)


def test_broken_draws_are_bad() -> None:
    fit = fakes.sampled_ratings(chains=2, draws=100)
    alpha = fit.draws["alpha"].copy()
    alpha[1, 3] = np.nan
    found = diagnostics(replace(fit, draws={**fit.draws, "alpha": alpha}))
    assert not found.ok and "first seen in alpha" in text_of(found)


def test_labels_reach_html_escaped() -> None:
    found = diagnostics(fakes.sampled_ratings(hostile=True))
    page = found._repr_html_()
    assert "<script>alert" not in page and found.verdict in page


def test_sizes_know_neither_sign_nor_order():
    """Columns with a free sign: their means would tell the sign, and R-hat how often it changed."""
    rng = np.random.default_rng(0)
    F, B = rng.normal(size=(2, 50, 6, 3)), rng.normal(size=(2, 50, 4, 3))
    gauge = [Permutation({"F": 1, "B": 1})]
    before = shares({"F": F, "B": B}, gauge)["size.component"]
    sign = rng.choice([-1, 1], (2, 50, 1, 3))
    order = rng.permuted(np.tile(np.arange(3), (2, 50, 1, 1)), axis=-1)
    moved = {
        s: np.take_along_axis(v * sign, np.broadcast_to(order, v.shape), -1)
        for s, v in (("F", F), ("B", B))
    }
    np.testing.assert_allclose(shares(moved, gauge)["size.component"], before, rtol=1e-12)
    norms = np.linalg.norm(F, axis=2) * np.linalg.norm(B, axis=2)
    np.testing.assert_allclose(before, np.sort(np.sqrt(norms), -1)[..., ::-1], rtol=1e-12)


def test_shares_are_of_rows_that_divide():
    A = np.random.default_rng(0).dirichlet([5.0, 2, 1], (1, 40, 7))
    found = shares({"A": A}, [Permutation({"A": 1})])
    assert list(found) == ["share.component"]
    np.testing.assert_allclose(found["share.component"].sum(-1), 1, rtol=1e-9)


def test_the_verdict_speaks_of_aligned_factors() -> None:
    said = [f.text for f in diagnostics(fakes.sampled_ratings(chains=2, draws=60)).findings]
    (factors,) = [text for text in said if text.startswith("Factors")]
    assert (
        factors.startswith("Factors, aligned (residual 0.") and "one mode, R-hat at most" in factors
    )


def test_chains_that_never_moved_are_not_called_agreement() -> None:
    fit = fakes.sampled_ratings(chains=2, draws=60)
    still = {site: np.broadcast_to(d[:1, :1], d.shape) for site, d in fit.draws.items()}
    found = diagnostics(replace(fit, draws=still)).findings
    (factors,) = [finding for finding in found if finding.text.startswith("Factors")]
    assert factors.level == "bad" and "all their draws are the same" in factors.text


def test_diagnostics_do_not_load_matplotlib() -> None:
    """Its import takes longer than the diagnostics of a short run."""
    program = "import sys, bayesfac.report.diagnostics.diagnose; print('matplotlib.pyplot' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert told.stdout.strip() == "False"


def test_every_column_of_the_table_is_the_statistic_that_it_names() -> None:
    """Of chains that are slow in their tails alone: the two effective sizes differ."""
    rng = np.random.default_rng(0)
    width = np.exp(np.cumsum(0.3 * rng.normal(size=(4, 200)), axis=1))
    x = rng.normal(size=(4, 200)) * width
    fit = fakes.sampled_ratings(chains=4, draws=200)
    (row,) = tabulate({"lp": x}, fit, compare=True).to_dict("records")
    expected = {
        "mean": x.mean(), "sd": x.std(ddof=1), "r_hat": arviz_stats.rhat(x, method="rank"),
        "ess_bulk": arviz_stats.ess(x, method="bulk"),
        "ess_tail": arviz_stats.ess(x, method="tail", prob=(0.05, 0.95)),
        "mcse": arviz_stats.mcse(x, method="mean"),
    }  # fmt: skip
    for name, value in expected.items():
        assert row[name] == pytest.approx(float(value), rel=1e-9), name
    assert abs(row["ess_bulk"] / row["ess_tail"] - 1) > 0.2
    (row,) = tabulate({"lp": x}, fit, compare=False).to_dict("records")
    assert row["mcse"] == pytest.approx(x.std(ddof=1) / 800**0.5) and np.isnan(row["ess_tail"])


def test_a_chain_whose_second_half_lies_elsewhere_disagrees_with_itself() -> None:
    x = np.random.default_rng(0).normal(size=(1, 400))
    assert arviz_versions.rhat(x[..., None])[0] < 1.05
    x[:, 200:] += 3 * np.linspace(1, 2, 200)
    halves = np.concatenate([x[:, :200], x[:, 200:]])
    found = arviz_versions.rhat(x[..., None])[0]
    assert found == pytest.approx(float(arviz_stats.rhat(halves, method="rank"))) and found > 1.5
