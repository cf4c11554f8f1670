"""`dir` of the public modules shows what a user may call, and no import of ours."""

import ast
import subprocess
import sys
import types
from pathlib import Path

import pytest

import bayesfac as bf

MODULES = "comparators datasets metrics multilabel ranks references split testing".split()


def test_the_stub_has_the_same_names():
    stub = ast.parse(Path(bf.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    named = [(alias.name, node.module) for node in imports for alias in node.names]
    assert named == [*bf._HOME.items()]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    assert bf.__all__ == sorted(bf._HOME)


FIRST = {home: name for name, home in reversed(bf._HOME.items()) if home.count(".")}


@pytest.mark.parametrize("home", FIRST)
def test_any_module_may_be_the_first(home):
    """Modules are imported by name too, which no contract of imports sees: a circle shows only where it is
    entered."""
    code = f"import bayesfac as bf; bf.{FIRST[home]}; assert len(bf.methods()) >= 35"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_public_names_only(name):
    module = getattr(bf, name)
    shown = dir(module)
    assert shown and not [n for n in shown if n.startswith("_")]
    values = [getattr(module, n) for n in shown]
    homes = [getattr(value, "__module__", "bayesfac") for value in values]
    assert all(home.startswith("bayesfac") for home in homes), homes
    modules = {v.__name__.split(".")[-1] for v in values if isinstance(v, types.ModuleType)}
    assert modules <= {"clusterings", "grids", "ridges"}, (
        modules
    )  # pages of the documentation name these


def test_the_list_of_methods_is_printed_whole():
    listed = bf.methods()
    assert "..." not in repr(listed) and "..." not in listed._repr_html_()
    for name, row in listed.iterrows():
        assert f"  {name:<12} {row['what']}" in repr(listed)
        assert row["what"].replace("&", "&amp;") in listed._repr_html_()
    assert "bpmf" in repr(listed.loc[["bpmf"]])  # a part of the list is a plain table
