"""Ratings of which each process holds its share: read in blocks, as the small reader reads them at once."""

import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac import choosing
from bayesfac.core.data.divided import piles
from bayesfac.core.data.divided.shares import dealer
from bayesfac.core.errors import BayesfacError
from bayesfac.datasets import large, read, read_large

pytest.importorskip("pyarrow", reason="parquet needs the extra bayesfac[datasets]")

TABLE = pd.DataFrame(
    {
        "user": list("abcabcadb"),
        "item": [1, 1, 1, 2, 2, 2, 3, 3, 3],
        "rating": np.arange(9.0) % 5 + 1,
    }
)
TWICE = pd.concat(
    [TABLE, TABLE.iloc[[5, 2]].assign(rating=[2.0, 4.0])], ignore_index=True
)  # rows 9 and 10 repeat rows 5 and 2


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Blocks of three rows, and cells sorted four at a time."""
    monkeypatch.setattr(large, "ROWS", 3)
    monkeypatch.setattr(piles, "SLAB", 4)


@pytest.fixture
def parts(monkeypatch):
    """Read for so many devices, all of which this process has."""

    def pretend(count):
        ours = [SimpleNamespace(process_index=0)] * count
        mesh = SimpleNamespace(size=count, devices=SimpleNamespace(flat=ours))
        monkeypatch.setattr(piles, "devices", lambda: mesh)

    return pretend


def changed(column, rows, value):
    kind = float if column == "item" else object if column == "user" else TABLE[column].dtype
    table = TABLE.astype({column: kind})
    table.loc[rows, column] = value
    return table


def outcome(reader, path, settings):
    """The ratings or the message, and warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = reader(path, **settings)
        except ValueError as error:
            return str(error), [str(one.message) for one in told]
    counts = [found.per_row(side).tolist() for side in ("user", "item")]
    axes = [(str(index.dtype), index.tolist()) for index in (found.users, found.items)]
    mean = [round(number, 12) for number in (found.mean, found.spread)]
    ends = float(found.value.min()), float(found.value.max())
    return (counts, axes, mean, ends, found.levels), [str(one.message) for one in told]


@pytest.mark.parametrize("bad", ["error", "skip"])
@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (TABLE, {}),
        (TABLE, {"levels": 5}),
        (TABLE, {"levels": 4}),
        (changed("rating", [4, 7], np.nan), {}),
        (changed("rating", [5], np.inf), {}),
        (changed("rating", [5], -np.inf), {}),
        (changed("user", [4, 5, 6], None), {}),
        (changed("user", [8], "  "), {}),
        (changed("item", [6], np.nan), {}),
        (changed("rating", range(9), np.nan), {}),
        (changed("rating", [1], np.nan).assign(user=changed("user", [8], None)["user"]), {}),
        (TABLE.assign(rating=["4", "x", "1,5"] * 3), {}),
        (TABLE.assign(user=[2**63 + 1, 5, 7] * 3, item=range(9)).astype({"user": np.uint64}), {}),
        (TABLE.assign(user=pd.array([1, 2, None] * 3, "Int64")), {}),
        (TABLE.assign(user=["010", "7", "10"] * 3), {}),
        (TABLE.assign(rating=TABLE["rating"].astype(int) * 2**60), {}),
        (TABLE.assign(rating=pd.date_range("2020", periods=9)), {}),
        (TABLE.assign(rating=pd.to_timedelta(range(9), "s")), {}),
        (TABLE.drop(columns="item"), {}),
        (TABLE.rename(columns={"user": "who"}).assign(day=1), {"columns": ["who", "item", "rating"]}),
        (TABLE.iloc[:0], {}),
        (TWICE, {}),
        (TWICE, {"duplicates": "mean"}),
        (TWICE, {"duplicates": "mean", "levels": 5}),
        (pd.concat([changed("rating", [1], np.nan), TABLE.iloc[[5]]], ignore_index=True), {}),
        (TWICE.assign(user="row 7" + TWICE["user"] * 3, item="row 99"), {}),  # labels, no places
    ],
)  # fmt: skip
def test_ids_counts_and_messages_are_those_of_the_small_reader(tmp_path, table, settings, bad):
    table.to_parquet(tmp_path / "r.parquet", index=False)
    settings = {**settings, "bad": bad}
    one, other = (outcome(each, tmp_path / "r.parquet", settings) for each in (read, read_large))
    assert one == other


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("twice", [False, True])
def test_the_shares_are_those_of_ratings_read_at_once(tmp_path, parts, count, twice):
    """Every array of every share, on 8 users and 5 items with uneven numbers of ratings."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.uniform(size=(8, 5)) < np.linspace(0.2, 0.9, 5))
    table = pd.DataFrame({"user": user, "item": item, "rating": rng.normal(size=len(user))})
    if twice:
        table = pd.concat([table, table.iloc[3:7].assign(rating=0.3)])
    table = table.sample(frac=1, random_state=1)
    table.to_parquet(tmp_path / "r.parquet", index=False)
    parts(count)
    how = {"duplicates": "mean" if twice else "error"}
    small, large = read(tmp_path / "r.parquet", **how), read_large(tmp_path / "r.parquet", **how)
    own = [np.sort(dealer(large, count)(part).item.cells.own) for part in range(count)]
    for part in range(count):
        for one, other in zip(dealer(small, count)(part), dealer(large, count)(part), strict=True):
            np.testing.assert_array_equal(other.cells.ptr, one.cells.ptr)
            mine = cells_of(one)
            if not twice:  # rows are dealt before cells are merged, and then by other costs
                np.testing.assert_array_equal(other.cells.own, one.cells.own)
                np.testing.assert_array_equal(other.cells.place, one.cells.place)
                assert cells_of(other) == mine
    assert len(np.unique(np.concatenate(own))) == 5
    for side in (0, 1):
        found = [
            each for part in range(count) for each in cells_of(dealer(large, count)(part)[side])
        ]
        whole = zip(
            small.user.tolist(), small.item.tolist(), np.float32(small.value).tolist(), strict=True
        )
        assert sorted(found) == [(u, i, pytest.approx(v, rel=1e-6)) for u, i, v in sorted(whole)]


def cells_of(view):
    """The cells of a share, in its order; its padding is beyond the last."""
    n = view.cells.mine.ptr[-1]
    each = view.cells.row, view.cells.col, view.y
    return list(zip(*(np.asarray(x)[:n].tolist() for x in each), strict=True))


def test_a_number_beyond_single_precision_is_refused(tmp_path):
    changed("rating", [5], 1e39).to_parquet(tmp_path / "r.parquet", index=False)
    with jax.enable_x64(False):
        one, other = (outcome(each, tmp_path / "r.parquet", {}) for each in (read, read_large))
    assert one == other
    assert "Expected finite ratings, got 1e+39 in row 5" in other[0]


def test_what_needs_all_ratings_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "LEAST", 1)  # ratings
    TABLE.to_parquet(tmp_path / "r.parquet", index=False)
    large, engine = read_large(tmp_path / "r.parquet"), bf.Gibbs(1, 1, 1, shares=True)
    for refused in (
        lambda: large.frame(),
        lambda: bf.fit("bpmf", large),
        lambda: bf.Ratings(large),
    ):
        with pytest.raises(BayesfacError, match=r"Expected bf.Gibbs\(shares=True\)"):
            refused()
    with pytest.raises(BayesfacError, match="Expected values for scale_item, scale_user"):
        bf.fit("pmf", large, engine, n_components=2, progress=False)
    leveled = read_large(tmp_path / "r.parquet", levels=5)
    with pytest.raises(BayesfacError, match="bpmf or another method that can be divided among"):
        bf.fit("gibbs_mmmf", leveled, engine, n_components=2, cost=1.0, progress=False)
    TABLE.assign(rating=4).to_parquet(tmp_path / "r.parquet", index=False)
    same = read_large(tmp_path / "r.parquet", levels=5)
    with pytest.raises(ValueError, match="at least two levels for ordinal_mf, got 4 everywhere"):
        bf.fit("ordinal_mf", same, engine, n_components=2, progress=False)


@pytest.mark.parametrize(("name", "levels"), [("bpmf", None), ("ordinal_mf", 5)])
@pytest.mark.parametrize("twice", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_draws_are_those_of_ratings_read_at_once(tmp_path, name, levels, twice):
    table = bf.datasets.make_ratings(30, 20, 2, seed=0).frame()
    if twice:  # the mean of two levels is a level
        table = pd.concat([table, table.iloc[:9].assign(rating=1.0)])
    table.to_parquet(tmp_path / "r.parquet", index=False)
    reading = {"levels": levels, "duplicates": "mean" if twice else "error"}
    data, large = (each(tmp_path / "r.parquet", **reading) for each in (read, read_large))
    engine, how = bf.Gibbs(3, 4, 1, shares=True), {"n_components": 2, "progress": False}
    one, other = (bf.fit(name, x, engine, **how) for x in (data, large))
    for site, draws in one.draws.items():
        np.testing.assert_allclose(other.draws[site], draws, rtol=1e-5, atol=1e-5)
    assert other.data.summary == pytest.approx(one.data.summary)
    assert other.predict(other.data.probe).mean.shape == (len(other.data.probe),)


def test_a_folder_of_arrays(tmp_path):
    for name, array in TABLE.items():
        np.save(tmp_path / f"{name}.npy", np.array(array, "U1") if name == "user" else array)
    TABLE.to_parquet(tmp_path.with_suffix(".parquet"), index=False)
    one = outcome(read_large, tmp_path, {})[0]
    other = outcome(read, tmp_path.with_suffix(".parquet"), {})[0]
    assert (one[0], one[2:], one[1][1]) == (other[0], other[2:], other[1][1])
    np.save(tmp_path / "rating.npy", np.ones(4))
    with pytest.raises(ValueError, match=r"of one length in .*, got \[9, 9, 4\]"):
        read_large(tmp_path)
    np.save(tmp_path / "rating.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"Expected a NumPy array in .*rating.npy"):
        read_large(tmp_path)


def test_arrays_of_another_byte_order(tmp_path):
    user, item, value = TABLE["user"].map(ord).to_numpy(), TABLE["item"], TABLE["rating"]
    for name, array in {"user": user, "item": item, "rating": value}.items():
        np.save(tmp_path / f"{name}.npy", np.array(array).astype(array.dtype.newbyteorder(">")))
    large, small = read_large(tmp_path), bf.Ratings(user.astype(">i8"), item, value)
    assert list(large.users) == list(small.users) == [97, 98, 99, 100]
    assert large.per_row("user").tolist() == small.per_row("user").tolist() == [3, 3, 2, 1]
    assert large.mean == small.mean


def test_a_folder_of_tables(tmp_path):
    """Messages name the file; one of them may be empty, but each has the columns of the first."""
    for number, rows in enumerate([range(4), [], range(4, 9)]):
        TABLE.iloc[list(rows)].to_parquet(tmp_path / f"part-{number}.parquet", index=False)
    TABLE.to_parquet(tmp_path.with_suffix(".parquet"), index=False)
    whole = read_large(tmp_path.with_suffix(".parquet"))
    assert outcome(read_large, tmp_path, {}) == outcome(read, tmp_path.with_suffix(".parquet"), {})
    assert read_large(tmp_path).per_row("user").tolist() == whole.per_row("user").tolist()
    TWICE.iloc[9:].to_parquet(tmp_path / "part-3.parquet", index=False)
    said = r"second in row 0 of part-3.parquet .*the first is row 1 of part-2.parquet"
    with pytest.raises(ValueError, match=said):
        read_large(tmp_path)
    TABLE.assign(item=list("xyzxyzxyz")).to_parquet(tmp_path / "part-3.parquet", index=False)
    said = r"columns of part-0.parquet, user \(\w+\), item \(int64\), .* in .*part-3.parquet, got"
    with pytest.raises(ValueError, match=said):
        read_large(tmp_path)


def test_what_is_no_large_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        read_large(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match=r"Expected \.parquet files, or user\.npy"):
        read_large(tmp_path)
    with pytest.raises(ValueError, match=r"folder .* which bf\.datasets\.read_large may read"):
        read(tmp_path)
    (tmp_path / "r.csv").write_text("user,item,rating\na,b,1\n")
    with pytest.raises(ValueError, match="bf.datasets.read reads other files"):
        read_large(tmp_path / "r.csv")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    twice = pa.table([["a"], ["x"], [1.0], [2.0]], names=["user", "item", "rating", "rating"])
    pq.write_table(twice, tmp_path / "r.parquet")
    with pytest.raises(ValueError, match="Expected different columns in .*, got 'rating' twice"):
        read_large(tmp_path / "r.parquet")
    (tmp_path / "r.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="Expected parquet in"):
        read_large(tmp_path / "r.parquet")


def test_whole_numbers_beside_missing_ones_stay_apart(tmp_path):
    """As floats, two ids from 2**53 on would become one."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    user = pa.array([2**53, 2**53 + 1, None, 7], pa.int64())
    path = tmp_path / "r.parquet"
    pq.write_table(pa.table({"user": user, "item": list("abca"), "rating": [1.0, 2, 3, 4]}), path)
    for reader in (read, read_large):
        with pytest.warns(bf.DataWarning, match="left out: row 2"):
            assert list(reader(path, bad="skip").users) == [7, 2**53, 2**53 + 1]
