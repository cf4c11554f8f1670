"""Blocks of draws: none is read before the work on the last is done, or `memory=` would bound nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.inference.predictions import level_masses, predict
from bayesfac.report.diagnostics import loo_users, sensitivity


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
    "predictions": (predict, predict, "_predicted", lambda fit, data: fit.predict(data).mean),
    "levels": (predict, level_masses, "_tally", lambda fit, data: fit.predict(data).probabilities),
    "users": (loo_users, loo_users, "_marginal", lambda fit, data: fit.loo(data, by="user")),
    "priors": (sensitivity, sensitivity, "_by_site", lambda fit, data: fit.sensitivity(data)),
}


@pytest.mark.filterwarnings("ignore")  # thirty draws are too few for anything else
@pytest.mark.parametrize("what", ASKED)
def test_the_next_block_waits(fit, data, what, monkeypatch):
    reader, worker, name, ask = ASKED[what]
    work, read, made, early = getattr(worker, name), predict.param_blocks, [], []

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
    assert fit.predict(data.frame()[:0])._width(4, kept=1) == 1
