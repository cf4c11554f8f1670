"""Replicates of the posterior predictive check; the panels of identified quantities."""

import numpy as np
import pandas as pd
import pytest

from bayesfac.report.diagnostics.diagnose import diagnostics
from bayesfac.report.plots.chain_plots import distributions, panels, ranks, spotlight, trace
from tests.report import fakes


def test_long_names_that_begin_alike_have_panels_of_their_own() -> None:
    """What a caption says of the panels is computed from the quantities in them."""
    diagnosis = diagnostics(fakes.sampled_ratings(chains=4, draws=100))
    table = diagnosis.table
    plain, _ = spotlight(diagnosis)
    table.index = [name.replace("(", "(customer-of-the-shop-0") for name in table.index]
    tree, rows = spotlight(diagnosis)
    shown = tree["posterior"].data_vars
    assert len(shown) == len(plain["posterior"].data_vars) == 4
    assert len(rows) == 4
    for values, mean in zip(shown.values(), rows["mean"], strict=True):
        np.testing.assert_allclose(float(values.mean()), mean, rtol=1e-6)


def test_titles_may_have_slashes_and_stay_different_when_they_are_cut() -> None:
    """A variable of xarray cannot have a slash in its name; the title of a panel can."""
    film = "prediction (ann, Face/Off (1997), a film with a title that goes on and on"
    labels = ["log joint", f"{film}, part 1)", f"{film}, part 2)", "prediction (AC/DC, $x/y)"]
    draws = list(np.random.default_rng(0).normal(size=(4, 2, 50)))
    rows = pd.DataFrame({"quantity": ["prediction"] * 4, "r_hat": [1.0] * 4})
    axes = trace("films", panels(labels, draws), rows).figure.axes
    titles = [one.get_title() for one in axes]
    assert titles[0] == "log joint" and titles[3] == labels[3]
    assert "part 1)" in titles[1] and "part 2)" in titles[2]
    assert [one.get_ylabel() for one in axes] == ["nats", "value", "value", "value"]
    np.testing.assert_array_equal(axes[3].lines[1].get_ydata(), draws[3][1])


@pytest.mark.parametrize(("apart", "level"), [(0.0, "good"), (2.0, "care"), (6.0, "care")])
def test_ranks_of_chains_that_disagree_leave_the_band(apart: float, level: str) -> None:
    """The band was that of the draws in common, of which there are the fewer the more chains disagree."""
    draws = np.random.default_rng(0).normal(size=(4, 200)) + apart * (np.arange(4)[:, None] < 2)
    tree = panels(["x"], [draws])
    assert ranks("two modes", tree).finding.level == level


@pytest.mark.parametrize(("r_hat", "level"), [(1.001, "good"), (1.9, "bad")])
def test_two_humps_of_chains_that_disagree_are_not_called_good(r_hat: float, level: str) -> None:
    draws = (
        np.random.default_rng(0).normal(size=(2, 200)) + 6 * (r_hat > 1.5) * np.arange(2)[:, None]
    )
    tree = panels(["log joint"], [draws])
    rows = pd.DataFrame({"quantity": ["log joint"], "r_hat": [r_hat]})
    assert distributions("chains", tree, rows).finding.level == level
    assert distributions("one law", tree, None).finding.level == "good"
