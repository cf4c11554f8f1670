"""The benchmarks run, say what is missing, and refuse options that they do not know."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
OPTIONS = {
    "gibbs": ["--data", "--components", "--warmup", "--draws", "--repeats"],
    "margins": ["--data", "--components", "--iterations", "--repeats"],
    "plsa": ["--components", "--passes", "--repeats"],
    "clusters": ["--sets", "--methods", "--seeds", "--iterations"],
    "scale": ["--rows", "--iterations", "--topics"],
    "heterogeneous": ["--subsets", "--methods", "--splits", "--layers"],
    "semantics": ["--sets", "--splits", "--weights", "--posterior"],
    "multilabel": "--chapter --sets --methods --jobs --folder --posterior --splits --page".split(),
    "label_cost": [],
    "trust": ["--parts"],
    "sweeps": ["--rows", "--clusters", "--columns", "--sweeps"],
    "everywhere": ["--data", "--components", "--draws", "--memory", "--folder"],
    "calibration": ["--methods", "--engines", "--replications"],
}


def call(name, *options, timeout=60):
    settings = {key: value for key, value in os.environ.items() if key != "BAYESFAC_DATA"}
    command = [sys.executable, str(FOLDER / f"{name}.py"), *map(str, options)]
    return subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_help_says_what_is_measured(name):
    done = call(name, "--help")
    assert done.returncode == 0
    for option in ["--quick", "--threads", "--out", *OPTIONS[name]]:
        assert option in done.stdout
    assert "--worker" not in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_are_refused(name):
    done = call(name, "--fast")
    assert done.returncode == 2
    assert "--fast" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gibbs", ["bayesfac float64", "SMURFF", "myFM", "test RMSE", "First call"]),
        ("margins", ["NumPy/SciPy", "PMMMF", "separate fits", "relative"]),
        ("plsa", ["scikit-learn", "float32", "float64", "ms a pass"]),
        ("clusters", ["MGGM", "PRSC", "ConcatLTM", "NMI"]),
        ("scale", ["exponent", "literal E-step"]),
        (
            "heterogeneous",
            ["HERES", "HiMLSD", "MLS-S + task", "TRAM by task", "shares by task", "own rule"],
        ),
        ("multilabel", ["MLC-HMF", "ML-kNN", "micro-F1, 2 folds", "mean rank", "Seconds a fold"]),
        ("semantics", ["LSA-MML", "labels last", "concatenated", "ML-kNN", "shares", "own rule"]),
        ("sweeps", ["exponent, himls, rows", "exponent, himlsd, clusters", "heres, p = 10"]),
        ("calibration", ["## Gibbs", "## NUTS", "## SVI", "## Not applicable", "`pmf`", "`pmmmf`"]),
        ("everywhere", ["sample", "predict", "peak GB", "Below 2 GB: yes"]),
    ],
)
def test_quick_run(tmp_path, name, said):
    done = call(name, "--quick", "--out", tmp_path / "figures.json", timeout=280)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in said), done.stdout
    record = json.loads((tmp_path / "figures.json").read_text())
    assert set(record["where"]) >= {"date", "cpu", "cores", "load before start", "versions"}
    assert str(tmp_path) not in json.dumps(record)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json"]


@pytest.mark.slow
def test_a_library_that_is_absent_is_named(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m\n"
        "found = m.version\n"
        "def version(name):\n"
        "    if name in ('smurff', 'myfm'):\n"
        "        raise m.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "m.version = version\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    done = call("gibbs", "--quick", timeout=280)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| 8 ")]
    absent = [line for line in lines if "not installed" in line]
    assert len(lines) == 4 and len(absent) == 2
    assert "SMURFF" in absent[0] and "myFM" in absent[1]
