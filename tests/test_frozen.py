"""Methods that are made of parts have their numbers of before, at fixed points: tests/tools/frozen.py."""

import pytest

from tests.tools import frozen

# Why a number differs: a sweep of VB of `ard_mf` has another order, and ends at the same kind of maximum; its
# scales are drawn exactly, where Metropolis steps were made before.
APART = {"ard_mf": ("elbo", "beliefs", "move balance", "move rescale")}
MADE = [name for name, method in frozen.cases().items() if method.parts is not None]


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_numbers_are_those_of_before(name):
    before = frozen.stored()[name]
    found = frozen.gaps(frozen.numbers(frozen.cases()[name], before), before)
    wrong = {kind: gap for kind, gap in found.items() if not gap <= 1e-12}
    assert all(kind.startswith(APART.get(name, ("none",))) for kind in wrong), wrong
