"""Write a file whole or not at all."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place when the block ends well.

    Whoever reads `path` sees the old file or the new one, never half of either: the bytes are
    on the disk (fsync) before the name changes.

    >>> import pathlib, tempfile
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic(target) as part:
    ...     _ = part.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
    )
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(part, 0o666 & ~umask())
        os.replace(part, target)
        _sync_folder(target.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def clear_unfinished(folder: Path, suffix: str) -> None:
    """Remove what a killed process left half written in a folder that only this one uses."""
    for part in folder.glob(f".*{suffix}"):
        part.unlink()


def sha256(path: str | os.PathLike[str]) -> str:
    """The hex digest of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def umask() -> int:
    """The permissions that this process does not give to new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # only POSIX lets a directory be opened and synced
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
