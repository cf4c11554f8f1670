"""HiMLSD: the sweep by hand, Lambert's function, and what the printed (25) gets wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import lambertw

from bayesfac.core.method import REGISTRY
from bayesfac.labels.laws import few_tasks
from bayesfac.labels.models.tasks import _layer_sweeps as sweeps
from bayesfac.labels.models.tasks.himlsd import DIVERGENCE, log_lambert, of_view

HIMLSD = REGISTRY["himlsd"]
PAPER = {"shape": 1.0, "rate": 0.0, "pretraining": 0, "start": "random"}


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def golden(method):  # noqa: C901  # the paper's sums, written out
    """(38) with its exact minimum, (33), then R and C of one layer, entry by entry."""
    data = few_tasks(jax.random.key(3))
    h = method.prepare(data, method.Hyper(((3, 2),), 0.7, 0.5, **PAPER))
    p = method.init(jax.random.key(4), data, h)
    new = method.solver.update(p, data, h)
    X = {(b, i): data[b].toarray()[at] for b in data.blocks for i, at in data.spans(b)}
    R, C = np.array(p.R), {b: np.array(c) for b, c in p.C.items()}
    M = {b: np.array(m) for b, m in p.M.items()}
    w, beta = {"words": 1, "topics": 1, "labels": 0.7}, 0.5

    def pulls(b, i):
        r = R[data.span(b, i)]
        return w[b] * (X[b, i] / (r @ M[b][i] @ C[b].T)), w[b] * np.ones_like(X[b, i]), r

    for i in range(2):  # first one factor for all spaces of the task
        num = den = np.zeros((3, 2))
        for b in M:
            if (b, i) in X:
                ratio, ones, r = pulls(b, i)
                num = num + M[b][i] * (r.T @ ratio @ C[b])
                den = den + M[b][i] * (r.T @ ones @ C[b])
            m, own = M[b][i], M["labels"][i]
            den = den + beta * (m * np.log(m / own) - m + own)
        for m in M.values():
            m[i] *= num / den
    old = {b: m.copy() for b, m in M.items()}
    for b in ("words", "topics"):
        for i in range(2):
            A, B = np.zeros((3, 2)), np.zeros((3, 2))
            if (b, i) in X:
                ratio, ones, r = pulls(b, i)
                A, B = M[b][i] * (r.T @ ratio @ C[b]), r.T @ ones @ C[b]
            other = old["labels"][i]
            s = np.real(lambertw(A / (beta * other) * np.exp(B / beta)))
            exact = np.where(A > 0, A / (beta * np.where(A > 0, s, 1)), other * np.exp(-B / beta))
            np.testing.assert_allclose(new.M[b][i], exact, rtol=1e-9)
            M[b][i] = exact
    for i in range(2):
        ratio, ones, r = pulls("labels", i)
        num = M["labels"][i] * (r.T @ ratio @ C["labels"]) + beta * (M["words"][i] + M["topics"][i])
        M["labels"][i] = num / (r.T @ ones @ C["labels"] + 2 * beta)
    np.testing.assert_allclose(new.M["labels"], M["labels"], rtol=1e-9)
    for row in range(len(R)):
        seen = [(b, i) for b, i in X if row in range(*data.span(b, i).indices(len(R)))]
        G = np.concatenate([w[b] * C[b] @ M[b][i].T for b, i in seen])
        x = np.concatenate([w[b] * X[b, i][row - data.span(b, i).start] for b, i in seen])
        R[row] = nearer(R[row], x, G, G.sum(0))
    np.testing.assert_allclose(new.R, R, rtol=1e-9)
    for b in C:
        parts = [(x, R[data.span(c, i)] @ M[b][i]) for (c, i), x in X.items() if c == b]
        A, x = (np.concatenate(both) for both in ([A for _, A in parts], [x for x, _ in parts]))
        for j in range(len(C[b])):
            C[b][j] = nearer(C[b][j], w[b] * x[:, j], A, w[b] * A.sum(0))
        np.testing.assert_allclose(new.C[b], C[b], rtol=1e-9)


def nearer(h, x, G, D):
    """One step for each entry of h, with slope D - N: Newton's for 1 / N, or h N / D if the slopes before and
    after it have a negative sum. (The weights of G cancel in N.)"""
    h = h.copy()
    for k in range(len(h)):
        fit = G @ h
        N, bend = np.sum(x * G[:, k] / fit), np.sum(x * (G[:, k] / fit) ** 2)
        new = max(h[k] + N * (N - D[k]) / (D[k] * bend), 0)
        after = np.sum(x * G[:, k] / (fit + (new - h[k]) * G[:, k]))
        h[k] = h[k] * N / D[k] if new < h[k] and 2 * D[k] - N - after < 0 else new
    return h


def test_golden_step():
    golden(HIMLSD)


def begun(seed, **given):
    data = few_tasks(jax.random.key(seed))
    h = HIMLSD.prepare(data, HIMLSD.Hyper(weight=0.7, coupling=0.5, **(PAPER | given)))
    return data, h, HIMLSD.init(jax.random.key(seed + 1), data, h)


@pytest.mark.parametrize("shape", [1.0, 1.5])
def test_rows_and_columns_end_where_the_slope_says(shape):
    """The slope of J is 0 at positive entries and not negative at zeros; unlabelled rows, lacking blocks."""
    data, h, p = begun(3, layers=((3, 2),), rate=0.3, shape=shape)
    for site, part in (("R", sweeps.update_rows), ("C", sweeps.update_columns)):
        q = sweeps.repeat(lambda p, part=part: part(p, data, h, DIVERGENCE, 1), p, 400)
        slope = getattr(jax.grad(lambda q: HIMLSD.objective(q, data, h))(q), site)
        pairs = zip(jax.tree.leaves(getattr(q, site)), jax.tree.leaves(slope), strict=True)
        for table, of_table in pairs:
            np.testing.assert_allclose(of_table[table > 1e-9], 0, atol=1e-6)
            assert (of_table >= -1e-6).all()
            assert shape == 1 or (table > 0).all()


def test_entry_by_entry_falls_faster_than_the_printed_updates():
    ends = []
    for error in (DIVERGENCE, DIVERGENCE.multiplicative):
        data, h, p = begun(3, layers=((3, 2),), rate=0.1)
        p = sweeps.repeat(lambda p, e=error, d=data, h=h: sweeps.sweep(p, d, h, e), p, 30)
        ends.append(float(HIMLSD.objective(p, data, h)))
    assert ends[0] < ends[1]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_lambert_in_logarithms(kind):
    x = np.concatenate([-(10.0 ** np.arange(-8, 3)), [0, 1, 1.0001], 10.0 ** np.arange(-8, 9)])
    u = np.asarray(log_lambert(jnp.asarray(x, kind)), np.float64)
    eps = np.finfo(kind).eps
    np.testing.assert_allclose(u + np.exp(u), x, atol=8 * eps, rtol=8 * eps)
    small = x < 700
    np.testing.assert_allclose(np.exp(u[small]), np.real(lambertw(np.exp(x[small]))), rtol=40 * eps)


def printed_view(M, num, den, other, h):
    """(38)."""
    beta = h.coupling
    return (M * num + h.shape - 1 + beta * other) / (den + h.rate + beta)


def spaces(p, data, h, view):
    """One update of the views' spaces alone: (33) is exact, and not what is on trial."""
    parts, own = sweeps.pulls(p, data, h, DIVERGENCE, 1), p.M["labels"]
    views = {b: view(m, *parts[b], own, h) for b, m in p.M.items() if b != "labels"}
    return p._replace(M={**views, "labels": own})


@pytest.mark.parametrize("seed", range(3))
def test_the_printed_coupling_climbs_and_the_exact_one_never_does(seed):
    """(25) takes log x for 1 - 1/x: why the method does not."""
    data = few_tasks(jax.random.key(seed))
    h = HIMLSD.prepare(data, HIMLSD.Hyper(((4, 3),), coupling=2.0, **PAPER))
    p = HIMLSD.init(jax.random.key(seed + 1), data, h)
    exact = jax.jit(lambda p: spaces(p, data, h, of_view))
    printed = jax.jit(lambda p: spaces(p, data, h, printed_view))
    cost = jax.jit(lambda p: HIMLSD.objective(p, data, h))
    trace, rises = [cost(p)], 0
    for _ in range(200):
        p = exact(p)
        trace.append(cost(p))
        rises += bool(cost(printed(p)) > trace[-1] * (1 + 1e-9))
    assert np.max(np.diff(trace)) < 1e-10 * abs(trace[-1])
    assert rises > 100, rises  # wherever the exact one has settled
    for _ in range(500):
        p = printed(p)
    assert cost(p) > trace[-1] * (1 + 1e-4)  # and it settles elsewhere, higher


def test_a_space_without_data_goes_where_the_labels_are():
    """A = 0 and B = 0: nothing but the coupling."""
    h = HIMLSD.Hyper(coupling=0.3, **PAPER)
    M, other = jnp.asarray([[2.0, 5.0]]), jnp.asarray([[0.5, 7.0]])
    zero = jnp.zeros_like(M)
    np.testing.assert_allclose(of_view(M, zero, zero, other, h), other, rtol=1e-12)
    pulled = of_view(M, zero, jnp.ones_like(M), other, h)
    np.testing.assert_allclose(pulled, other * np.exp(-1 / 0.3), rtol=1e-12)
