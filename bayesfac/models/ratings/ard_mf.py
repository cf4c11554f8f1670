r"""Matrix factorization with relevance determination: it learns how many of the components are in use.

Lim & Teh, "Variational Bayesian Approach to Movie Rating Prediction", KDD Cup and Workshop 2007. Each
component has one precision for both sides, as in Tan & Févotte, IEEE TPAMI 2013 (their factors are
non-negative). The means and the noise are those of BPMF (Salakhutdinov & Mnih, ICML 2008).

    u_i ~ N(mu_U, diag(tau)^-1),  v_j ~ N(mu_V, diag(tau)^-1),  mu_k ~ N(0, 1 / (beta0 tau_k)) on both sides
    tau_k ~ Gamma(tau_shape, tau_rate),   y_ij ~ N(m + u_i.v_j, 1/alpha),   alpha ~ Gamma(a, b)

    J = sum_ij [ alpha/2 (y_ij - m - u_i.v_j)^2 - 1/2 log alpha ] + b alpha - (a - 1) log alpha
      + sum_k [ tau_k (tau_rate + (A_k + B_k)/2) - (tau_shape - 1 + (n + m + 2)/2) log tau_k ]
        A_k = sum_i (u_ik - mu_Uk)^2 + beta0 mu_Uk^2,   B_k the same of the items

    paper        here            shape
    U, V         U, V            users x K, items x K
    -            mu_U, mu_V      K
    1/sigma^2    tau             K        one precision of component k, in U and in V
    1/tau^2      alpha           scalar

The one diagonal `tau` loses no generality against `bpmf`: for any pair of precision matrices of `bpmf` there
are coordinates in which both are the same diagonal matrix. `n_components` is an upper limit, because of the
prior of tau. Let s_k = 1/tau_k, the standard deviation of the products u_ik v_jk. With tau_shape = 1/2,
s_k has a Lévy distribution. The sum of the s_k then has the same distribution for every K if tau_rate is a
constant over K^2. So a larger K changes the prior little: most s_k are near zero, and a few make up the sum.
By default the constant is a quarter of the ratings' standard deviation; the median of the sum is then 1.1 of
these standard deviations.

The joint mode is a poor estimate, because the density is high where a component vanishes. With
`scales="estimated"` a point fit takes mu, tau and alpha from the variational approximation. This
approximation includes the uncertainty of the rows and switches off components that the ratings do not
support. The solver then minimises J over U and V alone, and `tau` includes the ridge penalty that the
uncertainty of the other side adds. With `scales="joint"` the solver minimises J over all sites.

After its blocks a Gibbs sweep changes the scale of each u_k against v_k (`balance`), and s_k together with
the rows (`swell`), because tau_k alone moves little while the rows are fixed. `in_use` counts the components
in use. It reads u_i.v_j only, which does not change with the coordinates.

Length: more than 300 lines, for the variational law, two moves of the sampler and the count of components.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import beliefs
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.empirical_bayes import DRAWS, biases, left_out
from bayesfac.core.laws.normal_wishart import drawn, normal_rows, normal_wishart_mean, settled
from bayesfac.core.math import bilinear, inner, metropolis, normals
from bayesfac.core.method import Method, Permutation, register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import variational as bound
from bayesfac.models.ratings._shared.empirical_bayes import SMALL, noise_choices
from bayesfac.models.ratings._shared.rank import above_noise

SWEEPS = 60  # of the variational law whose means are the scales of a point fit
FAINT = 1e-3  # of the ratings' variance: if products vary less, the factors have vanished
STEPS = 3  # Metropolis steps of each scale in one sweep


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    mu_U: jax.Array
    mu_V: jax.Array
    tau: jax.Array
    alpha: jax.Array


class Hyper(NamedTuple):
    n_components: int = 30  # the largest number of components that the posterior can use
    tau_shape: float = 0.5
    tau_rate: float | None = None  # None: a quarter of the ratings' sd, over K^(1 / tau_shape)
    alpha_shape: float = 1.0  # alpha ~ Gamma(shape, rate)
    alpha_rate: float | None = (
        None  # None: the variance of the ratings, or chosen (`noise_choices`)
    )
    beta0: float = 0.01
    scales: str = "estimated"  # how a point fit sets mu, tau and alpha; the other choice is "joint"
    offset: float | None = None  # None: the mean rating


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    checks.positive(hyper, "tau_shape", "alpha_shape", "beta0")
    tau_rate = data.spread / 4 / hyper.n_components ** (1 / hyper.tau_shape)
    hyper = checks.filled(hyper, tau_rate=tau_rate, alpha_rate=data.spread**2, offset=data.mean)
    checks.positive(hyper, "tau_rate", "alpha_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Draw components of equal size, whose products have half the standard deviation of the ratings.

    With sizes that fall with k, as in the prior, two of five components were missing after 400 sweeps.
    """
    K, (ku, kv) = hyper.n_components, jax.random.split(key)
    size = data.spread / 2 / K**0.5
    U = size**0.5 * normals(ku, (data.n_users, K))
    V = size**0.5 * normals(kv, (data.n_items, K))
    tau, alpha = jnp.full(K, 1 / size), jnp.asarray(data.spread**-2)
    return Params(U, V, jnp.zeros(K), jnp.zeros(K), tau, alpha)


@compiled_for(2, once=True)
def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit: mu, tau and alpha from the variational law; the solver keeps them fixed.

    The law is computed from two starts, Gibbs sweeps and biases, and the one with the larger bound is used.
    """
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return p

    def climb(p: Params) -> tuple[jax.Array, Params]:
        q = VARIATIONAL.begin(p, data, hyper)
        q = jax.lax.fori_loop(0, SWEEPS, lambda _, q: VARIATIONAL.update(q, data, hyper), q)
        alive = jnp.var(bound.moments(q.U, q.V, data.cells)[0]) > FAINT * jnp.var(data.y)
        return jnp.where(alive, VARIATIONAL.elbo(q, data, hyper), -jnp.inf), q

    def swept(number: int, p: Params) -> Params:
        return drawn(jax.random.key(number), p, CONDITIONALS, data, hyper)

    begin = [jax.lax.fori_loop(0, DRAWS, swept, p)]
    begin += [from_biases(p, data, hyper)] if hyper.n_components > 1 else []
    value, both = jax.lax.map(climb, jax.tree.map(lambda *x: jnp.stack(x), *begin))
    return point_of(jax.tree.map(lambda x: x[jnp.argmax(value)], both), data)


def from_biases(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Put b_i + c_j into the first two components, with their tau; the others are a tenth of those of p."""
    b, c = biases(data.cells, data.y - jnp.mean(data.y))
    b, a = b + jnp.mean(data.y - hyper.offset), data.spread**0.5
    U = (SMALL * p.U).at[:, 0].set(b / a).at[:, 1].set(a)
    V = (SMALL * p.V).at[:, 0].set(a).at[:, 1].set(c / a)
    return p._replace(U=U, V=V, mu_U=U.mean(0), mu_V=V.mean(0))


def point_of(q: Any, data: Ratings) -> Params:
    """The means of the law, with tau and alpha corrected because the point has no uncertainty.

    The uncertainty of V adds a ridge E alpha sum_j var v_jk to the rows of U, and that of U adds one to V.
    Both are added to tau; the scale of U against V then makes the two precisions of a component equal. The
    noise includes the variance of u.v. Its factor is applied to all precisions, so the rows stay the mode.
    """
    alpha = beliefs.gamma(q.alpha).mean
    tau, weight = beliefs.gamma(q.tau).mean, jnp.broadcast_to(alpha, data.y.shape)

    def doubt(rows: Any, other: Any) -> jax.Array:
        count = jnp.diff(rows.ptr)
        variance = jnp.einsum("nkk->nk", other["cov"])
        return count @ sparse.spread(rows, weight, variance) / count.sum()

    user, item = tau + doubt(data.cells.by_row, q.V), tau + doubt(data.cells.by_col, q.U)
    share = 1 / (1 + alpha * left_out(bound.moments(q.U, q.V, data.cells)[1], alpha))
    U, V, mu_U, mu_V = (site["mean"] for site in q[:4])
    p = Params(U, V, mu_U, mu_V, share * jnp.sqrt(user * item), share * alpha)
    return stretched(p, jnp.log(user / item) / 4)


def held(hyper: Hyper) -> tuple[str, ...]:
    return () if hyper.scales == "joint" else Params._fields[2:]


# -- the joint and its conditionals ------------------------------------------------------------------
def squares(p: Params, hyper: Hyper) -> tuple[jax.Array, jax.Array]:
    """A and B: for each component, the sums of squares that tau multiplies."""
    user = jnp.sum((p.U - p.mu_U) ** 2, 0) + hyper.beta0 * p.mu_U**2
    return user, jnp.sum((p.V - p.mu_V) ** 2, 0) + hyper.beta0 * p.mu_V**2


def power(data: Ratings, hyper: Hyper) -> float:
    """The shape of tau given the other sites."""
    return hyper.tau_shape + (sum(data.shape) + 2) / 2


def misfit(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    """The sum of squares of the ratings about m + u.v."""
    return jnp.sum((data.y - hyper.offset - inner(p.U, p.V, data.cells)) ** 2)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    rate = hyper.alpha_rate + 0.5 * misfit(p, data, hyper)
    fit = rate * p.alpha - (hyper.alpha_shape - 1 + len(data) / 2) * jnp.log(p.alpha)
    weight = hyper.tau_rate + 0.5 * sum(squares(p, hyper))
    return fit + jnp.sum(weight * p.tau - (power(data, hyper) - 1) * jnp.log(p.tau))


def conditional_tau(p: Params, data: Ratings, hyper: Hyper) -> dist.Gamma:
    """Each row of both sides adds half a degree of freedom, and each mean one half."""
    return dist.Gamma(power(data, hyper), hyper.tau_rate + 0.5 * sum(squares(p, hyper)))


def mean(rows: str, p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    """mu of a side given its rows."""
    return normal_wishart_mean(getattr(p, rows), jnp.diag(p.tau), hyper.beta0)


def rows(side: str, p: Params, data: Ratings, hyper: Hyper) -> GaussianRows:
    """The rows of a side: ridge regressions on those of the other."""
    mine, other, mu = (data.cells.by_row, p.V, p.mu_U)
    if side == "item":
        mine, other, mu = (data.cells.by_col, p.U, p.mu_V)
    return GaussianRows(mine, data.y - hyper.offset, other, p.alpha, jnp.diag(p.tau), p.tau * mu)


def conditional_alpha(p: Params, data: Ratings, hyper: Hyper) -> dist.Gamma:
    shape = hyper.alpha_shape + 0.5 * len(data)
    return dist.Gamma(shape, hyper.alpha_rate + 0.5 * misfit(p, data, hyper))


CONDITIONALS: dict[str, Any] = {
    "mu_U": partial(mean, "U"), "U": partial(rows, "user"),
    "mu_V": partial(mean, "V"), "V": partial(rows, "item"),
    "tau": conditional_tau, "alpha": conditional_alpha,
}  # fmt: skip


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Set each block to the mode of its conditional, then the scale of U against V to its lowest J."""
    p = settled(p, CONDITIONALS, held(hyper), data, hyper)
    if held(hyper):
        return p
    A, B = squares(p, hyper)
    return stretched(p, jnp.log(B / A) / 4)


# -- moves of a Gibbs sweep ----------------------------------------------------------------------------
def stretched(p: Params, t: jax.Array) -> Params:
    """u_k -> c_k u_k and v_k -> v_k / c_k with c = e^t; u.v does not change."""
    c = jnp.exp(t)
    return p._replace(U=p.U * c, mu_U=p.mu_U * c, V=p.V / c, mu_V=p.mu_V / c)


def balance(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Metropolis steps along `stretched`: t has the density exp((n - m) t - tau (A e^2t + B e^-2t) / 2)."""
    (n, m), (A, B) = data.shape, squares(p, hyper)

    def density(t: jax.Array) -> jax.Array:
        t = t[:, 0]
        return (n - m) * t - 0.5 * p.tau * (A * jnp.exp(2 * t) + B * jnp.exp(-2 * t))

    walk, width = jax.random.split(key)
    step = jnp.exp(jax.random.normal(width, (), p.U.dtype)) * (2 / (n + m)) ** 0.5
    return stretched(p, metropolis(walk, jnp.zeros_like(A)[:, None], step, density, STEPS)[:, 0])


def swell(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Metropolis steps along u_k -> e^{t/2} u_k, v_k -> e^{t/2} v_k, the same for mu, tau_k -> e^{-t} tau_k.

    With the Jacobians, the density of the rows and means does not change. Let x be the products of component
    k at the cells, and r the ratings minus the other components. Then t has the density
        exp(-tau_shape t - tau_rate tau_k e^{-t} - alpha/2 |r - e^t x|^2).
    The step width is drawn at random: t is well determined for a component in use, and free for others.
    """
    row, col, K = data.cells.row, data.cells.col, hyper.n_components
    rest = data.y - hyper.offset - inner(p.U, p.V, data.cells)

    def one(rest: jax.Array, given: tuple) -> tuple[jax.Array, jax.Array]:
        u, v, tau, key = given
        x = u[row] * v[col]
        rest = rest + x
        square, product = jnp.sum(x * x), jnp.sum(x * rest)

        def density(t: jax.Array) -> jax.Array:
            t, c = t[:, 0], jnp.exp(t[:, 0])
            fit = p.alpha * (c * product - 0.5 * c**2 * square)
            return fit - hyper.tau_shape * t - hyper.tau_rate * tau / c

        walk, width = jax.random.split(key)
        step = 3 * 10 ** (-3 * jax.random.uniform(width, (), u.dtype))
        t = metropolis(walk, jnp.zeros((1, 1), u.dtype), step, density, STEPS)[0, 0]
        return rest - jnp.exp(t) * x, t

    t = jax.lax.scan(one, rest, (p.U.T, p.V.T, p.tau, jax.random.split(key, K)))[1]
    root = jnp.exp(t / 2)
    p = p._replace(U=p.U * root, mu_U=p.mu_U * root, V=p.V * root, mu_V=p.mu_V * root)
    return p._replace(tau=p.tau / root**2)


# -- the variational law -------------------------------------------------------------------------------
def begin(p: Params, data: Ratings, hyper: Hyper) -> dict[str, Any]:
    """Rows without variance; tau and alpha at their means given these rows."""
    found: dict[str, Any] = {"U": beliefs.certain(p.U), "V": beliefs.certain(p.V)}
    for site in ("mu_U", "mu_V"):
        found[site] = {"mean": getattr(p, site), "var": jnp.zeros_like(p.mu_U)}
    for site in ("tau", "alpha"):
        law = CONDITIONALS[site](p, data, hyper)
        shape = jnp.broadcast_to(jnp.asarray(law.concentration, p.U.dtype), law.rate.shape)
        found[site] = {"shape": shape, "rate": law.rate}
    return found


def expected_observed(
    q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper
) -> tuple[Any, jax.Array, Any]:
    y = data.y - hyper.offset
    rate = hyper.alpha_rate + 0.5 * jnp.sum((y - x) ** 2 + variance)
    return q._replace(alpha={**q.alpha, "rate": rate}), y, q.alpha["shape"] / rate


def prior(q: Any, side: str, data: Ratings, hyper: Hyper) -> tuple[jax.Array, jax.Array]:
    tau = beliefs.gamma(q.tau).mean
    return jnp.diag(tau), tau * (q.mu_U if side == "user" else q.mu_V)["mean"]


def rate_of_tau(q: Any, hyper: Hyper) -> jax.Array:
    """The expectation of `conditional_tau`'s rate."""
    rate = jnp.full_like(q.tau["rate"], hyper.tau_rate)
    for own, mu in ((q.U, q.mu_U), (q.V, q.mu_V)):
        n, variance = len(own["mean"]), jnp.einsum("nkk->k", own["cov"])
        rate += 0.5 * (jnp.sum((own["mean"] - mu["mean"]) ** 2, 0) + variance)
        rate += 0.5 * (hyper.beta0 * mu["mean"] ** 2 + (n + hyper.beta0) * mu["var"])
    return rate


def settle(q: Any, data: Ratings, hyper: Hyper) -> Any:
    """The laws of mu and tau given the rows."""
    tau = beliefs.gamma(q.tau).mean
    for site, own in (("mu_U", q.U), ("mu_V", q.V)):
        weight = hyper.beta0 + len(own["mean"])
        q = q._replace(**{site: {"mean": own["mean"].sum(0) / weight, "var": 1 / (weight * tau)}})
    return q._replace(tau={**q.tau, "rate": rate_of_tau(q, hyper)})


def expected(q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """Minus the expected objective."""
    rest = jnp.sum((data.y - hyper.offset - x) ** 2 + variance)

    def gamma(own: Any, shape: Any, rate: Any) -> jax.Array:
        return jnp.sum((shape - 1) * beliefs.expected_log(own) - rate * beliefs.gamma(own).mean)

    noise = gamma(q.alpha, hyper.alpha_shape + len(data) / 2, hyper.alpha_rate + rest / 2)
    return noise + gamma(q.tau, power(data, hyper), rate_of_tau(q, hyper))


def laws(q: Any) -> dict[str, dist.Distribution]:
    normal = {site: beliefs.normal(getattr(q, site)) for site in Params._fields[:4]}
    return normal | {site: beliefs.gamma(getattr(q, site)) for site in ("tau", "alpha")}


VARIATIONAL = bound.record(begin, expected_observed, expected, laws, prior=prior, settle=settle)


# -- the model, predictions, and components in use ------------------------------------------------------
def model(data: Ratings, hyper: Hyper) -> None:
    K, found = hyper.n_components, {}
    tau = numpyro.sample("tau", dist.Gamma(hyper.tau_shape, hyper.tau_rate).expand([K]).to_event(1))
    for name, side, n in (("U", "user", data.n_users), ("V", "item", data.n_items)):
        mu = numpyro.sample(f"mu_{name}", dist.Normal(0, (hyper.beta0 * tau) ** -0.5).to_event(1))
        with numpyro.plate(side, n):
            found[name] = numpyro.sample(name, normal_rows(mu, jnp.diag(tau)))
    alpha = numpyro.sample("alpha", dist.Gamma(hyper.alpha_shape, hyper.alpha_rate))
    mean = hyper.offset + inner(found["U"], found["V"], data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, alpha**-0.5), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """The rating; a user or item without training data is a draw from N(mu, diag(tau)^-1)."""
    spread = jnp.diag(1 / p.tau)
    mean, variance = bilinear(p.U, p.V, query, (p.mu_U, spread), (p.mu_V, spread))
    return dist.Normal(hyper.offset + mean, jnp.sqrt(1 / p.alpha + variance))


def in_use(p: Params, by_user: np.ndarray, by_item: np.ndarray, hyper: Hyper) -> int:
    """How many singular values of u_i.v_j stand above the noise, see `_shared/rank.py`."""
    return above_noise(p.U, p.V, p.alpha, by_user, by_item)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key)
    settings = Hyper(2, 2.0, 1.2, alpha_shape=2.0, alpha_rate=1.0, beta0=2.0, scales="joint")
    return data, prepare(data, settings)


# fmt: off
METHOD = register(Method(
    name="ard_mf", cite="lim2007variational", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    update=update, prepare=prepare, start=start, held=held, choices=noise_choices,
    conditionals=CONDITIONALS, moves={"balance": balance, "swell": swell}, noncentred=("U", "V"),
    variational=VARIATIONAL, in_use=in_use,
    gauge=(Permutation({"U": 1, "V": 1, "mu_U": 0, "mu_V": 0, "tau": 0},
                       signed=("U", "V", "mu_U", "mu_V")),),
    dims={"U": ("user", "component"), "V": ("item", "component"), "mu_U": ("component",),
          "mu_V": ("component",), "tau": ("component",), "alpha": ()},
))
# fmt: on
