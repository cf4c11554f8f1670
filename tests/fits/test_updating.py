"""A fit that goes on with more ratings."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cards import describe
from bayesfac.core.data.reading import positions_of
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, settle, sites
from bayesfac.fits.fit import Fit
from bayesfac.fits.later import grown, update
from bayesfac.inference.result import Result

DATA, TRUTH = bf.datasets.make_gaussian(24, 16, 2, density=0.6, seed=1)
FRAME = DATA.frame()
EARLY = bf.Ratings(FRAME[(FRAME.user < 20) & (FRAME.item < 14) & (np.arange(len(FRAME)) % 5 > 0)])
TOLD = {"n_components": 2, "progress": False}


def test_chains_go_on_from_their_last_draws():
    fit = bf.fit("bpmf", EARLY, bf.Gibbs(100, 64, 2), **TOLD)
    late = fit.update(DATA, sweeps=20)
    assert late.draws["U"].shape == (2, 64, 24, 2) and late.hyper == fit.hyper
    fresh = bf.fit("bpmf", DATA, bf.Gibbs(100, 64, 2), **TOLD)
    a, b = late.predict(DATA), fresh.predict(DATA)
    error = np.abs(a.mean - b.mean) / b.sd
    assert np.quantile(error, 0.95) < 0.3  # of 128 draws, of which some 40 are independent
    # after one sweep known items stand near where they stood, in the frame of their own chain
    begun, last = fit.update(DATA, sweeps=0).draws["V"][:, 0, :14], fit.draws["V"][:, -1]
    assert np.abs(begun - last).mean() < 0.6 * np.abs(begun - last[::-1]).mean()


def test_a_fit_that_was_saved_thinned_goes_on_with_as_many_draws(tmp_path):
    """And as far apart: it made the draws that its engine had made before."""
    fit = bf.fit("bpmf", EARLY, bf.Gibbs(5, 20, 2, thin=2), **TOLD)
    few = bf.load(fit.save(tmp_path / "few", thin=3))
    assert few.draws["U"].shape[:2] == (2, 7)
    late = few.update(DATA, sweeps=2)
    assert late.draws["U"].shape == (2, 7, 24, 2) and late.stats["lp"].shape == (2, 7)
    assert (late.engine.draws, late.engine.thin, late.engine.warmup) == (7, 6, 2)


def test_new_users_and_items_are_new_features_too():
    """Where the pattern of ratings is a feature; a shorter table of features would be read past its end."""
    fit = bf.fit("fm", EARLY, bf.Gibbs(5, 5, 1), implicit=True, **TOLD)
    begun = grown(fit, DATA, 0)
    assert begun["B.implicit_user"].shape == (16, 2) and begun["C.implicit_item"].shape == (24, 1)
    for site in ("B.implicit_item", "C.implicit_user"):
        np.testing.assert_array_equal(begun[site][:14], fit.draws[site][0, -1, :14])


def test_a_point_goes_on_to_the_minimum():
    fit = bf.fit(
        "pmf", EARLY, n_components=2, noise=0.5, scale_user=1.0, scale_item=1.0, progress=False
    )
    late = fit.update(DATA)
    fresh = bf.fit("pmf", DATA, progress=False, **fit.hyper._asdict())
    np.testing.assert_allclose(late.trace[-1], fresh.trace[-1], rtol=0.02)


def test_what_cannot_go_on_is_said():
    fit = bf.fit("bpmf", EARLY, bf.Gibbs(2, 2, 1), **TOLD)
    with pytest.raises(ValueError, match="Expected all ratings, .* got none of user"):
        fit.update(bf.Ratings(FRAME[FRAME.user > 3]))
    with pytest.raises(ValueError, match="Expected an init for each of the 2 chains, got 1"):
        bf.fit("bpmf", EARLY, bf.Gibbs(1, 1, 2), init=[fit], **TOLD)
    with pytest.raises(TypeError, match="Expected one init, got a list"):
        bf.fit("bpmf", EARLY, bf.FixedPoint(1), init=[fit], **TOLD)
    counts = np.random.default_rng(0).poisson(3, (6, 4))
    graph = bf.fit("plsa", counts, n_components=2, progress=False)
    with pytest.raises(BayesfacError, match="Expected a fit of ratings or counts"):
        graph.update(np.ones((3, 4)))


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("engine", [bf.FixedPoint, bf.LBFGS, bf.MAP])
def test_a_point_whose_engine_has_a_folder_is_updated(engine, tmp_path):
    ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    own = engine(folder=str(tmp_path / "run"), save_every=0)
    fit = bf.fit("bpmf", ratings.of_users(0, 25), own, n_components=2, progress=False)
    assert fit.update(ratings).params.U.shape == (30, 2)


def chains_of(last, first=(0, 1, 1)):
    """A fit of pmf whose chains end at these numbers times the first ones: nothing is fitted."""
    method = REGISTRY["pmf"]
    hyper = settle(method, EARLY, {"n_components": 2, "biases": False, "noise": 0.5})
    rng = np.random.default_rng(0)
    one = {site: rng.normal(size=(3, 4, *x.shape)) for site, x in
           sites(method.init(jax.random.key(0), EARLY, hyper)).items()}  # fmt: skip
    draws = {site: x[list(first)] for site, x in one.items()}
    engine = bf.Gibbs(9, 8, 3, thin=5, jitter=0.7)
    return Fit(method, hyper, engine, 3, Result(draws=draws), describe(EARLY)), draws


def test_every_chain_goes_on_from_its_own_last_draw(monkeypatch):
    """And draws its new rows by random numbers of its own: the last two chains have the same draws."""
    fit, draws = chains_of(last=-1)
    told = {}

    def run(kind, method, data, engine, init, **settings):
        told.update(engine=engine, init=init, **settings)

    monkeypatch.setattr("bayesfac.fits.later.run", run)
    update(fit, DATA, 6)
    starts, known = told["init"], {"U": fit.data.coords["user"], "V": fit.data.coords["item"]}
    assert len(starts) == 3 and told["seed"] == 4
    # the fit has half as many draws as its engine made, twice as far apart
    size = told["engine"].warmup, told["engine"].draws, told["engine"].chains, told["engine"].thin
    assert size == (6, 4, 3, 10) and told["engine"].jitter == 0
    for site, index in (("U", DATA.users), ("V", DATA.items)):
        old = positions_of(known[site], index)
        for chain in range(3):
            np.testing.assert_array_equal(
                starts[chain][site][old >= 0], draws[site][chain, -1][old[old >= 0]]
            )
        new = [start[site][old < 0] for start in starts]
        assert len(new[0]) and np.isfinite(new).all()
        assert (new[1] != new[2]).all() and (new[0] != new[1]).all()
