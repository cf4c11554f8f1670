"""E-MMMF: members are independent, bags are counted, votes are averaged."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import Grid
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings.emmmf import bags
from bayesfac.testing import CHECKS

EMMMF, MMMF = REGISTRY["emmmf"], REGISTRY["mmmf"]


def alone(h):
    """The settings of a member."""
    return MMMF.Hyper(
        **{name: getattr(h, name) for name in set(MMMF.Hyper._fields) & set(h._fields)}
    )


def golden(method):
    """J is the sum of the members' MMMF objectives."""
    data, h = EMMMF.example(jax.random.key(3))
    p = EMMMF.init(jax.random.key(4), data, h)
    single = alone(h)
    parts = [MMMF.objective(MMMF.Params(*(x[e] for x in p)), data, single) for e in range(2)]
    np.testing.assert_allclose(method.objective(p, data, h), sum(parts), rtol=1e-12)


def test_golden_objective():
    golden(EMMMF)


def ratings():
    return bf.datasets.make_ratings(40, 30, 2, density=0.5, seed=0, noise=0.5)


def test_a_bag_counts_ratings_and_belongs_to_its_seed():
    data = ratings()
    h = EMMMF.prepare(data, EMMMF.Hyper(2, members=50, bagging=True, bag_seed=3))
    weight = np.asarray(bags(data, h, jnp.arange(50)))
    assert weight.shape == (50, len(data))
    assert abs(weight.mean() - 1) < 0.02
    assert abs(weight.var() - 1) < 0.05
    np.testing.assert_array_equal(weight[[4, 7]], bags(data, h, jnp.array([4, 7])))
    assert (weight != bags(data, h._replace(bag_seed=4), jnp.arange(50))).any()


def test_a_bag_is_the_data_with_ratings_repeated():
    """A weight of 2 is the same as the loss counted twice, of 0 as a rating that is not there."""
    data = ratings()
    h = EMMMF.prepare(data, EMMMF.Hyper(2, members=1, bagging=True))
    p = EMMMF.init(jax.random.key(0), data, h)
    weight = np.asarray(bags(data, h, jnp.arange(1)))[0]
    single = alone(h)
    q = MMMF.Params(*(x[0] for x in p))
    order = np.lexsort((data.item, data.user))  # bags count cells row-major
    least = MMMF.objective(q, data.take(order[weight > 0]), single)
    twice = [
        MMMF.objective(q, data.take(order[weight > n]), single) - rest(q, single) for n in range(1, 9)
        if (weight > n).any()
    ]  # fmt: skip
    np.testing.assert_allclose(EMMMF.objective(p, data, h), least + sum(twice), rtol=1e-10)


def rest(q, h):
    ridge = 0.5 * h.penalty * (jnp.sum(q.U**2) + jnp.sum(q.V**2))
    ridge += 0.5 * jnp.sum((q.bias_item / h.scale_bias) ** 2)
    return ridge + 0.5 * jnp.sum(((q.theta - jnp.array(h.centres)) / h.scale_theta) ** 2)


def test_the_ensemble_says_the_mean_of_its_members():
    data = ratings()
    fit = bf.fit("emmmf", data, n_components=2, members=3, penalty=1.0, progress=False)
    assert fit.converged
    grid = Grid(np.arange(40), np.arange(30))
    single = alone(fit.hyper)
    each = [MMMF.predict(MMMF.Params(*(x[e] for x in fit.params)), grid, single) for e in range(3)]
    said = EMMMF.predict(fit.params, grid, fit.hyper)
    np.testing.assert_allclose(said.probs, np.mean([m.probs for m in each], 0), atol=1e-6)
    mean = np.mean([np.asarray(m.choice) for m in each], 0)
    np.testing.assert_array_equal(said.choice, np.rint(mean))
    assert len({float(jnp.sum(m.choice)) for m in each}) > 1  # they began elsewhere, and differ


def test_the_mean_of_uneven_levels_is_that_of_their_values():
    """One member says 0, the other 100: of 0, 1, 2, 60 and 100 the level nearest to 50 is 60."""
    x = jnp.array([-3.0, 3.0])
    p = EMMMF.Params(
        jnp.ones((2, 1, 1)), x[:, None, None], jnp.tile(jnp.arange(4.0) - 1.5, (2, 1, 1))
    )
    h = EMMMF.Hyper(
        1,
        penalty=1.0,
        members=2,
        levels=(0.0, 1.0, 2.0, 60.0, 100.0),
        centres=(0.0,) * 4,
        scale_bias=1.0,
    )
    assert EMMMF.predict(p, Grid(np.array([0]), np.array([0])), h).choice.tolist() == [[3]]


def test_bagging_has_no_minibatches():
    with pytest.raises(BayesfacError, match="minibatches"):
        options = {"n_components": 2, "members": 2, "bagging": True}
        bf.fit("emmmf", ratings(), bf.SVI(10, batch=5), progress=False, **options)


def test_one_member_predicts_by_the_law_of_its_ratings():
    """With several members the joint has their product, and predictions have their mean."""

    def one_member(key):
        data, h = EMMMF.example(key)
        return data, h._replace(members=1)

    one = replace(EMMMF, example=one_member)
    assert CHECKS["observed"](one, jax.random.key(0)) is None
