"""The contract of methods, as functions that also check methods outside the library.

A check takes a method and a JAX key, builds the method's own `example` in float64, and raises an
AssertionError that describes the difference. A check that does not apply returns the reason.

>>> import jax
>>> from bayesfac.models.ratings import pmf
>>> CHECKS["tree"](pmf.METHOD, jax.random.key(0)) is None
True
"""

from collections.abc import Mapping

import jax

from bayesfac.core.errors import check_names
from bayesfac.core.method import Method
from bayesfac.testing.invariance import check_backends, check_gauge, check_mask, check_relabelling
from bayesfac.testing.moves import check_moves
from bayesfac.testing.predictions import check_fold_in, check_observed, check_predict, check_unseen
from bayesfac.testing.sampler import check_conditionals
from bayesfac.testing.solver import check_descent, check_map, check_optimum, check_tree
from bayesfac.testing.tools import CHECKS
from bayesfac.testing.twins import (
    check_joint,
    check_parts,
    check_prior,
    check_sites,
    check_slopes,
    check_structure,
)
from bayesfac.testing.variational import check_variational

__all__ = [
    "CHECKS",
    "check_backends",
    "check_conditionals",
    "check_descent",
    "check_fold_in",
    "check_gauge",
    "check_joint",
    "check_map",
    "check_mask",
    "check_moves",
    "check_observed",
    "check_optimum",
    "check_parts",
    "check_predict",
    "check_prior",
    "check_relabelling",
    "check_sites",
    "check_slopes",
    "check_structure",
    "check_tree",
    "check_unseen",
    "check_variational",
    "contract",
]


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)


def contract(
    method: Method, seed: int = 0, waived: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Run every check on one method: {check: "kept", or why the check does not apply}.

    `waived` has the checks that do not apply to this method, each with the reason; they are not run.

    Examples
    --------
    >>> from bayesfac.models.topics import plsa
    >>> contract(plsa.METHOD)["mask"]  # doctest: +SKIP
    'Views have no missing cells: a cell that is not stored is zero'
    """
    reasons = waived or {}
    check_names("check", reasons, CHECKS)
    return {
        name: reasons.get(name) or check(method, jax.random.key(seed)) or "kept"
        for name, check in CHECKS.items()
    }
