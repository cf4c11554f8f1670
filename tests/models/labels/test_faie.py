"""FaIE: a sweep by hand, the eigenvectors that it ends at and how soon, and codes of new rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import orth

import bayesfac as bf
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels.faie import METHOD, Hyper, Params, prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)) + 0.5
Y = (X @ RNG.normal(size=(6, 5)) + RNG.normal(size=(40, 5)) > 1).astype(float)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def begun(d=3, **hyper):
    data = Tasks({"x": X}, Y)
    given = {"alpha": 0.7, "penalty": 0.6, "weight": 0.8, "ridge": 0.1}
    h = prepare(data, Hyper(d, **{**given, **hyper}))
    return data, h, METHOD.init(jax.random.key(0), data, h)


def operator(h):
    """The matrix of which C spans the first eigenvectors, and H."""
    H = X @ np.linalg.solve(X.T @ X + h.penalty * np.eye(6), X.T)
    return h.weight**2 / (h.weight + h.ridge) * Y @ Y.T + h.alpha * H, H


def test_objective_by_hand():
    data, h, _ = begun()
    site, D, W = (RNG.normal(size=shape) for shape in ((40, 3), (5, 3), (6, 3)))  # no frame
    left, size, right = np.linalg.svd(site, full_matrices=False)
    C = left @ right
    J = 0.8 * np.sum((Y - C @ D.T) ** 2) + 0.1 * np.sum(D**2)
    J += 0.7 * (np.sum((C - X @ W) ** 2) + 0.6 * np.sum(W**2))
    J += 0.5 * np.sum(size**2 - np.log(size**2) - 1)
    found = METHOD.objective(
        Params(jnp.asarray(site), jnp.asarray(D), {"x": jnp.asarray(W)}), data, h
    )
    np.testing.assert_allclose(found, J, rtol=1e-10)


def golden(method):
    """The best frame in the span of C, Y and X W, for any W; then D and W."""
    data, h, p = begun()
    p = p._replace(W={"x": jnp.asarray(RNG.normal(size=(6, 3)))})
    span = orth(np.hstack([p.C, Y, X @ p.W["x"]]))
    M, H = operator(h)
    C = span @ np.linalg.eigh(span.T @ M @ span)[1][:, -3:]
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.C @ new.C.T, C @ C.T, atol=1e-9)
    np.testing.assert_allclose(new.D, 0.8 / 0.9 * Y.T @ new.C, atol=1e-9)
    np.testing.assert_allclose(X @ new.W["x"], H @ new.C, atol=1e-9)
    step = np.linalg.svd(0.8 * Y @ p.D + 0.7 * X @ p.W["x"], full_matrices=False)
    nearest = step[0] @ step[2]  # C = polar(weight Y D + alpha X W), the block's own optimum
    value = -np.trace(nearest.T @ M @ nearest)
    assert -np.trace(new.C.T @ M @ new.C) < value


def test_golden_step():
    golden(METHOD)


@pytest.mark.parametrize(("d", "alpha"), [(1, 0.1), (3, 0.7), (3, 10.0), (5, 1.0)])
def test_codes_are_the_leading_eigenvectors_within_a_few_sweeps(d, alpha):
    """tr C'(Y Y' + alpha H) C is maximal, as in the paper, and J is what is left of |Y|^2 + alpha d."""
    data, h, p = begun(d, alpha=alpha, weight=1.0, ridge=0.0)
    step = jax.jit(lambda p: METHOD.solver.update(p, data, h))
    M, _ = operator(h)
    values, Q = np.linalg.eigh(M)
    least = np.sum(Y**2) + alpha * d - values[-d:].sum()
    for sweep in range(40):
        p = step(p)
        if sweep == 5:
            assert METHOD.objective(p, data, h) - least < 1e-4 * least
    np.testing.assert_allclose(METHOD.objective(p, data, h), least, rtol=1e-9)
    np.testing.assert_allclose(p.C @ p.C.T, Q[:, -d:] @ Q[:, -d:].T, atol=1e-5)


def test_a_row_of_training_folded_in_gets_the_code_that_its_features_predict():
    data = Tasks({"x": X}, Y)
    fit = bf.fit("faie", data, n_components=3, scaled=False, progress=False)
    p, asked = fit.params, Tasks({"x": X[:4]})
    inside = fit.predict(data).mean.reshape(40, 5)
    np.testing.assert_allclose(inside, np.clip(p.C @ p.D.T, 1e-3, 1 - 1e-3), atol=1e-9)
    new = fit.fold_in(asked)
    told = new.predict(asked).mean.reshape(4, 5)
    wanted = np.clip((X[:4] @ p.W["x"]) @ p.D.T, 1e-3, 1 - 1e-3)
    np.testing.assert_allclose(told, wanted, atol=1e-9)
    assert new.params.C.shape == new.params.A.shape == (4, 3)


def test_features_that_say_more_about_codes_win_as_alpha_grows():
    found = []
    for alpha in (0.01, 100.0):
        data, h, p = begun(2, alpha=alpha)
        step = jax.jit(lambda p, data=data, h=h: METHOD.solver.update(p, data, h))
        for _ in range(60):
            p = step(p)
        _, H = operator(h)
        found.append((np.trace(p.C.T @ H @ p.C), np.sum((Y.T @ p.C) ** 2)))
    (easy, exact), (easier, rough) = found
    assert easier > easy + 0.01 and exact > rough + 0.01


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_components": 41}, r"Expected n_components between 1 and 40 \(the number of rows\)"),
        ({"alpha": 0.0}, "Expected alpha to be a finite number above 0"),
        ({"penalty": 0}, "Expected penalty to be a finite number above 0"),
        ({"weight": -1}, "Expected weight to be a finite number above 0"),
        ({"ridge": -1e-3}, "Expected ridge to be a finite number above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("faie", Tasks({"x": X}, Y), **given)


def test_every_row_needs_labels():
    some = np.where(np.arange(40)[:, None] == 7, np.nan, Y)
    with pytest.raises(ValueError, match="Expected labels of every row .predict unlabelled rows by fold_in., got none of 7"):  # fmt: skip  # noqa: E501
        bf.fit("faie", Tasks({"x": X}, some))


def test_no_draws_under_a_flat_law():
    with pytest.raises(ValueError, match="D has a flat prior"):
        bf.fit("faie", Tasks({"x": X}, Y), bf.NUTS(5, 5, 1), ridge=0.0, progress=False)


def test_a_label_that_no_row_has_and_more_codes_than_labels():
    y = Y.copy()
    y[:, 2] = 0
    fit = bf.fit(
        "faie", Tasks({"x": X}, y), bf.FixedPoint(30, tol=0.5), n_components=8, progress=False
    )
    assert np.isfinite(fit.predict(Tasks({"x": X}, y)).mean).all()
    np.testing.assert_allclose(fit.params.C.T @ fit.params.C, np.eye(8), atol=1e-8)
    assert "no row has the label 2" in fit.result.notes[0]
