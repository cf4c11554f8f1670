"""How much work a function does, counted in its traced program: nothing is compiled, run or timed."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# The unit is a multiplication in a sparse loop, SECONDS of one core. In this unit: a multiplication in a
# matrix product and in a factorisation; an operation on a number elsewhere, an exponential or random number;
# any operation, whatever its size, and the factorisation of one matrix. Fitted to the CPU seconds of sweeps
# and solvers on MovieLens-100K and emotions, where it is right to a factor of about 1.5.
SECONDS = 0.24e-9
DOT, CUBE, PLAIN, HARD = 0.075, 1.25, 0.5, 0.75
EACH, CALL = 7.5e3, 2.5e3
SLOW = {
    "exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "erf", "erfc", "erf_inv", "sin", "cos", "tan",
    "pow", "lgamma", "digamma", "cosh", "sinh", "random_bits", "random_gamma", "threefry2x32",
}  # fmt: skip
CUBIC = {"cholesky", "triangular_solve", "eigh", "householder_product", "geqrf", "qr", "lu", "svd"}


def work(function: Callable, *args: Any) -> float:
    """The work of function(*args), in multiplications of the sparse loops."""
    return _of(jax.make_jaxpr(function)(*args).jaxpr)


def _of(program: Jaxpr) -> float:
    """The work of the equations whose results are used; XLA leaves out the others."""
    used, total = set(map(id, program.outvars)), 0.0
    for eqn in reversed(program.eqns):
        if eqn.effects or any(id(out) in used for out in eqn.outvars):
            used.update(map(id, eqn.invars))
            total += _equation(eqn)
    return total


def _equation(eqn: Any) -> float:
    name, params = eqn.primitive.name, eqn.params
    if name == "while":
        return _rounds(params["cond_jaxpr"].jaxpr) * _of(params["body_jaxpr"].jaxpr)
    if name == "cond":
        return max(_of(branch.jaxpr) for branch in params["branches"])
    inside = [_of(part) for value in params.values() for part in _programs(value)]
    if inside:
        return params.get("length", 1) * sum(inside)
    return EACH + _numbers(name, eqn, params)


def _numbers(name: str, eqn: Any, params: Any) -> float:
    """What an equation without programs inside costs for its numbers."""
    size = sum(int(np.prod(out.aval.shape)) for out in eqn.outvars)
    if name == "ffi_call" and "cost" in (known := dict(params["attributes"] or ())):
        return float(np.asarray(known["cost"]))
    if name == "dot_general":
        (axes, _), _ = params["dimension_numbers"]
        return DOT * size * int(np.prod([eqn.invars[0].aval.shape[axis] for axis in axes]))
    if name in CUBIC:
        shape = eqn.outvars[0].aval.shape
        return CALL * int(np.prod(shape[:-2])) + CUBE * size * shape[-1]
    return size * (HARD if name in SLOW else PLAIN)


def _programs(value: Any) -> list[Jaxpr]:
    """The programs in one parameter of an equation."""
    if isinstance(value, ClosedJaxpr):
        return [value.jaxpr]
    return [value] if isinstance(value, Jaxpr) else []


def _rounds(test: Jaxpr) -> float:
    """How often a loop that counts to a number written in the program goes round; of other loops 1."""
    last = test.eqns[-1] if test.eqns else None
    if last is not None and last.primitive.name == "lt" and isinstance(last.invars[1], Literal):
        return float(last.invars[1].val)
    return 1.0
