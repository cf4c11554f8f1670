"""Shares of ratings, as several devices get them: equal shapes, and every cell once."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.divided.shares import dealer


@pytest.mark.parametrize("parts", [2, 3])
def test_shares_of_uneven_rows_have_equal_shapes_and_all_cells(parts):
    """Users with 1 to 150 ratings: the parts differ in their numbers of cells, and of chunks of 64."""
    rng = np.random.default_rng(0)
    seen = np.arange(160) < np.array([150, 3, 70, 1, 130, 2, 65])[:, None]
    data = bf.Ratings(np.where(seen, rng.normal(size=seen.shape), np.nan))
    give = dealer(data, parts)
    shares = [give(part) for part in range(parts)]
    shapes = [jax.tree.map(np.shape, jax.tree.leaves(share)) for share in shares]
    assert all(shape == shapes[0] for shape in shapes)
    for view in range(2):
        found = [share[view].cells.mine for share in shares]
        sizes = [int(rows.ptr[-1]) for rows in found]
        assert sum(sizes) == len(data)
        for rows, size in zip(found, sizes, strict=True):
            begins = np.asarray(rows.chunk)
            firsts = np.asarray(rows.ptr)[:-1][np.diff(rows.ptr) > 0]
            assert begins.max() <= size and np.isin(firsts, begins).all()
