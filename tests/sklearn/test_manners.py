"""Estimators from the registry, beside `bf.fit`, and of (user, item) pairs."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags

import bayesfac as bf
import bayesfac.sklearn as estimators
from bayesfac.core.method import REGISTRY
from bayesfac.sklearn import pairs
from bayesfac.split import PairFolds
from tests.sklearn.company import (
    COUNTS,
    FEW,
    FITTED,
    PEOPLE,
    RATINGS,
    R,
    data_of,
    made,
)

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
# cells of tensors are in `pairs` alone; several matrices are no X
NONE = bf.Tensor, bf.Relations, bf.Measurements
TABLES = sorted(n for n, m in REGISTRY.items() if m.data not in NONE)
EVERY = [(estimators, n) for n in TABLES] + [(pairs, n) for n in dir(pairs)]


@pytest.fixture(scope="module")
def model():
    return made("pmf").fit(RATINGS)


# ---------------------------------------------------------------------- from the registry


def test_every_method_has_an_estimator():
    assert dir(estimators) == sorted(["Imputer", *TABLES])
    assert dir(pairs) == sorted(n for n, m in REGISTRY.items() if m.data in (bf.Ratings, bf.Tensor))
    assert estimators.pmf is estimators.pmf and estimators.pmf is not pairs.pmf


@pytest.mark.parametrize(("module", "name"), EVERY)
def test_its_parameters_are_those_of_the_method(module, name):
    kind = getattr(module, name)
    plain, hyper = kind(), REGISTRY[name].Hyper()._asdict()
    hyper.pop("seed", None)  # bf.fit has a seed of its own
    assert hyper.items() <= plain.get_params().items()
    assert plain.get_params().keys() - hyper.keys() <= {"engine", "random_state", "constant"}
    asked = inspect.signature(kind).parameters
    assert {n: p.default for n, p in asked.items()} == plain.get_params()
    first = next(iter(hyper))
    changed = clone(kind(**{first: "other"}))
    assert changed.get_params()[first] == "other"
    assert pickle.loads(pickle.dumps(changed)).get_params() == changed.get_params()
    assert changed.set_params(random_state=7).random_state == 7
    assert REGISTRY[name].paper in kind.__doc__ and f"\n{first} : default" in kind.__doc__
    with pytest.raises(TypeError, match=f"Unknown parameter of {name} 'n_compnents'"):
        kind(n_compnents=3)
    with pytest.raises(ValueError, match="Invalid parameter 'n_compnents'"):
        plain.set_params(n_compnents=3)
    with pytest.raises(NotFittedError):
        (plain.predict if hasattr(plain, "predict") else plain.get_feature_names_out)(COUNTS)


def test_a_method_of_your_own_is_there_too(skeleton):
    kind = getattr(estimators, skeleton.name)
    assert kind.method is skeleton and skeleton.name in dir(estimators)
    delattr(estimators, skeleton.name)


@pytest.mark.parametrize("module", [estimators, pairs])
def test_unknown_names_are_errors_that_name_the_nearest(module):
    with pytest.raises(AttributeError, match="did you mean 'bpmf'"):
        module.bpfm  # noqa: B018
    with pytest.raises(AttributeError, match="__nothing__"):
        module.__nothing__  # noqa: B018
    with pytest.raises(AttributeError, match="Unknown estimator of bayesfac.sklearn.pairs 'plsa'"):
        pairs.plsa  # noqa: B018


def test_the_facade_does_not_load_it():
    code = (
        "import sys, bayesfac as bf; assert not {'sklearn', 'bayesfac.sklearn'} & set(sys.modules);"
    )
    code += "bf.sklearn.pmf; assert 'bayesfac.sklearn.pairs' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tags_say_what_the_record_says():
    tags = {name: get_tags(getattr(estimators, name)()) for name in TABLES}
    assert {n for n, t in tags.items() if t.input_tags.positive_only} == {
        "hpf", "mvplsa", "plsa", "wrmf"
    }  # fmt: skip
    assert {n for n, t in tags.items() if t.input_tags.allow_nan} == set(dir(pairs)) & {*TABLES}
    assert is_classifier(estimators.leml()) and tags["leml"].classifier_tags.multi_label
    assert is_regressor(pairs.pmf()) and not is_regressor(estimators.pmf())


# ---------------------------------------------------------------------- beside bf.fit


@pytest.mark.parametrize("name", FITTED)
def test_the_same_fit_as_by_hand(name):
    x, y = data_of(name)
    data = {
        "pmf": lambda: bf.Ratings(x),
        "plsa": lambda: bf.Views(x),
        "leml": lambda: bf.Tasks(x, y),
    }
    direct = bf.fit(name, data[name](), FEW, seed=3, progress=False, **FITTED[name])
    ours = made(name).fit(x, y).fit_
    np.testing.assert_array_equal(ours.trace, direct.trace)
    assert ours.seed == 3 and ours.hyper == direct.hyper


def test_random_states_are_seeds():
    def seed(state):
        return made("pmf").set_params(random_state=state, engine=bf.FixedPoint(1)).fit(R).fit_.seed

    assert seed(5) == 5 and seed(np.int64(5)) == 5
    assert (
        seed(np.random.RandomState(1))
        == seed(np.random.RandomState(1))
        != seed(np.random.RandomState(2))
    )
    np.random.seed(0)  # noqa: NPY002  # what None means to scikit-learn
    assert seed(None) != seed(None)


def test_rows_and_columns_keep_their_names(model):
    assert model.fit_.data.coords["user"].tolist() == PEOPLE
    assert (
        model.fit_.data.coords["item"].tolist() == list("abcdef") == list(model.feature_names_in_)
    )
    twice = made("pmf").fit(RATINGS.set_axis([*PEOPLE[:-1], "p0"]))
    assert twice.fit_.data.coords["user"].tolist() == list(range(24))  # of no use as names
    np.testing.assert_array_equal(twice.embedding_, model.embedding_)


def test_what_is_not_stored_is_missing(model):
    seen = ~np.isnan(R)
    sparse = sp.csr_matrix((R[seen], np.nonzero(seen)), R.shape)
    own = made("pmf").fit(sparse)
    np.testing.assert_allclose(own.transform(sparse), model.transform(RATINGS), atol=1e-6)
    np.testing.assert_allclose(own.impute(sparse), model.impute(RATINGS), rtol=1e-6)


# ---------------------------------------------------------------------- pairs


def long():
    user, item = np.nonzero(~np.isnan(R))
    table = pd.DataFrame({"who": np.array(PEOPLE)[user], "what": np.array(list("abcdef"))[item]})
    return table, R[user, item]


def test_pairs_are_a_regression():
    table, y = long()
    own = pairs.pmf(n_components=2, engine=FEW, random_state=3).fit(table, y)
    direct = bf.fit(
        "pmf",
        bf.Ratings(table["who"], table["what"], y),
        FEW,
        n_components=2,
        seed=3,
        progress=False,
    )
    mean, sd = own.predict(table, return_std=True)
    np.testing.assert_array_equal(own.fit_.trace, direct.trace)
    wanted = direct.predict({"user": table["who"], "item": table["what"]})
    np.testing.assert_allclose(mean, wanted.mean)
    np.testing.assert_allclose(sd, wanted.sd)
    assert own.score(table, y) == pytest.approx(-np.sqrt(np.mean((mean - y) ** 2)))
    new = own.predict(pd.DataFrame({"who": ["nobody"], "what": ["a"]}), return_std=True)
    assert np.isfinite(new).all() and new[1] > 0
    assert list(own.feature_names_in_) == ["who", "what"] and own.n_features_in_ == 2
    again = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(again.predict(table), mean)


def test_grids_are_searched_over_ratings():
    table, y = long()
    own = pairs.pmf(n_components=2, engine=FEW, random_state=0)
    for X_, scoring in ((table, None), (table.to_numpy(), "r2")):
        search = GridSearchCV(own, {"noise": [0.8, 100.0]}, cv=PairFolds(3), scoring=scoring).fit(
            X_, y
        )
        assert search.best_params_ == {"noise": 0.8}


def test_scores_of_users_without_training_data_are_warned_of():
    table, y = long()
    known = table["who"].isin(PEOPLE[:12]).to_numpy()
    own = pairs.pmf(n_components=1, engine=FEW, random_state=0).fit(table[known], y[known])
    with pytest.warns(bf.DataWarning, match="12 of the 12 users of X were not in fit"):
        own.score(table[~known], y[~known])
    own.score(table, y)  # half of the users are known: no warning
    with pytest.warns(bf.DataWarning, match="of X were not in fit"):  # sorted by user, not shuffled
        GridSearchCV(own, {"noise": [0.8]}, cv=3).fit(table, y)


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_a_column_of_values_is_read_as_values():
    """A score took every prediction less every value, and fit did not read the column."""
    table, y = long()
    own = pairs.pmf(n_components=1, engine=FEW, random_state=0).fit(table, y)
    assert own.score(table, y[:, None]) == own.score(table, y)
    column = clone(own).partial_fit(table[:40], y[:40, None]).partial_fit(table[40:], y[40:, None])
    assert column.fit_.data.summary["ratings"] == len(y)
    cells = bf.datasets.make_tensor((6, 5, 4), 2, density=0.8, seed=0)[0].frame()
    X, value = cells.iloc[:, :3], cells[["value"]]
    of_cells = pairs.cp(n_components=1, engine=FEW, random_state=0).fit(X, value)
    assert of_cells.score(X, value) == of_cells.score(X, cells["value"])


def test_pairs_that_are_none():
    own = pairs.pmf(n_components=1)
    with pytest.raises(ValueError, match=r"Expected X as pairs \(user, item\), got 3 columns"):
        own.fit(np.ones((4, 3)), np.ones(4))
    with pytest.raises(
        TypeError, match=r"Expected X with a column for each label.*got a sparse matrix"
    ):
        own.fit(sp.csr_matrix(np.ones((4, 2))), np.ones(4))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        own.fit([[0, 1], [1, 0]], [1.0])
    with pytest.raises(ValueError, match="Expected finite ratings, got nan in row 1"):
        own.fit([[0, 1], [1, 0]], [1.0, np.nan])
    with pytest.raises(ValueError, match="Expected one rating per user and item, got a second"):
        own.fit([[0, 1], [0, 1]], [1.0, 2.0])


def test_settings_of_the_engine_are_nested():
    model = made("pmf").set_params(engine__max_iter=7)
    assert model.engine == bf.FixedPoint(7) and model.get_params()["engine__max_iter"] == 7
    assert FEW.max_iter == 30  # the engine that the user gave stays as it is
    assert pairs.pmf().set_params(engine__max_iter=7).engine == bf.FixedPoint(7)
    assert clone(model).engine == bf.FixedPoint(7)
    with pytest.raises(ValueError, match="Unknown setting of FixedPoint 'draws'"):
        model.set_params(engine__draws=3)


def test_ratings_are_added_and_nothing_is_forgotten():
    """The second call knows all ratings: it ends where one fit to all of them ends."""
    rows = np.argwhere(~np.isnan(R))
    y = R[tuple(rows.T)]
    own = dict(
        n_components=1, noise=1.0, scale_user=1.0, scale_item=1.0, scale_bias=1.0, offset=0.0
    )
    whole = pairs.pmf(**own, random_state=0).fit(rows, y)
    first = rows[:, 0] < 16  # eight users come later
    model = pairs.pmf(**own, random_state=0).fit(rows[first], y[first])
    before = len(model.fit_.trace)
    model.partial_fit(rows[~first], y[~first])
    assert model.fit_.data.shape == (24, 6) and before > 1
    np.testing.assert_allclose(model.predict(rows), whole.predict(rows), atol=0.01)
    assert model.fit_.trace[0] < whole.fit_.trace[0]  # it began where it was
    again = model.partial_fit(rows[:1], [y[0] + 1])
    assert len(again.fit_.data.row_counts) == 24
    assert again.predict(rows[:1])[0] > whole.predict(rows[:1])[0]
    assert pairs.pmf(**own).partial_fit(rows, y).fit_.data.shape == (24, 6)
    as_text = again.partial_fit(rows[:2].astype(str), y[:2])  # "0" is 0, and takes the last value
    assert len(as_text._told) == len(y)
    np.testing.assert_allclose(as_text.predict(rows), whole.predict(rows), atol=0.01)


# ---------------------------------------------------------------------- cells of a tensor


def test_cells_are_a_regression():
    tensor = bf.datasets.make_tensor((12, 8, 5), 2, density=0.8, seed=0)[0]
    frame = tensor.frame()
    X, y = frame.iloc[:, :3], frame["value"].to_numpy()
    own = pairs.cp(n_components=2, engine=FEW, random_state=3).fit(X, y)
    direct = bf.fit("cp", tensor, FEW, n_components=2, seed=3, progress=False)
    np.testing.assert_array_equal(own.fit_.trace, direct.trace)
    mean, sd = own.predict(X, return_std=True)
    assert own.score(X, y) == -bf.metrics.rmse(mean, y) and (sd > 0).all()
    unnamed = pairs.cp(n_components=2, engine=FEW, random_state=3).fit(X.to_numpy(), y)
    np.testing.assert_allclose(unnamed.predict(X.to_numpy()), mean, rtol=1e-4, atol=1e-4)


def test_cells_are_found_without_the_names_of_their_columns():
    frame = bf.datasets.make_tensor((12, 8, 5), 2, density=0.8, seed=0)[0].frame()
    X, y = frame.iloc[:, :3], frame["value"].to_numpy()
    own = pairs.cp(n_components=1, engine=FEW).fit(X, y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        found = own.predict(X.to_numpy())
    np.testing.assert_array_equal(found, own.predict(X))


def test_cells_of_two_labels_are_refused():
    with pytest.raises(ValueError, match="Expected X with 3 or more columns of labels, got 2"):
        pairs.cp().fit([["ann", "x"]], [1.0])


def test_small_data_reduce_a_default_but_no_number_that_was_given():
    X = np.random.default_rng(0).poisson(2, (12, 4)).astype(float)
    few = estimators.plsa(engine=FEW, random_state=0).fit(X)
    assert few.transform(X).shape == (12, 4) and few.fit_.hyper.n_components == 4
    assert any("n_components=4, the largest value" in note for note in few.fit_.notes)
    assert few.get_params()["n_components"] == 10
    with pytest.raises(ValueError, match="n_components between 1 and 4"):
        estimators.plsa(n_components=7, engine=FEW, random_state=0).fit(X)
