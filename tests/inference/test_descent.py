"""L-BFGS for many problems at once: each as if it were alone."""

import numpy as np
import pytest
from scipy import optimize

from bayesfac.inference.lbfgs import STUCK, Descent, _inverse_hessian_times_slope, advance, begin


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
    for _ in range(500):  # no `while`: with the mistake that this test must see, it would not end
        if len(at.live):
            advance(look, at, 5, 1e-12, 1e-8)
    assert not len(at.live) and seen[-1] == [1]
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


def test_the_direction_is_that_of_the_matrix_of_bfgs():
    """Nocedal & Wright 2006, (7.16): H+ = (1 - w s y') H (1 - w y s') + w s s', from the oldest step on."""
    rng = np.random.default_rng(0)
    steps, turns, slope = (
        rng.normal(size=(4, 3, 5)),
        rng.normal(size=(4, 3, 5)),
        rng.normal(size=(3, 5)),
    )
    weights = 1 / np.einsum("hbn,hbn->hb", steps, turns)
    turns, weights = turns * np.sign(weights)[..., None], np.abs(weights)
    weights[3, 1] = weights[1, 1] = (
        0  # of the second problem the last step, and one more, cannot be used
    )
    at = Descent(np.zeros((3, 5)), np.zeros(3), slope, ["", "", ""], [*steps], [*turns], [*weights])
    found, alone = (_inverse_hessian_times_slope(at, np.array(live)) for live in ([0, 1, 2], [1]))
    for b in range(3):
        used = [h for h in range(4) if weights[h, b]]
        s, y, w = (table[used, b] for table in (steps, turns, weights))
        H = np.eye(5) / (w[-1] * y[-1] @ y[-1])
        for k in range(len(used)):
            left = np.eye(5) - w[k] * np.outer(s[k], y[k])
            H = left @ H @ left.T + w[k] * np.outer(s[k], s[k])
        np.testing.assert_allclose(found[b], H @ slope[b], rtol=1e-10)
    np.testing.assert_allclose(alone[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("level", [0.0, 1e6])
def test_the_tolerance_is_relative_to_the_objective(level):
    """The descent ends with the first fall below tol x max(1, |J|), and with no later one."""
    tol, bend = 1e-7, np.arange(1.0, 31) ** 2

    def look(z):
        return level + 0.5 * (bend * z**2).sum(1), bend * z

    at, values = descend(look, np.ones((1, 30)), tol=tol, gtol=0)
    falls, limit = -np.diff(values[:, 0]), tol * np.maximum(1, np.abs(values[:-1, 0]))
    assert at.why == ["the objective stands still"]
    assert falls[-1] <= limit[-1] and (falls[1:-1] > limit[1:-1]).all()
    assert len(falls) > 3


def test_the_line_search_goes_to_the_minimum_of_a_parabola():
    """One number: the value at a step that is too long, and value and slope before it, give the minimum."""
    seen = []

    def look(z, live):
        seen.append(z[0, 0])
        return 8 * (z[:, 0] - 0.2) ** 2, 16 * (z - 0.2)

    at = begin(look, np.zeros((1, 1)))
    advance(look, at, 5, 0.0, 0.0)  # the first step has length one: to 1, where the value is larger
    np.testing.assert_allclose(seen, [0, 1, 0.2], atol=1e-12)


def test_history_is_that_of_the_last_steps():
    """Steps along which the slope does not rise have no weight; the oldest of `memory` steps is dropped."""

    def look(z):
        return np.cos(z).sum(1), -np.sin(z)

    at = begin(lambda z, live: look(z), np.array([[0.1, 0.2]]))
    points, slopes = [at.z.copy()], [at.slope.copy()]
    for _ in range(5):
        advance(lambda z, live: look(z), at, 3, 0.0, 1e-12)
        points.append(at.z.copy())
        slopes.append(at.slope.copy())
    step, turn = np.diff(points, axis=0)[-3:], np.diff(slopes, axis=0)
    np.testing.assert_allclose(at.steps, step, atol=1e-15)
    np.testing.assert_allclose(at.turns, turn[-3:], atol=1e-15)
    product = (step * turn[-3:]).sum(2)
    np.testing.assert_allclose(at.weights, np.where(product > 0, 1 / product, 0), rtol=1e-9)
    assert (np.diff(points, axis=0)[0] * turn[0]).sum() < 0, "the first step was to have no weight"
