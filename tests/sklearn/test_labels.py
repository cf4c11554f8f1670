"""Classifiers of several labels."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

import bayesfac as bf
import bayesfac.sklearn as estimators
from tests.sklearn.company import FEW, GROUP, X, Y, made

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")


def test_labels_of_new_rows():
    own = made("leml").fit(X[:18], Y[:18])
    found, sd = own.predict(X[18:], return_std=True)
    chance = own.predict_proba(X[18:])
    np.testing.assert_array_equal(found, chance > own.fit_.cut)
    np.testing.assert_allclose(sd, np.sqrt(chance * (1 - chance)), rtol=1e-6)
    direct = own.fit_.fold_in(bf.Tasks(X[18:]))
    np.testing.assert_allclose(chance.ravel(), direct.predict(bf.Tasks(X[18:])).mean, rtol=1e-6)
    assert own.score(X[18:], Y[18:]) == (found == Y[18:]).all(1).mean()
    np.testing.assert_allclose(own.predict_proba(X[[20]]), chance[[2]], rtol=1e-6)
    with pytest.raises(ValueError, match="X has 3 features, but leml is expecting 4"):
        own.predict(X[:, :3])


def test_labels_have_names_and_may_be_sparse():
    named = pd.DataFrame(Y, columns=["even", "odd", "high"])
    own, bare = made("leml").fit(X, named), made("leml").fit(X, sp.csr_matrix(Y))
    assert list(own.classes_) == ["even", "odd", "high"] and list(bare.classes_) == [0, 1, 2]
    np.testing.assert_array_equal(own.predict_proba(X), bare.predict_proba(X))
    assert own.fit_.data.coords["feature.labels"].tolist() == ["even", "odd", "high"]


def test_unknown_labels_where_the_method_takes_them():
    gaps = Y.astype(float)
    gaps[0, 1] = np.nan
    assert made("leml").fit(X, gaps).predict(X).shape == (24, 3)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        estimators.cplst().fit(X, gaps)


def test_classes_are_labels_of_which_every_row_has_one():
    names = np.array(["low", "high"])[GROUP]
    own = made("leml").fit(X, names)
    assert own.score(X, names) > 0.8 and list(own.classes_) == ["high", "low"]
    np.testing.assert_allclose(own.predict_proba(X).sum(1), 1)
    for wrong, said in (
        (X[:, 0], "Unknown label type: continuous"),
        (names[:3], "inconsistent numbers"),
    ):
        with pytest.raises(ValueError, match=said):
            own.fit(X, wrong)
    with pytest.raises(ValueError, match="Expected at least two classes, got 1 class: 'a'"):
        own.fit(X, ["a"] * 24)
    with pytest.raises(ValueError, match="Expected labels of 0 and 1, or one column of classes"):
        own.fit(X, np.stack([GROUP, 2 * GROUP], 1))


def test_far_rows_have_the_class_of_the_highest_score():
    """Several of their probabilities are .999, the end of the scale: the first class was predicted."""
    group = np.arange(80) % 4
    near = 2 * np.eye(4)[group] + np.random.default_rng(0).normal(size=(80, 4)) / 2
    far = 12 * np.eye(4) + np.array([0, 6, 6, 6])[:, None] * np.eye(4)[0]
    own = estimators.cplst().fit(near, group)
    assert (own.fit_.fold_in(bf.Tasks(far)).everywhere().mean.max(1) > 0.9989).all()
    np.testing.assert_array_equal(own.predict(far), range(4))


def test_two_numbers_that_are_no_labels_are_refused():
    """scikit-learn calls them an indicator of labels: every label of 1 and 2 was predicted as 1."""
    for name in ("leml", "heres"):
        for two, said in ((Y + 1, "got 2"), (2 * Y - 1, "got -1")):
            with pytest.raises(ValueError, match=f"Expected labels of 0 and 1, {said}"):
                getattr(estimators, name)(engine=FEW).fit(X, two)


def test_an_intercept():
    away = X[:, :3] + 50.0
    bare, own = (estimators.lsml(constant=c) for c in (False, True))
    assert own.fit(away, Y).fit_.data.coords["feature.x"].size == 4
    assert bare.fit(away, Y).fit_.data.coords["feature.x"].size == 4  # a constant of the method


@pytest.mark.slow
def test_a_grid_of_a_classifier():
    search = GridSearchCV(made("leml"), {"penalty": [1.0, 1e6]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"penalty": 1.0}


def test_rows_of_a_method_that_cannot_add_them_are_found_beside_those_of_training():
    own = estimators.mlc_hmf(minimum=2, depth=2, neighbours=3, random_state=0)
    chance = own.fit(X[:18], Y[:18]).predict_proba(X[18:])
    hidden = np.where(np.arange(24)[:, None] < 18, Y, np.nan)
    direct = bf.fit(
        "mlc_hmf", bf.Tasks(X, hidden), minimum=2, depth=2, neighbours=3, progress=False
    )
    np.testing.assert_allclose(chance, direct.everywhere().mean[18:], atol=1e-3)
    # features are scaled over all rows, the new ones among them: .012 apart where five new rows are left out
    np.testing.assert_allclose(own.predict_proba(X[[20]]), chance[[2]], atol=0.03)
    assert own.score(X[18:], Y[18:]) >= 0.5


def test_several_views_with_labels():
    tables = {"left": X[:, :2] - X.min(), "right": X[:, 2:] - X.min()}
    own = estimators.heres(n_components=2, engine=FEW, random_state=0).fit(tables, Y)
    assert own.predict(tables).shape == (24, 3) and own.score(tables, Y) > 0.4
    one = {name: x[[7]] for name, x in tables.items()}
    np.testing.assert_allclose(own.predict_proba(one), own.predict_proba(tables)[[7]], atol=1e-6)
