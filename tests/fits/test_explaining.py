"""What a user's ratings add to a prediction."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, UnknownName
from bayesfac.core.method import from_sites
from bayesfac.fits import explaining

TABLE = bf.datasets.make_gaussian(30, 20, 2, noise=0.3, seed=0)[0]
RNG = np.random.default_rng(0)
FEATURED = bf.Ratings(TABLE, user_features=pd.DataFrame(RNG.normal(size=(30, 2)), TABLE.users))
MODELS = {
    "bpmf": ("bpmf", TABLE),
    "pmf": ("pmf", TABLE),
    "biases": (bf.factorization(bf.Relevance(), bf.Spherical(), biases=True), TABLE),
    "per_item": (bf.factorization(observed=bf.Normal(per="item")), TABLE),
    "per_user": (bf.factorization(observed=bf.Normal(per="user"), biases=True), TABLE),
    "features": ("bpmf", FEATURED),
    "machine": ("fm", TABLE),
}


@pytest.mark.parametrize("name", MODELS)
def test_parts_add_up_to_the_mean_of_the_conditional(name):
    """The mean of the user's row given all else, by the conditional of the record, times the item's row."""
    method, data = MODELS[name]
    fit = bf.fit(method, data, bf.Gibbs(5, 4, 2), n_components=2, progress=False)
    trained = data.encoded(fit.data.encodings, ("user",)) if fit.data.encodings else data
    table = fit.explain(data, 3, 5)
    user, item = data.users.get_loc(3), data.items.get_loc(5)
    expected = []
    for chain in range(2):
        for draw in range(4):
            p = from_sites(
                fit.method, {s: jnp.asarray(x[chain, draw]) for s, x in fit.draws.items()}
            )
            law = fit.method.gibbs.conditionals["U"](p, trained, fit.hyper)
            mean = jnp.asarray(law.mean)[user] @ p.V[item] + getattr(fit.hyper, "offset", 0.0)
            for side, at in (("bias_user", user), ("bias_item", item)):
                own = getattr(p, side, None)
                mean += 0.0 if own is None else own[at]
            expected.append(float(mean))
    assert table["adds"].sum() == pytest.approx(np.mean(expected), rel=1e-6)
    assert table.attrs["prediction"] == table["adds"].sum()
    assert (table["sd"] > 0).sum() >= 5
    assert set(table.loc[table["what"] == "rating", "label"]) == set(
        data.items[data.item[data.user == user]]
    )


def test_what_a_point_expects_is_explained():
    fit = bf.fit("bpmf", TABLE, bf.FixedPoint(tol=1e-12), n_components=2, progress=False)
    table = fit.explain(TABLE, 3, 5)
    assert table["adds"].sum() == pytest.approx(fit.predict(([3], [5])).mean[0], abs=1e-5)
    assert (table["sd"] == 0).all()


def test_a_rating_adds_in_proportion_to_what_it_exceeds_a_usual_one():
    """A rating that is one higher adds its weight: the weights are the derivatives of the row's mean."""
    fit = bf.fit("bpmf", TABLE, bf.Gibbs(5, 3, 1), n_components=2, progress=False)
    user, cell = 3, int(np.flatnonzero(TABLE.user == 3)[2])
    value = TABLE.value.copy()
    value[cell] += 1
    more = bf.Ratings(TABLE.users[TABLE.user], TABLE.items[TABLE.item], value)
    tables = [fit.explain(data, TABLE.users[user], 5) for data in (TABLE, more)]
    rated = [table[table["what"] == "rating"].set_index("label")["adds"] for table in tables]
    change = (rated[1] - rated[0]).abs()
    assert change.idxmax() == TABLE.items[TABLE.item[cell]]
    assert change.sort_values().iloc[-2] == pytest.approx(0, abs=1e-6)


def test_directions_agree_with_fits_to_other_ratings():
    """Where a rating of the user is one higher, the prediction of a new fit moves as its weight says."""
    data = bf.datasets.make_gaussian(150, 60, 2, noise=0.5, seed=0)[0]
    point = bf.FixedPoint(tol=1e-8)

    def fitted(ratings):
        return bf.fit("bpmf", ratings, point, n_components=2, progress=False)

    fit, user = fitted(data), data.users.get_loc(3)
    usual, table = fit.predict(([3], [5])).mean[0], fit.explain(data, 3, 5)
    rated = table[table["what"] == "rating"].set_index("label")["adds"]
    moved, expected = [], []
    for cell in np.flatnonzero(data.user == user)[:6]:
        value = data.value + (np.arange(len(data)) == cell)
        more = bf.Ratings(data.users[data.user], data.items[data.item], value)
        moved.append(fitted(more).predict(([3], [5])).mean[0] - usual)
        after = fit.explain(more, 3, 5)
        label = data.items[data.item[cell]]
        expected.append(after.set_index("label")["adds"][label] - rated[label])
    assert np.corrcoef(moved, expected)[0, 1] > 0.95


def test_the_picture_has_a_bar_for_each_part():
    fit = bf.fit("bpmf", TABLE, bf.Gibbs(10, 10, 1), n_components=2, progress=False)
    axes = fit.plot.explain(TABLE, 3, 5)
    rated = int((TABLE.user == TABLE.users.get_loc(3)).sum())
    assert len(axes.patches) == 1 + min(rated, 12) + (rated > 12)
    assert axes.get_xlabel() == "adds to the prediction"
    plt.close(axes.figure)


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("mmmf", "not made of parts"),
        (bf.factorization(observed=bf.StudentT()), "not linear in the values"),
        (bf.factorization(bf.NonNegative()), "not normal"),
        (bf.factorization(bf.RandomWalk()), "depend on one another"),
    ],
)
def test_other_models_are_refused(method, why):
    data = bf.datasets.load("ratings") if method == "mmmf" else TABLE
    fit = bf.fit(method, data, n_components=1, progress=False)
    with pytest.raises(BayesfacError, match=why):
        fit.explain(data, 3, 5)


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ((TABLE, 99, 5), UnknownName, "Expected user to be a label of training, got 99"),
        ((TABLE, 3, "none"), UnknownName, "Expected item to be a label of training, got 'none'"),
        ((TABLE.take(TABLE.user != 3), 3, 5), ValueError, "Expected the .* ratings of user 3"),
        ((bf.Ratings([1], [1], [1.0]), 3, 5), ValueError, "got other labels of users"),
    ],
)
def test_other_data_and_labels_are_refused(asked, error, says):
    fit = bf.fit("bpmf", TABLE, n_components=1, progress=False)
    with pytest.raises(error, match=says):
        fit.explain(*asked)


def test_programs_serve_users_with_other_numbers_of_ratings():
    before = explaining._of_draws._cache_size()
    fit = bf.fit("bpmf", TABLE, n_components=1, progress=False)
    tables = [fit.explain(TABLE, user, 5) for user in TABLE.users[:6]]
    assert len({len(table) for table in tables}) > 1
    assert explaining._of_draws._cache_size() == before + 1
