"""MMMF: the thesis's Tables 3.6-3.7, and what margins and thresholds must do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.kernels.losses import BINARY, ordinal
from bayesfac.core.method import REGISTRY
from bayesfac.parts.observed.margins import alike

MMMF = REGISTRY["mmmf"]


def golden(method):
    """J of the example by plain loops over users, items and thresholds (eq. 3.12), with biases of items."""
    data, h = MMMF.example(jax.random.key(3))
    p = MMMF.init(jax.random.key(4), data, h)
    U, V, theta, bias = (np.asarray(x) for x in p)
    J = 0.5 * h.penalty * ((U**2).sum() + (V**2).sum()) + 0.5 * ((bias / h.scale_bias) ** 2).sum()
    J += 0.5 * (((theta - np.array(h.centres)) / h.scale_theta) ** 2).sum()
    for i, j, y in zip(data.user, data.item, data.value, strict=True):
        for r in (1, 2, 3):
            z = (1 if r >= y else -1) * (theta[i, r - 1] - U[i] @ V[j] - bias[j])
            J += 0 if z >= 1 else (0.5 * (1 - z) ** 2 if z > 0 else 0.5 - z)
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-12)


def test_golden_objective():
    golden(MMMF)


def test_the_level_is_one_more_than_the_thresholds_below():
    """The printed rule is off by one: y_13 with x = .37 between theta_2 = -.18 and theta_3 = .51 is a 3."""
    theta = jnp.array([[-0.61, -0.18, 0.51, 1.21]])
    p = MMMF.Params(jnp.array([[0.22, -0.12]]), jnp.array([[1.51, -0.32]]), theta)
    h = MMMF.Hyper(
        2, penalty=10.0, levels=(1.0, 2.0, 3.0, 4.0, 5.0), centres=(0.0,) * 4, scale_bias=1.0
    )
    from bayesfac.core.data.cells import Query

    said = MMMF.predict(p, Query(np.array([0]), np.array([0])), h)
    assert said.choice[0] == 2  # counted from 0
    costs = [
        sum(float(BINARY["smooth_hinge"].value(t)) for t in
            np.where(np.arange(1, 5) >= y, 1, -1) * (np.asarray(theta[0]) - 0.3706))
        for y in range(1, 6)
    ]  # fmt: skip
    share = np.exp(-np.array(costs)) / np.exp(-np.array(costs)).sum()
    np.testing.assert_allclose(said.probs[0], share, atol=1e-4)


@pytest.mark.parametrize("loss", ["smooth_hinge", "logistic", "modified_square"])
@pytest.mark.parametrize("construction", ["all", "immediate"])
def test_every_loss_learns_the_generator(loss, construction):
    """On the thesis's matrix a fit must beat the best constant level by far."""
    ratings = bf.datasets.make_ratings(60, 50, 3, density=0.5, seed=1)
    train, test = bf.split.holdout(ratings, 0.2, seed=0)
    options = {"n_components": 3, "penalty": 0.5, "loss": loss, "construction": construction}
    fit = bf.fit("mmmf", train, bf.LBFGS(300, tol=1e-7), progress=False, **options)
    constant = np.abs(test.value - np.median(train.value)).mean()
    assert np.abs(fit.predict(test).level - test.value).mean() < 0.6 * constant


@pytest.mark.parametrize("loss", ["smooth_hinge", "logistic", "modified_square"])
def test_centres_fit_best_if_all_users_are_alike(loss):
    """The losses of common thresholds fall towards the centres from both sides, but for half a rating."""
    value = np.repeat([1, 2, 3, 5], [50, 200, 3000, 9000])
    data = bf.Ratings(np.arange(len(value)), np.arange(len(value)) % 7, value, levels=5)
    centres = np.array(alike(data, loss))
    codes = jnp.asarray(value - 1)

    def cost(theta):
        return float(ordinal(jnp.zeros(len(value)), jnp.asarray(theta), codes, loss).sum())

    for r in range(4):
        for step in (-0.02, 0.02):
            assert cost(centres + step * (np.arange(4) == r)) > cost(centres)
    with_no_five = bf.Ratings(data.user, data.item, np.minimum(value, 3), levels=5)
    assert np.isfinite(alike(with_no_five, loss)).all()


def test_a_new_user_is_like_the_average_user():
    """Nine ratings in ten are 5, and so is the answer for a user without ratings."""
    rng = np.random.default_rng(0)
    value = rng.choice([1, 3, 5], (50, 20), p=[0.05, 0.05, 0.9])
    fit = bf.fit("mmmf", bf.Ratings(value, levels=5), n_components=2, penalty=5.0, progress=False)
    assert fit.predict({"user": [-1], "item": [0]}).level == [5]


def test_thresholds_rise_where_levels_are_used():
    ratings = bf.datasets.make_ratings(40, 40, 2, density=0.6, seed=0)
    fit = bf.fit("mmmf", ratings, n_components=2, penalty=1.0, progress=False)
    assert (np.diff(np.asarray(fit.params.theta), axis=1) > 0).mean() > 0.99


def test_a_user_of_one_level_is_answered():
    """Thresholds below are pushed down, those above up; nothing is NaN."""
    ratings = bf.Ratings([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], [3, 3, 3, 1, 2, 5], levels=5)
    fit = bf.fit("mmmf", ratings, n_components=1, penalty=1.0, progress=False)
    asked = fit.predict({"user": [0], "item": [1]})
    assert asked.level == [3.0]
    assert np.isfinite(asked.mean).all()


def test_without_a_prior_on_thresholds_there_is_a_point_but_no_posterior():
    ratings = bf.datasets.make_ratings(12, 9, 2, density=0.6)
    fit = bf.fit("mmmf", ratings, n_components=2, scale_theta=np.inf, progress=False)
    assert np.isfinite(np.asarray(fit.params.theta)).all()
    for engine in (bf.SVI(50), bf.NUTS(5, 5, 1)):
        with pytest.raises(ValueError, match=r"theta has a flat prior.*improper"):
            bf.fit("mmmf", ratings, engine, n_components=2, scale_theta=np.inf, progress=False)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.array([[1.5, 2.0], [3.0, np.nan]]), {}, r"ordinal ratings for mmmf, got real values"),
        (bf.Ratings([0, 1], [0, 1], [1, 1], levels=5), {}, r"at least two levels.*implicit"),
        (bf.Ratings([0, 1], [0, 1], [1, 2], levels=5), {"loss": "hinge"}, r"slope everywhere.*gibbs_mmmf"),
        (bf.Ratings([0, 1], [0, 1], [1, 2], levels=5), {"loss": "smooth"}, r"loss to be one of"),
        (bf.Ratings([0, 1], [0, 1], [1, 2], levels=5), {"penalty": 0}, r"penalty to be a finite number"),
        (bf.Ratings([0, 1], [0, 1], [1, 2], levels=5), {"construction": "some"}, r"construction to be"),
        (bf.Ratings([0, 1], [0, 1], [1, 2], levels=5), {"centres": (0.0,)}, r"centres=4 finite numbers"),
        (bf.Ratings([0, 1], [0, 1], [1, 2], levels=5), {"scale_bias": 0.0}, r"scale_bias to be a finite"),
        (bf.Ratings([0, 1], [0, 1], [1, 2], levels=5), {"levels": (1.0, 2.0)}, r"levels of the data"),
    ],
)  # fmt: skip
def test_bad_input(data, options, message):
    with pytest.raises(ValueError, match=message):
        bf.fit("mmmf", data, n_components=1, progress=False, **options)


def test_half_stars_and_skipped_levels():
    """Any rising list is a scale; levels that nobody used are still levels."""
    stars = np.arange(0.5, 5.5, 0.5)
    rng = np.random.default_rng(0)
    value = rng.choice([0.5, 2.0, 4.5], (10, 8))
    fit = bf.fit("mmmf", bf.Ratings(value, levels=stars), n_components=2, progress=False)
    asked = fit.predict({"user": [0, 3], "item": [1, 2]})
    assert np.isin(asked.level, stars).all()
    assert fit.params.theta.shape == (10, 9)
