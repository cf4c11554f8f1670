"""Probabilities of features sum to one over each row of a view, for every method."""

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.report.diagnostics import shares
from bayesfac.report.diagnostics.held_out import score


@pytest.mark.parametrize("settings", [{}, {"scale": "none"}])
def test_views_side_by_side_are_scored_among_the_features_of_a_view(settings, monkeypatch):
    rng = np.random.default_rng(0)
    views = bf.Views({"a": 1 + rng.poisson(9.0, (12, 5)), "b": 1 + rng.poisson(9.0, (12, 4))})
    fit = bf.fit("concat_ltm", views, n_components=2, progress=False, **settings)
    monkeypatch.setattr(shares, "CELLS", 20)  # a few rows at a time
    p = np.exp(score(fit, views).log_p)
    np.testing.assert_allclose(
        np.add.reduceat(p, [*range(0, 60, 5), *range(60, 108, 4)]), 1, rtol=1e-5
    )
    ratio = p / fit.predict(views).mean
    assert np.ptp(ratio[:5]) < 1e-5 * ratio[0] and ratio[0] > 1.3
