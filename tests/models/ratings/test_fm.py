"""The factorization machine: a sweep by hand, features and implicit features, the joint block, new users."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings._shared import machine, machine_moves, machine_scales
from bayesfac.testing import CHECKS
from tests.inference.test_geweke import THRESHOLD, z_scores
from tests.tools.features import with_features

FM = REGISTRY["fm"]
METHODS = ("fm", "ordinal_fm")
FAST = ("structure", "joint", "conditionals")
SETTINGS = {"ridge_shape": 3.0, "ridge_rate": 1.0}


def with_everything(name):
    """The method with features of users and items, and with implicit ones."""
    method = with_features(name)

    def example(key):
        data, hyper = method.example(key)
        hyper = hyper._replace(implicit=True, **SETTINGS)
        return method.ready(data, hyper), hyper

    return replace(method, example=example)


def golden(method):
    """Every block at the mode of its conditional in turn, by sums over a table with holes; then the scale
    that U and V share at its lowest J."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    new = method.solver.update(p, data, h)
    p = jax.tree.map(np.array, p)
    y = np.full(data.shape, np.nan)
    y[data.user, data.item] = data.value - h.offset
    rows, bias = {"user": p.U, "item": p.V}, {"user": p.bias_user, "item": p.bias_item}
    mu, tau, tau_bias = dict(p.mu), dict(p.tau), dict(p.tau_bias)
    level, alpha = float(p.level), float(p.alpha)
    for side, other, table in (("user", "item", y), ("item", "user", y.T)):
        for i, line in enumerate(table):
            seen = ~np.isnan(line)
            v, rest = rows[other][seen], line[seen] - bias[other][seen]
            P = np.diag(tau[side]) + alpha * v.T @ v
            right = tau[side] * mu[side] + alpha * v.T @ (rest - bias[side][i])
            rows[side][i] = np.linalg.solve(P, right)
        for i, line in enumerate(table):
            seen = ~np.isnan(line)
            rest = line[seen] - bias[other][seen] - rows[other][seen] @ rows[side][i]
            own = tau_bias[side] * (level if side == "user" else 0)
            bias[side][i] = (own + alpha * rest.sum()) / (tau_bias[side] + alpha * seen.sum())
    for side in rows:
        mu[side] = rows[side].sum(0) / (h.beta0 + len(rows[side]))
    for side in rows:
        square = ((rows[side] - mu[side]) ** 2).sum(0) + h.beta0 * mu[side] ** 2
        power = h.tau_shape - 1 + (len(rows[side]) + 1) / 2
        tau[side] = power / (h.tau_rate + square / 2)
    level = tau_bias["user"] * bias["user"].sum() / (h.scale_level**-2 + 7 * tau_bias["user"])
    for side in rows:
        away = bias[side] - (level if side == "user" else 0)
        power = h.tau_shape - 1 + len(away) / 2
        tau_bias[side] = power / (h.bias_rate + away @ away / 2)
    score = bias["user"][:, None] + bias["item"] + rows["user"] @ rows["item"].T
    error = np.nansum((y - score) ** 2)
    alpha = (h.alpha_shape - 1 + len(data) / 2) / (h.alpha_rate + error / 2)
    a, b, N = h.tau_rate * tau["user"], h.tau_rate * tau["item"], 7 - 5
    s = (-N / 2 + np.sqrt(N**2 / 4 + 4 * a * b)) / (2 * b)  # b s^2 + N/2 s = a
    c = np.sqrt(s)
    wanted = {"U": rows["user"] * c, "V": rows["item"] / c, "level": level, "alpha": alpha}
    wanted |= {"bias_user": bias["user"], "bias_item": bias["item"]}
    for site, value in wanted.items():
        np.testing.assert_allclose(getattr(new, site), value, rtol=1e-9, err_msg=site)
    for side, factor in (("user", c), ("item", 1 / c)):
        np.testing.assert_allclose(new.mu[side], mu[side] * factor, rtol=1e-9)
        np.testing.assert_allclose(new.tau[side], tau[side] / factor**2, rtol=1e-9)
        np.testing.assert_allclose(new.tau_bias[side], tau_bias[side], rtol=1e-9)


def test_golden_step():
    golden(FM)


def cases():
    for name in METHODS:
        for check in CHECKS:
            if check != "variational":
                quick = check in FAST
                yield (name, check) if quick else pytest.param(name, check, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "check"), list(cases()))
def test_contract_with_features_and_implicit_features(name, check):
    if reason := CHECKS[check](with_everything(name), jax.random.key(0)):
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_sweeps_with_features_leave_the_prior_alone(name):
    assert np.abs(z_scores(with_everything(name), {})).max() < THRESHOLD


@pytest.mark.slow
def test_links_that_are_too_small_show(monkeypatch):
    """The test above sees a joint block that shrinks what it draws of the features."""
    right = machine_moves.System.solved

    def shrunk(self, goal):
        return {key: 0.8 * value for key, value in right(self, goal).items()}

    monkeypatch.setattr(machine_moves.System, "solved", shrunk)
    assert np.abs(z_scores(with_everything("fm"), {}, chains=1600)).max() > THRESHOLD


def dense_system(system, G, h):
    """The joint precision and right side of rows and links, by dense matrices: rows first."""
    n, K = h.shape
    X = np.concatenate([np.asarray(x.times(jnp.eye(x.width))) for x in system.x.values()], 1)
    F, D = X.shape[1], np.asarray(system.D)
    R = np.concatenate([np.tile(system.R[key], (system.x[key].width, 1)) for key in system.R])
    P, right = np.zeros(((n + F) * K,) * 2), np.zeros((n + F, K))
    at = np.arange((n + F) * K).reshape(n + F, K)
    for i in range(n):
        P[np.ix_(at[i], at[i])] = np.diag(D) + G[i]
    for k in range(K):
        P[np.ix_(at[n:, k], at[n:, k])] = D[k] * X.T @ X + np.diag(R[:, k])
        P[np.ix_(at[:n, k], at[n:, k])] = -D[k] * X
        P[np.ix_(at[n:, k], at[:n, k])] = -D[k] * X.T
    right[:n] = h + D * np.asarray(system.mean)
    right[n:] = -X.T @ np.tile(D * np.asarray(system.mean), (n, 1))
    return P, right.ravel(), n


def test_links_and_rows_are_the_solution_of_their_joint_system():
    method = with_everything("fm")
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)
    p = p._replace(
        mu={"user": jnp.array([0.5, -1.0]), "item": p.mu["item"]}, level=jnp.asarray(0.3)
    )
    rng = np.random.default_rng(0)
    root = rng.normal(size=(7, 3, 3))
    G, h = root @ np.swapaxes(root, 1, 2), jnp.asarray(rng.normal(size=(7, 3)))
    D, mean, R = machine_moves.prior(p, "user")
    system = machine_moves.System({k: data.x[k] for k in R}, jnp.asarray(G), D, mean, R)
    L = system.solved(system.right(h))
    found = np.concatenate(
        [system.rows(h, L), *(L[key] for key in R)]
    )  # in the order of `dense_system`
    P, right, _ = dense_system(system, G, np.asarray(h))
    np.testing.assert_allclose(found.ravel(), np.linalg.solve(P, right), rtol=1e-6, atol=1e-9)
    assert set(L) == {"user", "implicit_user"}


def test_implicit_features_are_the_pattern_of_the_ratings():
    ratings = bf.Ratings([0, 0, 1, 2], [0, 1, 1, 2], [1.0, 2.0, 3.0, 4.0])
    x = machine.implicit(ratings)
    half = 0.5**0.5
    user = x["implicit_user"].times(jnp.eye(3))
    np.testing.assert_allclose(user, [[half, half, 0], [0, 1, 0], [0, 0, 1]])
    item = x["implicit_item"].times(jnp.eye(3))
    np.testing.assert_allclose(item, [[1, 0, 0], [half, half, 0], [0, 0, 1]])
    np.testing.assert_allclose(x["implicit_user"].squares, [0.5, 1.5, 1])


def test_leading_vectors_of_a_pattern_are_those_of_largest_eigenvalue():
    ratings = bf.datasets.make_ratings(12, 9, 2, density=0.6, seed=0)
    x = machine.implicit(ratings)["implicit_user"]
    X = np.asarray(x.times(jnp.eye(x.width)))
    size, vectors = x.leading
    np.testing.assert_allclose(np.sort(size), np.linalg.eigvalsh(X.T @ X)[2:], rtol=1e-9)
    np.testing.assert_allclose(X.T @ X @ vectors, vectors * size, atol=1e-9)
    lone = bf.Ratings([0, 1], [0, 1], [1.0, 2.0])
    assert machine.implicit(lone)["implicit_user"].leading is None


def test_all_leading_vectors_make_the_preconditioner_exact_where_rows_weigh_alike():
    data, hyper = with_everything("fm").example(jax.random.key(0))
    p = FM.init(jax.random.key(1), data, hyper)
    x = data.x["implicit_user"]
    X = np.asarray(x.times(jnp.eye(x.width)))
    x = x._replace(leading=tuple(map(jnp.asarray, np.linalg.eigh(X.T @ X))))
    D, mean, R = machine_moves.prior(p, "user")
    key, G = "implicit_user", jnp.broadcast_to(jnp.diag(jnp.array([3.0, 2.0, 1.0])), (7, 3, 3))
    system = machine_moves.System({key: x}, G, D, mean, {key: R[key]})
    L = jnp.asarray(np.random.default_rng(0).normal(size=(x.width, 3)))
    image = X.T @ system.weighed(X @ L) + R[key] * L
    np.testing.assert_allclose(system.smoothing()({key: image})[key], L, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_new_users_and_items_are_predicted_from_features_by_hand():
    data, hyper = with_features("fm").example(jax.random.key(0))
    fit = bf.fit("fm", data, bf.FixedPoint(3), progress=False, **hyper._asdict())
    p, sides = fit.params, data.host.features
    table = pd.DataFrame([[1.0, -2.0, 0.5]], index=[70])
    film = pd.DataFrame([[0.3, 0.4]], index=[50])
    query = {"user": [70, 70, 72], "item": [1, 50, 1]}
    asked = fit.predict(query, user_features=table, item_features=film)
    x, z = (
        (t.to_numpy() - sides[side].encoding.centre) / sides[side].encoding.scale
        for t, side in ((table, "user"), (film, "item"))
    )
    u, b = (x @ p.B["user"])[0] + p.mu["user"], (x @ p.C["user"])[0, 0] + p.level
    v, c = (z @ p.B["item"])[0] + p.mu["item"], (z @ p.C["item"])[0, 0]
    want = [
        b + p.bias_item[1] + u @ p.V[1],
        b + c + u @ v,
        p.level + p.bias_item[1] + p.mu["user"] @ p.V[1],
    ]
    np.testing.assert_allclose(asked.mean, hyper.offset + np.array(want), rtol=1e-6)
    spread = 1 / p.alpha + 1 / p.tau_bias["user"] + np.sum(p.V[1] ** 2 / p.tau["user"])
    np.testing.assert_allclose(asked.sd[[0, 2]], np.sqrt(spread), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_a_user_folded_in_brings_what_the_user_rated_as_features():
    data, hyper = FM.example(jax.random.key(0))
    hyper = hyper._replace(implicit=True)
    fit = bf.fit("fm", data, bf.FixedPoint(3), progress=False, **hyper._asdict())
    p, y = fit.params, np.array([4.0, 1.0, 3.0])
    assert set(p.B) == {"implicit_user", "implicit_item"}
    new = fit.fold_in(bf.Ratings([99] * 3, [0, 2, 3], y)).params
    at = np.array([0, 2, 3])  # of the items; three ratings: each counts 1 / sqrt(3)
    u = np.sum(p.B["implicit_user"][at], 0) / 3**0.5 + p.mu["user"]
    b = np.sum(p.C["implicit_user"][at]) / 3**0.5 + p.level
    assert np.abs(u - p.mu["user"]).max() > 1e-3  # so that a forgotten pattern shows
    rows = np.column_stack([p.V[at], np.ones(3)])  # what a rating multiplies u and b by
    prior = np.append(p.tau["user"], p.tau_bias["user"])
    left = y - hyper.offset - p.bias_item[at] - rows @ np.append(u, b)
    away = np.linalg.solve(np.diag(prior) + p.alpha * rows.T @ rows, p.alpha * rows.T @ left)
    np.testing.assert_allclose(new.U[0], u + away[:-1], atol=1e-5)
    np.testing.assert_allclose(new.bias_user[0], b + away[-1], atol=1e-5)


def test_a_point_is_better_than_biases_and_nearly_as_good_as_the_posterior():
    ratings = bf.datasets.make_ratings(150, 100, 3, seed=0)
    train, test = bf.split.holdout(ratings, 0.1, seed=0)
    settings = {"n_components": 4, "progress": False}
    error = {
        engine: bf.metrics.rmse(bf.fit("fm", train, run, **settings).predict(test).mean, test.value)
        for engine, run in (("point", None), ("draws", bf.Gibbs(100, 100, 1)))
    }
    counts = [train.per_row(side) for side in ("user", "item")]
    assert min(map(len, counts)) > 0
    assert error["point"] < 0.97 * test.value.std()
    assert error["point"] < 1.06 * error["draws"], error


def expected_joint_of_a_machine(rows, cov, p, weight, y, data, h):
    """The expected log joint of the rows (b_i, u_i) and (c_j, v_j), of tau and of tau_bias, plus the entropy
    of the rows, up to a constant; mu is integrated out of the prior of tau."""
    K, cells = p.mu["user"].shape[0], data.cells
    one, zeros = (
        {side: jnp.ones((len(r), 1)) for side, r in rows.items()},
        jnp.zeros((K + 2, K + 2)),
    )
    # b + c + u.v is the product of (b, 1, u) and (1, c, v)
    u = jnp.concatenate([rows["user"][:, :1], one["user"], rows["user"][:, 1:]], 1)
    v = jnp.concatenate([one["item"], rows["item"]], 1)
    at, over = jnp.r_[0, 2 : K + 2], jnp.r_[1 : K + 2]
    S = jax.vmap(lambda C: zeros.at[jnp.ix_(at, at)].set(C))(cov["user"])
    T = jax.vmap(lambda C: zeros.at[jnp.ix_(over, over)].set(C))(cov["item"])
    S, T = (C + x[:, :, None] * x[:, None] for C, x in ((S, u), (T, v)))
    means = jnp.sum(u[cells.row] * v[cells.col], 1)
    squares = jnp.sum(S[cells.row] * T[cells.col], (1, 2))
    value = -0.5 * weight * jnp.sum(y**2 - 2 * y * means + squares)
    for side in ("user", "item"):
        tau = jnp.r_[p.tau_bias[side], p.tau[side]]
        mean = jnp.r_[p.level if side == "user" else 0.0, p.mu[side]]
        squares = jnp.sum((rows[side] - mean) ** 2, 0) + jnp.einsum("nkk->k", cov[side])
        value += 0.5 * jnp.sum(len(rows[side]) * jnp.log(tau) - tau * squares)
        value += 0.5 * jnp.linalg.slogdet(cov[side])[1].sum()
        value -= 0.5 * h.beta0 * jnp.sum(p.tau[side] * p.mu[side] ** 2)
        rate = jnp.r_[h.bias_rate, jnp.full(K, h.tau_rate)]
        value += jnp.sum((h.tau_shape - 1) * jnp.log(tau) - rate * tau)
    return value - 0.5 * (p.level / h.scale_level) ** 2


def test_scales_end_where_an_independent_bound_is_stationary():
    data, h = FM.example(jax.random.key(3))
    p, y, weight = FM.init(jax.random.key(4), data, h), data.y - h.offset, 1.7
    w = jnp.full_like(y, weight)

    def sweep(_, state):
        p, both = state
        for number, side in enumerate(("user", "item")):
            new, L, doubt = machine_scales.updated(p, data, side, y, w, both[1 - number])
            both = (new, both[1]) if number == 0 else (both[0], new)
            p = machine_scales.with_rows(p, side, new, L)
            p = machine_scales.with_prior(p, data, h, side, new, doubt)
        return p, both

    begin = p, tuple(machine_scales.certain(p, side) for side in ("user", "item"))
    begin = begin[0], tuple(b._replace(cov=b.cov[:, :3, :3]) for b in begin[1])
    p, both = jax.jit(lambda state: jax.lax.fori_loop(0, 3000, sweep, state))(begin)
    rows = {"user": jnp.c_[p.bias_user, p.U], "item": jnp.c_[p.bias_item, p.V]}
    cov = {"user": both[0].cov, "item": both[1].cov}
    found = rows, cov, {s: getattr(p, s) for s in ("mu", "tau", "tau_bias", "level")}

    def bound(found):
        return expected_joint_of_a_machine(*found[:2], p._replace(**found[2]), weight, y, data, h)

    slopes = jax.jit(jax.grad(bound))(found)
    worst = {
        jax.tree_util.keystr(at): jnp.abs(x).max()
        for at, x in jax.tree_util.tree_leaves_with_path(slopes)
    }
    assert max(worst.values()) < 1e-5, worst
    # the ridge that a point lacks, row by row
    ridge = machine_scales.ridge_of_doubt(data, "user", w, both[1])
    each = [weight * np.diag(both[1].cov[j])[1:] for j in data.item]
    mine = [sum(x for x, k in zip(each, data.user, strict=True) if k == i) for i in data.user]
    np.testing.assert_allclose(ridge, np.mean(mine, 0), rtol=1e-9)
    # the variance of a score
    x, variance = machine_scales.moments(*both, data.cells)
    S, T = (
        np.asarray(machine_scales.covariance(b, s))
        for b, s in zip(both, ("user", "item"), strict=True)
    )
    u, v = (np.asarray(b.mean) for b in both)
    for k, (i, j) in enumerate(zip(data.user, data.item, strict=True)):
        np.testing.assert_allclose(x[k], u[i] @ v[j], rtol=1e-9)
        want = np.sum(S[i] * T[j]) + v[j] @ S[i] @ v[j] + u[i] @ T[j] @ u[i]
        np.testing.assert_allclose(variance[k], want, rtol=1e-9)
