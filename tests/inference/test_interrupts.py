"""Cut off anywhere: by a signal that gives no warning, or by the user's Ctrl-C."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

import bayesfac as bf
from bayesfac import inference
from bayesfac.core.errors import ConvergenceWarning
from bayesfac.inference import fixed_point, result
from bayesfac.inference.checkpoint import Checkpoint
from bayesfac.inference.driver import Run

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")


def engines(folder=None):
    return {
        "FixedPoint": bf.FixedPoint(12, tol=0, restarts=2, folder=folder),
        "Gibbs": bf.Gibbs(3, 8, 2, folder=folder),
        "NUTS": bf.NUTS(50, 75, 2, max_tree_depth=3, folder=folder),
        "SVI": bf.SVI(800, draws=10, patience=False, folder=folder),
    }


@pytest.fixture(autouse=True)
def long_ago(monkeypatch):
    """No test interrupts soon after another one."""
    monkeypatch.setattr(inference, "_interrupted", [-np.inf])


class Killed(BaseException):
    """No `except Exception` may stop it."""


def run(engine, method="pmf"):
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    return bf.fit(method, data, engine, n_components=2, progress=False)


def numbers(fit):
    if fit.is_point:
        return {"trace": fit.trace, "U": fit.params.U, "V": fit.params.V}
    return {"lp": fit.stats["lp"], **{site: np.asarray(fit.draws[site]) for site in fit.draws}}


@contextmanager
def cut(error, after, saves=()):
    """Checkpoints are due at the looks in `saves`; look number `after` ends it all. A look is one sweep, of
    all chains or of the solver."""
    looks = iter(range(1, 10_000))

    def due(self):
        look = next(looks)
        if look == after:
            raise error
        return self.path is not None and look in saves

    with patch.object(Checkpoint, "due", due), patch.object(Run, "pace", lambda run: 1):
        yield


@pytest.mark.parametrize("name", engines())
def test_work_past_the_last_checkpoint_is_done_again(tmp_path, name):
    """Killed some looks after it was saved: what came between is on the disk, or lost, or half."""
    whole = numbers(run(engines()[name]))
    engine = engines(str(tmp_path / "run"))[name]
    after, saves = {
        "NUTS": (4, (3,)),
        "SVI": (6, (2, 4)),
        "FixedPoint": (7, (2, 6)),
        "Gibbs": (9, (4, 7)),
    }[name]
    with cut(Killed(), after, saves), pytest.raises(Killed):
        run(engine)
    found = numbers(run(engine))
    for key, value in whole.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


INTERRUPTED = [
    *[(name, engine) for name, engine in engines().items()],
    ("MAP", bf.MAP(800, patience=False)),
]


@pytest.mark.parametrize(("name", "engine"), INTERRUPTED, ids=[name for name, _ in INTERRUPTED])
def test_ctrl_c_gives_what_there_is_and_says_so(name, engine):
    after = {"NUTS": 4}.get(name, 6)
    with cut(KeyboardInterrupt(), after):
        fit = run(engine)
    assert fit.partial, "a fit that was cut short says so"
    assert any("interrupted" in note for note in fit.result.notes)
    assert "interrupted" in repr(fit)
    assert np.isfinite(fit.predict({"user": [0], "item": [0]}).mean).all()
    if not fit.is_point and name != "SVI":
        chains, draws = fit.draws["U"].shape[:2]
        assert fit.stats["lp"].shape == (chains, draws)
        assert np.isfinite(fit.stats["lp"]).all()


@pytest.mark.parametrize("engine", [bf.FixedPoint(12, tol=0), bf.Gibbs(3, 8, 2)])
def test_ctrl_c_is_warned_of_and_a_second_one_soon_after_ends_the_loop(engine):
    said = "the fit of pmf is partial: interrupted.* Ctrl-C again within 5 seconds ends the loop"
    for _ in range(2):
        inference._interrupted[0] -= 6  # seconds
        with cut(KeyboardInterrupt(), 6), pytest.warns(ConvergenceWarning, match=said):
            assert run(engine).partial
    with cut(KeyboardInterrupt(), 6), pytest.raises(KeyboardInterrupt, match="twice within 5 s"):
        run(engine)


def test_ctrl_c_while_the_program_runs_leaves_whole_calls(tmp_path):
    """It is heard when the answer is there, and before the answer is read."""
    engine = bf.FixedPoint(12, tol=0, folder=str(tmp_path), save_every=0)
    calls = iter(range(9))

    class Unread:
        def __array__(self, *_, **__):
            raise KeyboardInterrupt

    def program(function, *given):
        whole = result.program(function, *given)

        def interrupted(*arguments):
            p, momentum, values, *more = whole(*arguments)
            return p, momentum, Unread() if next(calls) == 2 else values, *more

        return interrupted if function is fixed_point._block else whole

    with patch.object(fixed_point, "program", program):
        fit = run(engine)
    shorter = run(bf.FixedPoint(len(fit.trace) - 1, tol=0))
    assert fit.partial
    np.testing.assert_array_equal(fit.params.U, shorter.params.U)
    found, whole = run(engine), run(bf.FixedPoint(12, tol=0))
    np.testing.assert_array_equal(found.trace, whole.trace)


def test_ctrl_c_stops_lbfgs_where_it_is():
    looks = iter(range(100))

    def check(value, what, where):
        if next(looks) == 3:
            raise KeyboardInterrupt
        return result.check_number(value, what, where)

    with patch("bayesfac.inference.gradient.check_number", check):
        fit = run(bf.LBFGS())
    assert fit.partial
    assert len(fit.trace) == 4


def test_ctrl_c_keeps_the_draws_that_all_chains_have():
    with cut(KeyboardInterrupt(), 9):
        fit = run(bf.Gibbs(3, 8, 2))
    whole = run(bf.Gibbs(3, 8, 2))
    np.testing.assert_array_equal(fit.draws["U"], whole.draws["U"][:, :6])


@pytest.mark.parametrize(("engine", "after"), [(bf.Gibbs(5, 5, 2), 3), (bf.NUTS(75, 25, 1), 2)])
def test_ctrl_c_in_the_warm_up_has_nothing_to_give(engine, after):
    with cut(KeyboardInterrupt(), after), pytest.raises(KeyboardInterrupt, match="warm-up"):
        run(engine)
    assert run(bf.FixedPoint(3, tol=0.5)).is_point, "the next fit is not refused"


@pytest.mark.parametrize("name", ["FixedPoint", "Gibbs", "SVI"])
def test_what_ctrl_c_left_can_be_finished(tmp_path, name):
    whole = numbers(run(engines()[name]))
    engine = engines(str(tmp_path))[name]
    with cut(KeyboardInterrupt(), 6, (4,)):
        assert run(engine).partial
    found = run(engine)
    assert not found.partial
    for key, value in numbers(found).items():
        np.testing.assert_array_equal(value, whole[key], err_msg=key)


@pytest.mark.parametrize("engine", [bf.SVI(300), bf.MAP(300)], ids=["SVI", "MAP"])
def test_ctrl_c_before_the_first_step_is_ctrl_c(engine):
    """Compilation takes seconds: that is where it is pressed."""
    with patch("bayesfac.inference.variational.svi.check_number", side_effect=KeyboardInterrupt):
        fit = run(engine)
    assert len(fit.trace) == 100
    with patch("jax.lax.scan", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(engine)


def test_ctrl_c_leaves_the_last_checkpoint(tmp_path):
    """The state may be half that of the next one."""
    with cut(KeyboardInterrupt(), 6, (4,)):
        run(bf.LBFGS(30, tol=0, folder=str(tmp_path)))
    with np.load(tmp_path / "checkpoint.npz") as kept:
        assert kept["spent"] == 4


def test_two_runs_never_share_a_folder(tmp_path):
    """Other data, hyper-parameters, settings or seed: each is another run."""
    run(bf.Gibbs(2, 2, 1, folder=str(tmp_path)))
    for other in (bf.Gibbs(2, 3, 1, folder=str(tmp_path)), bf.Gibbs(3, 2, 1, folder=str(tmp_path))):
        with pytest.raises(ValueError, match="name an empty folder"):
            run(other)
    with pytest.raises(ValueError, match="name an empty folder"):
        run(bf.Gibbs(2, 2, 1, folder=str(tmp_path)), "bpmf")
    moved = bf.Gibbs(2, 2, 1, folder=str(tmp_path.rename(tmp_path.with_name("moved"))))
    assert run(moved).draws["U"].shape[:2] == (1, 2), "the place itself does not matter"
