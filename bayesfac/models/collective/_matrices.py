"""The matrices of `cmf`: a description of each, its values, and the products of factors at its cells."""

from typing import Any, NamedTuple

import jax

from bayesfac.core.data.cells import Cells
from bayesfac.core.data.relations import RATINGS, Relations
from bayesfac.core.laws.ordinal import level_codes
from bayesfac.core.math import inner
from bayesfac.core.multilinear import multiplied


class Matrix(NamedTuple):
    """The description of a matrix that predictions need; `levels` is None if its law is Gaussian."""

    name: str
    row: str
    col: str
    offset: float
    scale: float
    levels: tuple[float, ...] | None


def matrices(hyper: Any) -> list[Matrix]:
    """All matrices, the ratings first."""
    return list(hyper.matrices or ())


def coded(data: Relations, m: Matrix) -> jax.Array:
    """The level numbers of a matrix, counted from 0."""
    return level_codes(data.observed(m.name), m.levels)


def standard(data: Relations, m: Matrix) -> jax.Array:
    return (data.observed(m.name) - m.offset) / m.scale


def seen(p: Any, data: Relations) -> dict[str, jax.Array]:
    """u.v at the cells of every matrix."""
    x = multiplied([p.U[kind] for kind in data.axes], data.links)
    parts = {name: x[at] for name, at in data.spans.items()}
    if not isinstance(data.cells, Cells):  # a sample of the ratings; other matrices are complete
        parts[RATINGS] = inner(p.U["user"], p.U["item"], data.cells)
    return parts


def probits(p: Any, data: Relations, hyper: Any) -> list[tuple[Matrix, jax.Array, jax.Array]]:
    """The matrices of levels, with u.v and the codes of their cells."""
    every = seen(p, data)
    own = [m for m in matrices(hyper) if m.levels is not None]
    return [(m, every[m.name], coded(data, m)) for m in own]
