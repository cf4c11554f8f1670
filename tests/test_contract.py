"""What every registered method must satisfy, and the skeleton that new ones begin as."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.testing import CHECKS, contract
from bayesfac.testing.tools import same
from bayesfac.testing.waived import WAIVED, waived
from tests.tools.records import changed


def test_there_is_something_to_test():
    assert {"pmf", "bpmf", "plsa", "mvplsa"} <= set(REGISTRY)
    assert len(CHECKS) >= 12


def test_what_is_waived_exists_and_has_a_reason():
    for name, checks in WAIVED.items():
        assert name in REGISTRY and set(checks) <= set(CHECKS) and all(checks.values()), name


@pytest.mark.slow
@pytest.mark.parametrize(("name", "check"), [(n, c) for n, own in WAIVED.items() for c in own])
def test_what_is_waived_does_fail(name, check, key):
    """A check that a method passes needs no reason."""
    with pytest.raises((AssertionError, AttributeError, BayesfacError)):
        CHECKS[check](REGISTRY[name], key)


# checks that fit, draw, or compile every program for a second container: most of the contract's time
COSTLY = ("map", "prior", "relabelling", "unseen")


# `moves` has a file of its own: tests/inference/test_moves.py
ELSEWHERE = ("backends", "moves", *COSTLY)


@pytest.mark.parametrize("check", [name for name in CHECKS if name not in ELSEWHERE])
def test_contract(method, check, key):
    if reason := waived(method, check) or CHECKS[check](method, key):
        pytest.skip(reason)


@pytest.mark.parametrize("check", COSTLY)
def test_costly_parts_of_the_contract(sampled_method, check, key):
    """One method of each kind in the quick tests, every method in `make test-all`."""
    if reason := waived(sampled_method, check) or CHECKS[check](sampled_method, key):
        pytest.skip(reason)


def test_contract_under_numba(sampled_method, key):
    """That the two forms of a loop agree is also tested loop by loop, in tests/core/kernels."""
    assert CHECKS["backends"](sampled_method, key) is None


def failure(check, method, key):
    with pytest.raises(AssertionError) as failed:
        CHECKS[check](method, key)
    return str(failed.value)


def test_a_check_that_fails_prints_what_differs(skeleton, key):
    """The two values that should be the same, and the entry that has them."""

    def shifted(p, data, hyper):
        law = skeleton.gibbs.conditionals["b"](p, data, hyper).base_dist
        return type(law)(law.loc + 0.1, law.scale).to_event(1)

    wrong = changed(skeleton, conditionals={**skeleton.gibbs.conditionals, "b": shifted})
    number = r"-?\d[\d.e+-]*"
    said = failure("conditionals", wrong, key)
    assert re.search(rf"conditional of b and of the joint: {number} and {number}, relative", said)

    half = replace(
        skeleton, objective=lambda p, *more: skeleton.objective(p, *more) - 0.1 * p.b[0] ** 2
    )
    assert len(re.findall(number, failure("joint", half, key).partition(": ")[2])) == 15

    def risen(p, data, hyper):
        new = skeleton.solver.update(p, data, hyper)
        return new._replace(b=new.b + 1)

    said = failure("descent", changed(skeleton, update=risen), key)
    assert re.search(rf"in update \d+, from {number} to {number}$", said)
    with pytest.raises(
        AssertionError, match=r"^what: 2 and 3 at \.b\[1\], relative difference 0.25"
    ):
        same(
            skeleton.Params(np.ones(2) * [1, 2], 0), skeleton.Params(np.ones(2) * [1, 3], 0), "what"
        )
    with pytest.raises(AssertionError, match=r"nan and 1 at \[1\]"):
        same(np.array([1, np.nan]), np.ones(2), "what")


def test_the_skeleton_keeps_it_too(skeleton):
    kept = contract(skeleton)
    assert list(kept) == list(CHECKS)
    assert [name for name, said in kept.items() if said != "kept"] == [
        "gauge",
        "fold_in",
        "parts",
        "variational",
    ]
