"""GroPLE: its objective, a sweep by hand, and what the print lacks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core import events
from bayesfac.core.method import log_joint, settle
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels import _grople_joint as joint_step
from bayesfac.labels.models.labels import _grople_steps as steps
from bayesfac.labels.models.labels._grople_joint import joint
from bayesfac.labels.models.labels.grople import METHOD, PASSES, Params
from bayesfac.testing import CHECKS
from tests.models.labels.grople_by_hand import (
    SETTINGS,
    apart,
    begun,
    by_hand,
    ended,
    lengths_of,
    plain,
    table,
)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


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
def golden(method):
    """V, U and Z by hand, and then the joint step, whose own test is below."""
    data, h, p = begun(alpha=0.0, gamma=0.8)
    p = ended(p, data, h, 1)
    U, V, Z, x, T, known = plain(p, data)
    groups, X, T0, T = np.asarray(h.groups), x[known], T, T[known]
    s = scaled(p, data, h)
    U0, V0, Z0 = U[known] * s, V / s, Z * s

    gram, size = U0.T @ U0, (U0**2).sum(0)
    bend = 2 * size * np.linalg.eigvalsh(gram / np.sqrt(np.outer(size, size)))[-1]

    ahead = V0 - 2 * (V0 @ gram - T.T @ U0) / bend
    left = np.maximum(1 - h.sparsity / bend / np.maximum(lengths_of(ahead, groups), 1e-300), 0)
    V1 = ahead * left[groups]

    A = V1.T @ V1 + (h.ridge + h.coupling) * np.eye(4)
    U1 = (T @ V1 + h.coupling * X @ Z0) @ np.linalg.inv(A)

    Z1 = Z0.copy()
    for _ in range(PASSES):
        for j in np.argsort(-(X**2).sum(0)):
            for k in range(4):
                square = (X[:, j] ** 2).sum()
                pull = X[:, j] @ (U1 - X @ Z1)[:, k] + square * Z1[j, k]
                Z1[j, k] = np.sign(pull) * max(abs(pull) - h.beta / 2, 0) / (square + h.gamma)

    whole = x @ Z1
    whole[known] = U1
    at = map(jnp.asarray, (whole, V1, Z1, (T0 + 1) / 2 @ V1, x @ Z1))
    end = joint(steps.Point(*at), data, h)
    new, known = method.solver.update(p, data, h), known[:, None]
    expected = np.where(known, end.U, end.XZ), end.V, end.Z
    for found, hand in zip(jax.tree.leaves(new), expected, strict=True):
        # the joint step ends its conjugate gradients early: processors differ by 1.1e-6
        np.testing.assert_allclose(found, hand, rtol=5e-6, atol=1e-9)


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


def settled_point(**more):
    """A point near the end, where some groups of V and entries of Z are zero, and nothing else is at rest."""
    data, h, p = begun(sparsity=4.0, beta=4.0, **more)
    p = ended(p, data, h, 100)
    rng = np.random.default_rng(1)
    U, V, Z = (a + 1e-4 * rng.normal(size=a.shape) * (a != 0) for a in (p.U, p.V, p.Z["x"]))
    at = steps.Point(U, V, Z, steps.forth(data, V), jnp.asarray(data["x"] @ Z))
    return data, h, at


def test_the_joint_step_is_newtons(monkeypatch):
    """Of J in the entries of U, V and Z that are not zero, up to squares of the step; alpha is 0."""
    monkeypatch.setattr(joint_step, "MOST", 500)
    monkeypatch.setattr(joint_step, "ENOUGH", 1e-12)
    data, h, at = settled_point(alpha=0.0, gamma=0.8)
    known, x = data.labelled, data["x"].toarray()
    given = [np.asarray(a) for a in (at.U[known], at.V, at.Z)]
    alive = np.concatenate([np.ones(given[0].size), *((a != 0).ravel() for a in given[1:])]) > 0
    assert not alive.all()
    flat = np.concatenate([a.ravel() for a in given])

    def cost(entries):
        U, V, Z = np.split(
            jnp.asarray(flat).at[alive].set(entries), np.cumsum([a.size for a in given[:2]])
        )
        U, V, Z = (a.reshape(b.shape) for a, b in zip((U, V, Z), given, strict=True))
        U = jnp.asarray(x @ Z).at[known].set(U)  # rows without labels follow Z
        return METHOD.objective(Params(U, V, {"x": Z}), data, h)

    slope, bend = jax.grad(cost)(flat[alive]), jax.jacrev(jax.grad(cost))(flat[alive])
    expected = np.zeros_like(flat)
    expected[alive] = -np.linalg.solve(bend, slope)
    new = joint(at, data, h)
    found = [np.ravel(b - a) for a, b in zip(given, (new.U[known], new.V, new.Z), strict=True)]
    size = np.abs(expected).max()
    assert 1e-6 < size < 1e-2
    np.testing.assert_allclose(np.concatenate(found), expected, atol=10 * size**2)


def test_the_joint_step_lowers_j_from_anywhere():
    """With zeros crossed, R that changes with U, and curvature of either sign."""
    for seed in range(6):
        data, h, p = begun(seed, shaken=1.0, alpha=4.0 * (seed % 2))
        at = steps.Point(p.U, p.V, p.Z["x"], steps.forth(data, p.V), data["x"] @ p.Z["x"])
        new = joint(at, data, h)
        q = Params(new.U, new.V, {"x": new.Z})
        assert METHOD.objective(q, data, h) < METHOD.objective(p, data, h)
        assert not np.any(np.asarray(new.Z) * np.asarray(at.Z) < 0)


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
    data, h, p = begun(alpha=4e4, gamma=4e4, shaken=1.0)
    with events.listen() as heard:
        new = METHOD.solver.update(p, data, h)
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


def test_the_misfit_along_a_way_is_a_difference_of_misfits():
    data, h, p = begun(shaken=1.0)
    known = steps.rows(data)
    at, way = (
        steps.Point(q.U, q.V, q.Z["x"], steps.forth(data, q.V), data["x"] @ q.Z["x"])
        for q in (p, begun(seed=1, shaken=1.0)[2])
    )
    along = steps.misfit_along(at, way, known)
    for t in (0.25, 1.0, 4.0):
        new = jax.tree.map(lambda x, w, t=t: x + t * w, at, way)
        ends = [float(steps.cost(q, known, h) - steps.rest(q, known, h)) for q in (at, new)]
        assert float(along(t)) == pytest.approx(ends[1] - ends[0], rel=1e-10)


def test_rows_without_labels_change_nothing_and_lie_at_their_features():
    x, y = table()
    found = []
    for data in (Tasks(x[:20], y[:20]), Tasks(x, y)):
        h = settle(METHOD, data, SETTINGS)
        found.append(ended(METHOD.init(jax.random.key(0), data, h), data, h, 5))
    for one, two in zip(found[0][1:], found[1][1:], strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), one, two)
    np.testing.assert_allclose(found[1].U[20:], x[20:] @ found[1].Z["x"], atol=1e-12)


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
    data = Tasks(x, y)
    default = settle(METHOD, data, {"n_components": 3, "n_groups": 1, "alpha": 0.5})
    costs = {}
    for gamma in (0.0, None):
        h = default if gamma is None else default._replace(gamma=gamma)
        p = METHOD.init(jax.random.key(0), data, h)
        value, turn = np.linalg.eigh(apart(np.asarray(p.U)))
        assert value[0] < 0 and abs(value.sum()) < 1e-9  # R has no trace
        way = np.outer(np.linalg.svd(x)[2][-1], turn[:, 0])  # X w = 0
        np.testing.assert_allclose(x @ way, 0, atol=1e-12)
        far = [p._replace(Z={"x": p.Z["x"] + t * way}) for t in (0, 1e2, 1e4)]
        costs[gamma] = [float(METHOD.objective(q, data, h)) for q in far]
    assert costs[0.0][2] < -1e4 < costs[0.0][0] and costs[0.0][2] < 100 * costs[0.0][1] < 0
    assert costs[None][0] < costs[None][1] < costs[None][2]


@pytest.mark.parametrize("d", [2, 3, 4, 7])
def test_a_gamma_without_a_proper_posterior_is_refused(d):
    """The bound is the largest -eigenvalue of R, which columns of two opposite signs have."""
    s = np.where(np.arange(d) % 2, 1.0, -1.0)
    most = -np.linalg.eigvalsh(1 - np.outer(s, s))[0]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 9)), np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]] * 2, float)
    given = {"n_components": d, "n_groups": 1, "alpha": 0.5}
    for gamma in (0.0, 0.49 * most):
        with pytest.raises(ValueError, match="no proper posterior; raise gamma"):
            settle(METHOD, Tasks(x, y), given | {"gamma": gamma})
    assert settle(METHOD, Tasks(x, y), given | {"gamma": 0.5 * most}).gamma == 0.5 * most
    assert settle(METHOD, Tasks(x[:, :5], y), given | {"gamma": 0.0}).gamma == 0
    with pytest.raises(
        ValueError, match="Expected gamma of at least .* for 6 labelled rows with 9"
    ):
        bf.fit("grople", Tasks(x, y), bf.NUTS(2, 2, 1), **given, gamma=0.0)


def test_gamma_is_enough_by_default_and_a_smaller_one_is_told():
    data, h, p = begun()
    assert h.gamma == pytest.approx(4 * 0.3)
    worst = [
        np.linalg.eigvalsh(apart(np.random.default_rng(s).normal(size=(3, 8))))[0]
        for s in range(50)
    ]
    assert -8 <= min(worst) < -2  # R >= -d, and far from any constant
    end = ended(p, data, h, 20)
    assert METHOD.notes.remarks(end, data, h) == []
    low = h._replace(gamma=0.01)
    least = np.linalg.eigvalsh(
        h.alpha * apart(np.asarray(end.U)[data.labelled]) + 0.01 * np.eye(4)
    )[0]
    (said,) = METHOD.notes.remarks(end, data, low)
    assert f"an eigenvalue of {least:.3g}: J may have no minimum" in said


def test_every_feature_has_a_safe_step():
    """diag(|X|'|X| 1) - X'X has no negative eigenvalue, whatever the signs."""
    x = table()[0][:20]
    bound = np.diag(np.abs(x).T @ np.abs(x).sum(1))
    assert np.linalg.eigvalsh(bound - x.T @ x)[0] > 0
