"""Files of one's own: text, Parquet, NumPy; what cannot be read is said."""

import gzip
import os
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bayesfac import datasets
from bayesfac.core.data.views import Views
from bayesfac.core.errors import DataWarning


def written(folder, text, name="r.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "user,item,rating\nann,x,4\nNA,y,2.5\n"),
        ("r.csv", "\ufeffrating,item,user\n4,x,ann\n2.5,y,NA\n"),
        ("r.csv", "stars,product,customer\n4,x,ann\n2.5,y,NA\n"),
        ("r.csv", "ann;x;4\nNA;y;2.5\n"),
        ("r.tsv", "user\titem\trating\tshop\nann\tx\t4\t7\nNA\ty\t2.5\t8\n"),
        ("r.dat", "ann::x::4\nNA::y::2.5\n"),
        ("r.txt", "ann x 4\nNA   y 2.5\n"),  # as FilmTrust is distributed
        ("r.txt", "user item rating\nann x 4 \nNA y 2.5 \n"),
        ("r.txt", 'ann,"x",4\r\nNA,"y",2.5\r\n'),
    ],
)
def test_text_tables(tmp_path, name, text):
    ratings = datasets.read(written(tmp_path, text, name))
    assert ratings.frame().to_numpy().tolist() == [["ann", "x", 4.0], ["NA", "y", 2.5]]


def test_any_sign_separates_columns(tmp_path):
    path = written(tmp_path, "the user|the item|rating\nann, b|x|4\nNA|y|2.5\n")
    ratings = datasets.read(path, separator="|", columns=["the user", "the item", "rating"])
    assert ratings.frame().to_numpy().tolist() == [["ann, b", "x", 4.0], ["NA", "y", 2.5]]
    path = written(tmp_path, "ann,a x 4\nbob,b y 2\n")  # commas are part of the labels
    assert list(datasets.read(path, separator=" ").users) == ["ann,a", "bob,b"]
    with pytest.raises(ValueError, match="separator of one sign, or '::', got 'ab'"):
        datasets.read(path, separator="ab")
    with pytest.raises(ValueError, match="Expected separator= for a text file, got it for r.npz"):
        datasets.read(written(tmp_path, b"", "r.npz"), separator="|")


def test_whole_numbers_become_ids_and_padded_ones_stay_text(tmp_path):
    path = written(tmp_path, "10,007,4\n9,010,2\n")
    ratings = datasets.read(path, levels=5)
    assert list(ratings.users) == [9, 10]
    assert list(ratings.items) == ["007", "010"]
    assert ratings.levels == (1, 2, 3, 4, 5)
    assert list(datasets.read(path, ids={"user": str}).users) == ["9", "10"]
    with pytest.raises(ValueError, match="whole number as item in .*, got '007' in line 1"):
        datasets.read(path, ids={"item": int})
    with pytest.raises(ValueError, match="Expected ids= for user or item, got 'who'"):
        datasets.read(path, ids={"who": str})
    with pytest.raises(ValueError, match="Expected int or str as ids"):
        datasets.read(path, ids={"user": float})


def test_columns_by_name(tmp_path):
    path = written(tmp_path, "when,film,stars,who\n1,x,4,ann\n")
    ratings = datasets.read(path, columns=["who", "film", "stars"])
    assert ratings.frame().to_numpy().tolist() == [["ann", "x", 4.0, 1]]


def test_the_time_of_a_file_is_kept(tmp_path):
    path = written(tmp_path, "timestamp,uid,iid,score\n881250949,196,242,3\n7,1,,3\n8,2,2,2\n")
    with pytest.warns(DataWarning, match="1 of 3 rows"):
        read = datasets.read(path, bad="skip")
    assert read.frame().to_numpy().tolist() == [[196, 242, 3, 881250949], [2, 2, 2, 8]]
    path = written(tmp_path, "seen,who,film,stars\n2020-01-02,ann,x,3\n")
    named = {"user": "who", "item": "film", "rating": "stars", "time": "seen"}
    assert str(datasets.read(path, columns=named).time[0]).startswith("2020-01-02")
    read.frame().to_csv(tmp_path / "again.csv", index=False)
    assert datasets.read(tmp_path / "again.csv").time.tolist() == [881250949, 8]


def test_columns_without_header_are_read_by_position(tmp_path):
    path = written(tmp_path, "196\t242\t3\t881250949\n186\t302\t4\t891717742\n", "u.data")
    with pytest.warns(DataWarning, match="columns 1 to 3 are read as user, item, rating; 1 more"):
        assert datasets.read(path).frame().to_numpy().tolist() == [[196, 242, 3], [186, 302, 4]]


def test_files_of_movielens_have_their_times(tmp_path):
    path = written(tmp_path, "196::242::3::881250949\n186::302::4::891717742\n", "ratings.dat")
    read = datasets.read(path)
    rows = [[196, 242, 3, 881250949], [186, 302, 4, 891717742]]
    assert read.frame().to_numpy().tolist() == rows


def test_decimal_commas_are_suggested_where_they_would_help(tmp_path):
    path = written(tmp_path, "user;item;rating\nann;x;3,5\n")
    with pytest.raises(ValueError, match="got '3,5' in line 2; decimal=',' reads decimal commas"):
        datasets.read(path)
    with pytest.raises(ValueError, match="got 'nan' in line 2; bad='skip' leaves"):
        datasets.read(written(tmp_path, "user;item;rating\nann;x;nan\n"))


def test_a_wide_file_is_not_read_by_position(tmp_path):
    path = written(tmp_path, "user,10,20,30\nann,5,3,4\n")
    with pytest.raises(ValueError, match=r"got \['user', '10', '20', '30'\]"):
        datasets.read(path)


def test_some_columns_by_name(tmp_path):
    path = written(tmp_path, "kunde,film,note\nann,x,4\n")
    ratings = datasets.read(path, columns={"user": "kunde", "rating": "note"})
    assert ratings.frame().to_numpy().tolist() == [["ann", "x", 4.0]]
    with pytest.raises(ValueError, match=r"got \['kunde', 'film', 'note'\]"):
        datasets.read(path, columns={"user": "kunde"})
    with pytest.raises(ValueError, match=r"columns for some of .*got \['seller'\]"):
        datasets.read(path, columns={"seller": "kunde"})
    with pytest.raises(ValueError, match="different columns in .*, got 'film' twice"):
        datasets.read(path, columns=["film", "film", "note"])
    twice = written(tmp_path, "who,what,note,note,rest,rest\nann,x,4,1,7,8\n")
    with pytest.raises(ValueError, match="different columns in .*, got 'note' twice"):
        datasets.read(twice, columns=["who", "what", "note"])


def test_compressed_tables(tmp_path):
    text = "user,item,rating\nann,x,4\n"
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        archive.writestr("ml/ratings.csv", text)
        archive.writestr("ml/movies.csv", "movieId,title\nx,X\n")
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("stars.tsv", text.replace(",", "\t"))
    with zipfile.ZipFile(tmp_path / "mac.zip", "w") as archive:
        archive.writestr("stars.csv", text)
        archive.writestr("__MACOSX/._stars.csv", b"\x00\x05\x16\x07")
    for name in ("r.csv.gz", "many.zip", "one.zip", "mac.zip"):
        ratings = datasets.read(tmp_path / name)
        assert ratings.frame().to_numpy().tolist() == [["ann", "x", 4.0]]
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", text)
        archive.writestr("b.csv", text)
    with pytest.raises(ValueError, match=r"one named ratings, in .*got \['a.csv', 'b.csv'\]"):
        datasets.read(tmp_path / "two.zip")
    for name in ("bad.csv.gz", "bad.zip"):
        with pytest.raises(ValueError, match=f"a compressed table in .*{name}"):
            datasets.read(written(tmp_path, "x", name))


def test_decimal_commas_when_asked(tmp_path):
    path = written(tmp_path, "user;item;rating\nann;x;4,5\nbob;x;3\n")
    assert datasets.read(path, decimal=",").value.tolist() == [4.5, 3]
    assert datasets.read(written(tmp_path, "a;x;4,5\n"), decimal=",").value.tolist() == [4.5]
    with pytest.raises(ValueError, match="got '4,5' in line 2"):
        datasets.read(written(tmp_path, "user;item;rating\nann;x;4,5\n"))
    with pytest.raises(ValueError, match="Expected decimal='.' or ',', got ';'"):
        datasets.read(path, decimal=";")


def test_parquet_keeps_its_types(tmp_path):
    pytest.importorskip("pyarrow", reason="parquet needs the extra bayesfac[datasets]")
    ratings = datasets.load("ratings")
    ratings.frame().to_parquet(tmp_path / "r.parquet")
    again = datasets.read(tmp_path / "r.parquet", levels=5)
    assert again.fingerprint() == ratings.fingerprint()


def test_dates_are_no_ratings(tmp_path):
    """As numbers they would be counts of some unit: 1.6e15 of a column of days."""
    pytest.importorskip("pyarrow", reason="parquet needs the extra bayesfac[datasets]")
    table = pd.DataFrame({"user": ["a", "b"], "item": ["x", "x"]})
    for dates in (pd.date_range("2020", periods=2, tz="UTC"), pd.to_timedelta([1, 2], "s")):
        table.assign(rating=dates).to_parquet(tmp_path / "r.parquet")
        with pytest.raises(ValueError, match=r"a finite number as rating in .*got Time.* in row 0"):
            datasets.read(tmp_path / "r.parquet")


def test_npz_of_triplets_sparse_or_dense(tmp_path):
    Y = np.array([[4.0, 0.0], [0.0, 2.0]])
    np.savez(tmp_path / "t.npz", user=[0, 1], item=[0, 1], rating=[4.0, 2.0], when=[7, 8])
    sp.save_npz(tmp_path / "s.npz", sp.csr_matrix(Y))
    np.savez(tmp_path / "d.npz", Y=np.where(Y > 0, Y, np.nan))
    for name in "tsd":
        ratings = datasets.read(tmp_path / f"{name}.npz")
        assert ratings.frame().to_numpy().tolist() == [[0, 0, 4.0], [1, 1, 2.0]]


@pytest.mark.parametrize("as_type", [None, str])
def test_blanks_around_labels_of_text_files_are_dropped(tmp_path, as_type):
    """As the names of columns and ARFF files have none; " 7" was another item than 7."""
    path = written(tmp_path, "user, item, rating\nann , 7, 4\n bob, 8, 2\nann, 8, 3\n")
    ratings = datasets.read(path, ids={"user": str, "item": as_type} if as_type else None)
    assert list(ratings.users) == ["ann", "bob"]
    assert list(ratings.items) == ([7, 8] if as_type is None else ["7", "8"])
    assert datasets.read_pairs(path).iloc[0].tolist() == ["ann", 7]
    views = datasets.read(
        written(tmp_path, "row,view,feature,value\na,w,x,1\nb , w,x ,2\n"), "views"
    )
    assert list(views.rows) == ["a", "b"] and views.names == ("w",)
    assert list(views.features["w"]) == ["x"]


def test_views_from_npz_and_from_a_long_table(tmp_path):
    X = np.array([[1.0, 0.0], [0.0, 2.0]])
    csr = sp.csr_matrix(X)
    sparse = {f"view_b_{part}": getattr(csr, part) for part in ("data", "indices", "indptr")}
    np.savez(tmp_path / "v.npz", view_a=X, **sparse, view_b_shape=[2, 2], y=[0, 1])
    views = datasets.read(tmp_path / "v.npz", "views")
    assert isinstance(views, Views)
    assert views.names == ("a", "b")
    np.testing.assert_array_equal(views["b"].toarray(), X)
    text = "row,view,feature,value\nd1,w,cat,2\nd2,w,NA,1\nd1,l,d2,1\n"
    long = datasets.read(written(tmp_path, text), "views")
    assert list(long.rows) == ["d1", "d2"]
    assert list(long.features["w"]) == ["NA", "cat"]
    np.testing.assert_array_equal(long["w"].toarray(), [[0, 2], [1, 0]])
    np.testing.assert_array_equal(long["l"].toarray(), [[1], [0]])


def test_a_cell_of_views_that_is_listed_twice_is_refused_or_averaged(tmp_path):
    """As a second rating is; both values were summed without a word."""
    text = "row,view,feature,value\n7,w,x,1\n7,v,x,5\n7,w,x,2\n8,w,y,4\n"
    path = written(tmp_path, text)
    said = r"a second in line 4 \(7, view 'w', feature 'x'; the first is line 2\)"
    with pytest.raises(ValueError, match=said):
        datasets.read(path, "views")
    mean = datasets.read(path, "views", duplicates="mean")
    np.testing.assert_array_equal(mean["w"].toarray(), [[1.5, 0], [0, 4]])
    np.testing.assert_array_equal(mean["v"].toarray(), [[5], [0]])
    with pytest.raises(ValueError, match="Expected duplicates='error' or 'mean', got 'sum'"):
        datasets.read(path, "views", duplicates="sum")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user,item,rating\na,x,4\nb,x,four\n", "number as rating in .*, got 'four' in line 3"),
        ("a,x,4\nb,x,\n", "got '' in line 2"),
        ("a,x,4\nb,x,inf\n", "got 'inf' in line 2"),
        ("user,item,rating\na,x,4\n,x,3\n", "a user in every row of .*, got none in line 3"),
        ("user,item,rating\na,x,4\n\nb,x,3\n", "got none in line 3"),
        ("user,item,rating\na,x,4\na,x,3\n", "a second in line 3 .*the first is line 2"),
        ("user,item\na,x\n", "Expected columns user, item, rating"),
        ("user,item,rating\n", "at least one row"),
        ("", "Expected a table in .*, got an empty file"),
        ("\ufeff \n", "got an empty file"),
        ("kunde,film,note\nann,x,5\n", r"in .*r.csv, got \['kunde', 'film', 'note'\].*--user NAME"),
        ("user,film,movie,stars\nann,x,x,5\n", "each once"),
        ("user,item,rating,rating\nann,x,5,1\n", r"each once.*'item', 'rating', 'rating'\]"),
        (
            "a,x,4\nb,x,3,9,9\n",
            "Expected 3 cells in every row .* line 1, got 5 in line 2: .*quotes",
        ),
        ("user,item,rating\na,x,4\nb,x,y,3\n", "Expected 3 cells .* got 4 in line 3: .*quotes"),
        (b"\xff\xfea,x,4\n", "a table as UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(tmp_path, text, said):
    with pytest.raises(ValueError, match=said):
        datasets.read(written(tmp_path, text))


def test_a_level_off_the_scale_is_named_by_its_line(tmp_path):
    with pytest.raises(ValueError, match=r"levels .*got 9 in line 3 \(user 'b', item 'x'\)"):
        datasets.read(written(tmp_path, "user,item,rating\na,x,4\nb,x,9\n"), levels=5)


def test_a_label_that_reads_like_a_place_is_said_as_it_is(tmp_path):
    """Message and label are of one text: "row 77" is a user, and no row of the file."""
    path = written(tmp_path, "user,item,rating\nrow 77,it's,4\nrow 1,it's,3\nrow 77,it's,2\n")
    said = r"""second in line 4 \(user 'row 77', item "it's"; the first is line 2\)"""
    with pytest.raises(ValueError, match=said):
        datasets.read(path)
    with pytest.raises(ValueError, match=r"got 4 in line 2 \(user 'row 77', item"):
        datasets.read(path, levels=3)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        datasets.read(tmp_path / "none.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    for read in (datasets.read, datasets.read_pairs):
        with pytest.raises(FileNotFoundError, match="pipe.csv, which is a pipe or device"):
            read(tmp_path / "pipe.csv")
        with pytest.raises(ValueError, match="Expected a file, got the folder"):
            read(tmp_path)
    with pytest.raises(ValueError, match="a file ending in .csv"):
        datasets.read(written(tmp_path, "x", "r.pkl"))
    with pytest.raises(ValueError, match="NumPy archive"):
        datasets.read(written(tmp_path, "x", "r.npz"))
    np.savez(tmp_path / "o.npz", a=[1], b=[2])
    with pytest.raises(ValueError, match=r"Expected user, item and rating.* got \['a', 'b'\]"):
        datasets.read(tmp_path / "o.npz")
    with pytest.raises(ValueError, match="a column 'who'"):
        datasets.read(written(tmp_path, "a,b,c\n1,2,3\n"), columns=["who", "b", "c"])


BAD = "who,film,stars\na,x,4\n,x,3\nb,x,\nb,y,good\nb,z,2\na,x,2\n"


def test_bad_rows_are_named_or_left_out_with_a_warning(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(BAD)
    with pytest.raises(ValueError, match=r"got none in line 3; bad='skip' leaves such rows out"):
        datasets.read(path)
    path.write_text(BAD.replace("\n,x,3", ""))
    with pytest.raises(ValueError, match=r"got '' in line 3 and 1 more; bad='skip'"):
        datasets.read(path)
    path.write_text(BAD)
    left = "3 of 6 rows of .*mine.csv are left out: line 3, line 4, line 5$"
    with pytest.warns(DataWarning, match=left):
        found = datasets.read(path, bad="skip", duplicates="mean")
    assert list(found.users) == ["a", "b"]
    np.testing.assert_array_equal(found.value, [3, 2])
    again = r"a second in line 7 .*the first is line 2"  # lines of the file, not of what is left
    with pytest.warns(DataWarning), pytest.raises(ValueError, match=again):
        datasets.read(path, bad="skip")


def test_nothing_is_left(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,x,4\n".replace("a,x,4", "user,item,rating\n,x,4"))
    with (
        pytest.warns(DataWarning),
        pytest.raises(ValueError, match="that can be read, got none"),
    ):
        datasets.read(path, bad="skip")
    with pytest.raises(ValueError, match="Expected bad='error' or 'skip', got 'drop'"):
        datasets.read(path, bad="drop")


@pytest.mark.filterwarnings("error")
def test_rows_with_more_cells_than_the_header(tmp_path):
    path = tmp_path / "r.csv"
    for rows in ("1,10,20,3\n2,11,21,4\n", "1,Seven, 2,5\n2,b,4\n"):
        path.write_text("user,item,rating\n" + rows)
        with pytest.raises(ValueError, match=r"Expected 3 cells in every row .* got 4 in line 2"):
            datasets.read(path)
    path.write_text("user,item,rating\n1,a,3,\n2,b,4,\n")
    assert datasets.read(path).frame().to_numpy().tolist() == [[1, "a", 3], [2, "b", 4]]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("v.csv", {"kind": "views", "levels": 5}, "levels= for ratings, got it for views"),
        ("r.npz", {"columns": ("a", "b", "c")}, "columns= for a table, got it for r.npz"),
        ("r.npz", {"bad": "skip"}, "bad= for a table, got it for r.npz"),
        ("r.npz", {"decimal": ","}, "decimal= for a text file, got it for r.npz"),
        ("r.parquet", {"decimal": ","}, "decimal= for a text file, got it for r.parquet"),
    ],
)
def test_options_without_a_meaning_are_refused(tmp_path, name, given, message):
    path = tmp_path / name
    columns = {"user": [1, 2], "item": [1, 1], "rating": [1.0, 2.0]}
    if name == "r.npz":
        np.savez(path, **columns)
    elif name == "r.parquet":
        pd.DataFrame(columns).to_parquet(path)
    else:
        path.write_text("row,view,feature,value\na,x,1,2\nb,x,2,3\n")
    with pytest.raises(ValueError, match=f"Expected {message}"):
        datasets.read(path, **given)
