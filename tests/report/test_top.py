"""Predictions at the top of the list."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.report.top import top_means, top_table, top_words


def test_means_of_the_first_rows_are_those_of_pandas():
    rng, user = np.random.default_rng(0), np.repeat(np.arange(20), np.arange(20))  # one has 5 rows
    frame = pd.DataFrame({"user": user, "by": rng.normal(size=190), "x": rng.normal(size=190)})
    frame = frame.sample(frac=1, random_state=0)
    many = frame.groupby("user").filter(lambda own: len(own) > 5)
    first = many.sort_values("by", ascending=False).groupby("user").head(5)
    expected = first.groupby("user")[["by", "x"]].mean().to_numpy()
    own = top_means(
        *(frame[c].to_numpy() for c in ("user", "by")),
        5,
        frame["by"].to_numpy(),
        frame["x"].to_numpy(),
    )
    np.testing.assert_allclose(own, expected)


@pytest.fixture(scope="module")
def comparison():
    """A point and draws, with some thirty held-out ratings of each of sixty users."""
    data = bf.datasets.make_gaussian(60, 60, 2, noise=0.5, density=0.9, seed=0)[0]
    train, test = bf.split.holdout(data, 0.5, seed=0)
    point = bf.fit("bpmf", train, n_components=2, progress=False)
    draws = bf.fit("bpmf", train, bf.Gibbs(50, 100, 2), n_components=2, progress=False)
    return bf.compare({"point": point, "Gibbs": draws}, test)


def test_the_table_is_by_hand(comparison):
    scores = comparison.scores["Gibbs"]
    table = comparison.top
    assert list(table.index.get_level_values("n")) == [1, 5, 10] * 2
    gaps, inside = [], []
    for user in np.unique(scores.cluster):
        at = np.flatnonzero(scores.cluster == user)
        if len(at) > 5:
            best = at[np.argsort(-scores.mean[at])[:5]]
            gaps.append(np.mean(scores.mean[best] - scores.value[best]))
            held = (scores.lower[best] <= scores.value[best]) & (
                scores.value[best] <= scores.upper[best]
            )
            inside.append(held.mean())
    row = table.loc[("Gibbs", 5)]
    assert row["users"] == len(gaps)
    assert row["too high"] == pytest.approx(np.mean(gaps))
    assert row["standard error"] == pytest.approx(np.std(gaps, ddof=1) / len(gaps) ** 0.5)
    assert row["covers 90 %"] == pytest.approx(np.mean(inside), abs=0.01)


def test_predictions_that_are_too_high_are_told(comparison):
    """Noise beside the means lifts items to the top that do not belong there."""
    usual = [line for line in comparison.sentences() if line.startswith("At the top")]
    assert len(usual) == 1 and "Gibbs as predicted" in usual[0]
    scores, rng = comparison.scores["Gibbs"], np.random.default_rng(0)
    noisy = replace(scores, mean=scores.mean + rng.normal(size=len(scores)))
    table = top_table({"noisy": noisy})
    assert table.loc[("noisy", 10), "too high"] > 10 * table.loc[("noisy", 10), "standard error"]
    gap = table.loc[("noisy", 10), "too high"]
    assert f"noisy {gap:.2f} lower than predicted" in top_words(table)[0]


def test_few_users_have_no_sentence_and_counts_no_table():
    train, test = bf.split.holdout(bf.datasets.make_ratings(30, 20, 2, seed=0), 0.2, seed=0)
    few = bf.compare({"point": bf.fit("pmf", train, n_components=2, progress=False)}, test)
    assert not any(line.startswith("At the top") for line in few.sentences())
    counts = bf.Counts(np.random.default_rng(0).poisson(0.5, (30, 20)))
    train, test = bf.split.holdout(counts, 0.2, seed=0)
    fit = bf.fit("hpf", train, n_components=2, progress=False)
    assert bf.compare({"hpf": fit}, test, train=train).top.empty
