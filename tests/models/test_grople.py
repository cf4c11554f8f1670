"""GroPLE: a sweep by hand, shrinkages, what the print lacks, kinks at the end, groups of labels."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core import correlations, events, kernels, label_groups, proximal
from bayesfac.core import label_embedding as steps
from bayesfac.core.method import log_joint, settle
from bayesfac.core.tasks import Tasks
from bayesfac.models.grople import METHOD, STEPS_Z, Hyper, Params
from bayesfac.testing import CHECKS

NAN = np.nan


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def table(n=24, D=5, L=6, unlabelled=4, seed=0):
    """Features of both signs, labels that follow them, the last rows without."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.8)
    y = (x @ rng.normal(size=(D, L)) + rng.normal(size=(n, L)) > 0.3).astype(float)
    y[n - unlabelled :] = NAN
    return x, y


SETTINGS = {
    "n_components": 4, "groups": (0, 0, 1, 2, 1, 1), "ridge": 0.05, "sparsity": 0.7, "coupling": 0.4,
    "alpha": 0.3, "beta": 0.6,
}  # fmt: skip


def begun(seed=0, shaken=0.3, rows=(24, 4), **more):
    """Data, settings and a point at which nothing is at rest."""
    x, y = table(rows[0], unlabelled=rows[1])
    data = Tasks(x, y)
    h = settle(METHOD, data, {**SETTINGS, **more})
    p = METHOD.init(jax.random.key(seed), data, h)
    rng = np.random.default_rng(seed)
    return data, h, jax.tree.map(lambda a: a + shaken * rng.normal(size=a.shape), p)


def ended(p, data, h, sweeps):
    step = jax.jit(lambda p: METHOD.update(p, data, h))
    for _ in range(sweeps):
        p = step(p)
    return p


def plain(p, data):
    """U, V, Z, the features, 2Y - 1 and which rows have labels, in NumPy."""
    (Z,), x = p.Z.values(), data["x"].toarray()
    return *map(np.asarray, (p.U, p.V, Z)), x, 2 * data["labels"].toarray() - 1, data.labelled


def apart(U):
    R = 1 - np.corrcoef(U.T)
    np.fill_diagonal(R, 0)
    return R


def lengths_of(V, groups):
    """|V[group, column]|, groups x columns."""
    groups = np.asarray(groups)
    return np.array([np.sqrt((V[groups == k] ** 2).sum(0)) for k in range(groups.max() + 1)])


def by_hand(p, data, h):
    U, V, Z, x, T, known = plain(p, data)
    J = ((T - U @ V.T)[known] ** 2).sum() + h.ridge * (U[known] ** 2).sum()
    J += h.sparsity * lengths_of(V, h.groups).sum()
    whole = ((x @ Z - U) ** 2).sum() + h.beta * np.abs(Z).sum() + h.gamma * (Z**2).sum()
    return J + h.coupling * (whole + h.alpha * np.trace(apart(U[known]) @ Z.T @ Z))


def test_objective_and_twin_are_the_formula():
    """With several groups; the contract's example has one."""
    sums = []
    for seed in range(3):
        data, h, p = begun(seed)
        np.testing.assert_allclose(METHOD.objective(p, data, h), by_hand(p, data, h), rtol=1e-11)
        sums.append(float(METHOD.objective(p, data, h) + log_joint(METHOD, p, data, h)))
    assert np.ptp(sums) < 1e-9 * (1 + abs(sums[0]))


@pytest.mark.parametrize("check", ["joint", "slopes", "descent", "prior", "predict", "backends"])
def test_the_contract_with_several_groups_and_features_of_both_signs(check):
    def example(key):
        data = Tasks(*table(9, 4, 4, 2))
        given = {"n_components": 3, "groups": (0, 1, 0, 1), "alpha": 0.5, "gamma": 1.0}
        return data, settle(METHOD, data, given)

    assert CHECKS[check](replace(METHOD, example=example), jax.random.key(0)) is None


# -- a sweep ------------------------------------------------------------------------------------
def climb_down(x, cost, slope, shrink, count):
    """Monotone accelerated proximal gradient, as Beck and Teboulle write it."""
    y, t = x, 1.0
    for _ in range(count):
        z = shrink(y - slope(y))
        after = (1 + np.sqrt(1 + 4 * t * t)) / 2
        new = z if cost(z) <= cost(x) * (1 + 1e-15) else x
        y, x, t = new + t / after * (z - new) + (t - 1) / after * (new - x), new, after
    return x


def golden(method):
    """V, U and Z by hand, from a point whose columns have their lengths already; then on along the way."""
    data, h, p = begun(alpha=0.0, gamma=0.8)
    p = ended(p, data, h, 1)
    U, V, Z, x, T, known = plain(p, data)
    groups, X, T = np.asarray(h.groups), x[known], T[known]
    s = scaled(p, data, h)
    U0, V0, Z0 = U[known] * s, V / s, Z * s

    gram, size = U0.T @ U0, (U0**2).sum(0)
    bend = 2 * size * np.linalg.eigvalsh(gram / np.sqrt(np.outer(size, size)))[-1]

    def shrink(W):
        left = np.maximum(1 - h.sparsity / bend / np.maximum(lengths_of(W, groups), 1e-300), 0)
        return W * left[groups]

    fit = lambda W: ((T - U0 @ W.T) ** 2).sum() + h.sparsity * lengths_of(W, groups).sum()  # noqa: E731
    V1 = climb_down(V0, fit, lambda W: 2 * (W @ gram - T.T @ U0) / bend, shrink, steps.STEPS_V)

    A = V1.T @ V1 + (h.ridge + h.coupling) * np.eye(4)
    U1 = (T @ V1 + h.coupling * X @ Z0) @ np.linalg.inv(A)

    bend_z = 2 * (np.abs(X).T @ np.abs(X).sum(1))[:, None] + 2 * h.gamma
    soft = lambda W: np.sign(W) * np.maximum(np.abs(W) - h.beta / bend_z, 0)  # noqa: E731
    far = lambda W: ((X @ W - U1) ** 2).sum() + h.gamma * (W**2).sum() + h.beta * np.abs(W).sum()  # noqa: E731
    slope = lambda W: (2 * X.T @ (X @ W - U1) + 2 * h.gamma * W) / bend_z  # noqa: E731
    Z1 = climb_down(Z0, far, slope, soft, STEPS_Z)

    def point(t):
        ways = [np.where(b == 0, 0, b - a) for a, b in ((V0, V1), (Z0, Z1))]
        Zt = Z1 + t * ways[1]
        whole = x @ Zt
        whole[known] = U1 + t * (U1 - U0)
        return Params(whole, V1 + t * ways[0], {"x": Zt})

    t, value = 0, by_hand(point(0), data, h)
    for further in (1, 2, 4, 8, 16, 32, 64):
        if by_hand(point(further), data, h) >= value:
            break
        t, value = further, by_hand(point(further), data, h)
    new = method.update(p, data, h)
    for found, expected in zip(jax.tree.leaves(new), jax.tree.leaves(point(t)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    return t


def scaled(p, data, h):
    """The s that costs least, column by column (no R: alpha is 0), on a fine grid and then a finer one."""
    U, V, Z, x, _, known = plain(p, data)
    square = h.ridge * (U[known] ** 2).sum(0) + h.coupling * ((x @ Z - U)[known] ** 2).sum(0)
    square += h.coupling * h.gamma * (Z**2).sum(0)
    once, back = h.coupling * h.beta * np.abs(Z).sum(0), h.sparsity * lengths_of(V, h.groups).sum(0)
    s = np.ones(4)
    for width in 10.0 ** -np.arange(0, 9.5, 0.5):
        tried = s * np.exp(width * np.linspace(-2, 2, 401))[:, None]
        s = tried[np.argmin(square * tried**2 + once * tried + back / tried, 0), np.arange(4)]
    return s


def test_golden_step():
    golden(METHOD)


def test_the_slope_of_u_goes_through_the_correlations():
    """With alpha the full step of U is against the slope of all its terms, finite differences say."""
    data, h, p = begun()
    U, V, Z, x, T, known = plain(p, data)
    A = V.T @ V + (h.ridge + h.coupling) * np.eye(4)
    old = steps.Point(*map(jnp.asarray, (U, V, Z, (T + 1) / 2 @ V, x @ Z)))
    new, short = steps.step_U(old, jnp.asarray(known)[:, None], h)
    assert not short
    slope = np.zeros_like(U)
    for i, r in np.ndindex(*U.shape):
        ends = []
        for e in (1e-5, -1e-5):
            moved = U.copy()
            moved[i, r] += e
            ends.append(by_hand(Params(moved, V, {"x": Z}), data, h))
        slope[i, r] = (ends[0] - ends[1]) / 2e-5 if known[i] else 0
    np.testing.assert_allclose(new - U, -slope / 2 @ np.linalg.inv(A), atol=1e-6)


def test_a_step_that_would_climb_is_shortened_and_told():
    data, h, p = begun(alpha=60.0, gamma=60.0)
    with events.listen() as heard:
        new = METHOD.update(p, data, h)
    assert heard["the step of (6.3) was shortened"] == 1
    assert METHOD.objective(new, data, h) < METHOD.objective(p, data, h)


def test_lengths_leave_the_fit_and_lower_the_rest():
    data, h, p = begun(shaken=1.0)
    known = steps.rows(data)
    at = steps.Point(p.U, p.V, p.Z["x"], steps.forth(data, p.V), data["x"] @ p.Z["x"])
    new = steps.stretched(at, known, h)
    np.testing.assert_allclose(new.U @ new.V.T, at.U @ at.V.T, rtol=1e-10)
    np.testing.assert_allclose(new.XZ, data["x"] @ new.Z, rtol=1e-10, atol=1e-12)
    assert steps.cost(new, known, h) < steps.cost(at, known, h)
    again = steps.stretched(new, known, h)
    assert steps.cost(new, known, h) - steps.cost(again, known, h) < 1e-2 * abs(
        steps.cost(at, known, h)
    )


def test_rows_without_labels_change_nothing_and_lie_at_their_features():
    x, y = table()
    few, all_ = Tasks(x[:20], y[:20]), Tasks(x, y)
    fits = [bf.fit("grople", data, progress=False, **SETTINGS) for data in (few, all_)]
    for name in ("V", "Z"):
        one, two = (jax.tree.leaves(getattr(fit.params, name))[0] for fit in fits)
        np.testing.assert_allclose(one, two, rtol=1e-9)
    np.testing.assert_allclose(fits[1].params.U[20:], x[20:] @ fits[1].params.Z["x"], atol=1e-12)


# -- shrinkages ---------------------------------------------------------------------------------
def test_shrinkages_are_the_minimum_of_what_they_claim():
    rng = np.random.default_rng(0)
    V, groups, t = rng.normal(size=(5, 3)), (0, 1, 0, 1, 1), np.array([0.3, 1.2, 9.0])
    z = np.asarray(label_groups.shrink(V, groups, t))
    assert (z[:, 2] == 0).all() and (z[:, 0] != 0).all()
    s = np.asarray(proximal.soft(V, 0.5))
    assert ((s == 0) == (np.abs(V) <= 0.5)).all()
    group = lambda W: ((W - V) ** 2).sum() / 2 + (t * lengths_of(W, groups)).sum()  # noqa: E731
    lasso = lambda W: ((W - V) ** 2).sum() / 2 + 0.5 * np.abs(W).sum()  # noqa: E731
    for best, cost in ((z, group), (s, lasso)):
        for size in (1e-3, 1e-1, 1.0):
            assert all(cost(best + size * rng.normal(size=V.shape)) > cost(best) for _ in range(50))


def test_a_group_laplace_law_has_gamma_lengths():
    """Mean m / w and variance m / w^2 of a group of m labels; directions in balance."""
    law = label_groups.GroupLaplace((0, 1, 0, 0), 2, 1.5)
    draws = np.asarray(law.sample(jax.random.key(0), (40_000,)))
    assert draws.shape == (40_000, 4, 2)
    size = np.sqrt((draws[:, [0, 2, 3]] ** 2).sum(1))
    error = np.sqrt(3) / 1.5 / np.sqrt(40_000)
    np.testing.assert_allclose(size.mean(0), 3 / 1.5, atol=5 * error)
    np.testing.assert_allclose(size.var(0), 3 / 1.5**2, rtol=0.1)
    np.testing.assert_allclose(draws.mean(0), 0, atol=5 * draws.std() / 200)
    np.testing.assert_allclose(
        law.log_prob(draws[:2]), [-1.5 * lengths_of(v, law.groups).sum() for v in draws[:2]]
    )


def test_at_zero_norms_have_a_slope_of_zero():
    slope = jax.grad(lambda V: jnp.sum(label_groups.norms(V, (0, 0, 1))))(jnp.zeros((3, 2)))
    assert (np.asarray(slope) == 0).all()


def test_the_accelerated_steps_never_climb_also_where_the_slope_misleads():
    Q = jnp.asarray(np.diag([-3.0, 1.0, 2.0]))  # not convex: no bound holds, and steps are too long
    cost = lambda x, Ax: jnp.sum(x * Ax) + jnp.sum(jnp.abs(x))  # noqa: E731
    x, ahead = jnp.asarray([0.5, 1.0, -1.0]), lambda x, g: proximal.soft(x - g, 1.0)
    trace = [cost(x, Q @ x)]
    for number in range(1, 8):
        z = proximal.accelerated(x, lambda x: Q @ x, cost, lambda x, Ax: 2 * Ax, ahead, number)
        trace.append(cost(z, Q @ z))
    assert (np.diff(trace) <= 1e-12).all() and trace[-1] < trace[0]


# -- what the print lacks -----------------------------------------------------------------------
def test_the_slope_of_the_likeness_has_a_two():
    """(6.13)'s alpha Z R is half of it."""
    data, h, p = begun(gamma=0.0)
    U, _, Z, _, _, known = plain(p, data)
    R, e = apart(U[known]), 1e-6
    at = lambda Z: h.alpha * np.trace(R @ Z.T @ Z)  # noqa: E731
    slope = np.zeros_like(Z)
    for where in np.ndindex(*Z.shape):
        step = np.zeros_like(Z)
        step[where] = e
        slope[where] = (at(Z + step) - at(Z - step)) / (2 * e)
    np.testing.assert_allclose(slope, 2 * h.alpha * Z @ R, atol=1e-7)
    assert np.abs(slope - h.alpha * Z @ R).max() > 0.1
    ours = jax.grad(lambda Z: steps.bound(p.U, Z, steps.rows(data), h))(p.Z["x"])
    np.testing.assert_allclose(ours, h.coupling * slope, atol=1e-6)


def test_without_gamma_there_is_no_minimum_where_features_outnumber_rows():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 9)), np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]] * 2, float)
    data, given = Tasks(x, y), {"n_components": 3, "n_groups": 1, "alpha": 0.5}
    costs = {}
    for gamma in (0.0, None):
        h = settle(METHOD, data, {**given, "gamma": gamma})
        p = METHOD.init(jax.random.key(0), data, h)
        value, turn = np.linalg.eigh(apart(np.asarray(p.U)))
        assert value[0] < 0 and abs(value.sum()) < 1e-9  # R has no trace
        way = np.outer(np.linalg.svd(x)[2][-1], turn[:, 0])  # X w = 0
        np.testing.assert_allclose(x @ way, 0, atol=1e-12)
        far = [p._replace(Z={"x": p.Z["x"] + t * way}) for t in (0, 1e2, 1e4)]
        costs[gamma] = [float(METHOD.objective(q, data, h)) for q in far]
    assert costs[0.0][2] < -1e4 < costs[0.0][0] and costs[0.0][2] < 100 * costs[0.0][1] < 0
    assert costs[None][0] < costs[None][1] < costs[None][2]


def test_gamma_is_enough_by_default_and_a_smaller_one_is_told():
    data, h, p = begun()
    assert h.gamma == pytest.approx(4 * 0.3)
    worst = [np.linalg.eigvalsh(apart(np.random.default_rng(s).normal(size=(3, 8))))[0] for s in range(50)]
    assert -8 <= min(worst) < -2  # R >= -d, and far from any constant
    end = ended(p, data, h, 20)
    assert METHOD.remarks(end, data, h) == []
    low = h._replace(gamma=0.01)
    least = np.linalg.eigvalsh(h.alpha * apart(np.asarray(end.U)[data.labelled]) + 0.01 * np.eye(4))[0]
    (said,) = METHOD.remarks(end, data, low)
    assert f"an eigenvalue of {least:.3g}: J may have no minimum" in said


def test_every_feature_has_a_safe_step():
    """diag(|X|'|X| 1) - X'X has no negative eigenvalue, whatever the signs."""
    x = table()[0][:20]
    bound = np.diag(np.abs(x).T @ np.abs(x).sum(1))
    assert np.linalg.eigvalsh(bound - x.T @ x)[0] > 0


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


def test_planted_groups_of_labels_are_found():
    _, y, truth = planted()
    assert label_groups.spectral_groups(y, 3) == label_groups.in_order(truth)


def test_groups_know_neither_the_order_of_rows_nor_of_labels():
    rng = np.random.default_rng(0)
    y = (rng.random((60, 12)) < rng.uniform(0.05, 0.6, 12)).astype(float)  # nothing to find
    found = np.asarray(label_groups.spectral_groups(y, 4))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows, labels = rng.permutation(60), rng.permutation(12)
        again = label_groups.spectral_groups(sp.csc_matrix(y[rows][:, labels]), 4)
        assert again == label_groups.in_order(found[labels])


def test_empty_and_equal_labels_have_a_group():
    y = np.zeros((8, 6))
    y[:3, 1] = y[:3, 4] = y[5, 2] = 1
    found = label_groups.spectral_groups(y, 3)
    assert found[1] == found[4] and found[0] == found[3] == found[5]
    assert max(label_groups.spectral_groups(np.zeros((4, 3)), 3)) < 3
    assert label_groups.spectral_groups(np.ones((4, 1)), 1) == (0,)


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
    one, two = METHOD.update(p, data, h), METHOD.update(turned, other, again)
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
    fit = bf.fit("grople", data, progress=False, n_components=3, n_groups=2)
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


@pytest.mark.parametrize("make", [np.asfortranarray, sp.csr_matrix, sp.coo_matrix, pd.DataFrame], ids=str)
def test_tables_of_any_kind_give_one_fit(make):
    x, y = table()
    x.flags.writeable = False
    same = bf.fit("grople", Tasks(x, y), bf.FixedPoint(3, tol=0.5), progress=False, **SETTINGS)
    other = bf.fit("grople", Tasks({"x": make(x)}, y), bf.FixedPoint(3, tol=0.5), progress=False, **SETTINGS)
    np.testing.assert_allclose(same.params.V, other.params.V, rtol=1e-12)


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
            fit = bf.fit("grople", data, bf.FixedPoint(60), progress=False, **settings)
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
    with kernels.use(backend):
        new = METHOD.update(p, data, h)
    np.testing.assert_allclose(new.V, ended(p, data, h, 1).V, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_components": 0}, "Expected n_components between 1 and 100000"),
        ({"n_groups": 7}, r"Expected n_groups between 1 and 6 .the number of labels., got 7"),
        ({"n_groups": 2.5}, "Expected n_groups between 1 and 6"),
        ({"groups": (0, 1)}, "Expected a group for each of 6 labels, got 2"),
        ({"groups": (0, 0, 1, 2, 1, 1), "n_groups": 2}, "Expected 2 groups, or n_groups left out, got 3"),
        ({"alpha": -1.0}, "Expected alpha to be a finite number above 0, got -1"),
        ({"alpha": NAN}, "Expected alpha to be a finite number above 0, got nan"),
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
