"""Findings and axes of the pictures of held-out quality."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.text import Text

from bayesfac.report.plots.held_out_plots import (
    coverage_curve,
    pit,
    pit_ecdf,
    reliability,
    selective,
)
from tests.report import fakes


def test_the_picture_of_reliability_tells_true_from_bold() -> None:
    drawn = reliability(
        {"true": fakes.simulated_levels(), "bold": fakes.simulated_levels(sharpen=3)}
    )
    assert "bold" in str(drawn.finding) and "true" not in str(drawn.finding)
    assert drawn.finding.level == "care"
    assert reliability({"true": fakes.simulated_levels()}).finding.level == "good"
    (axes,) = drawn.figure.axes
    assert axes.get_xlabel() and axes.get_ylabel() and axes.get_title("left")


def test_titles_of_panels_end_inside_the_picture() -> None:
    long = "Gibbs with a long name that says all of the settings"
    figure = pit({"point": fakes.simulated_levels(), long: fakes.simulated_levels()}).figure
    figure.canvas.draw()
    assert max(text.get_window_extent().x1 for text in figure.findobj(Text)) <= figure.bbox.x1
    assert figure.axes[1].get_title("left") == "Gibbs with a long name\nthat says all of the…"


@pytest.mark.parametrize(("stated", "word"), [(1.15, "wide"), (0.8, "narrow"), (1.0, "calibrated")])
def test_the_picture_of_coverage_judges_as_the_verdict_does(stated: float, word: str) -> None:
    scores = fakes.simulated_scores(500, stated, seed=1)
    assert np.sign(scores.off(0.9)) == {"wide": 1, "narrow": -1, "calibrated": 0}[word]
    assert word in str(coverage_curve({"one": scores}).finding)
    of_one_user = replace(scores, cluster=np.zeros(500, int))
    assert of_one_user.off(0.9) == 0
    assert "of unknown error" in str(coverage_curve({"one": of_one_user}).finding)


def test_long_names_of_fits_stay_different_in_the_legend() -> None:
    long = "Gibbs with a long name that says all of the settings, thin"
    scores = {f"{long}={n}": fakes.simulated_levels() for n in (2, 5)}
    for draw in (coverage_curve, selective, pit_ecdf):
        (axes,) = draw(scores).figure.axes
        names = [text.get_text() for text in axes.get_legend().get_texts()]
        assert len({*names}) == len(names) and names[-1].endswith("thin=5"), names
