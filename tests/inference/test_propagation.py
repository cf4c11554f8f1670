"""Posterior propagation: laws of blocks, and their products."""

from unittest.mock import patch

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, laws_of
from bayesfac.inference.propagation import beliefs, blocks
from bayesfac.inference.propagation.beliefs import Belief
from bayesfac.inference.propagation.cutting import cut, groups
from bayesfac.inference.propagation.stages import BlockData, kinds, natural, prior_of, propagated

HOW = {"n_components": 2, "progress": False}
ENGINE = bf.Blocks(2, 2, 40, 60, 2)


def data(seed: int = 0) -> bf.Ratings:
    return bf.datasets.make_gaussian(30, 24, 2, density=0.6, noise=0.5, seed=seed)[0]


def random_belief(rng: np.random.Generator, n: int, K: int) -> Belief:
    half = rng.normal(size=(n, K, 3 * K))
    return Belief(half @ half.swapaxes(1, 2), rng.normal(size=(n, K)))


def test_groups_have_all_rows_once_and_about_equally_many_ratings() -> None:
    count = np.random.default_rng(0).geometric(0.02, 50)
    found = groups(count, 4, "users")
    assert sorted(np.concatenate(found)) == list(range(50))
    sizes = [count[part].sum() for part in found]
    assert max(sizes) - min(sizes) <= 2 * count.max()
    assert count[found[0]].min() >= count[found[-1]].max()
    assert [len(part) for part in groups(np.array([9, 0, 0]), 3, "users")] == [1, 1, 1]
    with pytest.raises(BayesfacError, match="at most 3 groups of items, got 4"):
        groups(np.ones(3), 4, "items")


def test_blocks_hold_every_rating_once() -> None:
    ratings = data()
    sides = {side: groups(ratings.per_row(side), 3, side) for side in ("user", "item")}
    found = cut(ratings, sides)
    frames = [block.frame() for block in found.values()]
    whole = ratings.frame().sort_values(["user", "item"]).to_numpy()
    parts = np.concatenate([frame.to_numpy() for frame in frames])
    np.testing.assert_array_equal(parts[np.lexsort(parts[:, 1::-1].T)], whole)
    one = bf.Ratings([0, 1, 0], [0, 0, 1], [1.0, 2.0, 3.0])
    alone = cut(
        one, {"user": [np.array([0]), np.array([1])], "item": [np.array([0]), np.array([1])]}
    )
    assert set(alone) == {(0, 0), (0, 1), (1, 0)}
    with pytest.raises(BayesfacError, match=r"got none in block \(1, 2\)"):
        cut(one, {"user": [np.array([1]), np.array([0])], "item": [np.array([0]), np.array([1])]})


def test_a_row_that_learns_block_by_block_knows_what_all_ratings_say() -> None:
    """With the other factor held, laws of u_i, of its bias and of the noise are those of all ratings at once:
    no approximation is in the algebra."""
    with jax.enable_x64(True):
        ratings = data()
        users, items = np.arange(30), np.arange(24)
        first, second = (ratings.within(users, part) for part in (items[:10], items[10:]))
        for name in ("bpmf", "pmf"):
            method = REGISTRY[name]
            hyper = method.prepare(ratings, method.Hyper(2))
            p = method.init(jax.random.key(0), ratings, hyper)
            parts = {"V": p.V[:10]}, {"V": p.V[10:]}
            if name == "pmf":
                one, two = p.bias_item[:10], p.bias_item[10:]
                parts[0]["bias_item"], parts[1]["bias_item"] = one, two
            before, after = (p._replace(**part) for part in parts)
            sites = ("U", "alpha") if name == "bpmf" else ("U", "bias_user")
            laws = laws_of(method, p)
            rows, more = {}, {}
            for site in sites:
                law = laws[site](before, first, hyper)
                if site == "U":
                    P = np.asarray(_precision(law))
                    rows[site] = Belief(P, np.einsum("nkl,nl->nk", P, law.mean))
                else:
                    prior = prior_of(method, site, before, first, hyper)
                    more[site] = Belief(*map(np.asarray, natural(law))).less(prior)
            known = BlockData(second, rows, more)
            for site in sites:
                mine = laws_of(propagated(method), p)[site](after, known, hyper)
                whole = laws[site](p, ratings, hyper)
                np.testing.assert_allclose(mine.mean, whole.mean, rtol=1e-8)
                if site == "U":
                    np.testing.assert_allclose(_precision(mine), _precision(whole), rtol=1e-8)
                else:
                    np.testing.assert_allclose(mine.variance, whole.variance, rtol=1e-8)


def _precision(law) -> np.ndarray:
    from bayesfac.core.kernels import sparse

    return sparse.normal_equations(*law._system)[0]


def test_products_divide_by_what_was_counted_several_times() -> None:
    """Prior times what each of four blocks says: the first block has the prior, the others its posterior."""
    rng = np.random.default_rng(0)
    for K in (None, 3):
        said = [random_belief(rng, 5, K or 1) for _ in range(4)]
        if K is None:
            said = [Belief(b.precision[:, 0, 0], b.shift[:, 0]) for b in said]
        first = said[0]
        later = [Belief(*(a + b for a, b in zip(first, one, strict=True))) for one in said[1:]]
        product = beliefs.combined(first, later)
        np.testing.assert_allclose(product.precision, sum(b.precision for b in said))
        np.testing.assert_allclose(product.shift, sum(b.shift for b in said))
        less = [Belief(0.4 * first.precision, first.shift)] * 3  # noise: would leave nothing
        kept = beliefs.combined(first, less).precision
        np.testing.assert_allclose(kept, beliefs.FLOOR * first.precision, rtol=1e-9)


def test_laws_with_one_mean_have_a_product_with_this_mean() -> None:
    """Also where noise in later precisions would leave too little of them, or less than nothing."""
    rng = np.random.default_rng(0)
    first = random_belief(rng, 5, 3)
    less = []
    for share in rng.uniform(0.2, 0.9, (2, 5, 3)):
        root = np.linalg.cholesky(first.precision)
        precision = (root * share[:, None]) @ root.swapaxes(1, 2)
        less.append(Belief(precision, (precision @ first.mean[..., None])[..., 0]))
    left = sum(one.precision for one in less) - first.precision
    assert np.linalg.eigvalsh(left).min() < 0
    np.testing.assert_allclose(beliefs.combined(first, less).mean, first.mean, rtol=1e-9)
    for shape in (np.float64(50), np.full(4, 50.0)):  # a Gamma law; biases
        one = Belief(shape, shape / 2)
        product = beliefs.combined(
            one, [Belief(0.6 * shape, 0.3 * shape), Belief(0.2 * shape, 0.1 * shape)]
        )
        np.testing.assert_allclose(product.shift / product.precision, 0.5, rtol=1e-9)


def test_moments_and_draws_of_beliefs() -> None:
    """Standard errors of the mean precision of 4,000 laws from 60 draws each: far below the 3 % allowed. The
    plain inverse would be 60/55 times too large."""
    rng = np.random.default_rng(0)
    law = random_belief(rng, 1, 3)
    many = Belief(*(np.repeat(x, 4000, 0) for x in law))
    draws = beliefs.sampled(many, 60, rng)
    found = beliefs.normal(draws)
    np.testing.assert_allclose(found.precision.mean(0), law.precision[0], rtol=0.03, atol=0.1)
    np.testing.assert_allclose(draws.mean((0, 1)), law.mean[0], atol=0.01)
    noise = beliefs.gamma(rng.gamma(40, 1 / 20, 100_000))
    np.testing.assert_allclose(noise, (40, 20), rtol=0.03)
    with pytest.raises(
        BayesfacError, match="at least 15 draws of a block for rows of 3 comp.*, got 9"
    ):
        beliefs.normal(draws[:9])


def test_draws_of_one_frame_are_found_again() -> None:
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(20, 3)), rng.normal(size=(30, 3))
    turns = np.linalg.qr(rng.normal(size=(40, 3, 3)))[0]
    noise = 0.01 * rng.normal(size=(40, 20, 3))
    found = beliefs.aligned({"U": (U + noise) @ turns, "V": V @ turns})
    assert found["U"].std(0).max() < 0.03
    assert found["V"].std(0).max() < 0.03
    np.testing.assert_allclose(found["U"].mean(0) @ found["V"].mean(0).T, U @ V.T, atol=0.05)


def test_kinds_of_sites_and_methods_that_cannot_hand_them_on() -> None:
    real = data()
    levels = np.round(real.value).clip(-2, 2)
    ratings = bf.Ratings(real.user, real.item, levels, levels=range(-2, 3))
    found = {}
    for name in ("bpmf", "pmf", "ordinal_mf"):
        method = REGISTRY[name]
        hyper = method.prepare(ratings, method.Hyper(n_components=2))
        found[name] = method, method.init(jax.random.key(0), ratings, hyper), ratings, hyper
    assert kinds(*found["bpmf"]) == dict(
        mu_U="after",
        Lambda_U="after",
        U="rows",
        mu_V="after",
        Lambda_V="after",
        V="rows",
        alpha="gamma",
    )
    assert kinds(*found["pmf"]) == dict(U="rows", V="rows", bias_user="biases", bias_item="biases")
    with pytest.raises(BayesfacError, match="ordinal_mf cannot run with Blocks"):
        bf.fit("ordinal_mf", ratings, bf.Blocks(), **HOW)


@pytest.fixture(scope="module")
def fits():
    ratings = data()
    engines = {"Gibbs": bf.Gibbs(200, 400, 2), "Blocks": bf.Blocks(2, 2, 200, 400, 2)}
    return {name: bf.fit("bpmf", ratings, engine, **HOW) for name, engine in engines.items()}


def test_predictions_are_near_those_of_gibbs(fits) -> None:
    """Means of all cells within half a posterior sd of Gibbs' on average; sds of the same size: an
    approximation, whose figures are on docs/machines.md."""
    everywhere = {name: fit.everywhere() for name, fit in fits.items()}
    long, ours = everywhere["Gibbs"], everywhere["Blocks"]
    gap = np.abs(np.asarray(ours.mean) - np.asarray(long.mean)) / np.asarray(long.sd)
    assert gap.mean() < 0.5
    assert 0.8 < np.median(np.asarray(ours.sd) / np.asarray(long.sd)) < 1.3
    fit = fits["Blocks"]
    assert any("an approximation" in note for note in fit.notes)
    assert {site: x.shape[:2] for site, x in fit.draws.items()} == dict.fromkeys(
        fits["Gibbs"].draws, (1, 800)
    )


@pytest.mark.slow
def test_the_same_draws_after_an_interruption(tmp_path) -> None:
    ratings, folder = data(), str(tmp_path)
    kept = bf.Blocks(2, 2, 40, 60, 2, folder=folder)
    here = bf.fit("bpmf", ratings, ENGINE, **HOW)
    with (
        patch.object(blocks.Plan, "draws", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        bf.fit("bpmf", ratings, kept, **HOW)
    (tmp_path / "block-1-1.npz").unlink()
    run = blocks.of_block
    with patch.object(blocks, "of_block", side_effect=run) as calls:
        again = bf.fit("bpmf", ratings, kept, **HOW)
    assert [call.args[1] for call in calls.call_args_list] == [(1, 1)]
    for site, x in here.draws.items():
        np.testing.assert_array_equal(again.draws[site], x)
    with pytest.raises(BayesfacError, match="Expected a folder of this run, got .*block-0-0.npz"):
        bf.fit("bpmf", ratings, kept, seed=1, **HOW)


@pytest.mark.slow
def test_other_processes_find_the_same_draws() -> None:
    ratings = data()
    here = bf.fit("pmf", ratings, ENGINE, noise=0.5, scale_user=1.0, scale_item=1.0, **HOW)
    two = bf.Blocks(2, 2, 40, 60, 2, jobs=2)
    there = bf.fit("pmf", ratings, two, noise=0.5, scale_user=1.0, scale_item=1.0, **HOW)
    for site, x in here.draws.items():
        np.testing.assert_array_equal(there.draws[site], x)


def test_what_blocks_cannot_do_is_refused() -> None:
    ratings = data()
    table = np.random.default_rng(0).normal(size=(30, 2))
    known = bf.Ratings(
        *(getattr(ratings, name) for name in ("user", "item", "value")), user_features=table
    )
    with pytest.raises(BayesfacError, match="without features and init"):
        bf.fit("bpmf", known, ENGINE, **HOW)
    with pytest.raises(BayesfacError, match="at least 12 draws of a block .*, got 8"):
        bf.fit("bpmf", ratings, bf.Blocks(2, 2, 2, 4, 2), **HOW)
    with pytest.raises(ValueError, match=r"Blocks\(rows=...\)"):
        bf.Blocks(0)
