"""Labels that are numbers: their unit and their zero are those of what is shown, and change nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV

import bayesfac as bf
from bayesfac.core.method import log_joint, lookup
from tests.models.numeric_labels import METHODS

POSITIVE = ("himls", "himlsd")  # these take no negative labels: their zero stays
UNIT = np.array([1e-3, 20.0, 1e3])  # of each label
STEPS = bf.FixedPoint(12)


def zero(name):
    return np.zeros(3) if name in POSITIVE else np.array([1e4, -50.0, 2e5]) * UNIT


def made(name, rows=50):
    """Features and labels; the labels have no unit of their own yet."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 6))
    y = x[:, :3] @ rng.normal(size=(3, 3)) + 0.5 * rng.normal(size=(rows, 3))
    y -= y.min(0) if name in POSITIVE else y.mean(0)
    return x, y / y.std(0)


def both(name):
    """The labels in their own unit and in another, each as training rows; and new rows, some with labels."""
    x, y = made(name)
    some = y.copy()
    some[45:] = np.nan
    for labels in (some, zero(name) + UNIT * some):
        yield bf.Tasks(x[:40], labels[:40]), bf.Tasks(x[40:], labels[40:])


def moved(name, table):
    return zero(name) + UNIT * table


def tables(fit, data):
    told = fit.predict(data.grid())
    each = (told.mean, told.sd, told.sd_mean, *told.interval(0.8))
    return [part.reshape(-1, 3) for part in each]


def same(found, wanted, name):
    """Tables of means, sds, sds of means and ends of intervals, rows x labels, up to rounding."""
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        expected = UNIT * b if k in (1, 2) else moved(name, b)
        np.testing.assert_allclose((a - expected) / UNIT, 0, atol=2e-5)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", METHODS)
def test_predictions_follow_the_unit(name, tmp_path):
    """Of training rows, of new rows, of all cells, and after `save` and `load`."""
    (usual, new), (other, changed) = both(name)
    a, b = (bf.fit(name, d, STEPS, progress=False, **METHODS[name]) for d in (usual, other))
    assert b.trace[-1] == pytest.approx(a.trace[-1], rel=1e-6)
    same(tables(b, other), tables(a, usual), name)
    folded = b.fold_in(changed)
    same(tables(folded, changed), tables(a.fold_in(new), new), name)
    every = folded.everywhere()
    np.testing.assert_allclose(every.mean, tables(folded, changed)[0], rtol=1e-9)
    again = bf.load(b.save(tmp_path / "fit"))
    assert again.hyper == b.hyper
    for one, two in ((again, b), (again.fold_in(changed), folded)):
        np.testing.assert_array_equal(
            one.predict(other if one is again else changed).mean,
            two.predict(other if one is again else changed).mean,
        )
    refit = bf.fit(name, other, STEPS, progress=False, **b.hyper._asdict())
    np.testing.assert_allclose(tables(refit, other)[0], tables(b, other)[0], rtol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_the_model_has_labels_without_a_unit(name):
    """The objective is minus the log joint of the labels as `ready` scales them."""
    (usual, _), (other, _) = both(name)
    method, points = lookup(name), []
    for data in (usual, other):
        hyper = method.prepare(data, method.Hyper(**METHODS[name]))
        inside = method.ready(data, hyper)
        assert method.prepare(inside, hyper) == hyper and not inside.binary
        np.testing.assert_allclose(inside.in_users_unit(), data.value, rtol=1e-9, atol=1e-9)
        y = inside["labels"].toarray()
        np.testing.assert_allclose(y.std(0), 1, rtol=1e-6)
        assert y.min() >= 0 if name in POSITIVE else abs(y.mean()) < 1e-6
        p = method.init(jax.random.key(0), inside, hyper)
        q = jax.tree.map(lambda x: 1.1 * x, p)
        each = [f(r) for r in (p, q) for f in (
            lambda r, d=inside, h=hyper: method.objective(r, d, h),
            lambda r, d=inside, h=hyper: log_joint(method, r, d, h),
        )]  # fmt: skip
        points.append(np.array(each, float))
    for cost, density, cost_q, density_q in points:
        assert cost_q - cost == pytest.approx(density - density_q, rel=1e-9)
    np.testing.assert_allclose(*points, rtol=1e-6)


def test_log_scores_are_densities_in_the_unit():
    (usual, new), (other, changed) = both("heres")
    given = {"n_components": 3, "sparsity": 1.0, "progress": False}
    a, b = (bf.fit("heres", d, bf.Gibbs(20, 60, 2), **given) for d in (usual, other))
    same(tables(b, other), tables(a, usual), "heres")
    same(tables(b.fold_in(changed), changed), tables(a.fold_in(new), new), "heres")
    shift = -np.log(UNIT)
    one, two = (
        f.loo(d).table["elpd"].to_numpy().reshape(-1, 3) for f, d in ((a, usual), (b, other))
    )
    np.testing.assert_allclose(two, one + shift, atol=1e-5)
    some = [f.loo(d, subsample=30).elpd for f, d in ((a, usual), (b, other))]
    assert np.isfinite(some).all()
    one, two = (
        f.predict(d).scores(d.value)["log_score"].reshape(-1, 3)
        for f, d in ((a, usual), (b, other))
    )
    np.testing.assert_allclose(two, one + shift, atol=1e-5)
    tree, wide = a.datatree(usual), b.datatree(other)
    np.testing.assert_allclose(wide.observed_data["view.labels"], other.value, rtol=1e-9)
    one, two = (t.log_likelihood["view.labels"].to_numpy() for t in (tree, wide))
    np.testing.assert_allclose(two, one + np.tile(shift, 40), atol=1e-4)
    table = bf.compare({"b": b.fold_in(changed)}, changed).table
    truth, told = changed.value, b.fold_in(changed).predict(changed).mean
    assert table.loc["b", "RMSE"] == pytest.approx(np.sqrt(np.mean((truth - told) ** 2)))


@pytest.mark.parametrize("name", ["cplst", "heres", "leml"])
def test_draws_from_the_prior_have_the_unit(name):
    (usual, _), (other, _) = both(name)
    given = {"draws": 20} | METHODS[name]
    a, b = (bf.prior_predictive(name, d, **given) for d in (usual, other))
    np.testing.assert_allclose(b.seen, other.value, rtol=1e-9)
    wanted = moved(name, a.outcomes.reshape(20, -1, 3))
    np.testing.assert_allclose(b.outcomes.reshape(20, -1, 3), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in METHODS if n not in POSITIVE])
@pytest.mark.parametrize(("centre", "unit"), [(1e4, 1.0), (0.0, 1e-3), (0.0, 1e3)])
def test_new_rows_are_predicted_as_by_ridge_regression(name, centre, unit):
    x, y = made(name, 150)
    y = centre + unit * y
    with jax.enable_x64(False):  # as users have it
        fit = bf.fit(name, bf.Tasks(x[:90], y[:90]), progress=False)
        new = bf.Tasks(x[90:], y[90:] + np.nan)
        found = fit.fold_in(new).predict(new.grid([0, 1, 2])).mean.reshape(-1, 3)
    wanted = RidgeCV(np.logspace(-3, 3, 13)).fit(x[:90], y[:90]).predict(x[90:])
    found, wanted = (np.sqrt(np.mean((z - y[90:]) ** 2)) / unit for z in (found, wanted))
    assert found < 1.5 * wanted


def test_labels_of_0_and_1_and_of_one_number_beside_numbers():
    x, y = made("heres")
    y = np.column_stack([y[:, 0] > 0, 1e4 + y[:, 1], np.full(50, 7.0), np.full(50, 1e4)])
    data = bf.Tasks(x, y)
    fit = bf.fit("cplst", data, progress=False)
    units = np.array(fit.hyper.units)
    np.testing.assert_allclose(units[:, 0], [0, y[:, 1].mean(), 7, 1e4])
    np.testing.assert_allclose(units[:, 1], [1, y[:, 1].std(), 7, 1e4])
    told = fit.predict(data).mean.reshape(-1, 4)
    np.testing.assert_allclose(told[:, 2:], y[:, 2:])
    assert not any("no row has" in note for note in fit.notes)
    inside = lookup("cplst").ready(data, fit.hyper)
    np.testing.assert_array_equal(inside["labels"].toarray()[:, 0], y[:, 0])
    alone = bf.fit("cplst", bf.Tasks(x, y[:, 2:]), progress=False)
    assert alone.data.levels is None and not alone.hyper.binary
    np.testing.assert_allclose(alone.predict(alone.data.probe).mean.min(), 7)


@pytest.mark.parametrize("engine", [None, bf.Gibbs(2, 2, 1)])
def test_labels_of_two_other_numbers_than_0_and_1_are_named(engine):
    x, y = made("heres")
    twos = 2.0 * (y > 0)

    def notes(y):
        fit = bf.fit("heres", bf.Tasks(x, y), engine, n_components=2, label_sd=1.0, progress=False)
        return [note for note in fit.notes if "are numbers" in note]

    assert notes(twos) == [
        "the labels 0 and 2 are numbers: write 1 and 0 for labels that a row has or lacks"
    ]
    assert not notes(twos + (x[:, :1] > 0))  # three numbers


def test_a_label_that_no_row_has_is_named_beside_numbers():
    x, y = made("heres")
    y = pd.DataFrame({"size": y[:, 0], "never": 0.0, "constant": 7.0, "some": y[:, 1] > 0})
    notes = bf.fit("cplst", bf.Tasks(x, y), progress=False).notes
    assert [n for n in notes if "no row" in n] == [
        "no row has the label never: it is never predicted"
    ]


def test_binary_labels_have_no_unit():
    x, y = made("heres")
    data = bf.Tasks(x, y > 0)
    for name in METHODS:
        method = lookup(name)
        hyper = method.prepare(data, method.Hyper(**METHODS[name]))
        inside = method.ready(data, hyper)
        assert hyper.units == () and "labels" not in inside.host.scales
        np.testing.assert_array_equal(inside.y["labels"], data.y["labels"])


def test_unknown_labels_stay_unknown():
    x, y = made("leml")
    y[3, 1] = y[7, 0] = np.nan
    a, b = (bf.fit("leml", bf.Tasks(x, z), progress=False) for z in (y, moved("leml", y)))
    grid = bf.Tasks(x, y).grid()
    one, two = (f.predict(grid).mean.reshape(-1, 3) for f in (a, b))
    np.testing.assert_allclose((two - moved("leml", one)) / UNIT, 0, atol=2e-5)


def test_without_scaling_labels_stay_as_they_are():
    x, y = made("lsml")
    data = bf.Tasks(x, 3 + 2 * y)
    fit = bf.fit("lsml", data, scaled=False, weight=1.0, progress=False)
    assert fit.hyper.units == ()
    np.testing.assert_allclose(fit.predict(data).sd.reshape(50, 3)[0], fit.hyper.label_sd)
    assert jnp.allclose(lookup("lsml").ready(data, fit.hyper).y["labels"], data.y["labels"])
