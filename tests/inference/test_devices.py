"""Eight simulated devices of one process draw what one draws, and solve what one solves."""

import os
import subprocess
import sys

import pytest

RUN = """
import warnings

import jax
import numpy as np

import bayesfac as bf

assert jax.device_count() == 8
warnings.simplefilter("ignore", bf.ConvergenceWarning)
rng = np.random.default_rng(0)
ratings = bf.datasets.make_ratings(37, 23, 3, seed=0)
words = rng.poisson(rng.dirichlet(np.ones(3) / 3, 37) @ rng.dirichlet(np.ones(20) / 5, 3) * 40)
for name, data, engine, how in (
    ("bpmf", ratings, lambda **shares: bf.Gibbs(4, 4, 2, **shares), {"n_components": 3}),
    ("plsa", words, lambda **shares: bf.FixedPoint(9, **shares), {"n_components": 3, "start": "random"}),
):
    fits = [bf.fit(name, data, engine(**s), progress=False, **how) for s in ({}, {"shares": True})]
    one, eight = (fit.params if fit.is_point else fit.draws for fit in fits)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(eight), strict=True):
        np.testing.assert_allclose(y, x, rtol=RTOL, atol=RTOL)
print("the same")
"""


@pytest.mark.slow  # a process of its own, which compiles for eight devices
@pytest.mark.parametrize(("double", "rtol"), [(0, 1e-4), (1, 1e-9)], ids=["single", "double"])
def test_eight_devices_find_what_one_finds(double, rtol):
    env = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_ENABLE_X64": str(double),
    }
    command = [sys.executable, "-c", RUN.replace("RTOL", str(rtol))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "the same\n"
