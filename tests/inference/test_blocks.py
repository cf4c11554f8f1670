"""Blocks of draws: none is read before the work on the last is done, or `memory=` would bound nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import bayesfac as bf
from bayesfac.inference.predictions import by_draw, predict
from bayesfac.report.diagnostics import loo, sensitivity


@jax.jit
def late(x):
    """The same a good while later: on a busy machine every answer is."""
    start = jnp.ones((200, 200)) + 0 * jnp.sum(x)
    return x + 0 * jax.lax.fori_loop(0, 60, lambda _, a: a @ a / 200, start)[0, 0]


@pytest.fixture(scope="module")
def data():
    table = np.random.default_rng(0).integers(1, 4, (8, 6)).astype(float)
    return bf.Ratings(table, levels=3)


@pytest.fixture(scope="module")
def fit(data):
    return bf.fit("bpmf", data, bf.Gibbs(5, 15, 2), n_components=2, progress=False)


ASKED = {
    "predictions": (by_draw, by_draw, "_averages", lambda fit, data: fit.predict(data).mean),
    "levels": (by_draw, by_draw, "_averages", lambda fit, data: fit.predict(data).probabilities),
    "users": (loo, loo, "_marginal", lambda fit, data: fit.loo(data, by="user")),
    "priors": (sensitivity, sensitivity, "_by_site", lambda fit, data: fit.sensitivity(data)),
}


@pytest.mark.filterwarnings("ignore")  # thirty draws are too few for anything else
@pytest.mark.parametrize("what", ASKED)
def test_the_next_block_waits(fit, data, what, monkeypatch):
    reader, worker, name, ask = ASKED[what]
    work, read, made, early = getattr(worker, name), by_draw.param_blocks, [], []

    def slow(*args):
        made.append(jax.tree.map(late, work(*args)))
        return made[-1]

    def one_by_one(method, draws, width, memory):
        for params in read(method, draws, width, 1):
            early.extend(x for x in jax.tree.leaves(made) if not x.is_ready())
            yield params

    monkeypatch.setattr(worker, name, slow)
    monkeypatch.setattr(reader, "param_blocks", one_by_one)
    ask(fit, data)
    assert len(made) >= 30
    assert not early


def test_blocks_of_cells_fit_in_the_memory_and_change_no_mean(fit, data):
    """Equally long blocks: the last one has at most one cell of padding for each of the others."""
    whole, parts = fit.predict(data), fit.predict(data)
    parts.memory = 16 * 15 * 4 * 10  # four arrays of ten cells, for the fifteen draws of a chain
    width, cells = parts._width(4, kept=0), len(parts)
    blocks = -(-cells // width)
    assert cells > 40 and width <= 10 and blocks * width - cells < blocks
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.sd, whole.sd, rtol=1e-12)
    # what is kept of both chains until the end counts for both
    assert parts._width(0, kept=4) <= 5
    np.testing.assert_allclose(parts.draws_of_mean(), whole.draws_of_mean(), rtol=1e-12)
    assert len(fit.predict(data.frame()[:0]).mean) == 0


@pytest.fixture(scope="module")
def mixed(data):
    """A query with labels that training never saw between the others."""
    frame = data.frame()[["user", "item"]].reset_index(drop=True)
    frame.loc[::5, "user"] = 99
    frame.loc[3::7, "item"] = 99
    return frame


def test_results_have_the_order_of_the_query(fit, mixed):
    """Cells with new labels are computed after the others."""
    whole = fit.predict(mixed)
    assert 5 < whole.flagged.sum() < len(mixed) - 5
    for part in (mixed[whole.flagged], mixed[~whole.flagged]):
        alone = fit.predict(part)
        for name in ("mean", "sd", "probabilities", "votes"):
            found = getattr(whole, name)[part.index]
            np.testing.assert_allclose(found, getattr(alone, name), rtol=1e-10)
        expected = whole.draws_of_mean()[..., part.index]
        np.testing.assert_allclose(alone.draws_of_mean(), expected, rtol=1e-10)


def test_moments_and_masses_are_those_of_all_draws(fit, data, mixed):
    """They are sums over blocks of draws, for cells in blocks of ten."""
    prediction = fit.predict(mixed)
    prediction.memory = 16 * 15 * 4 * 10
    draws = prediction.draws_of_mean()
    np.testing.assert_allclose(prediction.mean, draws.mean((0, 1)), rtol=1e-10)
    np.testing.assert_allclose(prediction.sd_mean, draws.std((0, 1)), rtol=1e-10)
    noise = prediction.sd**2 - prediction.sd_mean**2  # for known cells that of the ratings only
    alpha = fit.draws["alpha"]
    known = ~prediction.flagged
    np.testing.assert_allclose(noise[known], (1 / alpha).mean(), rtol=1e-10)
    ends = np.array([-np.inf, 1.5, 2.5, np.inf])[:, None, None, None]
    below = norm.cdf((ends - draws) * alpha[..., None] ** 0.5)
    expected = np.diff(below, axis=0).mean((1, 2)).T
    np.testing.assert_allclose(prediction.probabilities[known], expected[known], atol=1e-10)
    votes = np.stack([(draws <= 1.5), (draws > 1.5) & (draws <= 2.5), (draws > 2.5)])
    np.testing.assert_allclose(prediction.votes, votes.mean((1, 2)).T)


def test_parts_of_draws_are_consecutive_and_equally_long(fit, data):
    """Two chains of fifteen draws: five parts of each, as four do not divide fifteen."""
    prediction = fit.predict(data)
    expected = prediction.draws_of_mean().reshape(10, 3, -1).mean(1)
    groups = [[0, 1], [2], [3], [4], [5, 6], [7], [8], [9]]  # at least eight parts are asked for
    joined = [expected[group].mean(0) for group in groups]
    np.testing.assert_allclose(prediction.means_of_parts, joined, rtol=1e-10)


def test_replicates_follow_the_predictive_distribution(fit, data, monkeypatch):
    monkeypatch.setattr(predict, "REPLICATES", 4000)
    monkeypatch.setattr(predict, "SHOWN", 12)
    prediction = fit.predict(data)
    cells, drawn = prediction.replicates
    assert drawn.shape == (4000, 12) and len(set(cells)) == 12
    error = (drawn.mean(0) - prediction.mean[cells]) / prediction.sd[cells]
    assert np.abs(error).max() < 0.1  # 2,010 outcomes of each cell were simulated: one sd is .03
    np.testing.assert_allclose(drawn.std(0), prediction.sd[cells], rtol=0.1)
