"""The benchmarks run, say what is missing, and refuse options that they do not know."""

import importlib
import json
import os
import runpy
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.labels.evaluation import deal
from bayesfac.labels.evaluation.trials import Rows

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
OPTIONS = {
    "analysis": ["--data", "--repeats"],
    "gibbs": ["--data", "--components", "--warmup", "--draws", "--repeats"],
    "margins": ["--data", "--components", "--iterations", "--repeats"],
    "plsa": ["--components", "--passes", "--repeats"],
    "clusters": ["--sets", "--methods", "--seeds", "--iterations", "--longest", "--long-seeds"],
    "default_clusters": ["--sets", "--methods", "--seeds"],
    "believed": ["--sets", "--methods"],
    "scale": ["--rows", "--iterations", "--topics"],
    "heterogeneous": ["--subsets", "--methods", "--splits", "--layers"],
    "semantics": ["--sets", "--splits", "--weights", "--posterior"],
    "multilabel": "--chapter --sets --methods --first --posterior --splits --page".split(),
    "label_cost": [],
    "default_labels": ["--first", "--only", "--data", "--views"],
    "trust": ["--parts"],
    "top": ["--seeds", "--parts"],
    "compositions": ["--parts", "--models", "--data", "--components", "--repeats"],
    "coupled": ["--parts", "--data", "--components", "--repeats"],
    "measurements": ["--seeds", "--sweeps", "--fits", "--sets"],
    "sparse_rows": ["--seeds", "--draws"],
    "nonnegative": ["--parts", "--data", "--components", "--repeats"],
    "processes": [
        "--data",
        "--components",
        "--sweeps",
        "--repeats",
        "--processes",
        "--kills",
        "--killed",
    ],
    "large": ["--parts", "--tables", "--cells", "--components", "--sweeps", "--processes"],
    "quick": ["--parts", "--seeds"],
    "rank": ["--parts", "--seeds", "--rank", "--limits", "--grid", "--sweeps"],
    "implicit_feedback": ["--sets", "--methods", "--seeds"],
    "features": ["--sets", "--methods", "--components", "--warmup", "--draws", "--seeds"],
    "collective": ["--sets", "--warmup", "--draws", "--chains", "--seeds"],
    "tensors": ["--components", "--warmup", "--draws", "--repeats"],
    "sweeps": ["--rows", "--clusters", "--columns", "--sweeps"],
    "first_calls": ["--only"],
    "gradients": ["--cells", "--parts", "--draws"],
    "everywhere": ["--data", "--components", "--draws", "--memory", "--folder"],
    "nuts": ["--only", "--components", "--seed"],
    "calibration": ["--methods", "--engines", "--replications"],
    "cost_model": ["--measured", "--seconds"],
    "verbs": ["--data", "--draws", "--warmup", "--components"],
}


def call(name, *options, timeout=60):
    settings = {key: value for key, value in os.environ.items() if key != "BAYESFAC_DATA"}
    command = [sys.executable, str(FOLDER / f"{name}.py"), *map(str, options)]
    return subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.fixture
def said(monkeypatch, capfd):
    """What a script prints and its exit status; it runs in this process, as imports take the time."""

    def run(name, *options):
        monkeypatch.syspath_prepend(str(FOLDER))
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        return end.value.code, *capfd.readouterr()

    return run


@pytest.mark.parametrize("name", OPTIONS)
def test_help_says_what_is_measured(name, said):
    status, out, _ = said(name, "--help")
    assert status == 0
    for option in ["--quick", "--threads", "--out", *OPTIONS[name]]:
        assert option in out
    assert "--worker" not in out


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_are_refused(name, said):
    status, _, error = said(name, "--fast")
    assert status == 2 and "--fast" in error


def test_a_benchmark_starts_in_a_process_of_its_own():
    done = call("gibbs", "--fast")
    assert done.returncode == 2
    assert "--fast" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gibbs", ["bayesfac float64", "SMURFF", "myFM", "test RMSE", "First call"]),
        ("margins", ["NumPy/SciPy", "PMMMF", "separate fits", "relative"]),
        ("plsa", ["scikit-learn", "float32", "float64", "ms a pass"]),
        ("clusters", ["MGGM", "PRSC", "ConcatLTM", "NMI", "early", "12, 0 of 1 converged"]),
        ("gradients", ["numba", "NumPyro", "effective draws a second"]),
        ("scale", ["exponent", "literal E-step"]),
        ("processes", ["ms a sweep", "apart, single", "apart, double"]),
        ("large", ["In memory", "20,000 ratings", "first, s", "sweep, s", "peak", "bound"]),
        (
            "heterogeneous",
            ["HERES", "HiMLSD", "MLS-S + task", "TRAM by task", "shares by task", "own rule"],
        ),
        (
            "multilabel",
            ["MLC-HMF", "ML-kNN", "micro-F1, 2 folds", "own rule", "tuned threshold", "mean rank"],
        ),
        ("believed", ["stacking weight", "probability of best", "cells held out"]),
        ("top", ["bpmf, draws", "asked: too high", "chosen: repaired on chosen"]),
        ("default_labels", ["frequency", "lsml", "micro_f1", "converged"]),
        ("semantics", ["LSA-MML", "labels last", "concatenated", "ML-kNN", "shares", "own rule"]),
        ("nuts", ["pmf, K = 3, seed 0", "emmmf, K = 3", "effective, least", "diverging"]),
        ("compositions", ["times bpmf", "Student's t", "log score"]),
        ("coupled", ["random walk", "months of few cells", "strength", "times bpmf"]),
        ("measurements", ["PCA", "RMSE a", "recall", "covers"]),
        ("sparse_rows", ["spike and slab", "recall", "seconds"]),
        ("nonnegative", ["scikit-learn, zeros", "90 % hold", "times bpmf"]),
        ("rank", ["made up, 0, ard_mf, 6", "ratings, 0, bpmf, 5", "in use"]),
        ("sweeps", ["exponent, himls, rows", "exponent, himlsd, clusters", "heres, p = 10"]),
        ("collective", ["bpmf", "cmf", "point", "Gibbs", "test RMSE"]),
        ("tensors", ["SMURFF", "test RMSE", "recovery", "ms a sweep"]),
        ("calibration", ["## Gibbs", "## NUTS", "## SVI", "## Not applicable", "`pmf`", "`pmmmf`"]),
        ("everywhere", ["sample", "predict", "peak GB", "Below 2 GB: yes"]),
        ("verbs", ["bpmf draws: recommend", "hpf point: similar", "times implicit", "MB"]),
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
def test_the_cost_model_reads_figures_of_before():
    done = call("cost_model")
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("two, computed", "eight machines", "efficiency"))


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


@pytest.fixture
def multilabel(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("multilabel")


def test_the_page_is_what_the_folds_say(multilabel):
    page = multilabel.page(multilabel.Cells(multilabel.KEPT))
    assert page == multilabel.PAGE.read_text(encoding="utf-8"), (
        "python benchmarks/multilabel.py --page"
    )


@pytest.fixture
def reproduction(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("reproduction")


def test_the_page_of_printed_numbers_is_what_the_results_say(reproduction):
    page = reproduction.page()
    assert page == reproduction.PAGE.read_text(encoding="utf-8"), (
        "python benchmarks/reproduction.py"
    )


@pytest.mark.parametrize(
    ("measure", "ours", "sd", "verdict"),
    [
        ("accuracy", 0.519, np.nan, "reproduced"),  # within .02
        ("accuracy", 0.46, 0.02, "reproduced"),  # within two sds
        ("accuracy", 0.46, 0.01, "not"),
        ("accuracy", 0.53, 0.01, "better"),
        ("Hamming loss", 0.46, 0.01, "better"),
        ("Hamming loss", 0.53, np.nan, "not"),
        ("AC", 1.9, 0.1, "reproduced"),  # in per cent
        ("accuracy", np.nan, np.nan, "not run"),
    ],
)
def test_a_verdict_is_by_two_sds_or_two_hundredths(reproduction, measure, ours, sd, verdict):
    one = reproduction.Number("a table", "a set", "a method", measure, 0.5, ours, sd)
    assert one.verdict() == verdict


def test_every_number_that_is_not_reproduced_has_a_sentence(reproduction, monkeypatch):
    found = [*reproduction.ratings()]
    (key,) = {reproduction.because(one) for one in found if one.verdict() == "not"}
    with pytest.raises(
        KeyError, match="got none for"
    ):  # sentences of other tables have no number here
        reproduction.reasons(found, "not")
    monkeypatch.delitem(reproduction.REASONS["not"], key)
    with pytest.raises(KeyError, match="Expected a sentence of REASONS for what is 'not'"):
        reproduction.reasons(found, "not")


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")  # stopped on purpose
def test_a_prolonged_run_is_one_longer_run(monkeypatch):
    """The looks on the way change nothing, and a run that has converged does not go on."""
    monkeypatch.syspath_prepend(str(FOLDER))
    clusters = importlib.import_module("clusters")
    views, y = clusters.made_up()
    settings = {"n_topics": 4, "penalty": 1.0, "scale": "unit", "start": "random"}
    stops = [["early", 3, 0.0], ["default", 8, 0.0], ["long", 20, 0.5], ["longest", 30, 0.5]]
    found = clusters.prolonged("mggm", stops, views, y, 3, None, 0, **settings)
    given = {"seed": 0, "progress": False, "n_components": 3, "joint": False} | clusters.FIRST
    for name, sweeps in (("early", 3), ("default", 8)):
        plain = bf.FixedPoint(sweeps, tol=0.0, accelerate=False)
        fit = bf.fit("mggm", views, plain, **(given | settings))
        assert found[name]["sweeps"] == sweeps
        assert found[name]["objective"] == pytest.approx(float(fit.trace[-1]), rel=1e-6)
    assert found["long"]["sweeps"] == 9 and found["long"]["converged"]
    assert found["longest"] == found["long"]


@pytest.mark.parametrize(
    ("label", "name", "grid"),
    [
        ("PLST, whole grid", "plst", ("ridge", "penalty", "d")),
        ("CSSP", "cssp", ("ridge", "penalty", "d")),
        ("ML-kNN", "ml_knn", ()),
        ("BSVM", "br_svm", ()),
    ],
)
def test_both_rules_are_those_of_evaluate(multilabel, label, name, grid):
    """One pass over the grid serves both rules, and chooses what two runs of bf.evaluate choose."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 6))
    y = x @ rng.normal(size=(6, 5)) + 2 * rng.normal(size=(120, 5)) > 2  # rare labels
    data = bf.Tasks(x, y.astype(float), constant=True)
    method = multilabel.METHODS[label]
    values = method.grid(5)
    tried = {grid[0]: values[grid[1]], grid[2]: values[grid[2]]} if grid else {}
    raw = name, {"scaled": False}  # the benchmark scales features itself
    expected = bf.evaluate(
        {"own rule": bf.Tuned(raw, tried), "tuned threshold": bf.Tuned(raw, tried, threshold=True)},
        {"data": data}, folds=3, progress=False,
    ).cells.set_index(["method", "fold"])  # fmt: skip
    fold = deal(data, 3, 0)
    cuts = set()
    for number in range(3):
        for rule, found in multilabel.both_rules(method, data, fold, number).items():
            one = expected.loc[rule, number]
            for measure in multilabel.MEASURED:
                assert found["scores"][measure] == pytest.approx(one[measure], abs=1e-12)
            cut = np.nan if found["threshold"] is None else found["threshold"]
            np.testing.assert_allclose(cut, one["threshold"], rtol=1e-6)
            cuts.add(found["threshold"])
    assert len(cuts) > 1  # the two rules differ


@pytest.mark.parametrize("label", ["FAiE", "LEML"])
def test_a_shared_grid_is_tried_whole_and_its_best_is_taken(multilabel, label):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 6))
    y = x @ rng.normal(size=(6, 5)) + rng.normal(size=(90, 5)) > 1
    data = bf.Tasks(x, y.astype(float), constant=True)
    method, fold = multilabel.METHODS[label], deal(data, 3, 0)
    grid, train, held = method.grid(5), fold == 0, fold == 1
    found = list(multilabel.tried(method, grid, data, Rows(train, held), []))
    every = {tuple(sorted(zip(grid, one, strict=True))) for one in product(*grid.values())}
    assert {tuple(sorted(values.items())) for values, _ in found} == every
    assert len(found) == len(every) and all(s.score.shape == (held.sum(), 5) for _, s in found)
    run = multilabel.both_rules(method, data, fold, 2)
    own, tuned = (run[rule] for rule in multilabel.RULES)
    assert tuple(sorted(own["chosen"].items())) in every
    assert own["threshold"] is None and np.isfinite(list(own["scores"].values())).all()
    rates = np.broadcast_to(y[fold != 2].mean(0) > 0.5, y[fold == 2].shape)
    assert tuned["scores"]["micro_f1"] > bf.multilabel.micro_f1(y[fold == 2], rates) + 0.1


def test_rows_of_two_rules_are_not_ranked_together(multilabel):
    """A method that has every set is ranked among those of its rule; a fold that is missing is said."""
    rows = [
        (data, method, rule, fold, value)
        for rule, shift in (("own rule", 0.0), ("tuned threshold", 0.3))
        for method, value in (("GroPLE", 0.2 + shift), ("PLST", 0.4 - shift), ("FAiE", 0.9))
        for data in ("genbase", "medical")
        for fold in range(5)
        if (method, data, fold) != ("PLST", "medical", 4) and (method, data) != ("FAiE", "medical")
    ]
    cells = multilabel.Cells(None)
    for data, method, rule, fold, value in rows:
        scores = dict.fromkeys(multilabel.MEASURED, value)
        kept = {"scores": scores, "seconds of both rules": 1.0}
        cells.found[f"{data}; {method}; {rule}; fold {fold} of 5"] = {"value": kept}
    found = multilabel.frame(cells, 5)
    text, earlier = multilabel.tables(found, 6, "micro_f1", ("genbase", "medical"), 5)
    lines = {tuple(map(str.strip, line.split("|")[1:-1])) for line in text.splitlines()[2:]}
    assert ("GroPLE", "own rule", ".200 ± .000", ".200 ± .000", "2.00") in lines
    assert ("GroPLE", "tuned threshold", ".500 ± .000", ".500 ± .000", "1.00") in lines
    assert ("PLST", "own rule", ".400 ± .000", ".400 ± .000 [4]", "1.00") in lines
    assert ("FAiE", "own rule", ".900 ± .000", "", "") in lines
    assert ("PLST", "print", ".969", ".821", "") in lines
    assert not earlier
