"""Recommendations and similar items: the same numbers as predictions, and an answer to every odd question."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, DataWarning, UnknownName
from bayesfac.fits import recommending
from bayesfac.inference.predictions import all_items
from bayesfac.inference.predictions.places import Sums

NAMES = [f"film {letter}" for letter in "abcdefghij"]


@pytest.fixture(scope="module")
def ratings():
    frame = bf.datasets.make_ratings(12, 10, 2, seed=1).frame()
    frame["user"] = [f"user {number}" for number in frame["user"]]
    frame["item"] = np.asarray(NAMES)[frame["item"]]
    return bf.Ratings(frame)


@pytest.fixture(scope="module")
def draws(ratings):
    engine = bf.Gibbs(warmup=5, draws=20, chains=2)
    return bf.fit("bpmf", ratings, engine, n_components=2, progress=False)


@pytest.fixture(scope="module")
def point(ratings):
    return bf.fit("bpmf", ratings, n_components=2, progress=False)


def expected(fit, user):
    """(draw, item) expected ratings of a user, the way `predict` computes them."""
    query = {"user": [user] * len(NAMES), "item": NAMES}
    return fit.predict(query).draws_of_mean().reshape(-1, len(NAMES))


def test_the_best_are_the_largest_means_that_are_not_excluded(draws, ratings):
    part = ratings.take(ratings.item < 4)
    table = draws.recommend("user 3", 4, exclude=part)
    rated = set(part.frame().query("user == 'user 3'")["item"])
    mean = pd.Series(expected(draws, "user 3").mean(0), NAMES).drop(rated)
    best = mean.sort_values(ascending=False).head(4)
    assert rated
    assert table["item"].tolist() == best.index.tolist()
    np.testing.assert_allclose(table["mean"], best, rtol=1e-5)
    assert table["rank"].tolist() == [1, 2, 3, 4]


def test_the_probability_is_the_share_of_draws_in_which_the_item_is_on_top(draws):
    table = draws.recommend("user 3", 10)
    values = pd.DataFrame(expected(draws, "user 3"), columns=NAMES)
    share = (values.rank(axis=1, ascending=False) <= 10).mean()
    np.testing.assert_allclose(table["in_top"], share[table["item"]])
    three = draws.recommend("user 3", 3)
    share = (values.rank(axis=1, ascending=False) <= 3).mean()
    np.testing.assert_allclose(three["in_top"], share[three["item"]])
    np.testing.assert_allclose(three["sd_mean"], values.std(ddof=0)[three["item"]], rtol=1e-4)
    assert three.attrs["in_top"] == recommending.FROM_DRAWS


def test_lower_ranks_by_the_end_of_the_interval(draws):
    table = draws.recommend("user 3", 10, by="lower", level=0.8)
    low = np.quantile(expected(draws, "user 3"), 0.1, axis=0)
    assert table["item"].tolist() == [NAMES[at] for at in np.argsort(-low)]
    np.testing.assert_allclose(table["score"], np.sort(low)[::-1], rtol=1e-5)


def test_in_top_ranks_by_the_probability_among_open_items(draws, ratings):
    table = draws.recommend("user 3", 3, by="in_top", exclude=ratings.take(ratings.item < 4))
    values = pd.DataFrame(expected(draws, "user 3"), columns=NAMES)
    rated = ratings.take(ratings.item < 4).frame().query("user == 'user 3'")["item"]
    share = (values.drop(columns=rated).rank(axis=1, ascending=False) <= 3).mean()
    np.testing.assert_allclose(table["score"], share.nlargest(3))
    np.testing.assert_allclose(table["score"], table["in_top"])


def test_draw_ranks_by_one_draw_of_each_user_and_repeats_by_seed(draws):
    one = draws.recommend(["user 3", "user 4"], 10, by="draw", seed=1)
    values = expected(draws, "user 3")
    found = one.query("user == 'user 3'").set_index("item")["score"][NAMES].to_numpy()
    assert np.abs(values - found).max(1).min() < 1e-4
    pd.testing.assert_frame_equal(one, draws.recommend(["user 3", "user 4"], 10, by="draw", seed=1))
    other = draws.recommend(["user 3", "user 4"], 10, by="draw", seed=2)
    assert not np.allclose(one["score"], other["score"])


def test_a_point_simulates_ratings_where_they_are_asked_for_and_says_so(point):
    plain = point.recommend("user 3", 3)
    assert plain["in_top"].isna().all() and "simulate=True" in plain.attrs["in_top"]
    table = point.recommend("user 3", 3, simulate=True)
    assert "simulated with the noise" in table.attrs["in_top"]
    pd.testing.assert_frame_equal(table.drop(columns="in_top"), plain.drop(columns="in_top"))
    everything = point.recommend("user 3", 10, seed=1, by="in_top")
    assert (everything["in_top"] == 1).all()
    assert not table["sd_mean"].any()
    assert 0 < table["in_top"].min() < 1
    cells = point.predict({"user": ["user 3"] * 10, "item": NAMES})
    noise = np.random.default_rng(0).normal(size=(20_000, 10))
    place = (-(cells.mean + cells.sd * noise)).argsort(1).argsort(1)
    share = pd.Series((place < 3).mean(0), NAMES)[table["item"]]
    np.testing.assert_allclose(table["in_top"], share, atol=0.06)  # four sd of 1,000 simulations


@pytest.mark.parametrize("by", ["mean", "lower", "draw", "in_top"])
@pytest.mark.parametrize("kind", ["point", "draws"])
def test_lists_are_those_of_before(kind, by):
    """Lists of given parameters, made by the code that had all samples of all users in one array."""
    made = {
        ("point", "mean"): "kbihajflghajcflhajhjdgib", ("point", "lower"): "kbihajflghajcflhajhjdgib",
        ("point", "draw"): "bkgahjlgflkhcfahkacjfbif", ("point", "in_top"): "kbihajflghajcflhajhjdgib",
        ("draws", "mean"): "kbihjaflghjacflhjahjdgib", ("draws", "lower"): "bkhjahlfghjkflchjajhdbki",
        ("draws", "draw"): "kbijlkkilhajcflajlhkdibl", ("draws", "in_top"): "kbijhaflgjhacfljahhjdgik",
    }  # fmt: skip
    ratings, fits = given()
    some = ratings.take(ratings.item < 5)
    table = fits[kind].recommend(n=3, by=by, exclude=some, seed=1)
    assert "".join("abcdefghijkl"[item] for item in table["item"]) == made[kind, by]


def given():
    """Ratings of 8 users and 12 items, and a point and draws whose factors are given numbers."""
    rng = np.random.default_rng(11)
    ratings = bf.datasets.make_gaussian(8, 12, 2, density=0.7, seed=3)[0]
    point = bf.fit("bpmf", ratings, n_components=2, progress=False)
    drawn = bf.fit("bpmf", ratings, bf.Gibbs(2, 15, 2), n_components=2, progress=False)
    factors, draws = {"U": rng.normal(size=(8, 2)), "V": rng.normal(size=(12, 2))}, {}
    for site, value in factors.items():
        noise = rng.normal(size=drawn.draws[site].shape)
        draws[site] = (value + 0.5 * noise).astype(np.float32)
        factors[site] = value.astype(np.float32)
    params = point.params._replace(**factors, alpha=np.float32(4.0))
    return ratings, {
        "point": replace(point, result=replace(point.result, params=params)),
        "draws": replace(drawn, result=replace(drawn.result, draws={**drawn.draws, **draws})),
    }


@pytest.mark.parametrize("ties", [False, True])
def test_a_pass_counts_what_one_array_of_all_draws_shows(ties):
    """Users, items and draws that are no multiples of any block, excluded items, and items of equal value."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(23, 5, 77)).astype(np.float32)
    values = np.rint(values) if ties else values
    closed = rng.random((5, 77)) < 0.3
    closed[1], closed[2] = True, np.arange(77) < 75  # nothing is left, and less than is asked for
    sums = Sums.none(closed.shape, np.float32)
    for first in range(0, 23, 4):
        sums.add(values[first : first + 4], closed, 4, slice(None), first)
    own, item = np.nonzero(~closed)
    share = recommending._membership(values, 4, closed, own, item)
    np.testing.assert_allclose(sums.share[own, item] / 23, share, rtol=1e-5)
    assert not sums.share[closed].any()
    np.testing.assert_allclose(sums.mean, values.mean(0), atol=1e-6)
    np.testing.assert_allclose(sums.square / 23, values.var(0), rtol=1e-4)


def test_ties_share_the_places_that_are_left():
    values = np.array([[[5.0, 3.0, 3.0, 1.0]]])
    shut, own = np.zeros((1, 4), bool), np.zeros(4, int)
    share = recommending._membership(values, 2, shut, own, np.arange(4))
    assert share.tolist() == [1, 0.5, 0.5, 0]
    shut[0, 0] = True
    share = recommending._membership(values, 2, shut, own, np.arange(4))
    assert share.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("by", ["mean", "lower", "draw", "in_top"])
def test_memory_and_other_users_do_not_change_the_answer(draws, ratings, by, monkeypatch):
    whole = draws.recommend(None, 3, exclude=ratings, by=by)
    monkeypatch.setattr("bayesfac.inference.predictions.places.TABLE", 4 * 10 * 2)  # two users
    pieces = draws.recommend(None, 3, exclude=ratings, by=by, memory=16 * 40 * 10 * 5)
    pd.testing.assert_frame_equal(whole, pieces, rtol=1e-5)
    if by != "draw":  # the draw of a user is chosen by its place among the users
        some = draws.recommend(ratings.users[3:], 3, exclude=ratings, by=by)
        rest = whole[whole["user"].isin(ratings.users[3:])].reset_index(drop=True)
        pd.testing.assert_frame_equal(some, rest, rtol=1e-5)


def test_probabilities_of_a_user_sum_to_the_number_of_places(draws):
    table = draws.recommend(None, 10, by="in_top").groupby("user")["in_top"].sum()
    np.testing.assert_allclose(table, 10)
    told = []
    rule = all_items.Asked(draws, all_items.Rule("mean", 0.9, 3), np.arange(12), 0, 2**20)
    every = rule.every(np.arange(12), np.zeros((12, 10), bool), lambda: None, told.append)
    np.testing.assert_allclose(every.in_top.sum(1), 3)
    assert sum(told) == 12 * 40  # what the progress bar shows


# -- odd questions --------------------------------------------------------------------------------
def test_an_unknown_user_gets_items_by_the_prior_and_the_near_name_is_told(draws):
    with pytest.warns(DataWarning, match=r"such as 'user33'; did you mean 'user 3'"):
        table = draws.recommend(["user33", "user 1"], 2)
    assert table.groupby("user")["flagged"].all().to_dict() == {"user 1": False, "user33": True}
    np.testing.assert_allclose(
        table.query("user == 'user33'")["mean"],
        np.sort(expected(draws, "user33").mean(0))[:-3:-1],
        rtol=1e-5,
    )


def test_a_user_with_nothing_left_has_no_row_and_is_named(draws):
    everything = pd.DataFrame({"user": "user 1", "item": NAMES})
    with pytest.warns(DataWarning, match=r"no item is left for 1 of 2 users, such as 'user 1'"):
        table = draws.recommend(["user 1", "user 2"], 2, exclude=everything)
    assert table["user"].tolist() == ["user 2"] * 2
    few = draws.recommend("user 1", 5, exclude=everything.iloc[:8])
    assert len(few) == 2
    assert (few["in_top"] == 1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fit: fit.recommend(n=11), "n from 1 to 10, as there are 10 items, got 11"),
        (lambda fit: fit.recommend(n=0), "n from 1 to 10"),
        (lambda fit: fit.recommend(by="median"), "by= one of"),
        (lambda fit: fit.recommend(level=1.0), "level between 0 and 1"),
        (lambda fit: fit.recommend([]), "at least one user"),
        (lambda fit: fit.similar("film a", 10), "n from 1 to 9, as there are 9 other items"),
        (lambda fit: fit.similar("film aa", 2), "got 'film aa'; did you mean 'film a'"),
        (lambda fit: fit.similar("zzz", 2), "got 'zzz', where labels are like"),
    ],
)
def test_mistakes_are_named(draws, call, message):
    with pytest.raises((ValueError, UnknownName), match=message):
        call(draws)


def test_only_fits_of_ratings_recommend():
    x, y = [[2, 0], [0, 2], [2, 1], [0, 1]], [[1, 0], [0, 1], [1, 0], [0, 1]]
    fit = bf.fit("heres", bf.Tasks({"x": x}, y), n_components=2, progress=False)
    with pytest.raises(BayesfacError, match="fit of Ratings for recommend, got heres"):
        fit.recommend()


# -- similar items --------------------------------------------------------------------------------
def test_similar_is_the_mean_correlation_of_predicted_ratings(draws, ratings):
    table = draws.similar(["film c", "film a"], 9)
    users = ratings.users
    grid = pd.MultiIndex.from_product([users, NAMES], names=["user", "item"]).to_frame(index=False)
    profile = draws.predict(grid).draws_of_mean().reshape(-1, len(users), 10)
    mean = np.mean([np.corrcoef(one.T) for one in profile], 0)
    for item in ("film c", "film a"):
        own = table[table["item"] == item]
        others = pd.Series(mean[NAMES.index(item)], NAMES).drop(item).sort_values(ascending=False)
        assert own["similar"].tolist() == others.index.tolist()
        np.testing.assert_allclose(own["correlation"], others, atol=1e-4)
        np.testing.assert_allclose(own["in_top"], 1)
    assert draws.similar("film c", 2, draws=7)["sd"].min() > 0


def test_similar_does_not_depend_on_a_rotation_of_the_factors(point):
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    params = point.params
    turned = params._replace(U=params.U @ turn, V=params.V @ turn)
    other = replace(point, result=replace(point.result, params=turned))
    one, two = point.similar("film c", 5), other.similar("film c", 5)
    assert one["similar"].tolist() == two["similar"].tolist()
    np.testing.assert_allclose(one["correlation"], two["correlation"], atol=1e-4)


# -- all cells ------------------------------------------------------------------------------------
def test_everywhere_has_labels_and_goes_to_parquet_in_blocks(draws, tmp_path, monkeypatch):
    whole = draws.everywhere()
    monkeypatch.setattr(
        "bayesfac.inference.predictions.everywhere.TABLE", 50
    )  # five users at a time
    assert [len(block) for block in whole.blocks()] == [50, 50, 20]
    path = whole.to_parquet(tmp_path / "cells.parquet")
    table = pd.read_parquet(path)
    assert table.columns.tolist() == ["user", "item", "mean", "sd", "sd_mean", "flagged"]
    found = table.pivot(index="user", columns="item", values="mean")
    users, items = draws.data.coords["user"], draws.data.coords["item"]
    np.testing.assert_allclose(found.loc[users, items].to_numpy(), whole.mean, rtol=1e-6)
    cell = draws.predict({"user": ["user 3"], "item": ["film d"]})
    one = table.query("user == 'user 3' and item == 'film d'")
    np.testing.assert_allclose(one[["mean", "sd"]], [[cell.mean[0], cell.sd[0]]], rtol=1e-4)


def test_everywhere_of_views_names_view_and_feature():
    views = bf.Views({"a": [[1, 2], [3, 0]], "b": [[1], [4]]})
    fit = bf.fit("mvplsa", views, n_components=2, n_topics=2, progress=False)
    table = fit.everywhere().frame()
    assert table[["row", "view", "feature"]].to_numpy().tolist()[:3] == [
        [0, "a", 0],
        [0, "a", 1],
        [0, "b", 0],
    ]
    np.testing.assert_allclose(table["mean"], fit.everywhere().mean.ravel())


def test_pairs_to_exclude_of_which_none_is_known_are_named(draws, ratings):
    frame = ratings.frame().rename(columns={"user": "item", "item": "user"})
    with pytest.warns(
        DataWarning, match=r"no pair of exclude is known, such as \('film \w', 'user \d+'\)"
    ):
        wrong = draws.recommend("user 3", 3, exclude=frame)
    pd.testing.assert_frame_equal(wrong, draws.recommend("user 3", 3))
    # pairs of other users are known, and an empty table excludes nothing
    draws.recommend("user 3", 3, exclude=ratings.take(ratings.user == 0))
    draws.recommend("user 3", 3, exclude=frame.iloc[:0])


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.DataWarning")
def test_excluded_items_without_training_data_are_not_recommended():
    """As after a split: the item is in the data, and no rating of it in training."""
    whole = bf.datasets.make_ratings(20, 6, 2, density=0.7, seed=0)
    fit = bf.fit("pmf", whole.take(whole.item != 0), n_components=1, noise=1.0, progress=False)
    shown = fit.recommend(n=6, exclude=whole)[["user", "item"]]
    assert not len(shown.merge(whole.frame(), on=["user", "item"]))


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.DataWarning")
def test_a_point_recommends_unrated_items_by_their_predictions():
    ratings = bf.datasets.make_ratings(40, 20, 2, seed=0)
    fit = bf.fit("ordinal_mf", ratings.take(ratings.item != 5), n_components=2, progress=False)
    shown = fit.recommend([*ratings.users[:5], 999], n=20)
    assert (shown["item"] == 5).sum() == 6
    np.testing.assert_allclose(shown["mean"], fit.predict(shown[["user", "item"]]).mean, rtol=1e-6)


@pytest.mark.parametrize("user", [3, "nobody"])
def test_a_point_knows_of_a_user_without_ratings_what_predict_says(user):
    ratings = bf.datasets.make_ratings(30, 12, 2, seed=2)
    given = ratings.take((ratings.user != 3) & (ratings.item != 5))
    fit = bf.fit("bpmf", given, n_components=2, progress=False)
    with pytest.warns(DataWarning, match=f"1 user.* without training data .* such as {user!r}"):
        table = fit.recommend(user, 12, by="lower", level=0.5)
    assert table["flagged"].all()
    pairs = pd.DataFrame({"user": 3 if user == 3 else 99, "item": table["item"]})
    asked = fit.predict(pairs)
    np.testing.assert_allclose(table["mean"], asked.mean, rtol=1e-5)
    # of 1000 simulated ratings, a quarter lies below within .043 standard deviations (1 se)
    assert np.abs(table["score"] - asked.interval(0.5)[0]).max() < 0.2 * asked.sd.max()


@pytest.mark.parametrize("kind", [">i4", ">i8", ">f8"])
def test_ids_of_another_byte_order_are_ids(kind):
    """As NumPy reads them from some files; pandas finds none of them."""
    fit = bf.fit("pmf", bf.datasets.make_ratings(12, 10, 2, seed=1), n_components=2, progress=False)
    ids = np.array([3, 5], kind)
    pairs = pd.DataFrame({"user": ids[[0, 0]], "item": ids})
    names = ["user", "rank", "item"]
    told, wanted = (fit.recommend(who, 9, exclude=pairs)[names] for who in (ids, [3, 5]))
    assert told.to_numpy().tolist() == wanted.to_numpy().tolist()
    assert not set(told["item"][told["user"] == 3]) & {3, 5}
    assert fit.similar(ids, 2)["similar"].tolist() == fit.similar([3, 5], 2)["similar"].tolist()


def test_rows_of_another_byte_order_are_rows():
    x = np.random.default_rng(0).poisson(3, (6, 4))
    views = bf.Views(x, rows=np.arange(6, dtype=">i4"))
    fit = bf.fit("plsa", views, n_components=2, progress=False)
    assert not fit.predict(views).flagged.any()
    assert bf.together(fit, np.array([1, 2], ">i4")).shape == (2, 2)
    framed = bf.Views(pd.DataFrame(x, index=np.arange(6, dtype=">i4"))).frame()
    assert framed.iloc[[0, 5]]["row"].tolist() == framed["row"].to_numpy()[[0, 5]].tolist()


@pytest.mark.parametrize(
    ("name", "levels"), [("bpmf", None), pytest.param("ordinal_mf", 5, marks=pytest.mark.slow)]
)
def test_an_unknown_user_has_the_spread_of_the_prior(name, levels):
    """As a known user without ratings has, of whom there are draws. With the mean over the prior the first
    item was among the best three in .7 to .9 of the draws."""
    frame = bf.datasets.make_ratings(40, 15, 2, density=0.4, seed=0).frame()
    whole = bf.Ratings(frame, levels=levels)
    data = whole.take(np.flatnonzero(whole.user != 39))
    fit = bf.fit(name, data, bf.Gibbs(100, 300, 2), n_components=2, progress=False)
    with pytest.warns(DataWarning, match="without training data"):
        known, unknown = (fit.recommend([who], 15).set_index("item") for who in (39, "nobody"))
        few = [fit.recommend([who], 3).set_index("item")["in_top"] for who in (39, "nobody")]
    np.testing.assert_allclose(unknown["sd_mean"], known["sd_mean"][unknown.index], rtol=0.15)
    np.testing.assert_allclose(unknown["mean"], known["mean"][unknown.index], atol=0.2)
    common = few[0].index.intersection(few[1].index)
    np.testing.assert_allclose(few[1][common], few[0][common], atol=0.1)
