"""A run that is cut off and started again gives the draws of one that was not."""

from dataclasses import replace
from functools import cache
from unittest.mock import patch

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core import provenance
from bayesfac.core.errors import CorruptFile
from bayesfac.core.method import REGISTRY, gauge_of, sites
from bayesfac.core.provenance import identity
from bayesfac.inference.checkpoint import Checkpoint
from bayesfac.inference.driver import Run
from bayesfac.inference.result import Job
from bayesfac.inference.unconstrained import scattered

ENGINES = {
    "fixed point": lambda folder: bf.FixedPoint(max_iter=60, tol=0, folder=folder),
    "Gibbs": lambda folder: bf.Gibbs(7, 20, 2, thin=2, folder=folder),
    "Quick": lambda folder: bf.Quick(sweeps=20, draws=5, pairs=1, folder=folder),
    "NUTS": lambda folder: bf.NUTS(30, 60, 2, max_tree_depth=4, folder=folder),
    "NUTS, thinned": lambda folder: bf.NUTS(30, 20, 2, max_tree_depth=4, thin=3, folder=folder),
    "VB": lambda folder: bf.VB(60, tol=0, draws=10, folder=folder),
    "SVI": lambda folder: bf.SVI(500, draws=10, patience=False, folder=folder),
    "MAP": lambda folder: bf.MAP(500, patience=False, folder=folder),
    "L-BFGS": lambda folder: bf.LBFGS(30, tol=0, folder=folder),
}


SLOW = [(3, "NUTS"), (1, "NUTS, thinned")]


class Killed(Exception):
    """Stands in for the signal: nothing between it and the caller may run."""


def run(engine):
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    return bf.fit("pmf", data, engine, n_components=2)


def numbers(fit):
    if fit.is_point:
        return {"trace": fit.trace, "U": np.asarray(fit.params.U)}
    return {**fit.stats, **{site: np.asarray(v) for site, v in fit.draws.items()}}


@cache
def uninterrupted(name):
    return numbers(run(ENGINES[name](None)))


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
@pytest.mark.parametrize(
    ("saves", "name"),
    [
        # NUTS compiles longest: killed in the warm-up once, and among thinned draws once
        pytest.param(saves, name, marks=pytest.mark.slow if (saves, name) in SLOW else ())
        for saves in (1, 3)
        for name in ENGINES
    ],
)
def test_killed_and_resumed_is_bitwise_uninterrupted(tmp_path, name, saves):
    whole = uninterrupted(name)
    folder, count = str(tmp_path / "run"), 0
    save = Checkpoint.save

    def save_then_die(self, arrays):
        nonlocal count
        save(self, arrays)
        count += 1
        if count == saves:
            raise Killed

    with (
        patch.object(Checkpoint, "due", lambda self: True),
        patch.object(Checkpoint, "save", save_then_die),
    ):
        with pytest.raises(Killed):
            run(ENGINES[name](folder))
    again = numbers(run(ENGINES[name](folder)))
    assert whole.keys() == again.keys()
    for key, value in whole.items():
        np.testing.assert_array_equal(again[key], value, err_msg=key)


def test_a_finished_run_is_read_back_without_sampling(tmp_path):
    engine = bf.Gibbs(5, 6, 2, folder=str(tmp_path))
    first = numbers(run(engine))

    def again(*arguments):
        raise AssertionError("sampled again")

    with patch("bayesfac.inference.gibbs._block", again):
        second = numbers(run(engine))
    for key, value in first.items():
        np.testing.assert_array_equal(second[key], value)


def test_a_guide_that_has_settled_takes_no_more_steps(tmp_path):
    engine = bf.SVI(800, draws=10, folder=str(tmp_path), save_every=0)
    with patch("bayesfac.inference.variational.svi.settled", lambda trace: len(trace) >= 300):
        first, second = run(engine), run(engine)
    assert len(first.trace) == 300
    np.testing.assert_array_equal(second.trace, first.trace)


@pytest.mark.parametrize("saves", [1, 2])
def test_independent_problems_continue_where_they_were(tmp_path, saves):
    """L-BFGS on independent problems side by side, each with its own history."""
    data = bf.datasets.make_ratings(12, 9, 2, seed=0)

    def fit(folder):
        engine = bf.LBFGS(300, folder=folder)
        return bf.fit("hmf", data, engine, n_components=2, progress=False)

    whole, count, save = fit(None), 0, Checkpoint.save

    def save_then_die(self, arrays):
        nonlocal count
        save(self, arrays)
        count += 1
        if count == saves * 5:
            raise Killed

    folder = str(tmp_path)
    with (
        pytest.raises(Killed),
        patch.object(Checkpoint, "due", lambda self: True),
        patch.object(Checkpoint, "save", save_then_die),
    ):
        fit(folder)
    again = fit(folder)
    np.testing.assert_array_equal(again.trace, whole.trace)
    np.testing.assert_array_equal(again.params.U, whole.params.U)
    assert again.converged == whole.converged


@pytest.mark.parametrize("engine", [bf.Gibbs, bf.NUTS])
def test_draws_go_to_disk_as_they_come(tmp_path, engine):
    """A checkpoint holds the state alone: its size does not grow with the draws."""
    settings = {"max_tree_depth": 3} if engine is bf.NUTS else {}
    in_memory = numbers(run(engine(10, 50, 2, **settings)))
    fit = run(engine(10, 50, 2, folder=str(tmp_path), save_every=0, **settings))
    assert isinstance(fit.draws["U"], np.memmap)
    for key, value in numbers(fit).items():
        np.testing.assert_array_equal(value, in_memory[key], err_msg=key)
    for place in tmp_path.rglob("checkpoint.npz"):
        with np.load(place) as kept:
            assert all(kept[name].shape[:2] != (2, 50) for name in ("U", "V") if name in kept)


def test_thinning_keeps_every_nth_transition():
    every = run(bf.NUTS(30, 45, 2, max_tree_depth=4))
    third = run(bf.NUTS(30, 15, 2, max_tree_depth=4, thin=3))
    np.testing.assert_array_equal(third.draws["U"], every.draws["U"][:, 2::3])
    for name in ("energy", "n_steps", "lp"):
        np.testing.assert_array_equal(third.stats[name], every.stats[name][:, 2::3])
    # what goes wrong in a transition that is thrown away is told too
    for name in ("diverging", "tree_depth"):
        worst = every.stats[name].reshape(2, 15, 3).max(-1)
        np.testing.assert_array_equal(third.stats[name], worst, err_msg=name)
    assert (third.stats["tree_depth"] != every.stats["tree_depth"][:, 2::3]).any()


@pytest.mark.parametrize(
    "engine",
    [
        bf.Gibbs(5, 6, 2),
        # both engines keep their draws in the same files
        pytest.param(bf.NUTS(30, 30, 1, max_tree_depth=3), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("harm", ["truncated", "another shape", "gone"])
def test_harmed_draws_of_a_killed_run_are_refused(tmp_path, engine, harm):
    engine = replace(engine, folder=str(tmp_path), save_every=0)
    run(engine)
    place = tmp_path / "draws" / "U.npy"
    if harm == "truncated":
        place.write_bytes(place.read_bytes()[:-100])
    elif harm == "gone":
        place.unlink()
    else:
        np.save(place, np.zeros((1, 3, 8, 2), np.float32))
    with pytest.raises(CorruptFile, match=r"Expected .*U"):
        run(engine)


def test_a_truncated_checkpoint_is_refused(tmp_path):
    run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))
    place = tmp_path / "checkpoint.npz"
    place.write_bytes(place.read_bytes()[: place.stat().st_size // 2])
    with pytest.raises(CorruptFile, match="Expected a bayesfac archive in"):
        run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))
    place.write_bytes(b"PK not ours")
    with pytest.raises(CorruptFile, match="Expected a bayesfac archive in"):
        run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))


@pytest.mark.parametrize("seconds", [-1, "often", True, float("nan")])
def test_seconds_between_checkpoints_are_a_number(seconds):
    with pytest.raises(ValueError, match=r"Expected Gibbs\(save_every=\.\.\.\) in seconds"):
        bf.Gibbs(save_every=seconds)


def test_the_folder_of_another_run_is_refused(tmp_path):
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    bf.fit("pmf", data, bf.Gibbs(2, 2, 1, folder=str(tmp_path)), n_components=2)
    with pytest.raises(ValueError, match="name an empty folder"):
        bf.fit("pmf", data, bf.Gibbs(2, 2, 1, folder=str(tmp_path)), n_components=2, seed=1)


def test_a_run_of_another_version_is_refused(tmp_path, monkeypatch):
    """After an upgrade an old run went on, partly by the old functions."""
    run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))
    newer = provenance.versions() | {"bayesfac": "99.0"}
    monkeypatch.setattr(provenance, "versions", lambda: newer)
    with pytest.raises(ValueError, match="version of bayesfac"):
        run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))


def test_a_users_own_method_is_another_run_when_its_functions_have_changed():
    """Its folder would give back the draws of the functions that it had before."""
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    known = REGISTRY["pmf"]
    hyper = known.prepare(data, known.Hyper(2))

    def run_of(change):
        own = replace(known, name="mine", objective=change)
        return identity(own, data, hyper, bf.Gibbs(folder="run"), 0, None)

    assert run_of(lambda p, data, hyper: 1.0) == run_of(lambda p, data, hyper: 1.0)
    assert run_of(lambda p, data, hyper: 1.0) != run_of(lambda p, data, hyper: 2.0)
    kept, loose = (identity(known, data, hyper, bf.Gibbs(folder=f), 0, None) for f in ("run", None))
    assert kept == loose


def test_a_damaged_checkpoint_is_no_checkpoint(tmp_path):
    run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))
    place = tmp_path / "checkpoint.npz"
    raw = bytearray(place.read_bytes())
    raw[len(raw) // 2] ^= 4
    place.write_bytes(bytes(raw))
    with pytest.raises(CorruptFile, match="checkpoint.npz"):
        run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))


@pytest.mark.filterwarnings("ignore:the fit of pmf is partial")
def test_ctrl_c_returns_what_there_is(tmp_path):
    """The sixth block is interrupted: two sweeps of warm-up and three draws stand."""
    from bayesfac.inference import gibbs

    calls, check = 0, gibbs._check

    def interrupt(*block):
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        check(*block)

    with patch.object(gibbs, "_check", interrupt), patch.object(Run, "pace", lambda run: 1):
        fit = run(bf.Gibbs(2, 10, 2))
    assert fit.partial
    assert fit.draws["U"].shape[:2] == (2, 3)
    assert "interrupted" in repr(fit)


def test_the_same_seed_is_the_same_fit_and_another_is_not():
    one, two = (numbers(run(bf.Gibbs(3, 4, 1))) for _ in range(2))
    np.testing.assert_array_equal(one["U"], two["U"])
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    other = bf.fit("pmf", data, bf.Gibbs(3, 4, 1), n_components=2, seed=1)
    assert not np.array_equal(other.draws["U"], one["U"])


def test_how_often_it_is_saved_is_not_another_run(tmp_path):
    first = numbers(run(bf.Gibbs(2, 3, 1, folder=str(tmp_path), save_every=0)))
    again = numbers(run(bf.Gibbs(2, 3, 1, folder=str(tmp_path), save_every=60)))
    np.testing.assert_array_equal(again["U"], first["U"])


def test_numbers_of_numpy_are_the_same_settings(tmp_path):
    """A seed of np.arange, a noise that NumPy computed: the finished run is read back."""
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    scales = {"noise": 0.5, "scale_user": 1.0, "scale_item": 1.0, "n_components": 2}
    engine = bf.Gibbs(2, 3, 1, folder=str(tmp_path))
    one = bf.fit("pmf", data, engine, seed=1, **scales)
    scales["noise"] = np.float64(0.5)
    again = bf.fit("pmf", data, engine, seed=np.int64(1), **scales)
    np.testing.assert_array_equal(again.draws["U"], one.draws["U"])
    with pytest.raises(ValueError, match="got another"):
        bf.fit("pmf", data, engine, seed=np.int64(2), **scales)


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path):
    """A site is every NPY file of the folder: half of one must not become another."""
    (tmp_path / "draws").mkdir()
    litter = [tmp_path / ".checkpoint.npz.ab.npz", tmp_path / "draws" / ".U.npy.ab.npy"]
    for part in litter:
        part.write_bytes(b"half")
    fit = run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))
    assert not any(part.exists() for part in litter)
    assert all(not site.startswith(".") for site in fit.draws)


def test_the_elbo_adds_its_sites_in_one_order():
    """In single precision 1e8 + 1 - 1e8 is 0, or 1, as one adds; sets of names come in any order."""
    from numpyro.infer import Trace_ELBO

    from bayesfac.inference.variational.svi import Ordered

    parts = {name: np.float32(x) for name, x in (("b", 1.0), ("c", -1e8), ("a", 1e8))}
    for names in ("bca", "acb", "abc"):
        told = {"loss": {name: parts[name] for name in names}, "mutable_state": None}
        with patch.object(Trace_ELBO, "loss_with_mutable_state", lambda self, told=told: told):
            found = Ordered(sum_sites=False).loss_with_mutable_state()
        assert found["loss"] == (parts["a"] + parts["b"]) + parts["c"]


@pytest.mark.parametrize("name", ["pmf", "bpmf", "hmf", "plsa", "heres"])
def test_chains_from_one_point_start_at_copies_of_it(name):
    """Other factors, the same joint; and a little way off where they are shaken."""
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)
    keys = jax.random.split(jax.random.key(2), 3)
    cost = [float(method.objective(p, data, hyper))]
    for key in keys:
        copy = scattered(method, data, hyper, p, key, jitter=0.0)
        cost.append(float(method.objective(copy, data, hyper)))
        shaken = scattered(method, data, hyper, p, key, jitter=0.1)
        assert abs(float(method.objective(shaken, data, hyper)) - cost[0]) > 1e-6
    np.testing.assert_allclose(cost[1:], cost[0], rtol=1e-9)
    copies = [scattered(method, data, hyper, p, key, jitter=0.0) for key in keys]
    free = gauge_of(method, sites(p))[0]
    site = next(iter(free.axes))
    assert len({np.asarray(sites(c)[site]).tobytes() for c in copies}) > 1


def test_nuts_without_jitter_starts_at_the_point():
    method = REGISTRY["pmf"]
    data, hyper = method.example(jax.random.key(0))
    point = method.init(jax.random.key(1), data, hyper)
    job = Job(method, data, hyper, jax.random.key(3), start=sites(point))
    np.testing.assert_array_equal(bf.NUTS(jitter=0.0)._start(job, job.key).U, point.U)
    assert not np.allclose(bf.NUTS()._start(job, job.key).U, point.U)
