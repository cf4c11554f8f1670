"""The tests are worth what they catch: known mistakes, each of which a quick check must see.

A mistake is planted in a record, in place of one of its fields (`tests/tools/mutants*.py`), or in the source
(`tests/mistakes/*.toml`). `make test-all` plants all of them, `make test` as many as fit into a minute, in
another order at every commit.
"""

import importlib
import time
from collections import Counter
from dataclasses import replace

import jax
import pytest

from bayesfac.testing import CHECKS
from tests.tools import (  # noqa: F401  # add their own to MUTANTS
    mutants_of_counts,
    mutants_of_laws,
    mutants_of_limits,
    mutants_of_machines,
    mutants_of_topics,
)
from tests.tools.by_commit import shuffled
from tests.tools.mistaken import ROOT, caught, mistakes
from tests.tools.mutants import MUTANTS

SOURCES = {mistake.what: mistake for mistake in mistakes()}
MINUTE = 60.0


def golden_of(name):
    """`golden` of tests/models/FAMILY/test_NAME.py: one step of the method, computed by hand."""
    (path,) = (ROOT / "tests" / "models").glob(f"*/test_{name}.py")
    return importlib.import_module(f"tests.models.{path.parent.name}.{path.stem}").golden


def see(name):
    """An AssertionError finds a mistake in a record; any other exception is a fault of the check."""
    if name in SOURCES:
        found, seconds, said = caught(SOURCES[name])
        assert found, f"{SOURCES[name].test} did not see it in {seconds:.0f} s: {name}\n{said}"
        return
    check, method = MUTANTS[name]
    with pytest.raises(AssertionError):
        if check == "golden":
            golden_of(method.name)(method)
        elif reason := CHECKS[check](method, jax.random.key(0)):
            pytest.fail(f"{check} does not apply: {reason}")


def test_every_mistake_has_its_own_name_and_stands_in_its_file():
    names = Counter([mistake.what for mistake in mistakes()] + list(MUTANTS))
    assert not [name for name, count in names.items() if count > 1]
    for mistake in SOURCES.values():
        compile(mistake.planted(), mistake.file, "exec")


def test_every_check_has_a_mistake():
    assert {check for check, _ in MUTANTS.values()} == {*CHECKS, "golden"}


def test_what_changes_nothing_is_not_caught():
    """A check of the check: with a blank after the passage, the test passes."""
    some = SOURCES["ard_mf: the law of alpha forgets the variances of the rows"]
    assert not caught(replace(some, wrong=some.right + " "))[0]


def order():
    """The names of all mistakes that were caught before, in an order that the commit decides."""
    proven = [mistake.what for mistake in mistakes("[!_]*.toml")]
    return shuffled(sorted([*proven, *MUTANTS]))


@pytest.mark.timeout(900)
def test_a_minute_of_mistakes():
    begun = time.perf_counter()
    for name in order():
        see(name)
        if time.perf_counter() - begun > MINUTE:
            break


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted([*SOURCES, *MUTANTS]))
def test_the_mistake_is_caught(name):
    see(name)
