"""LS-ML: the closed form three ways, what alpha and weight mean, and the comparator of the same name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eigh

import bayesfac as bf
from bayesfac.labels.comparators import ls_ml
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels.lsml import METHOD, Hyper, Params, prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 7)) + 0.5
Y = (X @ RNG.normal(size=(7, 6)) + RNG.normal(size=(40, 6)) > 1).astype(float)
HIDDEN = np.where(np.arange(40)[:, None] % 5 == 0, np.nan, Y)
KNOWN = ~np.isnan(HIDDEN[:, 0])


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def begun(r=2, labels=HIDDEN, **hyper):
    data = Tasks({"x": X}, labels)
    h = prepare(data, Hyper(r, **{"alpha": 0.3, "beta": 0.05, **hyper}))
    return data, h, METHOD.init(jax.random.key(0), data, h)


def cost(U, T, V, h):
    fit = h.weight * np.sum((X[KNOWN] @ U - Y[KNOWN]) ** 2)
    return fit + h.alpha * np.sum((U - T @ V.T) ** 2) + h.beta * np.sum(U**2)


def best(T, h):
    """The least cost given T: V = U'T, and U from what is left."""
    x, y = X[KNOWN], Y[KNOWN]
    left = h.weight * x.T @ x + (h.alpha + h.beta) * np.eye(7) - h.alpha * T @ T.T
    U = np.linalg.solve(left, h.weight * x.T @ y)
    return cost(U, T, U.T @ T, h), U


def test_objective_by_hand():
    data, h, _ = begun()
    U, site, V = (RNG.normal(size=shape) for shape in ((7, 6), (7, 2), (6, 2)))  # no frame
    left, size, right = np.linalg.svd(site, full_matrices=False)
    law = 0.5 * np.sum(size**2 - np.log(size**2) - 1)
    p = Params({"x": jnp.asarray(U)}, {"x": jnp.asarray(site)}, jnp.asarray(V))
    np.testing.assert_allclose(
        METHOD.objective(p, data, h), cost(U, left @ right, V, h) + law, rtol=1e-10
    )
    assert h.weight == 1 / KNOWN.sum()


def golden(method, r=2):
    """T spans the first eigenvectors of the generalised problem (S2, S1) of the features."""
    data, h, p = begun(r)
    x, y = X[KNOWN], Y[KNOWN]
    M = h.weight * x.T @ x + (h.alpha + h.beta) * np.eye(7)
    B = h.weight * x.T @ y
    inverse = np.linalg.inv(M)
    S1, S2 = np.eye(7) - h.alpha * inverse, inverse @ B @ B.T @ inverse
    values, vectors = eigh(S2, S1)
    T = np.linalg.qr(vectors[:, ::-1][:, :r])[0]
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.T["x"] @ new.T["x"].T, T @ T.T, atol=1e-8)
    least, U = best(T, h)
    np.testing.assert_allclose(new.U["x"], U, atol=1e-9)
    np.testing.assert_allclose(new.V, U.T @ new.T["x"], atol=1e-9)
    np.testing.assert_allclose(method.objective(new, data, h), least, rtol=1e-9)
    ridge = {
        c: np.linalg.solve(h.weight * x.T @ x + c * np.eye(7), B)
        for c in (h.beta, h.alpha + h.beta)
    }
    free, all_of_it = ridge.values()
    top = np.linalg.eigvalsh(all_of_it.T @ free)[::-1][:r].sum()
    closed = h.weight * np.sum(y**2) - np.trace(B.T @ all_of_it) - h.alpha * top
    np.testing.assert_allclose(least, closed, rtol=1e-9)
    for seed in range(20):
        assert (
            best(np.linalg.qr(np.random.default_rng(seed).normal(size=(7, r)))[0], h)[0]
            > least - 1e-12
        )


@pytest.mark.parametrize("r", [1, 2, 5, 6])
def test_golden_step_is_the_papers_closed_form(r):
    golden(METHOD, r)


def test_it_ends_where_the_comparator_does():
    """On centred tables, with the comparator's unit: the mean squared length of a centred row."""
    x, rate = X - X.mean(0), Y.mean(0)
    unit = np.mean(np.sum(x**2, 1))
    data = Tasks({"x": x}, Y - rate)
    fit = bf.fit("lsml", data, n_components=3, alpha=0.3 * unit, beta=0.02 * unit, scaled=False,
                 progress=False)  # fmt: skip
    wanted = ls_ml(X, Y, X, r=3, alpha=0.3, beta=0.02)
    np.testing.assert_allclose(fit.predict(data).mean.reshape(40, 6) + rate, wanted, atol=1e-9)
    assert fit.converged and len(fit.trace) <= 10


def test_weight_and_both_penalties_times_n_have_the_same_minimum():
    n = int(KNOWN.sum())
    data, h, p = begun()
    same = prepare(data, Hyper(2, n * h.alpha, n * h.beta, 1.0))
    one, other = (METHOD.solver.update(p, data, each) for each in (h, same))
    np.testing.assert_allclose(one.U["x"], other.U["x"], atol=1e-9)


def test_a_large_alpha_keeps_labels_to_the_subspace():
    def outside(alpha):
        data, h, p = begun(2, alpha=alpha, beta=1e-3)
        new = METHOD.solver.update(p, data, h)
        return np.linalg.norm(new.U["x"] - new.T["x"] @ new.V.T) / np.linalg.norm(new.U["x"])

    assert outside(1e4) < 1e-3 < 0.1 < outside(1e-3)


def test_new_rows_and_default_sizes():
    fit = bf.fit("lsml", Tasks({"x": X}, HIDDEN), scaled=False, progress=False)
    assert fit.hyper.n_components == 5
    sizes = [((6, 4), 4), ((2, 7), 1), ((6, 7), 5)]
    for (L, d), r in sizes:
        assert prepare(Tasks({"x": X[:, :d]}, Y[:, :L]), Hyper()).n_components == r
    asked = Tasks({"x": X[:4]})
    told = fit.fold_in(asked).predict(asked).mean.reshape(4, 6)
    np.testing.assert_allclose(told, np.clip(X[:4] @ fit.params.U["x"], 1e-3, 1 - 1e-3), atol=1e-9)
    here = fit.predict({"row": [7, 3], "label": [2, 4]}).mean
    score = (X @ fit.params.U["x"])[[7, 3], [2, 4]]
    np.testing.assert_allclose(here, np.clip(score, 1e-3, 1 - 1e-3), atol=1e-9)


@pytest.mark.slow
def test_draws_are_about_the_point():
    given = {"n_components": 2, "weight": 20.0, "alpha": 6.0, "beta": 1.0, "progress": False}
    data = Tasks({"x": X}, Y)
    point = bf.fit("lsml", data, **given)
    draws = bf.fit("lsml", data, bf.NUTS(warmup=150, draws=100, chains=2), init=point, **given)
    np.testing.assert_allclose(draws.predict(data).mean, point.predict(data).mean, atol=0.15)
    assert draws.predict(data).sd_mean.mean() > 0.01


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_components": 7}, r"between 1 and 6 \(the smaller of labels and features\), got 7"),
        ({"alpha": 0}, "Expected alpha to be a finite number above 0, got 0"),
        ({"beta": 0}, "Expected beta to be a finite number above 0, got 0"),
        ({"weight": 0.0}, "Expected weight to be a finite number above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("lsml", Tasks({"x": X}, Y), **given)
