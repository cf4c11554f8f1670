"""Measurements: views of the same rows, with cells, rows and whole views that are missing."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.reading import plain

GENES = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [4.0, 5.0, 6.0]}, index=["x", "y", "z"])
DRUGS = pd.DataFrame({"a": [True, False]}, index=["z", "w"])


def both() -> bf.Measurements:
    return bf.Measurements({"genes": GENES, "drugs": DRUGS})


def test_rows_are_those_of_any_view_and_nan_is_missing():
    data = both()
    assert [*data.users] == ["w", "x", "y", "z"] and len(data) == 7
    assert [*data.views] == ["drugs", "genes"]
    assert [*data.items] == ["drugs: a", "genes: a", "genes: b"]
    pd.testing.assert_frame_equal(data.table("genes").loc[GENES.index], GENES)
    assert data.table("drugs").loc[["z", "w"], "a"].tolist() == [1.0, 0.0]
    assert data.table("genes").loc["w"].isna().all()


def test_each_view_has_its_own_cells_in_every_order():
    data = both()
    for name in data.views:
        own = data.view(name)
        table = data.table(name).to_numpy()
        assert np.array_equal(own.y, table[own.cells.row, own.cells.col])
        assert np.array_equal(data.of_view(name, data.y), own.y)
        by_col = own.cells.by_col
        values = np.asarray(own.y)[np.asarray(by_col.order)]
        assert np.array_equal(values, table[by_col.index, np.repeat(*ends(by_col))])
    again = data.together({name: data.of_view(name, data.y) for name in data.views})
    assert np.array_equal(again, data.y)


def ends(rows: object) -> tuple[np.ndarray, np.ndarray]:
    count = np.diff(np.asarray(rows.ptr))  # type: ignore[attr-defined]
    return np.arange(len(count)), count


def test_parts_keep_their_views():
    data = both()
    train, test = bf.split.holdout(data, 0.3, seed=1)
    assert isinstance(train, bf.Measurements) and len(train) + len(test) == len(data)
    for part in (train, test):
        assert {n: [*i] for n, i in part.views.items()} == {"drugs": ["a"], "genes": ["a", "b"]}
        assert sum(len(cells) for cells in part.inside.values()) == len(part)
    moved = data.on(pd.Index(["genes: b", "drugs: a", "genes: c", "genes: a"]))
    assert {n: [*i] for n, i in moved.views.items()} == {"genes": ["b", "c", "a"], "drugs": ["a"]}


def test_drawn_values_come_back():
    data = both()
    filled = data.fill({"rating": jnp.arange(7.0)})
    assert np.array_equal(filled.table("drugs").dropna().to_numpy()[:, 0], [0.0, 4.0])
    assert filled.view("genes").host.value.tolist() == np.asarray(filled.view("genes").y).tolist()


def test_other_containers_and_forms_are_read():
    arrays = bf.Measurements({"a": np.eye(3), "b": sp.csr_matrix(np.eye(3)[:, :2])}, rows=[*"uvw"])
    assert [*arrays.users] == ["u", "v", "w"] and len(arrays) == 15  # zeros are values
    views = bf.Views({"a": np.eye(3)[:, :2], "b": np.eye(3)})
    assert len(bf.Measurements(views)) == 15
    assert bf.Measurements(np.eye(3)).views["x"].tolist() == [0, 1, 2]
    data = both()
    assert bf.Measurements(data).fingerprint() == data.fingerprint()
    read_only = np.asfortranarray(np.eye(3))
    read_only.flags.writeable = False
    assert len(bf.Measurements(read_only)) == 9


class OfCells:
    """What AnnData and MuData show to readers."""

    def __init__(self, x: object, rows: list[str], columns: list[str]) -> None:
        self.X, self.obs_names, self.var_names = x, rows, columns


def test_anndata_and_mudata_are_read_by_their_names():
    rna = OfCells(sp.csr_matrix([[1.0, 0.0], [0.0, 2.0]]), ["c1", "c2"], ["g1", "g2"])
    alone = bf.Measurements(rna)
    assert alone.table("x").loc["c2", "g2"] == 2 and len(alone) == 4
    whole = OfCells(None, ["c1", "c2", "c3"], [])
    protein = OfCells(np.array([[5.0], [6.0]]), ["c2", "c3"], ["p"])
    whole.mod = {"rna": rna, "protein": protein}  # type: ignore[attr-defined]
    data = bf.Measurements(whole)
    assert [*data.users] == ["c1", "c2", "c3"] and data.table("protein").loc["c3", "p"] == 6
    assert data.table("rna").loc["c3"].isna().all()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"g": pd.DataFrame({"a": ["u", "v"]})}, "the column 'a' of .*get_dummies"),
        ({"g": pd.DataFrame({"a": [1.0, np.inf]}, ["x", "y"])}, "inf in row 'y', feature 'a'"),
        ({"g": pd.DataFrame({"a": [1.0], "b": [np.nan]})}, "got none in 'b'"),
        ({"g": pd.DataFrame({"a": [1.0, 2]}, ["x", "x"])}, "distinct rows in view 'g', got 'x' twice"),
        ({"g": pd.DataFrame([[1.0, 2]], columns=[*"aa"])}, "distinct features .* 'a' twice"),
        ({"a": np.eye(2), "b": np.eye(3)}, r"got \{'a': 2, 'b': 3\}"),
        ({"a": np.eye(2), "g": GENES}, "labels of the rows in every view, got none in 'a'"),
        ({"a": np.array([["u"]])}, "Expected real numbers in view 'a'"),
        ({"a": np.zeros((0, 2))}, r"rows x features in view 'a', got shape \(0, 2\)"),
        ({"a": np.ones(3)}, r"got shape \(3,\)"),
        ({}, "Expected views as a mapping"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given, told):
    with pytest.raises((TypeError, ValueError), match=told):
        bf.Measurements(given)


def test_questions_about_unknown_views_features_and_rows():
    data = both()
    with pytest.raises(ValueError, match=r"Expected a view among \['drugs', 'genes'\], got 'gens'"):
        data.table("gens")
    fit = bf.fit("mofa", data, n_components=1, progress=False)
    with pytest.raises(ValueError, match="one of training, got 'genes: q'"):
        fit.predict(([plain(data.users[0])], ["genes: q"]))
    new = fit.predict((["new"], ["genes: a"]))
    assert new.flagged[0] and new.sd[0] > 0
    with pytest.raises(TypeError, match="Expected Measurements for mofa, got Ratings"):
        bf.fit("mofa", bf.Ratings(np.eye(3)))
