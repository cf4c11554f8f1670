"""iPMMMF: sticks, memberships, and how many features the ratings ask for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import bayesfac as bf
from bayesfac.core.checks import SMOOTH
from bayesfac.core.kernels.losses import BINARY
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings.ipmmmf import Membership, bends, kl_bernoulli, sticks

IP = REGISTRY["ipmmmf"]


def golden(method):
    """J of the example by plain loops."""
    data, h = IP.example(jax.random.key(3))
    p = IP.init(jax.random.key(4), data, h)
    Z, V, theta, nu = (np.asarray(x) for x in p)
    J = 0.5 * (V**2).sum() / h.scale_item**2 - (h.alpha - 1) * np.log(nu).sum()
    J += 0.5 * (((theta - np.array(h.centres)) / h.scale_theta) ** 2).sum()
    for k in range(3):
        pi = np.prod(nu[: k + 1])
        for z in Z[:, k]:
            J += z * np.log(z / pi) + (1 - z) * np.log((1 - z) / (1 - pi))
    for i, j, y in zip(data.user, data.item, data.value, strict=True):
        for r in (1, 2, 3):
            m = (1 if r >= y else -1) * (theta[i, r - 1] - Z[i] @ V[j])
            J += h.cost * (0 if m >= 1 else (0.5 * (1 - m) ** 2 if m > 0 else 0.5 - m))
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-10)


def test_golden_objective():
    golden(IP)


@pytest.mark.parametrize("loss", SMOOTH)
def test_the_parabolas_touch_the_loss_and_are_nowhere_below_it(loss):
    at, z = jnp.linspace(-6, 2, 33)[:, None], jnp.linspace(-40, 40, 4001)
    value, slope = BINARY[loss].value, BINARY[loss].slope

    def least_gap(share):
        step = z - at
        parabola = value(at) + slope(at) * step + share * bends(at, loss) / 2 * step**2
        return jnp.min(parabola - value(z), 1)

    assert (least_gap(1.0) >= -1e-9).all()
    assert (least_gap(0.9) < -1e-9).all()  # no smaller bend would do


def test_the_sticks_go_to_the_optimum_of_their_factors():
    """Repeated steps end where the slope of J in nu is zero."""
    data, h = IP.example(jax.random.key(3))
    p, step = IP.init(jax.random.key(4), data, h), jax.jit(lambda p: sticks(p, h))
    for _ in range(300):
        p = p._replace(nu=step(p))
    slope = jax.grad(lambda nu: IP.objective(p._replace(nu=nu), data, h))(p.nu)
    np.testing.assert_allclose(slope, 0, atol=1e-6)


@pytest.mark.parametrize(
    "pi",
    [pytest.param(0.02, marks=pytest.mark.slow), 0.4, pytest.param(0.97, marks=pytest.mark.slow)],
)
def test_memberships_are_drawn_from_what_they_are_proportional_to(pi):
    law, kl = Membership(jnp.full(1, pi)), jax.jit(kl_bernoulli)
    draws = np.asarray(law.sample(jax.random.key(0), (100_000,)))

    def density(z):
        return np.exp(-float(kl(z, pi)))

    total = integrate.quad(density, 0, 1)[0]
    mean = integrate.quad(lambda z: z * density(z), 0, 1)[0] / total
    square = integrate.quad(lambda z: z**2 * density(z), 0, 1)[0] / total
    sd = np.sqrt(square - mean**2)
    assert abs(draws.mean() - mean) < 5 * sd / np.sqrt(len(draws))
    np.testing.assert_allclose(law.mean[0], mean, rtol=1e-3)
    np.testing.assert_allclose(law.variance[0], sd**2, rtol=1e-2)


def test_features_that_do_not_pay_are_switched_off():
    """A rank-2 matrix: beyond a few features, memberships stay at their falling prior."""
    ratings = bf.datasets.make_ratings(60, 50, 2, density=0.5, seed=0)
    given = {"n_components": 15, "scale_item": 0.3, "progress": False}
    fit = bf.fit("ipmmmf", ratings, **given)
    strength = np.asarray(fit.params.Z).std(0) * np.abs(np.asarray(fit.params.V)).max(0)
    assert (strength > 0.05).sum() < 12
    pi = np.cumprod(np.asarray(fit.params.nu))
    assert (np.diff(pi) < 0).all()
    constant = np.abs(ratings.value - np.median(ratings.value)).mean()
    assert np.abs(fit.predict(ratings).level - ratings.value).mean() < 0.5 * constant


def test_a_feature_that_everybody_has_does_not_end_in_nan():
    data = bf.Ratings([0] * 4, range(4), [1.0, 2, 2, 1], levels=2)
    fit = bf.fit("ipmmmf", data, n_components=1, progress=False)
    assert np.isfinite(fit.predict({"user": [0], "item": [0]}).mean).all()
