"""One method of each kind, for properties of an engine: the quick tests need no more."""

import pytest

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.core.method import REGISTRY

# Real ratings, ratings by level, views, tasks, tasks whose views are given.
KINDS = ("pmf", "mmmf", "mvplsa", "heres", "leml")


def quick_for(names):
    """Every method as a parameter; the tests of methods that are not among `names` are slow."""
    return [
        name if name in names else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(REGISTRY)
    ]
