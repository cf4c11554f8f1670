"""Locks in a folder to which several machines have access: files that say which process does which work.

A lock is a file that only one process can create. While its owner works, a thread touches the file every few
seconds. Another process takes over a lock that nobody has touched for STALE seconds, and at once the lock of
a dead process of this machine. In rare cases two processes have the same lock, for example after a machine
was suspended. So a lock only prevents double work; results must be right without it.
"""

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from bayesfac.core.files import umask

BEAT, STALE = 10.0, 120.0  # seconds between two touches; without a touch until a lock is taken over


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Whether this process holds the lock inside the block; False where another one does.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "cell.lock"
    >>> with lock(place) as mine, lock(place) as again:
    ...     mine, again
    (True, False)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    token = uuid4().hex
    if not _created(path, token) and not (_abandoned(path) and _created(path, token)):
        yield False
        return
    over = threading.Event()
    heart = threading.Thread(target=_beat, args=(path, token, over), daemon=True)
    heart.start()
    try:
        yield True
    finally:
        over.set()
        heart.join()
        if _read(path).get("token") == token:
            path.unlink(missing_ok=True)


def _created(path: Path, token: str) -> bool:
    """Create the lock, with its owner and the time inside, unless it is there."""
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time(), "token": token}
    handle, name = tempfile.mkstemp(prefix=".lock-", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(owner, file)
    os.chmod(name, 0o666 & ~umask())  # processes of other users read the owner too
    try:
        os.link(name, path)  # fails if the lock is there; no reader sees half of it
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True


def _abandoned(path: Path) -> bool:
    """Remove the lock if its owner is dead; whether it was removed here."""
    seen = _read(path)
    if not seen or not (_dead(seen) or _age(path) > STALE):
        return False
    aside = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        os.rename(path, aside)  # one process succeeds
    except FileNotFoundError:
        return False
    mine = _read(aside) == seen
    if not mine:  # another process had taken the lock over since it was read
        with suppress(FileExistsError):
            os.link(aside, path)
    os.unlink(aside)
    return mine


def _read(path: Path) -> dict:
    """What the lock says about its owner; nothing if there is no lock. A machine that loses
    power may leave half a text: the owner of such a lock is unknown, and only its age counts."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError):
        return {"host": "", "pid": 0, "token": ""}


def _dead(owner: dict) -> bool:
    """Whether the owner was a process of this machine that is no more."""
    if owner["host"] != socket.gethostname() or os.name != "posix":
        return False
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's process
        return False
    return False


def _age(path: Path) -> float:
    """Seconds since the lock was touched, by the clock of the file system: clocks of machines differ."""
    with tempfile.NamedTemporaryFile(prefix=".clock-", dir=path.parent) as now:
        try:
            return os.stat(now.name).st_mtime - path.stat().st_mtime
        except FileNotFoundError:
            return 0.0


def _beat(path: Path, token: str, over: threading.Event) -> None:
    """Touch the lock until the work is over or the lock is another's."""
    while not over.wait(BEAT):
        if _read(path).get("token") != token:
            return
        os.utime(path)
