"""Compiled programs: where they are kept, and that they are forgotten before no memory maps are left."""

import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core import programs

LIMIT = Path("/proc/sys/vm/max_map_count")


@pytest.mark.skipif(not LIMIT.exists(), reason="this system has no limit of memory maps")
def test_a_fit_forgets_programs_where_they_fill_the_maps(monkeypatch):
    forgotten = []
    monkeypatch.setattr("jax.clear_caches", lambda: forgotten.append(1))
    data = bf.datasets.make_ratings(12, 10, 2, seed=0)
    settings = {"n_components": 2, "progress": False}
    first = bf.fit("pmf", data, bf.Gibbs(5, 5, 1), **settings)
    assert not forgotten
    monkeypatch.setattr(programs, "ROOM", 0.0)
    again = bf.fit("pmf", data, bf.Gibbs(5, 5, 1), **settings)
    assert forgotten == [1]
    np.testing.assert_array_equal(first.draws["U"], again.draws["U"])


def test_nothing_is_kept_where_the_folder_cannot_be_written(tmp_path, monkeypatch):
    """Numba would end the fit: in a container without a home, for example."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("BAYESFAC_CACHE", str(tmp_path / "deep" / "cache"))
    assert programs.folder() == tmp_path / "deep" / "cache"
    (tmp_path / "file").touch()
    monkeypatch.setenv("BAYESFAC_CACHE", str(tmp_path / "file" / "cache"))
    assert programs.folder() is None
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # Numba has a place of its own
    assert programs.folder() == tmp_path / "file" / "cache"

    def lost():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("BAYESFAC_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lost)
    assert programs.folder() is None


def test_kernels_of_each_version_of_the_code_are_kept_apart(tmp_path, monkeypatch):
    """Numba looks at the file of a function only, and not at those of the functions inside it."""
    import numba

    monkeypatch.setenv("BAYESFAC_CACHE", str(tmp_path))
    for own in ("", str(tmp_path / "own")):
        monkeypatch.setattr(numba.config, "CACHE_DIR", own)
        places = []
        for version in ("a", "b"):
            with programs.numba_folder(version):
                places.append(Path(numba.config.CACHE_DIR))
        assert numba.config.CACHE_DIR == own
        assert places == [Path(own or tmp_path / "numba") / version for version in ("a", "b")]
    monkeypatch.setenv("BAYESFAC_CACHE", "off")
    with programs.numba_folder("a"):
        assert numba.config.CACHE_DIR == own


@pytest.mark.parametrize("exact", [True, False])
def test_calls_side_by_side_have_their_own_threads_and_the_precision_of_the_caller(exact):
    threads = []

    def program(x):  # in the place of a compiled one: it says who calls it
        threads.append(threading.current_thread())
        return jnp.asarray(1.0) * x

    with jax.enable_x64(exact):
        found = programs.side_by_side(program, [(1,), (2,), (3,)])
    assert [float(x) for x in found] == [1, 2, 3]
    assert {x.dtype for x in found} == {np.dtype(np.float64 if exact else np.float32)}
    assert threads[0] is threading.current_thread()
    assert not set(threads[1:]) & {threads[0]}
    assert len(programs.side_by_side(program, [(1,)])) == 1


def test_an_error_in_a_thread_is_raised():
    def program(x):
        if x > 1:
            raise ValueError("too large")
        return x

    with pytest.raises(ValueError, match="too large"):
        programs.side_by_side(program, [(1,), (2,)])
