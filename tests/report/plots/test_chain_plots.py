"""Replicates of the posterior predictive check."""

import numpy as np

from bayesfac.report.plots.chain_plots import replicates
from tests.report import fakes


def test_replicates_follow_the_predictive_distribution() -> None:
    prediction = fakes.sampled_ratings().predict(fakes.ratings_sets()[1])
    drawn = replicates(prediction, np.random.default_rng(0))
    error = (drawn.mean(0) - prediction.mean) / prediction.sd
    assert abs(error.mean()) < 0.05
    np.testing.assert_allclose(
        drawn.std(), np.sqrt(prediction.mean.var() + (prediction.sd**2).mean()), rtol=0.05
    )
