"""Scores against closed forms, brute force and published divisors."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn import metrics as sk

from bayesfac import metrics


def test_point_errors_by_hand():
    value, predicted = [1.0, 2.0, 4.0], [2.0, 2.0, 1.0]
    assert metrics.mae(value, predicted) == pytest.approx(4 / 3)
    assert metrics.rmse(value, predicted) == pytest.approx(np.sqrt(10 / 3))
    assert metrics.fre(value, predicted) == pytest.approx(np.sqrt(10 / 21))
    assert metrics.zero_one_error(value, predicted) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("levels", "divisor"),
    [(5, 1.6), (6, 35 / 18), ((-1, 1), 1.0), (np.arange(0.5, 5.5, 0.5), 1.65)],
)
def test_nmae_divides_by_the_gap_of_two_uniform_levels(levels, divisor):
    assert metrics.nmae([1.0, 1.0], [2.0, 1.0], levels) == pytest.approx(0.5 / divisor)


def test_a_uniform_guess_has_nmae_one():
    rng = np.random.default_rng(0)
    value, guess = rng.integers(1, 6, (2, 200_000))
    assert metrics.nmae(value, guess, 5) == pytest.approx(1, abs=0.01)


def test_zero_one_error_rounds_to_the_nearest_level():
    assert metrics.zero_one_error([1, 2, 5], [-3.0, 2.4, 99.0], levels=5) == 0
    assert metrics.zero_one_error([0.5], [0.9], levels=(0.5, 1.0)) == 1


def test_crps_of_a_normal_is_the_integral_of_its_definition():
    mean, sd, value = 0.3, 0.7, 1.1

    def gap(x):
        return (stats.norm.cdf(x, mean, sd) - (x >= value)) ** 2

    integral = sum(integrate.quad(gap, a, b)[0] for a, b in [(-9, value), (value, 9)])
    assert metrics.crps_normal([mean], [sd], [value])[0] == pytest.approx(integral, abs=1e-6)


def test_crps_of_an_ensemble_is_its_double_sum_and_tends_to_the_normal():
    rng = np.random.default_rng(1)
    draws, value = rng.standard_normal((7, 3)), rng.standard_normal(3)
    pairs = np.abs(draws[:, None] - draws).sum((0, 1)) / (7 * 6)  # pairs of different draws
    expected = np.abs(draws - value).mean(0) - pairs / 2
    np.testing.assert_allclose(metrics.crps_ensemble(draws, value), expected)
    many = rng.standard_normal((20_000, 1))
    close = metrics.crps_normal([0.0], [1.0], [0.4])
    np.testing.assert_allclose(metrics.crps_ensemble(many, [0.4]), close, atol=0.01)
    assert metrics.crps_ensemble([[0.5]], [2.0]) == [1.5]  # one draw is a point
    # without bias however few the draws: pairs of draws score as many draws of the law do
    pairs = metrics.crps_ensemble(many.reshape(2, -1), np.full(10_000, 0.4)).mean()
    assert pairs == pytest.approx(close[0], abs=0.02)


def test_log_scores_are_log_densities():
    mean, sd, value = [0.0, 1.0], [1.0, 2.0], [0.5, -1.0]
    expected = stats.norm.logpdf(value, mean, sd)
    np.testing.assert_allclose(metrics.log_score_normal(mean, sd, value), expected)
    means = np.array([[0.0, 1.0], [2.0, 1.0]])
    noise = np.array([[0.5], [1.5]])
    mixture = np.log(stats.norm.pdf(value, means, noise).mean(0))
    np.testing.assert_allclose(metrics.log_score_mixture(means, noise, value), mixture)


def test_calibrated_predictions_have_uniform_pit_and_nominal_coverage():
    rng = np.random.default_rng(2)
    mean, sd = rng.standard_normal(20_000), rng.uniform(0.5, 2, 20_000)
    value = mean + sd * rng.standard_normal(20_000)
    flat = metrics.pit_histogram(metrics.pit_normal(mean, sd, value))
    np.testing.assert_allclose(flat.share, flat.flat, atol=0.01)
    bold = metrics.pit_histogram(metrics.pit_normal(mean, sd / 3, value))
    assert bold.share[0] > 2 * bold.flat, "overconfidence is a U"
    assert metrics.coverage(mean - 1.645 * sd, mean + 1.645 * sd, value) == pytest.approx(
        0.9, abs=0.01
    )


def test_pit_of_an_ensemble_counts_ties_half():
    draws = np.array([[0.0], [1.0], [1.0], [2.0]])
    assert metrics.pit_ensemble(draws, [1.0])[0] == pytest.approx((1 + 0.5 + 0.5) / 4)


SCALE = (0.5, 1.0, 2.0, 5.0)


def guesses(n=200, seed=3):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(4) * 0.5, n), rng.choice(SCALE, n)


def test_the_ordinal_log_score_is_the_log_mass_of_the_true_level():
    p, value = guesses()
    expected = [np.log(row[SCALE.index(level)]) for row, level in zip(p, value, strict=True)]
    np.testing.assert_allclose(metrics.ordinal_log_score(p, value, SCALE), expected)
    assert metrics.ordinal_log_score([[1.0, 0.0]], [2], 2)[0] == -np.inf


def test_rps_is_the_sum_of_its_definition_and_the_crps_on_the_levels():
    p, value = guesses()
    found = metrics.rps(p, value, SCALE)
    for i in range(20):
        F = [p[i, : r + 1].sum() for r in range(3)]
        terms = [(F[r] - (value[i] <= SCALE[r])) ** 2 * (SCALE[r + 1] - SCALE[r]) for r in range(3)]
        assert found[i] == pytest.approx(sum(terms))
    scale = np.asarray(SCALE)
    spread = np.einsum("ir,is,rs->i", p, p, np.abs(scale[:, None] - scale))
    crps = (p * np.abs(scale - value[:, None])).sum(1) - spread / 2
    np.testing.assert_allclose(found, crps, atol=1e-12)


@pytest.mark.parametrize("score", [metrics.ordinal_log_score, lambda *a: -metrics.rps(*a)])
def test_telling_the_truth_pays(score):
    p = np.array([0.1, 0.5, 0.3, 0.1])
    value = np.random.default_rng(4).choice(SCALE, 20_000, p=p)
    other = np.roll(p, 1)
    honest, tilted = (score(np.tile(q, (len(value), 1)), value, SCALE).mean() for q in (p, other))
    assert honest > tilted + 0.02


def test_a_sure_level_has_its_error_as_rps_and_any_shape_goes():
    p = np.eye(5)[[[0, 4], [2, 2]]]
    value = np.array([[1, 1], [3, 5]])
    assert metrics.rps(p, value, 5).tolist() == [[0, 4], [0, 2]]
    assert metrics.ordinal_log_score(p[:, 0], value[:, 0], 5).tolist() == [0, 0]


def brute_accuracy(y, assigned):
    labels = sorted(set(y) | set(assigned))
    renamings = (dict(zip(labels, p, strict=True)) for p in itertools.permutations(labels))
    together = list(zip(assigned, y, strict=True))
    return max(np.mean([name[a] == b for a, b in together]) for name in renamings)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_clustering_scores_agree_with_brute_force_and_scikit_learn(pairs):
    y, assigned = map(list, zip(*pairs, strict=True))
    assert metrics.clustering_accuracy(y, assigned) == pytest.approx(brute_accuracy(y, assigned))
    theirs = sk.normalized_mutual_info_score(y, assigned, average_method="max")
    ours = metrics.normalized_mutual_information(y, assigned)
    if len(set(y)) > 1 or len(set(assigned)) > 1:
        assert ours == pytest.approx(theirs, abs=1e-9)
    else:
        assert ours == 1


def test_clustering_scores_take_any_labels_and_more_clusters_than_classes():
    y = ["a", "a", "b", "b"]
    assert metrics.clustering_accuracy(y, [9, 7, 8, 8]) == 0.75
    assert metrics.normalized_mutual_information(y, ["q", "q", "p", "p"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: metrics.rmse([1, 2], [1]), r"one shape, got value \(2,\), predicted \(1,\)"),
        (lambda: metrics.mae([1, np.nan], [1, 2]), "finite value, got nan at position 1"),
        (lambda: metrics.mae([], []), "at least one value"),
        (lambda: metrics.fre([0.0], [1.0]), "not all zero"),
        (lambda: metrics.nmae([1], [1], 1), "at least two rising levels"),
        (lambda: metrics.nmae([1], [1], [2, 1]), "at least two rising levels"),
        (lambda: metrics.coverage([2], [1], [1]), "lower <= upper, got 2"),
        (lambda: metrics.crps_normal([0], [-1], [0]), "sd >= 0, got -1"),
        (lambda: metrics.log_score_normal([0], [0], [0]), "sd > 0, got 0"),
        (lambda: metrics.log_score_mixture([[0]], -1, [0]), r"sd > 0, got -1 at position \(0, 0\)"),
        (lambda: metrics.crps_ensemble([1.0, 2.0], [1.0]), r"shape \(draw, \*\(1,\)\)"),
        (lambda: metrics.pit_histogram([1.5]), r"within \[0, 1\], got 1.5"),
        (lambda: metrics.pit_histogram([0.5], bins=1), "two bins"),
        (lambda: metrics.rps([[0.5, 0.5]], [1], 3), r"shape \(1, 3\), got \(1, 2\)"),
        (lambda: metrics.rps([[0.5, 0.6]], [1], 2), "sum to one, got 1.1"),
        (lambda: metrics.rps([[-0.5, 1.5]], [1], 2), "probabilities >= 0, got -0.5"),
        (lambda: metrics.ordinal_log_score([[0.5, 0.5]], [1.5], 2), "levels .* got 1.5"),
        (lambda: metrics.clustering_accuracy([1, 2], [1]), "one length"),
        (lambda: metrics.normalized_mutual_information([], []), "non-empty"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_text_is_no_number():
    with pytest.raises(TypeError, match="Expected numbers as predicted, got"):
        metrics.rmse([1.0], ["four"])
