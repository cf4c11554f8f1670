"""`bayesfac fit --processes`: two processes of this machine."""

import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.cli import main

FIT = [
    "fit",
    "bpmf",
    "ratings.csv",
    "--engine",
    "gibbs",
    "--chains",
    "1",
    "--set",
    "n_components=2",
]


def started(folder, *options: str) -> subprocess.Popen:
    line = [sys.executable, "-m", "bayesfac.cli", "-q", *FIT, *options]
    return subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow  # every process compiles for itself: half a minute on two cores
@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_two_processes_draw_what_one_draws_also_after_a_death(tmp_path) -> None:
    """A killed process stops the run with a message, and one process goes on to the same draws."""
    data = bf.datasets.make_ratings(60, 40, 3, seed=0)
    data.frame().to_csv(tmp_path / "ratings.csv", index=False)
    kept = ["--warmup", "5", "--draws", "4000", "--with", "folder=run", "save_every=0.2"]
    run = started(tmp_path, *kept, "--processes", "2", "--out", "shared")
    mark = tmp_path / "run" / "checkpoint.npz"
    limit = time.monotonic() + 200
    while not mark.exists() and run.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    assert mark.exists()
    os.kill(_child(run.pid), signal.SIGKILL)
    said = run.communicate(timeout=60)[1]
    assert run.returncode == 2
    assert "ended with exit code -9" in said
    assert "goes on from the last checkpoint" in said

    for number, out in ((1, "shared"), (2, "short")):
        options = kept if number == 1 else ["--warmup", "5", "--draws", "15"]
        again = started(tmp_path, *options, "--processes", str(number), "--out", out)
        assert again.communicate(timeout=200)[1].count("error") == 0
        assert again.returncode == 0
    with jax.enable_x64(False):  # as in the command
        data = bf.datasets.read(tmp_path / "ratings.csv", "ratings")
        alone = bf.fit("bpmf", data, bf.Gibbs(5, 15, 1), n_components=2, progress=False)
    for out in ("shared", "short"):
        found = bf.load(tmp_path / out)
        for site, draws in alone.draws.items():  # 20 sweeps
            np.testing.assert_allclose(found.draws[site][:, :15], draws, rtol=1e-4, atol=1e-4)
    assert found.predict({"user": [0], "item": [3]}).mean.shape == (1,)


@pytest.mark.slow  # every process compiles for itself: half a minute on two cores
def test_two_processes_read_their_shares_of_a_large_file(tmp_path) -> None:
    """The draws, and the first rating that repeats another, are those of ratings that are read at once."""
    pytest.importorskip("pyarrow", reason="parquet needs the extra bayesfac[datasets]")
    table = bf.datasets.make_ratings(60, 40, 3, seed=0).frame()
    table.to_parquet(tmp_path / "ratings.parquet")
    line = [each.replace(".csv", ".parquet") for each in FIT]
    line += ["--warmup", "5", "--draws", "15", "--processes", "2", "--large"]

    def run(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "bayesfac.cli", "-q", *line, *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    status, said = run("--out", "large")
    assert status == 0, said
    with jax.enable_x64(False):  # as in the command
        data = bf.datasets.read(tmp_path / "ratings.parquet")
        alone = bf.fit("bpmf", data, bf.Gibbs(5, 15, 1), n_components=2, progress=False)
    found = bf.load(tmp_path / "large")
    for site, draws in alone.draws.items():
        np.testing.assert_allclose(found.draws[site], draws, rtol=1e-4, atol=1e-4)
    assert found.data.summary == pytest.approx(alone.data.summary)

    twice = table.iloc[[7, 30]].assign(rating=1.0)  # of users of both processes, perhaps
    pd.concat([table, twice], ignore_index=True).to_parquet(tmp_path / "ratings.parquet")
    status, said = run("--out", "again")
    assert status == 2
    assert f"got a second in row {len(table)} " in said
    assert "the first is row 7)" in said
    assert f"in row {len(table) + 1}" not in said


def _child(parent: int) -> int:
    """A process that the command started: the second one."""
    found = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in found.stdout.splitlines()[1:]]
    return max(int(pid) for pid, mother in pairs if int(mother) == parent)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--process", "0"], "--coordinator HOST:PORT beside --process"),
        (["--coordinator", "a:1", "--processes", "2"], "--process I and --processes N"),
        (["--coordinator", "a:1", "--processes", "2", "--process", "2"], "from 0 to 1, got 2"),
        (["--coordinator", "abc"], "Expected HOST:PORT, such as node7:8476, got 'abc'"),
        (["--coordinator", "abc:99999"], "Expected HOST:PORT"),
        (["--processes", "0"], "at least 1, got 0"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, said, capsys) -> None:
    assert main([*FIT, *options]) == 2
    assert said in capsys.readouterr().err


def test_other_engines_are_refused_for_large_files(capsys) -> None:
    assert main(["fit", "bpmf", "ratings.parquet", "--large"]) == 2
    assert "Expected --engine gibbs for --large, got" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--engine", "vb"], []])
def test_other_engines_are_refused_before_a_process_starts(options, capsys) -> None:
    assert main(["fit", "bpmf", "ratings.csv", *options, "--processes", "2"]) == 2
    assert (
        "Expected --engine gibbs, fixed-point or lbfgs for --processes, got"
        in capsys.readouterr().err
    )
