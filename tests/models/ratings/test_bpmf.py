"""BPMF: one sweep of the solver computed by hand, and its paper's claim: averaging beats the point."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import bayesfac as bf
from bayesfac.core.method import REGISTRY

BPMF = REGISTRY["bpmf"]


def golden(method):
    """Every block at the mode of its conditional in turn, by sums over a table with holes; then the
    scale that U and V share, component by component, by a search."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    U, V, mu_U, Lambda_U, mu_V, Lambda_V, alpha = (np.array(x) for x in p[:7])
    y = np.full(data.shape, np.nan)
    y[data.user, data.item] = data.value - h.offset
    eye = h.rate * np.eye(2)  # the inverse of W0; nu0 = K = 2

    def prior(x, mu):  # eq. 14: mode of Wishart(nu0 + n + 1), then the mean of mu
        n = len(x)
        scale = np.linalg.inv(eye + (x - mu).T @ (x - mu) + h.beta0 * np.outer(mu, mu))
        return x.sum(0) / (h.beta0 + n), (2 + n + 1 - 2 - 1) * scale

    def rows(y, other, mu, Lambda):  # eq. 11-13
        out = []
        for line in y:
            v, t = other[~np.isnan(line)], line[~np.isnan(line)]
            out.append(np.linalg.solve(Lambda + alpha * v.T @ v, Lambda @ mu + alpha * v.T @ t))
        return np.array(out)

    mu_U, Lambda_U = prior(U, mu_U)
    U = rows(y, V, mu_U, Lambda_U)
    mu_V, Lambda_V = prior(V, mu_V)
    V = rows(y.T, U, mu_V, Lambda_V)
    error = np.nansum((y - U @ V.T) ** 2)
    alpha = (h.alpha_shape + 0.5 * len(data) - 1) / (h.alpha_rate + 0.5 * error)
    for k in range(2):  # u_k -> e^t u_k, v_k -> v_k / e^t: what J then says is below

        def J(t, k=k):
            trace = Lambda_U[k, k] * np.exp(-2 * t) + Lambda_V[k, k] * np.exp(2 * t)
            return (len(U) - len(V)) * t + 0.5 * h.rate * trace

        c = np.exp(minimize_scalar(J, (-1, 1), tol=1e-14).x)
        U[:, k], mu_U[k], V[:, k], mu_V[k] = U[:, k] * c, mu_U[k] * c, V[:, k] / c, mu_V[k] / c
        Lambda_U[k], Lambda_V[k] = Lambda_U[k] / c, Lambda_V[k] * c
        Lambda_U[:, k], Lambda_V[:, k] = Lambda_U[:, k] / c, Lambda_V[:, k] * c
    new = method.solver.update(p, data, h)
    for mine, theirs in zip((U, V, mu_U, Lambda_U, mu_V, Lambda_V, alpha), new[:7], strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-6)  # the search is that good


def test_golden_step():
    golden(BPMF)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_the_posterior_predicts_better_than_its_mode():
    """The paper's title claim, on data from the model with few ratings per user (its figure 4). The mode of
    all sites is meant: the point with estimated scales lies between this mode and the posterior."""
    ratings, truth = bf.datasets.make_gaussian(80, 50, rank=3, noise=0.5, density=0.25, seed=2)
    train, test = bf.split.holdout(ratings, 0.2, seed=0)
    settings = {"n_components": 6, "progress": False}
    point, better = (
        bf.fit("bpmf", train, bf.FixedPoint(max_iter=300, tol=1e-6), scales=scales, **settings)
        for scales in ("joint", "estimated")
    )
    draws = bf.fit("bpmf", train, bf.Gibbs(warmup=150, draws=150, chains=1), **settings)
    seen = [fit.predict(test) for fit in (point, draws, better)]
    error = [bf.metrics.rmse(s.mean, test.value) for s in seen]
    assert truth.noise < error[1] < 0.95 * error[0]
    assert error[1] < error[2] < error[0]
    inside = [bf.metrics.coverage(*s.interval(0.9), test.value) for s in seen]
    assert abs(inside[1] - 0.9) < 0.05  # 200 cells: two standard errors are 0.042


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_a_new_user_is_a_draw_from_the_prior():
    """mean mu_U' v and variance v' Lambda_U^-1 v + 1/alpha, by hand."""
    data, h = BPMF.example(jax.random.key(0))
    p = BPMF.init(jax.random.key(1), data, h)._replace(mu_U=np.array([0.5, -1.0]))
    frame = {"user": ["nobody"], "item": [2]}
    labelled = bf.Ratings([f"u{i}" for i in data.user], data.item, data.value)
    fit = bf.fit("bpmf", labelled, bf.FixedPoint(max_iter=1, tol=0.99), init=p, progress=False,
                 **h._asdict())  # fmt: skip
    q = fit.params
    v = np.asarray(q.V[2])
    asked = fit.predict(frame)
    assert asked.flagged.all()
    np.testing.assert_allclose(asked.mean, h.offset + q.mu_U @ v, rtol=1e-9)
    variance = v @ np.linalg.inv(q.Lambda_U) @ v + 1 / q.alpha
    np.testing.assert_allclose(asked.sd, variance**0.5, rtol=1e-9)
