"""`FixedPoint` on the example of the skeleton: failures that it names, restarts, seldom looks."""

from dataclasses import replace
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bayesfac as bf
from bayesfac.core.errors import ConvergenceWarning, NumericalError
from bayesfac.inference.result import Job, Result
from tests.tools.records import changed


def fit(method, data, hyper, engine, **settings):
    return bf.fit(method, data, engine, progress=False, **hyper._asdict(), **settings)


def spoil(method, at=3):
    """An update that is right until something is NaN."""

    def update(p, data, h):
        new = method.solver.update(p, data, h)
        small = jnp.sum((new.b - p.b) ** 2) < 10.0**-at
        return new._replace(c=jnp.where(small, jnp.nan, new.c))

    return changed(method, update=update)


def test_nan_stops_a_fit_and_names_the_site_and_the_sweep(skeleton):
    data, hyper = skeleton.example(jax.random.key(0))
    with pytest.raises(NumericalError, match="got NaN or infinity in c after sweep [1-9]"):
        fit(spoil(skeleton), data, hyper, bf.FixedPoint(tol=0, accelerate=False))
    nan = lambda p, data, h: dist.Normal(p.c * jnp.nan, 1.0).to_event(1)  # noqa: E731
    broken = changed(skeleton, conditionals={**skeleton.gibbs.conditionals, "c": nan})
    with pytest.raises(NumericalError, match="in c in chain 0, sweep 1"):
        fit(broken, data, hyper, bf.Gibbs(0, 3, 1))
    flat = replace(skeleton, objective=lambda p, data, h: jnp.log(-jnp.sum(p.b**2)))
    for engine in (bf.FixedPoint(), bf.LBFGS()):
        with pytest.raises(
            NumericalError, match="Expected a finite objective, got nan at the start"
        ):
            fit(flat, data, hyper, engine)


def test_a_rising_objective_is_told(skeleton):
    """An update that throws the parameters away every time."""
    data, hyper = skeleton.example(jax.random.key(0))
    wild = changed(skeleton, update=lambda p, data, h: skeleton.Params(-2 * p.b, -2 * p.c))
    with pytest.warns(ConvergenceWarning, match="the objective rose in 20 of 20 sweeps"):
        found = fit(wild, data, hyper, bf.FixedPoint(20, accelerate=False))
    assert found.result.notes == found.info["notes"]


def test_the_best_of_the_restarts_is_kept(skeleton):
    data, hyper = skeleton.example(jax.random.key(0))
    with pytest.warns(ConvergenceWarning, match="best of 4 restarts, which ended at"):
        several = fit(skeleton, data, hyper, bf.FixedPoint(1, tol=0, restarts=4))
    ends = [float(x) for x in several.result.notes[0].split("ended at ")[1].split(", ")]
    assert len(set(ends)) == 4
    assert several.trace[-1] == pytest.approx(min(ends), rel=1e-5)


def test_the_restart_with_the_lowest_end_is_kept_and_only_the_first_has_the_init(
    skeleton, monkeypatch
):
    data, hyper = skeleton.example(jax.random.key(0))
    traces, starts = iter([[9.0, 5.0], [3.0, 4.0], [1.0, 6.0]]), []

    def descend(self, job, p, point, place=None, bounds=()):
        starts.append(np.asarray(p.b))
        return Result(p, None, np.array(next(traces)), True)

    monkeypatch.setattr(bf.FixedPoint, "descend", descend)
    b = np.full(data.n_users, 7.0)
    job = Job(skeleton, data, hyper, jax.random.key(0), {"b": b})
    found = bf.FixedPoint(restarts=3).run(job)
    assert found.trace.tolist() == [3.0, 4.0]
    assert found.notes == ["best of 3 restarts, which ended at 5, 4, 6"]
    assert (starts[0] == b).all()
    assert not any((one == other).any() for one, other in combinations(starts, 2))


def test_looking_at_the_objective_less_often_changes_nothing_else(skeleton):
    data, hyper = skeleton.example(jax.random.key(0))
    with pytest.warns(ConvergenceWarning):
        often, seldom = (
            fit(skeleton, data, hyper, bf.FixedPoint(7, tol=0, every=k, accelerate=False))
            for k in (1, 3)
        )
    assert (len(often.trace), len(seldom.trace)) == (8, 4)
    np.testing.assert_allclose(often.params.b, seldom.params.b, rtol=1e-12)
    np.testing.assert_allclose(seldom.trace, often.trace[[0, 3, 6, 7]], rtol=1e-12)
