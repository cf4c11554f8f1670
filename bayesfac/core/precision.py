"""Steps that need double precision although the parameters are kept in single precision."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def cast(tree: Any, dtype: Any) -> Any:
    """The same tree with every array of real numbers in `dtype`; keys, integers and settings stay."""

    def one(leaf: Any) -> Any:
        real = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, dtype) if real else leaf

    return jax.tree.map(one, tree)


def doubled(step: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, computed in double precision; its answer has the working precision.

    A ridge system squares the condition of the features: in single precision columns whose scales differ by
    a factor of a thousand leave no digit of the answer. Works under jit too.

    Examples
    --------
    >>> shift = doubled(lambda x: (x + 1e9) - 1e9)
    >>> with jax.enable_x64(False):
    ...     found = shift(jnp.ones(()))
    >>> found.item(), str(found.dtype)
    (1.0, 'float32')
    """

    @wraps(step)
    def wide(*given: Any) -> Any:
        working = jax.dtypes.canonicalize_dtype(np.float64)
        if working == np.float64:
            return step(*given)
        with jax.enable_x64(True):
            return cast(step(*cast(given, np.float64)), working)

    return wide
