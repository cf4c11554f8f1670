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

After its blocks a Gibbs sweep changes the scale of each u_k against v_k (`rescale`), and s_k together with
the rows (`swell`), because tau_k alone moves little while the rows are fixed. `in_use` counts the components
in use. It reads u_i.v_j only, which does not change with the coordinates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import beliefs
from bayesfac.core.laws.empirical_bayes import DRAWS, biases, left_out
from bayesfac.core.laws.normal_wishart import drawn, normal_rows
from bayesfac.core.math import inner, metropolis
from bayesfac.core.method import Choose, register
from bayesfac.core.programs import compiled_for
from bayesfac.parts import scales
from bayesfac.parts.composition import composed
from bayesfac.parts.estimate import SMALL, noise_choices
from bayesfac.parts.matrix import Matrix, moments
from bayesfac.parts.observed.normal import Normal
from bayesfac.parts.priors import relevance

SIDES = relevance("user", "U"), relevance("item", "V")
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


def objective(p: Params, data: Ratings, h: Hyper) -> jax.Array:
    misfit = jnp.sum((data.y - h.offset - inner(p.U, p.V, data.cells)) ** 2)
    J = (h.alpha_rate + 0.5 * misfit) * p.alpha
    J -= (h.alpha_shape - 1 + len(data) / 2) * jnp.log(p.alpha)
    A = jnp.sum((p.U - p.mu_U) ** 2, 0) + h.beta0 * p.mu_U**2
    B = jnp.sum((p.V - p.mu_V) ** 2, 0) + h.beta0 * p.mu_V**2
    power = h.tau_shape - 1 + (len(p.U) + len(p.V) + 2) / 2
    return J + jnp.sum((h.tau_rate + (A + B) / 2) * p.tau - power * jnp.log(p.tau))


def model(data: Ratings, h: Hyper) -> None:
    K, rows = h.n_components, []
    tau = numpyro.sample("tau", dist.Gamma(h.tau_shape, h.tau_rate).expand([K]).to_event(1))
    for name, side, n in (("U", "user", data.n_users), ("V", "item", data.n_items)):
        mu = numpyro.sample(f"mu_{name}", dist.Normal(0, (h.beta0 * tau) ** -0.5).to_event(1))
        with numpyro.plate(side, n):
            rows.append(numpyro.sample(name, normal_rows(mu, jnp.diag(tau))))
    alpha = numpyro.sample("alpha", dist.Gamma(h.alpha_shape, h.alpha_rate))
    U, V = rows
    mean = h.offset + inner(U, V, data.cells)
    with numpyro.plate("cell", mean.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, alpha**-0.5), obs=data.y)


def prepare(data: Ratings, h: Hyper) -> Hyper:
    checks.count(h, "n_components", min(data.shape), "the smaller of users and items")
    checks.positive(h, "tau_shape", "beta0")
    h = Normal().prepare(data, h)
    h = checks.filled(h, tau_rate=data.spread / 4 / h.n_components ** (1 / h.tau_shape))
    checks.positive(h, "tau_rate")
    checks.one_of(h, "scales", ("estimated", "joint"))
    return h


@compiled_for(2, once=True)
def start(key: jax.Array, data: Ratings, h: Hyper) -> Params:
    """Start a point fit: mu, tau and alpha from the variational law; the solver keeps them fixed.

    The law is computed from two starts, Gibbs sweeps and biases, and the one with the larger bound is used.
    """
    p, law = METHOD.init(key, data, h), METHOD.variational
    if h.scales == "joint":
        return p

    def climb(p: Params) -> tuple[jax.Array, Params]:
        q = jax.lax.fori_loop(0, SWEEPS, lambda _, q: law.update(q, data, h), law.begin(p, data, h))
        alive = jnp.var(moments(q.U, q.V, data.cells)[0]) > FAINT * jnp.var(data.y)
        return jnp.where(alive, law.elbo(q, data, h), -jnp.inf), q

    def swept(number: int, p: Params) -> Params:
        return drawn(jax.random.key(number), p, METHOD.gibbs.conditionals, data, h)

    begin = [jax.lax.fori_loop(0, DRAWS, swept, p)]
    begin += [from_biases(p, data, h)] if h.n_components > 1 else []
    value, both = jax.lax.map(climb, jax.tree.map(lambda *x: jnp.stack(x), *begin))
    return point_of(jax.tree.map(lambda x: x[jnp.argmax(value)], both), data, h)


def from_biases(p: Params, data: Ratings, h: Hyper) -> Params:
    """Put b_i + c_j into the first two components, with their tau; the others are a tenth of those of p."""
    b, c = biases(data.cells, data.y - jnp.mean(data.y))
    b, a = b + jnp.mean(data.y - h.offset), data.spread**0.5
    U = (SMALL * p.U).at[:, 0].set(b / a).at[:, 1].set(a)
    V = (SMALL * p.V).at[:, 0].set(a).at[:, 1].set(c / a)
    return p._replace(U=U, V=V, mu_U=U.mean(0), mu_V=V.mean(0))


def point_of(q: Any, data: Ratings, h: Hyper) -> Params:
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
    share = 1 / (1 + alpha * left_out(moments(q.U, q.V, data.cells)[1], alpha))
    U, V, mu_U, mu_V = (site["mean"] for site in q[:4])
    p = Params(U, V, mu_U, mu_V, share * jnp.sqrt(user * item), share * alpha)
    both = SIDES[:1], SIDES[1:]
    return scales.turned(SIDES, both, p, h, jnp.log(user / item) / 4, jnp.eye(len(tau)))


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


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key)
    settings = Hyper(2, 2.0, 1.2, alpha_shape=2.0, alpha_rate=1.0, beta0=2.0, scales="joint")
    return data, prepare(data, settings)


METHOD = register(
    composed(
        "ard_mf", cite="lim2007variational", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=Matrix(SIDES), observed=Normal(), objective=objective, model=model, example=example,
        prepare=prepare,
        moves={"swell": swell}, solver=dict(start=start),
        choose=Choose(candidates=noise_choices),
    )
)  # fmt: skip
