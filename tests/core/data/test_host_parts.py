"""What of the data stays on the host is equal by content, so that JAX may run one program for both."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.labels.data.scaling import scaled

X = np.arange(12.0).reshape(4, 3)
Y = np.eye(4, 2)


def tasks(rows="abcd", labelled=4):
    known = np.where(np.arange(4)[:, None] < labelled, Y, np.nan)
    return bf.Tasks(pd.DataFrame(X, index=list(rows)), pd.DataFrame(known, list(rows)))


def test_copies_of_data_are_equal():
    one, two = tasks().host, tasks().host
    assert one is not two and one == two and hash(one) == hash(two)
    assert scaled(tasks(), 1.0).host == scaled(tasks(), 1.0).host
    assert bf.Views({"x": X}).host == bf.Views({"x": X}).host


@pytest.mark.parametrize(
    "other",
    [
        tasks(rows="abce"),
        tasks(labelled=3),
        tasks().named("other"),
        scaled(tasks(), 1.0),
        bf.Tasks(X, Y),
        bf.Views({"x": X}),
    ],
)
def test_other_data_are_not_equal(other):
    assert tasks().host != other.host


def test_every_number_and_type_counts():
    one = scaled(tasks(), 1.0).host
    centre = one.scales["x"].centre + 1e-9
    assert one != replace(one, scales={"x": one.scales["x"]._replace(centre=centre)})
    rows = pd.Index([0, 1, 2, 3])
    assert replace(one, rows=rows) == replace(one, rows=rows.copy())
    assert replace(one, rows=rows) != replace(one, rows=rows.astype(float))
