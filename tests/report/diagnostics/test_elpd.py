"""The text and the picture of a leave-one-out result."""

import numpy as np
import pytest


def test_words_and_picture(loo):
    text = repr(loo)
    assert "Leave-rating-out of pmf" in text and "800 draws" in text and "p_loo" in text
    assert loo.threshold == pytest.approx(1 - 1 / np.log10(800))
    picture = loo.picture()
    assert picture.png()[:4] == b"\x89PNG" and f"{loo.threshold:.2f}" in picture.caption
