"""Labels that are numbers: how far they are from their scores is learned from rows that are held out."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import Grid
from bayesfac.core.laws.units import in_models_unit
from bayesfac.core.method import lookup
from bayesfac.labels.laws import sds_around
from tests.models.numeric_labels import METHODS

NOISE = np.array([0.1, 1.0, 5.0])


def made(rows=150):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 6))
    exact = x @ rng.normal(size=(6, 3))
    y = exact / exact.std(0) + NOISE * rng.normal(size=(rows, 3))
    return x, (y - y.min(0)) * [1.0, 1e-3, 1e3]


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", METHODS)
def test_intervals_of_new_rows_hold_nine_of_ten(name):
    x, y = made(400)
    with jax.enable_x64(False):  # as users have it
        fit = bf.fit(name, bf.Tasks(x[:100], y[:100]), progress=False, **METHODS[name])
        new = bf.Tasks(x[100:], np.full((300, 3), np.nan))
        told = fit.fold_in(new).predict(new.grid())
        low, high = (end.reshape(-1, 3) for end in told.interval(0.9))
    inside = np.mean((low <= y[100:]) & (y[100:] <= high), 0)
    # the short fits of himlsd end early, so its sds are too large
    assert (inside > 0.8).all() and (name == "himlsd" or (inside < 0.98).all())
    sd = told.sd.reshape(-1, 3)
    np.testing.assert_allclose(sd, np.tile(fit.hyper.label_sd, (300, 1)), rtol=1e-6)
    # himls and himlsd explain little of such labels
    assert "himls" in name or sd[0, 0] / y[:, 0].std() < 0.7 * sd[0, 2] / y[:, 2].std()


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_the_sds_are_said_and_reproduce_the_fit():
    x, y = made()
    data = bf.Tasks(x, y)
    fit = bf.fit("heres", data, bf.FixedPoint(5), n_components=6, progress=False)
    assert "label_sd=(" in repr(fit)
    assert "by the share of variance explained in 150 rows whose labels were held out" in repr(fit)
    again = bf.fit("heres", data, bf.FixedPoint(5), progress=False, **fit.hyper._asdict())
    np.testing.assert_array_equal(again.predict(data).sd, fit.predict(data).sd)
    assert len(again.notes) < len(fit.notes)  # nothing was chosen


def test_given_sds_are_those_of_predictions():
    x, y = made()
    data = bf.Tasks(x, y)
    for given, wanted in ((2.0, [2.0, 2, 2]), ((1.0, 2.0, 3.0), [1.0, 2, 3])):
        fit = bf.fit("cplst", data, label_sd=given, progress=False)
        assert fit.hyper.label_sd == tuple(wanted)
        np.testing.assert_allclose(fit.predict(data).sd.reshape(-1, 3)[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["cplst", "heres"])
@pytest.mark.parametrize("wrong", [0.0, -1.0, (1.0, 2.0), (1.0, 2.0, -3.0)])
def test_sds_that_are_none_are_refused(name, wrong):
    x, y = made(20)
    with pytest.raises(
        ValueError, match=r"Expected label_sd as a number above 0, or one for each of 3"
    ):
        bf.fit(name, bf.Tasks(x, y), label_sd=wrong, progress=False)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", ["cplst", "heres", "leml"])
def test_five_rows_leave_the_sd_of_the_model(name):
    x, y = made(5)
    data = bf.Tasks(x, y)
    fit = bf.fit(name, data, bf.FixedPoint(5), progress=False)
    assert fit.hyper.label_sd is None
    cells = Grid(np.arange(5), np.arange(3))
    inside = lookup(name).predict(fit.params, cells, in_models_unit(fit.hyper)).variance
    wanted = np.sqrt(inside) * np.array(fit.hyper.units)[:, 1]
    np.testing.assert_allclose(fit.predict(data).sd.reshape(5, 3), wanted, rtol=1e-6)


def test_labels_of_0_and_1_have_no_sd():
    x, y = made()
    fit = bf.fit("cplst", bf.Tasks(x, y > np.median(y, 0)), progress=False)
    assert fit.hyper.label_sd is None


def test_sds_of_labels_with_gaps_of_one_number_and_without_rows():
    truth = np.column_stack([np.arange(8.0), np.full(8, 7.0), np.full(8, np.nan), np.zeros(8)])
    truth[5:, 0] = np.nan
    found = sds_around(truth, np.nan_to_num(truth) + [2.0, 0, 0, 0])
    pooled = np.sqrt(5 * 4 / (5 + 8 + 8))
    np.testing.assert_allclose(found, [2, 0.007, pooled, 0.001])
    assert sds_around(truth[:5], truth[:5]) is None
