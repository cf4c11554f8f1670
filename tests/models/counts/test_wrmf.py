"""WRMF: one sweep on a whole table with its zeros, and what the paper and the library promise."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import Query
from bayesfac.core.method import REGISTRY
from bayesfac.inference.predictions import held_out
from bayesfac.inference.predictions.held_out import rank_loss

WRMF = REGISTRY["wrmf"]


def case():
    """The example, a start, and the whole tables of preferences and confidences."""
    data, h = WRMF.example(jax.random.key(3))
    p = WRMF.init(jax.random.key(4), data, h)
    wanted, sure = np.zeros(data.shape), np.ones(data.shape)
    wanted[data.user, data.item] = 1
    sure[data.user, data.item] += h.alpha * data.value
    return data, h, p, wanted, sure


def golden(method):
    """One sweep of ALS, row by row, with every zero in its place."""
    data, h, p, wanted, sure = case()
    U, V = np.array(p.U), np.array(p.V)
    for i in range(len(U)):  # (V' C V + lambda I) u = V' C p
        gram = (V.T * sure[i]) @ V + (h.noise / h.scale_user) ** 2 * np.eye(2)
        U[i] = np.linalg.solve(gram, (V.T * sure[i]) @ wanted[i])
    for j in range(len(V)):
        gram = (U.T * sure[:, j]) @ U + (h.noise / h.scale_item) ** 2 * np.eye(2)
        V[j] = np.linalg.solve(gram, (U.T * sure[:, j]) @ wanted[:, j])
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.U, U, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(new.V, V, rtol=1e-5, atol=1e-7)


def test_golden_step():
    with jax.enable_x64(True):
        golden(WRMF)


def test_the_objective_and_the_rows_of_a_table_whose_zeros_are_listed():
    """Where every pair is listed nothing is left to the sum over zeros."""
    with jax.enable_x64(True):
        data, h, p, wanted, sure = case()
        listed = data.with_table(data.dense(data.y))
        by_hand = (sure * (wanted - np.asarray(p.U @ p.V.T)) ** 2).sum() / h.noise**2
        by_hand += (p.U**2).sum() / h.scale_user**2 + (p.V**2).sum() / h.scale_item**2
        for each in (data, listed):
            np.testing.assert_allclose(WRMF.objective(p, each, h), by_hand / 2, rtol=1e-12)
        for one, other in zip(
            WRMF.solver.update(p, data, h), WRMF.solver.update(p, listed, h), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_confidence_has_the_spread_of_the_twin():
    """A pair that was not counted: the law of `predict` is that of the model."""
    data, h, p, _, sure = case()
    i, j = np.argwhere(sure == 1)[0]
    law = WRMF.predict(p, Query(np.array([i]), np.array([j])), h)
    np.testing.assert_allclose(law.mean[0], p.U[i] @ p.V[j], rtol=1e-6)
    np.testing.assert_allclose(law.variance, h.noise**2, rtol=1e-6)


def groups(seed=0):
    """Users of four groups: each sees a third of the items of its group, and few of all others."""
    rng = np.random.default_rng(seed)
    group, kind = np.arange(120) % 4, np.arange(80) % 4
    chance = np.where(group[:, None] == kind, 0.35, 0.02)
    return bf.Counts(rng.random(chance.shape) < chance), group, kind


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_it_recommends_from_the_users_group():
    """By chance one in four recommended items would be; with nothing set at least nine in ten are."""
    counts, group, kind = groups()
    fit = bf.fit("wrmf", counts, bf.FixedPoint(50), progress=False)
    found = fit.recommend(n=5, exclude=counts)
    right = kind[found["item"].to_numpy(int)] == group[found["user"].to_numpy(int)]
    assert right.mean() > 0.9
    own = WRMF.prepare(counts, WRMF.Hyper())  # with the lambda of the rule
    fit = bf.fit("wrmf", counts, bf.FixedPoint(50), progress=False, **own._asdict())
    used = np.linalg.svd(np.asarray(fit.params.U @ fit.params.V.T), compute_uv=False)
    assert used[3] > 10 * used[5]  # it switches off what is no group


def test_new_users_are_their_row_of_a_sweep():
    counts, *_ = groups()
    fit = bf.fit("wrmf", counts, bf.FixedPoint(400, tol=1e-12), n_components=4, progress=False)
    again = fit.fold_in(counts.of_users(0, 5))
    np.testing.assert_allclose(again.params.U, fit.params.U[:5], atol=2e-3)
    assert again.data.shape == (5, 80)


def test_zeros_are_data_of_the_posterior_too():
    """A user of few pairs has as many zeros as any other: the draws are no wider, as the header says."""
    counts, group, _ = groups()
    few = counts.take((counts.user > 0) | (counts.item % 16 == 0))
    fit = bf.fit("wrmf", few, bf.Gibbs(50, 100, 1), n_components=4, progress=False)
    sd = fit.everywhere().sd_mean
    assert 0.5 < sd[0].mean() / sd[group == 0][1:].mean() < 1.1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"alpha": 0.0}, "alpha to be"),
        ({"noise": -1.0}, "noise to be"),
        ({"n_components": 90}, "80"),
    ],
)
def test_what_is_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("wrmf", groups()[0], progress=False, **settings)


def test_counts_of_very_different_size():
    """In double precision, 1 + alpha y of the small counts rounds to one."""
    y = np.random.default_rng(0).poisson(1.0, (20, 8)).astype(float)
    y[0, 0] = 1e18
    fit = bf.fit("wrmf", bf.Counts(y), n_components=3, progress=False)
    assert np.isfinite(fit.trace[-1])


def popular(seed=0):
    """300 users of 150 items who differ in how much they take, from items that differ in how much they are
    taken: pairs for training, and others."""
    rng = np.random.default_rng(seed)
    share = np.outer(rng.gamma(1.0, size=300), rng.gamma(0.5, size=150) + 1e-3)
    cell = rng.choice(share.size, 4000, replace=False, p=share.ravel() / share.sum())
    user, item = np.divmod(cell, 150)
    test = rng.random(4000) < 0.2
    return bf.Counts((user[~test], item[~test])), user[test], item[test]


def test_pairs_that_only_show_popularity_get_a_larger_lambda():
    train, user, item = popular()
    own = WRMF.prepare(train, WRMF.Hyper())
    fit = bf.fit("wrmf", train, progress=False)
    scales = {"scale_user": own.scale_user, "scale_item": own.scale_item}
    before = bf.fit("wrmf", train, progress=False, **scales)
    assert fit.hyper.scale_user < 0.9 * own.scale_user
    assert fit.hyper.noise == own.noise and fit.hyper.alpha == own.alpha
    assert any("by the ranks of" in note for note in fit.notes)

    def gain(score):
        """Of other pairs, ranked among the items that their users do not have."""
        users, items = train.users.get_indexer(user), train.items.get_indexer(item)
        known = (users >= 0) & (items >= 0)
        score[train.user, train.item] = -np.inf
        ranks = 1 + np.sum(score[users[known]] > score[users[known], items[known]][:, None], 1)
        return np.mean(1 / np.log2(1 + ranks))

    popularity = np.tile(np.bincount(train.item, minlength=train.n_items), (train.n_users, 1))
    mine, old = (gain(np.array(f.params.U @ f.params.V.T)) for f in (fit, before))
    assert mine > old + 0.01
    assert mine > gain(popularity.astype(float)) - 0.005


@pytest.mark.parametrize("most", [1000, 20])
def test_the_loss_of_ranks_is_that_of_brute_force(most, monkeypatch):
    """Equal scores share their ranks, and items of the training part are left out."""
    monkeypatch.setattr(held_out, "USERS", most)
    train, held = bf.split.holdout(popular(1)[0], 0.2, seed=0)
    h = WRMF.prepare(train, WRMF.Hyper(3))
    p = WRMF.init(jax.random.key(0), train, h)
    p = p._replace(V=p.V.at[::3].set(0.0))  # a third of the items are equal
    found = rank_loss(WRMF, p, train, held, h, {})
    users = np.unique(held.user)
    if len(users) > most:
        users = np.random.default_rng(0).choice(users, most, replace=False)
    score, gains = np.array(p.U @ p.V.T), []
    score[train.user, train.item] = -np.inf
    for i, j in zip(held.user, held.item, strict=True):
        if i in users:
            above, equal = (score[i] > score[i, j]).sum(), (score[i] == score[i, j]).sum()
            gains.append(1 / np.log2(1 + above + (1 + equal) / 2))
    np.testing.assert_allclose(found, 1 - np.mean(gains), rtol=1e-5)


def weights(table, **given):
    data = bf.Counts(table)
    method = REGISTRY["wrmf"]
    hyper = method.prepare(data, method.Hyper(2, **given))
    return np.asarray(method.ready(data, hyper).weight), hyper


def test_confidence_grows_with_the_logarithm_of_counts_above_the_median():
    table = np.array([[1.0, 2, 0], [4, 1e6, 2], [0, 0, 3]])
    r = table[table > 0]
    c, hyper = weights(table)
    assert hyper.epsilon == 2.5
    np.testing.assert_allclose(c, 1 + hyper.alpha * 2.5 * np.log1p(r / 2.5), rtol=1e-6)
    assert c.max() < 20 * c.min()
    c, hyper = weights(table, epsilon=np.inf)
    np.testing.assert_allclose(c, 1 + hyper.alpha * r, rtol=1e-6)  # eq. 3
    c, hyper = weights(table, alpha=40.0)
    assert hyper.epsilon == np.inf and c.max() == pytest.approx(4e7, rel=1e-3)
    for epsilon in (0.1, 7.0, np.inf):  # equal counts have equal confidence
        c, _ = weights((table > 0) * 3.0, epsilon=epsilon)
        np.testing.assert_allclose(c, 1 + (3 / 6) ** 0.5, rtol=1e-6)
