"""Coordinate descent over numbers of at least 0: against a search for each minimum, and both backends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar, nnls
from scipy.special import log_ndtr

from bayesfac.core.data.cells import Cells
from bayesfac.core.data.tensor import few_cells
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.nonnegative import (
    Tables,
    descend,
    descend_divergence,
    positive_root,
    positive_rows,
)

BACKENDS = pytest.mark.parametrize("backend", ["numba", "jax"])


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@BACKENDS
@pytest.mark.parametrize("shape", [1.0, 1.7])
def test_the_minimum_of_every_entry(backend, shape):
    Q, H = np.array([[2.0, 0.4], [0.4, 1.5]]), np.array([[0.7, 0.2], [0.0, 0.3]])
    num = np.array([[3.0, 1.0], [-2.0, 0.05]])
    with sparse.use(backend):
        new = np.asarray(descend(*map(jnp.asarray, (H, num, Q)), shape, 0.3))
    for h, n, found in zip(H, num, new, strict=True):
        now = h.copy()
        for k in range(2):

            def J(x, k=k, n=n, now=now):
                h = np.where(np.arange(2) == k, x, now)
                return h @ Q @ h - 2 * n @ h + 0.3 * x - (shape - 1) * np.log(x)

            search = {"bounds": (1e-12, 9), "method": "bounded", "options": {"xatol": 1e-12}}
            np.testing.assert_allclose(found[k], minimize_scalar(J, **search).x, atol=2e-6)
            now[k] = found[k]


@pytest.mark.parametrize(("shape", "rate"), [(1.0, 0.0), (1.0, 0.2), (1.7, 0.2)])
def test_both_backends_agree(shape, rate):
    """With a column of zeros, as of a cluster that nothing uses, and under `jax.vmap`."""
    rng = np.random.default_rng(0)
    A = rng.gamma(1.0, size=(2, 30, 7)) * (rng.random(7) > 0.2)
    A[..., 3] = 0
    H = rng.gamma(1.0, size=(2, 50, 7)) * (rng.random((2, 50, 7)) > 0.5) + (shape > 1)
    num, gram = rng.normal(1, 1, (2, 50, 30)) @ A, A.swapaxes(1, 2) @ A
    ends = []
    for backend in ("numba", "jax"):
        with sparse.use(backend):
            several = jax.vmap(lambda *each: descend(*each, shape, rate))
            ends.append(np.asarray(jax.jit(several)(H, num, gram)))
    assert np.isfinite(ends[0]).all()
    np.testing.assert_allclose(*ends, rtol=1e-9, atol=1e-12)
    assert (ends[0] == 0).any() == (shape == 1)


def test_a_root_without_cancellation():
    a, b, c = jnp.array(2.0), jnp.array(-1e9), jnp.array(0.5)
    np.testing.assert_allclose(positive_root(a, b, c), 0.5 / 1e9, rtol=1e-12)
    assert positive_root(jnp.array(0.0), jnp.array(0.0), jnp.array(0.0)) == 0


# -- the divergence -------------------------------------------------------------------------------
def tables(seed=0, n=9, K=4):
    """Two tables with zeros beside each other, whose rows have two sets of `others`; as matrices too."""
    rng = np.random.default_rng(seed)
    X = [rng.poisson(1.2, (n, width)).astype(float) for width in (6, 3)]
    X[1][n // 2 :] = 0  # rows without the second table
    others = rng.gamma(0.8, size=(2, 9, K)) * (rng.random((2, 9, K)) > 0.2)
    others[:, 2] = 0  # a column that nothing explains
    others[..., 3] *= rng.random((2, 9)) > 0.5
    ptr, index, x = [], [], []
    for table, begin in zip(X, (0, 6), strict=True):
        row, col = np.nonzero(table + (np.arange(n)[:, None] == 1))  # row 1 stores its zeros
        ptr.append(
            sum(map(len, x)) + np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
        )
        index.append(col + begin)
        x.append(table[row, col])
    group = np.arange(n) % 2
    cells = Tables(np.stack(ptr), np.concatenate(index), np.concatenate(x), 9 * group)
    G, whole = others[group], np.concatenate(X, 1)
    here = np.concatenate([np.ones((n, 6)), np.repeat(np.arange(n) < n // 2, 3).reshape(n, 3)], 1)
    sums = np.einsum("nj,njk->nk", here, G)
    H = rng.gamma(1.0, size=(n, K)) + 0.1
    sums, cells, others = jax.tree.map(jnp.asarray, (sums, cells, others.reshape(-1, K)))
    return H, sums, cells, others, (G, whole)


def divergence(h, s, G, x, shape, rate):
    fit = G @ h
    some = (x > 0) & G.any(1)
    prior = (shape - 1) * np.log(h).sum() if shape > 1 else 0.0
    return s @ h - x[some] @ np.log(fit[some]) + rate * h.sum() - prior


@BACKENDS
@pytest.mark.parametrize("shape", [1.0, 1.4])
def test_no_entry_raises_the_divergence_and_each_passes_to_its_minimum(backend, shape):
    """Entry by entry, from the old values left and the new ones right of it. After 60 sweeps no search over
    one entry finds less."""
    H, sums, cells, others, (G, X) = tables()

    one = jax.jit(lambda H: descend_divergence(H, sums, cells, others, shape, 0.3))

    def swept(H):
        with sparse.use(backend):
            return np.asarray(one(H))

    H = H * np.logspace(-2, 2, len(H))[:, None]  # from far below and from far above
    for _ in range(3):
        new = swept(H)
        for i in range(len(H)):
            parts = (sums[i], G[i], X[i], shape, 0.3)
            trace = [divergence(np.r_[new[i, :k], H[i, k:]], *parts) for k in range(5)]
            assert np.diff(trace).max() < 1e-11, (i, trace)
        H = new
    for _ in range(60):
        H = swept(H)
    for i in range(len(H)):
        for k in range(4):

            def J(x, i=i, k=k):
                h = np.where(np.arange(4) == k, x, H[i])
                return divergence(h, sums[i], G[i], X[i], shape, 0.3)

            search = {"bounds": (1e-12, 30), "method": "bounded", "options": {"xatol": 1e-10}}
            assert J(max(H[i, k], 1e-12)) < minimize_scalar(J, **search).fun + 1e-9
    assert (H == 0).any() == (shape == 1)


@pytest.mark.parametrize(("shape", "rate"), [(1.0, 0.0), (1.0, 0.2), (1.7, 0.2)])
def test_both_backends_agree_on_the_divergence(shape, rate):
    """With zeros in H, with an entry that nothing pulls, and under `jax.vmap`."""
    H, sums, cells, others, _ = tables(n=40)
    H *= (np.random.default_rng(1).random(H.shape) > 0.3) | (shape > 1)
    H[0, 1:] = 0
    several, ends = np.stack([H, 2 * H[::-1]]), []
    for backend in ("numba", "jax"):
        with sparse.use(backend):
            run = jax.vmap(lambda h: descend_divergence(h, sums, cells, others, shape, rate))
            ends.append(np.asarray(jax.jit(run)(several)))
    assert np.isfinite(ends[0]).all()
    np.testing.assert_allclose(*ends, rtol=1e-9, atol=1e-12)


def test_shares_of_the_rows_give_the_divergence_of_all_rows():
    """Many rows are divided among threads, and rows without any cell go to 0 or to the mode of the prior."""
    H, sums, cells, others, _ = tables(n=3_000)
    whole = np.asarray(descend_divergence(H, sums, cells, others, 1.0, 0.2))
    parts = []
    for at in range(0, 3_000, 30):
        own = cells._replace(ptr=cells.ptr[:, at : at + 31], first=cells.first[at : at + 30])
        rows = slice(at, at + 30)
        parts.append(descend_divergence(H[rows], sums[rows], own, others, 1.0, 0.2))
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    none = cells._replace(ptr=jnp.zeros((2, 3_001), int))
    for shape, mode in ((1.0, np.zeros_like(sums)), (1.4, 0.4 / (sums + 0.2))):
        found = np.asarray(descend_divergence(H, sums, none, others, shape, 0.2))
        for _ in range(80):
            found = np.asarray(descend_divergence(found, sums, none, others, shape, 0.2))
        np.testing.assert_allclose(found, mode, rtol=1e-9)


# -- rows that are at least 0 ------------------------------------------------------------------------------
MANY = 5000


def alone(key, P, b, old, times, dtype=float):
    """Passes of rows without cells: each has the system P u = b, or one of its own."""
    rows = Cells(np.zeros(0, int), np.zeros(0, int), (len(old), 1)).by_row
    P, b, old = (jnp.asarray(x, dtype) for x in (P, b, old))
    V, none = jnp.zeros((1, old.shape[1]), dtype), jnp.zeros(0, dtype)
    return np.asarray(positive_rows(key, old, times, rows, none, V, jnp.ones((), dtype), P, b))


@BACKENDS
@pytest.mark.parametrize("low", [-6.0, -0.3, 0.0, 0.4, 5.0, 1e4])
def test_a_cut_normal_number_however_far_in_the_tail(backend, low):
    """In single precision; `low` is 0 in standard deviations from the mean. The share of the law above each
    number is uniform."""
    a = np.full((MANY, 1), 0.7)
    with sparse.use(backend):
        x = alone(jax.random.key(0), a[..., None], -low * a**0.5, 0 * a, 1, jnp.float32)
    z = x[:, 0].astype(float) * 0.7**0.5
    assert (z >= 0).all()
    assert stats.kstest(np.exp(log_ndtr(-low - z) - log_ndtr(-low)), "uniform").pvalue > 1e-3


@BACKENDS
def test_passes_draw_from_the_density_of_the_row(backend):
    """Against sums over a fine grid, within five standard errors; the entries have a strong correlation."""
    P, b = np.array([[2.0, 1.7], [1.7, 2.0]]), np.array([1.5, 0.4])
    with sparse.use(backend):
        rows = alone(jax.random.key(0), P, b, np.full((MANY, 2), 3.0), 25)
    x = np.linspace(0, 6, 1501)[:-1] + 0.002
    u = np.stack(np.meshgrid(x, x, indexing="ij"), -1)
    share = np.exp(u @ b - 0.5 * np.einsum("...k,kl,...l", u, P, u))
    share /= share.sum()
    for seen in (lambda u: u[..., 0], lambda u: u[..., 1], lambda u: u[..., 0] * u[..., 1]):
        mean = np.sum(share * seen(u))
        sd = np.sqrt(np.sum(share * (seen(u) - mean) ** 2))
        assert abs(seen(rows).mean() - mean) < 5 * sd / MANY**0.5


@BACKENDS
def test_passes_without_draws_end_at_the_best_row(backend):
    rng = np.random.default_rng(0)
    A, t = rng.normal(size=(9, 5)) + 0.3, rng.normal(size=9)
    with sparse.use(backend):
        one, last = (alone(None, A.T @ A, A.T @ t, np.ones((1, 5)), n)[0] for n in (1, 2000))
    np.testing.assert_allclose(last, nnls(A, t)[0], atol=1e-9)
    errors = [np.sum((A @ u - t) ** 2) for u in (np.ones(5), one, last)]
    assert (last == 0).any() and errors == sorted(errors, reverse=True)


def test_both_backends_make_the_same_passes(key):
    """Of a table and of a tensor, with a weight for each cell, under `jax.vmap`."""
    table = Cells(*np.nonzero(np.random.default_rng(0).random((30, 20)) < 0.4), (30, 20))
    for rows, size, n in ((table.by_col, 30, 20), (few_cells(key).cells.modes[1], 12, 4)):
        rng, N = np.random.default_rng(1), len(rows.index)
        V, old = rng.gamma(1.0, size=(2, size, 17)), rng.gamma(1.0, size=(2, n, 17))
        target, weight, P = rng.normal(1, 1, (2, N)), rng.gamma(1.0, size=(2, N)), np.eye(17)

        def passes(target, weight, V, old, rows=rows, P=P):
            return positive_rows(None, old, 3, rows, target, V, weight, P, P[0])

        ends = []
        for backend in ("numba", "jax"):
            with sparse.use(backend):
                ends.append(np.asarray(jax.jit(jax.vmap(passes))(target, weight, V, old)))
        np.testing.assert_allclose(*ends, rtol=1e-9, atol=1e-12)
        assert (ends[0] == 0).any() and (ends[0] > 0).any()
