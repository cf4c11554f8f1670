"""L-BFGS for many problems at once: each as if it were alone."""

import numpy as np
import pytest
from scipy import optimize

from bayesfac.inference.lbfgs import STUCK, advance, begin


def rosenbrock(z):
    return np.array([optimize.rosen(x) for x in z]), np.array([optimize.rosen_der(x) for x in z])


def descend(look, z, steps=500, tol=0.0, gtol=1e-8):
    at = begin(lambda z, live: look(z), z)
    values = [at.value.copy()]
    for _ in range(steps):
        if not len(at.live):
            break
        advance(lambda z, live: look(z), at, 10, tol, gtol)
        values.append(at.value.copy())
    return at, np.array(values)


def test_the_valley_of_rosenbrock():
    z = np.random.default_rng(0).normal(size=(4, 6))
    at, values = descend(rosenbrock, z.copy())
    assert (np.diff(values, axis=0) <= 0).all()
    assert sorted(np.round(at.value, 6))[0] == 0
    assert np.abs(at.slope).max() < 1e-4
    for b in range(4):  # alone it goes the same way
        one, _ = descend(rosenbrock, z[b : b + 1].copy())
        np.testing.assert_allclose(one.z[0], at.z[b], atol=1e-10)


def test_a_problem_that_is_done_is_not_looked_at_again():
    seen = []

    def look(z, live):
        seen.append(list(live))
        scale = np.array([1.0, 1e4])[live]
        return scale * ((z - 1) ** 4).sum(1), 4 * scale[:, None] * (z - 1) ** 3

    at = begin(look, np.array([[1.0, 1.0], [3.0, -2.0]]))
    while len(at.live):
        advance(look, at, 5, 1e-12, 1e-8)
    assert seen[-1] == [1]
    np.testing.assert_array_equal(at.z[0], [1, 1])


def test_a_first_step_too_short_to_tell_is_no_standstill():
    """Millions of parameters, one unit of length: the first fall is nothing beside the objective."""

    def look(z):
        return 1e6 + 0.5 * (z**2).sum(1), z

    at, values = descend(look, np.full((1, 100_000), 0.01), tol=1e-5, gtol=0)
    assert len(values) > 2
    np.testing.assert_allclose(at.value, 1e6, rtol=1e-9)


def test_a_wrong_slope_is_stuck_and_says_so():
    at, _ = descend(lambda z: ((z**2).sum(1), -2 * z), np.ones((1, 3)))
    assert at.why == [STUCK]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_precision_is_kept(dtype):
    z = np.ones((1, 5), dtype)
    at, _ = descend(lambda z: (((z - 2) ** 2).sum(1), 2 * (z - 2)), z)
    assert at.z.dtype == dtype
    assert at.why[0] != STUCK
    np.testing.assert_allclose(at.z, 2, atol=1e-4)
