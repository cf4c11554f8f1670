"""SIGKILL at random moments, and then the same numbers as without: no handler can run, nothing is flushed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # every kill costs a fresh interpreter and its compilations

RUN = """
import sys
import numpy as np
import bayesfac as bf
from bayesfac.core.method import sites
engine, folder, out = sys.argv[1:]
folder = folder or None
engines = {
    "FixedPoint": lambda: bf.FixedPoint(4000, tol=0, folder=folder, save_every=0.05),
    "LBFGS": lambda: bf.LBFGS(400, tol=0, folder=folder, save_every=0.0),
    "Gibbs": lambda: bf.Gibbs(200, 800, 2, folder=folder, save_every=0.05),
    "NUTS": lambda: bf.NUTS(200, 400, 2, max_tree_depth=5, thin=2, folder=folder, save_every=0.05),
    "SVI": lambda: bf.SVI(12000, draws=50, patience=False, folder=folder, save_every=0.05),
}
data, _ = bf.datasets.make_gaussian(40, 30, 3, density=0.7, seed=0)
print("begin", flush=True)
fit = bf.fit("pmf", data, engines[engine](), n_components=3, progress=False)
found = sites(fit.params) if fit.is_point else {**fit.draws, **fit.stats}
np.savez(out, trace=fit.trace, **{k: np.asarray(v) for k, v in found.items()})
"""
KILLS = 4  # of each of five engines: twenty


def child(engine: str, folder: Path | str, out: Path) -> subprocess.Popen:
    command = [sys.executable, "-W", "ignore", "-c", RUN, engine, str(folder), str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "begin\n"
    return process


@pytest.mark.parametrize("engine", ["FixedPoint", "LBFGS", "Gibbs", "NUTS", "SVI"])
def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path: Path, engine: str) -> None:
    whole, resumed, folder = tmp_path / "whole.npz", tmp_path / "resumed.npz", tmp_path / "run"
    begun = time.monotonic()
    assert child(engine, "", whole).wait() == 0
    took = time.monotonic() - begun
    rng = np.random.default_rng(sum(map(ord, engine)))
    killed = saved = 0
    for moment in rng.uniform(0, took, KILLS):
        process = child(engine, folder, resumed)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            killed += 1
        saved += any(folder.rglob("checkpoint.npz"))
    assert child(engine, folder, resumed).wait() == 0
    assert killed and saved, "every try was over before it could be killed, or saved nothing"
    assert not [*folder.rglob(".*")], "litter of an unfinished file"
    with np.load(whole) as expected, np.load(resumed) as found:
        assert {*expected.files} == {*found.files}
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
