"""Run steps in double precision although parameters and data are in single precision."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.errors import DataWarning

LOST = 1e-3  # of the standard deviation: more than rounding may change


def cast(tree: Any, dtype: Any) -> Any:
    """Convert all arrays of real numbers in a tree to `dtype`; keys, integers and settings stay."""

    def one(leaf: Any) -> Any:
        real = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, dtype) if real else leaf

    return jax.tree.map(one, tree)


def doubled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Compute a function in double precision and return its result in the working precision.

    A ridge system squares the condition number of the features: in single precision no digit of its solution
    is right when the scales of columns differ by a factor of a thousand. Works under jit too, but JAX lowers
    the program outside of the double precision context, where `jnp.argmax` does not compile.

    Examples
    --------
    >>> shift = doubled(lambda x: (x + 1e9) - 1e9)
    >>> with jax.enable_x64(False):
    ...     x = shift(jnp.ones(()))
    >>> x.item(), str(x.dtype)
    (1.0, 'float32')
    """

    @wraps(step)
    def wide(*arguments: Any) -> Any:
        working = jax.dtypes.canonicalize_dtype(np.float64)
        if working == np.float64:
            return step(*arguments)
        with jax.enable_x64(True):
            return cast(step(*cast(arguments, np.float64)), working)

    return wide


def precise() -> bool:
    """Whether numbers have 64 bits."""
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def told_of_rounding(data: Any) -> Any:
    """The data, after a warning if they are ratings or a tensor that single precision rounds too much."""
    if precise() or not hasattr(data, "spread"):
        return data
    mean, spread = data.mean, data.spread
    lost = abs(mean) * 2.0**-24 / spread
    if lost > LOST:
        warnings.warn(
            f"numbers around {mean:.6g} with a standard deviation of {spread:.3g} are rounded in single "
            f"precision, by {lost:.1%} of this standard deviation: subtract a constant, or set "
            'jax.config.update("jax_enable_x64", True)',
            DataWarning,
            stacklevel=4,
        )
    return data
