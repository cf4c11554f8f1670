"""NUTS: what it keeps of its transitions, and when it stops to adapt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.inference import nuts
from tests.inference.test_engines import PRECISION


@pytest.mark.parametrize(("warmup", "draws", "thin"), [(30, 9, 2), (25, 20, 1), (7, 4, 11)])
def test_draws_are_every_so_manieth_step_after_the_warm_up(warmup, draws, thin):
    engine = bf.NUTS(warmup, draws, 1, thin=thin)
    after, kept = [], []
    for done in range(0, warmup + draws * thin, nuts.BLOCK):
        for found, new in zip((after, kept), engine._after(done), strict=True):
            found += (done + new).tolist()
    # steps are numbered from 0: the last one of the warm-up is warmup - 1
    assert after == list(range(warmup, warmup + draws * thin))
    assert kept == list(range(warmup + thin - 1, warmup + draws * thin, thin))


def test_a_thinned_draw_tells_of_the_steps_that_were_dropped():
    seen = {
        "diverging": np.array([[0, 1, 0, 0, 0, 0, 1]]),
        "energy": np.array([[1.0, 2, 3, 4, 5, 6, 7]]),
        "n_steps": np.array([[3, 7, 1, 1, 3, 2, 1023]]),
        "acceptance_rate": np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]]),
    }
    found = nuts.of_draws(seen, 3)
    assert found["diverging"].tolist() == [[1, 0]]
    assert found["energy"].tolist() == [[3, 6]]
    assert found["acceptance_rate"].tolist() == [[0.3, 0.6]]
    assert found["tree_depth"].tolist() == [[3, 2]]
    assert nuts.of_draws(seen, 1)["diverging"].tolist() == seen["diverging"].tolist()


def test_the_step_size_stays_after_the_warm_up():
    data, hyper = PRECISION.example(jax.random.key(0))
    known = PRECISION, hyper, nuts.Settings(nuts.BLOCK, 0.8, 10)
    keys = jax.random.split(jax.random.key(1), 1)
    p = jax.tree.map(lambda x: jnp.asarray(x)[None], PRECISION.init(keys[0], data, hyper))
    state, sizes = nuts._begin(*known, 0.1, p, keys, data), []
    block = jax.jit(nuts._block, static_argnums=(0, 1, 2, 3))
    for _ in range(3):
        sizes.append(float(state.adapt_state.step_size[0]))
        state = block(*known, ("alpha",), state, data)[0]
    assert sizes[0] != sizes[1] == sizes[2]
    assert sizes[2] == float(state.adapt_state.step_size[0])
