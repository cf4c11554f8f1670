"""The record of a factorization method, whose fields are plain functions.

Length: half of it are the docstrings of the record, which are what the author of a method reads.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import Any, NamedTuple

from bayesfac.core.checks import TooLarge, typed
from bayesfac.core.errors import UnknownName, check_names, unknown
from bayesfac.core.precision import told_of_rounding

REGISTRY: dict[str, "Method"] = {}

# What engines, reports and estimators ask of a method. `Method.traits` gives the reason of each
# trait that holds: {"no_gibbs": "no block has a conjugate conditional"}.
TRAITS = {
    "views_given": "the model describes the labels and treats the views as given",
    "nonnegative": "the data must not be negative",
    "no_gibbs": "Gibbs cannot run",
    "coupled": "rows depend on one another, so labels without cells have rows of their own",
    "no_fold_in": "rows cannot be added to a point fit",
    "no_minibatch": "the law of the data cannot be computed from a sample of the cells",
    "no_prior_predictive": "data cannot be drawn from the prior",
    "poisson": "the variance of an outcome is its mean",
    "starts_solved": "the start is a minimum already, so that short fits need no sweeps",
}

CONTAINERS = ("Counts", "Measurements", "Ratings", "Relations", "Tasks", "Tensor", "Views")
MATRICES = ("Counts", "Ratings", "Relations")  # what is not listed: a zero, or missing
RECIPES = (".toml", ".json")  # ends of the names of files that `bf.factorization` reads
COLLAPSED = "collapsed: "  # begins a remark on a point at which factors or clusters have vanished


@dataclass(frozen=True)
class Rotation:
    """The factors may be rotated by any orthogonal R: `site @ R` along each axis in `axes`.

    `forms` are K x K sites that become R' M R. The product of the two sites in `factors` does not
    change. With `each`, all sites have a leading axis (`axes` counts it), and every entry of
    that axis has its own R. With `floating`, each row has thresholds that absorb a shift of its
    products, so the singular values of the products are not identified.
    """

    factors: tuple[str, str]
    axes: Mapping[str, int]
    forms: tuple[str, ...] = ()
    each: bool = False
    floating: bool = False


@dataclass(frozen=True)
class Permutation:
    """The components may be reordered along all axes in `axes` (site name -> axis) at once.

    The sites of `signed` may also change sign together, component by component. `forms` are K x K sites
    that are reordered along both axes. `modes` are groups of sites; each component may change its sign in an
    even number of groups, as in products of rows of several modes. Without `exact`, the joint does change,
    because the prior distinguishes the components, but too weakly to fix their order in all chains.
    """

    axes: Mapping[str, int]
    name: str = "component"
    signed: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    modes: tuple[tuple[str, ...], ...] = ()
    exact: bool = True

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The groups of sites that change sign together."""
        return self.modes or ((self.signed,) if self.signed else ())

    def group(self, site: str) -> int:
        """The number of the group of a site; -1 if its signs are fixed."""
        return next((g for g, sites in enumerate(self.groups) if site in sites), -1)


class Variational(NamedTuple):
    """Coordinate ascent on a distribution q of all parameters, in which sites are independent.

    begin(params, data, hyper)   -> q near a point: Params whose sites are mappings {name: array}, the numbers
                                 that describe the law of the site
    update(q, data, hyper)       -> q after one sweep: the law of every site at its best given all others
    expected(q, data, hyper)     -> minus the expected objective, or a lower bound of this where the method
                                 has auxiliary variables, each at its best law
    laws(q)                      -> {site: Distribution}
    widened(key, q, data, hyper) -> q with wider laws, and the factor of standard deviations: a correction for
                                 what independent sites lack; None: the method has none
    split(draws, hyper)          -> {site: draws}, where `laws` has one law for several sites
    below                        whether `expected` is a lower bound
    """

    begin: Callable[..., Any]
    update: Callable[..., Any]
    expected: Callable[..., Any]
    laws: Callable[..., dict[str, Any]]
    widened: Callable[..., tuple[Any, Any]] | None = None
    split: Callable[..., dict[str, Any]] = lambda draws, hyper: draws
    below: bool = False

    def elbo(self, q: Any, data: Any, hyper: Any) -> Any:
        """The lower bound of the log evidence, up to the constant of the objective."""
        return self.expected(q, data, hyper) + sum(
            law.entropy().sum() for law in self.laws(q).values()
        )


class Solver(NamedTuple):
    """How a point is found: sweeps of the paper, or descent of the objective.

    update(params, data, hyper)       -> Params after one sweep; None: LBFGS minimises the objective
    start(key, data, hyper)           -> Params where the deterministic engines (FixedPoint, LBFGS) begin;
                                      None: at `init`, like all other engines
    held(hyper)                       -> fields that these engines leave as `start` set them
    terms(params, data, hyper, which) -> vector: for an objective that is a sum of independent problems,
                                      one per entry of every site's first axis; only those in `which`
    own_rows                          the fields with a row for each row of the data, if several devices can
                                      share the work of the solver, each with its rows of the data and of
                                      these fields, by `FixedPoint(shares=True)` or `LBFGS(shares=True)`
                                      (`core/data/divided/own_rows.py`)
    """

    update: Callable[..., Any] | None = None
    start: Callable[..., Any] | None = None
    held: Callable[..., tuple[str, ...]] = lambda hyper: ()
    terms: Callable[..., Any] | None = None
    own_rows: tuple[str, ...] = ()


class Sampler(NamedTuple):
    """A sweep of Gibbs: auxiliary variables, then the blocks, then the moves.

    conditionals    {field: f(params, data, hyper) -> Distribution}, in sweep order; for a dict field,
                    f(params, data, hyper, key) for each key of the dict. Where a law cannot be drawn from,
                    its `sample` is a transition from `params` that leaves the law invariant
    augment(params, data, hyper)      -> Distribution of auxiliary variables given the rest. They are drawn
                    first in every sweep; conditionals then take them as a fourth argument (before the key).
                    They are not kept between sweeps
    moves           {name: f(key, params, data, hyper) -> Params}: transitions that leave the joint invariant
    row_moves(hyper)                  -> names of the moves that also leave the law of the users' own sites
                    given all others invariant, if other sites that they change are put back: new rows are
                    drawn with them. None: with these settings the conditionals cannot be drawn
    divisible       whether several devices can draw the rows, by `Gibbs(shares=True)`: all sums over cells
                    are `core.math.total`s (`core/data/divided/shares.py`)
    """

    conditionals: Mapping[str, Callable[..., Any]] = {}
    augment: Callable[..., Any] | None = None
    moves: Mapping[str, Callable[..., Any]] = {}
    row_moves: Callable[..., tuple[str, ...] | None] = lambda hyper: ()
    divisible: bool = False


class Choose(NamedTuple):
    """How `bf.fit` chooses settings at None, by held-out cells or rows.

    candidates(data, hyper, chosen)   -> [{setting: value}], from weak to strong. One is chosen and added to
                     `chosen`, and `candidates` is asked again, until nothing is left: []. `prepare` must
                     complete these settings too, for callers that choose nothing. `ready` must not depend on
                     candidates above 0: one program is compiled for all
    by               what compares candidates at held-out cells: "loss"; "law", the log score also where the
                     method chooses levels; "ranks", of pairs among all items
    sweeps, start    each candidate begins there (None: at the solver's `start`) and gets so many sweeps
    left_out(data, hyper)             -> Hyper with the settings that the user left open, and the labels and
                     scores, rows x labels, of the labelled rows by fits without them: for methods of labels
                     that have them at little cost. `prepare` chooses the cut by them
    """

    candidates: Callable[..., Any] | None = None
    by: str = "loss"
    sweeps: int = 20
    start: Callable[..., Any] | None = None
    left_out: Callable[..., tuple[Any, Any, Any]] | None = None


class Axes(NamedTuple):
    """The axes of the sites, and what the joint does not determine.

    dims            {field: axis names}; "{key}" stands for a dict field's key
    gauge(sites)    -> the symmetries of the joint, rotations and relabellings; or these themselves
    """

    dims: Mapping[str, tuple[str, ...]] = {}
    gauge: tuple[Rotation | Permutation, ...] | Callable[..., tuple[Any, ...]] = ()


class Notes(NamedTuple):
    """What others must know of the method.

    remarks(params, data, hyper)      -> [str]: notes for the reader of a point fit
    traits          {trait: reason}: the entries of TRAITS that hold for the method
    numbers         settings that are arguments of compiled programs: other data of the same sizes, or other
                    numbers, compile nothing (`Container.for_programs`)
    """

    remarks: Callable[..., list[str]] = lambda params, data, hyper: []
    traits: Mapping[str, str] = {}
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Method:
    """A published method: its objective, its solver and its generative model.

    name, cite                        the name for `bf.fit`, and the key of the paper in the references
    data                              the container of the method, such as Ratings
    Params, Hyper                     NamedTuples; the fields of Params are the model's sites
    prepare(data, hyper)              -> Hyper: fills settings that default to the data, refuses wrong ones
    ready(data, hyper)                -> data as all other functions take them: scaled, with graphs
    init(key, data, hyper)            -> Params
    objective(params, data, hyper)    -> scalar to minimise: minus the log joint, up to a constant
    model(data, hyper)                -> None; the NumPyro model
    predict(params, query, hyper)     -> Distribution of the queried cells, for one value of Params
    example(key)                      -> (data, hyper), tiny; the contract runs on this example
    derive(params, data, hyper)       -> {field: array, or {key: array}}: a function of the sites and the
                                      training data that prediction needs; kept with a fit
    fold_in(params, data, hyper)      -> Params with the factors of new rows, all other sites held. None:
                                      rows of ratings are drawn from their conditionals, or without them
                                      fitted by descent; rows of other data cannot be added to a fit
    solver, gibbs, choose, axes, notes          `Solver`, `Sampler`, `Choose`, `Axes`, `Notes`
    variational                       a `Variational` record, which the engine VB runs
    parts                             what it is made of (`bayesfac/parts/`), with an objective and a model
    """

    name: str
    cite: str
    data: type[Any]
    Params: Any
    Hyper: Any
    init: Callable[..., Any]
    objective: Callable[..., Any]
    model: Callable[..., None]
    predict: Callable[..., Any]
    example: Callable[..., Any]
    prepare: Callable[..., Any] = lambda data, hyper: hyper
    ready: Callable[..., Any] = lambda data, hyper: data
    derive: Callable[..., Mapping[str, Any]] | None = None
    fold_in: Callable[..., Any] | None = None
    solver: Solver = Solver()
    gibbs: Sampler = Sampler()
    variational: Variational | None = None
    choose: Choose = Choose()
    axes: Axes = Axes()
    notes: Notes = Notes()
    parts: Any = None

    def __post_init__(self) -> None:
        check_names(f"trait of {self.name}", self.notes.traits, TRAITS)

    def __repr__(self) -> str:
        return self.header or f"{self.name}: {', '.join(self.engines)}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a method of bayesfac by its name (its lambdas cannot be pickled), a composed one by its
        recipe, and others as usual."""
        if self.recipe:
            return lookup, (dict(self.recipe),)
        ours = self.module.startswith(("bayesfac.models.", "bayesfac.labels.models."))
        return (_at_home, (self.module, self.name)) if ours else super().__reduce_ex__(protocol)

    @property
    def module(self) -> str:
        """The name of the module that the method is written in."""
        return self.parts.home if self.parts else self.init.__module__

    @property
    def recipe(self) -> Mapping[str, Any] | None:
        """What a method that `bf.factorization` made is made of; None for all others."""
        return self.parts.recipe if self.parts else None

    @property
    def paper(self) -> str:
        """The title: the first line of the method's file, or the name if there is no file."""
        return (self.header or self.name).splitlines()[0].rstrip(".")

    @property
    def header(self) -> str:
        """The docstring of the method's file, or what a composition says; empty if there is neither."""
        if self.parts and self.parts.header:
            return self.parts.header(self)
        file = None if self.module == "__main__" else sys.modules.get(self.module)
        return (inspect.getdoc(file) if file else "") or ""

    @property
    def default_engine(self) -> str:
        """The engine that `bf.fit` runs by default."""
        return "FixedPoint" if self.solver.update else "LBFGS"

    @property
    def reads_features(self) -> bool:
        """Whether features of users and items enter the model."""
        return any("{key}_feature" in axes for axes in self.axes.dims.values())

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that can run this method."""
        own, g = ("FixedPoint",) if self.solver.update else (), self.gibbs
        short = ("Gibbs", "Quick") if g.conditionals else ()
        bound = ("VB",) if self.variational else ()
        return (*own, "LBFGS", "MAP", "SVI", "NUTS", *short, *bound)


def register(method: Method) -> Method:
    """Add a method to REGISTRY, in which engines, reports and contract tests find methods."""
    if method.name in REGISTRY:
        raise ValueError(f"Expected one method per name, got {method.name!r} twice")
    REGISTRY[method.name] = method
    return method


def _at_home(module: str, name: str) -> Method:
    import_module(module)
    return REGISTRY[name]


def lookup(name: str | Mapping[str, Any] | Method) -> Method:
    """Return the method of that name, recipe or file of a recipe, or raise an error that names the nearest
    one."""
    if isinstance(name, Mapping):
        return import_module("bayesfac.compose").of_recipe(name)
    if isinstance(name, str) and name.endswith(RECIPES):
        return import_module("bayesfac.compose").read(name)
    if not isinstance(name, Method):
        import_module("bayesfac.models")  # registers every method, before the first fit too
        check_names("method", (name,), REGISTRY)
    return name if isinstance(name, Method) else REGISTRY[name]


def portable(method: Method) -> str | Method:
    """The argument of `lookup` in another process: the name of a registered method, or the record itself.

    A copy of a record is another record, for which every program is compiled again.
    """
    return method.name if REGISTRY.get(method.name) is method else method


def settle(method: Method, data: Any, hyper: Mapping[str, Any]) -> Any:
    """Make the method's Hyper from the user's settings, completed and checked against the data.

    A default number, as of components, is reduced to what small data allow; a number of the user is refused.
    """
    check_names(f"hyper-parameter of {method.name}", hyper, method.Hyper._fields)
    plain = typed(method.Hyper, dict(hyper))
    while True:
        try:
            return method.prepare(data, method.Hyper(**plain))
        except TooLarge as error:
            if error.name in plain or error.name not in method.Hyper._fields:
                raise
            plain[error.name] = error.limit


def contain(method: Method, data: Any) -> Any:
    """Put data into the container that the method takes."""
    found, wanted = _container(type(data)), _container(method.data)
    if isinstance(data, str | PathLike):
        raise TypeError(
            f"Expected {wanted} for {method.name}, got the text {str(data)!r}: bf.datasets.read(path) reads "
            "a file, and bf.datasets.load(name) a data set"
        )
    if isinstance(data, method.data) and found == wanted:
        return told_of_rounding(data)
    if found in method.data.reads:
        return method.data(data)
    if found:
        both = found in MATRICES and wanted in MATRICES
        hint = f": bf.{wanted}(data) reads them as such" if both else ""
        raise TypeError(f"Expected {wanted} for {method.name}, got {found}{hint}")
    return told_of_rounding(method.data(data))


def _container(kind: type) -> str:
    """The container that a type is or extends; empty for other types."""
    return next((c.__name__ for c in kind.__mro__ if c.__name__ in CONTAINERS), "")


def sites(params: Any) -> dict[str, Any]:
    """Turn Params into sample sites: dict fields flattened to `field.key`, None left out."""
    return flattened(params._asdict())


def flattened(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten dict fields to `field.key` and leave out None."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        elif value is not None:
            flat[name] = value
    return flat


def from_sites(method: Method, values: Mapping[str, Any]) -> Any:
    """Turn sample sites into Params: the inverse of `sites`; an absent site becomes None."""
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
    """Return the axis names of one sample site."""
    name, _, key = site.partition(".")
    return tuple(dim.format(key=key) for dim in method.axes.dims[name])


def laws_of(method: Method, params: Any) -> dict[str, Callable[..., Any]]:
    """Map each site that has a conditional to f(params, data, hyper, *auxiliary)."""
    return laws_in(method.gibbs.conditionals, params)


def laws_in(conditionals: Mapping[str, Callable[..., Any]], params: Any) -> dict[str, Any]:
    """`laws_of` for conditionals without their method."""
    laws: dict[str, Callable[..., Any]] = {}
    for name, law in conditionals.items():
        value = getattr(params, name)
        if isinstance(value, Mapping):
            for key in value:
                laws[f"{name}.{key}"] = lambda *args, f=law, k=key: f(*args, k)
        elif value is not None:
            laws[name] = law
    return laws


def gauge_of(method: Method, names: Any) -> tuple[Rotation | Permutation, ...]:
    """Return the symmetries for these sites (a multi-view method has one relabelling per view)."""
    gauge = method.axes.gauge
    return gauge(tuple(names)) if callable(gauge) else gauge


def moved_sites(free: Rotation | Permutation) -> tuple[str, ...]:
    """List the sites that the symmetry `free` turns or relabels."""
    return (*free.axes, *free.forms)


def log_joint(method: Method, params: Any, data: Any, hyper: Any) -> Any:
    """Log density of the NumPyro model at `params`, in the constrained space, no Jacobian."""
    from numpyro.infer.util import log_density

    return log_density(method.model, (data, hyper), {}, sites(params))[0]
