"""The base class of all estimators, and the functions that make an estimator from a method."""

import copyreg
import inspect
from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_non_negative, validate_data

from bayesfac.api import fit
from bayesfac.core.data.reading import is_named, repeated
from bayesfac.core.data.views import Views
from bayesfac.core.errors import unknown
from bayesfac.core.method import REGISTRY, Method, lookup, site_dims
from bayesfac.fits.fit import Fit
from bayesfac.inference import engine_for

ENGINE = "engine__"
COMMON = {
    "engine": "`bf.LBFGS()`, `bf.Gibbs()` and so on; None is the method's own solver. `set_params` and "
    "searches take its settings as `engine__draws`",
    "random_state": "an int is the seed of `bf.fit`; with None or a RandomState the seed is random",
}


class Table(NamedTuple):
    """X after reading: {view: matrix}, the labels of the columns of each view, and the labels of the rows."""

    views: dict[str, Any]
    columns: dict[str, pd.Index]
    rows: pd.Index

    @property
    def container(self) -> Views:
        """The table as Views, whose constructor makes the remaining checks."""
        views = Views(self.views, rows=self.rows)
        views.host = replace(views.host, features=self.columns)
        return views


class Estimator(BaseEstimator):
    """The parts that all estimators share; `fit_` is the `bf.Fit`."""

    extra: Mapping[str, Any] = {}  # defaults of parameters that the method does not have
    extra_doc: Mapping[str, str] = {}
    # the class for methods that can add rows, where it is another
    with_new_rows: type | None = None
    method: Method
    engine: Any
    fit_: Fit

    @classmethod
    def of(cls, method: Method) -> type:
        """The class for a method of this family."""
        return (
            cls.with_new_rows
            if cls.with_new_rows and "no_fold_in" not in method.notes.traits
            else cls
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings; with `deep` also those of an engine that was given, as `engine__draws`."""
        own = super().get_params(deep)
        engine = own["engine"]
        # an object that is not an engine is refused in `fit` only, as scikit-learn demands
        known = is_dataclass(engine) and not isinstance(engine, type)
        inner = fields(engine) if deep and known else ()
        return own | {f"{ENGINE}{f.name}": getattr(engine, f.name) for f in inner}

    def set_params(self, **params: Any) -> "Estimator":
        """Change settings; `engine__draws=500` changes a setting of the engine (if None, of the solver)."""
        inner = {k.removeprefix(ENGINE): v for k, v in params.items() if k.startswith(ENGINE)}
        super().set_params(**{k: v for k, v in params.items() if not k.startswith(ENGINE)})
        if inner:
            engine = engine_for(self.engine, self.method)
            known = [field.name for field in fields(engine)]
            for name in inner:
                if name not in known:
                    raise ValueError(unknown(f"setting of {type(engine).__name__}", name, known))
            self.engine = replace(engine, **inner)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = "nonnegative" in self.method.notes.traits
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = []
        return tags

    def _run(self, data: Any, settled: Any = None) -> Fit:
        """Run `bf.fit` with the parameters of the estimator, or with parameters that were chosen before. The
        data already have their levels. Small data may reduce a number of components that is the default."""
        given, usual = self if settled is None else settled, settings(self.method)
        hyper = {n: getattr(given, n) for n in usual if n != "levels"}
        hyper = {n: x for n, x in hyper.items() if not (type(x) is int and x == usual[n])}
        return fit(self.method, data, self.engine, seed=self._seed(), progress=False, **hyper)

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, int | np.integer):
            return int(state)
        return int(check_random_state(state).randint(2**31 - 1))

    def _read(self, X: Any, reset: bool, finite: bool | str = True) -> Table:
        """Read one matrix with the checks of scikit-learn, or several views."""
        if (several := _several(X)) is not None:
            return self._read_views(several, reset)
        checked = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=finite
        )
        if self.__sklearn_tags__().input_tags.positive_only:
            check_non_negative(checked, type(self).__name__)
        names = getattr(self, "feature_names_in_", None)
        columns = pd.RangeIndex(checked.shape[1]) if names is None else pd.Index(names)
        named = isinstance(X, pd.DataFrame) and not len(repeated(X.index))
        rows = X.index if named else pd.RangeIndex(checked.shape[0])
        return Table({"x": checked}, {"x": columns}, rows)

    def _read_views(self, several: Mapping[str, Any], reset: bool) -> Table:
        data = Views(several)
        if reset:
            self.n_features_in_ = sum(data.n_features.values())
            if hasattr(self, "feature_names_in_"):  # of an earlier fit to one matrix
                del self.feature_names_in_
        return Table({name: data[name] for name in data.names}, data.features, data.rows)


def settings(method: Method) -> dict[str, Any]:
    """The hyper-parameters that `bf.fit` takes, and their defaults."""
    taken = inspect.signature(fit).parameters
    default = method.Hyper._field_defaults
    return {n: default.get(n, Parameter.empty) for n in method.Hyper._fields if n not in taken}


def _several(X: Any) -> dict[str, Any] | None:
    """Views by name, or None where X is one matrix."""
    if isinstance(X, pd.DataFrame) and X.columns.nlevels == 2:
        named = X.reset_index(drop=True) if len(repeated(X.index)) else X
        return {name: named[name] for name in X.columns.unique(0)}
    if isinstance(X, list | tuple) and len(X) and getattr(X[0], "ndim", 0) == 2:
        return {f"view{i}": x for i, x in enumerate(X)}
    return dict(X) if is_named(X) else None


def factor(fit: Fit, axis: str) -> str:
    """The first parameter of the method that runs along an axis: "user", "item", "row", "feature"."""
    for site in fit._as_draws():
        if any(dim.partition(".")[0] == axis for dim in site_dims(fit.method, site)):
            return site
    raise AttributeError(f"{fit.name} has no factor along {axis!r}")


def table_of(fit: Fit, site: str, axis: str) -> np.ndarray:
    """A parameter of a point fit as a matrix: rows along the axis, all other axes flattened into columns."""
    name, _, key = site.partition(".")
    value = getattr(fit.params, name)
    value = np.asarray(value[key] if key else value)
    dims = [dim.partition(".")[0] for dim in site_dims(fit.method, site)]
    return np.moveaxis(value, dims.index(axis), 0).reshape(value.shape[dims.index(axis)], -1)


def shelf(
    module: str, names: dict[str, Any], families: Mapping[str, type], others: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], Callable[[Any], type]]:
    """`__getattr__` and `__dir__` of a module: `others`, and a class for every method of these families; and
    `estimator`, which makes the class of a method that has no name in the module."""

    def get(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        method = REGISTRY.get(name)
        if method is None or method.data.__name__ not in families:
            raise AttributeError(unknown(f"estimator of {module}", name, known()))
        names[name] = _make(method, families[method.data.__name__], module)
        return names[name]

    def known() -> list[str]:
        return sorted(n for n, method in REGISTRY.items() if method.data.__name__ in families)

    @cache
    def composed(method: Method) -> type:
        if method.data.__name__ not in families:
            wanted = " or ".join(families)
            raise TypeError(f"Expected a method of {wanted}, got one of {method.data.__name__}")
        return _make(method, families[method.data.__name__], module)

    def estimator(method: Any) -> type:
        """The class of estimators for what `bf.factorization` made, or for the file of its recipe."""
        record = lookup(method)
        return composed(record) if record.recipe else names.get(record.name) or get(record.name)

    return get, lambda: [*others, *known()], estimator


class Composed(ABCMeta):
    """The classes of composed factorizations, which are pickled with the recipe. Mixins of scikit-learn are
    abstract, so it is an ABCMeta."""

    method: Method


def _remade(module: str, recipe: Mapping[str, Any]) -> Any:
    return import_module(module).estimator(recipe)


copyreg.pickle(Composed, lambda kind: (_remade, (kind.__module__, dict(kind.method.recipe or {}))))


def _make(method: Method, family: Any, module: str) -> type:
    """The class of one method; its module is set, so that pickle finds the class."""
    default = settings(method) | family.extra | dict.fromkeys(COMMON)
    asked = [Parameter(n, Parameter.KEYWORD_ONLY, default=value) for n, value in default.items()]
    self = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    signature = Signature([self, *asked])

    def __init__(*given: Any, **named: Any) -> None:
        if wrong := named.keys() - default:
            raise TypeError(unknown(f"parameter of {method.name}", min(wrong), default))
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        self = bound.arguments.pop("self")
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    body = {"__init__": __init__, "__module__": module, "method": method}
    kind = Composed if method.recipe else type
    made = kind(method.name, (family.of(method),), body)
    made.__doc__ = _doc(method, family, default)
    return made


def _doc(method: Method, family: Any, default: Mapping[str, Any]) -> str:
    """The header of the method, with the docstring of the family after its first line."""
    meaning = {**family.extra_doc, **COMMON}
    rows = [
        f"{name} : default {value!r}" + (f"\n    {meaning[name]}" if name in meaning else "")
        for name, value in default.items()
    ]
    first, _, rest = (method.header or method.name).partition("\n")
    parts = [first, inspect.cleandoc(family.__doc__), "Parameters\n----------\n" + "\n".join(rows)]
    return "\n\n".join([*parts, "Notes\n-----" + rest])
