"""LSA-MML: one sweep by hand, the weights of the views, HSIC, and a minimum on the edge of the ball."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY, log_joint
from bayesfac.labels.laws import few_tasks
from bayesfac.labels.models.tasks import _bases as bases
from bayesfac.labels.models.tasks._bases import ToBall, UniformBall, columns_in_ball

LSA = REGISTRY["lsa_mml"]


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def begun(seed=0, **hyper):
    data = few_tasks(jax.random.key(seed))
    h = LSA.prepare(data, LSA.Hyper(**{"n_components": 3, "ridge": 0.3, **hyper}))
    return data, h, LSA.init(jax.random.key(seed + 1), data, h)


def hsic(A, B):
    """(6)."""
    K = A.shape[1]
    C = np.eye(K) - 1 / K
    return np.trace(A.T @ A @ C @ B.T @ B @ C) / (K - 1) ** 2


def test_objective_by_hand():
    data, h, p = begun(weight=0.7, alignment=0.9, alpha=(0.4, 0.6), r=1.5)
    J = 0.0
    for v, a in zip(data.names, h.alpha, strict=True):
        for _, at in data.spans(v):
            J += a**1.5 * np.sum((data[v].toarray()[at] - np.asarray(p.P)[at] @ p.B[v].T) ** 2)
    known = data.labelled
    J += 0.7 * np.sum((np.asarray(p.P)[known] @ p.W.T - data["labels"].toarray()[known]) ** 2)
    J -= 0.9 * 2 * hsic(np.asarray(p.B["topics"]), np.asarray(p.B["words"]))  # both orders
    J += 0.3 * (np.sum(p.P**2) + np.sum(p.W**2))
    other = begun(weight=0.7, alignment=0.9, alpha=(0.4, 0.6), r=1.5, seed=5)[2]
    gap = LSA.objective(p, data, h) - LSA.objective(other, data, h)
    slack = bases.SLACK * sum(
        a**1.5 * np.sum(data.y[v] ** 2) for v, a in zip(data.names, h.alpha, strict=True)
    )
    np.testing.assert_allclose(LSA.objective(p, data, h), J + slack, rtol=1e-10)
    assert np.isfinite(gap)


def golden(method):
    """(12), (14), (20): the ridge systems with an instance in a column, row by row."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    new = method.solver.update(p, data, h)
    a = dict(zip(data.names, np.asarray(h.alpha) ** h.r, strict=True))
    tables = {b: data[b].toarray() for b in data.blocks}
    P = np.zeros_like(p.P)
    for n in range(data.n_rows):
        views = [v for v in data.names if data.host.present[v][data.task[n]]]
        left = sum(a[v] * p.B[v].T @ p.B[v] for v in views) + h.ridge * np.eye(3)
        right = sum(a[v] * p.B[v].T @ tables[v][n] for v in views)
        if data.labelled[n]:
            left, right = (
                left + h.weight * p.W.T @ p.W,
                right + h.weight * p.W.T @ tables["labels"][n],
            )
        P[n] = np.linalg.solve(left, right)
    np.testing.assert_allclose(new.P, P, rtol=1e-8)
    known = data.labelled
    gram = P[known].T @ P[known] + h.ridge / h.weight * np.eye(3)
    W = tables["labels"][known].T @ P[known] @ np.linalg.inv(gram)
    np.testing.assert_allclose(new.W, W, rtol=1e-8)


def test_golden_step():
    golden(LSA)


@pytest.mark.parametrize("r", [1.2, 2.0, 5.0])
def test_the_best_weights_are_those_of_22(r):
    E = jnp.asarray([3.0, 0.5, 7.0])
    h = LSA.Hyper(r=r)
    cells = (10, 20, 30)
    alpha = np.asarray(E) ** (-1 / (r - 1))
    alpha /= alpha.sum()
    weights = jax.grad(bases.misfit)(E, h, cells)
    np.testing.assert_allclose(weights, alpha**r, rtol=1e-10)
    np.testing.assert_allclose(bases.misfit(E, h, cells), alpha**r @ np.asarray(E), rtol=1e-10)
    noisy = jax.grad(bases.misfit)(E, h._replace(noise=True), cells)
    np.testing.assert_allclose(noisy, np.asarray(cells) / (2 * np.asarray(E)), rtol=1e-10)


@pytest.mark.parametrize("more", [{}, {"noise": True}, {"r": 1.3}, {"alpha": (0.5, 0.5)}])
def test_learned_weights_descend_and_agree_with_the_twin(more):
    """Weights that follow from the errors are no parameters: J has them put in, and so does the model."""
    data, h, p = begun(alignment=2.0, **more)
    sums, trace = [], []
    for seed in range(3):
        q = begun(alignment=2.0, seed=seed, **more)[2]
        sums.append(float(LSA.objective(q, data, h) + log_joint(LSA, q, data, h)))
    assert np.ptp(sums) < 1e-9 * (1 + abs(sums[0]))
    step = jax.jit(lambda p: LSA.solver.update(p, data, h))
    for _ in range(60):
        trace.append(float(LSA.objective(p, data, h)))
        p = step(p)
    assert np.max(np.diff(trace) / (1 + np.abs(trace[1:]))) < 1e-10
    assert trace[-1] < trace[0]


def residuals(p, data, h):
    """The largest slope in P, in W, and in B but for what pushes a column against the edge of its ball."""
    slope = jax.grad(lambda p: LSA.objective(p, data, h))(p._replace(weights=None))
    left = {"P": float(jnp.abs(slope.P).max()), "W": float(jnp.abs(slope.W).max())}
    for v in data.names:
        B, g = np.asarray(p.B[v]), np.asarray(slope.B[v])
        size = np.linalg.norm(B, axis=0)
        assert (size <= 1 + 1e-9).all()
        out = np.where(size > 1 - 1e-9, np.maximum(-(g * B).sum(0), 0), 0)
        left[v] = np.abs(g + out * B).max()
    return left


@pytest.mark.parametrize("noise", [False, True])
def test_a_minimum_satisfies_its_conditions_on_the_ball(noise):
    data, h, p = begun(alignment=1.0, noise=noise)
    p = jax.jit(
        lambda p: jax.lax.fori_loop(0, 2_000, lambda _, p: LSA.solver.update(p, data, h), p)
    )(p)
    assert max(residuals(p, data, h).values()) < 1e-6


def test_a_fit_of_the_noise_form_stops_where_the_slope_is_small():
    """With ten steps of ADMM in a sweep the slope in B was .03 at the same stopping."""
    data, h, _ = begun(seed=1, alignment=2.0, noise=True)
    given = h._asdict() | {"scaled": False, "cut": 0.5}
    fit = bf.fit("lsa_mml", data, bf.FixedPoint(), progress=False, **given)
    left = residuals(fit.params, data, fit.hyper)
    assert fit.converged and left["P"] < 0.02 and max(left["topics"], left["words"]) < 3e-3, left


def test_more_alignment_makes_bases_depend_more():
    found = []
    for gamma in (0.0, 50.0):
        data, h, p = begun(alignment=gamma)
        step = jax.jit(lambda p, data=data, h=h: LSA.solver.update(p, data, h))
        for _ in range(100):
            p = step(p)
        found.append(float(bases.dependence(p.B)))
    assert found[1] > found[0] * 1.05, found


def test_the_step_of_a_basis_never_costs_more_and_ends_at_a_minimum():
    """A problem that is not convex: with a large HSIC term Q has eigenvalues below zero."""
    rng = np.random.default_rng(0)
    R = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    Q = jnp.asarray(R @ np.diag([-4.0, 1.0, 2.0]) @ R.T)
    L, B = jnp.asarray(rng.normal(size=(4, 3))), jnp.asarray(rng.normal(size=(4, 3)) / 4)

    def cost(B):
        return float(jnp.sum((B @ Q) * B) - 2 * jnp.sum(B * L))

    costs = [cost(B)]
    for _ in range(100):
        B = bases.basis_step(Q, L, B)
        costs.append(cost(B))
    assert np.diff(costs).max() < 1e-12 and costs[-1] < costs[0] - 1
    for k in range(3):  # no other column in the ball is cheaper
        directions = rng.normal(size=(200, 4))
        radii = rng.random((200, 1)) / np.linalg.norm(directions, axis=1, keepdims=True)
        assert min(cost(B.at[:, k].set(b)) for b in directions * radii) >= costs[-1]


def test_the_way_into_the_ball():
    to, z = ToBall(), jax.random.normal(jax.random.key(0), (4, 3)) * 3
    x = to(z)
    assert columns_in_ball(x).all()
    np.testing.assert_allclose(to.inv(x), z, rtol=1e-9)
    for k in range(3):
        J = jax.jacobian(lambda c: to(c[:, None])[:, 0])(z[:, k])
        one = to.log_abs_det_jacobian(z[:, k : k + 1], None)
        np.testing.assert_allclose(one, np.linalg.slogdet(J)[1], rtol=1e-9)
    draws = np.asarray(UniformBall(4, 3).sample(jax.random.key(1), (20_000,)))
    radius = np.linalg.norm(draws, axis=1).ravel()
    assert radius.max() <= 1
    np.testing.assert_allclose((radius < 0.8).mean(), 0.8**4, atol=0.01)
    assert not columns_in_ball(jnp.asarray([[1.2], [0.0]])).any()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_components": 1}, r"Expected n_components of at least 2 \(HSIC divides"),
        ({"r": 1.0}, "Expected r above 1"),
        ({"ridge": -1}, "Expected ridge to be a finite number above 0, got -1"),
        (
            {"ridge": 0, "n_components": 8},
            "Expected ridge above 0 .or W is not unique., or 8 labelled",
        ),
        ({"alpha": (0.5, 0.6)}, "Expected alpha above 0 for .'topics', 'words'., of sum 1"),
        ({"alpha": (1.0,)}, "Expected alpha above 0 for"),
        ({"alignment": float("inf")}, "Expected alignment to be a finite number above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("lsa_mml", few_tasks(jax.random.key(0)), **given)


def test_a_view_that_fits_exactly_and_a_float32_fit():
    """More components than a view has features: its error is zero up to rounding, and no NaN follows."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(False):
        data = bf.Tasks(
            {"narrow": rng.random((40, 3)), "wide": rng.random((40, 20))}, rng.random((40, 2)) > 0.5
        )
        fit = bf.fit("lsa_mml", data, bf.FixedPoint(30, tol=0.5), n_components=20, progress=False)
        assert np.isfinite(fit.predict(data.grid()).mean).all()
        alpha = np.asarray(fit.params.weights) ** (1 / fit.hyper.r)
        assert alpha.sum() == pytest.approx(1, abs=1e-5)


def test_few_columns_of_many_features_keep_the_constant():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(120, 800)), (rng.random((120, 4)) < 0.7).astype(float)
    hidden = np.where(np.arange(120)[:, None] < 80, y, np.nan)
    given = {"n_components": 8, "ridge": 1.0, "cut": 0.5}
    fit = bf.fit("lsa_mml", bf.Tasks(x, hidden), progress=False, **given)
    row, label = np.repeat(np.arange(80, 120), 4), np.tile(np.arange(4), 40)
    score = fit.predict({"row": row, "label": label}).score
    np.testing.assert_allclose(score.mean(), y[:80].mean(), atol=0.15)


def test_labels_of_few_rows_with_many_features_are_foretold():
    """A ridge that suits many rows would fit the labels of these rows exactly."""
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(150, 3))
    x = codes @ rng.normal(size=(3, 600)) + 2 * rng.normal(size=(150, 600))
    y = (codes @ rng.normal(size=(3, 4)) + 0.5 * rng.normal(size=(150, 4)) > 0).astype(float)
    hidden = np.where(np.arange(150)[:, None] < 100, y, np.nan)
    row, label = np.repeat(np.arange(100, 150), 4), np.tile(np.arange(4), 50)

    fit = bf.fit("lsa_mml", bf.Tasks(x, hidden), progress=False)
    wrong = (fit.predict({"row": row, "label": label}).score > fit.cut) != y[100:].ravel()
    assert fit.hyper.ridge == 10.0
    assert wrong.mean() < 0.18  # with ridge=1 it is 0.23
