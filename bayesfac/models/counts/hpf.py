r"""Hierarchical Poisson factorization of counts, by multinomial splitting.

Gopalan, Hofman & Blei, "Scalable Recommendation with Hierarchical Poisson Factorization", UAI 2015.

    y_ui ~ Poisson(sum_k theta_uk beta_ik),   theta_uk ~ Gamma(a, xi_u),   xi_u ~ Gamma(a', a'/b')

    J = - sum_ui (y_ui log x_ui - log y_ui!) + sum_k (sum_u theta_uk) (sum_i beta_ik)
        + E(log theta; a, xi) + E(log xi; a', a'/b') + E(log beta; c, eta) + E(log eta; c', c'/d')
    E(v; a, r) = sum (r exp v - a v - a log r)

    paper      here                      shape
    theta      exp(log_theta)            users x K    how much of each component a user takes
    beta       exp(log_beta)             items x K    how much of each component an item has
    xi, eta    exp(log_xi), exp(log_eta)   users, items    large for a user who counts little
    a, a', b'  shape_user, shape_rate_user, rate_user   b' is the mean of xi; c, c', d' are those of items
    z          Sums                      users x K, items x K: counts by component; only Gibbs draws z

The method predicts counts, for example how often a user listens to an item. The first sum of J runs over the
listed pairs only; the zeros are in the product of sums. So the time depends on the number of pairs that are
not zero. The paper fits by variational coordinate ascent, which is `bf.VB` here. The solver finds the mode of
the logarithms. With a < 1 a Gamma density is infinite at zero and has no mode, but E is finite and convex for
any shape. Its mode, a / r, is the mean of the Gamma law. So each step of EM sets theta, beta, xi and eta to
the means of their conditionals, as the paper's updates do.

`bf.fit` chooses a and c, as one number, by the ranks of held-out pairs: their log score, which leaves the
zeros out, is best without components. With the paper's value 0.3, the components of users with about ten
pairs fit noise, and recommendations are worse than lists by popularity. If no rate is
set, b' = d' = sqrt(K a c / mean of the table), so that x_ui is the mean count. If one of b' and d' is set,
the other one is K a c / mean of the table, divided by it. A user or item without training data gets the prior
with its rate at the prior mean, b' or d'. Averaged over the whole prior, the mean of 1/xi and so of the
counts is infinite for a' = 0.3. The posterior does not change when components are reordered.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.counts import Counts
from bayesfac.core.data.reading import plain
from bayesfac.core.kernels.sparse import ratio_step
from bayesfac.core.laws.counts import LogGamma, PoissonTable, Splitting, Sums, UnsurePoisson
from bayesfac.core.math import inner, normals, pick, safe_log
from bayesfac.core.method import (
    Axes,
    Choose,
    Method,
    Notes,
    Permutation,
    Sampler,
    Solver,
    Variational,
    register,
)

SHAPES, SHAPE = ("shape_user", "shape_item"), 0.3  # the paper's value


class Params(NamedTuple):
    log_theta: jax.Array
    log_beta: jax.Array
    log_xi: jax.Array
    log_eta: jax.Array


class Hyper(NamedTuple):
    n_components: int = 20
    shape_user: float | None = (
        None  # None: chosen by ranks of held-out pairs; 0.3 if nothing is held out
    )
    shape_item: float | None = None
    shape_rate_user: float = 0.3
    shape_rate_item: float = 0.3
    rate_user: float | None = None  # None: by the mean of the table
    rate_item: float | None = None


def prepare(data: Counts, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    hyper = checks.filled(hyper, **dict.fromkeys(SHAPES, SHAPE))
    checks.positive(hyper, *(name for name in Hyper._fields if name.startswith("shape")))
    part = np.flatnonzero(data.value != np.rint(data.value))
    if len(part):
        row, value = part[0], data.value[part[0]]
        user, item = plain(data.users[data.user[row]]), plain(data.items[data.item[row]])
        raise ValueError(
            f"Expected whole numbers for hpf, got {value:g} (user {user!r}, item {item!r}); round the "
            "counts, or see wrmf"
        )
    given = (name for name in ("rate_user", "rate_item") if getattr(hyper, name) is not None)
    checks.positive(hyper, *given)
    size = hyper.n_components * hyper.shape_user * hyper.shape_item
    both = size / data.mean if data.mean else 1.0  # b' d'
    user = both / hyper.rate_item if hyper.rate_item else both**0.5
    user = hyper.rate_user or user
    return hyper._replace(rate_user=user, rate_item=hyper.rate_item or both / user)


def choices(data: Counts, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates for the shapes around the paper's value, from sparse to even components."""
    free = [name for name in SHAPES if getattr(hyper, name) is None and name not in chosen]
    steps = range(-4, 5) if free else ()
    return [dict.fromkeys(free, SHAPE * 10 ** (step * 3 / 8)) for step in steps]


def init(key: jax.Array, data: Counts, hyper: Hyper) -> Params:
    """Components near the prior modes, but different enough that they do not stay equal."""
    (n, m), K, h = data.shape, hyper.n_components, hyper
    a, b = jax.random.split(key)
    theta = jnp.log(h.shape_user / h.rate_user) + 0.3 * normals(a, (n, K))
    beta = jnp.log(h.shape_item / h.rate_item) + 0.3 * normals(b, (m, K))
    return Params(theta, beta, jnp.full(n, jnp.log(h.rate_user)), jnp.full(m, jnp.log(h.rate_item)))


def energy(v: jax.Array, shape: float, rate: jax.Array | float) -> jax.Array:
    """E(v; a, r) = sum (r exp v - a v - a log r)."""
    return jnp.sum(rate * jnp.exp(v) - shape * (v + jnp.log(rate)))


def objective(p: Params, data: Counts, hyper: Hyper) -> jax.Array:
    theta, beta, xi, eta = (jnp.exp(value) for value in p)
    fit = jnp.sum(data.y * safe_log(inner(theta, beta, data.cells)))
    fit -= jnp.sum(jax.scipy.special.gammaln(data.y + 1)) + theta.sum(0) @ beta.sum(0)
    a, c = hyper.shape_rate_user, hyper.shape_rate_item
    prior = energy(p.log_theta, hyper.shape_user, xi[:, None]) + energy(
        p.log_xi, a, a / hyper.rate_user
    )
    prior += energy(p.log_beta, hyper.shape_item, eta[:, None])
    return prior + energy(p.log_eta, c, c / hyper.rate_item) - fit


def expected(p: Params, data: Counts) -> Sums:
    """The expected counts of the components: y_ui theta_uk beta_ik / x_ui, summed by user and by item."""
    theta, beta = jnp.exp(p.log_theta), jnp.exp(p.log_beta)
    by_user, by_item = ratio_step(data.cells, data.y, theta, beta)
    return Sums(theta * by_user, beta * by_item)


def update(p: Params, data: Counts, hyper: Hyper) -> Params:
    """One EM iteration: the expected counts in one pass over the data, then the mode of each block."""
    z = expected(p, data)
    for site, conditional in CONDITIONALS.items():
        p = p._replace(**{site: conditional(p, data, hyper, z).mode})
    return p


def augment(p: Params, data: Counts, hyper: Hyper) -> dist.Distribution:
    """z: every count is divided among the components, multinomial with shares theta_uk beta_ik / x_ui."""
    return Splitting(jnp.exp(p.log_theta), jnp.exp(p.log_beta), data.cells, data.y)


def conditional_log_theta(p: Params, data: Counts, hyper: Hyper, z: Sums) -> LogGamma:
    """theta_uk | z: Gamma(a + z_{u.k}, xi_u + sum_i beta_ik)."""
    rate = jnp.exp(p.log_xi)[:, None] + jnp.exp(p.log_beta).sum(0)
    return LogGamma(hyper.shape_user + z.by_row, rate)


def conditional_log_beta(p: Params, data: Counts, hyper: Hyper, z: Sums) -> LogGamma:
    rate = jnp.exp(p.log_eta)[:, None] + jnp.exp(p.log_theta).sum(0)
    return LogGamma(hyper.shape_item + z.by_col, rate)


def conditional_log_xi(p: Params, data: Counts, hyper: Hyper, z: Sums) -> LogGamma:
    """xi_u | theta: Gamma(a' + K a, a'/b' + sum_k theta_uk)."""
    a, rate = hyper.shape_rate_user, jnp.exp(p.log_theta).sum(1)
    return LogGamma(a + hyper.n_components * hyper.shape_user, a / hyper.rate_user + rate)


def conditional_log_eta(p: Params, data: Counts, hyper: Hyper, z: Sums) -> LogGamma:
    c, rate = hyper.shape_rate_item, jnp.exp(p.log_beta).sum(1)
    return LogGamma(c + hyper.n_components * hyper.shape_item, c / hyper.rate_item + rate)


CONDITIONALS = {"log_theta": conditional_log_theta, "log_beta": conditional_log_beta}
CONDITIONALS |= {"log_xi": conditional_log_xi, "log_eta": conditional_log_eta}


# -- the paper's variational law: gamma sites, z multinomial with shares exp(E log theta + E log beta)
def means(q: Any) -> Params:
    """The logarithms of the means of theta, beta, xi and eta."""
    return Params(*(law.mode for law in laws(q).values()))


def begin(p: Params, data: Counts, hyper: Hyper) -> Any:
    """The conditionals at a point."""
    z = expected(p, data)
    found = {site: law(p, data, hyper, z) for site, law in CONDITIONALS.items()}
    new: Any = {site: {"shape": law.shape_, "rate": law.rate} for site, law in found.items()}
    return p._replace(**new)


def coordinate_step(q: Any, data: Counts, hyper: Hyper) -> Any:
    """The best law of z, then each site: its conditional with the means of the others."""
    typical = Params(*(law.mean for law in laws(q).values()))
    z = expected(typical, data)
    for site, conditional in CONDITIONALS.items():
        law = conditional(means(q), data, hyper, z)
        q = q._replace(**{site: {"shape": law.shape_, "rate": law.rate}})
    return q


def expected_joint(q: Any, data: Counts, hyper: Hyper) -> jax.Array:
    """A bound on minus the expected objective, with the best law of z."""
    theta, beta, xi, eta = (jnp.exp(value) for value in means(q))
    log = Params(*(law.mean for law in laws(q).values()))
    a, c = hyper.shape_rate_user, hyper.shape_rate_item

    def energy(value: jax.Array, log: jax.Array, shape: float, rate: Any, log_rate: Any) -> Any:
        return jnp.sum(rate * value - shape * (log + log_rate))

    listed = safe_log(inner(jnp.exp(log.log_theta), jnp.exp(log.log_beta), data.cells))
    fit = jnp.sum(data.y * listed - jax.scipy.special.gammaln(data.y + 1))
    fit -= theta.sum(0) @ beta.sum(0)
    by_user, by_item = (xi[:, None], log.log_xi[:, None]), (eta[:, None], log.log_eta[:, None])
    fit -= energy(theta, log.log_theta, hyper.shape_user, *by_user)
    fit -= energy(beta, log.log_beta, hyper.shape_item, *by_item)
    for value, log_value, shape, mean in (
        (xi, log.log_xi, a, hyper.rate_user),
        (eta, log.log_eta, c, hyper.rate_item),
    ):
        fit -= energy(value, log_value, shape, shape / mean, jnp.log(shape / mean))
    return fit


def laws(q: Any) -> dict[str, LogGamma]:
    return {site: LogGamma(own["shape"], own["rate"]) for site, own in q._asdict().items()}


VARIATIONAL = Variational(begin, coordinate_step, expected_joint, laws, below=True)


def model(data: Counts, hyper: Hyper) -> None:
    (n, m), h, one = data.shape, hyper, jnp.ones(hyper.n_components)
    with numpyro.plate("user", n):
        xi = numpyro.sample("log_xi", LogGamma(h.shape_rate_user, h.shape_rate_user / h.rate_user))
        law = LogGamma(h.shape_user, jnp.exp(xi)[:, None] * one)
        theta = numpyro.sample("log_theta", law.to_event(1))
    with numpyro.plate("item", m):
        eta = numpyro.sample(
            "log_eta", LogGamma(h.shape_rate_item, h.shape_rate_item / h.rate_item)
        )
        law = LogGamma(h.shape_item, jnp.exp(eta)[:, None] * one)
        beta = numpyro.sample("log_beta", law.to_event(1))
    numpyro.sample("rating", PoissonTable(jnp.exp(theta), jnp.exp(beta), data.cells), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> UnsurePoisson:
    """The count. A new user or item has the mean and the variance of the prior with xi or eta at its mean;
    over all xi the mean is infinite if `shape_rate_user` is at most 1, as by default."""
    theta, beta = jnp.exp(p.log_theta), jnp.exp(p.log_beta)
    if isinstance(query, Grid):
        return UnsurePoisson(inner(theta, beta, query), 0.0)
    new_user, new_item = (jnp.asarray(at)[:, None] < 0 for at in query[:2])
    h = hyper
    user = jnp.where(new_user, h.shape_user / h.rate_user, pick(theta, query.row))
    item = jnp.where(new_item, h.shape_item / h.rate_item, pick(beta, query.col))
    # E theta^2 E beta^2 - (E theta E beta)^2, with E theta^2 = (1 + 1/a) (E theta)^2 if theta is new
    spread = (1 + new_user / h.shape_user) * (1 + new_item / h.shape_item) - 1
    return UnsurePoisson(jnp.sum(user * item, -1), jnp.sum(spread * (user * item) ** 2, -1))


def example(key: jax.Array) -> tuple[Counts, Hyper]:
    """Seven users, five items, counts of about one; shapes above the paper's, so that chains mix quickly."""
    data = Counts(np.asarray(jax.random.poisson(key, 1.3, (7, 5))))
    hyper = Hyper(2, shape_user=1.3, shape_item=0.8, shape_rate_user=3.0, shape_rate_item=2.5)
    return data, prepare(data, hyper)


# fmt: off
METHOD = register(Method(
    name="hpf", cite="gopalan2015hpf", data=Counts, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(update=update, start=init),
    gibbs=Sampler(conditionals=CONDITIONALS, augment=augment), variational=VARIATIONAL,
    choose=Choose(candidates=choices, sweeps=120, by="ranks"),
    axes=Axes(
        dims={"log_theta": ("user", "component"), "log_beta": ("item", "component"),
            "log_xi": ("user",), "log_eta": ("item",)},
        gauge=(Permutation({"log_theta": 1, "log_beta": 1}),),
    ),
    notes=Notes(
        traits={"nonnegative": "counts are not negative",
            "poisson": "counts are Poisson numbers, given the factors",
            "no_minibatch": "a law of the whole table: a sample of the listed pairs lacks the zeros",
            },
    ),
))
# fmt: on
