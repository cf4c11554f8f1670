"""The bridge between Numba and XLA: shares and threads, batches, and kernels that XLA refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.cells import Cells
from bayesfac.core.kernels import bridge, numba_loops, sparse


def matrix(n, m, density, seed=0):
    rng = np.random.default_rng(seed)
    seen = rng.random((n, m)) < density
    seen[3] = False  # a row without cells
    row, col = np.nonzero(seen)
    return Cells(row, col, (n, m)), sp.csr_matrix((np.ones(len(row)), (row, col)), shape=(n, m))


@pytest.mark.parametrize(
    "grain", [10, 1000, 10**9], ids=["many shares", "some shares", "one share"]
)
def test_shares_and_threads_do_not_change_a_result(monkeypatch, grain):
    cells, _ = matrix(200, 150, 0.3)
    rng = np.random.default_rng(1)
    U, V = rng.standard_normal((200, 5)), rng.standard_normal((150, 5))
    y = rng.standard_normal(len(cells))

    def everything(U, V, y):
        solved = sparse.solve_rows(cells.by_col, y, U, jnp.abs(y), jnp.eye(5), jnp.ones(5), V)
        steps = sparse.ratio_step(cells, jnp.abs(y), jnp.abs(U), jnp.abs(V))
        level = jnp.where(y > 0, 2, 0)
        loss = sparse.ordinal_loss(y, jnp.sort(U[:, :2]), level, cells.by_row, None, "hinge", False)
        near = sparse.proximal_loss(y, level, cells.by_row, 3)
        return (
            sparse.dots(cells, U, V),
            sparse.spread(cells.by_row, y, V),
            solved,
            steps,
            loss,
            near,
        )

    with sparse.use("jax"):
        expected = jax.jit(lambda *args: everything(*args))(U, V, y)
    monkeypatch.setattr(bridge, "GRAIN", grain)
    found = jax.jit(lambda *args: everything(*args))(U, V, y)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_batches_of_batches():
    """Chains of a sampler over members of an ensemble: two leading axes, not all of them in all arguments."""
    cells, _ = matrix(20, 12, 0.4)
    rng = np.random.default_rng(2)
    U, V = rng.standard_normal((3, 20, 2)), rng.standard_normal((4, 12, 2))
    both = jax.vmap(lambda u: jax.vmap(lambda v: sparse.dots(cells, u, v))(V))(U)
    table = np.einsum("ank,bmk->abnm", U, V)
    np.testing.assert_allclose(both, table[:, :, cells.row, cells.col], rtol=1e-12)
    back = jax.vmap(lambda w: jax.vmap(lambda v: sparse.spread(cells.by_row, w, v))(V))(both[:, 0])
    assert back.shape == (3, 4, 20, 2)
    one = sparse.spread(cells.by_row, both[2, 0], V[1])
    np.testing.assert_allclose(back[2, 1], one, rtol=1e-12)


def test_the_derivative_goes_through_compiled_loops():
    cells, table = matrix(15, 10, 0.5)
    rng = np.random.default_rng(3)
    U, V = rng.standard_normal((15, 2)), rng.standard_normal((10, 2))

    def loss(U):
        return jnp.sum(jnp.sin(bf.core.math.inner(U, V, cells)))

    slope = sp.csr_matrix(
        (np.cos((U @ V.T)[cells.row, cells.col]), (cells.row, cells.col)), table.shape
    )
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(U), slope @ V, rtol=1e-9)


def test_without_the_bridge_the_numbers_are_the_same_and_one_line_says_so(monkeypatch):
    ratings = bf.datasets.make_ratings(12, 10, 2, seed=0)
    engine = bf.Gibbs(warmup=2, draws=3, chains=2)
    usual = bf.fit("bpmf", ratings, engine, n_components=2)
    monkeypatch.setattr(
        bridge, "refusal", lambda dots: "XLA refuses the Numba kernels (version 9.9)"
    )
    sparse._accepted.cache_clear()
    jax.clear_caches()  # programs traced before would still call the kernels
    try:
        with pytest.warns(
            RuntimeWarning, match=r"version 9\.9\) in JAX .*loops of JAX run instead"
        ):
            plain = bf.fit("bpmf", ratings, engine, n_components=2)
        assert sparse.backend() == "jax"
    finally:
        sparse._accepted.cache_clear()
        jax.clear_caches()
    for site, draws in usual.result.draws.items():
        np.testing.assert_allclose(plain.result.draws[site], draws, rtol=1e-6, atol=1e-8)


def test_an_unknown_version_of_the_interface_is_refused(monkeypatch):
    monkeypatch.setattr(bridge, "call", _fails)
    bridge.refusal.cache_clear()
    try:
        assert "XLA refuses the Numba kernels (version 7 of the interface)" in bridge.refusal(
            numba_loops.dots
        )
    finally:
        bridge.refusal.cache_clear()


def _fails(*args, **plan):
    raise NotImplementedError("version 7 of the interface")


def test_another_interface_of_xla_means_other_kernels_on_disk():
    """Its version is in the compiled code: XLA 0.2 refused handlers that were compiled for 0.3."""
    minor = f"#define XLA_FFI_API_MINOR {bridge.MINOR}"
    assert minor in bridge.HEADER and bridge.digest(bridge.HEADER) == bridge.CONTENT
    assert bridge.digest(bridge.HEADER.replace(minor, f"{minor}9")) != bridge.CONTENT
