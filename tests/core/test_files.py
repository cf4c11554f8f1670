"""Files are whole or not there, and a changed byte is never a changed number."""

import errno
import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import CorruptFile
from bayesfac.core.files import atomic, clear_unfinished, sha256
from bayesfac.inference.checkpoint import Checkpoint, read_arrays, write_arrays
from bayesfac.inference.stored_draws import StoredDraws, Writer


# -- whole or not at all --------------------------------------------------------------------------
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError(errno.ENOSPC, "full")])
def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path, error):
    target = tmp_path / "file.txt"
    target.write_text("old")
    kind = error if isinstance(error, type) else type(error)
    with pytest.raises(kind), atomic(target) as part:
        part.write_text("half of the n")
        raise error
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "deep" / "er" / "file.txt"
    with atomic(target) as part:
        part.write_text("new")
        assert not target.exists()
        assert part.parent == target.parent
    assert target.read_text() == "new"
    assert sha256(target) == "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_two_processes_clear_one_folder(tmp_path, monkeypatch):
    """One of them finds a file that the other one has removed by then."""
    (tmp_path / ".checkpoint.npz").touch()
    seen = [tmp_path / ".gone.npz", tmp_path / ".checkpoint.npz"]
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter(seen))
    clear_unfinished(tmp_path, ".npz")
    assert not os.listdir(tmp_path)


# -- a changed byte -------------------------------------------------------------------------------
def flips(raw, count, seed=0):
    """The same bytes with one bit turned, or cut short, at random places."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        bad = bytearray(raw)
        if number % 5 == 0:
            yield bytes(bad[: rng.integers(len(raw))])
        else:
            bad[rng.integers(len(raw))] ^= 1 << rng.integers(8)
            yield bytes(bad)


def test_a_checkpoint_with_a_changed_bit_is_refused_or_the_same(tmp_path):
    """Same: a time stamp of the archive, which nobody reads."""
    place = tmp_path / "checkpoint.npz"
    write_arrays(place, {"run": "x", "n": 3}, {"a": np.arange(5.0), "b": np.ones((3, 2), int)})
    header, arrays = read_arrays(place)
    assert (header["run"], header["n"]) == ("x", 3)
    refused = 0
    for bad in flips(place.read_bytes(), 600):
        place.write_bytes(bad)
        try:
            found, values = read_arrays(place)
        except CorruptFile as error:
            refused += 1
            assert str(place) in str(error)
            continue
        assert found == header
        for name, value in arrays.items():
            np.testing.assert_array_equal(values[name], value)
    assert refused > 400


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    fit = bf.fit("pmf", data, bf.Gibbs(2, 3, 1), n_components=2, progress=False)
    return fit.save(tmp_path_factory.mktemp("saved") / "fit")


@pytest.mark.parametrize("name", ["header.json", "arrays.npz", "draws/U.npy"])
def test_a_saved_fit_with_a_changed_bit_is_refused(saved, name):
    """In the header too: a hyper-parameter's digit would be another prediction."""
    place = os.path.join(saved, name)
    with open(place, "rb") as file:
        raw = file.read()
    try:
        for bad in flips(raw, 100):
            with open(place, "wb") as file:
                file.write(bad)
            with pytest.raises(CorruptFile, match="Expected"):
                bf.load(saved)
    finally:
        with open(place, "wb") as file:
            file.write(raw)
    assert bf.load(saved).draws["U"].shape[:2] == (1, 3)


def test_nothing_is_unpickled(tmp_path):
    """An object array would run code; so would nothing else in a saved folder."""
    place = tmp_path / "checkpoint.npz"
    np.savez(place, header=np.array(json.dumps({"format": 1, "sha256": {}})), a=np.array([{}]))
    with pytest.raises(CorruptFile, match=r"allow_pickle=False"):
        read_arrays(place)


def test_a_file_of_another_kind_or_version(tmp_path):
    place = tmp_path / "checkpoint.npz"
    np.savez(place, header=np.array(json.dumps({"format": 99, "sha256": {}})))
    with pytest.raises(CorruptFile, match="Expected format 1 .*got 99"):
        read_arrays(place)
    np.savez(place, a=np.ones(3))
    with pytest.raises(CorruptFile, match="header"):
        read_arrays(place)
    place.write_text("not an archive")
    with pytest.raises(CorruptFile, match="Expected a bayesfac archive"):
        read_arrays(place)


# -- draws on the disk ----------------------------------------------------------------------------
def test_draws_on_the_disk_are_those_in_memory(tmp_path):
    """In any order, some of them twice, as a resumed run writes them."""
    rng = np.random.default_rng(0)
    values = {
        (c, d): {"U": rng.random((1, 3, 2)), "a.b": rng.random(1)}
        for c in range(2)
        for d in range(4)
    }
    disk, memory = Writer(str(tmp_path), (2, 4)), Writer(None, (2, 4))
    for c, d in [*values, (1, 0), (0, 3)]:
        for writer in (disk, memory):
            writer.write(c, d, values[c, d])
    again = Writer(str(tmp_path), (2, 4))
    again.write(1, 3, values[1, 3])
    stored = again.view(2, 4)
    assert isinstance(stored, StoredDraws)
    assert list(stored) == ["U", "a.b"]
    assert len(stored) == 2
    for site in stored:
        np.testing.assert_array_equal(stored[site], memory.view(2, 4)[site])
    assert isinstance(stored["U"], np.memmap), "read lazily"
    with pytest.raises(KeyError, match="V"):
        stored["V"]


def test_checkpoints_come_at_most_so_often(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("bayesfac.inference.checkpoint.time.monotonic", lambda: now[0])
    point = Checkpoint(str(tmp_path), "run", save_every=20)
    assert point.load() is None
    assert not point.due()
    now[0] += 20
    assert point.due()
    point.save({"x": np.ones(2)})
    assert not point.due()
    np.testing.assert_array_equal(point.load()["x"], np.ones(2))
    nowhere = Checkpoint(None, "run", save_every=0)
    nowhere.save({"x": np.ones(2)})
    assert not nowhere.due()
    assert nowhere.load() is None


def test_saving_copies_draws_on_disk_without_reading_them(tmp_path, monkeypatch):
    data = bf.datasets.make_ratings(6, 5, 2, seed=0)
    engine = bf.Gibbs(2, 3, 1, folder=str(tmp_path / "run"))
    fit = bf.fit("pmf", data, engine, n_components=2, progress=False)
    U = np.array(fit.draws["U"])
    with monkeypatch.context() as patched:
        patched.setattr(StoredDraws, "__getitem__", lambda draws, site: pytest.fail(f"read {site}"))
        fit.save(tmp_path / "fit")
    np.testing.assert_array_equal(bf.load(tmp_path / "fit").draws["U"], U)
