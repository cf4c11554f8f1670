"""Which sweeps a Gibbs run makes and keeps, and the random numbers of its blocks and moves."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY, sites
from bayesfac.fits import new_rows
from bayesfac.inference import widths
from bayesfac.inference.gibbs import continued
from bayesfac.inference.result import Job
from tests.tools.records import changed

DATA = bf.Ratings([0, 1], [0, 1], [1.0, 2.0])


def counting():
    """A method whose U counts sweeps; V, one bias, and by a move the other bias, are new normal numbers."""
    pmf = REGISTRY["pmf"]
    normal = {
        "V": lambda p, data, h: dist.Normal(jnp.zeros_like(p.V), 1.0).to_event(2),
        "bias_user": lambda p, data, h: dist.Normal(jnp.zeros_like(p.bias_user), 1.0).to_event(1),
    }

    def move(key, p, data, h):
        return p._replace(bias_item=jax.random.normal(key, (6,)))

    def init(key, data, h):
        zeros = {"U": (2, 2), "V": (2, 3), "bias_user": (6,), "bias_item": (6,)}
        empty = dict.fromkeys(pmf.Params._fields)
        return pmf.Params(**empty | {site: jnp.zeros(shape) for site, shape in zeros.items()})

    return changed(
        pmf,
        init=init,
        conditionals={**normal, "U": lambda p, data, h: dist.Delta(p.U + 1, event_dim=2)},
        moves={"new": move},
        objective=lambda p, data, h: -jnp.sum(p.U) - jnp.sum(p.V),
    )


NEW = "V", "bias_user", "bias_item"


@pytest.fixture(scope="module")
def run():
    job = Job(counting(), DATA, None, jax.random.key(0))
    return job, bf.Gibbs(3, 4, 2, thin=5).run(job)


def test_every_so_manieth_sweep_after_the_warm_up_is_kept(run):
    _, found = run
    sweeps = 3 + 5 * np.arange(1, 5)
    np.testing.assert_array_equal(found.draws["U"], np.tile(sweeps[:, None, None], (2, 1, 2, 2)))
    lp = 4 * sweeps + np.asarray(found.draws["V"]).sum((2, 3))
    np.testing.assert_allclose(found.stats["lp"], lp, rtol=1e-6)
    done, p = found.last
    assert done == 23 and (np.asarray(p.U) == 23).all()


def test_no_random_number_is_used_twice(run):
    """Chains, sweeps, blocks and moves: the sites have as many numbers, so that equal keys would show."""
    job, found = run
    numbers = np.concatenate([np.ravel(found.draws[site]) for site in NEW])
    assert len(np.unique(numbers)) == len(numbers) == 2 * 4 * 3 * 6
    starts = jax.tree.map(lambda x: jnp.stack([x] * 2), job.method.init(job.key, DATA, None))
    more = continued(job, starts, jax.random.split(job.key, 2), 2, 3, 0)
    assert more["U"][:, :, 0, 0].tolist() == [[3, 4, 5]] * 2
    numbers = np.concatenate([np.ravel(more[site]) for site in NEW])
    assert len(np.unique(numbers)) == len(numbers) == 2 * 3 * 3 * 6


def test_a_longer_run_goes_on_where_the_shorter_one_ended(run):
    job, found = run
    longer = bf.Gibbs(3, 6, 2, thin=5).run(job)
    whole = bf.Gibbs(13, 4, 2, thin=5).run(job, found.last)
    for site in ("U", *NEW):
        np.testing.assert_array_equal(longer.draws[site][:, :4], found.draws[site])
        np.testing.assert_array_equal(longer.draws[site][:, 4:], whole.draws[site][:, 2:])


def test_the_check_of_widths_is_a_ratio_of_sds_with_its_jackknife_error(monkeypatch):
    """Of draws before and after sweeps of eight chains, by hand; the second cell does not vary before."""
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(40, 3)) * [1, 0, 2], rng.normal(size=(8, 5, 3)) * [1.5, 1, 2]
    new = {"U": after}
    monkeypatch.setattr(widths, "continued", lambda job, p, *rest: new)
    expected = lambda job, draws, probe: after.reshape(40, 3) if draws is new else before  # noqa: E731
    monkeypatch.setattr(widths, "_expected", expected)
    job = Job(REGISTRY["pmf"], None, None, jax.random.key(0))
    told = widths.against_conditionals(job, {"U": np.zeros((1, 40, 1))}, None)
    old = before.var(0)[[0, 2]]

    def ratio(chains):
        new = after[chains].reshape(-1, 3).var(0)[[0, 2]]
        return np.mean(new / old) ** -0.5

    without = [ratio(np.arange(8) != c) for c in range(8)]
    assert told["ratio"] == pytest.approx(ratio(np.arange(8)))
    spread = np.sum((np.array(without) - np.mean(without)) ** 2)
    assert told["error"] == pytest.approx(np.sqrt(7 / 8 * spread))


def test_new_rows_make_their_sweeps_with_numbers_of_their_own(monkeypatch):
    """Rows begin at the mean of training, then at those of the draw before; blocks of draws are one chain."""
    job = Job(counting(), DATA, None, jax.random.key(0))
    p = sites(job.method.init(job.key, DATA, None))
    held = {site: np.zeros((2, 5, *np.shape(x))) for site, x in p.items()}
    held["U"] = np.zeros((2, 5, 4, 2))
    held["U"][0, 0, 1] = 4  # one of four rows: the mean of chain 0 is 1
    held["U"][1, :, :, 0] = 2
    found = new_rows.drawn(job.method, None, DATA, held, "user", jax.random.key(1))
    sweeps = new_rows.FIRST + new_rows.SWEEPS * np.arange(1, 6)
    assert found["U"].shape == (2, 5, 2, 2) and set(found) == {"U", "bias_user"}
    starts = np.array([[1, 1], [2, 0]])[:, None, None]
    np.testing.assert_array_equal(
        found["U"], np.broadcast_to(starts + sweeps[:, None, None], (2, 5, 2, 2))
    )
    assert len(np.unique(found["bias_user"])) == found["bias_user"].size
    monkeypatch.setattr(new_rows, "BUFFER", 1)  # one draw at a time
    alone = new_rows.drawn(job.method, None, DATA, held, "user", jax.random.key(1))
    for site in found:
        np.testing.assert_array_equal(alone[site], found[site])
