r"""Gibbs for topic models with graphs: rows of A given their neighbours, and the weights of the graphs.

With w_is = lambda sum_t mu_t U^t_is, d_i = sum_s w_is and b_i the tilt of the words (`_splitting`), the log
density of row i given all other rows is, without a constant,

    kl        sum_k (v_ik - 1 + sum_s w_is a_sk) log x_k - (b_ik - sum_s w_is log a_sk) x_k - d_i x_k log x_k
    squared   sum_k (v_ik - 1) log x_k - (b_ik - 2 sum_s w_is a_sk) x_k - d_i x_k^2

and that of alpha is - lambda sum_t R_t alpha_t^(1/l). All are a tilted Dirichlet with one more concave term
h(x_k). A Metropolis step proposes from a tilted Dirichlet, in which h is replaced by c log x - e x. This
function has the first two derivatives of h at a point q: c = - h'' q^2 and e = c / q - h'. A few steps of
Newton's method put q near the centre of the distribution, and most proposals are accepted. q depends on the
neighbours and the words alone, so the proposal does not depend on the present row. The rows are coloured such
that neighbours have different colours, and all rows of one colour are drawn at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.graphs import Graphs, degrees, differences
from bayesfac.core.kernels.sparse import spread
from bayesfac.core.laws.simplex import TiltedDirichlet
from bayesfac.core.math import safe_log, uniforms

NEWTON = 5  # steps; more do not raise the acceptance


class Bend(NamedTuple):
    """The concave term: h(x) summed over each row; and (c, e) at q."""

    of: Callable[[jax.Array], jax.Array]
    matched: Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def entropy(degree: jax.Array) -> Bend:
    """h = - d x log x."""
    return Bend(
        lambda x: -jnp.sum(degree * x * safe_log(x), -1),
        lambda q: (degree * q, degree * (safe_log(q) + 2)),
    )


def power(scale: jax.Array, s: float) -> Bend:
    """h = - r x^s."""
    return Bend(
        lambda x: -jnp.sum(scale * x**s, -1),
        lambda q: (scale * s * (s - 1) * q**s, scale * s**2 * q ** (s - 1)),
    )


def step(key: jax.Array, x: jax.Array, law: TiltedDirichlet, bend: Bend, q: jax.Array) -> jax.Array:
    """One Metropolis step of each row of x, whose law is `law` times exp(h)."""

    def near(q: jax.Array) -> TiltedDirichlet:
        c, e = bend.matched(q)
        return TiltedDirichlet(law.concentration + c, law.tilt + e)

    q = jax.lax.fori_loop(0, NEWTON, lambda _, q: near(q).centre, q)
    proposal, (draw, coin) = near(q), jax.random.split(key)
    new = proposal.sample(draw)

    def weight(x: jax.Array) -> jax.Array:
        return bend.of(x) + law.log_prob(x) - proposal.log_prob(x)

    u = uniforms(coin, x.shape[:1], x.dtype)
    return jnp.where((jnp.log1p(-u) < weight(new) - weight(x))[:, None], new, x)


class SmoothRows(dist.Distribution):
    """Rows of A given all else: `words`, a tilted Dirichlet, times exp(- the sum of `weight` x differences).

    `sample` makes one Metropolis step of every row, starting from `A`, which has this law as its invariant
    law.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.simplex
    pytree_data_fields = ("A", "words", "graphs", "weight")
    pytree_aux_fields = ("kl",)

    def __init__(
        self, A: jax.Array, words: TiltedDirichlet, graphs: Graphs, weight: jax.Array, kl: bool
    ) -> None:
        self.A, self.words, self.graphs, self.weight, self.kl = A, words, graphs, weight, kl
        super().__init__((), A.shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        other = safe_log(value) if self.kl else value
        rough = self.weight @ differences(self.graphs, value, other)
        return jnp.sum(self.words.log_prob(value)) - rough

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            raise NotImplementedError("one step of the rows at a time")
        degree = degrees(self.graphs, self.weight)[:, None]

        def visit(number: jax.Array, A: jax.Array) -> jax.Array:
            rows = self.graphs.classes[number]
            new = self._step(jax.random.fold_in(key, number), A, rows, degree)
            return A.at[rows].set(new, mode="drop")

        return jax.lax.fori_loop(0, len(self.graphs.classes), visit, self.A)

    def _step(self, key: jax.Array, A: jax.Array, rows: jax.Array, degree: jax.Array) -> jax.Array:
        """New values of the rows of one colour."""

        def own(table: jax.Array) -> jax.Array:
            return table.at[rows].get(mode="clip")

        def beside(table: jax.Array) -> jax.Array:
            sums = spread(self.graphs.cells.by_row, self.weight[self.graphs.edge], table)
            return own(sums)

        near, v, b, d = beside(A), *map(own, (self.words.concentration, self.words.tilt, degree))
        q = (v + near) / jnp.sum(v + near, -1, keepdims=True)
        if self.kl:
            law = TiltedDirichlet(v + near, b - beside(safe_log(A)))
            return step(key, own(A), law, entropy(d), q)
        return step(key, own(A), TiltedDirichlet(v, b - 2 * near), power(d, 2.0), q)


class GraphWeights(dist.Distribution):
    """alpha given A: a density proportional to exp(- sum rough alpha^s) on the simplex.

    `sample` makes one Metropolis step from `alpha`; `peak` is the point of highest density.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.simplex
    pytree_data_fields = ("alpha", "rough", "peak")
    pytree_aux_fields = ("s",)

    def __init__(self, alpha: jax.Array, rough: jax.Array, peak: jax.Array, s: float) -> None:
        self.alpha, self.rough, self.peak, self.s = alpha, rough, peak, s
        super().__init__((), alpha.shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        return power(self.rough, self.s).of(value)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            raise NotImplementedError("one step of the weights at a time")
        flat = TiltedDirichlet(jnp.ones_like(self.alpha)[None], 0.0)
        bend = power(self.rough, self.s)
        return step(key, self.alpha[None], flat, bend, self.peak[None])[0]
