"""The text and the picture of a leave-one-out result."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from bayesfac.report.diagnostics.elpd import estimate, spread


def test_words_and_picture(loo):
    text = repr(loo)
    assert "Leave-rating-out of pmf" in text and "800 draws" in text and "p_loo" in text
    assert loo.threshold == pytest.approx(1 - 1 / np.log10(800))
    picture = loo.picture()
    assert picture.png()[:4] == b"\x89PNG" and f"{loo.threshold:.2f}" in picture.caption


def test_errors_are_over_the_owners_of_the_cells(loo):
    assert "over their users (" in repr(loo)
    assert "over their rows (" in repr(replace(loo, unit="label"))
    assert "over their labels of the first mode (" in repr(replace(loo, unit="cell"))


def test_sums_of_samples_have_no_bias_and_errors_have_none():
    """Over all samples of 3 of 6 cells: the sum, the variance from sampling, and that of all scores."""
    rng = np.random.default_rng(0)
    lpd = rng.normal(size=6)
    e = lpd - 0.2 * rng.random(6)
    samples = [np.array(at) for at in combinations(range(6), 3)]
    found = np.array([estimate(e[at], lpd, at) for at in samples])
    assert found[:, 0].mean() == pytest.approx(e.sum())
    assert (found[:, 1] ** 2).mean() == pytest.approx(found[:, 0].var())
    squares = [spread(e[at], lpd, at) ** 2 for at in samples]
    assert np.mean(squares) == pytest.approx(6 * e.var(ddof=1))
    whole = np.arange(6)
    assert estimate(e, lpd, whole) == pytest.approx((e.sum(), 0))
    assert spread(e, lpd, whole) == pytest.approx(spread(e, None, None))
    assert estimate(e, None, None) == (pytest.approx(e.sum()), 0)
    assert spread(e, None, None) == pytest.approx(np.sqrt(6 * e.var(ddof=1)))
