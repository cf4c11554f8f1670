"""cmf: one sweep computed by hand, alone the model of bpmf, and users who have tags but no ratings."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import bayesfac as bf
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.linked.relations import few_relations
from bayesfac.core.errors import BayesfacError, UnknownName
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import cuts
from bayesfac.core.laws import normal_wishart as wishart
from bayesfac.core.method import REGISTRY, from_sites
from bayesfac.models.collective import cmf
from bayesfac.parts.matrices import products
from bayesfac.testing import CHECKS

CMF = REGISTRY["cmf"]
QUIET = {"progress": False}


def tables_of(data, h):
    """{matrix: (kinds, table with holes)}: standardised values, or levels of the matrix `tags`."""
    found = {}
    for m in h.matrices:
        at = data.links.code[data.spans[m.name]]
        first = dict(zip(data.axes, np.cumsum([0, *data.links.shape]), strict=False))
        table = np.full([len(data.axes[kind]) for kind in (m.row, m.col)], np.nan)
        value = np.asarray(data.observed(m.name))
        value = value if m.levels else (value - m.offset) / m.scale
        table[tuple(np.asarray(at).T - [[first[m.row]], [first[m.col]]])] = value
        found[m.name] = (m.row, m.col), table
    return found


def golden(method):
    """Every block at the mode of its conditional in turn, by sums over tables with holes."""
    data, h = method.example(jax.random.key(3))
    p = jax.tree.map(jnp.asarray, method.init(jax.random.key(4), data, h))  # keys in JAX's order
    K, tables = h.n_components, tables_of(data, h)
    U, mu, Lambda = ({kind: np.array(x) for kind, x in site.items()} for site in p[:3])
    alpha = {name: float(a) for name, a in p.alpha.items()}
    (row, col), levels = tables["tags"]  # levels: parabolas that touch the log probability at u.v
    x = U[row] @ U[col].T
    ends = np.array([-np.inf, *np.asarray(cuts.rising(p.cuts["tags"])), np.inf])
    code = np.nan_to_num(levels, nan=1).astype(int)
    low, high = ends[code - 1] - x, ends[code] - x
    slope = (norm.pdf(low) - norm.pdf(high)) / (norm.cdf(high) - norm.cdf(low))
    tables["tags"] = (row, col), np.where(np.isnan(levels), np.nan, x + slope)
    for kind in sorted(U):
        away, n = U[kind] - mu[kind], len(U[kind])
        rate = h.rate * np.eye(K) + away.T @ away + h.beta0 * np.outer(mu[kind], mu[kind])
        Lambda[kind] = n * np.linalg.inv(rate)
    for kind in sorted(U):
        mu[kind] = U[kind].sum(0) / (h.beta0 + len(U[kind]))
    for kind in sorted(U):
        for i in range(len(U[kind])):
            P, b = Lambda[kind].copy(), Lambda[kind] @ mu[kind]
            for name, ((row, col), z) in tables.items():
                if kind in (row, col):
                    line, other = (z[i], U[col]) if kind == row else (z[:, i], U[row])
                    ok, w = ~np.isnan(line), alpha.get(name, 1.0)
                    P += w * other[ok].T @ other[ok]
                    b = b + w * other[ok].T @ line[ok]
            U[kind][i] = np.linalg.solve(P, b)
    for name in alpha:
        (row, col), z = tables[name]
        rest = (z - U[row] @ U[col].T)[~np.isnan(z)]
        alpha[name] = (h.alpha_shape + len(rest) / 2 - 1) / (h.alpha_rate + rest @ rest / 2)
    new = jax.jit(lambda p: method.solver.update(p, data, h))(p)
    for mine, theirs in zip((U, mu, Lambda, alpha), new[:4], strict=True):
        for key, value in mine.items():
            np.testing.assert_allclose(theirs[key], value, rtol=1e-8, atol=1e-12)


def test_golden_step():
    golden(CMF)


def levelled(key):
    """The example with ordinal ratings."""
    data = few_relations(key, levels=3)
    h = cmf.Hyper(2, probit=("ratings", "tags"), beta0=2.0, rate=1.2, scales="joint")
    return data, cmf.prepare(data, h)


@pytest.mark.parametrize("check", ["joint", "conditionals", "descent", "predict", "observed"])
def test_the_contract_with_ordinal_ratings(check, key):
    assert CHECKS[check](dataclasses.replace(CMF, example=levelled), key) is None


def test_alone_it_is_bpmf():
    """With one matrix the objective is that of bpmf for standardised ratings, and so are the rows."""
    ratings = bf.datasets.make_gaussian(9, 7, 2, density=0.5, seed=0)[0]
    ratings = bf.Ratings(
        ratings.user, ratings.item, (ratings.value - ratings.mean) / ratings.spread
    )
    data, bpmf = bf.Relations(ratings), REGISTRY["bpmf"]
    h, g = CMF.prepare(data, CMF.Hyper(2)), bpmf.prepare(ratings, bpmf.Hyper(2))
    p = CMF.init(jax.random.key(0), data, h)
    q = bpmf.init(jax.random.key(0), ratings, g)
    q = q._replace(U=p.U["user"], V=p.U["item"], alpha=p.alpha["ratings"])
    q = q._replace(Lambda_U=p.Lambda["user"], Lambda_V=p.Lambda["item"])
    assert float(CMF.objective(p, data, h)) == pytest.approx(float(bpmf.objective(q, ratings, g)))
    none = jnp.zeros(0)
    for kind, site in (("user", "U"), ("item", "V")):
        mine = CMF.gibbs.conditionals["U"](p, data, h, none, kind).mean
        np.testing.assert_allclose(
            mine, bpmf.gibbs.conditionals[site](q, ratings, g).mean, rtol=1e-6
        )


def test_both_forms_of_the_loops_agree():
    data, h = CMF.example(jax.random.key(1))

    def seen(p):
        z = cmf.LAW.touching(p, products(p.U, data), data, h)
        laws = [CMF.gibbs.conditionals["U"](p, data, h, z, kind) for kind in p.U]
        value, slope = jax.value_and_grad(CMF.objective)(p, data, h)
        return value, slope, [law.mean for law in laws]

    found = []
    for form in ("numba", "jax"):
        with sparse.use(form):
            found.append(jax.jit(lambda p: seen(p))(CMF.init(jax.random.key(1), data, h)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10), *found)


@pytest.mark.parametrize("tilt", [0.0, 3.0, -5.0])
def test_balance_has_the_density_that_it_says(tilt):
    a, b, t = 0.7, 1.9, np.linspace(-6, 6, 200_001)
    density = np.exp(-a * np.exp(-2 * t) - b * np.exp(2 * t) - tilt * t)
    density /= density.sum()
    many = jnp.full(40_000, a), jnp.full(40_000, b)
    drawn = np.asarray(wishart.balance(jax.random.key(0), *many, tilt))
    mean = density @ t
    sd = (density @ (t - mean) ** 2) ** 0.5
    assert drawn.mean() == pytest.approx(mean, abs=5 * sd / 200)
    assert drawn.std() == pytest.approx(sd, rel=0.03)


def test_rescaling_changes_no_product():
    data, h = CMF.example(jax.random.key(0))
    p = CMF.init(jax.random.key(1), data, h)
    q = CMF.gibbs.moves["rescale"](jax.random.key(2), p, data, h)
    assert not np.allclose(q.U["tag"], p.U["tag"], rtol=0.01)
    before, after = products(p.U, data), products(q.U, data)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-9, atol=1e-12)


# -- fits ---------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def made():
    """Made-up relations, with a tenth of the users without ratings in the training part."""
    data, truth = bf.datasets.make_relations(120, 60, 2, density=0.15, seed=0)
    cold = np.isin(data.user, np.random.default_rng(0).choice(120, 12, replace=False))
    return data.take(~cold), data.take(cold), truth


@pytest.fixture(scope="module")
def drawn(made):
    return bf.fit("cmf", made[0], bf.Gibbs(60, 100, 2), n_components=3, **QUIET)


def test_tags_tell_what_users_without_ratings_like(made, drawn):
    """`bpmf` knows the items' means at best. A user's 10 tags of 20 with noise 1 tell two factors."""
    train, test, truth = made
    own = bf.Ratings(train.frame()).on(train.users, "user").on(train.items)
    alone = bf.fit("bpmf", own, bf.Gibbs(60, 100, 2), n_components=3, **QUIET)
    error = {
        f.name: bf.metrics.rmse(f.predict(test.frame()).mean, test.value) for f in (drawn, alone)
    }
    assert error["cmf"] < 0.8 * error["bpmf"]
    seen = drawn.predict(test)
    assert not seen.frame()["flagged"].any()
    covered = bf.metrics.coverage(*seen.interval(0.9), test.value)
    assert 0.84 < covered < 0.96  # 108 of 120 cells: 3.5 errors of a share would be .1
    point = bf.fit("cmf", train, n_components=3, **QUIET)
    assert point.converged
    assert bf.metrics.rmse(point.predict(test).mean, test.value) < 0.85 * error["bpmf"]


def test_noise_of_each_matrix_is_found(made, drawn):
    """In units of the standard deviation of a matrix: 1 + noise^2 is its variance."""
    for name, noise in (("ratings", 0.5), ("tags", 1.0), ("words", 2.0)):
        scale = next(m.scale for m in drawn.hyper.matrices if m.name == name)
        found = scale * np.mean(np.asarray(drawn.draws[f"alpha.{name}"]) ** -0.5)
        assert found == pytest.approx(noise * (100 if name == "words" else 1), rel=0.12)


def test_other_matrices_are_predicted_too(made, drawn):
    train = made[0]
    tags = train.matrix("tags").frame().set_axis(["user", "tag", "value"], axis=1)
    answer = drawn.predict(tags, matrix="tags")
    assert list(answer.frame())[:2] == ["user", "tag"]
    assert np.corrcoef(answer.mean, tags["value"])[0, 1] > 0.6
    pair = drawn.predict({"item": [3], "word": [2]}, matrix="words")
    assert abs(pair.mean[0]) < 1000 and pair.sd[0] > 100  # in the unit of the words
    new = drawn.predict({"user": [999], "tag": [0]}, matrix="tags")
    assert new.frame()["flagged"].tolist() == [True]
    same = drawn.predict(train.frame(), matrix="ratings").mean
    np.testing.assert_array_equal(same, drawn.predict(train).mean)


def test_a_fit_is_saved_and_loaded(made, drawn, tmp_path):
    drawn.save(tmp_path / "fit")
    again = bf.load(tmp_path / "fit")
    assert repr(again.hyper) == repr(drawn.hyper)  # matrices with the names of their fields
    test = made[1]
    one, two = (f.predict(test).frame() for f in (drawn, again))
    pd.testing.assert_frame_equal(one, two)
    query = {"user": [3], "tag": [1]}
    np.testing.assert_array_equal(
        again.predict(query, matrix="tags").mean, drawn.predict(query, matrix="tags").mean
    )


def test_comparison_diagnostics_and_loo(made, drawn):
    train, test, _ = made
    table = bf.compare({"cmf": drawn}, test).table
    assert len(table) == 1
    assert "prediction (" in str(drawn.diagnostics())
    assert len(drawn.recommend([train.users[0]], 3)) == 3
    with pytest.raises(BayesfacError, match="a new row may have cells in several matrices"):
        drawn.fold_in(train)


def test_intervals_of_a_point_are_as_wide_beside_tags_of_two_levels():
    """The noise of the ratings takes over the variance of u.v also where another matrix is probit."""
    rng = np.random.default_rng(0)
    U, V, W = (rng.normal(size=(n, 3)) for n in (120, 80, 20))
    user, item = np.divmod(rng.choice(120 * 80, 2000, replace=False), 80)
    y = 0.5 * np.sum(U[user] * V[item], 1) + 0.4 * rng.normal(size=2000)
    tags = pd.DataFrame(U @ W.T + 0.5 * rng.normal(size=(120, 20)) > 0.5)
    named = {"tags": ("user", "tag", tags.rename_axis("user"))}
    train = bf.Relations(bf.Ratings(user[:1200], item[:1200], y[:1200]), named)
    fit = bf.fit("cmf", train, **QUIET)
    assert fit.hyper.probit == ("tags",)
    low, high = fit.predict({"user": user[1200:], "item": item[1200:]}).interval(0.9)
    inside = (low <= y[1200:]) & (y[1200:] <= high)
    assert 0.86 < inside.mean() < 0.94  # without the factor 0.8


def test_ordinal_ratings_and_new_users():
    """Levels sum to one, also for a new user, whose law is the mean over draws from the prior."""
    data, h = levelled(jax.random.key(2))
    fit = bf.fit(
        "cmf", data, bf.Gibbs(20, 20, 2), n_components=2, probit=("ratings", "tags"), **QUIET
    )
    assert fit.predict(data).probabilities.shape == (len(data), 3)
    p = from_sites(CMF, {name: jnp.asarray(x[0, -1]) for name, x in fit.draws.items()})
    law = CMF.predict(p, Query(np.array([-1, 1]), np.array([2, 2])), fit.hyper)
    np.testing.assert_allclose(law.probs.sum(-1), 1, rtol=1e-6)
    rng = np.random.default_rng(0)
    mu, cov = np.asarray(p.mu["user"]), np.linalg.inv(np.asarray(p.Lambda["user"]))
    x = rng.multivariate_normal(mu, cov, 100_000) @ np.asarray(p.U["item"][2])
    want = np.asarray(cuts.levels(p.cuts["ratings"], jnp.asarray(x), (1.0, 2.0, 3.0)).probs).mean(0)
    np.testing.assert_allclose(law.probs[0], want, atol=0.01)
    every = CMF.predict(p, Grid(np.arange(7), np.arange(5)), fit.hyper)
    assert every.probs.shape == (7, 5, 3)


def test_tags_swell_along_one_direction_with_their_prior():
    """Of the example only tags have all their cells in a matrix of levels."""
    data, hyper = CMF.example(jax.random.key(0))
    p = CMF.init(jax.random.key(1), data, hyper)
    q = CMF.gibbs.moves["swell"](jax.random.key(2), p, data, hyper)
    for kind in ("user", "item", "word"):
        np.testing.assert_array_equal(q.U[kind], p.U[kind])
    moved = np.asarray(q.U["tag"] - p.U["tag"])
    assert np.abs(moved).max() > 0.01
    assert np.linalg.svd(moved, compute_uv=False)[1] < 1e-12

    def squares(r):
        away = r.U["tag"] - r.mu["tag"]
        return away @ r.Lambda["tag"] @ away.T

    np.testing.assert_allclose(squares(q), squares(p), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:cmf did not converge")
def test_lbfgs_keeps_what_empirical_bayes_set():
    """The held fields are mappings, whose entries it moved once."""
    data = few_relations(jax.random.key(0))
    one, two = (
        bf.fit("cmf", data, bf.LBFGS(most, tol=0), n_components=2, probit=("tags",), **QUIET).params
        for most in (1, 5)
    )
    assert not np.allclose(one.U["user"], two.U["user"], rtol=1e-3)
    for mine, other in zip(one[1:], two[1:], strict=True):
        for key, value in mine.items():
            np.testing.assert_array_equal(other[key], value)


@pytest.mark.parametrize(
    "data",
    [
        bf.Relations(bf.Ratings([0, 1], [0, 1], [1.0, 1.0])),
        bf.Relations(
            bf.Ratings([0, 1, 1], [0, 1, 0], [1.0, 2.0, 5.0]),
            {"tags": ("user", "tag", ([1], ["t"], [3.0]))},
        ),
        bf.Relations(
            bf.Ratings([0, 0, 1], [0, 1, 1], [1.0, 1e6, 2.0]),
            {"heavy": ("item", "word", np.ones((2, 40)) * np.arange(40))},
        ),
    ],
    ids=["constant", "one cell", "one heavy row"],
)
def test_tiny_data(data):
    for engine in (None, bf.Gibbs(10, 10, 1)):
        fit = bf.fit("cmf", data, engine, **QUIET)
        assert np.isfinite(fit.predict(data).mean).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 6}, "between 1 and 5"),
        ({"rate": -1.0}, "rate"),
        ({"scales": "free"}, "estimated"),
        ({"probit": ("words",)}, "matrices with levels, .*'tags'.*got 'words'"),
        ({"predicts": "tag"}, "predicts to be one of"),
        ({"matrices": (("ratings", "user", "item", 0.0, 1.0, None),)}, "the matrices of the data"),
    ],
)
def test_wrong_settings_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("cmf", few_relations(jax.random.key(0)), **{"n_components": 2, **settings}, **QUIET)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda fit, ratings: fit.predict(ratings, matrix="tagz"), "matrix 'tagz'; did you mean 'tags'"),
        (lambda fit, ratings: fit.predict({"user": [1], "item": [2]}, matrix="tags"), "'user', 'tag'"),
        (lambda fit, ratings: bf.fit("cmf", ratings), "got Ratings: bf.Relations"),
        (lambda fit, ratings: bf.fit("bpmf", few_relations(jax.random.key(0))), "bf.Ratings"),
        (
            lambda fit, ratings: bf.fit("pmf", ratings, **QUIET).predict(ratings, matrix="tags"),
            "a fit of several matrices",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(drawn, call, said):
    ratings = bf.Ratings([0, 1], [0, 1], [1.0, 2.0])
    with pytest.raises((BayesfacError, UnknownName, ValueError, TypeError), match=said):
        call(drawn, ratings)


def test_the_ratings_by_their_name_are_the_ratings():
    rng = np.random.default_rng(0)
    R, tags = rng.normal(size=(15, 2)) @ rng.normal(size=(2, 10)), rng.normal(size=(14, 4))
    R = np.clip(np.rint(R) + 3, 1, 5)
    (u, i), (v, t) = np.indices(R.shape).reshape(2, -1), np.indices(tags.shape).reshape(2, -1)
    tables = {"tags": ("user", "tag", bf.Ratings(v, t, tags.ravel()))}
    data = bf.Relations(bf.Ratings(u, i, R.ravel(), levels=5), tables)
    fit = bf.fit("cmf", data.take((u != 14) & (i != 9)), n_components=2, progress=False)
    query = {"user": [14, 0, 14], "item": [0, 9, 9]}
    one, other = fit.predict(query), fit.predict(query, matrix="ratings")
    np.testing.assert_allclose(one.sd, other.sd)
    np.testing.assert_allclose(one.probabilities, other.probabilities)
    assert other.flagged.all()
