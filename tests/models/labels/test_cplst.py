"""CPLST: a sweep by hand, the global minimum, Pythagoras, PLST beside it, and a posterior of a frame."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels._frames import polar
from bayesfac.labels.models.labels.cplst import METHOD, Hyper, Params, prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 6)) + 0.5
Y = (X @ RNG.normal(size=(6, 5)) + RNG.normal(size=(30, 5)) > 1).astype(float)
HIDDEN = np.where(np.arange(30)[:, None] % 5 == 0, np.nan, Y)
KNOWN = ~np.isnan(HIDDEN[:, 0])


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def begun(d=2, labels=HIDDEN, **hyper):
    data = Tasks({"x": X}, labels)
    h = prepare(data, Hyper(d, **{"weight": 0.8, "penalty": 0.6, "scale": 1.5, **hyper}))
    return data, h, METHOD.init(jax.random.key(0), data, h)


def cost(W, V, b, h):
    """J on the labelled rows."""
    rest = Y[KNOWN] - b - X[KNOWN] @ W @ V.T
    return h.weight * np.sum(rest**2) + h.penalty * np.sum(W**2) + np.sum(b**2) / (2 * h.scale**2)


def best(V, h):
    """The least cost given V: ridge regression of every column of W and b at once, b beside W V'."""
    x, y = X[KNOWN], Y[KNOWN]
    left = np.vstack([
        np.sqrt(h.weight) * np.hstack([np.kron(x, V), np.kron(np.ones((len(x), 1)), np.eye(5))]),
        np.diag(np.r_[np.full(6 * V.shape[1], h.penalty), np.full(5, 0.5 / h.scale**2)] ** 0.5),
    ])  # fmt: skip
    right = np.r_[np.sqrt(h.weight) * y.ravel(), np.zeros(left.shape[1])]
    found = np.linalg.lstsq(left, right, rcond=None)[0]
    W, b = found[:-5].reshape(6, -1), found[-5:]
    return cost(W, V, b, h), W, b


def test_objective_by_hand():
    data, h, p = begun()
    site = RNG.normal(size=(5, 2))  # no frame
    W, b = RNG.normal(size=(6, 2)), RNG.normal(size=5)
    left, size, right = np.linalg.svd(site, full_matrices=False)
    law = 0.5 * np.sum(size**2 - np.log(size**2) - 1)
    found = METHOD.objective(Params({"x": W}, jnp.asarray(site), b), data, h)
    np.testing.assert_allclose(found, cost(W, left @ right, b, h) + law, rtol=1e-10)


def golden(method):
    """V by ridge regression with a column of ones of its own penalty, less the ones alone; then W and b."""
    data, h, p = begun()
    x, y = X[KNOWN], Y[KNOWN]
    one = np.ones((len(x), 1))

    def explained(x, ridge):
        return (
            h.weight
            * y.T
            @ x
            @ np.linalg.solve(h.weight * x.T @ x + np.diag(ridge), h.weight * x.T @ y)
        )

    tau = 0.5 / h.scale**2
    S = explained(np.hstack([x, one]), [*[h.penalty] * 6, tau]) - explained(one, [tau])
    V = np.linalg.eigh(S)[1][:, -2:]
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.V @ new.V.T, V @ V.T, atol=1e-9)
    _, W, b = best(np.asarray(new.V), h)
    np.testing.assert_allclose(new.W["x"], W, atol=1e-9)
    np.testing.assert_allclose(new.b, b, atol=1e-9)
    gap = method.objective(new, data, h) - method.objective(p, data, h)
    S = S / h.weight  # of J = const - weight tr V'SV
    fall = np.trace(V.T @ S @ V) - np.trace(p.V.T @ S @ p.V)
    np.testing.assert_allclose(gap, -h.weight * fall, rtol=1e-8)


def test_golden_step():
    golden(METHOD)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_no_other_frame_costs_less(d):
    data, h, p = begun(d)
    least = float(METHOD.objective(METHOD.solver.update(p, data, h), data, h))
    for seed in range(20):
        frame = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, d)))[0]
        assert best(frame, h)[0] > least
    # PLST's frame (Tai & Lin 2012): the first principal components of the labels
    plst = np.linalg.svd(Y[KNOWN] - Y[KNOWN].mean(0))[2][:d].T
    assert best(plst, h)[0] > least + 1e-3


def test_with_as_many_codes_as_labels_it_is_ridge_regression():
    data, h, p = begun(5)
    new = METHOD.solver.update(p, data, h)
    value, W, b = best(np.eye(5), h)
    np.testing.assert_allclose(new.W["x"] @ new.V.T, W, atol=1e-9)
    np.testing.assert_allclose(METHOD.objective(new, data, h), value, rtol=1e-10)


def test_the_two_errors_of_the_paper_add_up():
    V, W = np.linalg.qr(RNG.normal(size=(5, 2)))[0], RNG.normal(size=(6, 2))
    Z = Y - Y.mean(0)
    two = np.sum((Z - Z @ V @ V.T) ** 2) + np.sum((X @ W - Z @ V) ** 2)
    np.testing.assert_allclose(two, np.sum((Z - X @ W @ V.T) ** 2), rtol=1e-12)


def test_b_is_the_mean_of_the_labels_where_features_are_centred():
    data = Tasks({"x": X - X.mean(0)}, Y)
    fit = bf.fit("cplst", data, n_components=2, scale=1e4, scaled=False, progress=False)
    np.testing.assert_allclose(fit.params.b, Y.mean(0), atol=1e-6)


def test_new_rows_and_half_of_the_labels_by_default():
    fit = bf.fit("cplst", Tasks({"x": X}, HIDDEN), n_components=3, scaled=False, progress=False)
    p = fit.params
    assert fit.hyper.n_components == 3 and fit.converged and len(fit.trace) <= 10
    score = X @ p.W["x"] @ p.V.T + p.b
    asked = Tasks({"x": X[:4]})
    told = fit.fold_in(asked).predict(asked).mean.reshape(4, 5)
    np.testing.assert_allclose(told, np.clip(score[:4], 1e-3, 1 - 1e-3), atol=1e-9)
    here = fit.predict({"row": [7, 3], "label": [2, 4]}).mean
    np.testing.assert_allclose(here, np.clip(score[[7, 3], [2, 4]], 1e-3, 1 - 1e-3), atol=1e-9)


@pytest.mark.slow
def test_draws_are_about_the_point():
    """A sharp posterior: draws of X W V' + b average to its mode, and V V' to that of its frame."""
    data = Tasks({"x": X}, Y)
    given = {"n_components": 2, "weight": 50.0, "penalty": 1.0, "progress": False}
    point = bf.fit("cplst", data, **given)
    draws = bf.fit("cplst", data, bf.NUTS(warmup=150, draws=100, chains=2), init=point, **given)
    found, wanted = draws.predict(data).mean, point.predict(data).mean
    np.testing.assert_allclose(found, wanted, atol=0.1)
    assert draws.predict(data).sd_mean.mean() > 0.005
    V = jax.vmap(polar)(jnp.asarray(draws.draws["V"].reshape(-1, 5, 2)))
    span = np.einsum("sik,sjk->ij", V, V) / len(V)
    np.testing.assert_allclose(span, point.params.V @ point.params.V.T, atol=0.1)


@pytest.mark.parametrize("name", ["cplst", "faie", "lsml"])
def test_real_labels_and_one_that_is_always_zero(name):
    """Labels that the features explain badly; and a column of zeros, which leaves less rank than codes."""
    y = 1.5 * Y + 0.2
    y[:, 3] = 0
    data = Tasks({"x": X}, y)
    fit = bf.fit(name, data, n_components=5, weight=2.0, progress=False)
    assert not fit.hyper.binary and fit.converged
    told = fit.predict(data)
    sd, varied = told.sd.reshape(30, 5), np.arange(5) != 3
    np.testing.assert_allclose(sd, np.tile(sd[0], (30, 1)), rtol=1e-9)
    np.testing.assert_allclose(sd[0, varied], y.std(0)[varied], rtol=0.5)
    assert sd[0, 3] == pytest.approx(0.001)
    assert np.abs(told.mean.reshape(30, 5)[:, 3]).max() < 1e-9


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"n_components": 0},
            r"Expected n_components between 1 and 5 \(the number of labels\), got 0",
        ),
        ({"n_components": 6}, "Expected n_components between 1 and 5"),
        ({"weight": 0}, "Expected weight to be a finite number above 0, got 0"),
        ({"penalty": -1.0}, "Expected penalty to be a finite number above 0"),
        ({"scale": np.inf}, "Expected scale to be a finite number above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("cplst", Tasks({"x": X}, Y), **given)


def test_data_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="Expected one view, got 2"):
        bf.fit("cplst", Tasks({"x": X, "z": X}, Y))
    with pytest.raises(ValueError, match="Expected labels of at least one row"):
        bf.fit("cplst", Tasks({"x": X}, np.full_like(Y, np.nan)))
    gap = Y.copy()
    gap[3, 1] = np.nan
    with pytest.raises(ValueError, match="all labels of a row or none, got NaN for 1 in row 3"):
        bf.fit("cplst", Tasks({"x": X}, gap))
