"""Differences of leave-one-out scores are paired; different cells or scores are refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.report.diagnostics.elpd import Loo
from tests.report.diagnostics.few_ratings import GIBBS, PMF, few


def test_ordinal_methods_compare_on_levels():
    data = few(levels=4)
    fits = {
        "pmf": bf.fit("pmf", data, bf.Gibbs(50, 60, 2), n_components=1, progress=False),
        "ordinal": bf.fit("ordinal_mf", data, bf.Gibbs(50, 60, 2), n_components=1, progress=False),
    }
    found = bf.loo_compare({name: one.loo(data) for name, one in fits.items()})
    assert set(found.table.index) == {"pmf", "ordinal"} and "log mass of the level" in repr(found)


def test_differences_are_paired(fit, data, loo):
    other = bf.fit("pmf", data, GIBBS, progress=False, **{**PMF, "noise": 3.0}).loo(data)
    found = bf.loo_compare({"wide": other, "right": loo})
    assert found.table.index[0] == "right"
    away = other.pointwise - loo.pointwise
    row = found.table.loc["wide"]
    assert row["difference"] == pytest.approx(away.sum())
    assert row["se of difference"] == pytest.approx(np.sqrt(len(away)) * away.std(ddof=1))
    by_user = pd.Series(away).groupby(data.user).sum()
    assert row["se by user"] == pytest.approx(np.sqrt(len(by_user)) * by_user.std(ddof=1))
    assert "clear difference" in repr(found)


def test_differences_of_samples_need_the_same_cells(fit, data):
    one, same = (fit.loo(data, subsample=10, seed=5) for _ in range(2))
    found = bf.loo_compare({"one": one, "same": same})
    assert found.table["difference"].abs().max() == 0
    with pytest.raises(ValueError, match="Expected the same ratings left out"):
        bf.loo_compare({"one": one, "other": fit.loo(data, subsample=10, seed=6)})
    with pytest.raises(ValueError, match="Expected the same ratings left out"):
        bf.loo_compare({"one": one, "whole": fit.loo(data)})
    with pytest.raises(ValueError, match="Expected scores of one kind"):
        bf.loo_compare({"cells": fit.loo(data), "users": fit.loo(data, by="user")})
    with pytest.raises(ValueError, match="two or more"):
        bf.loo_compare({"one": one})


def scored(elpd, bad=0, p_loo=1.0):
    """A result of `fit.loo` with these scores, of which the first `bad` have a large Pareto k."""
    cells = np.arange(len(elpd))
    table = pd.DataFrame({"user": cells, "item": 0, "elpd": elpd, "p_loo": p_loo, "pareto_k": 0.1})
    table.loc[cells < bad, "pareto_k"] = 0.9
    return Loo("pmf", table, "log density of the rating", "rating", "PSIS", 400, cells)


def test_scores_that_are_not_to_be_trusted_decide_nothing():
    noise = np.random.default_rng(0).normal(size=100)
    low, high = noise - 3, noise - 1 + np.tile([0.0, 0.1], 50)
    clear = bf.loo_compare({"low": scored(low), "high": scored(high)})
    assert "low is 205 ±" in str(clear.findings[0])
    assert "a clear difference" in str(clear.findings[0])
    for names in (["high"], ["low"], ["high", "low"]):
        both = {"low": scored(low), "high": scored(high)}
        for name in names:
            both[name] = scored(both[name].pointwise, bad=40)
            assert both[name].level == "bad"
        found = bf.loo_compare(both).findings[0]
        assert found.level == "bad" and "clear" not in found.text
        assert f"no verdict, because the scores of {' and '.join(names)} are" in found.text


def test_a_difference_is_clear_only_beyond_the_untrusted_scores():
    noise = np.random.default_rng(0).normal(size=100)
    worse = scored(noise - 1)
    near = scored(
        noise - 0.96 + np.tile([0.0, 0.02], 50), bad=5
    )  # 5 nats higher, 5 of them in doubt
    assert near.level == "care" and near.doubt == 5
    found = bf.loo_compare({"worse": worse, "near": near}).findings[0]
    assert found.level == "care" and "untrusted scores may change it by 5 nats" in found.text
    trusted = replace(near, table=near.table.assign(pareto_k=0.1))
    assert "a clear" in bf.loo_compare({"worse": worse, "near": trusted}).findings[0].text


def test_fits_are_refused_with_what_to_pass(fit, loo):
    with pytest.raises(TypeError, match=r"got Fit as 'other': pass fit.loo\(data\)"):
        bf.loo_compare({"one": loo, "other": fit})


def test_results_without_names_are_called_by_their_methods(fit, loo):
    noise = np.random.default_rng(0).normal(size=100)
    found = bf.loo_compare(scored(noise), scored(noise - 1))
    assert list(found.table.index) == ["pmf", "pmf (2)"]
    with pytest.raises(TypeError, match=r"got Fit as 'pmf': pass fit.loo\(data\)"):
        bf.loo_compare(fit, fit)
    with pytest.raises(ValueError, match="two or more results of fit.loo, got 1"):
        bf.loo_compare(loo)
