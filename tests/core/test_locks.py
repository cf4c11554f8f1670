"""Locks in a folder: one holder, a heartbeat, and no dead process holds one for ever."""

import json
import os
import stat
import subprocess
import sys

import pytest

from bayesfac.core import locks
from bayesfac.core.locks import STALE, lock


def test_one_process_holds_a_lock_and_gives_it_back(tmp_path):
    place = tmp_path / "locks" / "cell.lock"
    with lock(place) as mine:
        owner = json.loads(place.read_text())
        assert mine and owner["pid"] == os.getpid() and owner["time"] > 0
        with lock(place) as again:
            assert not again
        assert place.exists(), "who does not hold the lock does not remove it"
    assert not list((tmp_path / "locks").iterdir())
    with pytest.raises(KeyError), lock(place):
        raise KeyError
    assert not place.exists()


def foreign(place, **changes):
    """A lock that another machine left."""
    place.write_text(json.dumps({"host": "elsewhere", "pid": 1, "time": 0, "token": "x"} | changes))


def test_a_lock_without_a_heartbeat_is_taken_over(tmp_path):
    place = tmp_path / "cell.lock"
    foreign(place)
    with lock(place) as mine:
        assert not mine
    old = place.stat().st_mtime - STALE - 1
    os.utime(place, (old, old))
    with lock(place) as mine:
        assert mine and json.loads(place.read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_lock_that_was_never_written_whole_is_one_of_an_unknown_owner(tmp_path):
    """Of a machine that lost its power: the file is there, its bytes are not."""
    path = tmp_path / "cell.lock"
    for left in ("", "[1, 2]", '{"host": "a'):
        path.write_text(left)
        with lock(path) as mine:
            assert not mine, "it may be of a machine that works"
        old = path.stat().st_mtime - STALE - 1
        os.utime(path, (old, old))
        with lock(path) as mine:
            assert mine


def test_the_lock_of_a_dead_process_of_this_machine_is_taken_over_at_once(tmp_path):
    place, one = tmp_path / "cell.lock", subprocess.Popen([sys.executable, "-c", ""])
    one.wait()
    foreign(place, host=locks.socket.gethostname(), pid=os.getpid())
    with lock(place) as mine:
        assert not mine
    foreign(place, host=locks.socket.gethostname(), pid=one.pid)
    with lock(place) as mine:
        assert mine


def test_a_lock_that_was_taken_over_is_not_removed(tmp_path, monkeypatch):
    """Two processes see a stale lock; the second finds the lock of the first."""
    place = tmp_path / "cell.lock"
    foreign(place)
    honest, seen = locks._read, [locks._read(place)]
    foreign(place, token="y")
    monkeypatch.setattr(locks, "_read", lambda path: seen.pop() if seen else honest(path))
    monkeypatch.setattr(locks, "_dead", lambda owner: True)
    assert not locks._abandoned(place)
    assert honest(place)["token"] == "y"


def test_the_heart_beats_while_the_work_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.01)
    place = tmp_path / "cell.lock"
    with lock(place):
        os.utime(place, (0, 0))
        for _ in range(200):
            locks.time.sleep(0.01)
            if place.stat().st_mtime > 0:
                break
        assert place.stat().st_mtime > 0


@pytest.mark.skipif(os.name != "posix", reason="permissions of files")
def test_other_users_can_read_who_holds_a_lock(tmp_path):
    """As far as this process lets them: their workers on other machines would fail with PermissionError."""
    place, mask = tmp_path / "cell.lock", os.umask(0o022)
    try:
        with lock(place):
            assert stat.S_IMODE(place.stat().st_mode) == 0o644
    finally:
        os.umask(mask)
