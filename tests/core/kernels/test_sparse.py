"""The sparse loops: Numba, JAX and a dense table agree, whatever the rows are like."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.cells import CHUNK, Cells, Grid, Query
from bayesfac.core.kernels import sparse
from bayesfac.core.math import inner, normalise, pick, safe_log

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


@pytest.fixture(
    params=[
        ("float32", 3),
        ("float64", 1),
        ("float64", 11),
        ("float32", 16),
        ("float32", 20),
        ("float64", 37),
    ],
    ids=str,
)
def table(request):
    """Empty rows and an empty column; rows of one cell, of exactly 64, of 65 and of 200."""
    precision, K = request.param
    with jax.enable_x64(precision == "float64"):
        rng = np.random.default_rng(0)
        seen = np.zeros((9, 201), bool)
        for row, count in enumerate([7, 0, 1, CHUNK, CHUNK + 1, 200, 1, 0, 130]):
            seen[row, rng.choice(200, count, replace=False)] = True
        row, col = np.nonzero(seen)
        cells = Cells(row, col, seen.shape)
        dtype = np.dtype(precision)
        arrays = {"U": rng.random((9, K)), "V": rng.random((201, K)), "y": rng.random(len(row))}
        yield precision, seen, cells, {k: jnp.asarray(v, dtype) for k, v in arrays.items()}


def prior(K):
    """Precision, shift and weight of a row that has no cell."""
    return np.eye(K) * 2 + 0.1, np.arange(K) - 0.5, 1.7


def noise(n, K):
    return np.random.default_rng(n).normal(size=(n, K))


def run(cells, U, V, y):
    """Every loop once."""
    P, s, w = (jnp.asarray(part, U.dtype) for part in prior(U.shape[1]))
    z = [jnp.asarray(noise(*x.shape), U.dtype) for x in (U, V)]
    by_row, by_col = (cells.by_row, y, V, w, P, s), (cells.by_col, y, U, w, P, s)
    return {
        "dots": sparse.dots(cells, U, V),
        "spread by row": sparse.spread(cells.by_row, y, V),
        "spread by column": sparse.spread(cells.by_col, y, U),
        "ratio_step": jnp.concatenate(sparse.ratio_step(cells, y, U, V)),
        "rows solved": sparse.solve_rows(*by_row),
        "columns solved": sparse.solve_rows(*by_col),
        "rows drawn": sparse.solve_rows(*by_row, z[0]),
        "columns drawn": sparse.solve_rows(*by_col, z[1]),
        "rows drawn twice": sparse.solve_rows(*by_row, jnp.stack([z[0], -2 * z[0]], 1)),
    }


def ridge(seen, Y, V, z):
    """Row by row: the mean, and a draw with covariance P^-1 from the noise z."""
    P, s, w = prior(V.shape[1])
    means, draws = [], []
    for here, y, e in zip(seen, Y, z, strict=True):
        v = V[here]
        precision = P + w * v.T @ v
        mean = np.linalg.solve(precision, s + w * v.T @ y[here])
        means.append(mean)
        draws.append(mean + np.linalg.solve(np.linalg.cholesky(precision).T, e))
    return np.array(means), np.array(draws)


def dense(seen, U, V, y):
    """The same from a table, in numpy and float64."""
    U, V, y = (np.asarray(x, np.float64) for x in (U, V, y))
    Y = np.zeros(seen.shape)
    Y[seen] = y
    R = np.where(seen, Y / (U @ V.T), 0)
    rows, columns = ridge(seen, Y, V, noise(*U.shape)), ridge(seen.T, Y.T, U, noise(*V.shape))
    return {
        "dots": (U @ V.T)[seen],
        "spread by row": Y @ V,
        "spread by column": Y.T @ U,
        "ratio_step": np.concatenate([R @ V, R.T @ U]),
        "rows solved": rows[0],
        "columns solved": columns[0],
        "rows drawn": rows[1],
        "columns drawn": columns[1],
        "rows drawn twice": np.stack([rows[1], 3 * rows[0] - 2 * rows[1]], 1),
    }


@pytest.mark.parametrize("way", ["numba", "jax", "jax, compiled"])
def test_every_loop_agrees_with_a_dense_table(table, way):
    precision, seen, cells, arrays = table
    with sparse.use(way.split(",")[0]):
        found = (jax.jit(run) if "compiled" in way else run)(cells, **arrays)
    expected = dense(seen, **arrays)
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == precision, name
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(
            found[name], expected[name], rtol=0, atol=TOLERANCE[precision] * scale, err_msg=name
        )


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_a_cell_whose_product_is_zero_says_nothing(backend):
    """A word that no row had before stands fifty times in a row: a ratio to zero would overflow."""
    cells = Cells(np.zeros(2, np.int32), np.arange(2, dtype=np.int32), (1, 2))
    y, A = jnp.array([50.0, 3.0], jnp.float32), jnp.array([[1.0, 0.5]], jnp.float32)
    G = jnp.array([[0.0, 0.0], [0.25, 0.5]], jnp.float32)
    with sparse.use(backend):
        by_row, by_col = sparse.ratio_step(cells, y, A, G)
    np.testing.assert_allclose(by_row, [[1.5, 3.0]], rtol=1e-6)
    np.testing.assert_allclose(by_col, [[0, 0], [6.0, 3.0]], rtol=1e-6)


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_the_gradient_of_inner_is_the_dense_one(table, backend):
    """`inner` has its own rule: the slope of any loss, spread to both sides."""
    precision, seen, cells, arrays = table
    U, V, y = arrays.values()

    def loss(U, V):
        return jnp.sum(jnp.sin(inner(U, V, cells)) * y)

    with sparse.use(backend):
        gU, gV = jax.grad(loss, (0, 1))(U, V)
    slope = np.zeros(seen.shape)
    slope[seen] = np.cos(np.asarray(U) @ np.asarray(V).T)[seen] * np.asarray(y)
    tolerance = {"rtol": 0, "atol": 100 * TOLERANCE[precision]}
    np.testing.assert_allclose(gU, slope @ np.asarray(V), **tolerance)
    np.testing.assert_allclose(gV, slope.T @ np.asarray(U), **tolerance)


def test_the_order_of_cells_is_row_major_and_back(table):
    _, seen, cells, _ = table
    row, col = np.nonzero(seen)
    np.testing.assert_array_equal(cells.row, row)
    np.testing.assert_array_equal(cells.col, col)
    by = cells.by_col
    np.testing.assert_array_equal(np.asarray(cells.row)[by.order], by.index)
    assert (np.diff(np.asarray(cells.col)[by.order]) >= 0).all()
    flipped = cells.flip()
    assert flipped.shape == (201, 9)
    np.testing.assert_array_equal(flipped.by_row.index, cells.by_col.index)
    np.testing.assert_array_equal(flipped.flip().row, row)


def test_chunks_hold_every_cell_once(table):
    _, _, cells, _ = table
    for rows in (cells.by_row, cells.by_col):
        chunk = np.asarray(sparse.chunks(rows))
        assert chunk.shape[1] == CHUNK
        np.testing.assert_array_equal(np.sort(chunk[chunk >= 0]), np.arange(len(cells)))
        line = np.repeat(np.arange(len(rows.ptr) - 1), np.diff(rows.ptr))
        at = np.where(chunk >= 0, line[chunk], np.asarray(rows.chunk_row)[:, None])
        assert (at == np.asarray(rows.chunk_row)[:, None]).all()


def test_compilation_does_not_grow_with_ragged_rows():
    """Shapes depend on the number of chunks only: other row lengths, same program."""
    traced = []

    @jax.jit
    def step(by_row, y, V):
        traced.append(1)
        return sparse.spread(by_row, y, V)

    with sparse.use("jax"):
        for counts in ([3, 5, 2, 6], [4, 4, 4, 4], [1, 1, 1, 13]):
            row = np.repeat(np.arange(4), counts)
            col = np.concatenate([np.arange(c) for c in counts])
            step(Cells(row, col, (4, 20)).by_row, jnp.ones(16), jnp.ones((20, 2)))
    assert len(traced) == 1


def test_a_matrix_that_is_not_positive_definite_gives_nan_and_no_number(table):
    """The engines look for NaN after every sweep and name the site."""
    _, _, cells, arrays = table
    V, y = arrays["V"], arrays["y"]
    wrong, shift = -jnp.eye(V.shape[1], dtype=V.dtype), jnp.ones(V.shape[1], V.dtype)
    for backend in ("numba", "jax"):
        with sparse.use(backend):
            given = (cells.by_row, y, V, V.dtype.type(0), wrong, shift)
            assert np.isnan(sparse.solve_rows(*given)).all()


def test_rows_with_priors_of_their_own(table):
    """With L_i and s_i for each row: the same as one row after the other with a common L and s."""
    precision, seen, cells, arrays = table
    V, y, n, K = arrays["V"], arrays["y"], *arrays["U"].shape
    rng = np.random.default_rng(5)
    half = rng.normal(size=(n, K, K))
    L = jnp.asarray(half @ half.swapaxes(1, 2) / K + np.eye(K), V.dtype)
    s, z = (jnp.asarray(rng.normal(size=(n, K)), V.dtype) for _ in range(2))
    for backend in ("numba", "jax"):
        with sparse.use(backend):
            rows = cells.by_row, y, V, V.dtype.type(1.7)
            many = sparse.solve_rows(*rows, L, s, z)
            chains = jax.vmap(partial(sparse.solve_rows, *rows, L, s))(jnp.stack([z, z]))
            one = jnp.stack([sparse.solve_rows(*rows, L[i], s[i], z)[i] for i in range(n)])
        np.testing.assert_allclose(many, one, rtol=TOLERANCE[precision], atol=TOLERANCE[precision])
        np.testing.assert_allclose(
            chains[1], many, rtol=TOLERANCE[precision], atol=TOLERANCE[precision]
        )


def test_backends_are_chosen_and_given_back():
    assert sparse.backend() in ("numba", "jax")
    before = sparse.backend()
    with sparse.use("jax"), sparse.use("numba"):
        assert sparse.backend() == "numba"
    assert sparse.backend() == before
    with (
        pytest.raises(ValueError, match="Expected 'numba' or 'jax', got 'cuda'"),
        sparse.use("cuda"),
    ):
        pass


# -- nothing is densified -------------------------------------------------------------------------
def largest(jaxpr):
    """The size of the largest array that a program makes on its way."""
    sizes = [
        int(np.prod(v.aval.shape))
        for e in jaxpr.eqns
        for v in e.outvars
        if hasattr(v.aval, "shape")
    ]
    for eqn in jaxpr.eqns:
        for inside in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")
        ):
            if hasattr(inside, "jaxpr"):
                sizes.append(largest(inside.jaxpr))
    return max(sizes, default=0)


def sparse_example(method):
    """2000 rows by 15,000 columns, of a tensor by two labels of a third mode; three cells in a row. A
    table would be six times what five members are."""
    n, m = 2000, 15_000
    rng = np.random.default_rng(0)
    cells = np.repeat(np.arange(n), 3), np.concatenate([rng.choice(m, 3, False) for _ in range(n)])
    levels = method.example(jax.random.key(0))[0].levels if method.data is bf.Ratings else None
    value = rng.choice(levels or [1.0, 2.0, 3.0], 3 * n)
    x = sp.csr_matrix((value, cells), shape=(n, m))
    if method.data is bf.Tensor:
        data = bf.Tensor(*cells, np.arange(3 * n) % 2, value)
    elif method.data is bf.Relations:
        flags = np.arange(2 * n) % 2, rng.integers(2, size=2 * n)
        side = (np.arange(2 * n) // 2, flags[0], flags[1])
        data = bf.Relations(x, {"tags": ("user", "tag", bf.Ratings(*side, levels=[0, 1]))})
    elif method.data is bf.Measurements:
        used, col = np.unique(cells[1], return_inverse=True)
        table, m = np.full((n, len(used)), np.nan), len(used)
        table[cells[0], col] = value
        data = bf.Measurements(table)
    elif method.data is bf.Tasks:
        data = bf.Tasks(x, rng.integers(2, size=(n, 3)), task=np.arange(n) % 2)
    else:
        data = method.data(x, levels=levels) if levels else method.data(x)
    sizes = {"n_components": 2, "n_frequencies": 1, "layers": ((3, 2), (2, 2)), "pretraining": 1}
    sizes |= {"members": 5}
    if method.data is bf.Views:
        sizes |= {"start": "random", "penalty": 1.0}  # nothing is to be chosen by fits
    small = {name: size for name, size in sizes.items() if name in method.Hyper._fields}
    return data, method.prepare(data, method.Hyper(**small)), n * m


def test_no_program_makes_a_table(method):
    """Objective, gradient and update of every method stay far below rows x columns."""
    data, hyper, dense_size = sparse_example(method)
    data = method.ready(data, hyper)
    p = method.init(jax.random.key(0), data, hyper)
    functions = [
        method.objective,
        jax.grad(method.objective),
        *([method.solver.update] if method.solver.update else []),
    ]
    for function in functions:
        with sparse.use("jax"):
            program = jax.make_jaxpr(lambda p, data, f=function: f(p, data, hyper))(p, data)
        assert 2000 < largest(program.jaxpr) < dense_size / 4


# -- arithmetic -----------------------------------------------------------------------------------
def test_inner_at_cells_queries_and_grids():
    U, V = jnp.arange(6.0).reshape(3, 2), jnp.arange(8.0).reshape(4, 2)
    np.testing.assert_allclose(
        inner(U, V, Grid(np.array([0, 2]), np.arange(4))), (U @ V.T)[np.array([0, 2])]
    )
    asked = Query(np.array([2, -1, 0]), np.array([1, 0, -1]))
    np.testing.assert_allclose(inner(U, V, asked), [(U @ V.T)[2, 1], 0, 0])
    np.testing.assert_allclose(pick(jnp.arange(3.0), np.array([2, -1])), [2, 0])


def test_normalise_and_safe_log_at_zero():
    rows = normalise(jnp.array([[1.0, 3], [0, 0]]), jnp.array([[0.5, 0.5], [0.2, 0.8]]))
    np.testing.assert_allclose(rows, [[0.25, 0.75], [0.2, 0.8]])
    assert 0 * safe_log(jnp.zeros(())) == 0
    assert np.isfinite(jax.grad(lambda x: 0 * safe_log(x))(0.0))
    assert np.isfinite(jax.grad(lambda t: normalise(t, t).sum())(jnp.zeros((1, 2)))).all()


def test_normal_equations_have_the_weights_of_their_cells():
    """In JAX, of rows with and without cells; one weight for all cells, and one for each."""
    rng = np.random.default_rng(0)
    row, col = np.array([0, 0, 0, 2]), np.array([0, 1, 3, 1])
    cells, V, t = Cells(row, col, (3, 4)), rng.normal(size=(4, 2)), rng.normal(size=4)
    L, s = np.eye(2) + 0.3, rng.normal(size=2)
    with jax.enable_x64(True):
        for weight in (np.float64(1.7), rng.uniform(0.5, 2, 4)):
            P, b = sparse.normal_equations(cells.by_row, *map(jnp.asarray, (t, V, weight, L, s)))
            w = np.broadcast_to(weight, 4)
            for i in range(3):
                v, own = V[col[row == i]], w[row == i]
                np.testing.assert_allclose(P[i], L + (v.T * own) @ v, rtol=1e-12)
                np.testing.assert_allclose(b[i], s + (v.T * own) @ t[row == i], rtol=1e-12)
