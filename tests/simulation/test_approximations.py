"""Calibration measures how far the engines that approximate are off."""

import pytest

import bayesfac as bf


def test_mean_field_is_measured():
    """U and V pull on one another, which a mean field cannot follow."""
    found = bf.sbc("pmf", "SVI", replications=100, steps=1500, progress=False)
    assert found.engine == "SVI (normal)"
    assert found.ok is False
    assert found.table["90 % covers"].min() < 0.85
    assert found.table["the draws are"].str.contains("too").any()


@pytest.mark.slow
def test_vb_is_measured_and_its_unseen_predictions_are_too_narrow():
    found = bf.sbc("bpmf", "VB", replications=100, max_iter=200, progress=False)
    assert found.ok is False and (found.ess == 99).all()
    asked = ("prediction (0, 0), seen", "prediction (3, 4), unseen")
    seen, unseen = found.table.loc[list(asked), "90 % covers"]
    assert unseen < 0.8 < seen


@pytest.mark.slow
def test_quick_is_measured_and_its_intervals_of_predictions_hold_what_they_say():
    found = bf.sbc("pmf", "Quick", replications=100, sweeps=100, progress=False)
    assert (found.ess == 99).all()
    predictions = found.table.loc[found.table.index.str.startswith("prediction"), "90 % covers"]
    # 100 data sets: a standard error of .03
    assert len(predictions) > 1 and (predictions > 0.8).all()
    short = bf.sbc("ordinal_mf", "Quick", replications=20, sweeps=20, progress=False)
    assert short.ok is False, "so short a run has not forgotten its start"
