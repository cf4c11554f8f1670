"""New rows that are drawn from their conditional: beside normal equations, long runs and planted mistakes."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, from_sites
from bayesfac.fits import new_rows

rng = np.random.default_rng(0)
REAL = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 6)) + 0.2 * rng.normal(size=(20, 6))
REAL[rng.random(REAL.shape) < 0.2] = np.nan
LEVELS = np.digitize(REAL + rng.normal(size=REAL.shape), [-1, 0, 1]) + 1.0  # not separable
LEVELS[np.isnan(REAL)] = np.nan
COUNTS = rng.poisson(np.outer(rng.gamma(1, 1, 20), rng.gamma(1, 2, 6)))
DRAWN = ("bpmf", "gibbs_mmmf", "hpf", "ordinal_mf", "pmf", "urp", "wrmf")


def training(name, rows=slice(None)):
    method = REGISTRY[name]
    if method.data is bf.Counts:
        return bf.Counts(COUNTS[rows])
    ordinal = "levels" in method.Hyper._fields
    return bf.Ratings(LEVELS[rows], levels=4) if ordinal else bf.Ratings(REAL[rows] + 3)


@cache
def posterior(name):
    engine = bf.Gibbs(60, 3, 2, thin=5)
    return bf.fit(name, training(name), engine, n_components=2, progress=False)


def same_draw(name, count):
    """The other sites of the fit, with one draw of the posterior standing for all of `count`."""
    held = {site: np.asarray(x)[:1, -1:] for site, x in posterior(name).draws.items()}
    return {site: np.repeat(x, count, 1) for site, x in held.items()}


def laws(y, V, alpha, mean, precision):
    """The mean and the covariance of a user's row, by the normal equations in NumPy."""
    own, seen = V[~np.isnan(y)], y[~np.isnan(y)]
    P = precision + alpha * own.T @ own
    return np.linalg.solve(P, precision @ mean + alpha * own.T @ seen), np.linalg.inv(P)


def agrees(U, mean, covariance):
    """Whether draws have these moments: chi-squares of means and of squares, 5 sds at most."""
    n, root = len(U), np.linalg.cholesky(np.linalg.inv(covariance))
    z = (U - mean) @ root
    products = z.T @ z / n - np.eye(len(mean))
    return abs(z.mean(0)).max() < 5 / n**0.5 and abs(products).max() < 5 * (2 / n) ** 0.5


def test_rows_have_the_moments_of_the_normal_equations():
    """And without the noise, or with the offset forgotten, they have not."""
    fit, new = posterior("bpmf"), training("bpmf", slice(4))
    held, count = same_draw("bpmf", 2000), 2000
    U = new_rows.drawn(fit.method, fit.hyper, new, held, "user", jax.random.key(1))["U"][0]
    one = {site: x[0, 0].astype(float) for site, x in held.items()}
    for user in range(4):
        y = REAL[user] + 3 - fit.hyper.offset
        mean, covariance = laws(y, one["V"], one["alpha"], one["mu_U"], one["Lambda_U"])
        assert agrees(U[:, user], mean, covariance)
        assert not agrees(np.repeat(mean[None], count, 0), mean, covariance)
        forgotten = laws(y + fit.hyper.offset, one["V"], one["alpha"], one["mu_U"], one["Lambda_U"])
        assert not agrees(U[:, user], *forgotten)


def test_new_items_have_the_moments_of_the_normal_equations():
    fit, held = posterior("bpmf"), same_draw("bpmf", 2000)
    new = bf.Ratings(np.arange(20), ["new"] * 20, np.nan_to_num(REAL[:, 0]) + 3)
    V = fit.fold_in(new, rows="item")
    assert V.draws["V"].shape == (2, 3, 1, 2) and V.draws["U"].shape == (2, 3, 20, 2)
    assert not V.predict({"user": [3], "item": ["new"]}).flagged.any()
    found = new_rows.drawn(fit.method, fit.hyper, new, held, "item", jax.random.key(1))["V"][0]
    one = {site: x[0, 0].astype(float) for site, x in held.items()}
    y = np.nan_to_num(REAL[:, 0]) + 3 - fit.hyper.offset
    assert agrees(found[:, 0], *laws(y, one["U"], one["alpha"], one["mu_V"], one["Lambda_V"]))


def test_new_users_of_whom_features_are_known():
    x = rng.normal(size=(20, 1))
    data = bf.Ratings(REAL, user_features=x)
    fit = bf.fit("bpmf", data, bf.Gibbs(5, 1, 1), n_components=2, progress=False)
    held = {site: np.repeat(np.asarray(v), 2000, 1) for site, v in fit.draws.items()}
    held["B.user"] = np.ones_like(held["B.user"])
    new = data.of_users(0, 2).encoded(fit.data.encodings, ("user",))
    U = new_rows.drawn(fit.method, fit.hyper, new, held, "user", jax.random.key(1))["U"][0]
    one = {site: v[0, 0].astype(float) for site, v in held.items()}
    for user in range(2):
        mean = one["mu_U"] + (x[user] - x.mean()) / x.std() @ one["B.user"]
        y = REAL[user] - fit.hyper.offset
        wanted = laws(y, one["V"], one["alpha"], mean, one["Lambda_U"])
        assert agrees(U[:, user], *wanted)
        assert not agrees(
            U[:, user], *laws(y, one["V"], one["alpha"], one["mu_U"], one["Lambda_U"])
        )


def expected(fit, data, held, rows):
    """(draw, cell) expected ratings of the second of two draws."""
    cells = Query(data.cells.row, data.cells.col)
    some = {site: x[:, -1] for site, x in (held | rows).items()}
    law = lambda p: fit.method.predict(from_sites(fit.method, p), cells, fit.hyper).mean  # noqa: E731
    return np.asarray(jax.vmap(law)(some), float)


def differ(a, b):
    """Means and spreads of cells, in standard errors: the largest of all cells."""
    n, square = len(a), ((b - b.mean(0)) ** 2)
    means = (a.mean(0) - b.mean(0)) / np.sqrt((a.var(0) + b.var(0)) / n)
    spreads = (a.var(0) - b.var(0)) / np.sqrt(2 * square.var(0) / n)
    return max(abs(means).max(), abs(spreads).max())


SLOW = pytest.mark.slow  # programs of many operations: 4 to 9 seconds each


@pytest.mark.parametrize(
    "name",
    ["pmf", "hpf", *(pytest.param(n, marks=SLOW) for n in ("ordinal_mf", "gibbs_mmmf", "urp"))],
)
def test_a_few_sweeps_from_the_rows_of_another_draw_reach_the_law(name, monkeypatch):
    """Beside 100 sweeps more, for 500 chains with the same two draws of the other side; no sweep is seen."""
    fit, new = posterior(name), training(name, slice(4))
    data = fit.method.ready(new, fit.hyper)
    held = {site: np.repeat(x[:1, [0, -1]], 500, 0) for site, x in fit.draws.items()}
    found = {}
    usual = new_rows.SWEEPS
    for what, sweeps, first in (("few", usual, 20), ("none", 0, 20), ("long", usual, 100)):
        monkeypatch.setattr(new_rows, "SWEEPS", sweeps)
        monkeypatch.setattr(new_rows, "FIRST", first)
        own = {site: x[:, [1, 1]] for site, x in held.items()} if what == "long" else held
        key = jax.random.key(first + sweeps)
        rows = new_rows.drawn(fit.method, fit.hyper, data, own, "user", key)
        found[what] = expected(fit, data, own, rows)
    assert differ(found["few"], found["long"]) < 5  # 88 comparisons: one in 10,000 is beyond
    assert differ(found["none"], found["long"]) > 5


@pytest.mark.parametrize("name", DRAWN)
def test_users_of_training_come_back_with_their_uncertainty(name):
    """A fit's own users, folded in, are predicted as by the fit, within the spread of its few draws."""
    fit, data = posterior(name), training(name)
    folded = fit.fold_in(data)
    own = {site for site, dims in fit.method.axes.dims.items() if "user" in dims}
    for site, x in folded.draws.items():
        assert x.shape == fit.draws[site].shape
        assert np.array_equal(x, fit.draws[site]) == (site not in own), site
    again = fit.fold_in(data)
    np.testing.assert_array_equal(again.predict(data).mean, folded.predict(data).mean)
    a, b = fit.predict(data), folded.predict(data)
    assert np.corrcoef(a.mean, b.mean)[0, 1] > 0.8


def test_blocks_of_draws_give_one_chain(monkeypatch):
    fit, data = posterior("pmf"), training("pmf", slice(4))
    whole = fit.fold_in(data).draws["U"]
    monkeypatch.setattr(new_rows, "BUFFER", 500)
    np.testing.assert_allclose(fit.fold_in(data).draws["U"], whole, rtol=1e-5)


def test_points_settle_at_the_mode_of_the_conditionals():
    """Rows and biases of users at once: the objective of the new users has no slope there."""
    fit = bf.fit("pmf", training("pmf"), n_components=2, progress=False)
    new = training("pmf", slice(3))
    p = fit.fold_in(new).params
    slope = jax.grad(fit.method.objective)(p, new, fit.hyper)
    size = jnp.abs(jax.grad(fit.method.objective)(p._replace(U=0 * p.U), new, fit.hyper).U).max()
    assert abs(slope.U).max() < 1e-4 * size and abs(slope.bias_user).max() < 1e-4 * size
    with (
        pytest.warns(bf.ConvergenceWarning),
        pytest.raises(BayesfacError, match="new items are drawn from conditionals"),
    ):
        bf.fit("mmmf", training("urp"), bf.LBFGS(3), n_components=2, progress=False).fold_in(
            training("urp"), rows="item"
        )
    with pytest.raises(ValueError, match="Expected rows='user', or 'item' for ratings and counts"):
        fit.fold_in(new, rows="items")


def test_probabilities_without_a_sampler_are_still_fitted():
    """`ordinal_mf` draws with link='probit' alone; other draws are fitted by descent, as it said."""
    method, held = (
        REGISTRY["ordinal_mf"],
        {site: x[0, 0] for site, x in posterior("ordinal_mf").draws.items()},
    )
    hyper = posterior("ordinal_mf").hyper
    assert new_rows.drawable(method, hyper, held, "user")
    assert not new_rows.drawable(method, hyper._replace(link="logistic"), held, "user")
