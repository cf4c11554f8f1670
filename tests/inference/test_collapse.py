"""Points whose factors have no effect say so, in notes, verdict and repr; healthy points do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
import bayesfac.models  # registers every method
from bayesfac.core.data.cards import describe
from bayesfac.core.laws.empirical_bayes import left_out
from bayesfac.core.method import REGISTRY
from bayesfac.fits import collapse


def said(method, p, data, hyper):
    """The remarks at Params, with what the method derives from them."""
    if method.derive is not None:
        p = p._replace(**method.derive(p, data, hyper))
    return collapse.remarks(method, p, hyper, describe(data), data)


def ratings(n=30, m=20):
    rng = np.random.default_rng(0)
    value = 3 + rng.normal(size=(n, 2)) @ rng.normal(size=(2, m))
    return bf.Ratings(np.clip(np.rint(value), 1, 5), levels=5)


@pytest.mark.parametrize("name", ["pmf", "ordinal_mf", "cplst", "heres", "plsa", "ltm"])
def test_a_planted_collapse_is_told_from_a_random_point(name):
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)
    assert not said(method, p, data, hyper)
    dead = {
        "pmf": lambda: p._replace(
            U=p.U * 1e-5, bias_user=p.bias_user * 0, bias_item=p.bias_item * 0
        ),
        "ordinal_mf": lambda: p._replace(U=p.U * 1e-5),  # thresholds still differ between users
        "cplst": lambda: p._replace(W={v: W * 1e-5 for v, W in p.W.items()}),
        "heres": lambda: p._replace(F=p.F * 1e-5),
        "plsa": lambda: p._replace(A=jnp.full_like(p.A, 1 / p.A.shape[1])),
        "ltm": lambda: p._replace(A=jnp.full_like(p.A, 1 / p.A.shape[1])),
    }[name]()
    (note,) = said(method, dead, data, hyper)
    assert note.startswith("collapsed: the factors have no effect")


def test_a_collapsed_fit_says_so_and_a_healthy_one_does_not():
    data = ratings()
    strong = {"n_components": 2, "scale_user": 1e-3, "scale_item": 1e-3, "noise": 1.0}
    strong["scale_bias"] = 1e-3
    fit = bf.fit("pmf", data, progress=False, **strong)
    assert fit.converged and "converged, but collapsed" in repr(fit)
    assert any(note.startswith("collapsed: ") for note in fit.info["notes"])
    verdict = fit.diagnostics()
    assert verdict.short == "usable in part" and "Collapsed: the factors" in repr(verdict)
    fit = bf.fit("pmf", data, progress=False, n_components=2, noise=0.5)
    assert "collapsed" not in repr(fit) and not fit.info["notes"]


def test_ratings_that_are_all_alike_are_no_collapse():
    """3.3 has no binary form: rounding left a spread of 4e-16, beside which every effect was small."""
    for number in (3.0, 3.3):
        data = bf.Ratings(np.full((7, 9), number))
        assert describe(data).summary["sd"] == 0
        notes = bf.fit("bpmf", data, progress=False, n_components=2).notes
        assert len(notes) == 1 and notes[0].startswith(f"every value is {number:g}")
    assert describe(bf.Tensor(np.full((3, 4, 5), 3.3))).summary["sd"] == 0


def test_a_collapse_by_a_penalty_says_to_take_a_smaller_one():
    rng = np.random.default_rng(0)
    value = np.where(rng.normal(size=(20, 2)) @ rng.normal(size=(2, 12)) > 0, 2, 1)
    data = bf.Ratings(value, levels=2)
    options = {"biases": False, "progress": False}
    (note,) = bf.fit("bmmmf", data, penalty=30.0, **options).notes
    assert note.startswith("collapsed: ") and "take a smaller penalty" in note
    assert not bf.fit("bmmmf", data, penalty=3.0, **options).notes


@pytest.mark.slow
def test_ratings_with_a_long_tail_are_said_for_points_and_draws():
    table = bf.datasets.make_ratings(40, 30, 2, density=0.4, seed=0).frame()
    told = {}
    for what, rating in (("plain", table.rating), ("tail", np.exp(3 * table.rating))):
        data = bf.Ratings(table.assign(rating=5 + rating))
        for engine in (None, bf.Gibbs(5, 5, 1)):
            notes = bf.fit("bpmf", data, engine, n_components=2, progress=False).notes
            told[what, engine is None] = [n for n in notes if "the logarithms of all ratings" in n]
    assert [len(each) for each in told.values()] == [0, 0, 1, 1]
    rating = np.where(np.arange(len(table)) % 20 == 0, 1, 5)
    (note,) = bf.fit(
        "bpmf", bf.Ratings(table.assign(rating=rating)), n_components=2, progress=False
    ).notes
    assert note.startswith(
        "the lowest rating, 1, is 19 times as far from the mean as the highest, 5"
    )
    table = bf.datasets.make_ratings(40, 30, 2, density=0.4, seed=0, levels=5).frame()
    table.loc[0, "rating"] = 300  # a mistake
    (note,) = bf.fit("bpmf", bf.Ratings(table), n_components=2, progress=False).notes[-1:]
    assert note.startswith("the highest rating, 300, is ")


def test_a_collapse_by_another_setting_names_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    labels = bf.Tasks(X, (X @ rng.normal(size=(6, 4)) > 0).astype(float))
    fit = bf.fit("heres", labels, n_components=4, sparsity=100.0, cut=0.5, progress=False)
    assert (
        "collapsed: " in fit.notes[-1]
        and "take a smaller sparsity, take a smaller beta, start from other values" in fit.notes[-1]
    )
    fit = bf.fit("gibbs_mmmf", ratings(), n_components=2, cost=1e-4, progress=False)
    assert (
        "collapsed: " in fit.notes[-1]
        and "take a larger cost, start from other values" in fit.notes[-1]
    )


@pytest.mark.parametrize("name", ["ordinal_mf", "bpmf"])
def test_noisy_sparse_ratings_leave_no_factors(name):
    """One rating in ten of small noisy matrices: the joint mode has no factors, and says so. With the papers'
    prior, as under a weaker one J falls on and on with ever smaller factors."""
    data = bf.datasets.make_ratings(40, 60, 2, density=0.1, seed=0, noise=0.5)
    fit = bf.fit(name, data, scales="joint", beta0=2.0, rate=1.0, progress=False)
    assert any(note.startswith("collapsed: ") for note in fit.result.notes)


@pytest.mark.parametrize("name", ["bpmf", "fm", "ard_mf"])
def test_points_find_factors_that_sweeps_over_means_miss(name):
    """Without draws at the beginning of empirical Bayes the RMSE is .99 to 1.08; long Gibbs runs have .74."""
    data, _ = bf.datasets.make_gaussian(400, 300, 8, density=0.1, seed=0)
    train, test = bf.split.holdout(data, 0.2, seed=0)
    fit = bf.fit(name, train, n_components=8, progress=False)
    assert bf.metrics.rmse(fit.predict(test).mean, test.value) < 0.8


def test_the_variance_of_cells_left_out_by_hand():
    """A mean of n values with unit noise, left out one by one: from 1/n to 1/(n - 1)."""
    assert float(left_out(jnp.full(5, 1 / 5), 1.0)) == pytest.approx(1 / 4)


@pytest.mark.parametrize("plays", [1, 10**4])
def test_preferences_are_no_less_for_large_counts(plays):
    counts = np.random.default_rng(0).poisson(1.0, (20, 15)) * plays
    fit = bf.fit("wrmf", bf.Counts(counts), n_components=2, progress=False)
    assert not any("have no effect" in note for note in fit.notes)


def test_labels_that_one_component_cannot_tell_apart_have_constant_predictions():
    """A label and its complement: the score of the one would have to fall where that of the other rises."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 30))
    y = (x[:, :1] + 0.5 * rng.normal(size=(80, 1)) > 0).astype(int)
    data = bf.Tasks(x, np.hstack([y, 1 - y]))
    fit = bf.fit("leml", data, progress=False, n_components=1, penalty=50.0)
    assert fit.predict(data).mean.reshape(-1, 2).std(0).max() > 1e-4  # small, but not zero
    (note,) = [note for note in fit.notes if note.startswith("collapsed: ")]
    assert "nearly the same for all rows" in note and "take more components" in note
    assert any("logistic regression" in note for note in fit.notes)
    two = bf.fit("leml", data, progress=False, n_components=2, penalty=50.0)
    assert not any("collapsed" in note or "logistic" in note for note in two.notes)


def test_labels_that_are_copies_of_one_are_no_collapse():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 5))
    y = np.repeat(x[:, :1] + 0.5 * rng.normal(size=(100, 1)) > 0, 3, 1).astype(int)
    fit = bf.fit("lsml", bf.Tasks(x, y), progress=False)
    assert not any("collapsed" in note for note in fit.notes)


@pytest.mark.parametrize("engine", [None, bf.Gibbs(4, 4, 2)])
def test_ratings_that_are_all_equal_rank_nothing_and_the_fit_says_so(engine):
    rng = np.random.default_rng(0)
    likes = bf.Ratings(np.where(rng.random((20, 15)) < 0.3, 1.0, np.nan))
    fit = bf.fit("bpmf", likes, engine, n_components=2, progress=False)
    assert any(note.startswith("every value is 1: ") for note in fit.notes)
    assert "bf.Counts" in str(fit.diagnostics())
    counts = bf.fit("wrmf", bf.Counts(likes), n_components=2, progress=False)
    assert not any("every value" in note for note in counts.notes)
