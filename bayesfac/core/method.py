"""The one abstraction: a factorization method is a record of plain functions."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from bayesfac.core.errors import UnknownName

REGISTRY: dict[str, "Method"] = {}


@dataclass(frozen=True)
class Rotation:
    """The factors may be turned by any orthogonal R: `site @ R` along each axis in `axes`.

    `forms` are K x K sites that turn as R' M R. The sites of `factors` (two of them) make the
    identified product, their rows paired by the data. With `each`, all of these have a
    leading axis (already counted in `axes`), every entry of which turns by an R of its own. `floating`:
    thresholds of a row's own absorb shifts of its products, so their spectrum is not identified.
    """

    factors: tuple[str, str]
    axes: Mapping[str, int]
    forms: tuple[str, ...] = ()
    each: bool = False
    floating: bool = False


@dataclass(frozen=True)
class Permutation:
    """The same relabelling may act on each of these axes at once (site name -> axis).

    The sites of `signed` may also change their sign, all together, one component by one.
    """

    axes: Mapping[str, int]
    name: str = "component"
    signed: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Method:
    """A published method: its objective, its solver and its generative model.

    Params, Hyper                     NamedTuples; the fields of Params are the model's sites
    data                              the container it takes: Ratings, Views, ...
    init(key, data, hyper)            -> Params
    objective(params, data, hyper)    -> scalar, minimised: minus the log joint, up to a constant
    update(params, data, hyper)       -> Params, one sweep; None where the gradient engine solves
    model(data, hyper)                -> None, NumPyro
    predict(params, query, hyper)     -> Distribution of what is asked for, given one value of Params
    example(key)                      -> (data, hyper), tiny; the contract runs on it
    conditionals                      {field: f(params, data, hyper) -> Distribution}, in sweep order; of a
                                      dict field, f(params, data, hyper, key) for each of its keys
    augment(params, data, hyper)      -> Distribution of auxiliary variables given the rest. Gibbs draws
                                      it first in every sweep; conditionals then take it as a fourth
                                      argument (before the key). It lives only there
    moves                             {name: f(key, params, data, hyper) -> Params}: transitions that
                                      leave the joint as it is, which Gibbs makes after its blocks
    terms(params, data, hyper, which) -> vector: where the objective is a sum of independent problems,
                                      one per entry of every site's first axis; those of `which` only
    in_turn(hyper)                    -> whether these are to be solved one after another
    derive(params, data, hyper)       -> {field: array, or {key: array}}: what prediction needs beside the
                                      sites, a function of these and the training data; kept with a fit
    fold_in(params, data, hyper)      -> Params of new rows: theirs fitted, all else (of the tasks that `data`
                                      names) held. None: the users of ratings are found by descent; rows
                                      of other data cannot be added to a fit
    prepare(data, hyper)              -> Hyper: fills what defaults to the data, refuses what is wrong
    ready(data, hyper)                -> data as everything else sees them: scaled, with their graphs
    remarks(params, data, hyper)      -> [str]: what a reader of this point should know
    views_given                       whether the views are not modelled, the labels alone
    gauge(data)                       -> what may be turned or relabelled without changing the joint
    dims                              {field: axis names}; "{key}" stands for a dict field's key
    noncentred                        sites that NUTS samples through their standardised base
    waived                            {check: reason}; also "negative", where data must not be, and "fold_in"
    """

    name: str
    cite: str
    data: type
    Params: Any
    Hyper: Any
    init: Callable[..., Any]
    objective: Callable[..., Any]
    model: Callable[..., None]
    predict: Callable[..., Any]
    example: Callable[..., Any]
    update: Callable[..., Any] | None = None
    conditionals: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    augment: Callable[..., Any] | None = None
    moves: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    terms: Callable[..., Any] | None = None
    in_turn: Callable[..., bool] = lambda hyper: False
    derive: Callable[..., Mapping[str, Any]] | None = None
    fold_in: Callable[..., Any] | None = None
    prepare: Callable[..., Any] = lambda data, hyper: hyper
    ready: Callable[..., Any] = lambda data, hyper: data
    remarks: Callable[..., list[str]] = lambda params, data, hyper: []
    views_given: bool = False
    gauge: tuple[Rotation | Permutation, ...] | Callable[..., tuple[Any, ...]] = ()
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    noncentred: tuple[str, ...] = ()
    waived: Mapping[str, str] = field(default_factory=dict)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Ours by name: fits travel between processes, lambdas do not. Those of others as pickle sees fit."""
        home = self.init.__module__
        ours = home.startswith("bayesfac.models.")
        return (_at_home, (home, self.name)) if ours else super().__reduce_ex__(protocol)

    @property
    def paper(self) -> str:
        """The first line of the method's file: what it is. In a notebook there is no file."""
        home = inspect.getmodule(self.init)
        text = None if home is None or home.__name__ == "__main__" else inspect.getdoc(home)
        return (text or self.name).splitlines()[0].rstrip(".")

    @property
    def solver(self) -> str:
        """The engine that `bf.fit` takes when none is named."""
        return "FixedPoint" if self.update else "LBFGS"

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that can run it."""
        own = ("FixedPoint",) if self.update else ()
        return (*own, "LBFGS", "MAP", "SVI", "NUTS", *(("Gibbs",) if self.conditionals else ()))


def register(method: Method) -> Method:
    """Put a method on the list; every engine, report and contract test finds it there."""
    if method.name in REGISTRY:
        raise ValueError(f"Expected one method per name, got {method.name!r} registered twice")
    REGISTRY[method.name] = method
    return method


def _at_home(module: str, name: str) -> Method:
    import_module(module)
    return REGISTRY[name]


def lookup(name: str | Method) -> Method:
    """The method of that name, or an error that names the nearest."""
    if isinstance(name, Method):
        return name
    if name not in REGISTRY:
        raise UnknownName(unknown("method", name, REGISTRY))
    return REGISTRY[name]


def unknown(what: str, name: str, known: Any) -> str:
    """One line for a name that does not exist: the nearest ones, then all."""
    import difflib

    near = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"Unknown {what} {name!r}{hint} Known: {', '.join(known)}"


def settle(method: Method, data: Any, hyper: Mapping[str, Any]) -> Any:
    """The method's Hyper from what the user gave, completed and checked against the data."""
    for name in hyper:
        if name not in method.Hyper._fields:
            raise UnknownName(
                unknown(f"hyper-parameter of {method.name}", name, method.Hyper._fields)
            )
    # numbers of NumPy or JAX become Python's: hyper-parameters are hashed, compared and saved
    plain = {k: v.item() if hasattr(v, "item") and np.ndim(v) == 0 else v for k, v in hyper.items()}
    return method.prepare(data, method.Hyper(**plain))


def contain(method: Method, data: Any) -> Any:
    """Data as the container that the method takes."""
    if isinstance(data, method.data):
        return data
    if type(data).__name__ in ("Ratings", "Tasks", "Views"):
        raise TypeError(
            f"Expected {method.data.__name__} for {method.name}, got {type(data).__name__}"
        )
    return method.data(data)


def sites(params: Any) -> dict[str, Any]:
    """Params as the model's sample sites: dict fields flattened to `field.key`, None left out."""
    return flattened(params._asdict())


def flattened(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same of any fields."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        elif value is not None:
            flat[name] = value
    return flat


def from_sites(method: Method, values: Mapping[str, Any]) -> Any:
    """Params from sample sites: the inverse of `sites`; a site that is absent becomes None."""
    fields: dict[str, Any] = dict.fromkeys(method.Params._fields)
    for site, value in values.items():
        name, dot, key = site.partition(".")
        if name not in fields:
            raise UnknownName(unknown(f"site of {method.name}", site, method.Params._fields))
        if dot:
            fields[name] = {**(fields[name] or {}), key: value}
        else:
            fields[name] = value
    return method.Params(**fields)


def site_dims(method: Method, site: str) -> tuple[str, ...]:
    """The axis names of one sample site."""
    name, _, key = site.partition(".")
    return tuple(dim.format(key=key) for dim in method.dims[name])


def laws_of(method: Method, params: Any) -> dict[str, Callable[..., Any]]:
    """{site: its conditional, f(params, data, hyper, *auxiliary)} of all sites that have one."""
    found: dict[str, Callable[..., Any]] = {}
    for name, law in method.conditionals.items():
        value = getattr(params, name)
        if isinstance(value, Mapping):
            for key in value:
                found[f"{name}.{key}"] = lambda *given, f=law, k=key: f(*given, k)
        elif value is not None:
            found[name] = law
    return found


def gauge_of(method: Method, names: Any) -> tuple[Rotation | Permutation, ...]:
    """The method's gauge for these sites (a multi-view method has one relabelling per view)."""
    return method.gauge(tuple(names)) if callable(method.gauge) else method.gauge


def moved_sites(free: Rotation | Permutation) -> tuple[str, ...]:
    """All sites that it turns or relabels."""
    return (*free.axes, *getattr(free, "forms", ()))


def log_joint(method: Method, params: Any, data: Any, hyper: Any) -> Any:
    """Log density of the NumPyro model at `params`, in the constrained space, no Jacobian."""
    from numpyro.infer.util import log_density

    return log_density(method.model, (data, hyper), {}, sites(params))[0]
