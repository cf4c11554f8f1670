"""Counts: what is read, what is summed, what is refused, and that zeros are zeros."""

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.method import REGISTRY, contain

EVENTS = pd.DataFrame({"user": ["bob", "ann", "ann", "bob"], "item": ["y", "x", "x", "x"]})


def dense(counts):
    table = np.zeros(counts.shape)
    table[counts.user, counts.item] = counts.value
    return table


def test_rows_of_events_are_counted():
    found = bf.Counts(EVENTS)
    assert list(found.users) == ["ann", "bob"] and list(found.items) == ["x", "y"]
    np.testing.assert_array_equal(dense(found), [[2, 0], [1, 1]])
    assert repr(found) == "Counts(2 users x 2 items, 3 of 4 pairs above zero, sum 4)"
    assert found.mean == 1 and found.spread == pytest.approx(np.std([2, 0, 1, 1]))


@pytest.mark.parametrize(
    "made",
    [
        lambda: bf.Counts(EVENTS.assign(plays=[1, 2, 0, 1]), columns=["user", "item", "plays"]),
        lambda: bf.Counts(EVENTS.assign(plays=[1, 2, 0, 1]), columns={"count": "plays"}),
        lambda: bf.Counts(EVENTS.assign(count=[1, 1, 1, 1], timestamp=[4, 3, 2, 1])),
        lambda: bf.Counts(EVENTS["user"], EVENTS["item"]),
        lambda: bf.Counts(EVENTS["user"], EVENTS["item"], [1, 1, 1, 1]),
        lambda: bf.Counts(EVENTS.assign(shop=1), columns=["user", "item"]),
        lambda: bf.Counts([[2, 0], [1, 1]]),
        lambda: bf.Counts(sp.csr_matrix([[2, 0], [1, 1]])),
        lambda: bf.Counts(bf.Counts(EVENTS)),
        lambda: bf.Counts(bf.Ratings([0, 1, 1], [0, 0, 1], [2.0, 1.0, 1.0])),
        lambda: bf.Counts(
            pd.DataFrame([[0, 2], [1, 1]], pd.Index(["ann", "bob"], name="user"), ["y", "x"])
        ),
    ],
)  # fmt: skip
def test_every_form_of_the_same_counts(made):
    np.testing.assert_array_equal(dense(made()), [[2, 0], [1, 1]])


def test_times_are_those_of_the_first_row():
    found = bf.Counts(EVENTS.assign(timestamp=[4, 3, 2, 1]))
    assert found.time.tolist() == [4, 3, 1]
    late = bf.split.holdout(found, 0.34, by="time")[1]
    assert list(late.users[late.user]) == ["bob"] and isinstance(late, bf.Counts)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: bf.Counts([[0, 0]]), "at least one count above zero, got none"),
        (lambda: bf.Counts([0], [0], [-1]), r"at least 0, got -1 in row 0 \(user 0, item 0\)"),
        (lambda: bf.Counts([[np.nan, 1]]), "got nan"),
        (lambda: bf.Counts(EVENTS.assign(shop=1)), "or no other column, got \\['shop'\\]"),
        (lambda: bf.Counts(EVENTS, columns=["user", "song"]), "Expected a column 'song'"),
        (lambda: bf.Counts([0, 1], [0]), "of one length"),
        (lambda: bf.Counts([0], [0], times=[1, 2]), "Expected 1 times"),
    ],
)
def test_what_is_refused(made, said):
    with pytest.raises(ValueError, match=said):
        made()


def test_zeros_and_missing_cells_are_not_mixed_up():
    counts, ratings = bf.Counts(EVENTS), bf.Ratings([0, 1], [0, 1], [1.0, 2.0])
    with pytest.raises(
        TypeError, match=r"Expected Ratings for pmf, got Counts: bf.Ratings\(data\)"
    ):
        bf.fit("pmf", counts)
    with pytest.raises(TypeError, match=r"Expected Counts for hpf, got Ratings: bf.Counts\(data\)"):
        bf.fit("hpf", ratings)
    with pytest.raises(ValueError, match="Expected at least 50 pairs above zero"):
        bf.auto(counts)
    assert isinstance(contain(REGISTRY["hpf"], EVENTS), bf.Counts)


def test_parts_stay_counts_and_carry_their_weights():
    data, hyper = REGISTRY["wrmf"].example(jax.random.key(0))
    part = data.take(data.user > 2)
    assert isinstance(part, bf.Counts) and part.shape == data.shape
    np.testing.assert_allclose(part.weight, 1 + hyper.alpha * part.value[part.host.origin])
    np.testing.assert_array_equal(part.y, 1)
    whole = data.with_table(data.dense(data.y))
    assert len(whole.cells) == 35 and float(whole.y.sum()) == len(data)
    np.testing.assert_allclose(float(whole.weight.sum()), float(data.weight.sum()) + 35 - len(data))


def test_counts_of_counts_keep_users_and_items_of_zeros():
    counts = bf.Counts(np.array([[1, 0, 2], [0, 0, 0], [3, 0, 1]]))
    assert bf.Counts(counts).shape == (3, 3)
    assert bf.Counts(counts).mean == counts.mean
