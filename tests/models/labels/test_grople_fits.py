"""GroPLE: where it ends, groups of labels, new rows, odd data, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.kernels import sparse
from bayesfac.core.method import settle
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels.grople import METHOD
from tests.models.labels.grople_by_hand import (
    NAN,
    SETTINGS,
    apart,
    begun,
    ended,
    plain,
    table,
)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


# -- the end ------------------------------------------------------------------------------------
def at_rest(p, data, h, atol, fit=None):
    """Slopes are zero, or at a kink no steeper than the penalty."""
    U, V, Z, x, T, known = plain(p, data)
    groups, U, X, T = np.asarray(h.groups), U[known], x[known], T[known]
    slope = 2 * (V @ (U.T @ U) - T.T @ U)
    for k in range(groups.max() + 1):
        own = groups == k
        for r in range(V.shape[1]):
            size = np.linalg.norm(V[own, r])
            if size == 0:
                assert np.linalg.norm(slope[own, r]) <= h.sparsity + atol
            else:
                np.testing.assert_allclose(slope[own, r], -h.sparsity * V[own, r] / size, atol=atol)
    K = h.alpha * apart(U) + h.gamma * np.eye(len(U.T))
    slope = 2 * X.T @ (X @ Z - U) + 2 * Z @ K
    assert (np.abs(slope)[Z == 0] <= h.beta + atol).all()
    np.testing.assert_allclose(slope[Z != 0], -h.beta * np.sign(Z[Z != 0]), atol=atol)
    return (V == 0).any(), (Z == 0).any()


def test_the_end_satisfies_the_conditions_of_a_minimum():
    data, h, p = begun(sparsity=4.0, beta=4.0)
    p = ended(p, data, h, 1500)
    assert at_rest(p, data, h, 1e-5) == (True, True)
    slope = jax.grad(lambda U: METHOD.objective(p._replace(U=U), data, h))(p.U)
    np.testing.assert_allclose(slope, 0, atol=1e-5)


def test_a_small_coupling_is_the_two_stages_of_the_thesis():
    """U and V are the same whatever the features; they solve (6.3) and (6.4), and Z solves (6.11)."""
    x, y = table(unlabelled=0)
    found = []
    for features in (x, x[::-1].copy()):
        data = Tasks(features, y)
        h = settle(METHOD, data, {**SETTINGS, "coupling": 1e-9, "alpha": 0.02})
        p = ended(METHOD.init(jax.random.key(0), data, h), data, h, 1500)
        at_rest(p, data, h, 1e-4)
        U, V, _, _, T, _ = plain(p, data)
        ridge = T @ V @ np.linalg.inv(V.T @ V + h.ridge * np.eye(4))
        np.testing.assert_allclose(U, ridge, atol=1e-5)
        found.append(U @ V.T)
    np.testing.assert_allclose(*found, atol=1e-4)
    both = settle(METHOD, data, SETTINGS)
    p = ended(METHOD.init(jax.random.key(0), data, both), data, both, 300)
    assert np.abs(p.U @ p.V.T - found[1]).max() > 0.05  # features have a say


def test_many_labels_end_after_few_sweeps():
    """U M and V M^-T fit the labels alike; steps of U and V in turn took 12,000 sweeps to J = 115."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 50))
    score = x @ rng.normal(size=(50, 8)) @ rng.normal(size=(8, 40)) / 20
    score += 0.5 * rng.normal(size=score.shape)
    share = np.maximum(0.5 * np.arange(1, 41) ** -0.7, 0.01)
    y = np.stack([s > np.quantile(s, 1 - a) for s, a in zip(score.T, share, strict=True)], 1)
    with jax.enable_x64(False):
        fit = bf.fit("grople", Tasks(x, y), bf.FixedPoint(150), beta=1.0, cut=0.5, progress=False)
    assert fit.converged and fit.trace[-1] < 115.0


# -- groups -------------------------------------------------------------------------------------
def planted(n=300, groups=3, size=5, seed=0):
    """Labels of a group follow two directions of their own; labels in a shuffled order."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2 * groups))
    sides = np.zeros((groups * size, 2 * groups))
    for k in range(groups):
        angle = np.linspace(0.2, 1.3, size)
        sides[k * size : (k + 1) * size, 2 * k : 2 * k + 2] = np.c_[np.cos(angle), np.sin(angle)]
    order = rng.permutation(groups * size)
    y = (x @ sides.T + 0.2 * rng.normal(size=(n, groups * size)) > 0).astype(float)
    return x, y[:, order], order // size


@pytest.mark.slow
def test_columns_are_switched_off_for_whole_groups():
    """Figure 6.1: every group ends with two columns of its own; without the penalty all serve all."""
    x, y, truth = planted()
    on = {}
    for sparsity in (40.0, 1e-3):
        fit = bf.fit("grople", Tasks(x, y), bf.FixedPoint(100, tol=1e-7), progress=False, ridge=0.1,
                     n_components=6, n_groups=3, sparsity=sparsity, coupling=1.0)  # fmt: skip
        V = np.asarray(fit.params.V)
        on[sparsity] = np.array([(V[truth == k] != 0).mean(0) for k in range(3)])
    assert (on[40.0].sum(0) == 1).all() and (on[40.0].sum(1) == 2).all()
    assert (on[1e-3] == 1).all()


def test_relabelling_moves_the_groups_along():
    data, h, p = begun()
    rng = np.random.default_rng(0)
    order = rng.permutation(6)
    x, y = table()
    other = Tasks(x, y[:, order])
    again = settle(METHOD, other, {**SETTINGS, "groups": np.asarray(h.groups)[order]})
    turned = p._replace(V=p.V[order])
    np.testing.assert_allclose(METHOD.objective(p, data, h), METHOD.objective(turned, other, again))
    one, two = METHOD.solver.update(p, data, h), METHOD.solver.update(turned, other, again)
    np.testing.assert_allclose(one.V[order], two.V, rtol=1e-9, atol=1e-12)


def test_signs_are_no_gauge_but_without_alpha():
    data, h, p = begun()
    turned = jax.tree.map(lambda a: a * jnp.asarray([1, -1, 1, 1]), p)
    J = [float(METHOD.objective(q, data, h)) for q in (p, turned)]
    assert abs(J[0] - J[1]) > 1e-3
    plain = h._replace(alpha=0.0)
    np.testing.assert_allclose(*(METHOD.objective(q, data, plain) for q in (p, turned)), rtol=1e-12)


# -- fits ---------------------------------------------------------------------------------------
def test_new_rows_and_a_saved_fit(tmp_path):
    x, y = table()
    names = [f"w{i}" for i in range(5)]
    data = Tasks({"words": pd.DataFrame(x, columns=names)}, y, constant=True)
    fit = bf.fit("grople", data, progress=False, n_components=3, n_groups=2, scaled=False)
    fit.save(tmp_path / "fit")
    loaded = bf.load(tmp_path / "fit")
    assert loaded.hyper == fit.hyper and hash(loaded.hyper) == hash(fit.hyper)
    assert settle(METHOD, data, fit.hyper._asdict()) == fit.hyper
    views = {"words": pd.DataFrame(x[:3], columns=names)}
    new = loaded.fold_in(Tasks(views, constant=True))
    Z, V = np.asarray(fit.params.Z["words"]), np.asarray(fit.params.V)
    np.testing.assert_allclose(new.params.U, np.c_[x[:3], np.ones(3)] @ Z, atol=1e-12)
    asked = new.predict({"row": [0, 2], "label": [1, 4]})
    mean = (np.sum(np.asarray(new.params.U)[[0, 2]] * V[[1, 4]], 1) + 1) / 2
    np.testing.assert_allclose(asked.mean, np.clip(mean, 1e-3, 1 - 1e-3), rtol=1e-9)
    known = loaded.fold_in(Tasks(views, y[:3], constant=True)).params.U
    A = V.T @ V + (fit.hyper.ridge + fit.hyper.coupling) * np.eye(3)
    right = (2 * y[:3] - 1) @ V + fit.hyper.coupling * np.asarray(new.params.U)
    np.testing.assert_allclose(known, right @ np.linalg.inv(A), rtol=1e-8)


@pytest.mark.parametrize("make", [np.asfortranarray, sp.coo_matrix, pd.DataFrame])
def test_tables_of_any_kind_have_one_objective(make):
    data, h, p = begun()
    x, y = table()
    x.flags.writeable = y.flags.writeable = False
    same = METHOD.objective(p, Tasks({"x": make(x)}, make(y)), h)
    assert float(same) == pytest.approx(float(METHOD.objective(p, data, h)), rel=1e-13)


def test_odd_sizes_and_labels_do_not_matter():
    """More columns than labels, one labelled row, a label that nobody has and one that all have, a feature
    that nobody has; in single precision, where users are."""
    with jax.enable_x64(False):
        x, y = table(12, 4, 3, 2)
        x[:, 3] = 0
        y[:10, 0], y[:10, 1] = 0, 1
        one = np.full((3, 2), NAN)
        one[0] = [1, 0]
        for data, d in ((Tasks(x, y), 5), (Tasks(x[:3], one), 2)):
            settings = {"n_components": d, "n_groups": 2, "alpha": 0.0, "gamma": 0.0}
            fit = bf.fit("grople", data, progress=False, **settings)
            assert np.isfinite(fit.predict(data.grid()).mean).all()
            assert not [note for note in fit.result.notes if "rose" in note]


def test_single_precision_keeps_what_little_is_left_of_many_cells():
    """|2Y - 1|^2 is the number of cells: taken from, it would leave only rounding."""
    rng = np.random.default_rng(0)
    x = (rng.random((800, 60)) < 0.1).astype(float)
    y = (x[:, :40] * (rng.random((800, 40)) < 0.9)).astype(float)
    exact = Tasks(x, y, constant=True)
    h = settle(METHOD, exact, {"n_components": 20, "groups": np.arange(40) // 4})
    p = ended(METHOD.init(jax.random.key(0), exact, h), exact, h, 5)
    J = float(METHOD.objective(p, exact, h))
    with jax.enable_x64(False):
        data = Tasks(x, y, constant=True)
        single = jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float32), p)
        assert float(METHOD.objective(single, data, h)) == pytest.approx(J, rel=2e-5)


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_both_backends_find_the_same(backend):
    data, h, p = begun()
    with sparse.use(backend):
        new = METHOD.solver.update(p, data, h)
    np.testing.assert_allclose(new.V, ended(p, data, h, 1).V, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_components": 0}, "Expected n_components between 1 and 100000"),
        ({"n_groups": 7}, r"Expected n_groups between 1 and 6 .the number of labels., got 7"),
        ({"n_groups": 2.5}, "Expected n_groups to be a whole number or None, got 2.5"),
        ({"groups": (0, 1)}, r"Expected a group for each of 6 labels in a row, got \(2,\)"),
        (
            {"groups": (0, 0, 1, 2, 1, 1), "n_groups": 2},
            "Expected 2 groups, or n_groups left out, got 3",
        ),
        ({"alpha": -1.0}, "Expected alpha to be a finite number above 0, got -1"),
        ({"alpha": NAN}, "Expected alpha to be a number, got nan"),
        ({"gamma": -0.1}, "Expected gamma to be a finite number above 0"),
        ({"beta": 0.0}, "Expected beta to be a finite number above 0, got 0"),
        ({"ridge": 0}, "Expected ridge to be a finite number above 0"),
        ({"sparsity": 0}, "Expected sparsity to be a finite number above 0"),
        ({"coupling": float("inf")}, "Expected coupling to be a finite number above 0, got inf"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("grople", Tasks(*table()), progress=False, **given)


def test_data_that_cannot_be_are_refused():
    x, y = table()
    bad = [
        (Tasks({"a": x, "b": x}, y), r"one view, got 2: a, b \(see Tasks.concatenated\(\)\)"),
        (Tasks(x, 2 * y - 1), "labels 0 and 1, got -1 and 1"),
        (Tasks(x), "labels of at least one row, got none"),
        (Tasks(x, np.where(np.eye(24, 6), NAN, y)), "all labels of a row or none, got NaN"),
    ]
    for data, said in bad:
        with pytest.raises(ValueError, match=said):
            bf.fit("grople", data, progress=False, n_groups=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_the_objective_does_not_rise_in_single_precision():
    """Labels are many beside J, so that differences of costs are lost in rounding errors."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 40)) * (rng.random((300, 40)) < 0.3)
    y = (x @ rng.normal(size=(40, 25)) + rng.normal(size=(300, 25)) > 1).astype(float)
    with jax.enable_x64(False):
        data = bf.Tasks({"x": x}, y)
        fit = bf.fit("grople", data, bf.FixedPoint(900, tol=0.0), beta=0.1, cut=0.5, progress=False)
    assert not any("rose" in note for note in fit.notes)
