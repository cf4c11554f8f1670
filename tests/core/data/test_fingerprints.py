"""A fingerprint tells data apart by labels and values, whatever type the labels have."""

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint64", "float64", str])
def test_the_type_of_labels_does_not_change_the_fingerprint(kind):
    def made(labels):
        table = pd.DataFrame(np.eye(3), index=labels)
        return (
            bf.Ratings(labels, labels, [1.0, 2.0, 3.0]),
            bf.Counts(labels, labels, [1, 2, 3]),
            bf.Views({"x": table}),
            bf.Tasks(table, np.eye(3)),
            bf.Tensor(
                pd.DataFrame({"a": labels, "b": labels, "c": labels, "value": [1.0, 2.0, 3.0]})
            ),
        )

    usual, other = made(pd.Index([1, 2, 7])), made(pd.Index(np.array([1, 2, 7]).astype(kind)))
    for one, two in zip(usual, other, strict=True):
        assert one.fingerprint() == two.fingerprint()
    assert made(pd.Index([1, 2, 8]))[0].fingerprint() != usual[0].fingerprint()
