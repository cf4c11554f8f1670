"""The workflows call what exists here, on every Python that the package names, and pin what they use."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def steps(path):
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_calls_exists(path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    called = "\n".join(step.get("run", "") for step in steps(path))
    scripts = re.findall(r"\.ci/\w+", called)
    made = [name for line in re.findall(r"^make (.+)$", called, re.M) for name in line.split()]
    assert scripts or made
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)
    assert set(made) <= set(targets)
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)


def test_every_python_is_checked():
    jobs = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text("utf-8"))["jobs"]
    named = re.findall(r":: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert set(named) <= set(jobs["checks"]["strategy"]["matrix"]["python"])


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")))
def test_a_form_asks_with_different_names(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    names = [field["id"] for field in form["body"]]
    assert form["name"] and form["description"] and len({*names}) == len(names)
    assert all(field["attributes"]["label"] for field in form["body"])
