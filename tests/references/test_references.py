"""Reference posteriors: samplers of ours and of strangers agree with them, and a planted mistake does not."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import numpyro
import pytest

import bayesfac as bf
from bayesfac.core.errors import CorruptFile, UnknownName
from bayesfac.references import stored
from bayesfac.references.checking import bonferroni
from tests.tools.records import changed

ROOT = Path(__file__).resolve().parents[2]
NAME = "pmf-rank-1"


@pytest.fixture(scope="module")
def gibbs():
    r = bf.references.load(NAME)
    return bf.fit(r.method, r.data, bf.Gibbs(200, 1000, 4), **r.hyper, progress=False)


def test_every_file_was_drawn_to_the_stated_precision():
    for name in bf.references.names():
        r = bf.references.load(name)
        assert r.name == name and len(r.samplers) == 2
        assert r.summaries["r_hat"].max() <= 1.001 and r.z <= r.level, name
        assert np.isfinite(r.summaries.to_numpy()).all() and (r.summaries["sd"] > 0).all(), name
        rows = len(r.data.users) if hasattr(r.data, "users") else len(r.data.rows)
        predicted = [q for q in r.summaries.index if q.startswith("prediction")]
        assert 24 <= len(predicted) <= 150 and len(predicted) % rows == 0, name
        assert r.record.Hyper(**r.hyper) == r.settings()


def test_all_kinds_of_methods_have_a_reference():
    kinds = {bf.references.load(name).record.module.split(".")[-2] for name in stored.names()}
    assert kinds == {"ratings", "counts", "topics", "labels", "tasks"}


def test_gibbs_agrees(gibbs):
    found = bf.references.check(NAME, gibbs)
    assert found.ok and found.z < found.level == bonferroni(2 * len(found.table))
    assert "the draws agree" in repr(found) and found.draws == (4, 1000)


def test_a_stranger_draws_by_plain_numpyro():
    r = bf.references.load(NAME)
    kernel = numpyro.infer.NUTS(r.model)
    run = numpyro.infer.MCMC(
        kernel, num_warmup=300, num_samples=500, num_chains=4, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    run.run(jax.random.key(0))
    assert bf.references.check(NAME, run.get_samples(group_by_chain=True)).ok


def test_a_conditional_that_is_of_too_much_noise_fails():
    r = bf.references.load(NAME)
    law = r.record.gibbs.conditionals["U"]

    def wide(params, data, hyper):
        return law(params, data, hyper._replace(noise=1.1 * hyper.noise))

    wrong = changed(r.record, conditionals={**r.record.gibbs.conditionals, "U": wide})
    fit = bf.fit(wrong, r.data, bf.Gibbs(200, 1000, 4), **r.hyper, progress=False)
    found = bf.references.check(NAME, fit)
    assert found.ok is False and "differ" in found.verdict


def test_few_draws_cannot_tell(gibbs):
    few = {site: draws[:, :10] for site, draws in gibbs.draws.items()}
    found = bf.references.check(NAME, few)
    assert found.ok is None and "draw more" in found.verdict
    still = {site: np.broadcast_to(x[:, :1], x.shape) for site, x in gibbs.draws.items()}
    assert bf.references.check(NAME, still).ok is False


def test_rotations_and_labels_do_not_matter(gibbs):
    draws = {site: np.array(x) for site, x in gibbs.draws.items()}
    turned = {
        site: x * np.where(np.arange(1000) % 2, -1, 1)[:, None, None] for site, x in draws.items()
    }
    one, other = (bf.references.check(NAME, d).table for d in (draws, turned))
    np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-6)


def test_wrong_draws_are_refused(gibbs):
    draws = {site: np.array(x) for site, x in gibbs.draws.items()}
    with pytest.raises(ValueError, match="none of 'V'"):
        bf.references.check(NAME, {"U": draws["U"]})
    with pytest.raises(ValueError, match=r"Expected U of shape \(chains, draws, 10, 1\)"):
        bf.references.check(NAME, draws | {"U": draws["U"][:, :, 1:]})
    draws["V"][1, 2, 0, 0] = np.nan
    with pytest.raises(ValueError, match="in V, chain 1, draw 2"):
        bf.references.check(NAME, draws)
    r = bf.references.load(NAME)
    point = bf.fit(r.method, r.data, progress=False, **r.hyper)
    with pytest.raises(ValueError, match="got a point fit"):
        bf.references.check(NAME, point)
    with pytest.raises(ValueError, match="Expected noise=0.5"):
        other = gibbs.hyper._replace(noise=0.6)
        bf.references.check(NAME, replace(gibbs, hyper=other))
    with pytest.raises(UnknownName, match="did you mean 'pmf-rank-[12]'"):
        bf.references.load("pmf-rank-3")


def test_the_page_has_the_table_of_the_files(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("references")
    page = (ROOT / "docs" / "references.md").read_text("utf-8").splitlines()
    rows = [line for line in page if line.startswith("| ")]
    assert rows == script.lines(bf.references.table()), "python benchmarks/references.py --page"


def test_a_changed_digit_is_refused(tmp_path):
    path = stored.write(bf.references.load(NAME), tmp_path)
    again = stored.read(path)
    assert again.summaries.equals(bf.references.load(NAME).summaries)
    head = json.loads(path.read_text("utf-8"))
    head["summaries"]["mean"][0] += 1e-6
    path.write_text(json.dumps(head), "utf-8")
    with pytest.raises(CorruptFile, match="as it was written"):
        stored.read(path)
