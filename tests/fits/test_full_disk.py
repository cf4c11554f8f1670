"""A full disk: the message names the file, nothing is left behind, and a run goes on when there is space."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.cli import outputs
from bayesfac.core.errors import DiskFull
from bayesfac.core.files import ask_space, atomic, named_if_full

resource = pytest.importorskip("resource")
RATINGS = bf.datasets.make_ratings(30, 20, 2, seed=0)


@contextmanager
def files_up_to(size):
    """No file of this process grows beyond so many bytes, as on a disk that fills up."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def disk(monkeypatch, free, total=10**9):
    usage = SimpleNamespace(total=total, used=total - free, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)


def run(**settings):
    engine = bf.Gibbs(warmup=4, draws=200, chains=2, **settings)
    return bf.fit("bpmf", RATINGS, engine, n_components=2, progress=False)


@pytest.fixture(scope="module")
def fit():
    return run()


def page(_, path):
    with atomic(path) as part:
        part.write_text("x" * 30_000)


WRITES = {
    "to_netcdf": lambda fit, path: fit.to_netcdf(path),
    "save": lambda fit, path: fit.save(path),
    "page": page,
}


@pytest.mark.parametrize("verb", WRITES)
def test_a_write_to_a_full_disk_names_the_file_and_leaves_nothing(fit, tmp_path, verb):
    """HDF5 itself would end Python here, and NumPy would say "4000 requested and 1234 written"."""
    with (
        files_up_to(20_000),
        pytest.raises(DiskFull, match=f"space for {tmp_path}/new, got a full disk"),
    ):
        WRITES[verb](fit, tmp_path / "new")
    assert not os.listdir(tmp_path)
    WRITES[verb](fit, tmp_path / "new")
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("verb", ["to_netcdf", "save"])
def test_space_is_asked_for_before_anything_is_written(fit, tmp_path, monkeypatch, verb):
    disk(monkeypatch, free=9_000)
    message = rf"space for {tmp_path}/new, got a full disk \([\d.]+ kB needed, 9 kB free\)"
    with pytest.raises(DiskFull, match=message):
        WRITES[verb](fit, tmp_path / "new")
    assert not os.listdir(tmp_path)
    disk(monkeypatch, free=0, total=0)  # a disk that does not tell
    WRITES[verb](fit, tmp_path / "new")


def test_a_run_asks_for_the_space_of_its_draws_first(fit, tmp_path, monkeypatch):
    need = sum(values.nbytes for values in fit.draws.values())
    disk(monkeypatch, need - 1)
    monkeypatch.setattr(bf.Gibbs, "_walks", lambda *_: pytest.fail("the run has begun"))
    with pytest.raises(DiskFull, match=r"space for .*/run/draws, got .* kB free\).*goes on"):
        run(folder=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    disk(monkeypatch, need)
    run(folder=str(tmp_path / "run"))
    disk(monkeypatch, 20_000)  # for the checkpoint; the draws are there
    assert run(folder=str(tmp_path / "run")).draws["U"].shape == fit.draws["U"].shape


def test_nuts_asks_too(tmp_path, monkeypatch):
    disk(monkeypatch, 1_000)
    engine = bf.NUTS(10, 50, 1, folder=str(tmp_path / "run"))
    with pytest.raises(DiskFull, match="36 kB needed, 1 kB free"):  # (20 + 10) x 3 numbers
        bf.fit("pmf", bf.Ratings(np.ones((20, 10))), engine, n_components=2, progress=False)


def test_a_run_whose_disk_fills_up_goes_on_when_there_is_space(fit, tmp_path):
    folder = {"folder": str(tmp_path / "run"), "save_every": 0}
    message = r"space for .*/run/draws/\w+.npy, got a full disk \(File too large\).*the same call"
    with files_up_to(20_000), pytest.raises(DiskFull, match=message):
        run(**folder)
    assert (tmp_path / "run" / "checkpoint.npz").exists()
    again = run(**folder)
    for site in fit.draws:
        np.testing.assert_array_equal(again.draws[site], fit.draws[site])


def test_other_errors_stay_as_they_are(tmp_path):
    ask_space(tmp_path / "no" / "such" / "folder", 1)
    with pytest.raises(PermissionError), named_if_full(tmp_path):
        raise PermissionError(tmp_path)


# -- the shell ------------------------------------------------------------------------------------
class Run:
    """A fit for which some folders have no space."""

    def __init__(self, full, folder=None):
        self.full, self.engine, self.saved = full, SimpleNamespace(folder=folder), []

    def save(self, path):
        if any(Path(path).is_relative_to(place) for place in self.full):
            raise DiskFull(f"Expected space for {path}")
        self.saved.append(Path(path))
        return str(path)


@pytest.fixture
def places(tmp_path, monkeypatch):
    home, spare = tmp_path / "home", tmp_path / "spare"
    for place in (home, spare):
        place.mkdir()
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(spare))
    return home, spare


def test_the_shell_saves_the_run_in_another_place(places, tmp_path, capsys):
    home, spare = places
    out = tmp_path / "full" / "bpmf"
    for full, place in (([out], home), ([out, home], spare)):
        fit = Run(full)
        with pytest.raises(OSError, match=f"space for {out}. The fit was saved in {place}/bpmf-"):
            outputs.save(fit, out)
        assert fit.saved[0].parent == place
        assert not any(home.iterdir()) or place == home
        shutil.rmtree(fit.saved[0])
    fine = Run([])
    outputs.save(fine, out)
    assert fine.saved == [out] and capsys.readouterr().out == f"saved in {out}\n"


def test_the_shell_says_where_the_draws_are(places, tmp_path):
    full = [tmp_path]
    with pytest.raises(OSError, match="The draws are in runs/7, from which the same command goes"):
        outputs.save(Run(full, "runs/7"), tmp_path / "out")
    with pytest.raises(OSError, match="The fit is lost.*--with folder=FOLDER"):
        outputs.save(Run(full), tmp_path / "out")
    assert not any(file for place in places for file in place.iterdir())
