"""Labels without a cell in training: a point predicts them with the spread of the prior, as unknown ones."""

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf


def with_empty_users(features):
    """Ratings where the last user and the last item have no cells, which features alone describe."""
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(40, 2)), rng.normal(size=(20, 2))
    user, item = np.nonzero(rng.random((40, 20)) < 0.4)
    keep = (user < 39) & (item < 19)
    user, item = user[keep], item[keep]
    value = 3 + np.sum(u[user] * v[item], 1) + 0.3 * rng.normal(size=len(user))
    ratings = bf.Ratings(user, item, value)
    if not features:
        return ratings.on(pd.RangeIndex(40), "user").on(pd.RangeIndex(20), "item"), None
    return bf.Ratings(ratings, user_features=pd.DataFrame(u), item_features=pd.DataFrame(v)), u


@pytest.mark.parametrize("method", ["pmf", "bpmf", "fm"])
def test_a_point_gives_labels_without_cells_the_spread_of_the_prior(method):
    fit = bf.fit(method, with_empty_users(False)[0], n_components=2, progress=False)
    mine, unknown = (
        fit.predict(([39, 0, 39], [0, 19, 19])),
        fit.predict((["x", 0, "x"], [0, "y", "y"])),
    )
    assert mine.flagged.all()
    np.testing.assert_allclose(mine.mean, unknown.mean)
    np.testing.assert_allclose(mine.sd, unknown.sd)
    assert (mine.sd > 1.05 * fit.predict(([0], [0])).sd).all()
    every = fit.everywhere()
    np.testing.assert_allclose(every.sd[[39, 0, 39], [0, 19, 19]], mine.sd, rtol=1e-6)
    table = every.frame().set_index(["user", "item"])
    assert table.loc[39, "flagged"].all()
    assert not table.loc[(0, 0), "flagged"]


def test_a_point_predicts_labels_without_cells_from_their_features(tmp_path):
    data, u = with_empty_users(True)
    fit = bf.fit("bpmf", data, n_components=2, progress=False)
    like = pd.DataFrame(u[[39]], index=["new"])
    both = fit.predict((["new", 39, "new"], [0, 0, 5]), user_features=like)
    assert both.flagged.all()
    np.testing.assert_allclose(both.mean[0], both.mean[1], rtol=1e-5)
    np.testing.assert_allclose(both.sd[0], both.sd[1], rtol=1e-5)
    alone = fit.predict(([39, 7], [0, 19]))
    assert alone.mean[0] == pytest.approx(both.mean[1], rel=1e-5)
    again = bf.load(fit.save(tmp_path / "fit")).predict(([39, 7], [0, 19]))
    np.testing.assert_allclose(again.sd, alone.sd)
    np.testing.assert_allclose(again.mean, alone.mean)
    far = fit.predict(([0], [0])).mean - alone.mean[0]
    assert abs(far) > 0.01


def test_a_point_of_a_tensor_too():
    data, _ = bf.datasets.make_tensor((20, 15, 6), 2, density=0.3, seed=0)
    fit = bf.fit("cp", data.take(data.code[:, 0] < 19), n_components=2, progress=False)
    asked = fit.predict(pd.DataFrame({"mode_1": [19, 77, 0], "mode_2": 3, "mode_3": 2}))
    assert list(asked.flagged) == [True, True, False]
    assert asked.sd[0] == pytest.approx(asked.sd[1])
    assert asked.sd[0] > 1.2 * asked.sd[2]
