"""Differences of leave-one-out scores are paired; different cells or scores are refused."""

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
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
