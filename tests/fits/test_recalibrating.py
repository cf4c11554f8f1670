"""Intervals that are corrected on held-out cells."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, UnknownName
from bayesfac.inference.predictions.conformal import Recalibration

DATA = bf.datasets.make_gaussian(80, 60, 2, noise=0.5, density=0.8, seed=0)[0]
TRAIN, REST = bf.split.holdout(DATA, 0.6, seed=0)
HELD_OUT, TEST = bf.split.holdout(REST, 0.5, seed=0)


@pytest.fixture(scope="module")
def fit():
    """Its noise has a fifth of the true standard deviation."""
    return bf.fit("pmf", TRAIN, n_components=2, noise=0.1, progress=False)


def covered(fit, test, at=slice(None)):
    lower, upper = fit.predict(test).interval(0.9)
    return ((lower <= test.value) & (test.value <= upper))[at].mean()


@pytest.mark.parametrize(("n", "level"), [(99, 0.9), (100, 0.9), (57, 0.5), (20, 0.95)])
def test_of_all_orders_exactly_so_many_are_inside(n, level):
    """Of n + 1 scores each is left out in turn: ceil((n + 1) level) of them are inside."""
    scores = np.random.default_rng(0).exponential(size=n + 1)
    rest = [Recalibration("cells", np.sort(np.delete(scores, i))) for i in range(n + 1)]
    inside = sum(s <= each.width(level) for s, each in zip(scores, rest, strict=True))
    assert inside == int(np.ceil(round((n + 1) * level, 9)))
    signed = scores * np.where(np.arange(n + 1) % 2, 1, -1)
    middle = [each.pit(s, 0.5) for s, each in zip(signed, rest, strict=True)]
    ranks = np.sort(2 * np.abs(np.array(middle) - 0.5) * (n + 1))
    np.testing.assert_allclose(ranks, np.arange(n + 1) + 0.5)
    assert (np.sign(np.array(middle) - 0.5) == np.sign(signed)).all()


def test_intervals_of_a_wrong_noise_are_repaired(fit):
    new = fit.recalibrated(HELD_OUT)
    assert covered(fit, TEST) < 0.5
    assert covered(new, TEST) == pytest.approx(0.9, abs=0.03)
    old, now = (each.predict(TEST) for each in (fit, new))
    assert (old.mean == now.mean).all() and (old.sd == now.sd).all()
    score = np.sort(np.abs(HELD_OUT.value - fit.predict(HELD_OUT).mean) / fit.predict(HELD_OUT).sd)
    half = score[int(np.ceil((len(score) + 1) * 0.9)) - 1] * old.sd
    np.testing.assert_allclose(now.interval(0.9), [old.mean - half, old.mean + half])
    assert str(new).endswith(f"intervals recalibrated on {len(HELD_OUT):,} held-out cells")
    assert "recalibrated" not in str(fit)


def test_scores_go_with_the_new_intervals(fit):
    new = fit.recalibrated(HELD_OUT)
    prediction = new.predict(TEST)
    pit = prediction.scores(TEST.value)["pit"]
    lower, upper = prediction.interval(0.9)  # not those that the scores have kept
    assert (np.abs(pit - 0.5) <= 0.45).mean() == pytest.approx(covered(new, TEST), abs=0.002)
    assert ((lower <= TEST.value) == (pit > 0.05)).mean() > 0.998
    assert bf.compare({"old": fit, "new": new}, TEST).top.loc[("new", 10), "covers 90 %"] > 0.85


def test_the_top_is_calibrated_on_the_first_ten_of_each_user(fit):
    """Ratings are lower than predicted the higher the prediction: the top needs wider intervals."""
    frame = HELD_OUT.frame().assign(mean=fit.predict(HELD_OUT).mean, sd=fit.predict(HELD_OUT).sd)
    counts = frame.groupby("user")["item"].transform("size")
    best = frame[counts > 10].sort_values("mean", ascending=False).groupby("user").head(10)
    scores = np.sort(np.abs(best["rating"] - best["mean"]) / best["sd"])
    new = fit.recalibrated(HELD_OUT, what="top")
    np.testing.assert_allclose(new.recalibration.scores, scores)
    assert str(new).endswith(f"intervals recalibrated on {len(best)} held-out cells at the top")


def test_the_correction_is_saved_and_ends_with_new_rows(fit, tmp_path):
    new = fit.recalibrated(HELD_OUT, what="top")
    loaded = bf.load(new.save(tmp_path / "fit"))
    assert str(loaded) == str(new)
    assert str(new.recalibration) in (tmp_path / "fit" / "model_card.md").read_text("utf-8")
    np.testing.assert_array_equal(loaded.predict(TEST).interval(), new.predict(TEST).interval())
    assert bf.load(fit.save(tmp_path / "old")).recalibration is None
    rows = bf.Ratings(["new"] * 3, [0, 1, 2], [1.0, 0.5, 2.0])
    assert new.fold_in(rows).recalibration is None
    assert new.update(TRAIN).recalibration is None
    again = new.recalibrated(HELD_OUT)
    assert (again.recalibration.scores == fit.recalibrated(HELD_OUT).recalibration.scores).all()


def test_flagged_cells_keep_their_intervals(fit):
    query = pd.DataFrame({"user": [0, "new"], "item": [1, 1]})
    old, new = (np.array(f.predict(query).interval()) for f in (fit, fit.recalibrated(HELD_OUT)))
    assert (old[:, 1] == new[:, 1]).all() and (old[:, 0] != new[:, 0]).all()


def test_levels_of_training_are_those_of_held_out_ratings():
    train, rest = bf.split.holdout(bf.datasets.load("ratings"), 0.3, seed=0)
    fit = bf.fit("pmf", train, n_components=1, noise=0.5, progress=False)
    assert covered(fit.recalibrated(rest), rest) == pytest.approx(0.9, abs=0.01)
    plain = rest.frame()
    assert len(fit.recalibrated(plain).recalibration.scores) == len(rest)
    with pytest.raises(ValueError, match="Expected the levels of training"):
        fit.recalibrated(bf.Ratings(plain, levels=range(1, 11)))


def test_what_cannot_be_corrected_is_refused(fit):
    with pytest.raises(ValueError, match="at least 50 held-out ratings, got 49"):
        fit.recalibrated(HELD_OUT.take(np.arange(len(HELD_OUT)) < 49))
    few = HELD_OUT.frame().groupby("user").head(10)
    with pytest.raises(ValueError, match="at least 50 held-out ratings of users with more than 10"):
        fit.recalibrated(few, what="top")
    new = HELD_OUT.frame().replace({"user": {5: 99}})
    with pytest.raises(UnknownName, match="with training data, got one of user 99 for item"):
        fit.recalibrated(new)
    with pytest.raises(BayesfacError, match="Unknown what .topp.; did you mean .top."):
        fit.recalibrated(HELD_OUT, what="topp")
    first = fit.recalibrated(HELD_OUT.take(np.arange(len(HELD_OUT)) < 50)).predict(TEST)
    with pytest.raises(
        ValueError, match=r"a level of at most 0.9804 from 50 held-out cells, got 0.99"
    ):
        first.interval(0.99)
    counts = bf.Counts(np.random.default_rng(0).poisson(0.5, (30, 20)))
    with pytest.raises(BayesfacError, match="Expected a fit of ratings"):
        bf.fit("hpf", counts, n_components=1, progress=False).recalibrated(counts)


def test_another_matrix_has_its_own_intervals():
    data, _ = bf.datasets.make_relations(40, 30, 2, n_words=0, n_tags=5, density=0.5, seed=0)
    fit = bf.fit("cmf", data, n_components=2, progress=False)
    ratings = pd.DataFrame({"user": data.users[data.user], "item": data.items[data.item]})
    new = replace(fit, recalibration=Recalibration("cells", np.full(100, 9.0)))
    tags = pd.DataFrame({"user": [0, 1], "tag": [0, 1]})
    same = [f.predict(tags, matrix="tags").interval() for f in (fit, new)]
    np.testing.assert_array_equal(*same)
    lower, upper = new.predict(ratings).interval()
    np.testing.assert_allclose(upper - lower, 18 * new.predict(ratings).sd)
