"""Dask: two worker processes compute what one process does."""

import pandas as pd
import pytest
from joblib import parallel_config

import bayesfac as bf
from tests.evaluation.test_evaluation import numbers, run

distributed = pytest.importorskip(
    "distributed", reason="Dask is not installed: pip install 'bayesfac[dask]'"
)
WAYS = {"near": ("ml_knn", {"k": 3}), "chosen": bf.Tuned("ml_knn", {"k": [2, 3]})}


@pytest.fixture(scope="module")
def client():
    quiet = {"dashboard_address": None, "threads_per_worker": 1}
    with (
        distributed.LocalCluster(n_workers=2, **quiet) as cluster,
        distributed.Client(cluster) as c,
    ):
        yield c


@pytest.mark.slow  # the workers start and import JAX
def test_two_dask_workers_compute_what_one_process_does(client):
    whole = run(WAYS)
    with parallel_config("dask"):
        found = run(WAYS)
        calibrated = bf.sbc("pmf", replications=110, draws=9, warmup=5, thin=1, progress=False)
    pd.testing.assert_frame_equal(numbers(found), numbers(whole), check_exact=True)
    here = bf.sbc("pmf", replications=110, draws=9, warmup=5, thin=1, progress=False)
    pd.testing.assert_frame_equal(calibrated.ranks, here.ranks)
