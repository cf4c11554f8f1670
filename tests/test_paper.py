"""The draft of the paper: its figures are the stored ones, its citations are in the bibliography."""

import json
import re
from pathlib import Path

from bayesfac.core.method import REGISTRY

ROOT = Path(__file__).parent.parent
PAPER = (ROOT / "paper" / "paper.md").read_text("utf-8")
TEXT = " ".join(PAPER.split())


def stored(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def short(value):
    return f"{value:.3f}".removeprefix("0")


def test_its_figures_are_those_of_the_benchmarks():
    assert f"library of {len(REGISTRY)} published factorizations" in TEXT
    first = stored("first_result")
    point, draws = first["point"], first["Gibbs"]
    assert (
        f"RMSE of {short(point['RMSE'])} stars and the posterior one of {short(draws['RMSE'])}"
        in TEXT
    )
    assert f"deviation has {short(draws['RMSE of the surest tenth'])}." in TEXT
    assert f"hold {draws['covers 90 %']:.1%}".replace("%", " %") in TEXT
    sweep = {name: 1000 * one["sweep"] for name, one in stored("gibbs")["results"]["32"].items()}
    assert f"takes {sweep['bayesfac']:.0f} ms on two cores" in TEXT
    assert f"{sweep['SMURFF']:.0f} ms of SMURFF and {sweep['myFM']:.0f} ms of myFM" in TEXT
    rows = {name: short(row["NDCG@10"]) for name, row in stored("ranking")["rows"].items()}
    lists = f"{rows['bpmf, mean']}, those of the point {rows['bpmf, point']} and those of mere"
    assert f"{lists} popularity {rows['popularity']}" in TEXT
    runs = stored("quick")["results"]
    names = [f"ratings {seed}" for seed in range(5)] + ["million 0"]
    lost = [
        runs[n]["value"]["long"]["log score"] - runs[n]["value"]["quick"]["log score"]
        for n in names
    ]
    assert max(map(abs, lost)) < 0.003 and "within .003 on five splits" in TEXT


def test_every_citation_is_in_the_bibliography_and_is_cited():
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text("utf-8"), re.M)
    assert sorted(entries) == sorted(set(re.findall(r"@([a-z]+\d{4}\w*)", PAPER)))


def test_every_benchmark_that_it_names_exists():
    scripts = re.findall(r"`(benchmarks/\w+\.py)`", PAPER)
    assert len(scripts) == 4 and all((ROOT / script).is_file() for script in scripts)
