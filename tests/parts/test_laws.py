"""The laws of observations that no method of the library has, in small methods with two kinds of priors.

J and the model of the cells are stated here by hand, so that the contract compares them with the parts.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln
from scipy import integrate, stats

import bayesfac as bf
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.laws.counts import NegativeBinomial as Law
from bayesfac.core.laws.counts import UnsurePoisson
from bayesfac.core.laws.distributions import SpreadStudentT
from bayesfac.core.math import inner
from bayesfac.models.ratings._shared import normal_wishart as wishart
from bayesfac.parts.composition import composed
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed.bernoulli import Bernoulli
from bayesfac.parts.observed.negative_binomial import NegativeBinomial
from bayesfac.parts.observed.student_t import StudentT
from bayesfac.parts.priors import bias, ridge
from bayesfac.testing import CHECKS
from tests.inference.test_geweke import THRESHOLD, z_scores


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    mu_U: jax.Array | None = None
    Lambda_U: jax.Array | None = None
    mu_V: jax.Array | None = None
    Lambda_V: jax.Array | None = None
    bias_user: jax.Array | None = None
    bias_item: jax.Array | None = None
    alpha: jax.Array | None = None
    r: jax.Array | None = None
    B: dict | None = None
    C: dict | None = None
    ridge: dict | None = None


class Hyper(NamedTuple):
    n_components: int = 2
    offset: float | None = None
    beta0: float = 2.0
    rate: float = 1.2
    ridge_shape: float = 1.0
    ridge_rate: float = 0.1
    scale_user: float = 0.7
    scale_item: float = 0.9
    scale_bias: float = 0.5
    nu: float = 4.0
    alpha: float | None = None
    alpha_shape: float = 2.0
    alpha_rate: float | None = 1.0
    r: float | None = None
    r_shape: float = 3.0
    r_rate: float = 1.0


WISHART = Matrix(wishart.SIDES)
RIDGE = Matrix(
    (ridge("user", "U", "scale_user"), ridge("item", "V", "scale_item")),
    (bias("user", "scale_bias"), bias("item", "scale_bias")),
)


# -- J and the model of the cells by hand -----------------------------------------------------------------
def student(y, mean, p, h):
    alpha = h.alpha if p.alpha is None else p.alpha
    t = (y - mean) * jnp.sqrt(alpha)
    own = 0.0 if p.alpha is None else alpha - jnp.log(alpha)  # alpha ~ Gamma(2, 1)
    return jnp.sum(2.5 * jnp.log(1 + t**2 / 4)) - len(y) * jnp.log(alpha) / 2 + own


def student_law(mean, h):
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 1.0)) if h.alpha is None else h.alpha
    return dist.StudentT(4.0, mean, 1 / jnp.sqrt(alpha))


def logistic(y, mean, p, h):
    return jnp.sum(jnp.log(1 + jnp.exp(mean)) - y * mean)


def probit(y, mean, p, h):
    one = jax.scipy.stats.norm.cdf(mean)
    return -jnp.sum(jnp.log(jnp.where(y == 1, one, 1 - one)))


def counts(y, mean, p, h):
    r, m = h.r if p.r is None else p.r, jnp.exp(mean)
    fit = gammaln(y + r) - gammaln(r) + r * jnp.log(r / (r + m)) + y * jnp.log(m / (r + m))
    return -jnp.sum(fit) + (0.0 if p.r is None else r - 2 * jnp.log(r))  # r ~ Gamma(3, 1)


def counts_law(mean, h):
    r = numpyro.sample("r", dist.Gamma(3.0, 1.0)) if h.r is None else h.r
    return UnsurePoisson(jnp.exp(mean), jnp.exp(2 * mean) / r)


LAWS = {
    "student": (StudentT(), student, student_law),
    "logit": (Bernoulli(), logistic, lambda mean, h: dist.BernoulliLogits(mean)),
    "probit": (Bernoulli("probit"), probit, lambda mean, h: dist.BernoulliProbs(
        jax.scipy.stats.norm.cdf(mean))),
    "counts": (NegativeBinomial(), counts, counts_law),
}  # fmt: skip


def values(law, key, shape=(7, 5)):
    z = jax.random.normal(key, shape)
    if law == "student":
        return z.at[1, 2].set(9.0)
    return 1.0 * (z > 0.3) if law in ("logit", "probit") else jnp.round(jnp.exp(1.5 * z))


def few(law, key):
    seen = jax.random.uniform(jax.random.fold_in(key, 1), (7, 5)) < 0.75
    return Ratings(np.where(seen, values(law, key), np.nan))


@cache
def method(law, kind, **settings):
    """A method of this law and of these priors: "wishart", or "ridge" with biases."""
    own, by_hand, cells = LAWS[law]
    structure = WISHART if kind == "wishart" else RIDGE

    def objective(p, data, h):
        mean = h.offset + inner(p.U, p.V, data.cells)
        if kind == "wishart":
            return by_hand(data.y, mean, p, h) + wishart.energy(p, data, h)
        mean += p.bias_user[data.cells.row] + p.bias_item[data.cells.col]
        squares = jnp.sum(p.U**2) / h.scale_user**2 + jnp.sum(p.V**2) / h.scale_item**2
        squares += (jnp.sum(p.bias_user**2) + jnp.sum(p.bias_item**2)) / h.scale_bias**2
        return by_hand(data.y, mean, p, h) + squares / 2

    def model(data, h):
        if kind == "wishart":
            mean = inner(*wishart.sampled(data, h), data.cells)
        else:
            n, m, K = *data.shape, h.n_components
            rows = {"U": (n, K), "V": (m, K), "bias_user": (n,), "bias_item": (m,)}
            sds = {"U": h.scale_user, "V": h.scale_item}
            laws = {site: dist.Normal(0, sds.get(site, h.scale_bias)) for site in rows}
            p = Params(**{
                site: numpyro.sample(site, laws[site].expand(shape).to_event(len(shape)))
                for site, shape in rows.items()
            })  # fmt: skip
            mean = inner(p.U, p.V, data.cells)
            mean += p.bias_user[data.cells.row] + p.bias_item[data.cells.col]
        law = cells(h.offset + mean, h)
        with numpyro.plate("cell", len(mean)):
            numpyro.sample("rating", law, obs=data.y)

    def example(key):
        data = few(law, key)
        return data, own.prepare(data, Hyper(**settings))

    return composed(
        f"{law}_{kind}", cite="none", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=structure, observed=own, objective=objective, model=model, example=example,
        prepare=own.prepare,
    )  # fmt: skip


# the ridge methods have biases too; with a Wishart prior, precisions and scales move as well
OFTEN = ("conditionals", "descent", "moves", "optimum", "variational")
# counts of rows without variance, as those of a Wishart prior with K degrees, are too large for a float
MADE = [(law, "ridge", check) for law in LAWS for check in CHECKS]
MADE += [(law, "wishart", c) for law in LAWS for c in OFTEN if (law, c) != ("counts", "moves")]


@pytest.mark.parametrize(("law", "kind", "check"), MADE)
def test_contract(law, kind, check):
    if reason := CHECKS[check](method(law, kind), jax.random.key(0)):
        pytest.skip(reason)


@pytest.mark.parametrize("check", ["parts", "conditionals", "descent", "variational"])
@pytest.mark.parametrize(("law", "given"), [("student", "alpha"), ("counts", "r")])
def test_a_given_number_is_no_site(law, given, check):
    made = method(law, "ridge", **{given: 1.7})
    assert CHECKS[check](made, jax.random.key(0)) is None
    data, h = made.example(jax.random.key(0))
    assert getattr(made.init(jax.random.key(0), data, h), given) is None


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_sweeps_leave_the_prior_alone(law):
    z = z_scores(method(law, "ridge"), {})
    assert np.abs(z).max() < THRESHOLD


# -- data --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("law", "table", "message"),
    [
        ("logit", [[0, 1], [2, 1]], r"Expected values 0 and 1, got 2 \(user 1, item 0\)"),
        ("probit", [[0, 0.5]], r"Expected values 0 and 1, got 0.5 \(user 0, item 1\)"),
        ("logit", [[1, 1]], "Expected values 0 and 1, got 1 everywhere"),
        ("counts", [[3, 1.5]], r"Expected whole numbers of at least 0, got 1.5 \(user 0, item 1\)"),
        ("counts", [[-1, 2]], r"Expected whole numbers of at least 0, got -1 \(user 0, item 0\)"),
        ("counts", [[0, 0]], "Expected a count above 0, got 0 everywhere"),
    ],
)
def test_wrong_values_are_refused(law, table, message):
    with pytest.raises(ValueError, match=message):
        LAWS[law][0].prepare(Ratings(np.array(table, float)), Hyper())


def test_counts_whose_zeros_are_not_listed_are_refused():
    with pytest.raises(
        ValueError, match="Expected data whose missing cells are no zeros.*got Counts"
    ):
        NegativeBinomial().prepare(bf.Counts(np.array([[0, 2], [1, 0]])), Hyper())


def test_settings_without_meaning_are_refused():
    data = Ratings(np.array([[0.0, 1.0]]))
    with pytest.raises(
        ValueError, match="Expected nu above 2, so that values have a variance, got 2"
    ):
        StudentT().prepare(data, Hyper(nu=2.0))
    with pytest.raises(ValueError, match="Expected r to be a finite number above 0, got -1"):
        NegativeBinomial().prepare(data, Hyper(r=-1.0))


def test_offsets_are_those_of_the_share_of_ones_and_of_the_mean():
    data, h = Ratings(np.array([[0.0, 1.0, 0.0, 0.0]])), Hyper()
    assert LAWS["logit"][0].prepare(data, h).offset == pytest.approx(np.log(1 / 3))
    assert LAWS["probit"][0].prepare(data, h).offset == pytest.approx(stats.norm.ppf(0.25))
    assert LAWS["counts"][0].prepare(data, h).offset == pytest.approx(np.log(0.25))
    assert LAWS["logit"][0].prepare(data, h._replace(offset=0.3)).offset == 0.3


# -- fits ---------------------------------------------------------------------------------------------------
def simulated(law, seed=0, shape=(40, 25)):
    """Scores u.v, and values that have the law at these scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1]))
    noise = {
        "student": lambda: x + 0.3 * rng.standard_t(4, shape),
        "logit": lambda: 1.0 * (rng.logistic(size=shape) < 2 * x),
        "probit": lambda: 1.0 * (rng.normal(size=shape) < x),
        "counts": lambda: 1.0 * rng.negative_binomial(3, 3 / (3 + np.exp(x + 1))),
    }
    return noise[law]()


@pytest.mark.parametrize("law", LAWS)
def test_draws_predict_cells_and_new_labels(law):
    """Held-out cells have higher log scores than with the frequencies or the spread of all values, and the
    cells of a new user the spread of all."""
    y, rng = simulated(law), np.random.default_rng(1)
    out = rng.random(y.shape) < 0.2
    made = method(law, "wishart" if law != "counts" else "ridge")
    fit = bf.fit(made, np.where(out, np.nan, y), bf.Gibbs(100, 100, 2), progress=False)
    user, item = np.nonzero(out)
    told = fit.predict((user, item))
    scores = told.scores(y[out])
    if law == "student":
        plain = stats.t(*stats.t.fit(y)).logpdf(y[out])
    elif law == "counts":
        m, v = y.mean(), y.var()
        plain = stats.nbinom(m**2 / (v - m), m / v).logpmf(y[out])
    else:
        plain = np.log(np.where(y[out] == 1, y.mean(), 1 - y.mean()))
    assert scores["log_score"].mean() > plain.mean() + 0.1
    assert stats.kstest(scores["pit"], "uniform").pvalue > 1e-4
    new = fit.predict(([1000] * 3, [0, 1, 2]))
    assert new.flagged.all() and (new.sd > 0.8 * told.sd.mean()).all() and np.isfinite(new.sd).all()


def test_a_value_further_away_counts_less():
    """The scores of the other cells hardly see a wrong value, and see it less where it is more wrong."""
    key, made = jax.random.key(0), method("student", "ridge", alpha=4.0)
    data, h = made.example(key)
    at = int(jnp.argmax(data.y))

    def scores(value):
        own = data.replaced(y=data.y.at[at].set(value))
        step = jax.jit(lambda p: made.solver.update(p, own, h))
        p = made.init(key, data, h)
        for _ in range(300):
            p = step(p)
        return jnp.delete(made.parts.at(h).scores(p, data), at)

    clean, near, far = map(scores, (h.offset, 9.0, 90.0))
    assert jnp.abs(far - clean).max() < 0.1 * jnp.abs(near - clean).max() + 0.02


# -- the laws of predictions --------------------------------------------------------------------------------
def over_scores(f, sd):
    """The mean of f(z sd) over normal z."""
    given = dict(epsabs=0, epsrel=1e-10, limit=1000)
    return integrate.quad(lambda z: stats.norm.pdf(z) * f(z * sd), -9, 9, **given)[0]


@pytest.mark.parametrize("df", [2.5, 4.0, 60.0])
def test_student_t_about_a_centre_that_is_not_known(df):
    wide, y = np.array([0.0, 0.04, 9.0]), 2.5
    law = SpreadStudentT(df, jnp.array([0.0, 0.2, -0.3]), 0.7, jnp.asarray(wide))
    t = [stats.t(df, loc, 0.7) for loc in law.loc.tolist()]
    pdf = [
        t[0].pdf(y),
        *(over_scores(lambda x, t=t[k]: t.pdf(y - x), wide[k] ** 0.5) for k in (1, 2)),
    ]
    cdf = [
        t[0].cdf(y),
        *(over_scores(lambda x, t=t[k]: t.cdf(y - x), wide[k] ** 0.5) for k in (1, 2)),
    ]
    np.testing.assert_allclose(law.log_prob(y), np.log(pdf), rtol=1e-8)
    np.testing.assert_allclose(law.cdf(y), cdf, rtol=1e-8)
    drawn = law.sample(jax.random.key(0), (40_000,))
    assert all(stats.kstest(np.asarray(drawn[:, k]), lambda y, k=k: law_cdf(law, y, k)).pvalue > 1e-4
               for k in range(3))  # fmt: skip
    np.testing.assert_allclose(law.variance, wide + 0.49 * df / (df - 2))


def law_cdf(law, y, k):
    one = SpreadStudentT(
        law.df, jnp.full(len(y), law.loc[k]), law.scale[k], jnp.full(len(y), law.wide[k])
    )
    return np.asarray(one.cdf(y))


@pytest.mark.parametrize("r", [0.3, 4.0])
def test_counts_about_a_score_that_is_not_known(r):
    wide, y = np.array([0.0, 0.3, 4.0]), 3.0
    law = Law(r, jnp.full(3, 0.4), jnp.asarray(wide))
    nb = lambda x: stats.nbinom(r, 1 / (1 + np.exp(0.4 + x)))  # noqa: E731
    pmf = [over_scores(lambda x: nb(x).pmf(y), sd) for sd in wide**0.5]
    cdf = [over_scores(lambda x: nb(x).cdf(y), sd) for sd in wide**0.5]
    np.testing.assert_allclose(law.log_prob(y), np.log(pmf), rtol=1e-8)
    np.testing.assert_allclose(law.cdf(y), cdf, rtol=1e-8)
    first = [over_scores(lambda x: nb(x).mean(), sd) for sd in wide[:2] ** 0.5]
    second = [over_scores(lambda x: nb(x).moment(2), sd) for sd in wide[:2] ** 0.5]
    np.testing.assert_allclose(law.mean[:2], first, rtol=1e-8)
    np.testing.assert_allclose(law.variance[:2], np.array(second) - np.square(first), rtol=1e-7)
    drawn = np.asarray(law.sample(jax.random.key(0), (40_000,)))
    share = (drawn <= y).mean(0)
    assert (np.abs(share - cdf) < 4.5 * np.sqrt(share * (1 - share) / len(drawn))).all()
    assert law.cdf(-1.0).max() == 0
