"""A factorization of one's own: a prior of the rows, a law of the observations, and a structure.

    x_ij = u_i.v_j (+ b_i + c_j),   y_ij given x_ij by the law,   u_i and v_j by the priors
    x_ij..t = sum_k u_ik v_jk ... w_tk   in a tensor, whose modes all have one prior

The parts (`bayesfac/parts/`) make everything of the record: J and the NumPyro model, the solver, Gibbs, VB
where it exists, predictions and symmetries. `bf.check` tests that they agree.
"""

import json
import tomllib
from collections.abc import Mapping
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

from bayesfac.compose.couplings import AutoRegressive, Coupled, Coupling, Graph, RandomWalk
from bayesfac.compose.laws import (
    Bernoulli,
    Law,
    NegativeBinomial,
    Normal,
    Ordinal,
    StudentT,
    snake,
)
from bayesfac.compose.priors import (
    Horseshoe,
    NonNegative,
    NormalWishart,
    Prior,
    Relevance,
    Sparse,
    Spherical,
    SpikeAndSlab,
)
from bayesfac.compose.record import STRUCTURES, Recipe, made
from bayesfac.core import checks
from bayesfac.core.errors import check_names
from bayesfac.core.method import Method

PRIORS = {
    kind.__name__: kind
    for kind in (NormalWishart, Relevance, Spherical, SpikeAndSlab, Horseshoe, NonNegative)
}
COUPLINGS = {kind.__name__: kind for kind in (RandomWalk, AutoRegressive, Graph)}
LAWS = {kind.__name__: kind for kind in (Normal, StudentT, Ordinal, Bernoulli, NegativeBinomial)}


def factorization(
    rows: Prior | None = None,
    columns: Prior | None = None,
    observed: Law | None = None,
    *,
    biases: bool = False,
    features: bool = True,
    n_components: int = 10,
    name: str = "",
    structure: str = "matrix",
    modes: Mapping[str, Coupling] | None = None,
) -> Method:
    """Compose a factorization of ratings or of a tensor: `bf.fit`, every engine and `bf.check` take it as a
    method.

    Parameters
    ----------
    rows : NormalWishart, Relevance, Spherical, SpikeAndSlab, Horseshoe or NonNegative
        The prior of the users' rows, or of the rows of all modes; NormalWishart() by default. With the first
        three, rows may depend on one another: `bf.Relevance() + bf.RandomWalk()`, or AutoRegressive() or
        Graph(); these alone are added to NormalWishart().
    columns : optional
        The prior of the items' rows, likewise; by default that of the users', without what is added to it.
    observed : Normal, StudentT, Ordinal, Bernoulli or NegativeBinomial
        The law of a rating given its score; Normal() by default. A tensor takes the first two and the
        last.
    biases : bool
        Whether users and items have biases besides their rows, with precisions that are learned.
    features : bool
        Whether features of users and items shift the means of their rows; a tensor has none, and neither have
        rows of SpikeAndSlab, Horseshoe and NonNegative, and those that depend on one another.
    n_components : int
        The default number of components.
    name : str, optional
        A name for reports and folders; by default that of the parts.
    structure : "matrix" or "tensor"
        Whether the data are `bf.Ratings`, or a `bf.Tensor` with three or more labels for each cell.
    modes : mapping, optional
        {mode of a tensor: RandomWalk() or AutoRegressive()}, which is added to the prior `rows` of this mode.

    Returns
    -------
    Method
        `print` shows its objective, its model, its sites and its engines. A fit of it is saved with the
        recipe, and loads in another process.

    Examples
    --------
    >>> import bayesfac as bf
    >>> model = bf.factorization(rows=bf.NormalWishart(), columns=bf.Relevance(), observed=bf.Normal())
    >>> model.name
    'normal_wishart_relevance_normal'
    >>> fit = bf.fit(model, bf.datasets.load("ratings"), n_components=2, progress=False)
    >>> fit.params.U.shape[1]
    2
    >>> heavy = bf.factorization(observed=bf.StudentT(), structure="tensor")
    >>> cells = bf.Tensor([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], [1.0, 2.0, 2.0, 9.0])
    >>> bf.fit(heavy, cells, n_components=1, progress=False).params.U["mode_3"].shape
    (2, 1)
    """
    rows, of_rows = _sum("rows", rows)
    columns, of_columns = _sum("columns", columns)
    rows = rows or NormalWishart()
    observed = _part("observed", observed, Law, LAWS) or Normal()
    checks.whole_number("n_components", n_components, 1)
    if structure not in STRUCTURES:
        raise ValueError(f"Expected structure to be one of {STRUCTURES}, got {structure!r}")
    if structure == "tensor":
        _check_tensor(columns, observed, biases, of_rows)
        biases = features = False
        along = {"": of_rows, **_checked(modes or {})}
    else:
        columns = columns or rows
        along = {"user": of_rows, "item": of_columns}
        if modes:
            raise ValueError(f"Expected modes with structure='tensor' alone, got {modes}")
        if getattr(observed, "per", None) not in (None, "user", "item"):
            raise ValueError(
                f"Expected per to be 'user' or 'item' with structure='matrix', got {observed}: a tensor has "
                "other modes"
            )
    if rows.positive or (columns and columns.positive):
        _check_positive(rows, columns, observed, biases)
    kept = tuple((axis, part) for axis, part in along.items() if part)
    given = rows, columns, observed, bool(biases), bool(features), n_components
    return made(Recipe(*given, name or _name(*given, kept), structure, kept))


def _check_tensor(
    columns: Prior | None, observed: Law, biases: bool, of_rows: Coupling | None
) -> None:
    """Refuse what a tensor lacks, with the reason and what comes nearest."""
    if isinstance(of_rows, Graph):
        raise ValueError(
            "Expected bf.RandomWalk() or bf.AutoRegressive() with structure='tensor', got bf.Graph(): a "
            "tensor has no graph of its labels; structure='matrix' takes it"
        )
    if columns is not None:
        raise ValueError(
            f"Expected no columns with structure='tensor', got {columns}: all modes have the prior `rows`, "
            "so leave columns out; structure='matrix' takes two priors"
        )
    if biases:
        raise ValueError(
            "Expected biases=False with structure='tensor', got True: scores of a tensor are products alone. "
            "One component more for each mode can hold its biases, so raise n_components by their number; "
            "structure='matrix' takes biases"
        )
    if observed.has_draws:
        raise ValueError(
            "Expected observed to be bf.Normal(), bf.StudentT() or bf.NegativeBinomial() with "
            f"structure='tensor', got {observed}: its predictions for new labels need draws of scores, which "
            "a tensor lacks. bf.Normal() takes levels, and 0 and 1, as real values; structure='matrix' takes "
            f"bf.{type(observed).__name__}()"
        )


def _checked(modes: Mapping[str, Any]) -> dict[str, Coupling]:
    """What is added to the priors of single modes."""
    found = {}
    for mode, given in modes.items():
        part = given() if isinstance(given, type) and issubclass(given, Coupling) else given
        if not isinstance(part, Coupling) or not part.ordered:
            raise TypeError(
                f"Expected bf.RandomWalk() or bf.AutoRegressive() for the mode {mode!r}, got "
                f"{given!r}: a mode has the prior `rows`, to which they are added"
            )
        found[str(mode)] = part
    return found


def _sum(what: str, given: Any) -> tuple[Any, Coupling | None]:
    """The prior, and what is added to it."""
    if isinstance(given, type) and issubclass(given, Coupling):
        given = given()
    if isinstance(given, Coupling):
        return NormalWishart(), given
    if isinstance(given, Coupled):
        return given.prior, given.along
    return _part(what, given, Prior, PRIORS), None


def _check_positive(rows: Prior, columns: Prior | None, observed: Law, biases: bool) -> None:
    """Refuse what rows of at least 0 lack, with the reason and what comes nearest."""
    for other in (rows, columns):
        if isinstance(other, Sparse):
            raise ValueError(
                f"Expected no {other} beside bf.NonNegative(): sparse rows begin in turned coordinates, "
                "which rows of at least 0 do not have. bf.Relevance() goes with them"
            )
    if type(observed) not in (Normal, StudentT):
        raise ValueError(
            f"Expected observed to be bf.Normal() or bf.StudentT() with bf.NonNegative(), got {observed}: "
            "scores are then the values themselves, and not levels, log odds or log means. bf.Normal() takes "
            "levels, 0 and 1, and counts as real values; bf.methods() has models of counts"
        )
    if getattr(observed, "per", None):
        raise ValueError(
            f"Expected one noise with bf.NonNegative(), got {observed}: its fits begin with one precision of "
            "the noise. bf.StudentT() takes some values less seriously"
        )
    if biases:
        raise ValueError(
            "Expected biases=False with bf.NonNegative(), got True: a bias may have any sign, so a score "
            "would not be a sum of parts. Two components more can hold biases, so raise n_components by 2; "
            "bf.NormalWishart() takes biases"
        )


def _part(what: str, given: Any, kind: type, known: Mapping[str, type]) -> Any:
    """The part; an error that names all parts if it is none."""
    if isinstance(given, type) and issubclass(given, kind):
        given = given()
    if given is None or isinstance(given, kind):
        return given
    every = ", ".join(f"bf.{name}()" for name in known)
    raise TypeError(f"Expected {what} to be one of {every}, got {given!r}")


def _name(
    rows: Prior, columns: Prior | None, observed: Law, biases: bool, features: bool, K: int,
    along: tuple[tuple[str, Coupling], ...],
) -> str:  # fmt: skip
    """The parts in one word."""
    added, sides = dict(along), [("user", rows), ("item", columns)]
    if columns is None or (columns == rows and not along):
        sides = [("" if columns is None else "user", rows)]
    every = [part for axis, prior in sides for part in (prior, added.pop(axis, None)) if part]
    words = [*(snake(type(part).__name__) for part in every), observed.word]
    if columns is None:
        modes = [f"{mode}_{snake(type(part).__name__)}" for mode, part in added.items()]
        return "_".join([*words, "tensor", *modes])
    return "_".join([*words, *(["biases"] if biases else []), *([] if features else ["alone"])])


# -- recipes -----------------------------------------------------------------------------------------------
def of_recipe(recipe: Mapping[str, Any]) -> Method:
    """The factorization of a recipe: the arguments of `factorization`, with each part by its name or as a
    table {"part": name, setting: value}. A prior may have an entry "along": what is added to it."""
    check_names("entry of a recipe", recipe, [*signature(factorization).parameters])
    given = dict(recipe)
    if "modes" in given:
        modes = given["modes"].items()
        given["modes"] = {mode: _of_table(x, mode, COUPLINGS) for mode, x in modes}
    for entry, known in (("rows", PRIORS), ("columns", PRIORS), ("observed", LAWS)):
        if entry in given:
            given[entry] = _of_table(given[entry], entry, known)
    return factorization(**given)


def _of_table(table: Any, entry: str, known: Mapping[str, Any]) -> Any:
    settings = {"part": table} if isinstance(table, str) else dict(table)
    name, along = settings.pop("part", None), settings.pop("along", None)
    check_names(f"part for {entry}", [name], known)
    check_names(f"setting of {name}", settings, known[name].__dataclass_fields__)
    made = known[name](**settings)
    return made if along is None else made + _of_table(along, "along", COUPLINGS)


def read(path: str | PathLike[str]) -> Method:
    """The factorization whose recipe is in a TOML or JSON file.

    rows = "NormalWishart"
    columns = {part = "Relevance", tau_shape = 0.5, along = "RandomWalk"}
    observed = "Normal"
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        recipe = tomllib.loads(text) if Path(path).suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise ValueError(f"Expected a recipe in {path}, got {error}") from error
    return of_recipe(recipe)
