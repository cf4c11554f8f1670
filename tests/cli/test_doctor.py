"""`bayesfac doctor`: what it says of a machine, which conflicts it names, and what it keeps to itself."""

import re
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest

import bayesfac as bf
from bayesfac.cli import doctor
from bayesfac.core.kernels import bridge
from tests.cli.test_cli import run


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with somebody's name, in which programs are kept."""
    place = tmp_path / "ann"
    kept = place / "programs"
    kept.mkdir(parents=True)
    (kept / "one.nbc").write_bytes(bytes(2_000_000))
    monkeypatch.setattr("pathlib.Path.home", lambda: place)
    monkeypatch.setenv("BAYESFAC_CACHE", str(kept))
    monkeypatch.setenv("BAYESFAC_DATA", str(place / "data"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return place


def test_it_says_what_an_issue_needs_and_no_name_of_a_home(capsys, home, monkeypatch):
    monkeypatch.setattr(doctor, "speed", lambda: "as measured elsewhere")
    monkeypatch.setattr(doctor, "requires", lambda package: ["numpyro", "gone ; extra == 'dev'"])
    monkeypatch.setattr(bridge, "refusal", lambda dots: "")  # writes no program of its own
    code, out, err = run(capsys, "doctor")
    assert (code, err) == (0, "")
    told = {line.split()[0] for line in out.splitlines()}
    names = "packages variables cores threads device precision kernels caches speed conflicts"
    assert told == {"bayesfac", *names.split()}
    assert f"numpyro {version('numpyro')}" in out and f"Python {sys.version.split()[0]}" in out
    assert "precision  float64" in out, "the tests compute in double precision"
    assert re.search(r"cores +\d+ of \d+, \w", out) and "kernels    run inside XLA" in out
    assert "caches     programs: ~/programs, 1 files, 2.0 MB" in out
    assert "variables  BAYESFAC_DATA=~/data" in out and str(home) not in out
    assert "conflicts  none" in out


def test_the_programs_of_a_process_that_keeps_none(monkeypatch):
    monkeypatch.setenv("BAYESFAC_CACHE", "off")
    assert next(doctor.caches()) == "programs: not kept"


def test_another_home_stays(home):
    assert doctor.without_home(f"{home}/x, {home}a/x") == f"~/x, {home}a/x"


def test_where_the_kernels_run(monkeypatch):
    assert doctor.machine()["kernels"] == "run inside XLA"
    monkeypatch.setattr(bridge, "refusal", lambda dots: "XLA refuses them")
    assert doctor.machine()["kernels"] == "XLA refuses them"


def test_conflicts(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "speed", lambda: "")
    monkeypatch.setattr(doctor, "caches", lambda: iter(()))
    needed = ["numpy<1", "nowhere>=2", "old<1 ; python_version < '3'", "scipy>=1"]
    monkeypatch.setattr(doctor, "requires", lambda package: needed)
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert [line for line in out.splitlines() if line.startswith("conflicts")] == [
        f"conflicts  Expected numpy<1, got {version('numpy')}",
        "conflicts  Expected nowhere>=2, got none",
    ]
    variables = {"NUMBA_DISABLE_JIT": "1", "BAYESFAC_CACHE": "off", "TF_CPP_MIN_LOG_LEVEL": "0"}
    assert [one.split()[0].partition("=")[0] for one in doctor.disturbing(variables)] == [
        *variables
    ]
    assert not [*doctor.disturbing({"NUMBA_DISABLE_JIT": "0", "TF_CPP_MIN_LOG_LEVEL": "3"})]


def test_the_benchmark_counts_what_ran(monkeypatch):
    """Four calls of a million products, each of a quarter of a second."""
    ticks = iter([0, 0, 0.25, 0.5, 0.75, 1.0])
    monkeypatch.setattr(doctor, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    monkeypatch.setattr(doctor, "CELLS", 1_000_000)
    assert doctor.speed() == "4 million products of rows of 16 numbers in a second"


def test_this_installation_has_no_conflict():
    assert not [*doctor.outside()], bf.__version__
