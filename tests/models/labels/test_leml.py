"""LEML: a sweep by hand, both losses, unknown labels, and what an optimum looks like."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels.leml import METHOD, Hyper, Params, prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 5))
Y = (RNG.random((8, 4)) < 0.5).astype(float)
UNKNOWN = Y.copy()
UNKNOWN[1, 2] = UNKNOWN[3, 0] = UNKNOWN[3, 1] = np.nan


def setting(labels, **hyper):
    data = Tasks({"v": X}, labels)
    given = prepare(data, Hyper(3, 0.7, **hyper))
    W, H = RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3))
    return data, given, Params({"v": jnp.asarray(W)}, jnp.asarray(H)), W, H


def cost(W, H, labels, loss, penalty=0.7):
    s, known = X @ W @ H.T, ~np.isnan(labels)
    y = np.where(known, labels, 0)
    each = (y - s) ** 2 if loss == "squared" else np.log1p(np.exp(s)) - y * s
    return each[known].sum() + penalty / 2 * ((W**2).sum() + (H**2).sum())


@pytest.mark.parametrize("labels", [Y, UNKNOWN], ids=["all", "some"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_objective_is_the_papers(labels, loss):
    data, hyper, p, W, H = setting(labels, loss=loss)
    assert METHOD.objective(p, data, hyper) == pytest.approx(cost(W, H, labels, loss), rel=1e-12)


def golden(method):
    """A sweep of squared errors solves each side."""
    data, hyper, p, W, _ = setting(Y)
    A = X @ W
    H = np.linalg.solve(2 * A.T @ A + 0.7 * np.eye(3), 2 * A.T @ Y).T
    system = 2 * np.kron(H.T @ H, X.T @ X) + 0.7 * np.eye(15)  # of vec W, column by column
    W = np.linalg.solve(system, 2 * (X.T @ Y @ H).ravel(order="F")).reshape(3, 5).T
    new = method.solver.update(p, data, hyper)
    np.testing.assert_allclose(new.H, H, rtol=1e-9)
    np.testing.assert_allclose(new.W["v"], W, rtol=1e-9)


def test_golden_step():
    golden(METHOD)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_sweep_steps_to_the_minimum_of_a_parabola_above(loss):
    data, hyper, p, W, H = setting(UNKNOWN, loss=loss)
    c, known = {"squared": 2, "logistic": 0.25}[loss], ~np.isnan(UNKNOWN)
    s, y = X @ W @ H.T, np.where(known, UNKNOWN, 0)
    slope = 2 * (s - y) if loss == "squared" else 1 / (1 + np.exp(-s)) - y
    target = (
        s - np.where(known, slope, 0) / c
    )  # of the parabola; an unknown label stays at its score
    A = X @ W
    expected = np.linalg.solve(c * A.T @ A + 0.7 * np.eye(3), c * A.T @ target).T
    np.testing.assert_allclose(METHOD.solver.update(p, data, hyper).H, expected, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_factors_are_balanced_at_an_optimum(loss):
    # |W|^2 + |H|^2 is twice the trace norm of W H' only where W'W = H'H (Srebro et al. 2005)
    data = Tasks({"v": X}, Y)
    fit = bf.fit("leml", data, bf.FixedPoint(5000, tol=1e-13), n_components=3, loss=loss, penalty=0.3,
                 scaled=False, progress=False)  # fmt: skip
    (W,), H = fit.params.W.values(), fit.params.H
    np.testing.assert_allclose(W.T @ W, H.T @ H, atol=2e-4)


def test_what_is_hidden_is_filled_in_and_is_no_zero():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 6))
    y = (x @ rng.normal(size=(6, 2)) @ rng.normal(size=(2, 8)) > 0).astype(float)
    hidden = rng.random(y.shape) < 0.4
    hidden[:, 0] &= ~hidden.all(1)  # a row has at least one label
    settings = {"n_components": 3, "loss": "logistic", "penalty": 1.0, "progress": False}

    def right(labels):
        fit = bf.fit("leml", bf.Tasks(x, labels), bf.LBFGS(tol=1e-6), **settings)
        found = fit.predict(bf.Tasks(x, labels).grid()).mean.reshape(y.shape) > 0.5
        return np.mean(found[hidden] == y[hidden])

    assert right(np.where(hidden, np.nan, y)) > 0.975 > 0.955 > right(np.where(hidden, 0, y))


def test_new_rows_are_folded_in():
    data = Tasks({"v": pd.DataFrame(X, columns=list("abcde"))}, UNKNOWN)
    fit = bf.fit("leml", data, n_components=2, scaled=False, progress=False)
    new = fit.fold_in(Tasks({"v": pd.DataFrame(X[:2] + 1, columns=list("abcde"))}))
    asked = new.predict({"row": [0, 1], "label": [3, 0]}).mean
    (W,) = fit.params.W.values()
    score = ((X[:2] + 1) @ np.asarray(W) @ np.asarray(fit.params.H).T)[[0, 1], [3, 0]]
    np.testing.assert_allclose(asked, np.clip(score, 1e-3, 1 - 1e-3), rtol=1e-5)


@pytest.mark.parametrize(
    ("labels", "hyper", "message"),
    [
        (2 * Y - 1, {}, "labels 0 and 1, got -1 and 1"),
        (Y + 0.5, {"loss": "logistic"}, "labels 0 and 1, got other numbers"),
        (np.full((8, 2), np.nan), {}, "labels of at least one row, got none"),
        (None, {}, "labels of at least one row, got none"),
        (Y, {"loss": "hinge"}, "loss to be one of"),
        (Y, {"n_components": 0}, "n_components between 1"),
        (Y, {"penalty": -1.0}, "penalty to be a finite number above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(labels, hyper, message):
    with pytest.raises(ValueError, match=message):
        bf.fit("leml", Tasks({"v": X}, labels), progress=False, **hyper)


def test_several_views_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"one view, got 2: v, w \(see Tasks.concatenated\(\)\)"):
        bf.fit("leml", Tasks({"v": X, "w": X}, Y), progress=False)


def test_the_posterior_spreads_where_little_is_known():
    data, _ = METHOD.example(jax.random.key(0))
    fit = bf.fit("leml", data, bf.NUTS(warmup=200, draws=200, chains=2), n_components=2, loss="logistic",
                 progress=False)  # fmt: skip
    p = np.asarray(fit.predict(data.grid()).mean)
    assert (np.abs(p - 0.5) < 0.45).all() and p.std() > 0.02  # neither certain nor all alike


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
@pytest.mark.parametrize("engine", [None, bf.SVI(50, draws=20)], ids=["point", "draws"])
def test_a_label_that_no_row_has_is_never_predicted_by_the_logistic_loss(engine):
    """The penalty holds its probability near one half, above the cut."""
    rng = np.random.default_rng(0)
    y = np.hstack([rng.random((20, 3)) < 0.3, np.zeros((20, 1))]).astype(float)
    data = bf.Tasks(rng.normal(size=(20, 6)), y)
    given = {"loss": "logistic", "penalty": 20.0, "cut": 0.1, "progress": False}
    told = bf.fit("leml", data, engine, **given).predict(data.grid())
    assert told.level.reshape(20, 4)[:, :3].all() and not told.level.reshape(20, 4)[:, 3].any()
    assert (told.score.reshape(20, 4)[:, 3] < 0.1).all()
