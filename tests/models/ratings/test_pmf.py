"""PMF: one sweep computed by hand, and what its paper and the theory of ridge penalties say."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from tests.tools.records import changed

PMF = REGISTRY["pmf"]


def golden(method):
    """One sweep of ALS on the example, row by row, on a dense table with holes."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    U, V, b, c = (np.array(x) for x in p[:4])
    y = np.full(data.shape, np.nan)
    y[data.user, data.item] = data.value - h.offset
    seen = ~np.isnan(y)
    for i in range(len(U)):  # (sum v v' + s^2/s_u^2 I) u = sum (y - b - c) v
        v, rest = V[seen[i]], (y[i] - b[i] - c)[seen[i]]
        U[i] = np.linalg.solve(v.T @ v + (h.noise / h.scale_user) ** 2 * np.eye(2), v.T @ rest)
    for j in range(len(V)):
        u, rest = U[seen[:, j]], (y[:, j] - b - c[j])[seen[:, j]]
        V[j] = np.linalg.solve(u.T @ u + (h.noise / h.scale_item) ** 2 * np.eye(2), u.T @ rest)
    ridge = (h.noise / h.scale_bias) ** 2
    for i in range(len(U)):
        b[i] = np.nansum(y[i] - c - V @ U[i]) / (seen[i].sum() + ridge)
    for j in range(len(V)):
        c[j] = np.nansum(y[:, j] - b - U @ V[j]) / (seen[:, j].sum() + ridge)
    new = method.solver.update(p, data, h)
    for mine, theirs in zip((U, V, b, c), new[:4], strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-10)


def test_golden_step():
    golden(PMF)


def test_only_the_ratio_of_noise_to_scale_matters():
    """Eq. 4: the penalty is lambda = sigma^2 / sigma_U^2, whatever the two are."""
    data, h = PMF.example(jax.random.key(0))
    scaled = {k: 3 * getattr(h, k) for k in ("noise", "scale_user", "scale_item", "scale_bias")}
    p = PMF.init(jax.random.key(1), data, h)
    one, other = PMF.solver.update(p, data, h), PMF.solver.update(p, data, h._replace(**scaled))
    for a, b in zip(one[:4], other[:4], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_with_every_cell_observed_the_map_is_the_soft_thresholded_svd():
    """1/2 (|U|^2/s_u^2 + |V|^2/s_v^2) is the nuclear norm of U V' over s_u s_v at its best split."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(12, 4)) @ rng.normal(size=(4, 9)) + 0.3 * rng.normal(size=(12, 9))
    hyper = {"n_components": 9, "noise": 1.5, "scale_user": 1.2, "scale_item": 0.7, "offset": 0.0}
    hyper["biases"] = False
    fit = bf.fit("pmf", y, bf.FixedPoint(max_iter=3000, tol=1e-13), progress=False, **hyper)
    left, size, right = np.linalg.svd(y, full_matrices=False)
    best = left * np.maximum(size - 1.5**2 / (1.2 * 0.7), 0) @ right
    assert 0 < (size > 1.5**2 / (1.2 * 0.7)).sum() < 9
    np.testing.assert_allclose(fit.params.U @ fit.params.V.T, best, atol=1e-4)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_priors_keep_it_from_overfitting():
    """The paper's figure 2: without the penalty the test error is far larger."""
    ratings, truth = bf.datasets.make_gaussian(60, 40, rank=2, noise=0.5, density=0.25, seed=1)
    train, test = bf.split.holdout(ratings, 0.2, seed=0)
    settings = {"n_components": 6, "noise": truth.noise, "progress": False}
    engine = bf.FixedPoint(max_iter=100, tol=1e-5)
    kept = bf.fit("pmf", train, engine, **settings)
    loose = bf.fit("pmf", train, engine, scale_user=30.0, scale_item=30.0, **settings)
    error = [bf.metrics.rmse(f.predict(test).mean, test.value) for f in (kept, loose)]
    assert error[0] < 0.85 * error[1]


def test_the_start_is_not_near_a_poor_minimum():
    """From random factors, one seed in three ends above thirty times the lowest objective."""
    rng = np.random.default_rng(0)
    full = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 10))
    user, item = np.nonzero(rng.random(full.shape) < 0.5)
    ratings = bf.Ratings(user, item, full[user, item])
    settings = {"noise": 0.1, "scale_user": 1.0, "scale_item": 1.0, "progress": False}
    from_random, from_start = (
        [
            bf.fit(method, ratings, n_components=2, seed=seed, **settings).trace[-1]
            for seed in range(3)
        ]
        for method in (changed(PMF, start=None), PMF)
    )
    assert max(from_start) < 1.01 * min(from_random)
    assert max(from_random) > 10 * min(from_random)


def test_a_point_whose_noise_nothing_chose_says_so():
    few = bf.datasets.make_ratings(8, 6, 1, seed=0)
    options = {"n_components": 1, "progress": False}
    by_rule, given = bf.fit("pmf", few, **options), bf.fit("pmf", few, noise=0.5, **options)
    assert [note for note in by_rule.notes if note.startswith("noise=")]
    assert not given.notes
