"""Replicates of the posterior predictive check; the panels of identified quantities."""

import numpy as np

from bayesfac.report.diagnostics.diagnose import diagnostics
from bayesfac.report.plots.chain_plots import replicates, spotlight
from tests.report import fakes


def test_replicates_follow_the_predictive_distribution() -> None:
    prediction = fakes.sampled_ratings().predict(fakes.ratings_sets()[1])
    drawn = replicates(prediction, np.random.default_rng(0))
    error = (drawn.mean(0) - prediction.mean) / prediction.sd
    assert abs(error.mean()) < 0.05
    np.testing.assert_allclose(
        drawn.std(), np.sqrt(prediction.mean.var() + (prediction.sd**2).mean()), rtol=0.05
    )


def test_long_names_that_begin_alike_have_panels_of_their_own() -> None:
    """What a caption says of the panels is computed from the quantities in them."""
    diagnosis = diagnostics(fakes.sampled_ratings(chains=4, draws=100))
    table = diagnosis.table
    plain, _ = spotlight(diagnosis)
    table.index = [name.replace("(", "(customer-of-the-shop-0") for name in table.index]
    tree, rows = spotlight(diagnosis)
    panels = tree["posterior"].data_vars
    assert len(panels) == len(plain["posterior"].data_vars) == 4
    assert len(rows) == 4
    for values, mean in zip(panels.values(), rows["mean"], strict=True):
        np.testing.assert_allclose(float(values.mean()), mean, rtol=1e-6)
