"""Checkpoints: an interrupted run continues from its last checkpoint and gives the same numbers.

A checkpoint is one NPZ file without pickle: the arrays, and a JSON header with the identity of the run
and the sha256 of every array. The file is replaced atomically, at most every `save_every` seconds.
"""

import hashlib
import json
import struct
import time
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayesfac.core.errors import CorruptFile
from bayesfac.core.files import GOES_ON, atomic, clear_unfinished, named_if_full

FORMAT = 1
SAVE_EVERY = 20.0  # seconds
# errors of NumPy, zipfile and json when they read damaged bytes
DAMAGE = (
    OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


def write_arrays(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write an NPZ with a JSON header in the member `header`, whole or not at all."""
    plain: dict[str, Any] = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    head = {**header, "format": FORMAT, "sha256": {name: _digest(a) for name, a in plain.items()}}
    with atomic(path) as part, open(part, "wb") as file:
        np.savez(file, header=np.array(json.dumps(head)), **plain)


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays; a damaged file raises CorruptFile."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop("header")))
        expected = header["sha256"]
    except DAMAGE as error:
        raise CorruptFile(f"Expected a bayesfac archive in {path}, got {error}") from error
    if header.get("format") != FORMAT:
        raise CorruptFile(f"Expected format {FORMAT} in {path}, got {header.get('format')!r}")
    for name, digest in expected.items():
        if name not in arrays or _digest(arrays[name]) != digest:
            raise CorruptFile(
                f"Expected {path} unchanged since it was written, got other bytes in {name!r}"
            )
    return header, arrays


def _digest(array: np.ndarray) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Checkpoint:
    """The checkpoint of one run. Without a folder, every method does nothing. If it is `idle`, it only
    loads, because another process saves."""

    def __init__(
        self, folder: str | None, run: str, save_every: float = SAVE_EVERY, idle: bool = False
    ) -> None:
        self.path = None if folder is None else Path(folder) / "checkpoint.npz"
        self.run, self.save_every, self.last = run, save_every, time.monotonic()
        self.idle = idle

    def load(self) -> dict[str, np.ndarray] | None:
        """The state that an earlier, interrupted start of this run saved, or None."""
        if self.path is None:
            return None
        clear_unfinished(self.path.parent, ".npz")
        if not self.path.exists():
            return None
        header, arrays = read_arrays(self.path)
        if header["run"] != self.run:
            raise ValueError(
                f"Expected {self.path.parent} to hold this run (same method, data, hyper-parameters, "
                "engine, seed and version of bayesfac), got another run; name an empty folder"
            )
        return arrays

    def due(self) -> bool:
        """Whether `save_every` seconds have passed since the last save."""
        passed = time.monotonic() - self.last
        return self.path is not None and not self.idle and passed >= self.save_every

    def save(self, arrays: Mapping[str, Any]) -> None:
        """Replace the checkpoint file."""
        if self.path is not None and not self.idle:
            with named_if_full(self.path, GOES_ON):
                write_arrays(self.path, {"run": self.run}, arrays)
            self.last = time.monotonic()


def freeze(tree: Any) -> dict[str, np.ndarray]:
    """A JAX state as plain arrays, random keys as their data."""
    plain = [jax.random.key_data(x) if _is_key(x) else x for x in jax.tree.leaves(tree)]
    return {f"leaf{i}": np.asarray(x) for i, x in enumerate(plain)}


def thaw(saved: Mapping[str, np.ndarray], like: Any) -> Any:
    """The state that `freeze` made into arrays, in the structure of `like`."""
    leaves, tree = jax.tree.flatten(like)
    arrays = [jax.numpy.asarray(saved[f"leaf{i}"]) for i in range(len(leaves))]
    wrap = jax.random.wrap_key_data
    keyed = [wrap(a) if _is_key(x) else a for a, x in zip(arrays, leaves, strict=True)]
    return jax.tree.unflatten(tree, keyed)


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.dtypes.prng_key)
