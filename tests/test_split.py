"""Splits are partitions, keep the labels of the whole, and follow from their seed."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac import datasets, split
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.views import Views
from bayesfac.labels.data.tasks import Tasks


@pytest.fixture(scope="module")
def ratings():
    return datasets.make_ratings(30, 20, rank=2, density=0.3, seed=1)


def pairs(part):
    return set(map(tuple, part.frame().to_numpy().tolist()))


def check_partition(whole, *parts):
    """Disjoint, together the whole, in one universe of labels, in the whole's row order."""
    assert sum(map(len, parts)) == len(whole)
    assert set().union(*map(pairs, parts)) == pairs(whole)
    position = {row: i for i, row in enumerate(map(tuple, whole.frame().to_numpy().tolist()))}
    for part in parts:
        assert part.users.equals(whole.users)
        assert part.items.equals(whole.items)
        assert part.levels == whole.levels
        rows = [position[row] for row in map(tuple, part.frame().to_numpy().tolist())]
        assert rows == sorted(rows)


def test_holdout_is_a_partition_of_the_asked_size(ratings):
    train, test = split.holdout(ratings, 0.1, seed=0)
    check_partition(ratings, train, test)
    assert len(test) == round(0.1 * len(ratings))


@pytest.mark.parametrize("seed", [-1, "x", 2.5, True, 2**32])
def test_what_is_no_seed_is_refused(ratings, seed):
    fit = bf.fit("pmf", ratings, n_components=2, progress=False)
    for call in (
        partial(split.holdout, ratings, 0.1), partial(split.k_fold, ratings, 3),
        partial(split.weak_generalisation, ratings), partial(split.strong_generalisation, ratings, 5),
        partial(datasets.make_ratings, 30, 20, 2), partial(bf.path, "mmmf", ratings),
        partial(bf.prior_predictive, "pmf", ratings), partial(bf.sbc, "pmf"), fit.recommend,
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"Expected a seed from 0 to 2\*\*32 - 1, got"):
            call(seed=seed)


def test_the_seed_alone_decides(ratings):
    def test_part(seed):
        return split.holdout(ratings, 0.2, seed=seed)[1].fingerprint()

    assert test_part(3) == test_part(3)
    assert test_part(3) != test_part(4)

    def folds(seed):
        return [test.fingerprint() for _, test in split.k_fold(ratings, 3, seed=seed)]

    assert folds(0) == folds(0) != folds(1)


def test_k_fold_tests_every_rating_once(ratings):
    folds = list(split.k_fold(ratings, 7, seed=0))
    assert len(folds) == 7
    check_partition(ratings, *[test for _, test in folds])
    for train, test in folds:
        check_partition(ratings, train, test)
        assert abs(len(test) - len(ratings) / 7) < 1


def test_pair_folds_by_rating_are_those_of_k_fold(ratings):
    X = ratings.frame()[["user", "item"]]
    folds = split.PairFolds(4, seed=2)
    assert folds.get_n_splits(X) == 4
    for (rows, tested), (_, part) in zip(
        folds.split(X), split.k_fold(ratings, 4, seed=2), strict=True
    ):
        assert (
            X.iloc[tested].to_numpy().tolist() == part.frame()[["user", "item"]].to_numpy().tolist()
        )
        assert sorted([*rows, *tested]) == list(range(len(ratings)))
        assert set(X["user"].iloc[tested]) <= set(X["user"].iloc[rows])


def test_pair_folds_by_user_test_every_user_once(ratings):
    X = ratings.frame()[["user", "item"]].to_numpy()
    tested = []
    for rows, held in split.PairFolds(3, by="user", seed=0).split(X):
        assert not set(X[rows, 0]) & set(X[held, 0])
        assert len(rows) + len(held) == len(X)
        tested += sorted(set(X[held, 0]))
    assert sorted(tested) == sorted(set(X[:, 0]))
    assert tested != sorted(tested)  # shuffled
    mixed = [[7, "x"], ["7", "y"], [7.0, "z"], ["8", "x"]]  # 7 and "7" are one user
    held = [held.tolist() for _, held in split.PairFolds(2, by="user").split(mixed)]
    assert sorted(held) == [[0, 1, 2], [3]]
    with pytest.raises(ValueError, match="between 2 and 2 .one user each., got 3"):
        next(split.PairFolds(3, by="user").split([["a", 0], ["b", 0], ["b", 1]]))
    with pytest.raises(ValueError, match="Expected by="):
        split.PairFolds(3, by="item")


@pytest.mark.parametrize("held_out", [1, 2])
def test_weak_generalisation_holds_out_so_many_of_every_user(ratings, held_out):
    parts = split.weak_generalisation(ratings, held_out, seed=5)
    check_partition(ratings, parts.train, parts.test)
    assert (np.bincount(parts.test.user, minlength=ratings.n_users) == held_out).all()


def test_weak_generalisation_chooses_at_random_among_a_users_ratings():
    ratings = Ratings(np.zeros(4, int), np.arange(4), np.ones(4))
    chosen = [split.weak_generalisation(ratings, seed=s).test.item[0] for s in range(400)]
    assert np.bincount(chosen, minlength=4).min() > 60  # 100 each; 60 is 4.6 sd away


def test_strong_generalisation_sets_users_apart(ratings):
    parts = split.strong_generalisation(ratings, 8, 2, seed=0)
    check_partition(ratings, parts.train, parts.given, parts.test)
    apart = np.unique(parts.test.user)
    assert len(apart) == 8
    assert not np.isin(parts.train.user, apart).any()
    assert np.isin(parts.given.user, apart).all()
    assert (np.bincount(parts.test.user)[apart] == 2).all()


def test_a_subset_can_be_split_again(ratings):
    """Users whose ratings are elsewhere are passed over."""
    train = split.strong_generalisation(ratings, 8, seed=0).train
    inner = split.weak_generalisation(train, seed=0)
    check_partition(train, *inner)
    assert len(inner.test) == ratings.n_users - 8


def test_views_are_thinned_count_by_count():
    counts = np.random.default_rng(0).poisson(6.0, (200, 30))
    views = Views({"w": pd.DataFrame(counts, columns=[f"w{i}" for i in range(30)])})
    train, test = split.holdout(views, 0.25, seed=0)
    np.testing.assert_array_equal((train["w"] + test["w"]).toarray(), counts)
    assert train["w"].min() >= 0
    assert test["w"].sum() / counts.sum() == pytest.approx(0.25, abs=0.01)
    assert train.features["w"].equals(views.features["w"])
    assert train.n_rows == test.n_rows == 200
    rest, held = train["w"].toarray().ravel(), test["w"].toarray().ravel()
    assert abs(np.corrcoef(rest, held)[0, 1]) < 0.05, "thinned Poisson counts are independent"


def test_real_valued_views_are_refused():
    with pytest.raises(ValueError, match=r"whole counts in view 'x' .* got 0.5 in row 1, column 0"):
        split.holdout(Views({"x": [[1.0, 2.0], [0.5, 1.0]]}), 0.1)


FEW = Ratings(["ann", "ann", "bob"], ["x", "y", "x"], [1.0, 2.0, 3.0])
ONE = Ratings([5, 5, 7], ["x", "y", "x"], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: split.holdout(FEW, 0), "between 0 and 1, got 0"),
        (lambda: split.holdout(FEW, 1.5), "between 0 and 1, got 1.5"),
        (lambda: split.holdout(FEW, 0.01), "ratings on both sides, got 0.01 of 3"),
        (lambda: split.k_fold(FEW, 1), "folds to be a whole number between 2 and 3"),
        (lambda: split.k_fold(FEW, 4), "folds to be a whole number between 2 and 3"),
        (lambda: split.weak_generalisation(FEW), r"more than 1 .*got 1 of user 'bob'"),
        (lambda: split.weak_generalisation(ONE), r"got 1 of user 7 \(1 such users\)"),
        (lambda: split.weak_generalisation(FEW, 0), "held_out to be a whole number from 1 on"),
        (lambda: split.strong_generalisation(FEW, 2), "between 1 and 1 users to set apart"),
        (lambda: split.strong_generalisation(FEW, 1, 5), "more than 5"),
    ],
)
def test_impossible_requests_are_refused_at_once(call, said):
    with pytest.raises(ValueError, match=said):
        call()


# -- tasks ----------------------------------------------------------------------------------------
def test_containers_without_ratings_are_refused():
    """Of tasks, numbers of labels were taken for numbers of rows."""
    tasks, views = datasets.make_tasks(20, 2, seed=0)[0], datasets.make_topics(10)[0]
    for call in (split.k_fold, split.weak_generalisation):
        with pytest.raises(
            TypeError, match=r"got Tasks: bf.evaluate has folds of rows, bf.split.hold"
        ):
            call(tasks)
    for data, name in ((tasks, "Tasks"), (views, "Views")):
        with pytest.raises(TypeError, match=f"Expected Ratings, got {name}"):
            split.strong_generalisation(data, 2)


@pytest.mark.parametrize("table", [pd.DataFrame({"user": [0, 0, 1]}), np.ones((3, 2))])
def test_tables_are_refused(table):
    """`holdout` and `k_fold` took a mask for positions: both parts repeated the first two rows."""
    calls = (lambda: split.holdout(table, 0.5), lambda: split.holdout(table, 0.5, by="time"))
    folds = (lambda: split.k_fold(table, 2), lambda: split.weak_generalisation(table))
    for call in (*calls, *folds, lambda: split.strong_generalisation(table, 1)):
        with pytest.raises(
            TypeError, match=r"Expected Ratings.*, got .*: bf.Ratings\(data\) reads"
        ):
            call()


def test_labels_of_a_share_of_every_task_are_hidden():
    data, _ = datasets.make_tasks(60, 3, labelled=0.7, seed=0)
    train, test = split.holdout(data, 0.5, seed=1)
    assert train.rows.sort_values().equals(data.rows.sort_values())  # their views stay
    hidden = set(data.rows[data.labelled]) - set(train.rows[train.labelled])
    assert hidden == set(test.rows) and test.labelled.all()
    for i in range(3):
        had = (data.labelled & (data.task == i)).sum()
        left = (train.labelled & (train.task == train.tasks.get_loc(data.tasks[i]))).sum()
        assert left == had - round(0.5 * had)
    both = test.frame().merge(data.frame(), on=["row", "label"], suffixes=("", " before"))
    assert len(both) == len(test) and (both["value"] == both["value before"]).all()
    assert train["labels"][~train.labelled].nnz == 0  # nothing of what is tested is left


def test_a_task_keeps_a_labelled_row():
    x = np.ones((4, 2))
    y = np.array([[1.0], [1.0], [0.0], [1.0]])
    data = Tasks({"x": x}, y, task=["a", "b", "b", "b"])
    train, test = split.holdout(data, 0.9, seed=0)
    assert not train.bare and len(test) == 2
    with pytest.raises(ValueError, match="leaves labelled rows on both sides, got 0.1 of 4"):
        split.holdout(data, 0.1, seed=0)


# -- by time --------------------------------------------------------------------------------------
def test_the_latest_ratings_are_held_out():
    rng = np.random.default_rng(0)
    frame = datasets.make_ratings(20, 15, 2, seed=0).frame()
    ratings = Ratings(frame, times=rng.permutation(len(frame)))
    train, test = split.holdout(ratings, 0.2, by="time")
    assert train.time.max() < test.time.min()
    assert len(test) == round(0.2 * len(ratings))
    assert train.shape == test.shape == ratings.shape
    same_time = Ratings(frame, times=np.zeros(len(frame)))
    parts = [split.holdout(same_time, 0.2, by="time", seed=seed)[1] for seed in (0, 0, 1)]
    assert parts[0].fingerprint() == parts[1].fingerprint() != parts[2].fingerprint()


def test_a_split_by_time_needs_times():
    ratings = datasets.make_ratings(20, 15, 2, seed=0)
    with pytest.raises(ValueError, match="Ratings with times"):
        split.holdout(ratings, 0.2, by="time")
    with pytest.raises(ValueError, match='by="random" or by="time"'):
        split.holdout(ratings, 0.2, by="user")
    with pytest.raises(ValueError, match="Views with times"):
        split.holdout(Views({"a": [[1, 2]]}), 0.2, by="time")


@pytest.mark.parametrize(
    "call",
    [
        lambda ratings: split.k_fold(ratings, 2.5),
        lambda ratings: split.weak_generalisation(ratings, held_out=1.5),
        lambda ratings: split.strong_generalisation(ratings, 2.5),
    ],
)
def test_numbers_of_folds_users_and_ratings_are_whole(call):
    with pytest.raises(ValueError, match=r"got [12]\.5"):
        call(datasets.make_ratings(20, 15, 2, seed=0))
