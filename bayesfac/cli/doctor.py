"""`bayesfac doctor`: what a report of a bug must say of the machine and its software, as text to paste."""

import argparse
import os
import platform
import re
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

SETTINGS = ("BAYESFAC_", "JAX_", "NUMBA_", "XLA_", "OMP_", "MKL_", "OPENBLAS_", "TF_CPP_", "CUDA_V")
CELLS, WIDTH = 100_000, 16  # of the benchmark


def doctor(args: argparse.Namespace) -> int:
    """Print versions, threads, caches, speed and known conflicts, to paste into an issue."""
    conflicts = [*outside(), *disturbing(os.environ)]
    lines = {**software(), **machine(), "caches": [*caches()], "speed": speed()}
    lines["conflicts"] = conflicts or "none"
    text = "\n".join(
        f"{name:<10} {one}"
        for name, told in lines.items()
        for one in (told if isinstance(told, list) else [told])
    )
    print(without_home(text))
    return 1 if conflicts else 0


def without_home(text: str) -> str:
    """The text with ~ for the user's home folder, which often has the name of a person.

    >>> without_home(f"{Path.home() / 'kept'}").endswith("~/kept")
    True
    """
    homes = {str(Path.home()), str(Path.home().resolve())} - {Path.home().anchor}
    for home in sorted(homes, key=len, reverse=True):
        text = re.sub(rf"{re.escape(home)}(?!\w)", "~", text)
    return text


def software() -> dict[str, Any]:
    """Versions of what decides numbers and speed, and the variables that change it."""
    from bayesfac.core import provenance

    known = provenance.versions() | {"jaxlib": version("jaxlib"), "llvmlite": version("llvmlite")}
    return {
        "bayesfac": f"{known.pop('bayesfac')}, Python {known.pop('python')}, {platform.platform()}",
        "packages": ", ".join(f"{name} {number}" for name, number in known.items()),
        "variables": [f"{k}={v}" for k, v in os.environ.items() if k.startswith(SETTINGS)],
    }


def machine() -> dict[str, Any]:
    """Cores, threads, the device, its precision, and where the loops run."""
    import jax
    import llvmlite.binding as llvm
    import numba
    import numpy as np
    from threadpoolctl import threadpool_info

    from bayesfac.core.kernels import bridge, numba_loops

    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    pools = [f"{one['internal_api']} {one['num_threads']}" for one in threadpool_info()]
    cpu = jax.default_backend() == "cpu"
    reason = bridge.refusal(numba_loops.dots) if cpu else "on this device the loops are JAX's"
    return {
        "cores": f"{own} of {os.cpu_count()}, {llvm.get_host_cpu_name()}",
        "threads": ", ".join([*pools, f"numba {numba.get_num_threads()}"]),
        "device": f"{jax.default_backend()} x {jax.device_count()}",
        "precision": str(jax.dtypes.canonicalize_dtype(np.float64)),
        "kernels": reason or "run inside XLA",
    }


def caches() -> Iterator[str]:
    """Each folder of compiled programs and of data sets, and its size."""
    from bayesfac.core import programs
    from bayesfac.datasets import fetch

    places = {"programs": programs.folder(), "data sets": fetch.store()}
    for name in ("JAX_COMPILATION_CACHE_DIR", "NUMBA_CACHE_DIR"):
        if named := os.environ.get(name):
            places[name] = Path(named)
    for place in dict.fromkeys(places.values()):
        what = ", ".join(name for name, other in places.items() if other == place)
        files = [file for file in place.rglob("*") if file.is_file()] if place else []
        size = sum(file.stat().st_size for file in files) / 1e6
        yield f"{what}: {f'{place}, {len(files)} files, {size:.1f} MB' if place else 'not kept'}"


def speed() -> str:
    """How many products of short rows the machine computes in a second, by a program of one second."""
    import jax
    import numpy as np

    from bayesfac.core.data.cells import Cells
    from bayesfac.core.kernels import sparse

    rng, n = np.random.default_rng(0), 1000
    U, V = rng.normal(size=(2, n, WIDTH)).astype(np.float32)
    row = np.repeat(np.arange(n), CELLS // n)
    program = jax.jit(sparse.dots)
    given = jax.device_put((Cells(row, rng.integers(0, n, CELLS), (n, n)), U, V))
    jax.block_until_ready(program(*given))
    calls, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < 1:
        jax.block_until_ready(program(*given))
        calls += 1
    each = calls * CELLS / taken / 1e6
    return f"{each:.0f} million products of rows of {WIDTH} numbers in a second"


def outside(package: str = "bayesfac") -> Iterator[str]:
    """Dependencies that are missing, or of a version that the package does not allow."""
    from packaging.requirements import Requirement

    for one in map(Requirement, requires(package) or []):
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(one.name)
        except PackageNotFoundError:
            found = "none"
        if found == "none" or not one.specifier.contains(found, prereleases=True):
            yield f"Expected {one.name}{one.specifier}, got {found}"


def disturbing(variables: Any) -> Iterator[str]:
    """Environment variables with which bayesfac is slow or does not work."""
    if variables.get("NUMBA_DISABLE_JIT", "0") != "0":
        yield "NUMBA_DISABLE_JIT is set: the kernels cannot be compiled"
    if variables.get("BAYESFAC_CACHE") == "off":
        yield "BAYESFAC_CACHE=off: every process compiles its programs anew"
    if (level := variables.get("TF_CPP_MIN_LOG_LEVEL", "3")) != "3":
        yield f"TF_CPP_MIN_LOG_LEVEL={level}: JAX's programs are not kept, expected 3"
