"""Rows that depend on one another: Q, draws of all rows at once, means, and rows that training never saw."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.data import edges
from bayesfac.core.data.cells import Cells
from bayesfac.parts import factors
from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Wishart
from bayesfac.parts.rows import along
from bayesfac.parts.rows.coupled import CoupledPrior, CoupledRows

n, K, m = 5, 2, 4
SETTINGS = SimpleNamespace(step=0.6, correlation=0.7, strength=1.4, beta0=0.5, n_components=K)
P = jnp.array([[1.5, 0.4], [0.4, 0.8]])
GRAPH = edges.described(
    [(0, 1, 1.0), (1, 2, 0.5), (0, 2, 2.0), (2, 3, 1.0)], pd.RangeIndex(n), "user"
)
DATA = SimpleNamespace(graphs={"user": GRAPH.design("user")})
PARTS = {"walk": along.Walk("step"), "stationary": along.Stationary("correlation"),
         "graph": along.Laplacian("strength")}  # fmt: skip


def covariance(name):
    """Q^-1 by its definition."""
    at = np.arange(n)
    if name == "walk":
        first = 1 / (1 + 0.6**2 * (n - 1) / 2)
        return first * (1 + 0.6**2 * np.minimum(at[:, None], at))
    if name == "stationary":
        return 0.7 ** abs(at[:, None] - at)
    W = GRAPH.both.toarray()
    W /= W[:4].sum(1).mean()
    Q = np.eye(n) + 1.4 * (np.diag(W.sum(1)) - W)
    C = np.linalg.inv(Q)
    C[:4, :4] /= np.diag(C)[:4].mean()  # the last row has no edges
    return C


def of(name):
    return PARTS[name].at(DATA, "user", SETTINGS, n)


def rows_of(name, key):
    """The law of five rows, given cells with a precision each; the last row has no cells."""
    a, b, c = jax.random.split(key, 3)
    row, col = np.nonzero(np.tri(n - 1, m, 1))
    cells = Cells(row.astype(np.int32), col.astype(np.int32), (n, m))
    target, V = jax.random.normal(a, (len(row),)), jax.random.normal(b, (m, K))
    weight = jnp.exp(jax.random.normal(c, (len(row),)))
    law = CoupledRows(of(name), cells.by_row, target, V, weight, P, jnp.array([0.5, -1.0]))
    system = np.kron(np.linalg.inv(covariance(name)), P)
    right = system @ np.tile([0.5, -1.0], n)
    for i, j, t, w in zip(row, col, target, weight, strict=True):
        at = slice(K * i, K * i + K)
        system[at, at] += w * np.outer(V[j], V[j])
        right[at] += w * t * V[j]
    return law, system, right


@pytest.mark.parametrize("name", PARTS)
def test_q_and_its_determinant(name):
    Q, C = of(name), covariance(name)
    np.testing.assert_allclose(Q.times(jnp.eye(n)), np.linalg.inv(C), atol=1e-9)
    np.testing.assert_allclose(Q.logdet(n), -np.linalg.slogdet(C)[1], atol=1e-9)
    assert np.mean(np.diag(C)) == pytest.approx(1)


@pytest.mark.parametrize("name", PARTS)
def test_rows_given_cells_are_drawn_from_their_joint_law(name, key):
    """Mean exactly; covariance of 20,000 draws: its largest of 55 numbers is 4.5 standard errors off at
    most, which happens by chance once in 2,000 runs."""
    law, system, right = rows_of(name, key)
    mean, cov = np.linalg.solve(system, right), np.linalg.inv(system)
    np.testing.assert_allclose(law.mean.ravel(), mean, atol=1e-9)
    x = np.asarray(jax.jit(lambda key: law.sample(key, (20_000,)))(key)).reshape(-1, n * K) - mean
    error = np.sqrt((cov**2 + np.outer(np.diag(cov), np.diag(cov))) / len(x))
    assert np.abs((x.T @ x / len(x) - cov) / error).max() < 4.5
    assert np.abs(x.mean(0) / np.sqrt(np.diag(cov) / len(x))).max() < 4.5
    known = dist.MultivariateNormal(mean, precision_matrix=system)
    value = jax.random.normal(key, (n, K))
    np.testing.assert_allclose(law.log_prob(value), known.log_prob(value.ravel()), rtol=1e-9)


@pytest.mark.parametrize("name", PARTS)
def test_the_prior_of_rows(name, key):
    centre, cov = jnp.array([0.5, -1.0]), np.kron(covariance(name), np.linalg.inv(P))
    law = CoupledPrior(of(name), n, centre, P)
    known = dist.MultivariateNormal(jnp.tile(centre, n), cov)
    value = jax.random.normal(key, (n, K))
    np.testing.assert_allclose(law.log_prob(value), known.log_prob(value.ravel()), rtol=1e-9)
    x = np.asarray(jax.jit(lambda key: law.sample(key, (20_000,)))(key)).reshape(-1, n * K)
    x = x - np.tile(centre, n)
    error = np.sqrt((cov**2 + np.outer(np.diag(cov), np.diag(cov))) / len(x))
    assert np.abs((x.T @ x / len(x) - cov) / error).max() < 4.5


@pytest.mark.parametrize("name", PARTS)
def test_moves_beyond_the_mean_and_balanced_draws(name, key):
    law, _, _ = rows_of(name, key)
    pairs = law.balanced(key, 2)
    assert pairs.shape == (4, n, K)
    np.testing.assert_allclose(pairs.mean(0), law.mean, atol=1e-9)
    np.testing.assert_allclose(law.beyond(key, law.mean, 1.0), law.mean, atol=1e-9)


@pytest.mark.parametrize("name", PARTS)
def test_s_and_the_law_of_the_mean(name, key):
    f = Factor("user", "U", Wishart("Lambda_U"), "mu_U", along=PARTS[name])
    U, mu = jax.random.normal(key, (n, K)), jnp.array([0.3, 0.2])
    p = SimpleNamespace(U=U, mu_U=mu, Lambda_U=P)
    S, N = factors.squares(p, DATA, f, SETTINGS)
    Q, R = np.linalg.inv(covariance(name)), U - mu
    np.testing.assert_allclose(S, R.T @ Q @ R + 0.5 * np.outer(mu, mu), rtol=1e-8)
    assert N == n + 1
    law = factors.conditional("mu_U", [f], p, DATA, SETTINGS)
    weight = 0.5 + Q.sum()
    np.testing.assert_allclose(law.mean, Q.sum(0) @ U / weight, rtol=1e-8)
    np.testing.assert_allclose(law.precision_matrix, weight * P, rtol=1e-8)


@pytest.mark.parametrize("name", ["walk", "stationary"])
def test_a_new_row_of_a_chain_is_the_next_one(name, key):
    """By the joint law of one row more, of the same steps."""
    U, mu = np.asarray(jax.random.normal(key, (n, K))), np.array([0.3, 0.2])
    at = np.arange(n + 1)
    C = 0.7 ** abs(at[:, None] - at)
    if name == "walk":
        C = (1 + 0.6**2 * np.minimum(at[:, None], at)) / (1 + 0.6**2 * (n - 1) / 2)
    gain = np.linalg.solve(C[:n, :n], C[:n, n])
    mean, wide = PARTS[name].new(SETTINGS, U, mu)
    np.testing.assert_allclose(mean, mu + gain @ (U - mu), rtol=1e-9)
    np.testing.assert_allclose(wide, C[n, n] - gain @ C[:n, n], rtol=1e-9)


def test_gradients_of_a_graph_are_those_of_its_dense_laplacian(key):
    U, Q = jax.random.normal(key, (n, K)), of("graph")
    slope = jax.grad(lambda R: jnp.sum(R * Q.times(R)))(U)
    np.testing.assert_allclose(slope, 2 * np.linalg.inv(covariance("graph")) @ U, atol=1e-9)


def test_what_does_not_converge_is_not_a_number():
    far = jnp.logspace(0, 12, 2000)[:, None]  # too many steps, without a preconditioner
    found = along.gradients(lambda x: far * x, lambda x: x, jnp.ones((2000, 1)))
    assert jnp.isnan(found).all()
    near = along.gradients(lambda x: far * x, lambda x: x / far, jnp.ones((2000, 1)))
    np.testing.assert_allclose(near, 1 / far, rtol=1e-12)


# -- fits --------------------------------------------------------------------------------------------------
def circles(seed=0, users=60, items=30, share=0.15):
    """Users in circles of friends, who are alike, and few ratings of each."""
    rng = np.random.default_rng(seed)
    circle = rng.integers(0, 6, users)
    U = rng.normal(size=(6, 2))[circle] + 0.2 * rng.normal(size=(users, 2))
    row, col = np.nonzero(rng.random((users, items)) < share)
    value = (U @ rng.normal(size=(2, items)))[row, col] + 0.5 * rng.normal(size=len(row))
    one, two = np.triu_indices(users, 1)
    joined = (circle[one] == circle[two]) & (rng.random(len(one)) < 0.4)
    friends = np.column_stack([one, two])[joined]
    return bf.Ratings(row, col, value, user_graph=friends)


def test_friends_help_and_the_point_descends():
    train, test = bf.split.holdout(circles(), 0.2, seed=0)
    errors = []
    for model in (bf.factorization(), bf.factorization(bf.Graph(strength=10.0))):
        fit = bf.fit(model, train, n_components=2, progress=False)
        trace = fit.trace.ravel()
        assert fit.converged and (np.diff(trace) <= 1e-6 * abs(trace[0])).all()
        errors.append(bf.metrics.rmse(test.value, fit.predict(test).mean))
    assert errors[1] < 0.95 * errors[0]


def test_a_user_without_ratings_is_predicted_from_friends():
    """Before: labels without cells were predicted by the prior alone, and so all alike."""
    data = circles()
    lone = int(np.argmax(data.user_graph.getnnz(1)))
    kept = data.take(data.user != lone)
    fit = bf.fit(bf.factorization(bf.Graph(strength=3.0)), kept, n_components=2, progress=False)
    items = np.arange(data.n_items)
    told = fit.predict((np.full(len(items), lone), items)).mean
    U, V = fit.params.U, fit.params.V
    np.testing.assert_allclose(told - fit.hyper.offset, V @ U[lone], atol=1e-4)
    assert np.std(V @ U[lone]) > 0.1
    usual = bf.fit("bpmf", kept, n_components=2, progress=False)
    assert not usual.data.elsewhere and fit.data.elsewhere["user"][lone] == 1


def test_new_rows_are_not_added_and_a_missing_graph_is_told():
    data, model = circles(), bf.factorization(bf.Graph(strength=2.0))
    for engine in (None, bf.Gibbs(5, 5, 1)):
        fit = bf.fit(model, data, engine, n_components=2, progress=False)
        with pytest.raises(bf.core.errors.BayesfacError, match="a new row would change all others"):
            fit.fold_in(data)
    bare = bf.Ratings(data.frame())
    with pytest.raises(ValueError, match="Expected a graph of users, .*user_graph=edges"):
        bf.fit(model, bare, n_components=2, progress=False)


def test_cells_choose_the_strength():
    data = circles(share=0.4)
    assert len(data) > 500
    fit = bf.fit(bf.factorization(bf.Graph()), data, n_components=2, progress=False)
    assert any("chosen: strength_user" in note for note in fit.notes)
