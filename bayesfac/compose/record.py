"""The record of a composed factorization."""

import math
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import scipy.sparse as sp

from bayesfac.compose.couplings import Coupling
from bayesfac.compose.laws import Law, NegativeBinomial
from bayesfac.compose.priors import Prior, Sparse, Spherical
from bayesfac.compose.words import header
from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.tensor import Tensor, few_cells
from bayesfac.core.method import Choose, Method, Notes, lookup
from bayesfac.core.programs import compiled_for
from bayesfac.parts.composition import Composition, composed
from bayesfac.parts.estimate import point
from bayesfac.parts.factors import Factor
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.positive import begun, settled
from bayesfac.parts.precisions import Gammas
from bayesfac.parts.tensor import Tensor as Modes
from bayesfac.parts.tensor import annealed

STRUCTURES = ("matrix", "tensor")
# a graph for tests: weights, and both ends of edges; further labels have none
FEW = ([1.0, 0.5, 2.0, 1.0], ([0, 1, 2, 0], [1, 2, 3, 2]))
TABLES = {"user": "U", "item": "V"}
# of the scales that held-out cells choose from
STEPS = [10 ** (-step / 8) for step in range(-6, 7)]
# {rows, columns, law: the method of bf.methods() with this model}, without biases
KNOWN = {
    ("NormalWishart", "NormalWishart", "Normal"): "bpmf",
    ("NormalWishart", "NormalWishart", "Ordinal"): "ordinal_mf",
    ("Relevance", "Relevance", "Normal"): "ard_mf",
    ("NormalWishart", "NoneType", "Normal"): "cp",  # a tensor has no columns
}
UNTRIED = (
    "the settings of this factorization follow from the data, and nobody has tried them on others: "
    "bf.compare(...) with a fit of a method of bf.methods() says whether it predicts better"
)


class Recipe(NamedTuple):
    """What a factorization is made of."""

    rows: Prior
    columns: Prior | None  # None: a tensor, whose modes all have the prior of the rows
    observed: Law
    biases: bool
    features: bool
    n_components: int
    name: str
    structure: str
    # (axis or mode, how its rows depend on one another); "" stands for all modes
    along: tuple[tuple[str, Coupling], ...] = ()

    def plain(self) -> dict[str, Any]:
        """The recipe for JSON."""
        along = {axis: {"part": type(x).__name__, **asdict(x)} for axis, x in self.along}
        added = {"user": "rows", "item": "columns"} if self.columns else {"": "rows"}
        parts: dict[str, Any] = {
            "rows": self.rows, "columns": self.columns, "observed": self.observed
        }  # fmt: skip
        tables = {e: {"part": type(x).__name__, **asdict(x)} for e, x in parts.items() if x}
        for axis in added.keys() & along.keys():
            tables[added[axis]]["along"] = along.pop(axis)
        own = self._asdict() | tables | {"along": None, "modes": along or None}
        return {name: x for name, x in own.items() if x is not None}

    @property
    def sides(self) -> dict[str, Prior]:
        """{axis: the prior of its rows}; a tensor's "" stands for all modes."""
        return {"user": self.rows, "item": self.columns} if self.columns else {"": self.rows}

    def lengths(self, data: Any) -> dict[str, int]:
        """{axis of `along`: its number of rows}."""
        axes = self.sides if self.columns else data.modes
        every = {"": max(data.shape), **dict(zip(axes, data.shape, strict=True))}
        return {axis: every[axis] for axis, _ in self.along}

    @property
    def unlinked(self) -> dict[str, str]:
        """{axis whose features cannot shift the rows: why}."""
        found = {axis: "rows that depend on one another have none" for axis, _ in self.along}
        for axis, prior in self.sides.items():
            if prior.positive or isinstance(prior, Sparse):
                found[axis] = "rows of this prior have no mean that they could shift"
        return found

    @property
    def positive(self) -> list[str]:
        """The axes whose rows have entries of at least 0."""
        return [axis for axis, prior in self.sides.items() if prior.positive]

    @property
    def sums(self) -> bool:
        """Whether scores are sums of parts that are at least 0."""
        return len(self.positive) == len(self.sides)


@cache
def made(recipe: Recipe) -> Method:
    """The record; one for each recipe, so that its programs are compiled once."""
    law, s, tensor = recipe.observed, structure(recipe), recipe.columns is None
    Hyper = named_tuple("Hyper", recipe, settings(recipe))
    sites = Composition(None, s, law.part, "").dims()
    Params = named_tuple("Params", recipe, dict.fromkeys(sites, (Any, None)))
    about = partial(header, recipe)
    c = Composition(Params, s, law.part, "", recipe=recipe.plain(), header=about)
    every: tuple[Any, ...] = (*recipe.sides.values(), *dict(recipe.along).values(), law)
    cited = dict.fromkeys(part.cite for part in every)
    own: dict[str, Any] = {}
    if not tensor:
        choose = Choose(candidates=partial(candidates, recipe, s))
        own = {"gibbs": {} if recipe.along or recipe.positive else law.sampler(), "choose": choose}
    init = partial(begun, c) if recipe.positive else c.init
    if tensor or recipe.positive:
        own["init"] = init = compiled_for(2, once=True)(partial(annealed, c, init))

    @compiled_for(2, once=True)
    def start(key: jax.Array, data: Any, h: Any) -> Any:
        p = init(key, data, h)
        return settled(c, key, p, data, h) if recipe.positive else point(c, p, data, h)

    return composed(
        recipe.name, cite=", ".join(cited), home="", data=Tensor if tensor else Ratings,
        Params=Params, Hyper=Hyper, structure=s, observed=law.part,
        example=partial(example, recipe, Hyper), prepare=partial(prepare, recipe),
        solver={"start": start} | ({} if law.has_update else {"update": None}),
        notes=Notes(remarks=lambda p, data, h: [tried(recipe)], traits=traits(recipe)),
        parts=c, **own,
    )  # fmt: skip


def tried(recipe: Recipe) -> str:
    """Whether somebody has tried the settings: a remark on points."""
    rows, columns, law = (type(x).__name__ for x in (recipe.rows, recipe.columns, recipe.observed))
    own = recipe.biases or recipe.along or getattr(recipe.observed, "per", None)
    same = None if own else KNOWN.get((rows, columns, law))
    return UNTRIED if same is None else f"this is the model of {same!r}, whose settings were tried"


def traits(recipe: Recipe) -> dict[str, str]:
    """What the factorization cannot do, with the reasons."""
    found = {}
    if recipe.columns is None:
        found["no_fold_in"] = "rows of a tensor belong to one of several modes"
    if recipe.along:
        found["coupled"] = "rows depend on one another"
        found["no_fold_in"] = "a new row would change all others"
    light = all(isinstance(prior, Spherical) for prior in recipe.sides.values())
    if isinstance(recipe.observed, NegativeBinomial) and (recipe.biases or not light):
        found["no_prior_predictive"] = (
            "scores drawn from this prior have no variance, and counts grow exponentially with them"
        )
    return found


def prepare(recipe: Recipe, data: Any, h: Any) -> Any:
    """The settings completed and checked."""
    check_modes(recipe, data)
    h = sized(data, h)
    if recipe.sums:
        h = checks.filled(h, offset=0.0)
    h, scale = recipe.observed.filled(data, h), recipe.observed.scale(data)
    if recipe.sums:
        scale = math.hypot(scale, data.mean - h.offset)
    for prior in dict.fromkeys(recipe.sides.values()):
        h = prior.filled(h, scale, len(data.shape))
    for axis, along in recipe.along:
        if not along.ordered and axis not in data.graphs:
            raise ValueError(
                f"Expected a graph of {axis}s, bf.Ratings(..., {axis}_graph=edges), for bf.Graph(), got none"
            )
        h = along.filled(h, axis, recipe.lengths(data)[axis])
    if recipe.biases:
        h = checks.filled(h, bias_rate=scale**2 / 10)
        checks.positive(h, "bias_shape", "bias_rate")
    if recipe.features:
        checks.positive(h, "ridge_shape", "ridge_rate")
        for axis, why in recipe.unlinked.items():
            if axis in data.x:
                raise ValueError(
                    f"Expected no features of the {axis}s, got some: {why}. features=False ignores them; "
                    "bf.NormalWishart() takes them"
                )
    checks.one_of(h, "scales", ("estimated", "joint"))
    return h


def sized(data: Any, h: Any) -> Any:
    """The settings, of a tensor with the modes of the data; too many components are refused."""
    most, two = math.prod(data.shape) // max(data.shape), "modes" not in h._fields
    of = "smaller of users and items" if two else "product of all modes but the largest"
    checks.count(h, "n_components", most, f"the {of}")
    if two:
        return h
    h = checks.filled(h, modes=data.modes)
    if h.modes != data.modes:
        raise ValueError(f"Expected the modes of the data, {data.modes}, got {h.modes}")
    return h


def check_modes(recipe: Recipe, data: Any) -> None:
    """Refuse couplings of modes that the data lack."""
    for mode, along in () if recipe.columns else recipe.along:
        if mode and mode not in data.modes:
            raise ValueError(f"Expected modes among {data.modes}, got {mode!r} with bf.{along}")


def example(recipe: Recipe, Hyper: Any, key: jax.Array) -> tuple[Any, Any]:
    """Data and settings for tests."""
    data, values = few(recipe, key), recipe.observed.example
    for prior in recipe.sides.values():
        values = values | prior.example
    values = values | {along.setting(axis)[0]: along.example for axis, along in recipe.along}
    own = {name: value for name, value in values.items() if name in Hyper._fields}
    return data, prepare(recipe, data, Hyper(n_components=2, scales="joint")._replace(**own))


def few(recipe: Recipe, key: jax.Array) -> Ratings | Tensor:
    """Data for tests."""
    law = recipe.observed
    if recipe.columns:
        data, axes = law.few(key), [axis for axis, along in recipe.along if not along.ordered]
        n = dict(zip(("user", "item"), data.shape, strict=True))
        graphs: dict[str, Any] = {
            f"{axis}_graph": sp.coo_matrix(FEW, shape=(n[axis], n[axis])) for axis in axes
        }
        return Ratings(data, levels=data.levels, **graphs) if axes else data
    cells = few_cells(key).frame()
    named = [mode for mode, _ in recipe.along if mode]
    cells.columns = [*cells.columns[: -1 - len(named)], *named, "value"]
    return Tensor(cells.assign(value=law.valued(cells["value"].to_numpy())))


def candidates(
    recipe: Recipe, s: Any, data: Any, h: Any, chosen: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Candidates of the law's settings, then of given scales that are open, for held-out cells."""
    if found := recipe.observed.choices(data, h, chosen):
        return found
    free = [f.precision.sd for f in s.main if not f.precision.site]
    free = [name for name in free if getattr(h, name) is None]
    if free and free[0] not in chosen:
        first = prepare(recipe, data, checks.sized(h, data)._replace(**chosen))
        return [{name: getattr(first, name) * step for name in free} for step in STEPS]
    for axis, along in recipe.along:
        name = along.setting(axis)[0]
        if getattr(h, name) is None and name not in chosen:
            return [{name: value} for value in along.choices(recipe.lengths(data)[axis])]
    return []


def structure(recipe: Recipe) -> Matrix | Modes:
    """The factors of both axes, and their biases; or those of all modes."""
    along = dict(recipe.along)
    if recipe.columns is None:
        return Modes(partial(of_mode, recipe))
    shared = type(recipe.rows) is type(recipe.columns)
    links = ("B", "ridge") if recipe.features else ("", "")

    def main(axis: str, prior: Prior) -> Factor:
        own = prior.factor(axis, TABLES[axis], shared)
        if axis in along:
            own = own._replace(along=along[axis].part(axis))
        return own if axis in recipe.unlinked else own._replace(link=links[0], ridge=links[1])

    user, item = (main(axis, prior) for axis, prior in recipe.sides.items())
    if not recipe.biases:
        return Matrix((user, item))
    links = ("C", "ridge_bias") if recipe.features else ("", "")

    def bias(axis: str) -> Factor:
        own = Gammas(f"tau_bias.{axis}", "bias_shape", "bias_rate", dims=())
        return Factor(axis, f"bias_{axis}", own, "", *links, bias=True)

    return Matrix((user, item), (bias("user"), bias("item")))


def of_mode(recipe: Recipe, mode: str) -> Factor:
    """The factor of a mode. The one that stands for all before the modes are known has the first coupling."""
    own, along = recipe.rows.keyed(mode), dict(recipe.along)
    known = [axis for axis in (mode, "") if axis in along]
    for axis in known or [axis for axis in along if mode == "{key}"][:1]:
        return own._replace(along=along[axis].part(axis))
    return own


def settings(recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """{setting: (type, default)}; an error where both sides want different values of one setting."""
    found: dict[str, Any] = {"n_components": recipe.n_components}
    for axis, prior in recipe.sides.items():
        for name, value in prior.settings(axis).items():
            if (other := found.setdefault(name, value)) is not value and other != value:
                raise ValueError(
                    f"Expected the same {name} for rows and columns, got {found[name]} and {value}: a "
                    "factorization has one setting of each name"
                )
    found |= dict(along.setting(axis) for axis, along in recipe.along)
    found |= recipe.observed.settings()
    if recipe.biases:
        found |= {"bias_shape": 1.0, "bias_rate": None}
    if recipe.features:
        found |= {"ridge_shape": 1.0, "ridge_rate": 0.1}
    found |= {"scales": "estimated"} | ({"modes": None} if recipe.columns is None else {})
    usual: dict[str, Any] = {
        "levels": tuple[float, ...] | None,
        "modes": tuple[str, ...] | None,
    }
    return {
        name: (usual.get(name, float | None if value is None else type(value)), value)
        for name, value in found.items()
    }


def named_tuple(name: str, recipe: Recipe, of: Mapping[str, tuple[Any, Any]]) -> Any:
    """A class of named tuples, {field: (type, default)}, whose values are pickled with the recipe."""
    values = [value for _, value in of.values()]
    kind: Any = namedtuple(name, [*of], defaults=values)  # type: ignore[misc]
    kind.__annotations__ = {field: known for field, (known, _) in of.items()}
    kind.__module__ = __name__
    kind.__reduce__ = lambda self: (restored, (recipe.plain(), name, (*self,)))  # type: ignore[method-assign, misc]
    return kind


def restored(recipe: Mapping[str, Any], name: str, values: tuple) -> Any:
    """A value of `Params` or `Hyper` in another process."""
    return getattr(lookup(recipe), name)(*values)
