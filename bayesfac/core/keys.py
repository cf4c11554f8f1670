"""Everything that determines a result as JSON, for digests: settings, arrays, functions and methods."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.reading import digest
from bayesfac.core.method import REGISTRY, Method


def own_code(what: Any) -> Any:
    """The name of a method of bayesfac, whose version is known; of a composed one its
    recipe; of a user's own method its functions too."""
    if isinstance(what, Method) and what.recipe:
        return what.recipe
    if isinstance(what, Method) and REGISTRY.get(what.name) is what:
        what = what.name
    method = REGISTRY.get(what) if isinstance(what, str) else None
    if method is None or method.module.startswith("bayesfac."):
        return what
    return [what, method]


def as_json(value: Any) -> Any:
    """A setting in terms of JSON; equal settings give equal JSON, in any process.

    Examples
    --------
    >>> as_json({"b": (1, 2.5), "a": None})
    [['a', None], ['b', [1, {'float': '2.5'}]]]
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | complex | bytes) or value is Ellipsis:  # x[..., 0] in a function
        return {
            type(value).__name__: repr(value)
        }  # beside its type: 0.5 is another setting than "0.5"
    if isinstance(value, Mapping):
        return [[as_json(key), as_json(value[key])] for key in sorted(value, key=str)]
    if isinstance(value, set | frozenset):
        return [as_json(one) for one in sorted(value, key=str)]
    if isinstance(value, list | tuple | range):
        return [as_json(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        own = [as_json(getattr(value, f.name)) for f in fields(value)]
        return [type(value).__qualname__, own]
    return _array(value) or _function(value)


def _array(value: Any) -> Any:
    if sp.issparse(value):
        value = sp.coo_array(value)
        return digest([value.shape, *value.coords, value.data])
    if isinstance(value, pd.Series | pd.DataFrame):
        # labels decide too; those that count from 0 are the places of an array
        named = [axis for axis in value.axes if not axis.equals(pd.RangeIndex(len(axis)))]
        return digest([np.asarray(value), *named])
    if isinstance(value, np.ndarray | jax.Array | pd.Index):
        return digest([np.asarray(value)])
    return None


def _function(value: Any) -> Any:
    if isinstance(value, partial):
        return as_json([value.func, value.args, value.keywords])
    if isinstance(value, types.CodeType):
        return as_json([value.co_code, value.co_consts, value.co_names, value.co_varnames])
    if not callable(value) or not hasattr(value, "__qualname__"):
        raise TypeError(
            f"Expected settings of numbers, text, arrays, functions and lists of them, got {value!r:.60}: "
            "the finished cells of two such settings would share a file"
        )
    layers = [value]  # a decorator decides too, and then the function inside of it
    while hasattr(layers[-1], "__wrapped__"):
        layers.append(layers[-1].__wrapped__)
    parts = ("__code__", "__defaults__", "__kwdefaults__")  # classes and functions in C have none
    return [
        f"{value.__module__}.{value.__qualname__}",
        *(as_json(getattr(layer, part, None)) for layer in layers for part in parts),
    ]
