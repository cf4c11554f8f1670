"""Compiled programs are forgotten before a process has no memory maps left."""

from pathlib import Path

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core import programs

LIMIT = Path("/proc/sys/vm/max_map_count")


@pytest.mark.skipif(not LIMIT.exists(), reason="this system has no limit of memory maps")
def test_a_fit_forgets_programs_where_they_fill_the_maps(monkeypatch):
    forgotten = []
    monkeypatch.setattr("jax.clear_caches", lambda: forgotten.append(1))
    data = bf.datasets.make_ratings(12, 10, 2, seed=0)
    settings = {"n_components": 2, "progress": False}
    first = bf.fit("pmf", data, bf.Gibbs(5, 5, 1), **settings)
    assert not forgotten
    monkeypatch.setattr(programs, "ROOM", 0.0)
    again = bf.fit("pmf", data, bf.Gibbs(5, 5, 1), **settings)
    assert forgotten == [1]
    np.testing.assert_array_equal(first.draws["U"], again.draws["U"])
