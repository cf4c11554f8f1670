"""A factorization of one's own: a prior of the rows, a law of the observations, and a structure.

    x_ij = u_i.v_j (+ b_i + c_j),   y_ij given x_ij by the law,   u_i and v_j by the priors
    x_ij..t = sum_k u_ik v_jk ... w_tk   in a tensor, whose modes all have one prior

The parts (`bayesfac/parts/`) make everything of the record: J and the NumPyro model, the solver, Gibbs, VB
where it exists, predictions and symmetries. `bf.check` tests that they agree.
"""

import json
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from bayesfac.compose.laws import Bernoulli, Law, NegativeBinomial, Normal, Ordinal, StudentT
from bayesfac.compose.priors import (
    Horseshoe,
    NormalWishart,
    Prior,
    Relevance,
    Spherical,
    SpikeAndSlab,
)
from bayesfac.compose.record import STRUCTURES, Recipe, made
from bayesfac.core import checks
from bayesfac.core.errors import check_names
from bayesfac.core.method import Method

PRIORS = {
    kind.__name__: kind for kind in (NormalWishart, Relevance, Spherical, SpikeAndSlab, Horseshoe)
}
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
) -> Method:
    """Compose a factorization of ratings or of a tensor: `bf.fit`, every engine and `bf.check` take it as a
    method.

    Parameters
    ----------
    rows : NormalWishart, Relevance, Spherical, SpikeAndSlab or Horseshoe
        The prior of the users' rows, or of the rows of all modes; NormalWishart() by default.
    columns : optional
        The prior of the items' rows, one of these; by default that of the users'.
    observed : Normal, StudentT, Ordinal, Bernoulli or NegativeBinomial
        The law of a rating given its score; Normal() by default. A tensor takes the first two and the
        last.
    biases : bool
        Whether users and items have biases besides their rows, with precisions that are learned.
    features : bool
        Whether features of users and items shift the means of their rows; a tensor has none, and rows of
        SpikeAndSlab and Horseshoe neither.
    n_components : int
        The default number of components.
    name : str, optional
        A name for reports and folders; by default that of the parts.
    structure : "matrix" or "tensor"
        Whether the data are `bf.Ratings`, or a `bf.Tensor` with three or more labels for each cell.

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
    rows = _part("rows", rows, Prior, PRIORS) or NormalWishart()
    columns = _part("columns", columns, Prior, PRIORS)
    observed = _part("observed", observed, Law, LAWS) or Normal()
    checks.whole_number("n_components", n_components, 1)
    if structure not in STRUCTURES:
        raise ValueError(f"Expected structure to be one of {STRUCTURES}, got {structure!r}")
    if structure == "tensor":
        _check_tensor(columns, observed, biases)
        biases = features = False
    else:
        columns = columns or rows
    given = rows, columns, observed, bool(biases), bool(features), n_components
    return made(Recipe(*given, name or _name(*given), structure))


def _check_tensor(columns: Prior | None, observed: Law, biases: bool) -> None:
    """Refuse what a tensor lacks, with the reason and what comes nearest."""
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


def _part(what: str, given: Any, kind: type, known: Mapping[str, type]) -> Any:
    """The part; an error that names all parts if it is none."""
    if isinstance(given, type) and issubclass(given, kind):
        given = given()
    if given is None or isinstance(given, kind):
        return given
    every = ", ".join(f"bf.{name}()" for name in known)
    raise TypeError(f"Expected {what} to be one of {every}, got {given!r}")


def _name(
    rows: Prior, columns: Prior | None, observed: Law, biases: bool, features: bool, K: int
) -> str:
    """The parts in one word."""
    sides = [rows] if columns in (None, rows) else [rows, columns]
    words = [_snake(type(part).__name__) for part in (*sides, observed)]
    if columns is None:
        return "_".join([*words, "tensor"])
    return "_".join([*words, *(["biases"] if biases else []), *([] if features else ["alone"])])


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


# -- recipes -----------------------------------------------------------------------------------------------
def of_recipe(recipe: Mapping[str, Any]) -> Method:
    """The factorization of a recipe: the arguments of `factorization`, with each part by its name or as a
    table {"part": name, setting: value}."""
    check_names("entry of a recipe", recipe, Recipe._fields)
    given = dict(recipe)
    for entry, known in (("rows", PRIORS), ("columns", PRIORS), ("observed", LAWS)):
        if entry in given:
            given[entry] = _of_table(given[entry], entry, known)
    return factorization(**given)


def _of_table(table: Any, entry: str, known: Mapping[str, Any]) -> Any:
    settings = {"part": table} if isinstance(table, str) else dict(table)
    name = settings.pop("part", None)
    check_names(f"part for {entry}", [name], known)
    check_names(f"setting of {name}", settings, known[name].__dataclass_fields__)
    return known[name](**settings)


def read(path: str | PathLike[str]) -> Method:
    """The factorization whose recipe is in a TOML or JSON file.

    rows = "NormalWishart"
    columns = {part = "Relevance", tau_shape = 0.5}
    observed = "Normal"
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        recipe = tomllib.loads(text) if Path(path).suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise ValueError(f"Expected a recipe in {path}, got {error}") from error
    return of_recipe(recipe)
