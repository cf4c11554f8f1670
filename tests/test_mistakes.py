"""The tests are worth what they catch: mistakes in the source, each of which a quick test must see.

`make test-all` plants all of them, `make test` as many as fit into a minute, in another order at every commit.
"""

import random
import subprocess
import time
from collections import Counter

import pytest

from tests.mistaken import ROOT, caught, mistakes

MISTAKES = {mistake.what: mistake for mistake in mistakes()}
MINUTE = 60.0


def order():
    """The names of the mistakes, in an order that the commit decides."""
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout or "no git"
    return random.Random(commit).sample(sorted(MISTAKES), len(MISTAKES))


def seen(mistake):
    found, seconds, said = caught(mistake)
    assert found, f"{mistake.test} did not see this in {seconds:.0f} s: {mistake.what}\n{said}"


def test_every_mistake_has_its_own_name_and_stands_in_its_file():
    names = Counter(mistake.what for mistake in mistakes())
    assert not [name for name, count in names.items() if count > 1]
    for mistake in MISTAKES.values():
        compile(mistake.planted(), mistake.file, "exec")


def test_a_mistake_that_changes_nothing_is_not_caught():
    """A check of the check: with a comment for a mistake, the test passes."""
    some = next(iter(MISTAKES.values()))
    harmless = type(some)("", some.file, some.right, some.right + "  # a comment", some.test)
    assert not caught(harmless)[0]


@pytest.mark.timeout(600)
def test_a_minute_of_mistakes():
    begun = time.perf_counter()
    for name in order():
        seen(MISTAKES[name])
        if time.perf_counter() - begun > MINUTE:
            break


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_the_mistake_is_caught(name):
    seen(MISTAKES[name])
