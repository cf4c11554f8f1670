r"""Non-linear matrix factorization: each user's ratings are a Gaussian process over positions of items.

Lawrence & Urtasun, "Non-linear Matrix Factorization with Gaussian Processes", ICML 2009. The text of the
paper was not available; its model is reconstructed from the abstract and from later papers that cite it.

The paper (reconstructed): items have positions x_j ~ N(0, I), user i has a function f_i ~ GP(0, k), and
y_ij = f_i(x_j) + noise. With f_i integrated out, the ratings of a user are normal with covariance
k(X_i, X_i) + I/alpha, where X_i are the positions of the items that the user rated. Stochastic gradients over
users minimise minus the log of this marginal density over X and the scales of k.

Here k is bias + linear + RBF, and the RBF part is a sum over R fixed frequencies z_r ~ N(0, I / length^2)
(Rahimi & Recht, NIPS 2007). Then f_i(x) = w_i . F(x), with w_i normal. The paper's form needs the Cholesky
factor of a matrix of each user's n_i ratings in every step, in time n_i^3. With M = 1 + K + 2R features the
time is n_i M^2 + M^3, and every w_i is a ridge regression. Given all w_i, a position depends on M x M sums,
so many steps of x_j need only one pass over the ratings. For large R the covariance approaches the paper's.

    J = sum_ij [ alpha/2 (y_ij - m - c_j - w_i.F(x_j))^2 - 1/2 log alpha ] + b alpha - (a - 1) log alpha
      + 1/2 sum_j |x_j|^2 + 1/2 sum_i (w_i' L w_i - log|L|) + 1/2 sum_j (lambda_c c_j^2 - log lambda_c)
      + sum_g [ rate lambda_g - (shape - 1) log lambda_g ]
    F(x) = (1, x, cos(z_1.x), ..., sin(z_R.x)), the last 2R over R^1/2;  L = diag(lambda), by groups

    paper      here        shape
    X          X           items x K
    -          W           users x M           functions of the users, integrated out in the paper
    -          bias_item   items               c: the mean function of all users
    theta      precision   groups              1 / (scales of k)^2: constant, each x_k, RBF; last: lambda_c
    sigma^-2   alpha       scalar

The joint mode over W and X is a poor estimate. So is the mode of X in the paper's marginal if the scales are
estimated with it: on a split 90/10 of MovieLens-100K, with a linear kernel, its RMSE rises from .939 after 10
sweeps to .986 after 40. With `scales="estimated"` a point fit finds X, c, precision and alpha by EM. In this
EM the w_i, c_j and x_j have normal distributions; the covariance of x_j is the Gauss-Newton one of its
conditional (Laplace; RMSE .894 there; by default .896, and 90 % intervals cover .886). The solver then
minimises J over W alone, whose mode is the mean of the Gaussian processes. With `scales="joint"` the solver
sets each site in turn to its conditional mode, with Gauss-Newton steps of X. Gibbs draws all sites: Gaussian
and Gamma blocks, and Hamiltonian steps of each position.

Positions that are rotated, or -x with some signs of w changed, have almost or exactly the same density, and
the method declares no rule to align them. So compare the predictions of chains, and not positions.

Length: features, positions and EM have no counterpart in the other methods.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.kernels.sparse import spread
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.empirical_bayes import biases
from bayesfac.core.laws.normal_wishart import mode, normal_rows, to_modes
from bayesfac.core.math import bilinear, inner, normals, pick
from bayesfac.core.method import Axes, Choose, Method, Sampler, Solver, register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared.gplvm_features import (
    anywhere,
    features,
    flat,
    frequencies,
    groups,
    n_groups,
    slopes,
    square_of,
)
from bayesfac.parts.estimate import noise_choices

SWEEPS = 30  # of EM, as for the scales of bpmf
SHARES = (1, 1 / 2, 1 / 4, 1 / 16, 0)  # of a Gauss-Newton step: the first that does not raise J
PATHS, LEAPS = 2, 5  # Hamiltonian paths of a Gibbs sweep, and their steps
STEP = 0.2, 0.5  # the smallest and the largest step of a path


class Params(NamedTuple):
    W: jax.Array
    X: jax.Array
    bias_item: jax.Array
    precision: jax.Array
    alpha: jax.Array


class Hyper(NamedTuple):
    n_components: int = 10
    n_frequencies: int = 20  # 0: a linear kernel
    length: float | None = None  # of the RBF kernel
    alpha_shape: float = 1.0  # alpha ~ Gamma(shape, rate)
    alpha_rate: float | None = (
        None  # None: the variance of the ratings, or chosen (`noise_choices`)
    )
    shape: float = 1.0  # precision ~ Gamma(shape, rate)
    rate: float | None = None  # None: a tenth of the variance of the ratings
    scales: str = "estimated"  # how a point fit sets all sites but W; the other choice is "joint"
    offset: float | None = None  # None: the mean rating


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    hyper = checks.filled(hyper, length=hyper.n_components**0.5, offset=data.mean)
    hyper = checks.filled(hyper, alpha_rate=data.spread**2, rate=data.spread**2 / 10)
    checks.positive(hyper, "length", "alpha_shape", "alpha_rate", "shape", "rate")
    checks.positive(hyper, "n_frequencies", zero=True)
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    kw, kx = jax.random.split(key)
    (n, m), scale = data.shape, 0.3 * data.spread
    W = scale * normals(kw, (n, len(groups(hyper))))
    X = normals(kx, (m, hyper.n_components))
    precision = jnp.full(n_groups(hyper), scale**-2)
    return Params(W, X, jnp.zeros(m), precision, jnp.asarray(data.spread**-2))


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    alpha, own = p.alpha, p.precision[groups(hyper)]
    fit = 0.5 * alpha * jnp.sum(residual(p, data, hyper) ** 2) - 0.5 * len(data) * jnp.log(alpha)
    fit += hyper.alpha_rate * alpha - (hyper.alpha_shape - 1) * jnp.log(alpha)
    rows = jnp.sum(own * p.W**2) - len(p.W) * jnp.sum(jnp.log(own))
    rows += p.precision[-1] * jnp.sum(p.bias_item**2) - len(p.X) * jnp.log(p.precision[-1])
    prior = hyper.rate * p.precision - (hyper.shape - 1) * jnp.log(p.precision)
    return fit + 0.5 * (rows + jnp.sum(p.X**2)) + jnp.sum(prior)


def residual(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    mean = hyper.offset + p.bias_item[data.cells.col]
    return data.y - mean - inner(p.W, features(p.X, hyper), data.cells)


# -- conditionals --------------------------------------------------------------------------------
def conditional_W(p: Params, data: Ratings, hyper: Hyper) -> GaussianRows:
    """The posterior of the Gaussian processes: ridge regressions on the features of the positions."""
    target = data.y - hyper.offset - p.bias_item[data.cells.col]
    F, prior = features(p.X, hyper), jnp.diag(p.precision[groups(hyper)])
    return GaussianRows(data.cells.by_row, target, F, p.alpha, prior, jnp.zeros_like(F[0]))


def conditional_bias_item(p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    rest = data.y - hyper.offset - inner(p.W, features(p.X, hyper), data.cells)
    precision = p.precision[-1] + p.alpha * jnp.diff(data.cells.by_col.ptr)
    sums = spread(data.cells.by_col, rest, jnp.ones_like(p.W[:, :1]))[:, 0]
    return dist.Normal(p.alpha * sums / precision, precision**-0.5).to_event(1)


def conditional_precision(p: Params, data: Ratings, hyper: Hyper) -> dist.Gamma:
    return gammas(jnp.sum(p.W**2, 0), jnp.sum(p.bias_item**2), data, hyper)


def gammas(by_feature: jax.Array, of_bias: jax.Array, data: Ratings, hyper: Hyper) -> dist.Gamma:
    """The law of the precisions, for sums of squares of the columns of W, and of c."""
    size = np.bincount(groups(hyper), minlength=n_groups(hyper)) * data.n_users
    square = jnp.zeros(n_groups(hyper), by_feature.dtype).at[groups(hyper)].add(by_feature)
    size[-1], square = data.n_items, square.at[-1].set(of_bias)
    return dist.Gamma(hyper.shape + size / 2, hyper.rate + square / 2)


def conditional_alpha(p: Params, data: Ratings, hyper: Hyper) -> dist.Gamma:
    square = jnp.sum(residual(p, data, hyper) ** 2)
    return dist.Gamma(hyper.alpha_shape + len(data) / 2, hyper.alpha_rate + square / 2)


CONDITIONALS = {
    "W": conditional_W,
    "bias_item": conditional_bias_item,
    "precision": conditional_precision,
    "alpha": conditional_alpha,
}


# -- positions: given all w_i, x_j depends on sum w w' and sum (y - m - c_j) w over who rated j --------
class Sums(NamedTuple):
    """Sums of shape items x M x M and items x M; with second moments of the w_i if these are uncertain."""

    square: jax.Array
    cross: jax.Array


def sums(W: jax.Array, square: jax.Array, bias: jax.Array, data: Ratings, hyper: Hyper) -> Sums:
    rows, M = data.cells.by_col, W.shape[1]
    rest = data.y - hyper.offset - bias[data.cells.col]
    total = spread(rows, jnp.ones_like(rest), flat(square))
    return Sums(jnp.reshape(total, (-1, M, M)), spread(rows, rest, W))


def energies(X: jax.Array, given: Sums, alpha: jax.Array, hyper: Hyper) -> jax.Array:
    """The part of J that depends on each position."""
    F = features(X, hyper)
    fit = jnp.einsum("jm,jmn,jn->j", F, given.square, F) - 2 * jnp.sum(given.cross * F, 1)
    return 0.5 * (alpha * fit + jnp.sum(X**2, 1))


def bends(X: jax.Array, given: Sums, alpha: jax.Array, hyper: Hyper) -> jax.Array:
    """The Gauss-Newton matrices of the energies, items x K x K."""
    J = slopes(X, hyper)
    bend = jnp.einsum("jmk,jmn,jnl->jkl", J, given.square, J)
    return jnp.eye(X.shape[1], dtype=X.dtype) + alpha * bend


def nearer(X: jax.Array, given: Sums, alpha: jax.Array, hyper: Hyper) -> jax.Array:
    """A Gauss-Newton step of every position; the step is shortened until the energy does not rise."""
    slope = jax.grad(lambda X: jnp.sum(energies(X, given, alpha, hyper)))(X)
    step = jnp.linalg.solve(bends(X, given, alpha, hyper), slope[..., None])[..., 0]
    tried = X - jnp.asarray(SHARES, X.dtype)[:, None, None] * step
    cost = jax.vmap(lambda X: energies(X, given, alpha, hyper))(tried)
    rounding = 8 * jnp.finfo(X.dtype).eps * jnp.abs(cost[-1])
    first = jnp.argmax(cost <= cost[-1] + rounding, 0)
    return tried[first, jnp.arange(len(X))]


def mean_bend(given: Sums, alpha: jax.Array, hyper: Hyper) -> jax.Array:
    """The mean of `bends` over the phases of the waves, which does not depend on the position."""
    K, R, z = hyper.n_components, hyper.n_frequencies, frequencies(hyper)
    linear, waves = given.square[:, 1 : K + 1, 1 : K + 1], slice(K + 1, None)
    power = jnp.diagonal(given.square[:, waves, waves], axis1=1, axis2=2)
    power = (power[:, :R] + power[:, R:]) / (2 * max(R, 1))
    curved = linear + jnp.einsum("jr,rk,rl->jkl", power, z, z)
    return jnp.eye(K, dtype=linear.dtype) + alpha * curved


def positions(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Hamiltonian paths of all positions; each path is accepted or rejected on its own."""
    given = sums(p.W, square_of(p.W), p.bias_item, data, hyper)
    L = jnp.linalg.cholesky(mean_bend(given, p.alpha, hyper))
    eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    root = jax.lax.linalg.triangular_solve(L, eye, left_side=True, lower=True)
    energy = lambda X: energies(X, given, p.alpha, hyper)  # noqa: E731
    slope = jax.grad(lambda X: jnp.sum(energy(X)))

    def path(number: int, X: jax.Array) -> jax.Array:
        size, push, coin = jax.random.split(jax.random.fold_in(key, number), 3)
        step = jax.random.uniform(size, (), X.dtype, *STEP)
        start = jax.random.normal(push, X.shape, X.dtype)
        kick = lambda X: jnp.einsum("jkl,jl->jk", root, slope(X))  # noqa: E731

        def leap(_: int, state: tuple) -> tuple:
            X, r = state
            X = X + step * jnp.einsum("jkl,jk->jl", root, r)
            return X, r - step * kick(X)

        new, r = jax.lax.fori_loop(0, LEAPS, leap, (X, start - step / 2 * kick(X)))
        r = r + step / 2 * kick(new)
        gain = energy(X) - energy(new) + 0.5 * jnp.sum(start**2 - r**2, 1)
        accept = jnp.log(jax.random.uniform(coin, gain.shape, X.dtype)) < gain
        return jnp.where(accept[:, None], new, X)

    return p._replace(X=jax.lax.fori_loop(0, PATHS, path, p.X))


# -- point ---------------------------------------------------------------------------------------
def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Set every block to the mode of its conditional, and make a Gauss-Newton step of the positions."""
    p = to_modes(p, CONDITIONALS, held(hyper), data, hyper)
    if held(hyper):
        return p
    given = sums(p.W, square_of(p.W), p.bias_item, data, hyper)
    return p._replace(X=nearer(p.X, given, p.alpha, hyper))


def held(hyper: Hyper) -> tuple[str, ...]:
    return () if hyper.scales == "joint" else ("X", "bias_item", "precision", "alpha")


class Doubt(NamedTuple):
    """The uncertainty that EM keeps with a point: covariances of the w_i and x_j, and variances of c."""

    W: jax.Array
    X: jax.Array
    bias: jax.Array


@compiled_for(2, once=True)
def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit: EM for all sites but W."""
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return p
    rest = data.y - hyper.offset
    b, c = biases(data.cells, rest)
    X = leading(key, rest - b[data.cells.row] - c[data.cells.col], data, p.X)
    K, M = hyper.n_components, p.W.shape[1]
    doubt = Doubt(jnp.zeros((data.n_users, M, M)), jnp.zeros((len(X), K, K)), jnp.zeros_like(c))
    state = p._replace(X=X, bias_item=c), doubt
    p, doubt = jax.lax.fori_loop(0, SWEEPS, lambda _, s: swept(s[0], s[1], data, hyper), state)
    return certain(p, doubt, data, hyper)


def leading(key: jax.Array, rest: jax.Array, data: Ratings, like: jax.Array) -> jax.Array:
    """Positions along the leading directions of the residuals, with zeros in the cells without a rating."""

    def power_step(_: int, V: jax.Array) -> jax.Array:
        U = spread(data.cells.by_row, rest, V)
        return jnp.linalg.qr(spread(data.cells.by_col, rest, U))[0]

    V = jax.lax.fori_loop(0, 10, power_step, jax.random.normal(key, like.shape))
    return len(V) ** 0.5 * V


def second(X: jax.Array, cov: jax.Array, hyper: Hyper) -> jax.Array:
    """E F F' for positions with these means and covariances, to first order: items x M x M."""
    J = slopes(X, hyper)
    return square_of(features(X, hyper)) + jnp.einsum("jmk,jkl,jnl->jmn", J, cov, J)


def swept(p: Params, doubt: Doubt, data: Ratings, hyper: Hyper) -> tuple[Params, Doubt]:
    """One sweep of EM."""
    cells, alpha, one = data.cells, p.alpha, jnp.ones_like(data.y)
    F, M = features(p.X, hyper), p.W.shape[1]
    gram = jnp.reshape(spread(cells.by_row, one, flat(second(p.X, doubt.X, hyper))), (-1, M, M))
    cov = jnp.linalg.inv(jnp.diag(p.precision[groups(hyper)]) + alpha * gram)
    target = data.y - hyper.offset
    shift = spread(cells.by_row, target - p.bias_item[cells.col], F)
    W = alpha * jnp.einsum("imn,in->im", cov, shift)
    given = sums(W, square_of(W) + cov, p.bias_item, data, hyper)
    X = nearer(p.X, given, alpha, hyper)
    cov_X = jnp.linalg.inv(bends(X, given, alpha, hyper))
    p = p._replace(W=W, X=X)
    law: Any = conditional_bias_item(p, data, hyper).base_dist
    p = p._replace(bias_item=law.mean)
    given = given._replace(cross=spread(cells.by_col, target - law.mean[cells.col], W))
    F, B = features(X, hyper), second(X, cov_X, hyper)
    square = jnp.sum((target - law.mean[cells.col]) ** 2) - 2 * jnp.sum(given.cross * F)
    square += jnp.sum(given.square * B) + jnp.sum(jnp.diff(cells.by_col.ptr) * law.variance)
    shape = hyper.alpha_shape - 1 + len(data) / 2
    columns = jnp.sum(W**2, 0) + jnp.einsum("imm->m", cov)
    own = gammas(columns, jnp.sum(law.mean**2 + law.variance), data, hyper)
    p = p._replace(alpha=shape / (hyper.alpha_rate + square / 2), precision=mode(own))
    return p, Doubt(cov, cov_X, law.variance)


def certain(p: Params, doubt: Doubt, data: Ratings, hyper: Hyper) -> Params:
    """The point estimate. Its W ignores the covariance of X, so the mean ridge of X is added to the
    precisions. The noise includes the variance of w.F(x); its factor on all precisions does not move the mode
    of W."""
    cells, one, at = data.cells, jnp.ones_like(data.y), groups(hyper)
    J = slopes(p.X, hyper)
    wide = jnp.einsum("jmk,jkl,jnl->jmn", J, doubt.X, J)
    own = flat(square_of(features(p.X, hyper)) + wide)
    variance = inner(flat(doubt.W), own, cells) + inner(flat(square_of(p.W)), flat(wide), cells)
    share = 1 / (1 + p.alpha * jnp.mean(variance))
    each = spread(cells.by_row, one, jnp.diagonal(wide, axis1=1, axis2=2))
    count = jnp.diff(cells.by_row.ptr)
    ridge = jnp.zeros_like(p.precision).at[at].add(p.alpha * (count @ each) / count.sum())
    ridge /= np.maximum(np.bincount(at, minlength=len(p.precision)), 1)
    return p._replace(precision=share * (p.precision + ridge), alpha=share * p.alpha)


def model(data: Ratings, hyper: Hyper) -> None:
    law = dist.Gamma(hyper.shape, hyper.rate).expand((n_groups(hyper),)).to_event(1)
    precision = numpyro.sample("precision", law)
    alpha = numpyro.sample("alpha", dist.Gamma(hyper.alpha_shape, hyper.alpha_rate))
    own = precision[groups(hyper)]
    with numpyro.plate("item", data.n_items):
        law = dist.Normal(0, 1).expand((hyper.n_components,)).to_event(1)
        X = numpyro.sample("X", law)
        bias = numpyro.sample("bias_item", dist.Normal(0, precision[-1] ** -0.5))
    with numpyro.plate("user", data.n_users):
        W = numpyro.sample("W", normal_rows(jnp.zeros_like(own), jnp.diag(own)))
    mean = hyper.offset + bias[data.cells.col] + inner(W, features(X, hyper), data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, alpha**-0.5), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """The rating; parameters of a user or item without training data are drawn from their priors."""
    own = jnp.diag(1 / p.precision[groups(hyper)])
    user, item = (jnp.zeros_like(own[0]), own), anywhere(hyper, p.X.dtype)
    mean, variance = bilinear(p.W, features(p.X, hyper), query, user, item)
    c = pick(p.bias_item, query.col)
    if not isinstance(query, Grid):
        variance = variance + jnp.where(jnp.asarray(query.col) < 0, 1 / p.precision[-1], 0)
    return dist.Normal(hyper.offset + mean + c, jnp.sqrt(1 / p.alpha + variance))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key)
    hyper = Hyper(2, 2, length=1.0, alpha_shape=3.0, alpha_rate=1.0, shape=3.0, rate=1.0)
    return data, prepare(data, hyper._replace(scales="joint"))


# fmt: off
METHOD = register(Method(
    name="gplvm", cite="lawrence2009gplvm", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(update=update, start=start, held=held),
    gibbs=Sampler(conditionals=CONDITIONALS, moves={"positions": positions}),
    choose=Choose(candidates=noise_choices),
    axes=Axes(
        dims={"W": ("user", "feature"), "X": ("item", "component"), "bias_item": ("item",),
            "precision": ("group",), "alpha": ()},
    ),
))
# fmt: on
