"""Estimators beside `bf.fit`, and in scikit-learn's company."""

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
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

import bayesfac as bf
import bayesfac.sklearn as estimators
from bayesfac.core.method import REGISTRY
from bayesfac.sklearn import pairs

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
FEW = bf.FixedPoint(max_iter=30)
rng = np.random.default_rng(0)
GROUP = np.arange(24) % 2
PEOPLE = [f"p{i}" for i in range(24)]
R = 3 * (2 * GROUP[:, None] - 1) * (2 * (np.arange(6) % 2) - 1) + rng.normal(size=(24, 6))
R[rng.random(R.shape) < 0.2] = np.nan
RATINGS = pd.DataFrame(R, PEOPLE, list("abcdef"))
COUNTS = rng.poisson(1 + 8.0 * (GROUP[:, None] == np.arange(6) % 2)).astype(float)
X = np.hstack([rng.normal(size=(24, 3)) + 2 * GROUP[:, None], np.ones((24, 1))])
Y = np.stack([GROUP, 1 - GROUP, (X[:, 0] > 1) * 1], 1)

FITTED = {
    "pmf": {"n_components": 2},
    "plsa": {"n_components": 2},
    "leml": {"n_components": 2},
}
EVERY = [(estimators, n) for n in dir(estimators)] + [(pairs, n) for n in dir(pairs)]


def made(name, **more):
    return getattr(estimators, name)(**FITTED[name], engine=FEW, random_state=3, **more)


def data_of(name):
    return {"pmf": (R, None), "plsa": (COUNTS, None), "leml": (X, Y)}[name]


@pytest.fixture(scope="module")
def model():
    return made("pmf").fit(RATINGS)


# ---------------------------------------------------------------------- from the registry


def test_every_method_has_an_estimator():
    assert dir(estimators) == sorted(REGISTRY)
    assert dir(pairs) == sorted(n for n, m in REGISTRY.items() if m.data is bf.Ratings)
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
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_compnents'"):
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
    tags = {name: get_tags(getattr(estimators, name)()) for name in REGISTRY}
    assert {n for n, t in tags.items() if t.input_tags.positive_only} == {
        "plsa",
        "mvplsa",
        "himls",
        "himlsd",
    }
    assert {n for n, t in tags.items() if t.input_tags.allow_nan} == set(dir(pairs))
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


# ---------------------------------------------------------------------- matrices with missing cells


def test_factors_and_their_names(model):
    assert model.embedding_.shape == (24, 2) and model.components_.shape == (2, 6)
    np.testing.assert_array_equal(model.components_, np.asarray(model.fit_.params.V).T)
    assert list(model.get_feature_names_out()) == ["pmf0", "pmf1"]
    found = clone(model).set_output(transform="pandas").fit_transform(RATINGS)
    assert list(found.columns) == ["pmf0", "pmf1"] and list(found.index) == PEOPLE
    np.testing.assert_allclose(found, model.transform(RATINGS), rtol=1e-6)


def test_cells_are_filled_in_and_observed_ones_kept(model):
    filled, sd = model.impute(RATINGS, return_std=True)
    hidden = np.isnan(R)
    np.testing.assert_array_equal(filled[~hidden], R[~hidden])
    assert (sd[hidden] > model.fit_.hyper.noise - 1e-6).all() and (sd[~hidden] == 0).all()
    sign = np.sign((2 * GROUP[:, None] - 1) * (2 * (np.arange(6) % 2) - 1))
    assert (np.sign(filled[hidden]) == sign[hidden]).mean() > 0.9
    everywhere = model.fit_.everywhere().mean
    np.testing.assert_allclose(filled[hidden], everywhere[hidden], atol=0.01)  # rows of training


def test_new_rows_one_row_and_other_columns(model):
    row = model.transform(RATINGS.iloc[[3]])
    np.testing.assert_allclose(row, model.transform(RATINGS)[[3]], rtol=1e-6)
    with pytest.raises(ValueError, match="X has 5 features, but pmf is expecting 6"):
        made("pmf").fit(R).transform(R[:, :5])
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(RATINGS.rename(columns={"e": "x"}))
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
        model.transform(RATINGS.iloc[:0])


def test_the_score_is_of_cells_that_were_held_out(model):
    noise = 0 * RATINGS + np.random.default_rng(1).normal(scale=3, size=R.shape)
    assert -2.2 < model.score(RATINGS) < 0 and model.score(noise) < -2.5
    good, bad = made("pmf"), made("pmf", noise=100.0)  # so much noise that nothing is learned
    assert cross_val_score(good, R, cv=3).mean() > cross_val_score(bad, R, cv=3).mean() + 1


def test_pipelines_take_the_factors():
    pipe = make_pipeline(made("pmf"), LogisticRegression())
    assert pipe.fit(R[:16], GROUP[:16]).score(R[16:], GROUP[16:]) == 1
    assert pipe.set_params(pmf__n_components=1).fit(R, GROUP).score(R, GROUP) == 1
    assert list(pipe[:-1].get_feature_names_out()) == ["pmf0"]


def test_grids_are_searched_over_rows():
    search = GridSearchCV(made("pmf"), {"noise": [0.8, 100.0]}, cv=3).fit(R)
    assert search.best_params_ == {"noise": 0.8}
    assert search.transform(R).shape == (24, 2)


def test_fitted_estimators_are_pickled(model):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(RATINGS), model.transform(RATINGS))
    assert again.fit_.method is model.fit_.method


def test_draws_have_no_factors_but_predict():
    own = made("pmf").set_params(engine=bf.Gibbs(warmup=5, draws=5, chains=1)).fit(R)
    with pytest.raises(AttributeError, match="Expected a point fit, got draws"):
        own.transform(R)
    assert not hasattr(own, "embedding_") and len(own.get_feature_names_out()) == 2
    filled, sd = own.impute(R, return_std=True)
    assert np.isfinite(filled).all() and (sd[np.isnan(R)] > 0).all()


def test_a_scale_is_named_or_found():
    levels = np.clip(np.round(R), -2, 2)
    levels[0, 0] = 0
    few = bf.LBFGS(max_iter=10)
    found = estimators.mmmf(n_components=1, engine=few, random_state=0).fit(levels)
    assert found.fit_.data.levels == (-2, -1, 0, 1, 2)
    filled = found.impute(levels)
    assert (np.abs(filled) <= 2).all()
    named = estimators.mmmf(n_components=1, engine=few, levels=5, random_state=0).fit(levels + 3)
    assert named.fit_.data.levels == (1, 2, 3, 4, 5)
    np.testing.assert_allclose(named.embedding_, found.embedding_, rtol=1e-5)
    with pytest.raises(ValueError, match="Expected one of the levels"):
        named.transform(levels)
    with pytest.raises(ValueError, match="at most 100 levels in X, got 144 distinct values"):
        found.set_params().fit(np.arange(144.0).reshape(24, 6))


def test_what_cannot_take_new_rows_has_no_transform():
    for name in ("gibbs_mmmf", "ltm", "concat_ltm", "mggm"):
        kind = getattr(estimators, name)
        assert not hasattr(kind, "transform") and hasattr(kind, "fit_transform")
    found = estimators.ltm(n_components=2, engine=FEW, random_state=0).fit_transform(COUNTS)
    assert (found.argmax(1) == found.argmax(1)[0])[GROUP == 0].all()
    assert found.argmax(1)[0] != found.argmax(1)[1]


# ---------------------------------------------------------------------- topics


def test_shares_of_topics():
    own = made("plsa").fit(COUNTS)
    shares = own.transform(COUNTS)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(own.components_.sum(1), 1, rtol=1e-6)
    assert len(set(shares.argmax(1)[GROUP == 0])) == 1 and shares[0].argmax() != shares[1].argmax()
    logs = np.log(np.maximum(shares @ own.components_, 1e-300))
    np.testing.assert_allclose(own.score(COUNTS), (COUNTS * logs).sum() / COUNTS.sum(), rtol=1e-6)
    assert own.score(sp.csr_matrix(COUNTS)) == pytest.approx(own.score(COUNTS))
    with pytest.raises(ValueError, match="contains NaN"):
        own.fit(R)
    with pytest.raises(ValueError, match="Negative values in data passed to plsa"):
        own.fit(-COUNTS)


@pytest.mark.slow
def test_a_grid_of_topics():
    search = GridSearchCV(made("plsa"), {"n_components": [1, 2]}, cv=2).fit(COUNTS)
    assert search.best_params_ == {"n_components": 2}


def test_several_views():
    tables = {"left": COUNTS[:, :4], "right": sp.csr_matrix(COUNTS[:, 4:])}
    own = estimators.mvplsa(n_components=2, n_topics=2, engine=FEW, random_state=0)
    shares = own.fit(tables).transform(tables)
    assert shares.shape == (24, 2) and own.n_features_in_ == 6
    assert {name: c.shape for name, c in own.components_.items()} == {
        "left": (2, 4),
        "right": (2, 2),
    }
    one = {name: x[[5]] for name, x in tables.items()}
    np.testing.assert_allclose(own.transform(one), shares[[5]], atol=1e-6)
    listed = clone(own).fit(list(tables.values()))
    np.testing.assert_allclose(listed.transform(list(tables.values())), shares, rtol=1e-6)
    with pytest.raises(ValueError, match=r"Expected the views \['left', 'right'\] of training"):
        own.transform({"left": COUNTS[:, :4]})
    with pytest.raises(
        ValueError, match="Expected the 2 columns of 'right' in training, got others"
    ):
        own.transform(tables | {"right": COUNTS[:, 3:]})


def test_a_table_with_two_levels_of_columns_is_split_row_by_row():
    table = pd.concat({"l": pd.DataFrame(COUNTS[:, :4]), "r": pd.DataFrame(COUNTS[:, 4:])}, axis=1)
    own = estimators.mvplsa(n_topics=2, engine=FEW, random_state=0)
    search = GridSearchCV(own, {"n_components": [1, 2]}, cv=2).fit(table)
    assert search.best_params_ == {"n_components": 2}
    pipe = make_pipeline(search.best_estimator_, LogisticRegression())
    assert pipe.fit(table, GROUP).score(table, GROUP) == 1


# ---------------------------------------------------------------------- labels


def test_labels_of_new_rows():
    own = made("leml").fit(X[:18], Y[:18])
    found, sd = own.predict(X[18:], return_std=True)
    chance = own.predict_proba(X[18:])
    np.testing.assert_array_equal(found, chance > 0.5)
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


def test_an_intercept():
    away = X[:, :3] + 50.0
    bare, own = (estimators.lsml(constant=c) for c in (False, True))
    assert own.fit(away, Y).fit_.data.coords["feature.x"].size == 4
    assert bare.fit(away, Y).fit_.data.coords["feature.x"].size == 3


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
    np.testing.assert_allclose(own.predict_proba(X[[20]]), chance[[2]], atol=1e-3)
    assert own.score(X[18:], Y[18:]) >= 0.5


def test_several_views_with_labels():
    tables = {"left": X[:, :2] - X.min(), "right": X[:, 2:] - X.min()}
    own = estimators.heres(n_components=2, engine=FEW, random_state=0).fit(tables, Y)
    assert own.predict(tables).shape == (24, 3) and own.score(tables, Y) > 0.4
    one = {name: x[[7]] for name, x in tables.items()}
    np.testing.assert_allclose(own.predict_proba(one), own.predict_proba(tables)[[7]], atol=1e-6)


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
        search = GridSearchCV(own, {"noise": [0.8, 100.0]}, cv=3, scoring=scoring).fit(X_, y)
        assert search.best_params_ == {"noise": 0.8}


def test_pairs_that_are_none():
    own = pairs.pmf(n_components=1)
    with pytest.raises(ValueError, match=r"Expected X as pairs \(user, item\), got 3 columns"):
        own.fit(np.ones((4, 3)), np.ones(4))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        own.fit([[0, 1], [1, 0]], [1.0])
    with pytest.raises(ValueError, match="Expected finite ratings, got nan in row 1"):
        own.fit([[0, 1], [1, 0]], [1.0, np.nan])
    with pytest.raises(ValueError, match="Expected one rating per user and item, got a second"):
        own.fit([[0, 1], [0, 1]], [1.0, 2.0])
