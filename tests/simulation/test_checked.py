"""`bf.check`: answers in words, and mistakes that it must see."""

from types import SimpleNamespace

import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.simulation import checked
from bayesfac.testing import CHECKS
from tests.tools.records import changed


@pytest.fixture
def few(monkeypatch):
    """Three checks, so that a test takes a second; the calibration is replaced by its answer."""
    monkeypatch.setattr(
        checked, "CHECKS", {n: CHECKS[n] for n in ("joint", "descent", "variational")}
    )

    def calibrated(method, key):
        """Simulated data give the parameters back."""

    monkeypatch.setattr(checked, "_calibrated", calibrated)


def test_answers_seconds_and_reasons(few):
    found = bf.check("mmmf", progress=False)
    assert found.ok and found.table.index.tolist() == [
        "joint",
        "descent",
        "variational",
        "calibrated",
    ]
    assert found.table["answer"].tolist() == ["kept", *2 * ["does not apply"], "kept"]
    assert (found.table["seconds"] >= 0).all() and found.table["requires"].str.len().min() > 20
    assert "mmmf: every check is kept (do not apply: 2)" in repr(found)
    assert "the method has no variational law" in repr(found)


def test_a_wrong_solver_and_a_function_that_ends_with_an_error(few):
    def risen(p, data, hyper):
        return p._replace(U=2 * p.U)

    found = bf.check(changed(REGISTRY["pmf"], update=risen), progress=False)
    assert not found.ok and found.table["answer"]["descent"] == "FAILS"
    assert "1 of 4 checks FAIL" in repr(found)

    def broken(p, data, hyper):
        raise ZeroDivisionError("by zero")

    found = bf.check(changed(REGISTRY["pmf"], objective=broken), progress=False)
    assert "ended with ZeroDivisionError: by zero" in found.table["why"]["joint"]


def test_some_checks_and_whole_sentences():
    found = bf.check("pmf", only=("sites", "joint"), progress=False)
    assert found.table.index.tolist() == ["sites", "joint"] and found.ok
    assert found.table["requires"]["sites"].endswith("as the container fills them")
    with pytest.raises(LookupError, match="did you mean 'joint'"):
        bf.check("pmf", only=["joynt"], progress=False)


def test_what_is_waived_is_not_run(few):
    found = bf.check("mmmf", waived={"joint": "a reason"}, progress=False)
    assert (
        found.table["why"]["joint"] == "a reason"
        and found.table["answer"]["joint"] == "does not apply"
    )
    with pytest.raises(LookupError, match="did you mean 'joint'"):
        bf.check("mmmf", waived={"joynt": ""}, progress=False)


def test_the_calibration_is_that_of_sbc(monkeypatch):
    monkeypatch.setattr(checked, "CHECKS", {})
    short = {"replications": 20, "draws": 9, "warmup": 5, "thin": 1}
    monkeypatch.setattr(checked, "SHORT", (short, short))
    assert bf.check("pmf", progress=False).table["answer"]["calibrated"] == "kept"
    pmf = REGISTRY["pmf"]

    def half(p, data, hyper):
        law = pmf.gibbs.conditionals["bias_user"](p, data, hyper).base_dist
        return type(law)(law.loc + 3, law.scale).to_event(1)

    wrong = changed(pmf, conditionals={**pmf.gibbs.conditionals, "bias_user": half})
    found = bf.check(wrong, progress=False)
    assert not found.ok and "miscalibrated" in found.table["why"]["calibrated"]


def test_a_sampler_that_fails_once_is_looked_at_again(monkeypatch):
    """One failure in a hundred is chance; the second look has other random numbers."""
    said = iter([False, True])
    seeds = []

    def found(method, engine, seed, **lengths):
        seeds.append((seed, lengths["thin"]))
        return SimpleNamespace(ok=next(said), reason="")

    monkeypatch.setattr(checked, "CHECKS", {})
    monkeypatch.setattr(checked, "sbc", found)
    assert bf.check("pmf", progress=False).ok
    (first, thin), (second, longer) = seeds
    assert first != second and longer == 2 * thin
