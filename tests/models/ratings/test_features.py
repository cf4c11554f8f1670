"""Features of users and items: the contract with them, a step by hand, new rows, and a planted link."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.features import Encoding, Side
from bayesfac.core.laws.links import Links
from bayesfac.core.method import REGISTRY
from bayesfac.testing import CHECKS
from tests.inference.test_geweke import THRESHOLD, z_scores
from tests.tools.features import with_features
from tests.tools.records import changed

METHODS = ("bpmf", "pmf", "ordinal_mf", "gibbs_mmmf")
FAST = ("structure", "joint", "conditionals")
COSTLY = ("map", "prior", "backends", "mask", "relabelling")


def cases():
    """All checks of every method; the quick tests have all but the costly ones of bpmf, and few of others."""
    for name in (*METHODS, "bpmf, sparse"):
        for check in CHECKS:
            quick = check in FAST or (name == "bpmf" and check not in COSTLY)
            yield (name, check) if quick else pytest.param(name, check, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "check"), list(cases()))
def test_contract_with_features(name, check):
    name, _, sparse = name.partition(", ")
    if reason := CHECKS[check](with_features(name, bool(sparse)), jax.random.key(0)):
        pytest.skip(reason)


def linked(seed=0, n=60, m=40, F=2, noise=0.4):
    """Ratings whose rows follow from features but for a little; every tenth user and item has none."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(n, F)), rng.normal(size=(m, F))
    U = x @ rng.normal(size=(F, 2)) + 0.2 * rng.normal(size=(n, 2))
    V = z @ rng.normal(size=(F, 2)) + 0.2 * rng.normal(size=(m, 2))
    y = U @ V.T + noise * rng.normal(size=(n, m))
    cold = (np.arange(n) % 10 == 0)[:, None] | (np.arange(m) % 10 == 0)
    seen = (rng.random((n, m)) < 0.3) & ~cold
    train = bf.Ratings(np.where(seen, y, np.nan), user_features=x, item_features=z)
    row, col = np.nonzero(cold)
    return train, row, col, y[row, col], (x, z)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_law_of_a_link_matrix_is_that_of_a_ridge_regression(sparse):
    rng = np.random.default_rng(0)
    X, R, root = rng.normal(size=(9, 4)), rng.normal(size=(9, 2)), rng.normal(size=(2, 2))
    X[rng.random(X.shape) < 0.4] = 0
    L = root @ root.T + np.eye(2)
    raw = sp.csr_matrix(X) if sparse else pd.DataFrame(X)
    known = Encoding((0, 1, 2, 3), ("number",) * 4, np.zeros(4), np.ones(4))
    design = Side(pd.RangeIndex(9), raw, known, "user").design()
    law = Links(design, jnp.asarray(R), 0.7, jnp.asarray(L))
    A = X.T @ X + 0.7 * np.eye(4)
    np.testing.assert_allclose(law.mean, np.linalg.solve(A, X.T @ R), rtol=1e-9)
    trace = np.sum(1 / np.diag(A)) if sparse else np.trace(np.linalg.inv(A))
    np.testing.assert_allclose(law.trace_of_inverse(), trace, rtol=1e-10)
    draws = np.asarray(law.sample(jax.random.key(0), (20_000,))) - np.asarray(law.mean)
    cov = np.kron(np.linalg.inv(A), np.linalg.inv(L))
    found = np.cov(draws.reshape(len(draws), -1).T)
    # a variance of 20,000 draws has a standard error of 1 %: four of them
    np.testing.assert_allclose(found, cov, atol=0.04 * cov.max())


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", ["bpmf", "pmf"])
def test_new_users_and_items_are_predicted_from_features_by_hand(name):
    data, hyper = with_features(name).example(jax.random.key(0))
    fit = bf.fit(name, data, bf.FixedPoint(3), progress=False, **hyper._asdict())
    p, sides = fit.params, data.host.features
    table = pd.DataFrame([[1.0, -2.0, 0.5], [np.nan, 1.0, 1.0]], index=[70, 71])
    query = {"user": [70, 0, 71, 72, 70], "item": [1, 1, 1, 1, 50]}
    film = pd.DataFrame([[0.3, 0.4]], index=[50])
    asked = fit.predict(query, user_features=table, item_features=film)
    assert asked.flagged.tolist() == [True, False, True, True, True]
    known = sides["user"].encoding
    x = np.nan_to_num((table.to_numpy() - known.centre) / known.scale)
    z = (film.to_numpy() - sides["item"].encoding.centre) / sides["item"].encoding.scale
    u, v = x @ p.B["user"], (z @ p.B["item"])[0]
    offset, bias = hyper.offset, np.zeros(4)
    if name == "bpmf":
        u, v = u + p.mu_U, v + p.mu_V
        nobody = p.mu_U
    else:
        (one, two), three = (x @ p.C["user"])[:, 0], (z @ p.C["item"])[0, 0]
        bias = np.array([one + p.bias_item[1], two + p.bias_item[1], p.bias_item[1], one + three])
        nobody = np.zeros(2)
    want = [u[0] @ p.V[1], u[1] @ p.V[1], nobody @ p.V[1], u[0] @ v]
    np.testing.assert_allclose(asked.mean[[0, 2, 3, 4]], offset + bias + want, rtol=1e-6)
    alone = fit.predict({"user": [72], "item": [1]})
    np.testing.assert_allclose(alone.sd[0], asked.sd[3], rtol=1e-6)
    assert np.isfinite(asked.sd).all()


def test_rows_without_ratings_are_predicted_from_features_with_honest_intervals():
    train, row, col, truth, (x, z) = linked()
    engine, cells = bf.Gibbs(100, 100, 1), {"user": row, "item": col}
    fit = bf.fit("bpmf", train, engine, n_components=3, progress=False)
    # without features, nothing is known of these rows but the mean
    assert bf.metrics.rmse(fit.predict(cells).mean, truth) < 0.5 * truth.std()
    inside = bf.metrics.coverage(*fit.predict(cells).interval(0.9), truth)
    assert 0.84 < inside < 0.97  # the cells belong to ten rows, whose errors they share
    # a user of the table without ratings, and one whom only the query brings, have the same law
    renamed = pd.DataFrame(x[:1], index=[900])
    new = fit.predict({"user": [900] * 5, "item": [1, 2, 3, 4, 5]}, user_features=renamed)
    old = fit.predict({"user": [0] * 5, "item": [1, 2, 3, 4, 5]})
    np.testing.assert_allclose(new.mean, old.mean, atol=0.25 * old.sd.max())
    np.testing.assert_allclose(new.sd, old.sd, rtol=0.2)


def test_a_saved_fit_and_new_users_know_the_scale_of_features(tmp_path):
    train, *_, (x, z) = linked()
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(c=np.where(x[:, 0] > 0, "yes", "no"))
    train = bf.Ratings(train, user_features=frame.set_index(np.arange(len(x))))
    fit = bf.fit("bpmf", train, n_components=2, progress=False)
    again = bf.load(fit.save(tmp_path / "fit"))
    query = {"user": [900], "item": [3]}
    new = pd.DataFrame({"a": [1.0], "b": [0.0], "c": ["yes"]}, index=[900])
    a, b = (f.predict(query, user_features=new) for f in (fit, again))
    np.testing.assert_array_equal(a.mean, b.mean)
    assert abs(a.mean[0] - fit.predict(query).mean[0]) > 1e-3
    with pytest.raises(
        ValueError, match=r"categories \['no', 'yes'\] in column 'c', got 'perhaps'"
    ):
        fit.predict(query, user_features=new.assign(c="perhaps"))
    one = bf.Ratings([900] * 3, [3, 4, 5], [0.5, 1.0, -1.0], user_features=new)
    folded = fit.fold_in(one).predict({"user": [900], "item": [6]})
    assert folded.sd[0] < fit.predict({"user": [900], "item": [6]}, user_features=new).sd[0]
    with pytest.raises(ValueError, match="Expected user_features"):
        fit.fold_in(bf.Ratings([900], [3], [0.5]))


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_notes_say_what_features_lack_and_who_does_not_read_them():
    ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    table = pd.DataFrame({"age": [np.nan, *range(29)]})
    data = bf.Ratings(ratings, levels=ratings.levels, user_features=table.set_index(ratings.users))
    fit = bf.fit("bpmf", data, bf.FixedPoint(2), n_components=2, scales="joint", progress=False)
    assert any("are replaced by the mean of their column: 1 of 'age'" in note for note in fit.notes)
    other = bf.fit("mmmf", data, bf.LBFGS(3), penalty=1.0, progress=False)
    assert "mmmf does not use the features of users and items" in other.notes


# -- planted mistakes ------------------------------------------------------------------------------
def wrong_ridge(p, data, hyper, *more):
    right = REGISTRY["bpmf"].gibbs.conditionals["B"](p, data, hyper, *more)
    return Links(right.design, right.rows, 30 * right.ridge, right.precision)


def forgets_the_links(p, data, hyper):
    """The rows of B as if they said nothing of Lambda."""
    return REGISTRY["bpmf"].gibbs.conditionals["Lambda_U"](p._replace(B=None), data, hyper)


PLANTED = {"B": wrong_ridge, "Lambda_U": forgets_the_links}


def planted(site):
    method = with_features("bpmf")
    return changed(method, conditionals={**method.gibbs.conditionals, site: PLANTED[site]})


@pytest.mark.parametrize("site", PLANTED)
def test_the_contract_finds_planted_mistakes(site):
    with pytest.raises(AssertionError, match=f"conditional of {site}"):
        CHECKS["conditionals"](planted(site), jax.random.key(0))


@pytest.mark.slow  # half a minute each: compiling 400 chains
@pytest.mark.parametrize("name", METHODS)
def test_sweeps_leave_the_prior_alone(name):
    z = z_scores(with_features(name), {})
    assert np.abs(z).max() < THRESHOLD, z.round(1)


@pytest.mark.slow
@pytest.mark.parametrize("site", PLANTED)
def test_sweeps_show_planted_mistakes(site):
    assert np.abs(z_scores(planted(site), {}, chains=1600)).max() > THRESHOLD


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_sampler_is_calibrated(name):
    found = bf.sbc(with_features(name), "Gibbs", progress=False)
    assert found.ok, found


def test_fold_in_keeps_the_features_of_unrated_items():
    rng, n = np.random.default_rng(0), 30
    x, a = rng.normal(size=n), 1 + rng.normal(size=60) ** 2
    user, item = np.indices((60, n)).reshape(2, -1)
    films = pd.DataFrame({"x": x}, index=np.arange(n))
    value = a[user] * x[item] + 0.1 * rng.normal(size=len(user))
    rated = (item != 5) & (item != 9)
    data = bf.Ratings(user, item, value, item_features=films).take(rated)
    fit = bf.fit("bpmf", data, n_components=2, progress=False)
    own = (user == 0) & rated
    mine = bf.Ratings(["zoe"] * own.sum(), item[own], value[own])
    unrated = {"item": [5, 9]}
    known = fit.predict({"user": [0, 0], **unrated}).mean
    folded = fit.fold_in(mine).predict({"user": ["zoe", "zoe"], **unrated}).mean
    np.testing.assert_allclose(folded, known, atol=0.05)
