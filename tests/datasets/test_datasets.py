"""Data sets: found, fetched, checked, refused; none of it from the network but one slow test."""

import numpy as np
import pytest

from bayesfac import datasets
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import UnknownName
from bayesfac.datasets import fetch, readers, registry

RATINGS_TEXT = b"1\t10\t5\t100\n1\t20\t3\t101\n2\t10\t4\t102\n"
COUNTS = (0, 0, 1, 1, 1)


# -- what needs nothing ---------------------------------------------------------------------------
def test_the_table_lists_every_data_set():
    table = datasets.list()
    assert list(table.index) == list(registry.RECORDS)
    assert list(table.columns) == ["kind", "size", "at hand", "licence", "source"]
    assert table.loc[["ratings", "digits"], "at hand"].all()
    assert table["licence"].str.len().min() > 3


def test_the_embedded_ratings_are_the_thesis_generator():
    ratings = datasets.load("ratings")
    assert ratings.shape == (300, 200)
    assert len(ratings) == 9000
    assert set(np.unique(ratings.value)) == {1, 2, 3, 4, 5}
    assert ratings.fingerprint() == datasets.load("ratings").fingerprint()


def test_generated_ratings_are_low_rank_up_to_rounding():
    """A fixed point: the whole matrix is the rounding of its own rank-d fit (section 3.6.1)."""
    whole = datasets.make_ratings(60, 40, rank=4, density=1.0, seed=3)
    Y = np.zeros(whole.shape)
    Y[whole.user, whole.item] = whole.value
    U, s, Vt = np.linalg.svd(Y, full_matrices=False)
    assert np.mean(np.rint((U[:, :4] * s[:4]) @ Vt[:4]) == Y) > 0.95
    noise = np.random.default_rng(0).permutation(Y.ravel()).reshape(Y.shape)
    U, s, Vt = np.linalg.svd(noise, full_matrices=False)
    assert np.mean(np.rint((U[:, :4] * s[:4]) @ Vt[:4]) == noise) < 0.8


def test_noise_is_added_before_the_last_rounding():
    clean = datasets.make_ratings(60, 40, rank=2, density=1.0, seed=0)
    noisy = datasets.make_ratings(60, 40, rank=2, density=1.0, seed=0, noise=0.5)
    assert set(np.unique(noisy.value)) <= {1, 2, 3, 4, 5}
    inner = (clean.value > 1) & (clean.value < 5)
    assert np.std((noisy.value - clean.value)[inner]) == pytest.approx(0.55, abs=0.12)


def test_users_of_uneven_ratings_differ_in_how_much_they_rated():
    ratings = datasets.load("uneven-ratings")
    number = np.bincount(ratings.user)
    assert ratings.shape == (300, 150)
    assert number.min() == 2 and number.max() == 75
    assert np.median(number) == pytest.approx(10, abs=2)
    assert set(np.unique(ratings.value)) == set(range(1, 11))
    exact = datasets.make_uneven_ratings(500, 100, 2, levels=1000, median=40, spread=0)
    assert set(np.bincount(exact.user)) == {40}
    assert exact.spread == pytest.approx(np.hypot(1.4, 1.0), rel=0.1)  # signal and noise


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (12, 12)])
def test_every_user_and_item_has_a_rating_however_sparse(shape):
    least = max(shape) / (shape[0] * shape[1])
    ratings = datasets.make_ratings(*shape, rank=2, density=least, seed=0)
    assert ratings.shape == shape
    assert len(ratings) == max(shape)


def test_gaussian_ratings_come_with_their_truth():
    ratings, truth = datasets.make_gaussian(200, 150, rank=3, noise=0.2, density=0.5, seed=0)
    mean = np.sum(truth.U[ratings.user] * truth.V[ratings.item], axis=1)
    assert np.std(ratings.value - mean) == pytest.approx(0.2, rel=0.02)
    assert np.std(mean) == pytest.approx(1.0, rel=0.1)


def test_a_tensor_comes_with_its_truth_and_every_label():
    tensor, truth = datasets.make_tensor((40, 30, 20), rank=3, noise=0.2, density=0.5, seed=0)
    factors = zip(truth.U.values(), tensor.code.T, strict=True)
    mean = np.prod([table[at] for table, at in factors], 0).sum(1)
    assert np.std(tensor.value - mean) == pytest.approx(0.2, rel=0.02)
    assert np.std(mean) == pytest.approx(1.0, rel=0.2)  # the sizes of 3 x 3 columns
    few, _ = datasets.make_tensor((7, 5, 3), rank=1, density=7 / 105, seed=0)
    assert few.shape == (7, 5, 3)
    assert len(few) == 7


def test_topic_counts_follow_their_truth():
    views, truth = datasets.make_topics(
        8, {"w": 5, "v": 3}, n_clusters=2, n_topics=3, length=20_000, concentration=1.0, seed=0
    )
    for name in ("w", "v"):
        share = views[name].toarray() / 20_000
        np.testing.assert_allclose(share.sum(1), 1)
        np.testing.assert_allclose(share, truth.A @ truth.B[name] @ truth.C[name], atol=0.015)
    assert (truth.cluster == truth.A.argmax(1)).all()


def test_digits_are_four_views_of_counts():
    views, y = datasets.load("digits"), datasets.target("digits")
    assert views.n_features == {"fourier": 13, "pixels": 64, "profiles": 16, "zones": 16}
    assert views.n_rows == len(y) == 1797
    total = views["pixels"].sum(1)
    np.testing.assert_array_equal(views["zones"].sum(1), total)
    np.testing.assert_array_equal(views["profiles"].sum(1), 2 * total)
    np.testing.assert_array_equal(views["fourier"][:, 0].toarray(), total)
    for name in views.names:
        assert (views[name].data >= 0).all()
        assert (views[name].data % 1 == 0).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: datasets.make_ratings(5, 4, rank=5), "rank of at most 4, got 5"),
        (lambda: datasets.make_ratings(5, 4, rank=2, levels=1), "at least two levels"),
        (lambda: datasets.make_ratings(5, 4, rank=2, density=0.1), "density between 0.25"),
        (lambda: datasets.make_ratings(5, 4, rank=2, density=2), "and 1, got 2"),
        (lambda: datasets.make_ratings(5, 4, rank=2, noise=-1), "noise of at least 0"),
        (lambda: datasets.make_uneven_ratings(median=0), "median and signal above 0"),
        (lambda: datasets.make_uneven_ratings(noise=-1), "noise of at least 0"),
        (lambda: datasets.make_gaussian(0, 4, rank=2), "at least 1 as n_users, got 0"),
        (lambda: datasets.make_gaussian(5, 4, rank=2, noise=-1), "noise of at least 0"),
        (lambda: datasets.make_tensor((5, 4), rank=2), "three or more modes, got"),
        (lambda: datasets.make_tensor((5, 4, 3), rank=2, density=0.05), "density from 0.083"),
        (lambda: datasets.make_topics(length=0), "at least 1 as length"),
        (lambda: datasets.make_topics(concentration=0), "concentration above 0"),
        (lambda: datasets.target("ratings"), "Expected a data set of views, got 'ratings'"),
    ],
)
def test_impossible_requests_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'movielens-100k'"):
        datasets.load("movielens-10k")


# -- the published formats ------------------------------------------------------------------------
def test_movielens_1m_in_both_of_its_forms():
    canonical = readers.ratings({"m": b"1::1193::5::978300760\n2::1::3::978300761\n"})
    assert canonical["item"].tolist() == [1193, 1]
    train, test = b"0\t0\t5\t100\n1\t0\t3\t100\n", b"0\t1\t4\t200\n"
    renumbered = readers.renumbered_ratings({"train": train, "test": test})
    assert renumbered["user"].tolist() == [1, 2, 1]
    assert renumbered["leave_one_out_test"].tolist() == [False, False, True]


def test_labelled_views_drop_the_header_and_keep_the_last_column_apart():
    text = b"0,1,0\n0.5,2,0\n1.5,3,1\n"
    arrays = readers.labelled_views({"a/mfeat-zer.csv": text, "a/mfeat-kar.csv": text})
    assert arrays["view_zer"].tolist() == [[0.5, 2], [1.5, 3]]
    assert arrays["y"].tolist() == [0, 1]
    with pytest.raises(ValueError, match="same classes in every member"):
        readers.labelled_views({"mfeat-a.csv": text, "mfeat-b.csv": b"0,1,0\n1,1,1\n1,1,0\n"})


@pytest.mark.parametrize(
    "record",
    [r for r in registry.RECORDS.values() if r.sources],
    ids=lambda record: record.name,
)
def test_every_source_is_pinned(record):
    for one in record.sources:
        assert len(one.sha256) == 64
        assert one.size > 0
        assert bool(one.address) != bool(one.package)
        assert one.address.startswith("https://") or "==" in one.package


# -- the real thing -------------------------------------------------------------------------------
@pytest.mark.realdata
@pytest.mark.parametrize("name", ["movielens-100k", "movielens-1m", "handwritten"])
def test_real_data_meet_the_published_facts(name):
    """The record's check runs in `load`; here: labels and means as published."""
    if not fetch.at_hand(registry.RECORDS[name]):
        pytest.skip(f"{name} is not on this machine: see {fetch.VARIABLE}")
    data = datasets.load(name, download=False)
    if isinstance(data, Ratings):
        published = {100_000: 3.52986, 1_000_209: 3.58156}[len(data)]
        assert data.mean == pytest.approx(published, abs=1e-5)
        assert data.users[0] == 1
    else:
        assert np.bincount(datasets.target(name, download=False)).tolist() == [200] * 10
        assert data.n_features["pix"] == 240


@pytest.mark.slow
def test_the_second_source_of_handwritten_is_still_there(tmp_path, monkeypatch):
    monkeypatch.setenv(fetch.VARIABLE, str(tmp_path))
    monkeypatch.setattr(fetch, "_beside_checkout", list)
    monkeypatch.setattr(fetch, "_cache", lambda: tmp_path)
    try:
        views = datasets.load("handwritten", progress=False)
    except fetch.Unavailable as error:
        pytest.skip(f"offline: {error}")
    assert views.n_rows == 2000
    assert (tmp_path / "handwritten.npz").is_file()


@pytest.mark.parametrize("n_labels", [1, 2])
def test_few_labels_of_made_up_tasks_differ_from_row_to_row(n_labels):
    """With one or two labels every label was true in every row."""
    _, truth = datasets.make_tasks(200, 2, n_labels=n_labels, seed=0)
    share = truth.mean(0)
    assert ((0.1 < share) & (share < 0.95)).all()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_every_task_has_a_labelled_row(share):
    """A share of a hundredth of 60 rows left two of three tasks without, or all of them."""
    for seed in range(5):
        data, truth = datasets.make_tasks(60, 3, n_labels=3, labelled=share, seed=seed)
        assert not data.bare and data.labelled.sum() <= max(3, round(60 * share) + 2)
        np.testing.assert_array_equal(data["labels"].toarray()[data.labelled], truth[data.labelled])
