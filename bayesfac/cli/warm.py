"""`bayesfac warm`: compile what a first call needs, so that later processes find it on disk."""

import argparse
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bayesfac.cli import commands, doctor, outputs

SHORT = {"max_iter": 2, "warmup": 2, "draws": 2}  # a short run has the programs of a long one
Job = tuple[str, Callable[[], Any]]


def warm(args: argparse.Namespace) -> int:
    """Compile what a first call needs, and keep it on disk."""
    from bayesfac.core import programs

    if programs.folder() is None:
        raise OSError(
            "Expected a folder for compiled programs, got BAYESFAC_CACHE=off or a read-only one"
        )
    jobs = [*kernels(), *(fits(args) if args.data else ())]
    for number, (name, job) in enumerate(jobs, 1):
        begun = time.perf_counter()
        job()
        taken = time.perf_counter() - begun
        outputs.tell(args, f"{number} of {len(jobs)}: {name}, {taken:.1f} s")
    print(doctor.without_home("\n".join(doctor.caches())))
    return 0


def kernels() -> Iterator[Job]:
    """Compile each kernel, which then serves data of any size; none on a device where the loops are JAX's."""
    import jax
    import numpy as np

    from bayesfac.core.kernels import bridge, sparse

    T: Any = np.dtype(jax.dtypes.canonicalize_dtype(np.float64)).type
    if sparse.backend() == "numba":
        for name, kernel in bridge.kernels().items():
            yield f"kernel {name}", partial(bridge.registered, kernel, T)


def fits(args: argparse.Namespace) -> Iterator[Job]:
    """Compile the programs of each method for the size of the data, by a short run of its engines."""
    import bayesfac as bf
    from bayesfac.core.method import lookup
    from bayesfac.inference import ENGINES

    bf.methods()  # registers every method
    for method in map(lookup, args.methods):
        data = commands.read_data(args.data, method.data.__name__.lower(), args)
        for name in dict.fromkeys((method.default_engine, "Gibbs")):
            if name in method.engines:
                engine: Any = ENGINES[name]()
                known = {field.name for field in dataclasses.fields(engine)}
                engine = dataclasses.replace(
                    engine, **{k: v for k, v in SHORT.items() if k in known}
                )
                yield f"{method.name} by {name}", partial(fitted, method, data, engine)


def fitted(method: Any, data: Any, engine: Any) -> None:
    """Fit; a run as short as this does not converge."""
    import bayesfac as bf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        bf.fit(method, data, engine, progress=False)
