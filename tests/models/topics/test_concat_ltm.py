"""ConcatLTM is LTM of the views side by side, and keeps the user's labels."""

import jax
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY

CONCAT, LTM = REGISTRY["concat_ltm"], REGISTRY["ltm"]


def golden(method):
    """J of the example is LTM's of the features side by side."""
    data, h = CONCAT.example(jax.random.key(3))
    p = CONCAT.init(jax.random.key(4), data, h)
    A, C, x = np.asarray(p.A), np.asarray(p.C), data["all"].toarray()
    U = data.graphs["all"].toarray()
    J = -(x * np.log(A @ C)).sum() - (h.a - 1) * np.log(A).sum() - (h.c - 1) * np.log(C).sum()
    L = np.diag(U.sum(1)) - U
    J += h.penalty * np.trace(A.T @ L @ np.log(A))
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-12)


def test_golden_objective():
    golden(CONCAT)


def test_it_is_ltm_of_the_joined_table_and_keeps_labels():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(
        rng.random((20, 3)), index=[f"doc {i}" for i in range(20)], columns=list("abc")
    )
    y = pd.DataFrame(rng.random((20, 2)), index=x.index, columns=["u", "v"])
    given = {"n_components": 2, "scale": "none", "progress": False, "start": "kmeans"}
    engine = bf.FixedPoint(5, tol=0.9)
    ours = bf.fit("concat_ltm", {"x": x, "y": y}, engine, **given)
    theirs = bf.fit("ltm", {"all": x.join(y)}, engine, **given)
    np.testing.assert_allclose(ours.params.A, theirs.params.A, atol=1e-10)
    asked = {"row": ["doc 3"], "view": ["all"], "feature": ["y: v"]}
    assert ours.predict(asked).mean == theirs.predict(asked | {"feature": ["v"]}).mean


def test_the_views_of_training_are_a_query():
    """A fit has their features side by side, under the names that `concatenated` gives."""
    rng = np.random.default_rng(1)
    views = bf.Views({"x": rng.poisson(2, (20, 3)), "y": rng.poisson(2, (20, 4))})
    fit = bf.fit("concat_ltm", views, bf.FixedPoint(5, tol=0.9), n_components=2, progress=False)
    told, frame = fit.predict(views), views.frame()
    assert told.labels.equals(frame.drop(columns="value"))
    joined = [
        f"{view}: {feature}" for view, feature in zip(frame["view"], frame["feature"], strict=True)
    ]
    named = {"row": frame["row"], "view": ["all"] * len(frame), "feature": joined}
    np.testing.assert_array_equal(told.mean, fit.predict(named).mean)
    with pytest.raises(ValueError, match="a feature of the joined views, got 'z: 0'"):
        fit.predict({"row": [0, 1], "view": ["x", "z"], "feature": [0, 0]})
