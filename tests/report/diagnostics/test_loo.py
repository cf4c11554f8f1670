"""Leave-one-out: exact refits, ArviZ on the same numbers, bounded memory, and every refusal."""

import tracemalloc
from dataclasses import replace
from unittest.mock import patch

import arviz_stats
import jax
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import norm

import bayesfac as bf
from bayesfac.core.data.cells import query_of
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.inference.predictions import pointwise
from bayesfac.report.diagnostics.elpd import estimate
from bayesfac.report.diagnostics.loo import cells_of
from bayesfac.testing.tools import likelihood, points
from tests.report.diagnostics.few_ratings import GIBBS, PMF, few


# -- what it must equal ---------------------------------------------------------------------------
def test_it_is_the_average_over_refits_without_the_cell(fit, data, loo):
    """Four cells, each really left out; the refits' own Monte Carlo error decides what is near."""
    for cell in (0, 7, 15, 30):
        kept = np.arange(len(data)) != cell
        again = bf.fit("pmf", data.take(kept), GIBBS, seed=1, progress=False, **PMF)
        told = pointwise.told(fit.method, data, fit.data.locate(data)[0], None)
        one = pointwise.Told(data, told.take(np.array([cell])).query, data.value[[cell]], None)
        (_, _, score), *_ = pointwise.by_block(again.method, again.hyper, again.draws, one, 2**24)
        density = np.exp(score[0].reshape(2, -1))
        exact = np.log(density.mean())
        ess = array_stats.ess(density, method="mean")
        error = density.std() / density.mean() / float(ess) ** 0.5
        assert abs(loo.pointwise[cell] - exact) < 4 * 1.5 * error + 0.01, cell


def test_it_is_arvizs_on_the_same_log_likelihoods(fit, data, loo):
    """The log likelihoods by hand; ArviZ's smoothing with our relative efficiency."""
    U, V = (np.asarray(fit.draws[site], float) for site in "UV")
    mean = 3 + np.einsum("cdnk,cdnk->cdn", U[:, :, data.user], V[:, :, data.item])
    told = norm.logpdf(data.value, mean, 0.7)
    for cell in range(len(data)):
        likelihood = np.exp(told[..., cell])
        r_eff = float(array_stats.ess(likelihood, method="mean")) / likelihood.size
        elpd, k, p_loo = array_stats.loo(told[..., cell], r_eff=r_eff)
        row = loo.table.iloc[cell]
        np.testing.assert_allclose(
            [row["elpd"], row["pareto_k"], row["p_loo"]], [elpd, k, p_loo], atol=1e-6
        )
    assert loo.elpd == pytest.approx(loo.pointwise.sum())
    assert loo.se == pytest.approx(np.sqrt(len(data)) * loo.pointwise.std(ddof=1))
    assert loo.table["user"].tolist() == data.frame()["user"].tolist()


QUICK = ("bpmf", "hmf", "heres", "leml", "pmmmf", "mlc_hmf")
FACTORS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name, method in sorted(REGISTRY.items())
    if method.data is not bf.Views
]


@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_cells_make_up_the_likelihood(name):
    """Every method: what is divided out is what the joint has, up to a constant."""
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    if name == "pmmmf":
        with pytest.raises(BayesfacError, match="no likelihood of a single rating: theta"):
            pointwise.refuse_entangled(method, data)
        return
    if method.data is bf.Counts:
        with pytest.raises(BayesfacError, match="a sample of the listed pairs lacks the zeros"):
            pointwise.refuse_entangled(method, data)
        return
    if isinstance(data, bf.Ratings):
        query = (data.user, data.item)
    elif isinstance(data, bf.Tensor):
        query = query_of(data.code)
    else:
        row, col = np.indices((data.n_rows, len(data.labels)))
        table = data["labels"].toarray()
        known = data.labelled[row] & ~np.isnan(table)
        query = (row[known], col[known])
    cells = pointwise.told(method, data, pointwise.Query(*query), data.levels)
    part, y = pointwise.only(cells, slice(None)), jax.numpy.asarray(cells.value)

    @jax.jit
    def rest(p):
        """The likelihood of all but these cells, which is a constant."""
        found = pointwise.factors(method, p, part, hyper, cells.query, y)
        return likelihood(method, p, data, hyper) - _others(method, p, data, hyper) - found.sum()

    first, second = points(method, jax.random.key(1), data, hyper, 2)
    if name == "mlc_hmf":
        with pytest.raises(BayesfacError, match="no likelihood of a single cell"):
            rest(first)
        return
    np.testing.assert_allclose(rest(first), rest(second), rtol=1e-9, atol=1e-7)


def _others(method, p, data, hyper):
    """What views add where they are modelled too, and factors that are no data."""
    sites = pointwise.sites_of_model(method, data, hyper, p)
    others = [
        s for n, s in sites.items() if s["is_observed"] and n not in ("rating", "view.labels")
    ]
    return sum((jax.numpy.sum(s["fn"].log_prob(s["value"])) for s in others), 0.0)


def test_levels_are_scored_by_their_mass_and_weighted_by_the_density():
    data = few(levels=5)
    fit = bf.fit("pmf", data, bf.Gibbs(50, 100, 2), progress=False, **PMF)
    found = fit.loo(data)
    assert found.what == "log mass of the level"
    U, V = (np.asarray(fit.draws[site], float) for site in "UV")
    mean = 3 + (U[:, :, data.user] * V[:, :, data.item]).sum(-1).reshape(200, -1)
    low = np.where(data.value == 1, -np.inf, data.value - 0.5)
    high = np.where(data.value == 5, np.inf, data.value + 0.5)
    mass = norm.cdf(high, mean, 0.7) - norm.cdf(low, mean, 0.7)
    weight = 1 / norm.pdf(data.value, mean, 0.7)
    raw = np.log((weight * mass).sum(0) / weight.sum(0))
    calm = found.pareto_k < 0.4  # where smoothing changes little
    assert calm.sum() > 10
    np.testing.assert_allclose(found.pointwise[calm], raw[calm], atol=0.02)


def test_labels_of_tasks():
    data, hyper = REGISTRY["heres"].example(jax.random.key(0))
    fit = bf.fit("heres", data, bf.Gibbs(50, 60, 1), progress=False, **hyper._asdict())
    found = fit.loo(data)
    assert list(found.table.columns[:2]) == ["row", "label"] and len(found.table) == len(data)
    assert found.unit == "label" and np.isfinite(found.elpd)
    with pytest.raises(BayesfacError, match="its data are Tasks"):
        fit.loo(data, by="user")


# -- how it is computed ---------------------------------------------------------------------------
def test_memory_is_what_was_asked_for():
    """1,000 draws of 3,000 cells are 24 MB a table; with 4 MB of work space the peak stays near it."""
    data = few(60, 60, seed=1)
    fit = bf.fit("pmf", data, bf.Gibbs(0, 500, 2), progress=False, **PMF)
    memory = 4 * 2**20
    first = fit.loo(data, memory=memory)  # compiles
    tracemalloc.start()
    again = fit.loo(data, memory=memory)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data) * 1000 * 8 > 5 * memory
    assert peak < 1.25 * memory
    np.testing.assert_array_equal(first.pointwise, again.pointwise)


def test_blocks_change_nothing(fit, data, loo):
    small = fit.loo(data, memory=2**17)
    np.testing.assert_allclose(small.pointwise, loo.pointwise, rtol=1e-9)
    np.testing.assert_allclose(small.pareto_k, loo.pareto_k, rtol=1e-6)


def test_draws_on_disk(data, fit, loo, tmp_path):
    engine = replace(GIBBS, folder=str(tmp_path))
    stored = bf.fit("pmf", data, engine, progress=False, **PMF)
    assert isinstance(stored.draws["U"], np.memmap)
    np.testing.assert_allclose(stored.loo(data).pointwise, loo.pointwise, rtol=1e-9)
    users = fit.loo(data, by="user"), stored.loo(data, by="user")
    np.testing.assert_allclose(users[1].pointwise, users[0].pointwise, rtol=1e-9)


def test_a_saved_fit_with_named_users(data, tmp_path):
    frame = data.frame().assign(user=[f"user {u}" for u in data.user])
    named = bf.Ratings(frame)
    fit = bf.fit("pmf", named, bf.Gibbs(20, 40, 1), progress=False, **PMF)
    again = bf.load(fit.save(tmp_path / "fit"))
    np.testing.assert_array_equal(again.loo(named).pointwise, fit.loo(named).pointwise)
    with pytest.raises(ValueError, match="user labels of training"):
        again.loo(data)


def test_thin_uses_every_nth_draw(fit, data):
    thinned = fit.loo(data, thin=4)
    assert thinned.draws == 200
    kept = {site: value[:, ::4] for site, value in fit.draws.items()}
    by_hand = replace(fit, result=replace(fit.result, draws=kept)).loo(data)
    np.testing.assert_array_equal(thinned.pointwise, by_hand.pointwise)


# -- a sample of the cells ------------------------------------------------------------------------
def test_a_sample_estimates_the_sum_and_says_how_well(fit, data, loo):
    part = fit.loo(data, subsample=15, seed=3)
    assert len(part.table) == 15 and part.n == len(data)
    at = part.at
    np.testing.assert_allclose(part.pointwise, loo.pointwise[at], rtol=1e-9)
    np.testing.assert_allclose(part.lpd, loo.pointwise + loo.table["p_loo"], rtol=1e-6)
    assert part.p_loo == pytest.approx(part.lpd.sum() - part.elpd)
    inside, rng = [], np.random.default_rng(0)
    for _ in range(200):
        at = rng.permutation(len(data))[:15]
        value, error = estimate(loo.pointwise[at], part.lpd, at)
        inside.append(abs(value - loo.elpd) < 2 * error)
    # 95 % if the mean of 15 were normal; t with 14 degrees and skewed terms take some of it
    assert np.mean(inside) > 0.8


def test_a_sample_of_all_cells_is_no_sample(fit, data, loo):
    whole = fit.loo(data, subsample=len(data))
    assert whole.elpd == pytest.approx(loo.elpd) and whole.subsampling_se == 0
    assert whole.se == pytest.approx(loo.se, rel=1e-6)


# -- folds ----------------------------------------------------------------------------------------
def test_folds_are_refits(data):
    engine = bf.Gibbs(50, 100, 1)
    fit = bf.fit("pmf", data, engine, progress=False, **PMF)
    found = fit.kfold(data, k=3, seed=1)
    for train, test in bf.split.k_fold(data, 3, seed=1):
        part = bf.fit("pmf", train, engine, progress=False, **PMF)
        score = part.predict(test).scores(test.value)["log_score"]
        code = data.user * 100 + data.item
        here = np.isin(code, test.user * 100 + test.item)
        np.testing.assert_allclose(found.pointwise[here], score, rtol=1e-6)
    assert found.how == "3 folds" and not found.bad.any() and np.isnan(found.pareto_k).all()
    assert "Refitted" in repr(found)
    with pytest.raises(ValueError, match="no importance weights"):
        found.picture()


def test_folds_of_a_point_and_of_what_has_no_single_likelihood(tmp_path):
    data = few(levels=4)
    point = bf.fit("pmmmf", data, n_components=1, progress=False)
    assert np.isfinite(point.kfold(data, k=2).elpd)
    engine = bf.Gibbs(5, 30, 1, folder=str(tmp_path / "draws"))
    fit = bf.fit("pmf", data, engine, progress=False, **PMF)
    whole = fit.loo(data).pointwise
    fit.kfold(data, k=2)
    np.testing.assert_array_equal(fit.loo(data).pointwise, whole)  # the folds wrote elsewhere


@pytest.mark.filterwarnings("ignore:the fit of pmf is partial")
def test_ctrl_c_ends_the_folds(data):
    """An engine returns the draws that it has; the folds went on, and a part of a fit was one of them."""
    fit = bf.fit("pmf", data, bf.Gibbs(5, 30, 1), progress=False, **PMF)
    run = bf.Gibbs.run

    def cut_short(engine, job):
        return replace(run(engine, job), partial=True)

    with (
        patch.object(bf.Gibbs, "run", cut_short),
        pytest.raises(KeyboardInterrupt, match="fold 1 of 2"),
    ):
        fit.kfold(data, k=2)


def test_an_error_in_a_fold_names_the_fold(data):
    fit = bf.fit("pmf", data, bf.Gibbs(5, 30, 1), progress=False, **PMF)
    run, begun = bf.Gibbs.run, []

    def fails_at_the_second(engine, job):
        begun.append(job)
        if len(begun) == 2:
            raise FloatingPointError("too large")
        return run(engine, job)

    with (
        patch.object(bf.Gibbs, "run", fails_at_the_second),
        pytest.raises(FloatingPointError) as caught,
    ):
        fit.kfold(data, k=3)
    assert caught.value.__notes__ == ["in fold 2 of 3"]


# -- several fits ---------------------------------------------------------------------------------


# -- what it says ---------------------------------------------------------------------------------
def test_an_outlier_has_a_large_k():
    clean = few()
    value = clean.value.copy()
    value[9] += 12.0  # 17 noise sds: without it the posterior is another
    frame = clean.frame().assign(rating=value)
    data = bf.Ratings(frame)
    fit = bf.fit("pmf", data, GIBBS, progress=False, **PMF)
    found = fit.loo(data)
    assert int(np.argmax(found.pareto_k)) == 9 and found.pareto_k[9] > 0.8
    assert found.level in ("care", "bad") and found.bad[9]
    assert "fit.kfold(data)" in repr(found) and "Pareto k above" in repr(found)


def test_one_cell():
    data = bf.Ratings([0], [0], [3.5])
    fit = bf.fit("pmf", data, bf.Gibbs(5, 60, 1), progress=False, **PMF)
    found = fit.loo(data)
    assert np.isfinite(found.elpd) and np.isnan(found.se) and np.isnan(found.se_by_user)
    assert "1 rating (" in repr(found)
    # nothing is left: the prior predictive, u v + noise of sd 0.7 about 3, u and v of sd 0.8
    u, v = np.random.default_rng(0).normal(0, 0.8, (2, 100_000))
    assert found.elpd == pytest.approx(np.log(norm.pdf(3.5, 3 + u * v, 0.7).mean()), abs=0.15)


# -- what it refuses ------------------------------------------------------------------------------
def test_other_data_are_refused(fit, data):
    with pytest.raises(ValueError, match="Expected the 8 user labels of training, got 9"):
        fit.loo(few(users=9))
    with pytest.raises(ValueError, match="Expected the training data, with"):
        fit.loo(data.take(np.arange(len(data)) > 0))
    changed = data.frame().assign(rating=data.value + 1)
    with pytest.raises(ValueError, match="Expected the training data, with mean"):
        fit.loo(bf.Ratings(changed))
    with pytest.raises(ValueError, match="levels of training"):
        rounded = data.frame().assign(rating=3)
        fit.loo(bf.Ratings(rounded, levels=5))
    with pytest.raises(TypeError, match="Expected Ratings for pmf, got Views"):
        fit.loo(bf.Views([[1, 2]]))


def test_what_has_no_posterior_draws_is_refused(fit, data):
    point = bf.fit("pmf", data, progress=False, **PMF)
    with pytest.raises(BayesfacError, match="Expected draws, got the point fit 'pmf'"):
        point.loo(data)
    guide = replace(fit, engine=bf.SVI())
    with pytest.raises(BayesfacError, match="SVI's guide"):
        guide.loo(data)
    one = {site: value[:1, :1] for site, value in fit.draws.items()}
    with pytest.raises(BayesfacError, match="at least 25 draws.*got 1"):
        replace(fit, result=replace(fit.result, draws=one)).loo(data)


def test_wrong_settings_are_refused(fit, data):
    with pytest.raises(ValueError, match="by='cell' or by='user', got 'row'"):
        fit.loo(data, by="row")
    with pytest.raises(ValueError, match="Expected thin between 1 and 400"):
        fit.loo(data, thin=0)
    with pytest.raises(ValueError, match="Expected subsample between 1 and"):
        fit.loo(data, subsample=10_000)
    with pytest.raises(ValueError, match="subsample=None"):
        fit.loo(data, by="user", subsample=3)


def test_views_are_refused():
    method = REGISTRY["plsa"]
    with pytest.raises(BayesfacError, match="got views for plsa"):
        pointwise.told(method, bf.Views([[1, 2]]), pointwise.Query([0], [0]), None)


def test_cells_are_in_the_order_given(fit, data):
    cells, labels, cluster = cells_of(fit, data)
    np.testing.assert_array_equal(cells.value, data.value)
    np.testing.assert_array_equal(cells.query.row, data.user)
    assert (labels["item"].to_numpy() == data.items[data.item]).all()
    assert len(np.unique(cluster)) == data.n_users


@pytest.mark.filterwarnings("ignore:Estimated shape")  # ArviZ warns of a large k, as fit.loo says
def test_arvizs_own_loo_runs_on_the_tree(fit, data):
    tree = fit.datatree(data)
    assert tree.observed_data["rating"].dims == ("cell",)
    assert list(tree.log_likelihood["user"].values[:3]) == list(data.frame()["user"][:3])
    theirs, ours = arviz_stats.loo(tree, pointwise=True), fit.loo(data)
    assert float(theirs.elpd) == pytest.approx(ours.elpd, abs=0.05 * ours.se)
    with pytest.raises(BayesfacError, match="thin="):
        fit.datatree(data, max_bytes=200_000)
    few = fit.datatree(data, thin=10)
    np.testing.assert_array_equal(
        few.log_likelihood["rating"], tree.log_likelihood["rating"][:, ::10]
    )
