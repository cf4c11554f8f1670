"""Cuts leave one half only as far as the rows bear; labels are judged as one would judge them."""

import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.laws.decisions import best_cut, clearly, measured, placed_cut, two_classes
from bayesfac.labels import by_rows


def drawn(n, L=1, slope=1.0, seed=0):
    """Labels and their scores: the score is a probability if the slope is 1."""
    rng = np.random.default_rng(seed)
    p = rng.random((n, L))
    return (rng.random((n, L)) < p).astype(float), 0.2 + slope * (p - 0.2)


def test_one_label_or_two_of_which_each_row_has_one_are_two_classes():
    y = np.array([[1.0], [0], [1]])
    assert two_classes(y) and two_classes(np.hstack([y, 1 - y]))
    assert not two_classes(np.hstack([y, y])) and not two_classes(np.hstack([y, 1 - y, 0 * y]))


@pytest.mark.parametrize("L", [1, 3])
def test_measures_and_their_errors_are_those_of_the_public_measures(L):
    """The error of a difference against 2000 samples of rows with replacement."""
    y, score = drawn(300, L)
    one, two, rng = score > 0.5, score > 0.25, np.random.default_rng(1)

    def public(y, decided):
        same = 1 - bf.multilabel.hamming_loss(y, decided)
        return same if L == 1 else bf.multilabel.micro_f1(y, decided)

    assert measured(y, one).value == pytest.approx(public(y, one))
    again = [rng.integers(0, 300, 300) for _ in range(2000)]
    gaps = [public(y[at], one[at]) - public(y[at], two[at]) for at in again]
    error = np.linalg.norm(measured(y, one).parts - measured(y, two).parts)
    assert error == pytest.approx(np.std(gaps), rel=0.07)  # 1.6 % by chance, at one sd
    other = measured(y, two)
    for errors, told in ((1.9, False), (2.1, True)):
        better = measured(y, one)._replace(value=other.value + errors * error)
        assert clearly(better, other) == told


def test_unknown_labels_count_nowhere():
    y, score = drawn(50, 3)
    y[::2, 1] = np.nan
    known = ~np.isnan(y)
    hits = 2 * ((score > 0.4) & (y == 1)).sum()
    assert measured(y, score > 0.4).value == pytest.approx(
        hits / ((y == 1).sum() + (known & (score > 0.4)).sum())
    )
    y2, far = y.copy(), np.where(known, score, 9.0)
    assert placed_cut(y2, far) == placed_cut(y, score)


def test_the_best_cut_of_two_classes_has_the_fewest_errors():
    y, score = drawn(60)
    every = [measured(y, score > cut).value for cut in np.linspace(0.01, 0.99, 99)]
    assert measured(y, score > best_cut(y, score)).value >= max(every)


def test_few_rows_keep_the_cut_at_one_half_and_many_move_it():
    """Of scores that are probabilities, the best cut of 60 rows is anywhere, and the placed cut is one half.
    Of scores that are shrunk towards .2, 4000 rows place it near .2 + .4 (.5 - .2) = .32."""
    cuts = [(best_cut(*drawn(60, seed=s)), placed_cut(*drawn(60, seed=s))) for s in range(20)]
    best, placed = np.abs(np.array(cuts) - 0.5).T
    assert best.mean() > 0.05 > 5 * placed.mean()
    assert placed_cut(*drawn(4000, slope=0.4)) == pytest.approx(0.32, abs=0.05)


def test_scores_that_are_all_too_small_move_the_cut_with_them():
    y, score = drawn(400)
    assert placed_cut(y, score) == 0.5
    assert placed_cut(y, score - 0.2) == pytest.approx(0.3, abs=0.06)


def test_two_classes_keep_one_half_where_another_cut_is_worth_nothing():
    """The scores are too small on average, clearly, but every cut between 0 and one half decides alike."""
    y, score = drawn(400)
    low = np.where(score < 0.5, 0.0, score)
    assert (y - low).mean() > 3 * np.std(y - low) / 20
    assert placed_cut(y, low) == 0.5 == placed_cut(y, np.zeros_like(y))


def test_several_labels_begin_at_half_of_their_micro_f1():
    y, score = drawn(2000, 3)
    cut = placed_cut(y, score)
    assert cut == pytest.approx(measured(y, score > cut).value / 2, abs=0.02)


def test_the_cut_of_several_labels_leaves_half_of_the_micro_f1_sooner():
    """Scores shrunk a little: worse than the best cut by more than one standard error, but not by two."""
    y, score = drawn(400, 3, slope=0.8)
    best, cut = best_cut(y, score), placed_cut(y, score)
    top = measured(y, score > best)
    half = measured(y, score > top.value / 2)
    assert clearly(top, half, 1.0) and not clearly(top, half)
    assert not clearly(top, measured(y, score > cut), 1.0) and cut != pytest.approx(top.value / 2)


def test_logistic_regressions_are_those_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    for n, d in ((80, 5), (40, 60)):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(n, d))
        y = (x @ rng.normal(size=(d, 2)) + rng.normal(size=(n, 2)) > 0).astype(float)
        found = by_rows.coefficients(sp.csr_matrix(x), y)
        for own, label in zip(found.T, y.T, strict=True):
            model = LogisticRegression(fit_intercept=False, tol=1e-8, max_iter=1000).fit(x, label)
            np.testing.assert_allclose(own, model.coef_[0], atol=2e-3)


def one_label(n=90, d=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    return bf.Tasks({"x": x}, (x[:, :1] + 0.3 * rng.normal(size=(n, 1)) > 0).astype(float))


def test_a_method_that_a_logistic_regression_beats_clearly_is_told_so():
    """Of two methods, one scores as the regression does, and one at random."""
    data = one_label()
    rows, truth = np.arange(90), data["labels"].toarray()
    thirds = by_rows.thirds_of(data, 3)
    p = by_rows.without_labels(data, thirds)
    assert measured(truth, p > 0.5).value > 0.8 and not np.isnan(p).any()
    noise = np.random.default_rng(1).random((90, 1))
    (note,) = by_rows.against_logistic(data, [by_rows.Part(rows, truth, noise)], 0.5, 3)
    assert f"accuracy {measured(truth, p > 0.5).value:.3f}, by this method" in note
    assert by_rows.against_logistic(data, [by_rows.Part(rows, truth, p)], 0.5, 3) == []


def test_a_row_is_not_among_those_that_its_logistic_regression_learns_from():
    data = one_label()
    held = by_rows.thirds_of(data, 0)[0]
    y = data["labels"].toarray()
    y[held] = 1 - y[held]
    other = bf.Tasks({"x": data["x"].toarray()}, y)
    np.testing.assert_array_equal(
        by_rows.without_labels(data, [held])[held], by_rows.without_labels(other, [held])[held]
    )


def test_large_data_are_not_compared(monkeypatch):
    monkeypatch.setattr(by_rows, "WORK", 90 * 4 - 1)
    assert by_rows.without_labels(one_label(), by_rows.thirds_of(one_label(), 0)) is None
