"""Write files atomically; checksums."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` when the block ends without an error.

    A reader of `path` sees the old file or the new file, never a part: the bytes are on the disk (fsync)
    before the name changes.

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
    """Remove the temporary files of a killed process from a folder that no other run uses."""
    for part in folder.glob(f".*{suffix}"):
        part.unlink(missing_ok=True)  # the processes of one run do this at the same time


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def umask() -> int:
    """The permission bits that this process withholds from new files."""
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
