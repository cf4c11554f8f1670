"""The contract is worth what it catches: known mistakes are planted, and each must be found.

Every mutant names the check that has to find it; the slow test prints all the checks that do.
"""

import jax
import pytest

from bayesfac.testing import CHECKS
from tests.models.ratings.test_bpmf import golden as golden_bpmf
from tests.models.ratings.test_pmf import golden as golden_pmf
from tests.models.tasks.test_heres import golden as golden_heres
from tests.models.tasks.test_himls import golden as golden_himls
from tests.models.tasks.test_himlsd import golden as golden_himlsd
from tests.models.tasks.test_lsa_mml import golden as golden_lsa_mml
from tests.models.topics.test_mggm import golden as golden_mggm
from tests.models.topics.test_mvplsa import golden as golden_mvplsa
from tests.models.topics.test_plsa import golden as golden_plsa
from tests.mutants import MUTANTS

GOLDEN = {
    "pmf": golden_pmf,
    "bpmf": golden_bpmf,
    "plsa": golden_plsa,
    "mvplsa": golden_mvplsa,
    "mggm": golden_mggm,
    "himls": golden_himls,
    "himlsd": golden_himlsd,
    "heres": golden_heres,
    "lsa_mml": golden_lsa_mml,
}


def catches(check, method):
    """Whether a check finds the mistake; anything but an AssertionError is a fault of the check."""
    try:
        if check == "golden":
            GOLDEN[method.name](method)
        else:
            CHECKS[check](method, jax.random.key(0))
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mistake_is_caught(name):
    check, method = MUTANTS[name]
    assert catches(check, method)


def test_every_method_and_every_check_has_a_mutant():
    assert {method.name for _, method in MUTANTS.values()} == set(GOLDEN)
    assert {check for check, _ in MUTANTS.values()} == {*CHECKS, "golden"}


def stops(check, method):
    """The same, where a method that cannot even be run is caught too."""
    try:
        return catches(check, method)
    except (TypeError, ValueError, UserWarning):
        return True


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_which_checks_catch_it(name, capsys):
    _, method = MUTANTS[name]
    found = [check for check in [*CHECKS, "golden"] if stops(check, method)]
    with capsys.disabled():
        print(f"\n{name}: {', '.join(found)}")
    assert found
