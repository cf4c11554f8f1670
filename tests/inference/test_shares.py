"""One fit by several devices: the draws do not depend on how many there are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.divided.shares import AXIS, dealer, dealt, seen
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels import sparse
from bayesfac.core.method import REGISTRY, sites
from bayesfac.inference.gibbs import spread, sweep

DIVISIBLE = sorted(name for name, method in REGISTRY.items() if method.divisible)


def ratings(features: bool = False) -> bf.Ratings:
    """Uneven ratings, so that shares differ in their numbers of cells; user 6 has only one."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.uniform(size=(17, 11)) < np.linspace(0.1, 0.9, 11))
    value = rng.normal(3, 1, len(user))
    table = rng.normal(size=(17, 2)) if features else None
    return bf.Ratings(user, item, value, user_features=table)


def simulated(data: bf.Ratings, parts: int):
    """f(share) for so many shares, on one device: collectives work along an axis of `jax.vmap` too."""
    shares = [dealer(data, parts)(part) for part in range(parts)]
    stacked = jax.tree.map(lambda *x: jnp.stack(list(map(jnp.asarray, x))), *shares)
    return lambda f: jax.jit(jax.vmap(f, axis_name=AXIS))(stacked)


@pytest.mark.parametrize("name", DIVISIBLE)
def test_twenty_sweeps_of_three_shares_are_those_of_one_machine(name: str) -> None:
    """The draws agree to 1e-9 in double precision, and so does the objective; users have features."""
    with jax.enable_x64(True):
        data, method = ratings(features=True), REGISTRY[name]
        hyper = method.prepare(data, method.Hyper(n_components=2))
        begin = method.init(jax.random.key(1), data, hyper)

        def twenty(data):
            step = lambda s, p: sweep(method, hyper, p, data, jax.random.key(s))  # noqa: E731
            p = jax.lax.fori_loop(0, 20, step, begin)
            more = spread(method, hyper, p, data, jax.random.key(5), 1)
            return sites(p), more, method.objective(p, seen(data), hyper)

        alone = jax.jit(twenty)(data)
        for one, three in zip(
            *map(jax.tree.leaves, (alone, simulated(data, 3)(twenty))), strict=True
        ):
            np.testing.assert_allclose(three, np.stack([one] * 3), rtol=1e-9, atol=1e-9)


def test_the_loops_of_accelerators_know_shares() -> None:
    """Solved rows and products at cells, in the JAX form of the loops."""
    data, method = ratings(), REGISTRY["bpmf"]
    hyper = method.prepare(data, method.Hyper(n_components=2))
    p = method.init(jax.random.key(1), data, hyper)
    one = partial(sweep, method, hyper, p, key=jax.random.key(2))
    with sparse.use("jax"):
        shares = simulated(data, 2)(lambda data: one(data))
    for x, y in zip(jax.tree.leaves(one(data)), jax.tree.leaves(shares), strict=True):
        np.testing.assert_allclose(y[1], x, rtol=1e-4, atol=1e-5)


def test_shares_hold_every_cell_once_and_cost_about_the_same() -> None:
    data = ratings()
    for side in ("user", "item"):
        found, costs = [], []
        for part in map(dealer(data, 3), range(3)):
            view = seen(part, side)
            n = view.cells.mine.ptr[-1]
            found += zip(view.cells.row[:n], view.cells.col[:n], view.y[:n], strict=True)
            costs.append(n)
        whole = zip(data.cells.row.tolist(), data.cells.col.tolist(), data.y.tolist(), strict=True)
        assert sorted((int(r), int(c), float(v)) for r, c, v in found) == sorted(whole)
        assert max(costs) - min(costs) <= np.diff(np.asarray(view.cells.ptr)).max()
    assert sorted(dealt(np.arange(7), 3).ravel()) == [-1, -1, 0, 1, 2, 3, 4, 5, 6]


def test_a_run_begun_alone_goes_on_in_shares(tmp_path) -> None:
    """On one device the engine's own path: the same draws, and one checkpoint serves both."""
    data, how = ratings(), {"n_components": 2, "progress": False}
    alone = bf.fit("bpmf", data, bf.Gibbs(2, 6, 1), **how)
    shared = bf.fit("bpmf", data, bf.Gibbs(2, 6, 1, shares=True, folder=str(tmp_path)), **how)
    for site, draws in alone.draws.items():
        np.testing.assert_allclose(shared.draws[site], draws, rtol=1e-4, atol=1e-4)
    again = bf.fit("bpmf", data, bf.Gibbs(2, 6, 1, folder=str(tmp_path)), **how)
    np.testing.assert_array_equal(again.draws["U"], shared.draws["U"])


def test_a_method_whose_rows_cannot_be_divided_is_refused() -> None:
    data = bf.Ratings(ratings().frame().round(0), levels=range(-2, 9))
    with pytest.raises(
        BayesfacError, match=r"rows can be divided among devices \(bpmf, pmf\), got"
    ):
        bf.fit("ordinal_mf", data, bf.Gibbs(1, 1, 1, shares=True), progress=False)
