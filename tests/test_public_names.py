"""`dir` of the public modules shows what a user may call, and no import of ours."""

import types

import pytest

import bayesfac as bf

MODULES = "comparators datasets metrics multilabel ranks references split testing".split()


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
