"""Runs that several processes share through a folder: the plan, the worker, and deaths."""

import json
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
from bayesfac.core.errors import BayesfacError, CorruptFile
from bayesfac.core.keys import as_json
from bayesfac.labels.evaluation import shared_runs, trials
from bayesfac.labels.evaluation.methods_and_measures import read_method
from tests.labels.evaluation.test_evaluation import HERES, numbers, rates, run, tables, two_tasks

WAYS = {
    "near": ("ml_knn", {"k": 3}),
    "chosen": bf.Tuned("ml_knn", {"k": [2, 3]}, threshold=(0.3, 0.5)),
}


def plan(folder, ways=WAYS, **given):
    """Write the plan of a run and run nothing."""
    folder.mkdir(exist_ok=True)
    return run(ways, folds=2, folder=folder, shared=True, finished=True, **given)


def test_a_worker_does_what_the_run_would_do(tmp_path, capsys):
    whole = run(WAYS, folds=2)
    assert plan(tmp_path).cells.empty
    assert main(["worker", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "near on made up, fold 1" in said and "4 cells are finished; 4 of them" in said
    found = run(WAYS, folds=2, folder=tmp_path, finished=True)
    pd.testing.assert_frame_equal(numbers(found), numbers(whole), check_exact=True)
    assert main(["worker", str(tmp_path), "--quiet"]) == 0
    assert (
        capsys.readouterr().out
        == "4 cells are finished; 0 of them were not finished when this worker started\n"
    )


@pytest.mark.parametrize(
    "way",
    [
        "ls_ml",
        HERES,
        ("heres", {"weight": np.float64(0.5), "beta": None}, bf.Gibbs(5, 5, over=0.5)),
        bf.Tuned(HERES, {"weight": (0.5, 1.0)}, by="hamming_loss", share=0.5),
        bf.Tuned("br_svm", {"C": np.array([0.5, 1.0])}, threshold=[0.2, 0.3]),
    ],
)
def test_settings_and_engines_arrive_as_they_were(way):
    runner = read_method(way)
    told = json.loads(json.dumps(shared_runs.as_text("it", runner)))
    assert json.dumps(as_json(read_method(shared_runs.from_text(told)))) == json.dumps(
        as_json(runner)
    )


def test_a_plan_makes_its_folder(tmp_path):
    """Also where nothing is run: workers of a cluster do that later."""
    folder = tmp_path / "deep" / "run"
    found = run(WAYS, folds=2, folder=folder, shared=True, finished=True)
    assert found.cells.empty and len(list((folder / "plan").glob("*.json"))) == 4
    with pytest.raises(ValueError, match="^Expected a folder in which finished cells are"):
        run(WAYS, folds=2, folder=tmp_path / "other", finished=True)


def test_numbers_of_numpy_are_settings_of_a_run(tmp_path):
    """Of a loop over np.arange, for example."""
    given = {"folds": np.int64(2), "seed": np.int64(3)}
    found = run(WAYS, **given, folder=tmp_path, shared=True)
    assert "2 folds" in repr(found)
    whole = run(WAYS, folds=2, seed=3)
    pd.testing.assert_frame_equal(numbers(found), numbers(whole), check_exact=True)


@pytest.mark.parametrize(
    "kind", ["one task", "missing view", "unlabelled", "unknown cells", "constant"]
)
def test_data_arrive_as_they_were(tmp_path, kind):
    views, labels = tables()
    data = {
        "one task": lambda: bf.Tasks(views, labels.set_axis(["1", "2", "3"], axis=1)),
        "missing view": lambda: bf.Tasks(
            {"a": {"x": np.eye(2), "y": np.eye(2)}, "b": {"x": np.eye(2)}},
            {"a": [[0, 1], [1, 0]]},
            clusters={"both": ["a", "b"]},
        ),
        "unlabelled": lambda: two_tasks().take(np.ones(24, bool), labelled=np.arange(24) % 3 > 0),
        "unknown cells": lambda: bf.Tasks(
            views, labels.mask(labels.eq(1) & (np.arange(24) < 3)[:, None])
        ),
        "constant": lambda: bf.Tasks(np.eye(3), np.eye(3), constant=True),  # text beside numbers
    }[kind]()
    shared_runs.save_tasks(tmp_path / "it.npz", data)
    again = shared_runs.load_tasks(tmp_path / "it.npz")
    assert again.fingerprint() == data.fingerprint() and repr(again) == repr(data)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(data), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_run_takes_over_the_cells_of_a_dead_process(tmp_path, monkeypatch):
    """One cell is locked by a live process of this machine, which dies later, one by a dead process."""
    whole, paused = run(WAYS, folds=2), []
    plan(tmp_path)
    one = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    for path in sorted((tmp_path / "plan").glob("*.json"))[:2]:
        place = trials.place_of_lock(tmp_path / path.name)
        place.parent.mkdir(exist_ok=True)
        owner = {"host": os.uname().nodename, "pid": one.pid, "time": time.time(), "token": "x"}
        place.write_text(json.dumps(owner))

    def pause(seconds):
        paused.append(len(list(tmp_path.glob("*.json"))))
        one.send_signal(signal.SIGKILL)
        one.wait()

    monkeypatch.setattr(trials.time, "sleep", pause)
    found = run(WAYS, folds=2, folder=tmp_path, shared=True)
    assert paused == [2], "it waited only when nothing else was left"
    pd.testing.assert_frame_equal(numbers(found), numbers(whole), check_exact=True)
    assert not list((tmp_path / "locks").iterdir())


@pytest.mark.slow  # processes start, are killed, and compile for themselves
def test_workers_that_are_killed_lose_nothing(tmp_path):
    ways = {"heres": ("heres", {"n_components": 2}, bf.FixedPoint(2000, tol=1e-12))} | WAYS
    whole = run(ways, folds=4)
    plan_of = {"folds": 4, "folder": tmp_path, "shared": True}
    tmp_path.mkdir(exist_ok=True)
    run(ways, **plan_of, finished=True)
    command = [sys.executable, "-m", "bayesfac.cli", "worker", str(tmp_path)]
    quiet = {"stdout": subprocess.DEVNULL, "env": os.environ | {"JAX_ENABLE_X64": "1"}}
    for seconds in (3.0, 4.0, 5.0):
        one = subprocess.Popen(command, **quiet)
        time.sleep(seconds)
        one.kill()
        one.wait()
    found = run(ways, **plan_of)
    pd.testing.assert_frame_equal(numbers(found), numbers(whole), check_exact=True)


# -- what is refused ------------------------------------------------------------------------------
def test_what_other_processes_cannot_know_is_refused(tmp_path):
    with pytest.raises(ValueError, match="^Expected a folder that other processes see"):
        run(WAYS, shared=True)
    with pytest.raises(TypeError, match="^Expected methods by name for other processes, got 'it'"):
        plan(tmp_path, {"it": rates})
    with pytest.raises(TypeError, match="^Expected measures by name .* got the function share"):
        plan(tmp_path, metrics=[share])
    odd = bf.Tasks({"x": np.eye(4)}, np.eye(4)[:, :2])
    odd.host.features["x"] = pd.Index([1.5, 2, 3, 4])
    with pytest.raises(TypeError, match="^Expected labels of text or whole numbers .* got 1.5"):
        plan(tmp_path, data=odd)
    with pytest.raises(FileNotFoundError, match="without a plan$"):
        shared_runs.work(tmp_path / "nowhere", 1, lambda text: None)


def share(Y, predicted):
    return predicted.mean()


def test_damaged_plans_are_refused(tmp_path):
    plan(tmp_path)
    paths, said = sorted((tmp_path / "plan").glob("*.json")), []
    texts = {path: path.read_text() for path in paths}
    for path, text in texts.items():
        path.write_text(text.replace('"k": 3', '"k": 4'))
    # of four cells two are left out, and not told to be finished
    assert shared_runs.work(tmp_path, 1, said.append) == (2, 2)
    assert said[0] == "left out: 2 cells that another version of bayesfac planned"
    assert len(list(tmp_path.glob("*.json"))) == 2
    for change, error, match in (
        (lambda text: "{}", CorruptFile, "^Expected a planned cell in"),
        (lambda text: text.replace('"float64": true', '"float64": false'), BayesfacError, "X64=0$"),
    ):
        paths[0].write_text(change(texts[paths[0]]))
        with pytest.raises(error, match=match):
            shared_runs.work(tmp_path, 1, said.append)
        paths[0].write_text(texts[paths[0]])
    data = next((tmp_path / "plan" / "data").iterdir())
    shared_runs.save_tasks(data, bf.Tasks(*tables(seed=1)))
    with pytest.raises(CorruptFile, match="^Expected the data of digest"):
        shared_runs.work(tmp_path, 1, said.append)
