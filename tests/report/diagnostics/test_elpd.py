"""The text and the picture of a leave-one-out result."""

from dataclasses import replace

import numpy as np
import pytest


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
