"""Write files atomically, and name the file if its disk is full; checksums."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bayesfac.core.errors import DiskFull

# no space on the disk, in the user's quota, or within the limit on the size of one file
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
GOES_ON = "free some space; the same call then goes on from the last checkpoint, if there is one"


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
    with named_if_full(target):
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


@contextmanager
def named_if_full(path: str | os.PathLike[str], advice: str = "free some space") -> Iterator[None]:
    """Let the error of a full disk name what was written, and say what to do.

    >>> with named_if_full("run"):
    ...     raise OSError(errno.ENOSPC, "No space left")
    Traceback (most recent call last):
    bayesfac.core.errors.DiskFull: Expected space for run, got a full disk (No space left): free some space
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        reason = error.reason if isinstance(error, DiskFull) else str(error.strerror)
        raise _full(path, reason, advice) from error


def ask_space(path: Path, size: int, advice: str = "free some space") -> None:
    """Raise an error if the disk has less than `size` bytes for a file or a folder that is still to be
    written."""
    place = next(up for up in [path.absolute(), *path.absolute().parents] if up.exists())
    disk = shutil.disk_usage(place)
    if disk.total and disk.free < size:  # some disks of other machines tell neither
        reason = f"{_in_words(size)} needed, {_in_words(disk.free)} free"
        raise _full(path, reason, advice)


def _full(path: str | os.PathLike[str], reason: str, advice: str) -> DiskFull:
    error = DiskFull(f"Expected space for {os.fspath(path)}, got a full disk ({reason}): {advice}")
    error.errno, error.reason = errno.ENOSPC, reason
    return error


def _in_words(size: float) -> str:
    """A number of bytes.

    >>> _in_words(900), _in_words(1.5e6), _in_words(2e12)
    ('900 B', '1.5 MB', '2e+03 GB')
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


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
