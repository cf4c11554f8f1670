r"""Nonparametric maximum margin matrix factorization: it learns the number of components.

Xu, Zhu & Zhang, "Nonparametric Max-Margin Matrix Factorization for Collaborative Prediction", NIPS 2012.
Users have binary features from an Indian buffet process, which are inferred by mean field under a margin
penalty.

    J(Z, V, theta, nu) = C sum_ij sum_r h(T_ij^r (theta_ir - z_i.v_j)) + sum_ik KL(z_ik || pi_k)
                       + |V|^2 / (2 s_v^2) + 1/(2 s^2) |theta - c|^2 - (alpha - 1) sum_k log nu_k
    pi_k = nu_1 ... nu_k,      KL(z || pi) = z log z/pi + (1 - z) log (1 - z)/(1 - pi)

    paper         here        shape
    psi = q(Z=1)  Z           users x K     between 0 and 1: the probability that a user has a feature
    V             V           items x K     (their means; the paper's q(V) is Gaussian)
    theta         theta       users x R - 1
    nu            nu          K             sticks, Beta(alpha, 1)
    C             cost

K is the largest number of features. A feature that does not lower the loss keeps z at its small pi. As in the
paper, the parameters z of the mean field are estimated with the margin loss. Their prior factor is exp(-KL),
so the posterior is a *generalised* one. h is the smooth hinge loss.

The solver minimises an upper bound of J block by block, so that J never rises. In the bound each hinge is
replaced by a parabola that touches the hinge and lies above it (`bends`). V is a ridge regression. The best
theta is a linear function of Z; after this function is substituted, each z_ik is the root of an increasing
function. The sticks nu take an EM step, as 1 - nu_1 ... nu_k is the sum over m <= k of
nu_1 ... nu_{m-1} (1 - nu_m). L-BFGS on the logits of z is slow: on MovieLens-100K it needs 4,000 iterations
for what these blocks reach in 20 sweeps. One update is `ROUNDS` sweeps of blocks, because J continues to fall
in many small steps.

Length: no other method uses the law of z, the bounds and the exact steps of Z.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.losses import BINARY
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.ordinal import Levels, codes, levelled
from bayesfac.core.math import inner, normals, products, row_sums
from bayesfac.core.method import Axes, Choose, Method, Solver, register
from bayesfac.parts.observed import margins


def kl_bernoulli(z: jax.Array, pi: jax.Array) -> jax.Array:
    """KL(z || pi) of two Bernoulli probabilities."""
    xlogy = jax.scipy.special.xlogy
    return xlogy(z, z / pi) + xlogy(1 - z, (1 - z) / (1 - pi))


class Membership(dist.Distribution):
    """The factor exp(-KL(z || pi)) over probabilities z in (0, 1); samples and moments follow this density.

    `log_prob` omits the normalising constant, which depends on pi, so the prior is a generalised one.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.unit_interval
    pytree_data_fields = ("pi",)
    GRID = 512

    def __init__(self, pi: jax.Array) -> None:
        self.pi = pi
        super().__init__(jnp.shape(pi), ())

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -kl_bernoulli(value, self.pi)

    def _scores(self) -> tuple[jax.Array, jax.Array]:
        """The midpoints of a grid, and the log of the factor at each midpoint: (..., GRID)."""
        z = (jnp.arange(self.GRID, dtype=self.pi.dtype) + 0.5) / self.GRID
        return z, -kl_bernoulli(z, self.pi[..., None])

    def _table(self) -> tuple[jax.Array, jax.Array]:
        """The midpoints, and the probability of each cell of the grid."""
        z, scores = self._scores()
        return z, jax.nn.softmax(scores, -1)

    @property
    def log_mass(self) -> jax.Array:
        """The log of the integral of the factor."""
        return jax.nn.logsumexp(self._scores()[1], -1) - jnp.log(self.GRID)

    @property
    def mean(self) -> jax.Array:
        z, p = self._table()
        return p @ z

    @property
    def variance(self) -> jax.Array:
        z, p = self._table()
        return p @ z**2 - (p @ z) ** 2

    def icdf(self, q: jax.Array) -> jax.Array:
        """The quantiles of q, one q for each entry; linear within a cell of the grid."""
        z, p = self._table()
        below = jnp.cumsum(p, -1)
        edge = jnp.concatenate([z - 0.5 / self.GRID, jnp.ones(1, z.dtype)])
        share = jnp.concatenate([jnp.zeros_like(below[..., :1]), below], -1)
        return jax.vmap(jnp.interp, (0, 0, None))(q, share, edge)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        key_cell, key_within = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        cell = jax.random.categorical(key_cell, jnp.log(self._table()[1]), shape=shape)
        return (cell + jax.random.uniform(key_within, shape, self.pi.dtype)) / self.GRID


SCALE = 0.3
ROUNDS = 8  # sweeps of blocks in one update
PASSES = 1  # number of passes over the features of a user
HALVINGS = 32


class Params(NamedTuple):
    Z: jax.Array
    V: jax.Array
    theta: jax.Array
    nu: jax.Array


class Hyper(NamedTuple):
    n_components: int = 20
    cost: float = 0.5
    alpha: float = 3.0
    scale_item: float | None = None  # None: chosen by held-out ratings; 0.3 if nothing is held out
    scale_theta: float = 1.0
    centres: tuple[float, ...] | None = None  # None: best if all users are alike
    loss: str = "smooth_hinge"
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = levelled(data, hyper, "ipmmmf")
    if hyper.scale_item is None:
        hyper = hyper._replace(scale_item=SCALE)
    checks.positive(hyper, "cost", "scale_item", "scale_theta")
    checks.at_least_one(hyper, "alpha")
    checks.smooth_loss(hyper)
    return margins.centred(data, hyper)


def choices(data: Ratings, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates for the scale of the items, from wide to narrow."""
    if hyper.scale_item is not None or "scale_item" in chosen:
        return []
    return [{"scale_item": SCALE * 10 ** (-step / 8)} for step in range(-6, 7)]


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Features near their prior probabilities, sticks at their prior means."""
    K, (kz, kv) = hyper.n_components, jax.random.split(key)
    nu = jnp.full(K, hyper.alpha / (hyper.alpha + 1))
    logit = jax.scipy.special.logit(jnp.cumprod(nu)) + normals(kz, (data.n_users, K))
    V = hyper.scale_item * normals(kv, (data.n_items, K)) / K**0.5
    theta = margins.start_thresholds(hyper.centres, data.n_users)
    return Params(jax.nn.sigmoid(logit), V, theta, nu)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    x, rows = inner(p.Z, p.V, data.cells), data.cells.by_row
    cost = hyper.cost * margins.total_ordinal(x, p.theta, codes(data), rows, None, hyper.loss)
    cost += jnp.sum(kl_bernoulli(p.Z, jnp.cumprod(p.nu)))
    cost += 0.5 * jnp.sum(p.V**2) / hyper.scale_item**2
    cost += margins.threshold_energy(p.theta, hyper.centres, hyper.scale_theta)
    return cost - (hyper.alpha - 1) * jnp.sum(jnp.log(p.nu))


def bends(z: jax.Array, loss: str) -> jax.Array:
    """The smallest second derivative of a parabola that touches the loss at margin z and is nowhere below.

    Up to a linear function, the logistic loss is even about 0 and the smooth hinge is even about 1/2. Then
    the result is the slope divided by the distance (de Leeuw & Lange, "Sharp quadratic majorization in one
    dimension", 2009).
    """
    if loss == "modified_square":
        return jnp.full_like(z, 2.0)
    if loss == "logistic":
        half = jnp.maximum(jnp.abs(z) / 2, 1e-3)
        return jnp.where(jnp.abs(z) > 2e-3, jnp.tanh(half) / (4 * half), 0.25)
    return 1 / jnp.maximum(1, jnp.abs(2 * z - 1))


def parabolas(p: Params, data: Ratings, hyper: Hyper) -> tuple[jax.Array, jax.Array, jax.Array]:
    """x; and the slope in theta - x and the second derivative of every parabola, cells x (R - 1)."""
    x = inner(p.Z, p.V, data.cells)
    sign = jnp.where(jnp.arange(len(hyper.levels) - 1) < codes(data)[:, None], -1.0, 1.0)
    z = sign * (p.theta[data.cells.row] - x[:, None])
    return x, hyper.cost * sign * BINARY[hyper.loss].slope(z), hyper.cost * bends(z, hyper.loss)


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    return jax.lax.fori_loop(0, ROUNDS, lambda _, p: sweep(p, data, hyper), p)


def sweep(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Minimise bounds of J: over V, then over Z and theta, then over nu."""
    x, slope, bend = parabolas(p, data, hyper)
    weight, K = jnp.sum(bend, 1), hyper.n_components
    ridge = jnp.eye(K, dtype=p.V.dtype) / hyper.scale_item**2
    target = x + jnp.sum(slope, 1) / weight
    items = GaussianRows(data.cells.by_col, target, p.Z, weight, ridge, jnp.zeros(K, p.V.dtype))
    p = users(p._replace(V=items.mean), data, hyper)
    return p._replace(nu=sticks(p, hyper))


def users(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Z and theta. The best theta is a linear function of Z, which is substituted in the bound."""
    _, slope, bend = parabolas(p, data, hyper)
    rows, K = data.cells.by_row, hyper.n_components
    square = jnp.reshape(p.V[:, :, None] * p.V[:, None], (-1, K * K))
    gram = jnp.reshape(sparse.spread(rows, jnp.sum(bend, 1), square), (-1, K, K))
    pull = sparse.spread(rows, jnp.sum(slope, 1), p.V)
    between = jnp.stack([sparse.spread(rows, b, p.V) for b in bend.T], 1)  # users x (R - 1) x K
    own = row_sums(rows, bend) + hyper.scale_theta**-2
    away = p.theta - jnp.asarray(hyper.centres, p.theta.dtype)
    force = (row_sums(rows, slope) + away / hyper.scale_theta**2) / own
    gram -= jnp.einsum("irk,irl->ikl", between / own[..., None], between)
    pull += jnp.einsum("ikl,il->ik", gram, p.Z) - jnp.einsum("ir,irk->ik", force, between)
    Z = features(p, gram, pull)
    moved = jnp.einsum("irk,ik->ir", between, Z - p.Z) / own - force
    return p._replace(Z=Z, theta=p.theta + moved)


def features(p: Params, gram: jax.Array, pull: jax.Array) -> jax.Array:
    """Z, column by column: z minimises G z^2/2 - r z + KL(z || pi), where G z - r + logit z = logit pi."""
    K, prior = p.Z.shape[1], jax.scipy.special.logit(jnp.cumprod(p.nu))

    def column(count: jax.Array, Z: jax.Array) -> jax.Array:
        k = count % K
        own = gram[:, k, k]
        high = pull[:, k] - jnp.sum(gram[:, k] * Z, 1) + own * Z[:, k] + prior[k]

        def halve(step: jax.Array, logit: jax.Array) -> jax.Array:
            above = own * jax.nn.sigmoid(logit) + logit > high
            return logit + own * jnp.where(above, -1, 1) * 0.5 ** (step + 2)

        z = jax.nn.sigmoid(jax.lax.fori_loop(0, HALVINGS, halve, high - own / 2))
        tiny = jnp.finfo(z.dtype).eps
        return Z.at[:, k].set(jnp.clip(z, tiny, 1 - tiny))

    return jax.lax.fori_loop(0, PASSES * K, column, p.Z)


def sticks(p: Params, hyper: Hyper) -> jax.Array:
    """nu after an EM step. The unobserved variable is the stick m <= k at which feature k was broken off."""
    on = p.Z.sum(0)
    off = len(p.Z) - on
    before = jnp.cumsum(jnp.log(p.nu)) - jnp.log(p.nu)
    broken = jnp.tril(jnp.ones_like(p.nu[:, None] * p.nu))  # entry (k, m): m <= k
    share = jax.nn.softmax(jnp.where(broken > 0, jnp.log1p(-p.nu) + before, -jnp.inf), 1)
    after = jnp.flip(jnp.cumsum(jnp.flip(share, 1), 1), 1) - share  # the sum over sticks after m
    kept = hyper.alpha - 1 + jnp.flip(jnp.cumsum(jnp.flip(on))) + off @ after
    # for a stick of exactly one, the log of the remaining part would be infinite
    return jnp.minimum(kept / (kept + off @ share), 1 - jnp.finfo(kept.dtype).eps)


def likelihood(x: jax.Array, theta: jax.Array, hyper: Hyper) -> margins.Margins:
    return margins.Margins(hyper.levels, x, theta, hyper.loss, strength=hyper.cost)


def model(data: Ratings, hyper: Hyper) -> None:
    n, m = data.shape
    one = jnp.ones(hyper.n_components)
    nu = numpyro.sample("nu", dist.Beta(hyper.alpha * one, 1).to_event(1))
    with numpyro.plate("user", n):
        Z = numpyro.sample("Z", Membership(jnp.cumprod(nu)).to_event(1))
        theta = margins.sample_thresholds(hyper.centres, hyper.scale_theta)
    with numpyro.plate("item", m):
        V = numpyro.sample("V", dist.Normal(0, hyper.scale_item * one).to_event(1))
    x = inner(Z, V, data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", likelihood(x, theta[data.cells.row], hyper), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; the features of new users and the factors of new items are drawn from their priors."""
    prior = Membership(jnp.cumprod(p.nu))
    K, dtype = hyper.n_components, p.V.dtype
    item = (jnp.zeros(K, dtype), hyper.scale_item**2 * jnp.eye(K, dtype=dtype))
    user = (prior.mean, jnp.diag(prior.variance))

    def x(cells: Query | Grid) -> tuple:
        mean, normal = products(p.Z, p.V, cells, user, item)

        def at(point: jax.Array) -> jax.Array:
            u = prior.icdf(jax.scipy.stats.norm.cdf(point[1:]))
            row, col = jnp.asarray(cells.row), jnp.asarray(cells.col)
            both = hyper.scale_item * jnp.linalg.norm(u) * point[0]
            of_new_user = jnp.where(col < 0, both, jnp.asarray(p.V)[col] @ u)
            return jnp.where(row < 0, of_new_user, normal(point))

        return mean, at

    def known(x: jax.Array, theta: jax.Array) -> Levels:
        return likelihood(x, theta, hyper).levels()

    return margins.predicted(known, x, K, p.theta, query, hyper.centres, hyper.scale_theta)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(3, cost=0.8, alpha=2.0, scale_item=1.0, scale_theta=2.0))


# fmt: off
METHOD = register(Method(
    name="ipmmmf", cite="xu2012ipmmmf", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(update=update), choose=Choose(candidates=choices),
    axes=Axes(
        dims={"Z": ("user", "component"), "V": ("item", "component"),
            "theta": ("user", "threshold"), "nu": ("component",)},
    ),
))
# fmt: on
