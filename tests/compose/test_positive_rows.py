"""Factorizations whose rows have entries of at least 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.laws.distributions import PositiveRows
from bayesfac.core.method import gauge_of, settle
from bayesfac.fits import new_rows
from bayesfac.parts.positive import begun
from bayesfac.testing import CHECKS
from tests.inference.test_geweke import THRESHOLD, z_scores

N = bf.NonNegative()
SUMS = bf.factorization(N)
SEMI = bf.factorization(N, bf.NormalWishart())
TENSOR = bf.factorization(N, structure="tensor")
NOISE = 0.3
rng = np.random.default_rng(0)
AMOUNTS, PARTS = rng.gamma(1.0, size=(60, 3)), rng.gamma(1.0, size=(3, 40))
VALUES = AMOUNTS @ PARTS + NOISE * rng.normal(size=(60, 40))
TRAIN, TEST = (
    bf.Ratings(np.where(here, VALUES, np.nan))
    for part in [rng.random(VALUES.shape)]
    for here in (part < 0.5, part > 0.9)
)


@pytest.mark.parametrize("check", ["conditionals", "descent", "optimum", "unseen"])
@pytest.mark.parametrize("model", [SUMS, SEMI], ids=["sums", "semi"])
def test_the_contract(model, check, key):
    assert CHECKS[check](model, key) is None


@pytest.mark.parametrize("model", [SUMS, SEMI, TENSOR], ids=["sums", "semi", "tensor"])
def test_every_draw_and_move_leaves_the_joint_as_it_is(model, key):
    assert CHECKS["moves"](model, key) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [SUMS, bf.factorization(N, observed=bf.StudentT())], ids=["normal", "student_t"]
)
def test_chains_of_redrawn_data_keep_the_prior(model):
    assert np.abs(z_scores(model, {})).max() < THRESHOLD


def test_a_point_finds_the_parts():
    """Held-out cells are predicted nearly as well as their noise allows, and nine in ten intervals hold."""
    fit = bf.fit(SUMS, TRAIN, n_components=3, progress=False)
    asked = fit.predict(TEST)
    assert fit.converged and (fit.params.U >= 0).all() and (fit.params.V >= 0).all()
    assert bf.metrics.rmse(asked.mean, TEST.value) < 1.2 * NOISE
    assert 0.85 < bf.metrics.coverage(*asked.interval(0.9), TEST.value) < 0.95


def test_a_point_of_a_tensor_finds_the_parts():
    rng = np.random.default_rng(0)
    tables = [rng.gamma(1.0, size=(n, 2)) for n in (20, 12, 6)]
    x = np.einsum("ik,jk,lk->ijl", *tables)
    y = x + NOISE * rng.normal(size=x.shape)
    train = rng.random(x.shape) < 0.5
    fit = bf.fit(TENSOR, bf.Tensor(np.where(train, y, np.nan)), n_components=2, progress=False)
    left = bf.Tensor(np.where(train, np.nan, y))
    assert bf.metrics.rmse(fit.predict(left).mean, left.value) < 1.2 * NOISE


def test_fits_begin_with_all_components(key):
    """The products of random rows have the size of the values; annealed draws of these rows explain most of
    the variance, and leave no component at 0."""
    h = settle(SUMS, TRAIN, {"n_components": 3})
    c, rms = SUMS.parts, np.sqrt(np.mean(TRAIN.value**2))
    first = begun(c, key, TRAIN, h)
    assert jnp.mean(c.at(h).scores(first, TRAIN)) == pytest.approx(rms, rel=1e-4)
    assert c.observed.precision(first, h) > 0 and h.offset == 0
    size = jnp.sqrt(2 / np.pi / first.tau)  # of half-normal entries with these precisions
    np.testing.assert_allclose(jnp.mean(first.U, 0), size, rtol=0.3)
    for own in jax.random.split(key, 4):
        p = SUMS.init(own, TRAIN, h)
        rest = TRAIN.y - c.at(h).scores(p, TRAIN)
        assert jnp.mean(rest**2) < TRAIN.spread**2 / 3


def test_the_noise_of_a_point_includes_the_variance_of_its_scores(key):
    """300 numbers are estimated from some 1,200 values, so it has about a quarter more than the variance."""
    h = settle(SUMS, TRAIN, {"n_components": 3, "alpha_rate": 0.01})
    p = SUMS.solver.start(key, TRAIN, h)
    rest = TRAIN.y - SUMS.parts.at(h).scores(p, TRAIN)
    assert 0.7 * NOISE**-2 < p.alpha < 0.88 * NOISE**-2
    joint = SUMS.solver.start(key, TRAIN, h._replace(scales="joint"))
    np.testing.assert_array_equal(joint.U, SUMS.init(key, TRAIN, h).U)
    assert jnp.mean(rest**2) < 1.2 * NOISE**2


def test_scales_follow_the_size_of_the_values():
    """With ten times the values, products are ten times as large; a shift of them moves no part of `SEMI`."""
    own = {"n_components": 3}
    one, ten = (settle(SUMS, bf.Ratings(s * np.asarray(VALUES)), own).tau_rate for s in (1.0, 10.0))
    assert ten == pytest.approx(10 * one)
    assert one == pytest.approx(np.sqrt(np.mean(VALUES**2)) / 4 / 3**2)
    moved = settle(SEMI, bf.Ratings(VALUES + 50), own)
    assert moved.offset == pytest.approx(VALUES.mean() + 50)
    assert moved.tau_rate == pytest.approx(settle(SEMI, bf.Ratings(VALUES), own).tau_rate)


def test_components_change_places_and_no_signs():
    for model, names in (
        (SUMS, ["U", "V", "tau"]),
        (SEMI, ["U", "V", "tau_U", "mu_V", "Lambda_V"]),
        (TENSOR, ["U.a", "U.b", "U.c", "tau"]),
    ):
        (free,) = gauge_of(model, names)
        assert not free.groups and {*free.axes, *free.forms} == {*names}


@pytest.mark.parametrize("engine", [bf.FixedPoint(), bf.Gibbs(60, 20, 2)], ids=["point", "draws"])
def test_new_rows_that_are_old_ones_have_their_predictions(engine):
    fit = bf.fit(SUMS, TRAIN, engine, n_components=3, progress=False)
    folded = fit.fold_in(TRAIN)
    before, after = (f.predict(TRAIN).mean for f in (fit, folded))
    assert bf.metrics.rmse(before, after) < (1e-3 if fit.is_point else NOISE / 2)
    p = SUMS.Params(**{n: x[0, 0] for n, x in fit._as_draws().items()})
    (law,) = new_rows.kinds(SUMS, fit.hyper, TRAIN, p, ("U",))
    assert isinstance(law, PositiveRows)


def test_what_has_no_vb_says_why():
    assert "VB" not in SUMS.engines and "VB: its rows are normal" in repr(SEMI)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: bf.factorization(N, biases=True), "may have any sign, .* raise n_components by 2"),
        (lambda: bf.factorization(bf.Relevance(), N, bf.Ordinal()), r"bf.Normal\(\) takes levels"),
        (
            lambda: bf.factorization(N, observed=bf.NegativeBinomial(), structure="tensor"),
            "and not levels, log odds or log means",
        ),
        (
            lambda: bf.fit(SEMI, bf.Ratings(VALUES, user_features=AMOUNTS), n_components=2),
            "Expected no features of the users",
        ),
        (lambda: bf.fit(SUMS, TRAIN, n_components=2, tau_rate=0.0), "tau_rate .* above 0"),
    ],
    ids=["biases", "levels", "counts", "features", "rate"],
)
def test_what_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()
