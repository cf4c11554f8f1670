"""The scores of several matrices that share kinds of labels: in each, x_ij = u_i.v_j of two kinds.

Given all other kinds, a row is one regression over its cells in all matrices, with one list of cells
(`LinkedCells`), each with its target t and precision w:

    u_i | rest ~ N(m_i, S_i),   S_i^-1 = P + sum_c w_c v_c v_c',   m_i = S_i (P c_i + sum_c w_c t_c v_c)

There are no moments for VB.
"""

from dataclasses import replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Cells
from bayesfac.core.data.linked.relations import ENDS, RATINGS, Relations
from bayesfac.core.math import inner
from bayesfac.core.multilinear import multiplied
from bayesfac.parts import scales
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.sites import get, put
from bayesfac.parts.tensor import Keyed

Scores = dict[str, jax.Array]


def products(U: Any, data: Relations) -> Scores:
    """{matrix: u.v at its cells}, where `U` has the rows of each kind."""
    x = multiplied([U[kind] for kind in data.axes], data.links)
    found = {name: x[at] for name, at in data.spans.items()}
    if not isinstance(data.cells, Cells):  # a sample of the ratings; other matrices are complete
        found[RATINGS] = inner(U["user"], U["item"], data.cells)
    return found


class Matrices(Keyed):
    """One factor for each kind of label; `h.matrices` says which two kinds each matrix joins."""

    degree: ClassVar[int] = 2
    rotates: ClassVar[bool] = True

    def at(self, h: Any) -> Self:
        kinds = dict.fromkeys(kind for m in h.matrices for kind in (m.row, m.col))
        return replace(self, keys=tuple(kinds))

    def seen(self, names: Any) -> Self:
        """Users and items first: the ratings are their products."""
        return replace(self, keys=tuple(dict.fromkeys((*ENDS, *super().seen(names).keys))))

    def cells(self, data: Relations) -> Any:
        return data.links

    def scores(self, p: Any, data: Relations) -> Scores:
        return products(p.U, data)

    def predicted(self, p: Any, query: Any, h: Any) -> tuple[jax.Array, jax.Array]:
        return self.asked(h).predicted(p, query, h)

    def drawn(self, p: Any, query: Any, h: Any) -> tuple[jax.Array, Any]:
        return self.asked(h).drawn(p, query, h)

    def asked(self, h: Any) -> Matrix:
        """The matrix that is predicted."""
        m = next(m for m in h.matrices if m.name == h.predicts)
        return Matrix((self.factor(m.row), self.factor(m.col)))

    def opposed(self, data: Relations) -> list[scales.Groups]:
        """The two colours of kinds, if every matrix joins two colours."""
        colour = data.colours
        one, two = ([f for f in self.main if colour.get(f.axis) == c] for c in (1, -1))
        return [(one, two)] if colour else []

    def swollen(self, key: jax.Array, p: Any, data: Relations, h: Any, grown: Any) -> Any:
        """Metropolis steps along u -> u + (c - 1) (u.q) q for rows u of a kind and a random direction q, for
        each kind whose matrices all have levels.

        If the factors separate the levels, the posterior is as wide as the prior. But given the latent
        normals, the scale of the factors changes little.
        """
        for number, f in enumerate(sorted(self.main)):  # by kind, as JAX sorts mappings
            own = [m for m in h.matrices if f.axis in (m.row, m.col)]
            if any(m.levels is None for m in own):
                continue
            direction, width, walk = jax.random.split(jax.random.fold_in(key, number), 3)
            q = jax.random.normal(direction, (f.width(h), 1))
            q /= jnp.linalg.norm(q)
            step = 10 ** (-2 * jax.random.uniform(width, ()))
            along = put(p, {f.rows: get(p, f.rows) @ q @ q.T})
            given = p, self.scores(p, data), self.scores(along, data), [m.name for m in own]

            def rest(t: jax.Array, given: tuple = given) -> jax.Array:
                p, x, part, names = given  # scores are linear in the rows of one kind
                now = {name: x[name] + jnp.expm1(t) * part[name] for name in names}
                return grown(p, t, now, data, h)[1]

            p = scales.swollen(walk, step, self.every, [(f, q)], p, data, h, rest, times=4)[1]
        return p
