"""Dask: two worker processes compute what one process does."""

import os
import signal
import threading
import time

import pandas as pd
import pytest
from joblib import parallel_config

import bayesfac as bf
from tests.labels.evaluation.test_evaluation import numbers, run

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


@pytest.mark.slow  # workers start, are killed, and start again
@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_dask_worker_that_is_killed_loses_nothing(client):
    """One of two workers dies while a cross-validation runs; Dask starts another and does its cells again."""
    given = {"n_components": 2, "sparsity": 0.0625}
    ways = {name: ("heres", given, bf.FixedPoint(400, tol=0.0)) for name in ("one", "other")}
    whole, struck = run(ways, folds=4), []

    def strike():
        time.sleep(3)
        struck.append(next(nanny.pid for nanny in client.cluster.workers.values() if nanny.pid))
        os.kill(struck[0], signal.SIGKILL)

    killer = threading.Thread(target=strike)
    killer.start()
    with parallel_config("dask"):
        found = run(ways, folds=4)
    killer.join()
    assert struck
    pd.testing.assert_frame_equal(numbers(found), numbers(whole), check_exact=True)
