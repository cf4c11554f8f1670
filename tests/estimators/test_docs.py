"""The examples of the page and of the modules, run."""

import doctest
from pathlib import Path

import pytest

import bayesfac.sklearn
from bayesfac.sklearn import pairs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "estimators.md"


def test_the_page_is_true():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 20 and not found.failed


@pytest.mark.parametrize("module", [bayesfac.sklearn, pairs])
def test_the_examples_are_true(module):
    found = doctest.testmod(module)
    assert found.attempted and not found.failed
