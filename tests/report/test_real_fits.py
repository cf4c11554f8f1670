"""The report on fits of the registered methods: every part of it holds for each of them."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import bayesfac as bf
import bayesfac.models
from bayesfac.core.method import REGISTRY, Rotation, gauge_of, sites
from bayesfac.inference.result import Result, derived
from bayesfac.report.compare import compare
from bayesfac.report.datatree import labels, to_datatree, to_netcdf
from bayesfac.report.diagnostics.align import align
from bayesfac.report.diagnostics.diagnose import diagnostics, identified
from bayesfac.report.pages.html import comparison_page, fit_html
from tests.tools.kinds import KINDS, quick_for

METHODS = quick_for(KINDS)
pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")


@cache
def fitted(name: str, sampled: bool) -> tuple[Any, Any]:
    """(fit, data) of the method's own example, by its solver or by Gibbs.

    A method without conditionals gets unrelated starting points for draws: the harder case for
    alignment, and no minutes of compilation.
    """
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    if sampled and method.gibbs.conditionals:
        gibbs = bf.Gibbs(warmup=20, draws=60, chains=2)
        return bf.fit(name, data, gibbs, progress=False, **hyper._asdict()), data
    fit = bf.fit(name, data, progress=False, **hyper._asdict())
    if not sampled:
        return fit, data
    ready = method.ready(data, hyper)
    points = [
        sites(method.init(key, ready, hyper)) for key in jax.random.split(jax.random.key(1), 40)
    ]
    draws = {
        k: np.stack([p[k] for p in points]).reshape(2, 20, *points[0][k].shape) for k in points[0]
    }
    lp = np.random.default_rng(0).normal(size=(2, 20))
    result = Result(draws=draws, trace=-lp.ravel(), stats={"lp": lp})
    result = derived(method, ready, hyper, result)
    return replace(fit, engine=bf.Gibbs(draws=20, chains=2), result=result), data


def test_there_is_something_to_test() -> None:
    assert {"pmf", "bpmf", "plsa", "mvplsa"} <= set(REGISTRY)


@pytest.mark.parametrize("name", METHODS)
def test_a_sampled_fit_goes_through_every_part(name, tmp_path) -> None:
    fit, _ = fitted(name, True)
    tree = to_datatree(fit)
    to_netcdf(tree, tmp_path / "posterior.nc")
    with xr.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as file:
        assert file.load().identical(tree)
    labelled = [dim for dim in fit.data.coords if dim in tree.posterior.dims]
    assert labelled
    for dim in labelled:
        assert list(tree.posterior[dim].values) == list(labels(fit.data.coords[dim]))
    found = diagnostics(fit)
    assert found.kind == "sampler"
    assert (found.table["quantity"] == "prediction").sum() == len(fit.data.probe)
    assert found.verdict in repr(found) and fit.name in fit_html(fit)


@pytest.mark.parametrize("name", METHODS)
def test_alignment_changes_nothing_that_is_identified(name) -> None:
    fit, data = fitted(name, True)
    aligned = align(fit)
    assert np.isfinite(aligned.residual).all()
    moved = replace(fit, result=replace(fit.result, draws=aligned.draws))
    before, after = (f.predict(data).draws_of_mean() for f in (fit, moved))
    np.testing.assert_allclose(after, before, rtol=2e-3, atol=2e-4)
    before, after = identified(fit), identified(moved)
    gauge = gauge_of(fit.method, tuple(fit.draws))
    free = [g for g in gauge if not getattr(g, "floating", False)]
    assert not free or any(name.startswith(("singular", "share", "size")) for name in before)
    for quantity, values in before.items():
        np.testing.assert_allclose(after[quantity], values, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("name", METHODS)
def test_a_tree_is_aligned_by_the_method_that_it_names(name) -> None:
    fit, _ = fitted(name, True)
    one, other = align(fit), align(to_datatree(fit))
    for site, values in one.draws.items():
        np.testing.assert_allclose(other.draws[site], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_posterior_is_turned_to_a_point(name) -> None:
    (point, _), (fit, _) = fitted(name, False), fitted(name, True)
    assert diagnostics(point).kind == "point" and "site" in fit_html(point)
    aligned = align(fit, reference=point)
    for free in gauge_of(fit.method, tuple(fit.draws)):
        if isinstance(free, Rotation):
            gaps = [0.0, 0.0]
            for site in free.factors:
                target = np.asarray(np.asarray(sites(point.params)[site]))
                for i, draws in enumerate((aligned.draws, fit.draws)):
                    gaps[i] += float(((draws[site] - target) ** 2).sum())
            assert gaps[0] < gaps[1]
        else:
            assert all(aligned.draws[site].shape == fit.draws[site].shape for site in free.axes)


def test_ratings_are_compared_on_one_page() -> None:
    train, test = bf.split.holdout(bf.datasets.make_ratings(40, 30, 2, seed=0), 0.2, seed=0)
    point = bf.fit("pmf", train, n_components=2, progress=False)
    draws = bf.fit("pmf", train, bf.Gibbs(50, 100, 2), n_components=2, progress=False)
    margins = bf.fit("mmmf", train, n_components=2, progress=False)
    fits = {"point": point, "Gibbs": draws, "margins": margins}
    comparison = compare(fits, test, about="random 80/20, seed 0")
    assert np.isfinite(comparison.table[["NMAE", "ordinal log score", "RPS"]]).all(axis=None)
    lower, upper = draws.predict(test).interval(0.9)
    inside = np.mean((test.value >= lower) & (test.value <= upper))
    assert comparison.table.loc["Gibbs", "covers 90 %"] == pytest.approx(
        inside, abs=1.5 / len(test)
    )
    lower, upper = margins.predict(test).interval(0.9)
    assert {*lower, *upper} <= set(test.levels)
    # the interval is simulated, the coverage exact: one rating may stand on the edge
    text = comparison_page(comparison)
    assert text.count("<figure>") >= 10 and len(text) < 5e6


def test_counts_are_compared_on_one_page() -> None:
    rng = np.random.default_rng(0)
    views = bf.Views({"a": rng.poisson(2.0, (20, 8)), "b": rng.poisson(2.0, (20, 6))})
    train, test = bf.split.holdout(views, 0.2, seed=0)
    settings = {"n_components": 2, "n_topics": 2, "a": 1.1, "b": 1.1, "c": 1.1, "progress": False}
    fits = {f"seed {seed}": bf.fit("mvplsa", train, seed=seed, **settings) for seed in (0, 1)}
    comparison = compare(fits, test)
    total = sum(test[name].sum() for name in test.names)
    assert comparison.table["n"].tolist() == [total, total]
    assert (comparison.table["perplexity"] < 15).all()
    assert "perplexity a" in comparison_page(comparison)
