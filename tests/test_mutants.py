"""The contract and the golden steps are worth what they catch: each known mistake must be found."""

import importlib
from collections import Counter
from pathlib import Path

import jax
import pytest

from bayesfac.testing import CHECKS
from tests import (  # noqa: F401  # add their own to MUTANTS
    mutants_of_counts,
    mutants_of_laws,
    mutants_of_limits,
    mutants_of_machines,
    mutants_of_topics,
)
from tests.mutants import MUTANTS

QUICK = 2
TESTS = Path(__file__).parent


def golden_of(name):
    """`golden` of tests/models/FAMILY/test_NAME.py: one step of the method, computed by hand."""
    (path,) = (TESTS / "models").glob(f"*/test_{name}.py")
    return importlib.import_module(f"tests.models.{path.parent.name}.{path.stem}").golden


def some_quick():
    """All mistakes; of those that one check must find, only the first QUICK are not slow."""
    seen = Counter()
    for name, (check, _) in MUTANTS.items():
        seen[check] += 1
        yield pytest.param(name, marks=pytest.mark.slow if seen[check] > QUICK else ())


@pytest.mark.parametrize("name", list(some_quick()))
def test_the_mistake_is_caught(name):
    """An AssertionError finds the mistake; any other exception is a fault of the check."""
    check, method = MUTANTS[name]
    with pytest.raises(AssertionError):
        if check == "golden":
            golden_of(method.name)(method)
        elif reason := CHECKS[check](method, jax.random.key(0)):
            pytest.fail(f"{check} does not apply: {reason}")


def test_every_check_has_a_mutant():
    assert {check for check, _ in MUTANTS.values()} == {*CHECKS, "golden"}
