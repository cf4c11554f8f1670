"""One fit by several devices: the draws do not depend on how many there are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.divided import messages, own_rows
from bayesfac.core.data.divided.messages import AXIS
from bayesfac.core.data.divided.shares import dealer, dealt, seen
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels import sparse
from bayesfac.core.method import REGISTRY, sites
from bayesfac.inference.gibbs import spread, sweep

DIVISIBLE = sorted(name for name, method in REGISTRY.items() if method.gibbs.divisible)
DIVISIBLE_UPDATES = sorted(
    name for name, method in REGISTRY.items() if method.solver.own_rows and method.solver.update
)
SCALES = {"n_components": 2, "noise": 1.0, "scale_user": 1.0, "scale_item": 1.0}


def ratings(features: bool = False, ordinal: bool = False) -> bf.Ratings:
    """Uneven ratings, so that shares differ in their numbers of cells; user 6 has only one."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.uniform(size=(17, 11)) < np.linspace(0.1, 0.9, 11))
    value = rng.normal(3, 1, len(user))
    table = rng.normal(size=(17, 2)) if features else None
    if ordinal:
        return bf.Ratings(user, item, value.clip(1, 5).round(), levels=5, user_features=table)
    return bf.Ratings(user, item, value, user_features=table)


def simulated(data: bf.Ratings, parts: int):
    """f(share) for so many shares, on one device: collectives work along an axis of `jax.vmap` too."""
    shares = [dealer(data, parts)(part) for part in range(parts)]
    stacked = jax.tree.map(lambda *x: jnp.stack(list(map(jnp.asarray, x))), *shares)
    return lambda f: jax.jit(jax.vmap(f, axis_name=AXIS))(stacked)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in DIVISIBLE),
        pytest.param("ordinal_mf", {"thresholds": "shared"}, marks=pytest.mark.slow),
    ],
)
def test_twenty_sweeps_of_three_shares_are_those_of_one_machine(name: str, settings) -> None:
    """The draws agree to 1e-9 in double precision, and so does the objective; users have features."""
    with jax.enable_x64(True):
        data, method = ratings(features=True, ordinal=name == "ordinal_mf"), REGISTRY[name]
        hyper = method.prepare(data, method.Hyper(n_components=2, **settings))
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


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", [(), (3, 2), (messages.SMALL + 1,)])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_sums_and_rows_of_all_devices(parts, shape, backend, monkeypatch) -> None:
    """Processors and accelerators, which send them in different ways, have the same numbers."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    each = np.random.default_rng(0).normal(size=(parts, *shape))
    total = jax.vmap(messages.summed, axis_name=AXIS)(jnp.asarray(each))
    np.testing.assert_allclose(total, np.stack([each.sum(0)] * parts), rtol=1e-5, atol=1e-5)
    if shape:
        rows = jax.vmap(messages.gathered, axis_name=AXIS)(jnp.asarray(each))
        whole = each.reshape(-1, *shape[1:])
        np.testing.assert_allclose(rows, np.stack([whole] * parts), rtol=1e-6)


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


def views() -> bf.Views:
    """Two views of counts with rows of uneven length; a row is empty in one view."""
    rng = np.random.default_rng(0)
    mixed = rng.dirichlet(np.ones(3) / 3, 17) @ rng.dirichlet(np.ones(12) / 5, 3)
    x = rng.poisson(mixed * np.linspace(1, 60, 17)[:, None]).astype(float)
    x[4, :7] = 0
    return bf.Views({"left": x[:, :7], "right": x[:, 7:]})


@pytest.mark.parametrize("name", DIVISIBLE_UPDATES)
@pytest.mark.parametrize("loops", ["numba", "jax"])
def test_twenty_sweeps_of_em_of_three_shares_are_those_of_one_machine(name, loops) -> None:
    """Parameters and objective agree to 1e-9 in double precision; both kinds of loops."""
    with jax.enable_x64(True), sparse.use(loops):
        data, method = views(), REGISTRY[name]
        data = data if name == "mvplsa" else bf.Views(data["right"])
        topics = {"n_topics": 2} if name == "mvplsa" else {}
        hyper = method.prepare(data, method.Hyper(2, start="random", a=1.1, **topics))
        begin = method.init(jax.random.key(1), data, hyper)

        def twenty(data):
            step = lambda _, p: method.solver.update(p, data, hyper)  # noqa: E731
            fields = method.solver.own_rows
            p = jax.lax.fori_loop(0, 20, step, own_rows.owned(begin, fields, data))
            found = sites(own_rows.whole(p, fields, data))
            return found, method.objective(p, data, hyper)

        shares = map(own_rows.dealer(data, 3), range(3))
        stacked = jax.tree.map(lambda *x: jnp.stack(list(map(jnp.asarray, x))), *shares)
        alone, three = jax.jit(twenty)(data), jax.jit(jax.vmap(twenty, axis_name=AXIS))(stacked)
        for one, each in zip(*map(jax.tree.leaves, (alone, three)), strict=True):
            np.testing.assert_allclose(each, np.stack([one] * 3), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loops", ["numba", "jax"])
@pytest.mark.parametrize(
    "name", sorted(n for n, method in REGISTRY.items() if method.solver.own_rows)
)
def test_value_and_slope_of_three_shares_are_those_of_one_machine(name, loops) -> None:
    """To 1e-9 in double precision, at a random point; both kinds of loops."""
    with jax.enable_x64(True), sparse.use(loops):
        method, data = REGISTRY[name], views()
        hyper = method.Hyper(2)
        if method.data is bf.Ratings:
            data, hyper = ratings(ordinal=True), hyper._replace(penalty=0.7, scale_theta=2.0)
        elif "n_topics" in method.Hyper._fields:
            hyper = hyper._replace(n_topics=2)
        else:
            data = bf.Views(data["right"])
        hyper = method.prepare(data, hyper)
        p = method.init(jax.random.key(1), data, hyper)

        def cost(p, data):
            return method.objective(own_rows.owned(p, method.solver.own_rows, data), data, hyper)

        shares = map(own_rows.dealer(data, 3), range(3))
        stacked = jax.tree.map(lambda *x: jnp.stack(list(map(jnp.asarray, x))), *shares)
        both = jax.value_and_grad(cost)
        alone = jax.jit(both)(p, data)
        three = jax.jit(jax.vmap(both, (None, 0), axis_name=AXIS))(p, stacked)
        for one, each in zip(*map(jax.tree.leaves, (alone, three)), strict=True):
            np.testing.assert_allclose(each, np.stack([one] * 3), rtol=1e-9, atol=1e-9)


def test_shares_of_views_hold_every_count_once() -> None:
    data = views()
    shares = list(map(own_rows.dealer(data, 3), range(3)))
    for name in data.names:
        found = sp.csr_matrix(data[name].shape)
        for share in shares:
            cells, y = share.cells[name], share.y[name]
            row = np.asarray(cells.own)[cells.mine.row]
            assert not y[row < 0].any()
            entries = y[row >= 0], (row[row >= 0], np.asarray(cells.mine.col)[row >= 0])
            found += sp.csr_matrix(entries, shape=found.shape)
        np.testing.assert_array_equal(found.toarray(), data[name].toarray())
    sizes = [sum(int((np.asarray(y) > 0).sum()) for y in share.y.values()) for share in shares]
    longest = max(sum(np.diff(data[name].indptr) for name in data.names))
    assert max(sizes) - min(sizes) <= longest


def test_a_solver_in_shares_goes_on_alone(tmp_path) -> None:
    """On one device the engine's own path; the checkpoint of one serves the other."""
    data = bf.Views(views()["right"])
    how = {"n_components": 2, "progress": False, "start": "random"}
    with pytest.warns(bf.ConvergenceWarning):
        alone = bf.fit("plsa", data, bf.FixedPoint(9), **how)
    with pytest.warns(bf.ConvergenceWarning):
        shared = bf.fit("plsa", data, bf.FixedPoint(9, shares=True, folder=str(tmp_path)), **how)
    np.testing.assert_allclose(shared.params.C, alone.params.C, rtol=1e-4, atol=1e-5)
    with pytest.warns(bf.ConvergenceWarning):
        again = bf.fit("plsa", data, bf.FixedPoint(9, folder=str(tmp_path)), **how)
    np.testing.assert_array_equal(again.params.C, shared.params.C)
    with pytest.raises(BayesfacError, match=r"divided among devices \(.*mvplsa, plsa.*\), got pmf"):
        bf.fit("pmf", ratings(), bf.FixedPoint(shares=True), progress=False, **SCALES)


def test_a_method_whose_rows_cannot_be_divided_is_refused() -> None:
    allowed = r"rows can be divided among devices \(bpmf, ordinal_mf, pmf\), got"
    with pytest.raises(BayesfacError, match=allowed):
        bf.fit("gibbs_mmmf", ratings(ordinal=True), bf.Gibbs(1, 1, 1, shares=True), progress=False)


def test_gradients_in_shares_descend_to_the_same_point(tmp_path) -> None:
    """On one device the engine's own path; the checkpoint of one serves the other."""
    data, how = ratings(ordinal=True), {"n_components": 2, "penalty": 0.7, "progress": False}
    alone = bf.fit("mmmf", data, **how)
    shared = bf.fit("mmmf", data, bf.LBFGS(shares=True, folder=str(tmp_path)), **how)
    assert shared.trace[-1] == pytest.approx(alone.trace[-1], rel=1e-6)
    again = bf.fit("mmmf", data, bf.LBFGS(folder=str(tmp_path)), **how)
    np.testing.assert_array_equal(again.params.U, shared.params.U)
    with pytest.raises(BayesfacError, match=r"among devices \(.*mmmf.*\), got pmmmf"):
        bf.fit("pmmmf", data, bf.LBFGS(shares=True), progress=False)
