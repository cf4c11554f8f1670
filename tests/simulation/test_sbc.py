"""Simulation-based calibration: right samplers pass, planted bugs fail, and what has no joint says why."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate

import bayesfac as bf
from bayesfac.cli import main
from bayesfac.core.errors import UnknownName
from bayesfac.core.kernels import sparse
from bayesfac.core.method import REGISTRY, sites
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.models.ratings.ipmmmf import Membership
from bayesfac.report.diagnostics import uniformity
from bayesfac.report.plots.figure import Picture
from bayesfac.simulation import effective, joint, ranked
from bayesfac.simulation.quantities import identified, probes, singular_values
from bayesfac.simulation.results import Calibration, direction
from tests.tools.kinds import KINDS, quick_for
from tests.tools.planted import HYPER, planted
from tests.tools.records import changed

KEY = jax.random.key(0)
SHORT = {"replications": 120, "draws": 59, "warmup": 150, "thin": 6, "progress": False}
WITHOUT = {"pmmmf"}  # a law of the data, in their examples


@pytest.fixture(scope="module")
def pmf():
    return bf.sbc("pmf", "Gibbs", hyper=HYPER["pmf"], **SHORT)


# -- samplers ---------------------------------------------------------------------------------------
def test_a_right_sampler_passes(pmf):
    assert pmf.ok, pmf
    assert pmf.ranks.shape[0] == 120 and not pmf.broken and not pmf.reason
    assert {"log joint", "log likelihood", "singular value of U 1"} <= set(pmf.ranks)
    assert pmf.ranks.to_numpy().min() >= 0 and pmf.ranks.to_numpy().max() <= 59
    assert (pmf.ess > 30).all()


@pytest.mark.parametrize("bug", ["pmf: noise forgotten", "pmf: prior dropped"])
def test_a_planted_bug_fails(bug):
    right, wrong = planted()[bug]
    found = bf.sbc(wrong, "Gibbs", hyper=HYPER[right.name], **{**SHORT, "replications": 300})
    assert found.ok is False
    assert found.p < 1e-3, found


@pytest.mark.slow
def test_the_same_seed_gives_the_same_ranks(pmf):
    same = bf.sbc("pmf", "Gibbs", hyper=HYPER["pmf"], **SHORT)
    other = bf.sbc("pmf", "Gibbs", hyper=HYPER["pmf"], **SHORT, seed=1)
    assert same.ranks.equals(pmf.ranks)
    assert not other.ranks.equals(pmf.ranks)


@pytest.mark.slow
def test_nuts_agrees_with_its_model():
    found = bf.sbc("pmf", "NUTS", replications=60, draws=19, warmup=100, thin=2, progress=False)
    assert found.ok, found
    assert found.engine == "NUTS" and found.ranks.to_numpy().max() <= 19


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", HYPER)
def test_every_gibbs_sampler_is_calibrated(name):
    found = bf.sbc(name, "Gibbs", hyper=HYPER[name], progress=False)
    assert found.ok, found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", ["bpmf: ratings counted twice in alpha", "heres: half a precision"])
def test_more_planted_bugs_fail(bug):
    right, wrong = planted()[bug]
    assert bf.sbc(wrong, "Gibbs", hyper=HYPER[right.name], progress=False).ok is False


def test_a_sampler_that_breaks_down_is_no_good():
    pmf = REGISTRY["pmf"]

    def broken(p, data, hyper):
        law = pmf.gibbs.conditionals["bias_user"](p, data, hyper)
        return dist.Normal(law.base_dist.loc / (data.y[0] > 0), law.base_dist.scale).to_event(1)

    wrong = changed(pmf, conditionals={**pmf.gibbs.conditionals, "bias_user": broken})
    found = bf.sbc(wrong, "Gibbs", **{**SHORT, "replications": 20, "warmup": 1, "thin": 1})
    assert 0 < found.broken < 20
    assert found.ok is False
    assert any("NaN" in note for note in found.notes)


def test_correlated_draws_are_reported():
    """Little noise ties U to V, and sweeps draw them in turn."""
    short = {**SHORT, "replications": 20, "warmup": 20, "thin": 1}
    found = bf.sbc("pmf", "Gibbs", hyper={"noise": 0.1}, **short)
    (note,) = [n for n in found.notes if "independent draws" in n]
    assert found.ess.idxmin() in note and "thin=" in note


# -- the joint --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "hyper", "said"),
    [
        ("mmmf", {"scale_theta": math.inf}, "prior of theta is flat"),
        ("lsa_mml", {"alpha": None}, "'views' depends on the data"),
        ("himls", {"rate": 0.0, "shape": 1.0}, "is flat"),
        ("pmmmf", {}, "no law of ratings"),
    ],
)
def test_a_reason_is_data(name, hyper, said):
    found = bf.sbc(name, "NUTS", hyper=hyper, progress=False)
    assert said in found.reason
    assert found.ok is None and found.verdict == "not applicable" and math.isnan(found.p)
    assert found.reason in repr(found)
    assert json.loads(json.dumps(found.record()))["p"] is None
    with pytest.raises(ValueError, match="Expected ranks to plot"):
        found.plot()


@pytest.mark.parametrize("name", quick_for((*KINDS, *WITHOUT)))
def test_a_draw_of_the_joint_and_its_quantities(name):
    """Under a trace, as engines see them; of a table every cell is stored."""
    method = REGISTRY[name]
    with sparse.use("jax"):
        data, hyper = method.example(KEY)
        reason = joint.obstacle(method, data, hyper)
        assert bool(reason) == (name in WITHOUT), reason
        if reason:
            return
        cells = probes(data)

        @jax.jit
        def draw(key):
            first, second = jax.random.split(key)
            p = joint.prior_draw(method, data, hyper, first)
            new = joint.redrawn(method, data, hyper, p, second)
            found = identified(method, p, new, hyper, cells)
            return p, new, found, joint.log_weight(method, p, data, hyper)

        p, new, found, weight = draw(KEY)
    like = jax.eval_shape(lambda: method.init(KEY, data, hyper))
    assert {k: v.shape for k, v in sites(p).items()} == {k: v.shape for k, v in sites(like).items()}
    assert type(new) is type(data) and np.isfinite(weight)
    assert len(found) >= 5 and {"log joint", "log likelihood", *cells} <= set(found)
    assert all(np.ndim(value) == 0 and np.isfinite(value) for value in found.values())
    if isinstance(data, Tasks | bf.Ratings) and name != "faie":  # which has no unlabelled row
        assert [name.rpartition(" ")[2] for name in cells] == ["seen", "seen", "unseen"]
    if "views_given" in method.notes.traits:
        kept = [block for block in data.y if block != LABELS]
        assert all(np.array_equal(new.y[block], data.y[block]) for block in kept)


OF_RATINGS = quick_for(("pmf", "mmmf", "urp"))  # a real, a generalised and a discrete law
OF_RATINGS = [
    one for one in OF_RATINGS if REGISTRY[getattr(one, "values", (one,))[0]].data is bf.Ratings
]


@pytest.mark.parametrize("name", OF_RATINGS)
def test_what_a_law_of_ratings_sums_to(name):
    """The log mass of every cell is the sum over levels; of real ratings the density is a density."""
    method = REGISTRY[name]
    data, hyper = method.example(KEY)
    if name in WITHOUT:
        return
    p = joint.prior_draw(method, data, hyper, KEY)
    given = numpyro.handlers.substitute(method.model, data=sites(p))
    law = numpyro.handlers.trace(numpyro.handlers.seed(given, 0)).get_trace(data, hyper)
    law = law["rating"]["fn"]
    if data.levels is None:
        assert isinstance(law, dist.Normal)
        assert not joint.log_mass(law).any()
        return
    each = jnp.stack([law.log_prob(jnp.full(len(data), level)) for level in data.levels])
    assert np.allclose(joint.log_mass(law), jax.nn.logsumexp(each, 0), atol=1e-9)


@pytest.mark.slow
def test_what_other_generalised_laws_sum_to():
    pi = jnp.asarray([0.1, 0.7])
    law = dist.ExpandedDistribution(Membership(pi), (3, 2)).to_event(1)
    sums = [integrate.quad(lambda z, q=q: np.exp(Membership(q).log_prob(z)), 0, 1)[0] for q in pi]
    assert np.allclose(joint.log_mass(law), np.log(sums).sum(), atol=1e-4)
    assert joint.log_mass(law).shape == (3,)


@pytest.mark.slow
def test_what_the_law_of_a_tree_sums_to():
    """By brute force over all labels of all rows."""
    method = REGISTRY["mlc_hmf"]
    data, hyper = method.example(KEY)
    p, q = (joint.prior_draw(method, data, hyper, jax.random.key(i)) for i in range(2))
    labels = len(data.labels)
    free = labels * int(data.labelled.sum())
    assert free <= 14, "the example grew: too many tables to sum over"
    tables = np.indices((2,) * free).reshape(free, -1).T
    cells = data.cells[LABELS]
    every, y = joint.full_table(jnp.zeros((data.n_rows, labels)))
    at = np.flatnonzero(np.repeat(data.labelled, labels))

    def mass(p):
        def one(values):
            full = joint.with_values(
                data, {**data.y, LABELS: y.at[at].set(values)}, {**data.cells, LABELS: every}
            )
            return -method.objective(p, full, hyper)

        total = jax.nn.logsumexp(jax.lax.map(jax.jit(one), jnp.asarray(tables, float)))
        return total + hyper.penalty / 2 * sum(jnp.sum(v**2) for v in sites(p).values())

    told = [joint.log_weight(method, x, data, hyper) for x in (p, q)]
    assert cells.shape == (data.n_rows, labels)
    assert np.isclose(mass(p) - mass(q), told[0] - told[1], atol=1e-6)


def narrowed(strength):
    """Two rows with a normal prior of sd 2, and a factor that narrows it to precision 1/4 + 2 strength."""

    def model(data, hyper):
        with numpyro.plate("user", 2):
            u = numpyro.sample("U", dist.Normal(0, 2).expand((1,)).to_event(1))
        numpyro.factor("narrow", -strength * jnp.sum(u**2))
        with numpyro.plate("cell", data.cells.row.shape[0]):
            numpyro.sample("rating", dist.Normal(0, 1), obs=data.y)

    return dataclasses.replace(REGISTRY["pmf"], model=model)


def test_weighted_truths_follow_the_joint():
    method = narrowed(1.5)
    data, hyper = method.example(KEY)
    found = joint.truths(method, data, hyper, KEY, 400)
    assert found.pool == 400 * joint.POOL and found.effective > 5 * 400
    u = jax.vmap(lambda k: joint.prior_draw(method, data, hyper, k).U)(found.keys)
    # the standard error of a variance from 800 draws is 5 % of it
    assert np.isclose(np.var(u) * 3.25, 1, atol=0.2)
    assert len(found.keys) == 400


def test_weights_too_uneven_are_a_reason():
    """Of two coordinates a share of about 1 / (2 * 4e4) is as small as it must be."""
    method = narrowed(2e4)
    found = joint.truths(method, *method.example(KEY), KEY, 20)
    assert len(found.keys) == 0
    assert "too few to take 20 from" in found.reason


# -- quantities and ranks ---------------------------------------------------------------------------
def test_singular_values_are_those_of_the_product():
    u, v = np.random.default_rng(0).normal(size=(2, 3, 6, 2))
    exact = np.linalg.svd(u @ np.swapaxes(v, -1, -2), compute_uv=False)[:, :2]
    assert np.allclose(singular_values(jnp.asarray(u), jnp.asarray(v)), exact)


def test_ties_are_broken_evenly():
    rng = np.random.default_rng(0)
    ranks = ranked(np.zeros(4000), np.zeros((4000, 9)), rng)
    assert uniformity.chi_square(ranks, 9) > 0.001  # fails once in a thousand seeds: this is one


def test_effective_draws():
    rng = np.random.default_rng(0)
    white = rng.normal(size=(50, 100))
    assert 80 < effective(white) <= 100
    assert effective(np.repeat(white[:, ::4], 4, 1)) < 40
    assert effective(np.ones((50, 100))) == 100


# -- the tests of uniformity ------------------------------------------------------------------------
@pytest.mark.parametrize("test", [uniformity.ecdf, uniformity.chi_square])
def test_p_values_of_uniform_ranks_are_uniform(test):
    rng = np.random.default_rng(1)
    p = np.array([test(rng.integers(0, 100, 100), 99) for _ in range(400)])
    for level in (0.05, 0.2, 0.5):  # within four standard errors; a discrete test may be cautious
        error = (level * (1 - level) / 400) ** 0.5
        assert (p <= level).mean() < level + 4 * error
        assert (p <= level).mean() > 0.8 * level - 4 * error


def test_the_band_holds_everywhere_at_once():
    rng = np.random.default_rng(2)
    low, high = uniformity.band(100, 99)
    sets = [uniformity.below(rng.integers(0, 100, 100), 99) for _ in range(1000)]
    inside = np.mean([((low <= seen) & (seen <= high)).all() for seen in sets])
    assert 0.95 - 4 * 0.007 < inside < 0.95 + 4 * 0.007


@pytest.mark.parametrize(
    ("power", "said"), [((0.5, 0.5), "too narrow"), ((3, 3), "too wide"), ((2, 1), "too low")]
)
def test_deviations_are_found_and_named(power, said):
    rng = np.random.default_rng(3)
    ranks = np.minimum((100 * rng.beta(*power, size=500)).astype(int), 99)
    assert uniformity.ecdf(ranks, 99) < 0.001
    assert uniformity.chi_square(ranks, 99) < 0.001
    assert said in direction((ranks + 0.5) / 100)


def test_holm_keeps_the_order():
    p = np.array([0.04, 0.001, 0.3])
    assert np.allclose(uniformity.holm(p), [0.08, 0.003, 0.3])


# -- what it says -----------------------------------------------------------------------------------
def test_the_result_in_words_numbers_and_as_a_picture(pmf):
    text = repr(pmf)
    assert text.startswith("pmf by Gibbs: calibrated, p = ")
    assert "120 replications, 59 draws each" in text
    record = json.loads(json.dumps(pmf.record()))
    assert record["ok"] is True and record["settings"]["thin"] == 6
    assert len(record["ranks"]["log joint"]) == 120
    assert set(record["quantities"]["log joint"]) >= {"chi-square", "ecdf", "90 % covers", "ess"}
    picture = pmf.plot()
    assert isinstance(picture, Picture) and picture.png()[:4] == b"\x89PNG"
    assert len(picture.figure.axes) == 6 and "calibrated" in picture.caption
    assert len(pmf.plot(["log joint"]).figure.axes) == 1


def test_p_is_the_smallest_after_correction(pmf):
    smallest = pmf.table[["chi-square", "ecdf"]].to_numpy().min()
    assert pmf.p == pytest.approx(min(1, smallest * 2 * len(pmf.table)))
    assert isinstance(pmf, Calibration)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (LookupError, {"engine": "gibs"}, "did you mean 'Gibbs'"),
        (ValueError, {"method": "mmmf"}, "declares no conditionals"),
        (LookupError, {"guide": "normal"}, "by Gibbs 'guide'. Known: draws, warmup, thin$"),
        (ValueError, {"engine": "SVI", "guide": "norm"}, "guide"),
        (ValueError, {"replications": 3}, "replications to be a whole number from 10 on, got 3"),
        (ValueError, {"thin": 0}, "thin to be a whole number from 1 on, got 0"),
        (ValueError, {"seed": -1}, "seed"),
        (LookupError, {"hyper": {"nois": 1.0}}, "did you mean 'noise'"),
        (TypeError, {"data": "ratings"}, "Expected Ratings for pmf, got str"),
        (TypeError, {"data": bf.Counts(np.eye(3))}, "Expected Ratings for pmf, got Counts"),
    ],
)
def test_mistakes_are_refused(kind, options, said):
    with pytest.raises(kind, match=said):
        bf.sbc(**{"method": "pmf", "progress": False} | options)


def test_an_unknown_method_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'bpmf'"):
        bf.sbc("bpmff")


@pytest.mark.slow
def test_data_of_ones_own():
    ratings = bf.datasets.make_ratings(6, 5, 2, seed=0)
    few = {**SHORT, "replications": 10}
    found = bf.sbc("pmf", data=ratings, hyper={"n_components": 2}, **few)
    assert len(found.ranks) == 10
    assert set(probes(ratings)) <= set(found.ranks)
    assert not set(probes(REGISTRY["pmf"].example(KEY)[0])) <= set(found.ranks)
    assert found.settings["hyper"] == {"n_components": 2}


def test_the_command(capsys, tmp_path):
    few = ["--replications", "20", "--with", "draws=19", "warmup=20", "thin=2"]
    file = tmp_path / "found.json"
    code = main(["sbc", "pmf", "-q", *few, "--json", str(file)])
    out = capsys.readouterr().out
    assert code == 0 and out.startswith("pmf by Gibbs: calibrated")
    assert json.loads(file.read_text())[0]["replications"] == 20
    assert main(["sbc", "pmmmf", "-q"]) == 0
    assert "has no meaning here" in capsys.readouterr().out


def test_the_command_fails_where_the_engine_does(capsys, monkeypatch):
    ranks = Calibration("pmf", "Gibbs", broken=1)
    monkeypatch.setattr(bf, "sbc", lambda *_, **__: ranks)
    assert main(["sbc", "pmf", "-q"]) == 1
    assert main(["sbc", "pmf", "--engine", "mcmc"]) == 2
    assert "Unknown engine" in capsys.readouterr().err
