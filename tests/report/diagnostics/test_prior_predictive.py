"""Data from the prior: moments known in closed form, every method's example, and what is said of it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.report.diagnostics import prior_predictive


def ratings(levels=None):
    rng = np.random.default_rng(0)
    value = rng.normal(3, 1, (30, 20))
    return bf.Ratings(value if levels is None else np.clip(np.rint(value), 1, 5), levels=levels)


def test_moments_are_those_of_the_model():
    """y ~ N(m + u.v, s^2): variance s^2 + K s_u^2 s_v^2; cells of one user share their u."""
    given = {"n_components": 3, "noise": 0.5, "scale_user": 0.9, "scale_item": 0.7, "offset": 2.0}
    given["biases"] = False
    found = bf.prior_predictive("pmf", ratings(), draws=400, **given)
    assert found.outcomes.shape == (400, 600)
    exact = 0.25 + 3 * 0.81 * 0.49
    each = found.outcomes.mean(1), found.outcomes.var(1)
    for got, value in zip(each, (2.0, exact), strict=True):
        error = got.std() / 400**0.5  # data sets are independent
        # the variance within a data set lacks that of its mean
        slack = 0 if value == 2.0 else each[0].var()
        assert abs(got.mean() - value) < 4 * error + slack


def test_the_same_seed_draws_the_same_data():
    one, same, other = (bf.prior_predictive("bpmf", ratings(), draws=3, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.outcomes, same.outcomes)
    assert (one.outcomes != other.outcomes).any()


def test_wide_hierarchies_are_drawn():
    """In single precision, which users have, some draws of Lambda cannot be inverted."""
    with jax.enable_x64(False):
        found = bf.prior_predictive("bpmf", ratings(), draws=200, seed=1)
    assert found.outcomes.shape == (200, 600) and found.outside > 0.5


QUICK = ("pmf", "mmmf", "pmmmf", "plsa", "cplst", "mlc_hmf")
TOO_STRONG = (
    "faie",
    "grople",
    "himls",
)  # their factors leave too few draws, even on small examples
EVERY = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in sorted(REGISTRY)]


@pytest.mark.parametrize("name", EVERY)
def test_every_method_draws_or_says_why_not(name):
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    settings = hyper._asdict()
    if method.name == "pmmmf":
        with pytest.raises(BayesfacError, match="no prior predictive: theta"):
            bf.prior_predictive(method, data, draws=5, **settings)
        return
    if method.data is bf.Tensor:
        with pytest.raises(BayesfacError, match="Expected data with two axes"):
            bf.prior_predictive(method, data, draws=5, **settings)
        return
    if method.name in TOO_STRONG:
        with pytest.raises(BayesfacError, match="too few to take 5 from"):
            bf.prior_predictive(method, data, draws=5, **settings)
        return
    found = bf.prior_predictive(method, data, draws=5, **settings)
    assert found.outcomes.shape == (5, len(found.seen)) and np.isfinite(found.outcomes).all()
    assert np.ptp(found.outcomes) > 0 and np.isfinite(found.summary.to_numpy()).all()
    if method.data is bf.Ratings:
        np.testing.assert_array_equal(np.sort(found.seen), np.sort(data.value))
    assert found.name in repr(found)


def test_ordinal_outcomes_are_levels():
    found = bf.prior_predictive("ordinal_mf", ratings(5), draws=20, n_components=2)
    assert set(np.unique(found.outcomes)) <= {1, 2, 3, 4, 5}
    assert found.outside == 0 and found.scale == (0.5, 5.5)


def test_a_wide_prior_leaves_the_scale():
    data, share = ratings(5), {}
    for scale in (0.3, 10.0):
        found = bf.prior_predictive(
            "pmf", data, draws=50, n_components=2, scale_user=scale, scale_item=scale
        )
        share[scale] = found.outside
        assert found.level == ("good" if scale == 0.3 else "care")
    assert share[0.3] < 0.1 and share[10.0] > 0.9
    assert "make its scales smaller" in repr(found)


def test_a_wide_prior_of_levels_is_not_called_narrow():
    """By default all levels of a draw are at one end, as the mean of the rows may be anywhere."""
    found = bf.prior_predictive("ordinal_mf", ratings(5), draws=50, n_components=2)
    assert np.median(found.outcomes.std(1)) < found.seen.std() / 2 < found.outcomes.std()
    assert "too narrow" not in repr(found) and "centre is too wide" in repr(found)
    settled = bf.prior_predictive("ordinal_mf", ratings(5), draws=50, n_components=2, beta0=2.0)
    assert settled.level == "good"


def test_a_narrow_prior_and_one_off_centre():
    narrow = {"n_components": 1, "noise": 0.2, "scale_user": 0.1, "scale_item": 0.1}
    narrow["biases"] = False
    found = bf.prior_predictive("pmf", ratings(), draws=50, offset=3.0, **narrow)
    assert "too narrow" in repr(found)
    found = bf.prior_predictive("pmf", ratings(), draws=50, offset=30.0, n_components=1)
    assert "off centre" in repr(found) and found.summary.loc["mean", "rank"] == 0


def test_few_cells_of_many(monkeypatch):
    monkeypatch.setattr("bayesfac.report.diagnostics.prior_predictive.CELLS", 50)
    data = ratings()
    found = bf.prior_predictive("pmf", data, draws=4, n_components=1)
    assert found.outcomes.shape == (4, 50) and np.isin(found.seen, data.value).all()
    views = bf.Views({"a": np.eye(12), "b": np.ones((12, 9))})
    where, seen = prior_predictive.cells_of(views, np.random.default_rng(0))
    assert {name: len(row) for name, (row, _) in where.items()} == {"view.a": 25, "view.b": 25}
    np.testing.assert_array_equal(seen[:25], np.equal(*where["view.a"]))
    assert (seen[25:] == 1).all()


def test_counts_keep_zeros_and_totals():
    counts = np.random.default_rng(0).poisson(1.0, (9, 6)) + np.eye(9, 6)
    found = bf.prior_predictive("plsa", bf.Views(counts), draws=30, n_components=2)
    assert found.outcomes.shape == (30, 54) and (found.seen == 0).any()
    np.testing.assert_allclose(found.outcomes.sum(1), counts.sum())  # the model keeps the totals


@pytest.mark.parametrize("name", ["plsa", "mggm"])
def test_features_that_are_no_counts_are_refused(name):
    """Their totals were cut to whole numbers, and all words of a row of length one fell into one or two."""
    counts = np.random.default_rng(0).poisson(2.0, (9, 6)) + np.eye(9, 6)
    settings = {"plsa": {"scale": "rows"}, "mggm": {"n_topics": 2, "penalty": 0.1}}[name]
    with pytest.raises(BayesfacError, match="draws whole counts"):
        bf.prior_predictive(name, bf.Views(counts), draws=30, n_components=2, **settings)


def test_preferences_are_compared_with_preferences():
    """`wrmf` makes preferences of counts, and draws preferences."""
    counts = np.random.default_rng(0).poisson(1.0, (9, 6)) * 5
    found = bf.prior_predictive("wrmf", bf.Counts(counts), draws=30, n_components=2)
    np.testing.assert_array_equal(found.seen, counts.ravel() > 0)
    assert found.scale == (-0.5, 1.5)


def narrowed(weight):
    """pmf with a factor exp(-weight / 2 |U|^2)."""
    pmf = REGISTRY["pmf"]

    def model(data, hyper):
        held = numpyro.handlers.trace(pmf.model).get_trace(data, hyper)
        numpyro.factor("narrow", -weight / 2 * jnp.sum(held["U"]["value"] ** 2))

    return replace(pmf, name="narrowed", model=model)


def test_factors_weight_the_draws():
    """u ~ N(0, s^2) with the factor exp(-w/2 u^2) has the precision 1 / s^2 + w."""
    given = {"n_components": 1, "noise": 0.5, "scale_user": 0.9, "scale_item": 0.7, "offset": 2.0}
    given["biases"] = False
    data = bf.Ratings(np.random.default_rng(0).normal(2, 1, (3, 20)))
    found = bf.prior_predictive(narrowed(3 / 0.81), data, draws=200, **given)
    each = ((found.outcomes - 2) ** 2).mean(1)
    assert abs(each.mean() - (0.25 + 0.81 / 4 * 0.49)) < 4 * each.std() / 200**0.5
    assert each.mean() < 0.25 + 0.81 / 2 * 0.49, (
        "the variance without the factor is 0.25 + 0.81 * 0.49"
    )


def test_factors_that_leave_too_few_draws_or_see_the_data_are_refused():
    data = bf.Ratings(np.random.default_rng(0).normal(2, 1, (60, 5)))
    with pytest.raises(BayesfacError, match="too few to take 20 from"):
        bf.prior_predictive(narrowed(1e3), data, draws=20, n_components=1)
    method = REGISTRY["lsa_mml"]
    data, _ = method.example(jax.random.key(0))
    with pytest.raises(BayesfacError, match="the factor 'views' depends on the data"):
        bf.prior_predictive(method, data, draws=5, n_components=3)


def test_picture_and_words():
    found = bf.prior_predictive("pmf", ratings(5), draws=20, n_components=2)
    picture = found.picture()
    assert picture.png()[:4] == b"\x89PNG" and "beyond 0.5 to 5.5" in picture.caption
    assert list(found.summary.columns) == ["data", "5 %", "median", "95 %", "rank"]


def test_refusals():
    with pytest.raises(BayesfacError, match="its prior of theta is flat"):
        bf.prior_predictive("mmmf", ratings(5), n_components=2, scale_theta=np.inf)
    with pytest.raises(ValueError, match="Expected draws between 1"):
        bf.prior_predictive("pmf", ratings(), draws=0)
    with pytest.raises(TypeError, match="Expected Ratings for pmf, got Views"):
        bf.prior_predictive("pmf", bf.Views([[1, 2]]))
    with pytest.raises(LookupError, match="Unknown method"):
        bf.prior_predictive("pmff", ratings())
    with pytest.raises(LookupError, match="Unknown hyper-parameter"):
        bf.prior_predictive("pmf", ratings(), rank=3)
