"""`bayesfac warm`: which programs it compiles, and that later fits need no others."""

import numpy as np

import bayesfac as bf
from bayesfac.cli import doctor, warm
from bayesfac.core.kernels import bridge, sparse
from tests.cli.test_cli import refused, run


def test_every_kernel_is_compiled_in_the_precision_of_this_process(capsys, monkeypatch):
    assert sparse.backend() == "numba"
    made = []
    monkeypatch.setattr(bridge, "registered", lambda kernel, T: made.append((kernel.__name__, T)))
    monkeypatch.setattr(doctor, "caches", lambda: ["here"])
    code, out, _ = run(capsys, "warm")
    assert code == 0 and made == [(name, np.float64) for name in bridge.KERNELS]
    lines = out.splitlines()
    assert lines[0].startswith(f"1 of {len(made)}: kernel dots, ") and lines[-1] == "here"
    with sparse.use("jax"):
        assert run(capsys, "warm") == (0, "here\n", "")


def test_with_data_every_engine_of_the_methods_makes_a_short_run(capsys, monkeypatch):
    fitted = []
    monkeypatch.setattr(bridge, "kernels", dict)
    monkeypatch.setattr(doctor, "caches", lambda: ["here"])
    monkeypatch.setattr(
        bf, "fit", lambda method, *rest, progress: fitted.append((method.name, *rest))
    )
    code, out, _ = run(capsys, "warm", "ratings", "--methods", "pmf,mmmf")
    assert code == 0 and "1 of 3: pmf by FixedPoint, 0.0 s" in out
    engines = [(name, engine) for name, data, engine in fitted if len(data) == 9000]
    assert engines == [
        ("pmf", bf.FixedPoint(max_iter=2)),
        ("pmf", bf.Gibbs(warmup=2, draws=2)),
        ("mmmf", bf.LBFGS(max_iter=2)),
    ]


def test_a_short_run_has_the_programs_of_a_long_one(programs):
    ratings = bf.datasets.make_ratings(31, 17, 2, seed=0)
    warm.fitted("pmf", ratings, bf.Gibbs(warmup=2, draws=2))
    first = len(programs)
    fit = bf.fit("pmf", ratings, bf.Gibbs(warmup=20, draws=30), progress=False)
    assert first > 3 and len(programs) <= first + 1
    assert fit.result.draws["U"].shape[1] == 30


def test_mistakes(capsys, monkeypatch):
    assert "did you mean 'pmf'" in refused(capsys, "warm", "ratings", "--methods", "pmff")
    assert "Expected views, got the data set" in refused(
        capsys, "warm", "ratings", "--methods", "plsa"
    )
    monkeypatch.setenv("BAYESFAC_CACHE", "off")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert "got BAYESFAC_CACHE=off" in refused(capsys, "warm")
