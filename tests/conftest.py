"""Setup of all tests: float64, no display, one compilation cache, and all methods registered."""

import importlib.util
import math
import os
import sys
import threading
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("MPLBACKEND", "Agg")
# Several processes run tests side by side: threads of OpenBLAS would wait for each other on tables of a few
# hundred rows (16 tests of spectral clustering: 5 s with one thread, 217 s with two beside other work).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA logs every read of its cache
# The tests run thousands of tiny programs once or twice: nearly all their time is compilation. These flags
# make XLA compile faster and the programs run slower; `make test-all` sets XLA_FLAGS= and so keeps the
# defaults. XLA stops at a flag that it does not know: jaxlib 0.12 cannot switch off the fusion emitters,
# which in jaxlib 0.9 reduces the time of compilation to a third.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.9."),
)

import jax
import pytest
from jax._src.interpreters import mlir

COMPILED = "/jax/core/compile/backend_compile_duration"
ROOT = Path(__file__).resolve().parents[1]

# before any container is made, because containers use the precision at that time
jax.config.update("jax_enable_x64", True)
if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
    folder = ROOT / ".cache" / f"jax-{jax.__version__}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def reused(make, times=10):
    """`make`, whose result serves this many calls of a thread."""
    held = defaultdict(list)

    def again():
        own = held[threading.get_ident()]
        if not own:
            own.extend([make()] * times)
        return own.pop()

    return again


# JAX 0.9 sets up a context of MLIR for every program, which took an eighth of the time of all tests. Later
# versions use a context for ten programs of a thread.
if version("jax").startswith("0.9."):
    mlir.make_ir_context = reused(mlir.make_ir_context)

import bayesfac.models  # noqa: E402, F401  # registers every method
from bayesfac import inference  # noqa: E402
from bayesfac.core.method import REGISTRY  # noqa: E402
from tests.tools.kinds import KINDS, quick_for  # noqa: E402
from tests.tools.long_tests import LIMITS, listed  # noqa: E402


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(items):
    """Mark the tests in tests/tools/long.txt as long, and those in longest.txt also as longest."""
    for name in LIMITS:
        known = listed(name)
        for item in items:
            if item.nodeid in known:
                item.add_marker(name)


@pytest.fixture(params=sorted(REGISTRY), ids=str)
def method(request):
    return REGISTRY[request.param]


@pytest.fixture(params=quick_for(KINDS), ids=str)
def sampled_method(request):
    """Every method, for properties of an engine; the quick tests take one method of each kind."""
    return REGISTRY[request.param]


@pytest.fixture(
    params=[0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))],
    ids="seed{}".format,
)
def key(request):
    return jax.random.key(request.param)


@pytest.fixture
def skeleton():
    """The record in docs/skeleton_method.py; the registry is restored after the test."""
    path = ROOT / "docs" / "skeleton_method.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    with patch.dict(REGISTRY), patch.dict(sys.modules, {path.stem: module}):
        spec.loader.exec_module(module)
        yield module.METHOD


@pytest.fixture(scope="session")
def real_data():
    """The folder of the real data sets."""
    for folder in (os.environ.get("BAYESFAC_DATA"), ROOT.parent / "shared" / "data"):
        if folder and (Path(folder) / "movielens_100k.npz").exists():
            return Path(folder)
    pytest.skip("no real data: BAYESFAC_DATA names no folder with movielens_100k.npz")


_run = iter(range(1, 1_000_000))


@pytest.fixture(autouse=True)
def _forget_programs():
    """Clear the compiled programs after every 100 tests: together they would fill gigabytes."""
    yield
    if next(_run) % 100 == 0:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _forget_interrupts(monkeypatch):
    """A second Ctrl-C soon after the first is raised, which would end pytest: tests are not one loop of
    fits."""
    monkeypatch.setattr(inference, "_interrupted", [-math.inf])


@pytest.fixture
def programs():
    """Every program that XLA is asked for, from when the test begins."""
    found = []

    def listen(event, seconds, **_):
        if event == COMPILED:
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)
