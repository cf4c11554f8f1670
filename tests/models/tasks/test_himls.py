"""HiMLS: a printed sweep by hand, what (16) gets wrong, CCA as a special case; HiMLSD where it is alike."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm, subspace_angles
from scipy.optimize import nnls

import bayesfac as bf
from bayesfac.core.data.cells import Grid
from bayesfac.core.errors import UnknownName
from bayesfac.core.kernels import tables
from bayesfac.core.method import REGISTRY, log_joint, sites
from bayesfac.inference.unconstrained import supports, unconstrain
from bayesfac.labels.laws import few_tasks
from bayesfac.labels.models.tasks import _layer_sweeps as sweeps
from bayesfac.labels.models.tasks import _layers as layers
from bayesfac.labels.models.tasks import _pretraining as pretraining
from bayesfac.labels.models.tasks.himls import SQUARED
from bayesfac.labels.models.tasks.himlsd import DIVERGENCE

HIMLS = REGISTRY["himls"]
ERRORS = {"himls": SQUARED, "himlsd": DIVERGENCE}
BOTH = pytest.mark.parametrize("name", ERRORS)
PAPER = {"shape": 1.0, "rate": 0.0, "pretraining": 0, "start": "random"}


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def begun(name, seed=0, data=None, **hyper):
    """Data, settings and a random start."""
    method = REGISTRY[name]
    data = few_tasks(jax.random.key(seed)) if data is None else data
    hyper = method.prepare(data, method.Hyper(**{**PAPER, **hyper}))
    return method, data, hyper, method.init(jax.random.key(seed + 1), data, hyper)


@BOTH
def test_labels_have_no_say_in_the_clusters_of_a_start(name):
    method, data, hyper, _ = begun(name, layers=((3, 2),), start="plsa")
    y = data.y | {"labels": data.y["labels"] * jnp.arange(1.0, 1 + len(data.y["labels"]))}
    other = bf.Tasks.tree_unflatten(data.host, (data.cells, y))
    starts = [pretraining.start(jax.random.key(3), each, hyper) for each in (data, other)]
    shares = [p.R / p.R.sum(1, keepdims=True) for p in starts]
    np.testing.assert_allclose(*shares, rtol=1e-9)
    assert not np.allclose(starts[0].C["labels"], starts[1].C["labels"])


@BOTH
def test_columns_of_size_one_fit_as_before(name):
    _, data, hyper, p = begun(name, layers=((3, 2),))
    p = p._replace(R=jnp.column_stack([p.R, jnp.zeros(9)]))  # an empty column stays so
    p = p._replace(M={b: jnp.concatenate([m, m[:, :1]], 1) for b, m in p.M.items()})
    error = {"himls": tables.squared_error, "himlsd": tables.divergence}[name]
    q = pretraining.unit_columns(p, ERRORS[name])
    assert not q.R[:, 3].any()
    for table in (q.R[:, :3], *q.C.values()):
        np.testing.assert_allclose(ERRORS[name].size(table), 1, rtol=1e-9)
    before, after = (layers.misfit(each, data, hyper, error) for each in (p, q))
    np.testing.assert_allclose(before, after, rtol=1e-9)


def dense(data):
    """{(block, task): matrix}."""
    return {(b, i): data[b].toarray()[at] for b in data.blocks for i, at in data.spans(b)}


def golden(method):  # noqa: C901  # the paper's sums, written out
    """(14) and (15) without the root, then R and C of one layer, entry by entry."""
    data = few_tasks(jax.random.key(3))
    h = method.prepare(data, method.Hyper(((3, 2),), 0.7, 0.5, **PAPER))
    p = method.init(jax.random.key(4), data, h)
    new = method.solver.update(p, data, h)
    X = dense(data)
    R, C = np.asarray(p.R), {b: np.asarray(c) for b, c in p.C.items()}
    M = {b: np.array(m) for b, m in p.M.items()}
    a, beta = 0.7, 0.5
    for i in range(2):  # first one factor for all spaces of the task
        num = den = np.zeros((3, 2))
        for b in M:
            if (b, i) in X:
                r, w = R[data.span(b, i)], a if b == "labels" else 1
                num = num + w * M[b][i] * (r.T @ X[b, i] @ C[b])
                den = den + w * M[b][i] * (r.T @ r @ M[b][i] @ C[b].T @ C[b])
            den = den + beta * (M[b][i] - M["labels"][i]) ** 2
        for m in M.values():
            m[i] *= num / den
    old = {b: m.copy() for b, m in M.items()}
    for (b, i), x in X.items():
        if b != "labels":
            r = R[data.span(b, i)]
            num = r.T @ x @ C[b] + beta * old["labels"][i]
            M[b][i] *= num / (r.T @ r @ M[b][i] @ C[b].T @ C[b] + beta * M[b][i])
    for i in range(2):  # the second task lacks a view: its space follows the labels' alone
        if ("topics", i) not in X:
            M["topics"][i] = old["labels"][i]
        r, m = R[data.span("labels", i)], M["labels"][i]
        num = a * r.T @ X["labels", i] @ C["labels"] + beta * (M["words"][i] + M["topics"][i])
        M["labels"][i] *= num / (a * r.T @ r @ m @ C["labels"].T @ C["labels"] + 2 * beta * m)
    for b in M:
        np.testing.assert_allclose(new.M[b], M[b], rtol=1e-9)
    num, gram = np.zeros_like(R), np.zeros((len(R), 3, 3))
    for (b, i), x in X.items():
        at, G = data.span(b, i), np.sqrt(a if b == "labels" else 1) * C[b] @ M[b][i].T
        num[at] += np.sqrt(a if b == "labels" else 1) * x @ G
        gram[at] += G.T @ G
    np.testing.assert_allclose(new.R, R := least(R, num, gram), rtol=1e-9)
    for b in C:
        parts = [(x, R[data.span(c, i)] @ M[b][i]) for (c, i), x in X.items() if c == b]
        num, gram = sum(x.T @ A for x, A in parts), sum(A.T @ A for _, A in parts)
        np.testing.assert_allclose(new.C[b], least(C[b], num, gram[None]), rtol=1e-9)


def least(H, num, gram):
    """Each entry h_k of the rows h of H, in turn, at the minimum of h'Q h - 2 h'n over h_k >= 0."""
    H = H.copy()
    for k in range(H.shape[1]):
        others = np.sum(gram[:, k] * H, 1) - gram[:, k, k] * H[:, k]
        H[:, k] = np.maximum(num[:, k] - others, 0) / gram[:, k, k]
    return H


@pytest.mark.parametrize(
    ("name", "setting"),
    [("himls", "multiplicative"), ("himlsd", "multiplicative"), ("himlsd", "approximate")],
)
def test_settings_of_earlier_versions_say_what_to_do(name, setting):
    data = few_tasks(jax.random.key(0))
    with pytest.raises(UnknownName, match=f"^{setting}= of {name} was removed: leave it out"):
        bf.fit(name, data, **{setting: True})


def test_golden_step():
    golden(HIMLS)


def test_coordinate_descent_arrives_at_least_squares_of_numbers_above_zero():
    """Against an active-set solver: rows of two tasks that have different blocks, and two layers."""
    _, data, h, p = begun("himls", 7, layers=((2, 3), (2, 2)), weight=0.7, coupling=0.5, rate=0.3)
    p = sweeps.repeat(lambda p: sweeps.update_rows(p, data, h, SQUARED, 1), p, 5_000)
    for i, at, blocks in data.parts():
        right = [np.asarray(p.C[b]) @ p.D[f"{b}.2"] @ p.M[b][i].T @ p.S["2"][i].T for b in blocks]
        size = [np.sqrt(0.7) if b == "labels" else 1.0 for b in blocks]
        A = np.vstack([w * r for w, r in zip(size, right, strict=True)])
        X = np.hstack([w * data[b].toarray()[at] for w, b in zip(size, blocks, strict=True)])
        Q = np.linalg.cholesky(A.T @ A).T  # |x - A r|^2 + rate sum r as one least-squares problem
        for row, x in zip(np.asarray(p.R)[at], X, strict=True):
            best, _ = nnls(Q, np.linalg.solve(Q.T, A.T @ x - 0.3 / 2))
            np.testing.assert_allclose(row, best, atol=1e-8)
    q = sweeps.repeat(lambda p: sweeps.update_columns(p, data, h, SQUARED, 1), p, 5_000)
    slope = jax.grad(lambda q: HIMLS.objective(q, data, h))(q).C
    for b, C in q.C.items():
        np.testing.assert_allclose(slope[b][C > 0], 0, atol=1e-6)
        assert (slope[b][C == 0] >= -1e-6).all()


def test_coordinate_descent_falls_faster_than_multiplication():
    data = few_tasks(jax.random.key(3))
    given = {"layers": ((3, 2),), "weight": 0.7, "coupling": 0.5, "rate": 0.1}
    ends = []
    for error in (SQUARED, SQUARED.multiplicative):
        method, _, h, p = begun("himls", 3, data, **given)
        p = sweeps.repeat(lambda p, e=error, h=h: sweeps.sweep(p, data, h, e), p, 30)
        ends.append(float(method.objective(p, data, h)))
    assert ends[0] < ends[1]


def test_objective_by_hand():
    """Eq. 5 with two layers, and the gamma prior."""
    method, data, h, p = begun("himls", layers=((3, 2), (2, 2)), weight=0.7, coupling=0.5)
    h = h._replace(shape=1.5, rate=0.3)
    J = 0.0
    for (b, i), x in dense(data).items():
        R = np.asarray(p.R)[data.span(b, i)] @ p.S["2"][i]
        C = np.asarray(p.C[b]) @ p.D[f"{b}.2"]
        J += (0.7 if b == "labels" else 1) * np.sum((x - R @ p.M[b][i] @ C.T) ** 2)
    J += 0.5 * sum(np.sum((p.M[b] - p.M["labels"]) ** 2) for b in ("words", "topics"))
    J += sum(np.sum(0.3 * f - 0.5 * np.log(f)) for f in sites(p).values())
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-10)


@BOTH
@pytest.mark.parametrize(
    ("depth", "labelled", "more"),
    [
        (1, "some", {}),
        (1, "all", {"shape": 1.5, "rate": 0.4}),
        (2, "some", {"shape": 1.5, "rate": 0.4}),
        (2, "all", {}),
        (2, "some", {"shared": True}),
        (3, "some", {}),
        (3, "all", {"rate": 0.4}),
    ],
)
def test_every_block_descends(name, depth, labelled, more):
    """Each block of each layer alone never raises the objective; with and without a prior."""
    data = few_tasks(jax.random.key(depth))
    if labelled == "all":
        data = data.take(data.labelled)
    sizes = ((4, 3), (3, 3), (2, 2))[:depth]
    method, _, h, p = begun(name, 5, data, layers=sizes, coupling=2.0, **more)
    blocks = [partial(sweeps.update_spaces, layer=depth)]
    for layer in range(depth, 0, -1):
        blocks += [partial(f, layer=layer) for f in (sweeps.update_rows, sweeps.update_columns)]

    @jax.jit
    def sweep(p):
        costs = []
        for block in blocks:
            p = block(p, data, h, ERRORS[name])
            costs.append(method.objective(p, data, h))
        return p, jnp.stack(costs)

    trace = [float(method.objective(p, data, h))]
    for _ in range(30):
        p, costs = sweep(p)
        trace += np.asarray(costs).tolist()
    rise = np.diff(trace) / (1 + np.abs(trace[1:]))
    assert rise.max() < 1e-11, rise.argmax() % len(blocks)
    assert trace[-1] < 0.9 * trace[0]


@BOTH
def test_a_block_moves_each_entry_against_its_slope(name):
    method, data, h, p = begun(name, 2, layers=((4, 3), (3, 2)), coupling=0.5, shape=1.5, rate=0.4)
    slope = sites(jax.grad(lambda p: method.objective(p, data, h))(p))
    steps = {
        "R": sweeps.update_rows(p, data, h, ERRORS[name], 1),
        "S.2": sweeps.update_rows(p, data, h, ERRORS[name], 2),
        "C.words": sweeps.update_columns(p, data, h, ERRORS[name], 1),
        "D.labels.2": sweeps.update_columns(p, data, h, ERRORS[name], 2),
        "M.words": sweeps.update_spaces(p, data, h, ERRORS[name], 2),
    }
    for site, new in steps.items():
        gap = np.asarray(sites(new)[site] - sites(p)[site])
        assert (np.sign(gap) == -np.sign(slope[site])).all(), site


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_upper_rows_from_labelled_rows_alone_climb(name, seed):
    """The printed (16) and (40) leave unlabelled rows out of a factor that these share: where our update of
    it has settled, theirs raises the objective."""
    method, data, h, p = begun(
        name, seed, layers=((4, 3), (3, 2)), weight=5.0, coupling=1.0, start="plsa"
    )
    known = data.take(data.labelled)
    ours = jax.jit(lambda p: sweeps.update_rows(p, data, h, ERRORS[name], 2))
    cost = jax.jit(lambda p: method.objective(p, data, h))

    @jax.jit
    def printed(p):
        q = p._replace(R=p.R[np.flatnonzero(data.labelled)])
        return p._replace(S=sweeps.update_rows(q, known, h, ERRORS[name], 2).S)

    trace = [cost(p)]
    for _ in range(200):
        p = ours(p)
        trace.append(cost(p))
    assert np.max(np.diff(trace)) < 1e-10 * abs(trace[-1])
    rises = []
    for _ in range(20):
        p = printed(p)
        rises.append(cost(p) - trace[-1])
    assert min(rises) > 1e-6 * abs(trace[-1]), rises


def test_one_shared_space_of_whitened_views_is_cca():
    """Theorem 11: (44) with T = 1, V = 2, alpha = 0, H = R M and orthonormal C has CCA's subspace. The print
    whitens by (X X')^(-1/2) of rows x rows, which is singular: the columns' covariance is meant."""
    rng = np.random.default_rng(0)
    n, k = 60, 2
    x, y = rng.normal(size=(n, 5)), rng.normal(size=(n, 4))
    y[:, :3] += x[:, :3] @ rng.normal(size=(3, 3))
    white = [v @ np.linalg.inv(np.real(sqrtm(v.T @ v))) for v in (x, y)]
    data = bf.Tasks({"left": white[0], "right": white[1]}, np.zeros((n, 1)))
    h = HIMLS.Hyper(((k, k),), weight=0.0, coupling=0.0, shared=True, **PAPER)

    def J(H, C):
        parts = {"left": C[:5], "right": C[5:], "labels": np.zeros((1, k))}
        p = HIMLS.Params(jnp.asarray(H), {}, parts, {}, None, jnp.eye(k))
        return float(HIMLS.objective(p, data, h))

    Z = np.hstack([data["left"].toarray(), data["right"].toarray()])
    C, trace = np.linalg.qr(rng.normal(size=(9, k)))[0], []
    for _ in range(400):  # H is best at Z C; then C at the polar factor of Z'H
        H = Z @ C
        u, _, v = np.linalg.svd(Z.T @ H, full_matrices=False)
        C = u @ v
        trace.append(J(H, C))
    assert max(np.diff(trace)) < 1e-9
    np.testing.assert_allclose(trace[-1], np.sum((Z - H @ C.T) ** 2), rtol=1e-9)
    u, _, v = np.linalg.svd(white[0].T @ white[1])  # CCA of whitened views
    for ours, theirs in ((C[:5], u[:, :k]), (C[5:], v[:k].T)):
        assert subspace_angles(ours, theirs).max() < 1e-6


@BOTH
def test_pretraining_ends_lower_than_it_begins(name):
    method, data, h, p = begun(name, 3, layers=((4, 3), (3, 2)), coupling=0.5, rate=0.1)
    for start in ("random", "plsa", "svd"):
        q = method.init(jax.random.key(4), data, h._replace(pretraining=20, start=start))
        assert method.objective(q, data, h) < method.objective(p, data, h)
        assert jax.tree.map(jnp.shape, q) == jax.tree.map(jnp.shape, p)


@BOTH
def test_prediction_is_the_mean_over_the_layers(name):
    """Eq. 3: below the top, spaces follow from their layer's factors; at the top they are parameters."""
    method, data, h, p = begun(name, 3, layers=((4, 3), (3, 2)), rate=0.1)
    h = h._replace(pretraining=200, binary=False)
    more = method.derive(p, data, h)
    p = p._replace(**more)
    np.testing.assert_allclose(p.N["2"], p.M["labels"], rtol=1e-12)
    rows, cols = np.arange(9), np.arange(2)
    F = np.asarray(method.predict(p, Grid(rows, cols), h).mean)
    for i, at in enumerate(data.bounds):
        R, C = np.asarray(p.R)[at], np.asarray(p.C["labels"])
        low = R @ p.N["1"][i] @ C.T
        high = R @ p.S["2"][i] @ p.N["2"][i] @ (C @ p.D["labels.2"]).T
        np.testing.assert_allclose(F[at], (low + high) / 2, rtol=1e-9)
    # the spaces of layer 1 stand still under their own update, and are no reconstruction from above
    one = h._replace(layers=h.layers[:1])
    q = layers.spaces_below(p, data, h, 1)
    q = p._replace(M=q, common=None, S={}, D={})
    for _ in range(200):
        q = sweeps.update_spaces(q, data, one, ERRORS[name], 1)
    np.testing.assert_allclose(q.M["labels"], p.N["1"], rtol=1e-6, atol=1e-9)


@BOTH
def test_labels_of_rows_without_any_are_found(name):
    """Two tasks with the same topics, a third of the rows without labels."""
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=90)
    x = rng.poisson(np.repeat(np.kron(np.eye(3), np.full(6, 3.0)), 1, 0)[z] + 0.1)
    y = np.eye(3)[z]
    hidden = rng.random(90) < 0.3
    known = np.where(hidden[:, None], np.nan, y)
    task = np.where(np.arange(90) < 50, "a", "b")
    data = bf.Tasks({"left": x[:, ::2], "right": x[:, 1::2]}, known, task=task)
    given = {"layers": ((6, 4),), "weight": 1.0, "start": "labels", "cut": 0.5}
    fit = bf.fit(name, data, bf.FixedPoint(500, tol=1e-3), rate=0.01, progress=False, **given)
    asked = {
        "row": np.repeat(np.flatnonzero(hidden), 3),
        "label": np.tile(np.arange(3), hidden.sum()),
    }
    found = fit.predict(asked).mean.reshape(-1, 3)
    assert (found.argmax(1) == z[hidden]).mean() > 0.95


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": ((40, 2),)}, "Expected row clusters between 1 and 9"),
        ({"layers": 3}, "Expected layers to be a list of pairs of whole numbers"),
        ({"layers": ()}, "Expected the number of layers between 1 and 9"),
        ({"layers": ((2, 99),)}, "Expected column clusters between 1 and 5"),
        ({"weight": 0}, "Expected weight to be a finite number above 0, got 0"),
        ({"coupling": -1}, "Expected coupling to be a finite number above 0, got -1"),
        ({"rate": -0.1}, "Expected rate to be a finite number above 0, got -0.1"),
        ({"rate": 0, "shape": 2.0}, "Expected rate to be a finite number above 0, got 0"),
        ({"shape": 0.5}, "Expected a concentration shape of at least 1"),
        ({"pretraining": -1}, "Expected pretraining between 1 and 10000"),
        ({"start": "kmeans"}, "Expected start to be one of"),
    ],
)
@BOTH
def test_settings_that_cannot_be_are_refused(name, given, said):
    with pytest.raises(ValueError, match=said):
        bf.fit(name, few_tasks(jax.random.key(0)), **{"layers": ((2, 2),), **given})


@BOTH
def test_data_that_cannot_be_fitted_are_refused(name):
    x, y = np.ones((3, 2)), np.array([[1, 0], [0, 1], [1, 1.0]])
    one = {"layers": ((2, 2),), "scaled": False, "progress": False}
    with pytest.raises(ValueError, match=r"at least 0 in view 'x', got -1 in row 1, feature 0"):
        bf.fit(name, bf.Tasks({"x": [[1, 1], [-1, 0], [2, 2]]}, y), **one)
    with pytest.raises(ValueError, match="Expected labels of at least one row, got none"):
        bf.fit(name, bf.Tasks({"x": x}), **one)
    bare = bf.Tasks({"a": {"x": x}, "b": {"x": x}}, {"a": y})
    with pytest.raises(
        ValueError, match="labels in every task where coupling is 0, got none in 'b'"
    ):
        bf.fit(name, bare, coupling=0, **one)
    fit = bf.fit(name, bare, bf.FixedPoint(5, tol=0.9), **one)
    assert "no row of b has labels: its predictions use the other tasks only" in fit.info["notes"]
    with pytest.raises(ValueError, match="flat prior"):
        bf.fit(name, bf.Tasks({"x": x}, y), bf.NUTS(2, 2, 1), rate=0, **one)


@BOTH
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_the_twin_has_a_density_at_exact_zeros(name, rate):
    """Multiplicative updates end at zeros; with shape 1 the gamma law has a density there."""
    method, data, h, p = begun(name, 2, layers=((3, 2),), rate=rate, weight=0.7)
    zero = p._replace(R=p.R.at[::2, 0].set(0.0), M=p.M | {"labels": p.M["labels"].at[0, 1].set(0)})
    sums = [method.objective(q, data, h) + log_joint(method, q, data, h) for q in (p, zero)]
    np.testing.assert_allclose(*sums, rtol=1e-10)
    slopes = [
        jax.grad(lambda q, f=f: f(q))(zero)
        for f in (
            lambda q: method.objective(q, data, h),
            lambda q: -log_joint(method, q, data, h),
        )
    ]
    for ours, twin in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(ours, twin, rtol=1e-9, atol=1e-9)
    free = unconstrain(supports(method, data, h, zero), zero)  # where a gradient engine would begin
    assert all(jnp.isfinite(x).all() for x in free.values())


def test_a_site_of_the_shared_space_stands_for_all():
    method, data, h, p = begun("himls", 1, layers=((3, 2),), shared=True, weight=0.7)
    assert p.M is None
    apart = p._replace(common=None, M=dict.fromkeys(p.C, jnp.stack([p.common] * 2)))
    free = h._replace(shared=False, coupling=0.0)
    np.testing.assert_allclose(
        method.objective(p, data, h), method.objective(apart, data, free), rtol=1e-12
    )
    slope = jax.grad(lambda c: method.objective(p._replace(common=c), data, h))(p.common)
    each = jax.grad(lambda M: method.objective(apart._replace(M=M), data, free))(apart.M)
    np.testing.assert_allclose(slope, sum(g.sum(0) for g in each.values()), rtol=1e-9)
