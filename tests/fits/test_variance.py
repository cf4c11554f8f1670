"""Variance explained by view and component, beside its definition, and its pictures."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.fits.variance import shares
from bayesfac.parts.observed.per_view import View


def test_shares_are_variances_of_scores_over_those_of_scores_and_noise():
    rng = np.random.default_rng(0)
    draws = {"U": rng.normal(size=(3, 9, 2)) + 1, "V.a": rng.normal(size=(3, 5, 2))}
    draws |= {"alpha.a": rng.gamma(2.0, size=(3, 5)), "r.a": rng.gamma(2.0, size=3)}
    noise = {
        "normal": (1 / draws["alpha.a"]).mean(1),
        "bernoulli": np.full(3, np.pi**2 / 3),
        "counts": np.log(1 + np.exp(-0.7) + 1 / draws["r.a"]),
    }
    for law, more in noise.items():
        found = shares(View("a", law, 0, 5, 0.7, 2.0), draws)
        for s in range(3):
            U, V = draws["U"][s], draws["V.a"][s]
            whole = (U @ V.T).var(0).mean()
            own = [np.outer(U[:, k], V[:, k]).var(0).mean() for k in range(2)]
            assert np.allclose(found[s], np.array([*own, whole]) / (whole + more[s]))


@pytest.fixture(scope="module")
def fitted():
    data, truth = bf.datasets.make_measurements(
        120, {"a": 30, "b": 20, "c": 15}, 2, laws={"c": "bernoulli"}, missing=0.05, seed=2
    )
    fit = bf.fit("mofa", data, bf.Gibbs(150, 150, 2), n_components=3, progress=False)
    return data, truth, fit


def test_intervals_hold_the_true_shares(fitted):
    _, truth, fit = fitted
    table = fit.variance_explained(level=0.98)
    for name, noise in (("a", 1.0), ("b", 1.0), ("c", np.pi**2 / 3)):
        whole = (truth.U @ truth.V[name].T).var(0).mean()
        row = table.loc[(name, "all")]
        assert row.low - 0.03 < whole / (whole + noise) < row.high + 0.03
        assert row.low <= row["mean"] <= row.high
    used = table.xs("all", level="component")["in_use"]
    true = {n: int((truth.V[n] ** 2).sum(0).astype(bool).sum()) for n in used.index}
    assert all(abs(used[n] - true[n]) < 1.1 for n in ("a", "b"))


def test_loadings_of_a_view_find_those_that_are_not_zero(fitted):
    data, truth, fit = fitted
    table = fit.loadings("a")
    assert table.index.names == ["a", "component"]
    found = (table["in_slab"].unstack() > 0.5).to_numpy()
    size = np.abs(table["mean"].unstack()).to_numpy()
    best = size.sum(0).argsort()[::-1][:2]
    true = np.abs(truth.V["a"]).max(1) > 0.5
    shown = (found & (size > 0.2))[:, best].any(1)
    assert (shown == true).mean() > 0.85
    with pytest.raises(ValueError, match=r"one of \['user', 'a', 'b', 'c'\], got 'd'"):
        fit.loadings("d")


def test_what_is_refused(fitted):
    _, _, fit = fitted
    with pytest.raises(ValueError, match="level between 0 and 1, got 90"):
        fit.variance_explained(90)
    with pytest.raises(ValueError, match="Expected least from 0 to below 1, got 1"):
        fit.variance_explained(least=1)
    other = bf.fit("pmf", bf.datasets.make_ratings(20, 15, 2), n_components=2, progress=False)
    with pytest.raises(BayesfacError, match="in views"):
        other.variance_explained()


def test_pictures(fitted):
    data, _, fit = fitted
    axes = fit.plot.variance_explained()
    assert axes[0].get_title(loc="left").endswith("variance explained")
    kinds = pd.Series(np.arange(120) % 2, index=data.users[::-1], name="kind").map(str)
    for colour in (None, kinds, np.linspace(0, 1, 120)):
        shown = fit.plot.scores((1, 3), colour)
        assert np.ravel(shown)[0].get_ylabel() == "component 3"
    with pytest.raises(ValueError, match="Expected two components from 1 to 3"):
        fit.plot.scores((1, 4))
    with pytest.raises(ValueError, match="Expected 120 values, one for each row, got 3"):
        fit.plot.scores(colour=[1, 2, 3])
    with pytest.raises(ValueError, match="a value for every row, got none for 0"):
        fit.plot.scores(colour=kinds.drop(0))
    plt.close("all")
