"""Features in any scale become one table; sparse ones stay sparse; new rows are changed as training rows."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.views import concatenated
from bayesfac.labels.data.scaling import CONSTANT, rescaled, scaled
from bayesfac.models.topics import _starts as of_topics


def made(scale=1.0, offset=0.0):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(60, 3)) + offset
    rare = (rng.random((60, 2)) < 0.1) * 2.0
    return np.hstack([dense, rare, np.full((60, 1), 7.0)]) * scale, rng.integers(0, 2, (60, 2))


@pytest.mark.parametrize("scale", [1e-3, 1e4, np.logspace(-3, 4, 6)])
def test_the_scale_of_columns_does_not_matter(scale):
    wanted = scaled(bf.Tasks(*made()), 1.0)["x"].toarray()
    found = scaled(bf.Tasks(*made(scale)), 1.0)["x"].toarray()
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_dense_columns_are_centred_and_sparse_ones_stay_sparse():
    x, y = made(offset=5.0)
    table = scaled(bf.Tasks(x, y))["x"].toarray()
    np.testing.assert_allclose(table[:, :3].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(table[:, :3].std(0), 1, rtol=1e-5)
    np.testing.assert_array_equal(table[:, 3:5] != 0, x[:, 3:5] != 0)
    assert not table[:, 5].any()  # a constant says nothing, and divides nothing
    wide = sp.random(50, 400, 0.02, random_state=0)
    assert scaled(bf.Tasks(wide, np.ones((50, 1))))["x"].nnz == wide.nnz


def test_parts_are_not_negative_and_tell_the_same():
    x, y = made(offset=5.0)
    whole, parts = scaled(bf.Tasks(x, y)), scaled(bf.Tasks(x, y), parts=True)
    table, mirrored = parts["x"].toarray(), parts.host.scales["x"].mirrored
    assert table.min() >= 0 and list(mirrored) == [0, 1, 2]
    table[:, mirrored] -= table[:, 6:]
    np.testing.assert_allclose(table[:, :6], whole["x"].toarray(), atol=1e-6)


def test_new_rows_are_changed_as_training_rows():
    x, y = made(offset=5.0)
    train = scaled(bf.Tasks(x[:40], y[:40]), 1.0)
    again = rescaled(bf.Tasks(x[:7], y[:7]), train.host.scales)
    np.testing.assert_allclose(again["x"].toarray(), train["x"].toarray()[:7], atol=1e-6)
    assert list(again.features["x"])[-1] == CONSTANT
    assert scaled(train, 1.0) is train


def test_a_task_without_a_view_gets_no_cells_of_it():
    x, y = made(offset=5.0)
    tasks = {"a": {"u": x, "v": x}, "b": {"u": x}}
    data = scaled(bf.Tasks(tasks, {"a": y, "b": y}), 1.0)
    assert not data["v"][60:].nnz and data["u"][60:].nnz


def test_a_saved_fit_changes_new_rows_alike(tmp_path):
    x, y = made(1e3, offset=5.0)
    fit = bf.fit("cplst", bf.Tasks(x[:40], y[:40]), n_components=1, penalty=3.0, progress=False)
    assert fit.data.scales and 0 < fit.cut < 1
    fit.save(tmp_path / "fit")
    new = bf.Tasks({"x": x[40:]})
    ask = {"row": [0, 1, 2], "label": [0, 1, 0]}
    wanted = fit.fold_in(new).predict(ask)
    found = bf.load(tmp_path / "fit").fold_in(new).predict(ask)
    np.testing.assert_array_equal(found.score, wanted.score)
    np.testing.assert_array_equal(found.level, (wanted.score > fit.cut).astype(float))


def test_parts_of_scaled_data_are_not_scaled_again():
    x, y = made(offset=5.0)
    whole = scaled(bf.Tasks(x, y), 1.0)
    for part in (whole.take(range(9)), whole.pooled()):
        assert part.host.scales is whole.host.scales
        assert scaled(part, 1.0) is part


def test_data_keep_their_name_when_they_are_scaled():
    x = np.random.default_rng(0).poisson(2.0, (12, 4)) + 1.0
    data = bf.Tasks({"a": x[:, :2], "b": x[:, 2:]}, (x[:, :2] > 3).astype(int)).named("mine")
    for made in (scaled(data), data.take([0, 1]), data.pooled(), data.concatenated()):
        assert made.name == "mine"
    views = bf.Views({"a": x[:, :2], "b": x[:, 2:]}).named("docs")
    for made in (of_topics.scaled(views, "complement"), concatenated(views)):
        assert made.name == "docs"


def test_a_fit_names_the_features_that_scaling_drops(tmp_path):
    """Columns of one value, or nearly, become zero; a column without cells has nothing to lose."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    same, near = np.full(30, 3.0), 1e7 + rng.normal(size=30)
    columns = {"a": x[:, 0], "b": x[:, 1], "same": same, "near": near, "none": 0 * same}
    data = bf.Tasks({"v": pd.DataFrame(columns)}, (x > 0).astype(int), constant=True)
    given = {"n_components": 2, "progress": False}
    fit = bf.fit("leml", data, bf.FixedPoint(4, tol=0.9), **given)
    note = "2 features have (nearly) the same value in all rows and no effect: v: same, v: near"
    assert note in fit.notes and note in repr(fit)
    assert note in bf.load(fit.save(tmp_path / "fit")).notes
    plain = bf.fit("leml", data, bf.FixedPoint(4, tol=0.9), scaled=False, **given)
    assert not any("and no effect" in one for one in plain.notes)


@pytest.mark.parametrize("width", [1, 100])
def test_a_constant_may_be_longer_than_noise(width):
    x = np.random.default_rng(0).normal(size=(50, width)) + 3.0
    table = scaled(bf.Tasks(x, np.ones((50, 1))), 1.0, above_noise=True)["x"].toarray()
    np.testing.assert_allclose(table[:, -1], 1 + (width / 50) ** 0.5, rtol=1e-5)
    longest = np.linalg.norm(table[:, :-1], 2)
    assert np.linalg.norm(table[:, -1]) > 0.95 * longest
