"""Every engine on a problem whose posterior is known: a mean with Gaussian prior and noise."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayesfac as bf
from bayesfac.core.data import Ratings
from bayesfac.core.errors import NumericalError
from bayesfac.core.method import Method

Y = np.array([[1.2, 0.4, 2.0, np.nan], [-0.3, 0.1, np.nan, np.nan]])
N, TOTAL = np.array([3, 2]), np.array([3.6, -0.2])
PRECISION = 1 / 4 + N / 0.25  # prior sd 2, noise sd 1/2
MEAN, SD = TOTAL / 0.25 / PRECISION, PRECISION**-0.5


class Params(NamedTuple):
    b: jax.Array


class Hyper(NamedTuple):
    start: float = 0.0


def init(key, data, hyper):
    return Params(jnp.full(data.n_users, hyper.start) + jax.random.normal(key, (data.n_users,)))


def objective(p, data, hyper):
    return jnp.sum((data.y - p.b[data.cells.row]) ** 2) / 0.5 + jnp.sum(p.b**2) / 8


def conditional_b(p, data, hyper):
    return dist.Normal(jnp.asarray(MEAN), jnp.asarray(SD)).to_event(1)


def update(p, data, hyper):
    return Params(0.5 * p.b + 0.5 * jnp.asarray(MEAN))  # half-way: so that it takes sweeps


def model(data, hyper):
    with numpyro.plate("user", data.n_users):
        b = numpyro.sample("b", dist.Normal(0, 2))
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", dist.Normal(b[data.cells.row], 0.5), obs=data.y)


def predict(p, query, hyper):
    return dist.Normal(p.b[query.row], 0.5)


METHOD = Method(
    "mean", "none", Ratings, Params, Hyper, init, objective, model, predict, lambda key: None,
    update=update, conditionals={"b": conditional_b}, dims={"b": ("user",)},
)  # fmt: skip
EVERYONE = {"user": [0, 1], "item": [0, 0]}


@pytest.mark.parametrize(
    "engine", [bf.FixedPoint(tol=1e-14), bf.LBFGS(), bf.MAP(steps=3000)], ids=repr
)
def test_points_find_the_mode(engine):
    fit = bf.fit(METHOD, Y, engine)
    np.testing.assert_allclose(
        fit.params.b, MEAN, atol=2e-4 if isinstance(engine, bf.MAP) else 1e-6
    )
    assert fit.converged
    lower, upper = fit.predict(EVERYONE).interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6449 * 0.5, rtol=0.01)


SAMPLERS = [
    bf.Gibbs(10, 2000, 2),
    bf.NUTS(300, 1000, 2),
    bf.SVI(8000, draws=4000, learning_rate=0.02, patience=False),
    bf.SVI(8000, "multivariate", draws=4000, learning_rate=0.02, patience=False),
    bf.SVI(3000, "laplace", draws=4000),
]


@pytest.mark.parametrize(
    "engine", SAMPLERS, ids=lambda e: f"{type(e).__name__}-{getattr(e, 'guide', '')}"
)
def test_samplers_find_mean_and_sd(engine):
    """Within five standard errors; NUTS draws are correlated, so its effective number is counted."""
    import arviz_stats as stats

    fit = bf.fit(METHOD, Y, engine)
    draws = fit.draws["b"]
    flat = draws.reshape(-1, 2)
    # what Adam still moves at its last step is not Monte Carlo error
    slack = 0.02 * SD if isinstance(engine, bf.SVI) else 0
    for k in range(2):
        ess = min(stats.ess(draws[..., k]), len(flat)) if isinstance(engine, bf.NUTS) else len(flat)
        assert abs(flat[:, k].mean() - MEAN[k]) < 5 * SD[k] / np.sqrt(ess) + np.max(slack)
        assert abs(flat[:, k].std() / SD[k] - 1) < 5 / np.sqrt(2 * ess) + (
            0.02 if np.any(slack) else 0
        )
    lower, upper = fit.predict(EVERYONE).interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6449 * np.sqrt(0.25 + SD**2), rtol=0.06)


def test_minibatches_keep_the_posterior():
    fit = bf.fit(METHOD, Y, bf.SVI(20_000, batch=3, draws=4000, learning_rate=0.01, patience=False))
    flat = fit.draws["b"].reshape(-1, 2)
    np.testing.assert_allclose(flat.mean(0), MEAN, atol=0.15)
    np.testing.assert_allclose(flat.std(0), SD, rtol=0.25)  # a scale of one instead of 5/3: 29 %


def test_the_best_of_several_restarts_is_kept_and_the_rest_named():
    fit = bf.fit(METHOD, Y, bf.FixedPoint(max_iter=3, tol=0.5, restarts=4))
    assert "best of 4 restarts" in fit.info["notes"][0]


def test_the_log_joint_is_the_same_number_for_every_sampler():
    for engine in (bf.Gibbs(1, 5, 1), bf.NUTS(25, 5, 1), bf.SVI(100, draws=5, patience=False)):
        fit = bf.fit(METHOD, Y, engine) if not isinstance(engine, bf.SVI) else _quiet(engine)
        b = fit.draws["b"][0, 3]
        want = -float(objective(Params(jnp.asarray(b)), bf.Ratings(Y), Hyper()))
        np.testing.assert_allclose(fit.stats["lp"][0, 3], want, rtol=1e-9)


def _quiet(engine):
    with pytest.warns(bf.ConvergenceWarning, match="still moving"):
        return bf.fit(METHOD, Y, engine)


def test_a_nan_is_named_with_its_step():
    import dataclasses

    broken = dataclasses.replace(METHOD, update=lambda p, d, h: Params(p.b * jnp.nan))
    with pytest.raises(NumericalError, match="NaN or infinity in b after sweep 1"):
        bf.fit(broken, Y)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: bf.Gibbs(draws=0),
            r"Gibbs\(draws=...\) to be a whole number of at least 1, got 0",
        ),
        (lambda: bf.NUTS(chains=1.5), r"NUTS\(chains=...\)"),
        (lambda: bf.NUTS(target_accept=2), "target_accept in"),
        (lambda: bf.SVI(guide="norml"), "one of .*normal.*got 'norml'"),
        (lambda: bf.FixedPoint(tol=-1), "tol"),
        (lambda: bf.SVI(learning_rate=0), "positive learning_rate"),
    ],
)
def test_bad_settings_are_refused_when_made(make, said):
    with pytest.raises(ValueError, match=said):
        make()
