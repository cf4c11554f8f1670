"""Sweeps with momentum: fewer sweeps, no rise of the objective, and distance kept from bounds."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.inference.extrapolation import KEPT, NOISE, ahead, with_momentum

CURVATURE = jnp.array([1.0, 1e-3])


class Point(NamedTuple):
    x: Any


def objective(p):
    """A long valley, as the sum of two numbers."""
    return jnp.sum(CURVATURE * p.x**2) / 2, jnp.zeros(())


def sweep(p):
    """A gradient step."""
    return Point(p.x - CURVATURE * p.x)


def descend(times, momentum=True):
    p = before = Point(jnp.ones(2))
    value, count, values, starts = objective(p), 0.0, [], []
    for _ in range(times):
        starts.append(count)
        new, cost, goes_on = with_momentum(
            sweep, objective, (), p, before, jnp.asarray(count), value
        )
        count = count + 1 if momentum and goes_on else 0.0
        p, before, value = new, p, cost
        values.append(float(value[0]))
    return np.array(values), starts


@pytest.mark.slow
def test_momentum_saves_sweeps_and_never_raises_the_objective():
    values, starts = descend(600)
    plain, _ = descend(600, momentum=False)
    assert (np.diff(values) <= 2 * NOISE[8]).all()
    assert starts.count(0) > 1  # it was restarted
    assert values[-1] < 1e-6 * plain[-1]


def test_a_sweep_that_raises_the_objective_is_dropped():
    p, before = Point(jnp.array([1.0, 1e-6])), Point(jnp.array([3000.0, 1e-6]))
    wild = {"sweep": lambda p: p, "objective": objective, "bounds": ()}
    kept, value, goes_on = with_momentum(
        *wild.values(), p, before, count=jnp.array(30.0), value=objective(p)
    )
    assert (kept.x == p.x).all() and value[0] == objective(p)[0] and not goes_on
    # without momentum nothing is left to try: what the method's own sweep finds is kept
    risen = {**wild, "sweep": lambda p: Point(2 * p.x)}
    kept, value, goes_on = with_momentum(
        *risen.values(), p, before, count=jnp.array(0.0), value=objective(p)
    )
    assert (kept.x == 2 * p.x).all() and value[0] == objective(kept)[0] and not goes_on


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(("rise", "goes_on"), [(0.5, True), (2.0, False)])
def test_a_rise_by_rounding_is_no_reason_to_restart(dtype, rise, goes_on):
    """Values are the sum of two numbers, so that they tell a rise that one number cannot."""
    p, high = Point(jnp.ones(2, dtype)), jnp.asarray(1e6, dtype)
    low = jnp.asarray(rise * NOISE[dtype.dtype.itemsize] * 1e6, dtype)
    new, cost, found = with_momentum(
        lambda p: Point(2 * p.x), lambda p: (high, low), (), p, p, jnp.ones((), dtype),
        (high, jnp.zeros((), dtype)),
    )  # fmt: skip
    assert (
        bool(found) is goes_on
        and (new.x == (2 if goes_on else 1)).all()
        and (cost[1] == low) == goes_on
    )


@pytest.mark.parametrize(("to", "goes_on"), [(1.4, True), (1.1, False)])
def test_at_a_rise_by_rounding_the_direction_of_the_sweep_decides(to, goes_on):
    """Momentum leads from 1 to 1.25: a sweep that goes further agrees with it, one that returns does not."""
    p, before, low = Point(jnp.ones(2)), Point(jnp.zeros(2)), jnp.array(0.5 * NOISE[8])
    new, cost, found = with_momentum(
        lambda p: Point(p.x * to / 1.25), lambda p: (jnp.ones(()), low), (), p, before, jnp.ones(()),
        (jnp.ones(()), jnp.zeros(())),
    )  # fmt: skip
    assert bool(found) is goes_on and cost[1] == low
    np.testing.assert_allclose(new.x, to, rtol=1e-12)


@pytest.mark.parametrize("nothing", [jnp.nan, jnp.inf])
def test_a_sweep_without_a_finite_objective_is_dropped(nothing):
    p = Point(jnp.ones(2))
    empty = lambda p: (jnp.sum(p.x) * nothing, jnp.zeros(()))  # noqa: E731
    kept, value, goes_on = with_momentum(sweep, empty, (), p, p, jnp.array(1.0), objective(p))
    assert (kept.x == 1).all() and value[0] == objective(p)[0] and not goes_on


def test_entries_keep_most_of_their_distance_from_a_bound():
    p, before = Point(jnp.array([0.1, 0.5, 0.9])), Point(jnp.array([0.9, 0.4, 0.1]))
    both = ahead(p, before, 1.0, (("x", 0.0, 1.0),))
    np.testing.assert_allclose(both.x, [KEPT * 0.1, 1 - KEPT * 0.5, 1 - KEPT * 0.1], rtol=1e-6)
    below = ahead(p, before, 1.0, (("x", 0.0, math.inf),))
    np.testing.assert_allclose(below.x, [KEPT * 0.1, 0.6, 1.7], rtol=1e-6)
    assert (ahead(p, before, 0.0, (("x", 0.0, 1.0),)).x == p.x).all()


def fit(engine):
    data = bf.datasets.make_ratings(60, 40, 2, density=0.4, seed=0)
    return bf.fit("bpmf", data, engine, n_components=2, alpha=2.0, progress=False)


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
def test_a_fit_with_momentum_is_ahead_of_plain_sweeps_and_ends_at_their_optimum():
    fast, plain = (fit(bf.FixedPoint(20, tol=0, accelerate=a)) for a in (True, False))
    ends = [fit(bf.FixedPoint(tol=1e-12, accelerate=a)) for a in (True, False)]
    assert (np.diff(fast.trace) <= 1e-10 * np.abs(fast.trace[1:])).all()
    assert fast.trace[-1] - ends[0].trace[-1] < 0.5 * (plain.trace[-1] - ends[0].trace[-1])
    assert ends[0].converged and ends[0].trace[-1] == pytest.approx(ends[1].trace[-1], rel=1e-8)
    assert len(ends[0].trace) < len(ends[1].trace)


def test_only_a_sweep_without_momentum_is_compared_with_tol():
    """Momentum may turn where it is far from the end, and the objective hardly falls there."""
    found, method = fit(bf.FixedPoint(tol=1e-7)), REGISTRY["bpmf"]
    data = method.ready(bf.datasets.make_ratings(60, 40, 2, density=0.4, seed=0), found.hyper)
    more = method.solver.update(found.params, data, found.hyper)
    fall = found.trace[-1] - float(method.objective(more, data, found.hyper))
    assert found.converged and 0 <= fall <= 1e-7 * (1 + abs(found.trace[-1]))
