"""A run that is cut off and started again gives the draws of one that was not."""

from unittest.mock import patch

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import CorruptFile
from bayesfac.inference.checkpoint import Checkpoint

ENGINES = {
    "fixed point": lambda folder: bf.FixedPoint(max_iter=60, tol=0, folder=folder),
    "Gibbs": lambda folder: bf.Gibbs(7, 20, 2, thin=2, folder=folder),
    "NUTS": lambda folder: bf.NUTS(30, 60, 2, max_tree_depth=4, folder=folder),
    "SVI": lambda folder: bf.SVI(500, draws=10, patience=False, folder=folder),
}


class Killed(Exception):
    """Stands in for the signal: nothing between it and the caller may run."""


def run(engine):
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    return bf.fit("pmf", data, engine, n_components=2)


def numbers(fit):
    if fit.is_point:
        return {"trace": fit.trace, "U": np.asarray(fit.params.U)}
    return {"lp": fit.stats["lp"], **{site: np.asarray(v) for site, v in fit.draws.items()}}


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("saves", [1, 3])
def test_killed_and_resumed_is_bitwise_uninterrupted(tmp_path, name, saves):
    whole = numbers(run(ENGINES[name](None)))
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
    with patch("bayesfac.inference.gibbs.check_sites", side_effect=AssertionError("sampled again")):
        second = numbers(run(engine))
    for key, value in first.items():
        np.testing.assert_array_equal(second[key], value)


def test_the_folder_of_another_run_is_refused(tmp_path):
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    bf.fit("pmf", data, bf.Gibbs(2, 2, 1, folder=str(tmp_path)), n_components=2)
    with pytest.raises(ValueError, match="name an empty folder"):
        bf.fit("pmf", data, bf.Gibbs(2, 2, 1, folder=str(tmp_path)), n_components=2, seed=1)


def test_a_damaged_checkpoint_is_no_checkpoint(tmp_path):
    run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))
    place = tmp_path / "checkpoint.npz"
    raw = bytearray(place.read_bytes())
    raw[len(raw) // 2] ^= 4
    place.write_bytes(bytes(raw))
    with pytest.raises(CorruptFile, match="checkpoint.npz"):
        run(bf.Gibbs(2, 3, 1, folder=str(tmp_path)))


def test_ctrl_c_returns_what_there_is(tmp_path):
    """The fourth look at the objective of chain one is interrupted: three draws stand."""
    from bayesfac.inference import gibbs

    calls, check = 0, gibbs.check_sites

    def interrupt(params, where):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        check(params, where)

    with patch.object(gibbs, "check_sites", interrupt):
        fit = run(bf.Gibbs(2, 10, 2))
    assert fit.partial
    assert fit.draws["U"].shape[:2] == (1, 3)
    assert "interrupted" in repr(fit)


def test_the_same_seed_is_the_same_fit_and_another_is_not():
    one, two = (numbers(run(bf.Gibbs(3, 4, 1))) for _ in range(2))
    np.testing.assert_array_equal(one["U"], two["U"])
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    other = bf.fit("pmf", data, bf.Gibbs(3, 4, 1), n_components=2, seed=1)
    assert not np.array_equal(other.draws["U"], one["U"])
