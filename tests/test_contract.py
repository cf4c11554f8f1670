"""What every registered method must satisfy, and the skeleton that new ones begin as."""

import pytest

from bayesfac.core.method import REGISTRY
from bayesfac.testing import CHECKS, contract


def test_there_is_something_to_test():
    assert {"pmf", "bpmf", "plsa", "mvplsa"} <= set(REGISTRY)
    assert len(CHECKS) >= 12


# checks that fit, draw, or compile every program for a second container: most of the contract's time
COSTLY = ("map", "prior", "relabelling", "unseen")


@pytest.mark.parametrize("check", [name for name in CHECKS if name not in ("backends", *COSTLY)])
def test_contract(method, check, key):
    if reason := CHECKS[check](method, key):
        pytest.skip(reason)


@pytest.mark.parametrize("check", COSTLY)
def test_costly_parts_of_the_contract(sampled_method, check, key):
    """One method of each kind in the quick tests, every method in `make test-all`."""
    if reason := CHECKS[check](sampled_method, key):
        pytest.skip(reason)


def test_contract_under_numba(sampled_method, key):
    """That the two forms of a loop agree is also tested loop by loop, in tests/core/kernels."""
    assert CHECKS["backends"](sampled_method, key) is None


def test_the_skeleton_keeps_it_too(skeleton):
    kept = contract(skeleton)
    assert list(kept) == list(CHECKS)
    assert [name for name, said in kept.items() if said != "kept"] == [
        "gauge",
        "fold_in",
        "moves",
        "variational",
    ]
