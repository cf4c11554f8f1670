"""Attitude: its objective by loops, the product of experts, and what it predicts."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.method import REGISTRY
from bayesfac.report.diagnostics.align import align_draws

ATTITUDE = REGISTRY["attitude"]


def case():
    """The example and a point with biases in it."""
    data, h = ATTITUDE.example(jax.random.key(3))
    p = ATTITUDE.init(jax.random.key(4), data, h)
    kb, kc = jax.random.split(jax.random.key(5))
    bias = jax.random.normal(kb, p.bias.shape)
    return data, h, p._replace(bias=bias, bias_user=jax.random.normal(kc, p.bias_user.shape))


def golden(method):
    """The objective on the example, rating by rating, and its slope by differences."""
    data, h, p = case()
    A, B, b, c = map(np.array, p)
    codes = np.searchsorted(data.levels, data.value)

    def by_hand(A, B, b, c):
        total = 0.5 * (np.sum(A**2) + np.sum(B**2) / h.scale**2)
        total += 0.5 * (np.sum(b**2) + np.sum(c**2)) / h.scale_bias**2
        for i, j, r in zip(data.user, data.item, codes, strict=True):
            x = [b[s, j] + c[s, i] + sum(A[i, k] * B[s, j, k] for k in range(2)) for s in range(4)]
            total -= x[r] - np.log(sum(np.exp(x)))
        return total

    np.testing.assert_allclose(method.objective(p, data, h), by_hand(A, B, b, c), rtol=1e-12)
    slope = jax.grad(method.objective)(p, data, h)
    step = [1e-5 * np.random.default_rng(0).normal(size=x.shape) for x in (A, B, b, c)]
    ends = [
        by_hand(*(x + sign * d for x, d in zip((A, B, b, c), step, strict=True)))
        for sign in (1, -1)
    ]
    expected = sum(np.sum(g * d) for g, d in zip(slope, step, strict=True))
    np.testing.assert_allclose((ends[0] - ends[1]) / 2, expected, rtol=1e-6)


def test_golden_objective():
    golden(ATTITUDE)


def test_every_attitude_is_an_expert_and_the_rating_is_their_product():
    """P(y | all) is in proportion to the product of what each attitude says alone."""
    data, h, p = case()
    every = Grid(np.arange(7), np.arange(5))

    def says(A, of):
        q = p._replace(A=A, bias=of * p.bias, bias_user=of * p.bias_user)
        return np.asarray(ATTITUDE.predict(q, every, h).probs)

    product = says(np.zeros_like(p.A), 1)
    for k in range(2):
        product = product * says(p.A * (np.arange(2) == k), 0)
    product /= product.sum(-1, keepdims=True)
    np.testing.assert_allclose(says(p.A, 1), product, rtol=1e-10)


def test_a_score_that_all_levels_share_cancels():
    """Predictions do not see it; the prior does, and is least where the scores sum to zero."""
    data, h, p = case()
    every = Grid(np.arange(7), np.arange(5))
    shifted = {n: getattr(p, n) - getattr(p, n).mean(0) for n in ("B", "bias", "bias_user")}
    shifted = p._replace(**shifted)
    one, other = (np.asarray(ATTITUDE.predict(q, every, h).probs) for q in (p, shifted))
    np.testing.assert_allclose(one, other, rtol=1e-10)
    assert ATTITUDE.objective(shifted, data, h) < ATTITUDE.objective(p, data, h) - 0.1


def polarised(seed=0):
    """Ratings of 90 users on 20 items: one taste sends some users up where it sends others down, and a
    second one to the ends of the scale instead of its middle."""
    rng = np.random.default_rng(seed)
    A, V = rng.normal(size=(90, 2)), 1.5 * rng.normal(size=(20, 2))
    shape = np.array([[-2, -1, 0, 1, 2], [1, -0.5, -1, -0.5, 1]])
    x = np.einsum("ik,jk,kr->ijr", A, V, shape)
    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    value = 1.0 + np.sum(np.cumsum(p, -1)[..., :-1] < rng.random((90, 20, 1)), -1)
    return bf.Ratings(np.where(rng.random((90, 20)) < 0.7, value, np.nan), levels=5)


def test_it_predicts_better_than_shares_of_levels():
    """Of all ratings, or of those of the same item: what a user holds is worth knowing. The gain asked
    for is two standard errors: 250 ratings are held out, and the sd of their scores is about 1."""
    train, test = bf.split.holdout(polarised(), 0.2, seed=0)
    code, truth = train.value.astype(int) - 1, test.value.astype(int) - 1
    counts = np.ones((20, 5))
    np.add.at(counts, (train.item, code), 1)
    share, own = counts.sum(0) / counts.sum(), counts / counts.sum(1, keepdims=True)
    blind = max(np.log(share[truth]).mean(), np.log(own[test.item, truth]).mean())
    engine = bf.LBFGS(max_iter=100, tol=1e-6)
    fit = bf.fit("attitude", train, engine, n_components=2, scale=1.0, progress=False)
    assert fit.predict(test).scores(test.value)["log_score"].mean() > blind + 0.12


def test_new_users_and_items_are_prior_draws():
    """Against many draws of what is new, with preferences as wide as the scores themselves."""
    _, h, p = case()
    h = h._replace(scale=2.0, scale_bias=3.0)
    query = Query(np.array([-1, 2, -1]), np.array([1, -1, -1]))
    found = np.asarray(ATTITUDE.predict(p, query, h).probs)
    rng, n = np.random.default_rng(0), 200_000
    for row, col, mine in zip(query.row, query.col, found, strict=True):
        a = rng.normal(size=(n, 2)) if row < 0 else np.asarray(p.A[row])[None]
        c = 3 * rng.normal(size=(n, 4)) if row < 0 else np.asarray(p.bias_user[:, row])[None]
        B = 2 * rng.normal(size=(n, 4, 2)) if col < 0 else np.asarray(p.B[:, col])[None]
        b = 3 * rng.normal(size=(n, 4)) if col < 0 else np.asarray(p.bias[:, col])[None]
        x = b + c + (a[:, None] * B).sum(-1)
        x = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(mine, (x / x.sum(1, keepdims=True)).mean(0), atol=0.02)


def test_turned_draws_are_turned_back():
    """The report turns the users' attitudes to one frame, and the preferences with them."""
    data, h, p = case()
    turns = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2, 2)))[0]
    draws = {"A": (p.A @ turns)[None], "B": (p.B @ turns[:, None])[None]}
    found = align_draws(draws, ATTITUDE.axes.gauge, p).draws
    for name, point in (("A", p.A), ("B", p.B)):
        np.testing.assert_allclose(
            found[name], np.broadcast_to(point, found[name].shape), atol=1e-10
        )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scale": 0.0}, "scale to be a finite number above 0"),
        ({"scale_bias": -1.0}, "scale_bias to be a finite number above 0"),
        ({"n_components": 6}, "n_components between 1 and 5"),
        ({"levels": (1.0, 2.0)}, "Expected the levels of the data"),
    ],
)
def test_what_is_refused(settings, said):
    data, _ = ATTITUDE.example(jax.random.key(0))
    with pytest.raises(ValueError, match=said):
        ATTITUDE.prepare(data, ATTITUDE.Hyper(**{"n_components": 2, **settings}))


@pytest.mark.parametrize(
    ("levels", "value", "said"), [(None, 1.5, "ordinal ratings"), (5, 4.0, "at least two levels")]
)
def test_data_without_an_order_are_refused(levels, value, said):
    data = bf.Ratings(np.full((3, 3), value), levels=levels)
    with pytest.raises(ValueError, match=f"Expected .*{said} for attitude"):
        bf.fit("attitude", data, n_components=2, progress=False)
