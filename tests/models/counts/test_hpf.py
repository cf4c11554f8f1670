"""HPF: one EM step cell by cell, the zeros, what EM and Gibbs share, and what the paper promises."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

import bayesfac as bf
from bayesfac.choosing import choose
from bayesfac.core.data.cells import Query
from bayesfac.core.method import REGISTRY

HPF = REGISTRY["hpf"]


def case():
    """The example and a start, the start as theta, beta, xi, eta, and the table with its zeros."""
    data, h = HPF.example(jax.random.key(3))
    p = HPF.init(jax.random.key(4), data, h)
    table = np.zeros(data.shape)
    table[data.user, data.item] = data.value
    return data, h, p, [np.exp(np.asarray(x, float)) for x in p], table


def golden(method):
    """One EM step on the example, every count divided by hand, on a table with its zeros."""
    data, h, p, (theta, beta, xi, eta), table = case()
    z = table[:, :, None] * theta[:, None] * beta
    z /= (theta @ beta.T)[:, :, None]
    theta = (h.shape_user + z.sum(1)) / (xi[:, None] + beta.sum(0))
    beta = (h.shape_item + z.sum(0)) / (eta[:, None] + theta.sum(0))
    a, c, K = h.shape_rate_user, h.shape_rate_item, h.n_components
    xi = (a + K * h.shape_user) / (a / h.rate_user + theta.sum(1))
    eta = (c + K * h.shape_item) / (c / h.rate_item + beta.sum(1))
    new = method.solver.update(p, data, h)
    for mine, theirs in zip((theta, beta, xi, eta), new, strict=True):
        np.testing.assert_allclose(np.exp(theirs), mine, rtol=1e-5)


def test_golden_step():
    with jax.enable_x64(True):
        golden(HPF)


def test_the_objective_is_that_of_the_paper():
    """The density of a logarithm is that of the number, times the number; J leaves out gamma functions."""
    with jax.enable_x64(True):
        data, h, p, (theta, beta, xi, eta), table = case()
        wanted = stats.poisson(theta @ beta.T).logpmf(table).sum()
        a, c, lost = h.shape_rate_user, h.shape_rate_item, 0.0
        for x, shape, rate in (
            (theta, h.shape_user, xi[:, None]), (beta, h.shape_item, eta[:, None]),
            (xi, a, a / h.rate_user), (eta, c, c / h.rate_item),
        ):  # fmt: skip
            wanted += (stats.gamma(shape, scale=1 / rate).logpdf(x) + np.log(x)).sum()
            lost += x.size * gammaln(shape)
        np.testing.assert_allclose(HPF.objective(p, data, h), -wanted - lost, rtol=1e-10)


def test_gibbs_divides_what_em_divides():
    """The expected counts of EM are the mean of those that Gibbs draws, within five standard errors."""
    data, h, p, (theta, beta, *_), table = case()
    keys = jax.random.split(jax.random.key(0), 2000)
    drawn = jax.vmap(lambda k: HPF.gibbs.augment(p, data, h).sample(k))(keys)
    share = theta[:, None] * beta / (theta @ beta.T)[:, :, None]
    mean, variance = (
        (table[:, :, None] * share).sum(1),
        (table[..., None] * share * (1 - share)).sum(1),
    )
    error = np.sqrt(variance / 2000)
    assert (np.abs(np.asarray(drawn.by_row).mean(0) - mean) <= 5 * error + 1e-4).all()
    np.testing.assert_array_equal(drawn.by_row.sum((1, 2)), table.sum())


def planted(seed=0):
    """120 users of three tastes that differ in activity, 60 items; counts of about one in three pairs."""
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.full(3, 0.1), 120) * rng.gamma(2.0, 1.0, (120, 1))
    beta = rng.dirichlet(np.full(3, 0.1), 60) * rng.gamma(1.0, 1.0, (60, 1))
    return bf.Counts(rng.poisson(theta @ beta.T)), theta @ beta.T


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_it_finds_what_popularity_cannot():
    """Expected counts near the true rates: the paper's point against one component."""
    counts, rate = planted()
    three, one = (bf.fit("hpf", counts, n_components=k, progress=False) for k in (3, 1))
    gap = [np.abs(f.everywhere().mean - rate).mean() for f in (three, one)]
    assert three.converged and gap[0] < 0.75 * gap[1]
    found = three.recommend([0], 5, exclude=counts)
    shut = counts.items[counts.item[counts.user == 0]]
    assert len(found) == 5 and not set(found["item"]) & set(shut)


def test_new_users_are_those_of_the_prior():
    _, h, p, (theta, beta, *_), _ = case()
    found = HPF.predict(p, Query(np.array([-1, 2, -1, 2]), np.array([1, -1, -1, 1])), h)
    mine, theirs = h.shape_user / h.rate_user, h.shape_item / h.rate_item
    mean = [mine * beta[1].sum(), theirs * theta[2].sum(), 2 * mine * theirs, theta[2] @ beta[1]]
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    draws = np.random.default_rng(0).gamma(h.shape_user, 1 / h.rate_user, (200_000, 2))
    rate = draws @ beta[1]
    assert float(found.variance[0]) == pytest.approx(rate.mean() + rate.var(), rel=0.02)
    assert float(found.variance[3]) == pytest.approx(mean[3], rel=1e-5)


def test_new_users_are_folded_in():
    counts, _ = planted()
    fit = bf.fit("hpf", counts, bf.FixedPoint(200), n_components=2, progress=False)
    again = fit.fold_in(counts.of_users(0, 3))
    np.testing.assert_allclose(
        np.exp(again.params.log_theta), np.exp(fit.params.log_theta[:3]), rtol=0.02, atol=1e-3
    )


@pytest.mark.parametrize(
    ("data", "settings", "said"),
    [
        ([[1.5, 0], [1, 2]], {}, "Expected whole numbers for hpf, got 1.5 \\(user 0, item 0\\)"),
        ([[1, 0], [1, 2]], {"shape_user": 0.0}, "shape_user to be a finite number above 0"),
        ([[1, 0], [1, 2]], {"n_components": 3}, "n_components between 1 and 2"),
    ],
)
def test_what_is_refused(data, settings, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("hpf", data, progress=False, **settings)


@pytest.mark.parametrize("name", ["hpf", "wrmf"])
def test_a_user_of_zeros_is_known(name):
    """Zeros are observed: the user is no draw of the prior, and every way to ask says the same."""
    y = np.random.default_rng(0).poisson(3, (30, 12))
    y[4] = 0
    for engine in (None, bf.Gibbs(50, 50, 2)):
        fit = bf.fit(name, bf.Counts(y), engine, n_components=2, progress=False)
        asked = fit.predict({"user": [4] * 12, "item": range(12)})
        np.testing.assert_allclose(fit.everywhere().mean[4], asked.mean, rtol=1e-5, atol=1e-7)
        shown = fit.recommend([4], n=12).sort_values("item")
        np.testing.assert_allclose(shown["mean"], asked.mean, rtol=1e-5, atol=1e-7)
        assert np.abs(asked.mean).max() < 0.5 and not asked.flagged.any()


@pytest.mark.parametrize("given", [{"rate_user": 0.4}, {"rate_item": 5.0}, {}])
def test_one_rate_decides_the_other(given):
    """With the rates of the prior x_ui is the mean count, whichever of the two is set."""
    data = bf.Counts(np.random.default_rng(0).poisson(0.7, (40, 30)))
    hyper = HPF.prepare(data, HPF.Hyper(5)._replace(**given))
    assert all(getattr(hyper, name) == value for name, value in given.items())
    mean = 5 * hyper.shape_user * hyper.shape_item / (hyper.rate_user * hyper.rate_item)
    assert mean == pytest.approx(data.mean)
    with pytest.raises(ValueError, match="rate_item"):
        HPF.prepare(data, HPF.Hyper(5, rate_item=0.0))


def test_held_out_pairs_choose_the_shapes():
    """Counts that popularity and activity explain: the sparse components of the paper's 0.3 fit chance."""
    rng = np.random.default_rng(0)
    popular = 200 * (weights := 1 / (np.arange(200) + 3.0) ** 0.9) / weights.sum()
    data = bf.Counts(rng.poisson(0.1 * rng.gamma(2, 0.5, (300, 1)) * popular))
    train, test = bf.split.holdout(data, 0.25, seed=0)

    def lost(**shapes):
        fit = bf.fit("hpf", train, progress=False, **shapes)
        return fit.hyper, -np.mean(test.value * np.log(x := fit.predict(test).mean) - x)

    paper = {"shape_user": 0.3, "shape_item": 0.3}
    (chosen, new), (given, old) = lost(), lost(**paper)
    assert (given.shape_user, given.shape_item) == (0.3, 0.3)
    assert chosen.shape_user == chosen.shape_item > 1
    assert new < old - 0.2


def test_the_shapes_are_chosen_for_lists():
    """Who listens to what: users of 12 tastes with 20 items each, of which few are popular. The log score of
    held-out pairs, which leaves the zeros out, is best without any factors, at shapes above 9."""
    rng = np.random.default_rng(0)
    popular = 1 / (1 + np.arange(500)) ** 0.9
    genre, taste = rng.dirichlet(np.full(12, 0.15), 500), rng.dirichlet(np.full(12, 0.2), 300)
    chance = np.log(taste @ genre.T * popular + 1e-12) + rng.gumbel(size=(300, 500))
    item = np.argsort(-chance, 1)[:, :20].ravel()
    found = choose(HPF, bf.Counts((np.repeat(np.arange(300), 20), item)), {}, 0)
    assert found.values["shape_user"] == found.values["shape_item"] < 9
    assert "by the ranks of held-out pairs" in found.how[0]


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("engine", [bf.FixedPoint(2), bf.Gibbs(1, 1, 1)])
def test_counts_that_are_far_more_spread_than_poissons_get_advice(engine):
    rng = np.random.default_rng(0)
    plays = bf.Counts(np.rint(np.exp(rng.normal(1, 2, (30, 12)))))

    def told(name, counts):
        own = {"shape_user": 1.0, "shape_item": 1.0} if name == "hpf" else {"scale_user": 1.0}
        fit = bf.fit(name, counts, engine, n_components=2, progress=False, **own)
        return [note for note in fit.notes if "rounded logarithms" in note]

    value = plays.value
    (note,) = told("hpf", plays)
    assert f"is {value.var() / value.mean():.3g} times their mean" in note
    assert not told("wrmf", plays)
    for fine in (np.rint(1 + np.log(value)), np.ones_like(value)):
        assert not told("hpf", bf.Counts((plays.user, plays.item, fine)))
    assert not told("hpf", planted()[0])
