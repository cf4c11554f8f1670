"""Findings and axes of the pictures of held-out quality."""

from bayesfac.report.plots.held_out_plots import reliability
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
