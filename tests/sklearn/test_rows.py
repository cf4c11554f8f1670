"""Transformers: of matrices with missing cells, and of counts."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import bayesfac as bf
import bayesfac.sklearn as estimators
from tests.sklearn.company import COUNTS, FEW, GROUP, PEOPLE, RATINGS, R, made

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def model():
    return made("pmf").fit(RATINGS)


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
    assert model.score(noise) < model.score(RATINGS) - 0.5
    own = made("pmf", noise=1.0, scale_user=1.5, scale_item=1.5).fit(RATINGS)  # those of the data
    assert -1.5 < own.score(RATINGS) < -0.5 and own.score(noise) < -2.5
    good, bad = (
        made("pmf", biases=False),
        made("pmf", biases=False, noise=100.0),
    )  # so much noise that nothing is learned
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


def test_rows_of_views_may_share_a_label_as_those_of_one_matrix_may():
    table = pd.concat({"l": pd.DataFrame(COUNTS[:, :4]), "r": pd.DataFrame(COUNTS[:, 4:])}, axis=1)
    own = estimators.mvplsa(n_components=2, n_topics=2, engine=FEW, random_state=0).fit(table)
    np.testing.assert_allclose(own.transform(table.iloc[[3, 3]]), own.transform(table)[[3, 3]])


def test_rows_whose_labels_read_as_one_share_a_label():
    table = pd.DataFrame(COUNTS).set_axis([1, "1", *range(2, 24)])
    for name in ("plsa", "pmf"):
        assert made(name).fit(table).embedding_.shape == (24, 2)
    views = pd.concat({"l": table.iloc[:, :4], "r": table.iloc[:, 4:]}, axis=1)
    own = estimators.mvplsa(n_components=2, n_topics=2, engine=FEW).fit(views)
    assert len(own.transform(views)) == 24


def test_names_of_columns_are_forgotten_by_a_fit_to_views():
    own = estimators.mvplsa(n_components=2, n_topics=2, engine=FEW)
    own.fit(pd.DataFrame(COUNTS, columns=list("abcdef")))
    own.fit([COUNTS[:, :4], COUNTS[:, 4:]])
    assert own.n_features_in_ == 6 and not hasattr(own, "feature_names_in_")


def test_rows_without_words_may_be_all_rows():
    own = made("plsa").fit(COUNTS)
    np.testing.assert_allclose(own.transform(np.zeros((2, 6))), 0.5)


def test_rows_without_ratings_or_counts_may_be_all_rows():
    model = made("pmf").fit(R)
    none = np.full((2, 6), np.nan)
    beside = np.vstack([R[:1], none])
    np.testing.assert_allclose(model.transform(none), model.transform(beside)[1:], atol=1e-6)
    for empty in (none[:1], sp.csr_matrix((1, 6))):
        mean, sd = model.impute(empty, return_std=True)
        assert mean.shape == sd.shape == (1, 6) and np.isfinite(mean).all() and (sd > 0).all()
    assert np.isfinite(made("pmf").set_params(engine=bf.Gibbs(5, 5, 1)).fit(R).impute(none)).all()
    own = estimators.wrmf(n_components=2, engine=FEW, random_state=3).fit(COUNTS)
    np.testing.assert_allclose(own.transform(np.zeros((2, 6))), 0, atol=1e-6)
    with pytest.raises(ValueError, match="contains NaN"):
        own.transform(none)
    with pytest.raises(ValueError, match="at least one rating"):
        model.score(none)


# ---------------------------------------------------------------------- and back


def test_cells_come_back_from_factors(model):
    params = model.fit_.params
    Z = model.embedding_[:3]
    bias = params.bias_user.mean() + params.bias_item
    exact = model.fit_.hyper.offset + bias + Z @ params.V.T
    np.testing.assert_allclose(model.inverse_transform(Z), exact, rtol=1e-5)
    topics = made("plsa").fit(COUNTS)
    shares = topics.inverse_transform(topics.transform(COUNTS))
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(shares, topics.fit_.everywhere().mean, atol=0.02)
    with pytest.raises(ValueError, match="Z with 2 columns, got 3"):
        model.inverse_transform(np.ones((2, 3)))


def test_an_imputer_is_a_step_with_names():
    step = estimators.Imputer(made("pmf")).set_output(transform="pandas")
    filled = step.fit_transform(RATINGS)
    assert list(filled.columns) == list("abcdef") and list(filled.index) == PEOPLE
    np.testing.assert_array_equal(filled, step.estimator_.impute(RATINGS))
    pipe = make_pipeline(estimators.Imputer(made("pmf")), LogisticRegression())
    pipe.set_params(imputer__estimator__n_components=1).fit(R[:16], GROUP[:16])
    assert pipe.score(R[16:], GROUP[16:]) == 1
    with pytest.raises(TypeError, match="with impute, such as pmf"):
        estimators.Imputer(LogisticRegression()).fit(R)
