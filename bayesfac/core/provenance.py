"""A digest of everything that determines the result of a fit; the software and machine of a fit."""

import hashlib
import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from bayesfac.core.keys import as_json, own_code
from bayesfac.core.method import Method

# settings of engines that do not decide the numbers
NO_NUMBERS = ("folder", "save_every", "shares", "jobs")


def identity(method: Method, data: Any, hyper: Any, engine: Any, seed: int, start: Any) -> str:
    """A digest of everything that determines the numbers: a checkpoint belongs to one digest."""
    settings = {k: _plain(v) for k, v in asdict(engine).items() if k not in NO_NUMBERS}
    told = type(hyper)(*map(_plain, hyper))
    parts = method.recipe or method.name, told, type(engine).__name__, settings, _plain(seed)
    digest = hashlib.sha256(repr(parts).encode())
    digest.update(versions()["bayesfac"].encode())  # another version may make other numbers
    # a folder holds draws by a user's own functions as they were: changed functions are another run
    if getattr(engine, "folder", None) is not None and (code := own_code(method)) != method.name:
        digest.update(json.dumps(as_json(code)).encode())
    digest.update(data.fingerprint().encode())
    for one in start if isinstance(start, tuple) else [start or {}]:
        for site, value in sorted(one.items()):
            digest.update(site.encode() + np.ascontiguousarray(value).tobytes())
    digest.update(str(jax.dtypes.canonicalize_dtype(np.float64)).encode())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """The setting in terms of Python: 0.5 and np.float64(0.5) are one number."""
    if type(value) is tuple:
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that decide the numbers; read from disk once."""
    packages = ("bayesfac", "jax", "numpyro", "numpy", "scipy", "numba", "arviz-base")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def about(notes: list[str]) -> dict[str, Any]:
    """The time, the versions of the software, the device and the notes of a fit."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": dict(versions()),
        "device": f"{jax.default_backend()} x {jax.device_count()}, {os.cpu_count()} cores",
        "precision": str(jax.dtypes.canonicalize_dtype(np.float64)),
        "notes": list(notes),
    }
