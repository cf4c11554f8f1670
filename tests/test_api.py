"""What a user meets: fit, predict, save, load, and every wrong turn."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, CorruptFile, NumericalError, UnknownName


@pytest.fixture(scope="module")
def frame():
    data, _ = bf.datasets.make_gaussian(12, 9, 2, density=0.6, seed=0)
    table = data.frame()
    table["user"] = "u" + table["user"].astype(str)
    table["item"] = "film " + table["item"].astype(str)
    return table.sample(frac=1, random_state=0)


@pytest.fixture(scope="module")
def point(frame):
    return bf.fit("bpmf", frame, bf.FixedPoint(tol=1e-4), n_components=2)


@pytest.fixture(scope="module")
def draws(frame):
    return bf.fit("bpmf", frame, bf.Gibbs(20, 30, 2), n_components=2)


def test_predictions_stand_in_the_order_of_the_query(draws, frame):
    some = frame.iloc[[5, 0, 7]]
    whole, part = draws.predict(frame).mean, draws.predict(some).mean
    np.testing.assert_allclose(part, whole[[5, 0, 7]], rtol=1e-10)
    without_values = some[["user", "item"]].rename(columns=str.upper)
    np.testing.assert_allclose(draws.predict(without_values).mean, part, rtol=1e-10)
    table = draws.predict(some).frame(0.8)
    assert list(table.columns) == ["user", "item", "mean", "sd", "lower", "upper", "flagged"]
    assert (table["lower"] < table["mean"]).all()


def test_unknown_labels_get_the_prior_and_a_flag(draws, point):
    query = {"user": ["nobody", "u1", "nobody"], "item": ["film 1", "new", "new"]}
    for fit in (draws, point):
        found = fit.predict(query)
        known = fit.predict({"user": ["u1"], "item": ["film 1"]})
        assert found.flagged.all()
        assert not known.flagged.any()
        assert (found.sd > known.sd).all()
    wrong_type = {"user": [1], "item": ["film 1"]}
    with pytest.raises(TypeError, match=r"user labels like 'u0' \(str\), got 1"):
        draws.predict(wrong_type)


def test_ids_match_whether_they_are_numbers_or_text(tmp_path):
    numbers = bf.datasets.make_ratings(12, 11, 2, seed=0)
    text = bf.Ratings(numbers.frame().astype({"user": str, "item": str}), levels=numbers.levels)
    fits = [bf.fit("pmf", data, n_components=2, progress=False) for data in (numbers, text)]
    fits[1].save(tmp_path / "text")
    fits.append(bf.load(tmp_path / "text"))
    expected = fits[0].predict(numbers).mean
    for fit in fits:
        for data in (numbers, text):
            found = fit.predict(data)
            np.testing.assert_array_equal(found.mean, expected)
            assert not found.flagged.any()
            assert fit.fold_in(data).data.shape == numbers.shape
    table = bf.compare({"point": fits[0], "loaded": fits[2]}, text).table
    assert table.loc["point", "RMSE"] == table.loc["loaded", "RMSE"]


def test_a_query_with_unknown_columns_is_refused(point):
    query = pd.DataFrame({"timestamp": [1], "uid": ["u1"], "movie": ["film 1"]})
    assert not point.predict(query).flagged.any()
    with pytest.raises(ValueError, match=r"two columns \(users, items\), got \['kunde', 'ware'\]"):
        point.predict(pd.DataFrame({"kunde": ["u1"], "ware": ["film 1"]}))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (["u1", "film 1"], "a column of labels as 'user', got 'u1'"),
        ({"user": ["u1"], "item": "film 1"}, "a column of labels as 'item', got 'film 1'"),
        (([["u1"]], np.full((1, 1), "film 1")), r"as 'item', got shape \(1, 1\)"),
        (pd.DataFrame([["u1", 1, 2]], columns=["user", "item", "item"]), "each column of .* once"),
        ({"user": ["u1", "u2"], "item": ["film 1"]}, "one length, got {'user': 2, 'item': 1}"),
    ],
)
def test_a_query_is_columns_of_one_length(point, query, said):
    with pytest.raises(ValueError, match=said):
        point.predict(query)


def test_columns_of_a_query_stand_in_their_order_whatever_their_index(point):
    user, item = (
        pd.Series(["u1", "u2"], index=[0, 1]),
        pd.Series(["film 1", "film 2"], index=[7, 0]),
    )
    found = point.predict({"user": user, "item": item})
    wanted = point.predict({"user": ["u1", "u2"], "item": ["film 1", "film 2"]})
    np.testing.assert_array_equal(found.mean, wanted.mean)
    assert not found.flagged.any()


def test_a_user_without_training_ratings_is_flagged(frame):
    data = bf.Ratings(frame)
    gone = data.users[3]
    train = data.take(data.users[data.user] != gone)
    fit = bf.fit("pmf", train, n_components=2)
    assert fit.predict({"user": [gone], "item": [data.items[0]]}).flagged.all()


def test_a_point_predicts_its_plain_normal(point):
    found = point.predict(point.data.probe)
    sd = float(point.params.alpha) ** -0.5
    np.testing.assert_allclose(found.sd, sd, rtol=1e-6)
    assert not found.sd_mean.any()
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6449 * sd, rtol=5e-3)
    scores = found.scores(found.mean)
    np.testing.assert_allclose(scores["log_score"], -np.log(sd * np.sqrt(2 * np.pi)), rtol=1e-6)
    np.testing.assert_allclose(scores["crps"], sd * 0.23370, rtol=1e-2)
    np.testing.assert_allclose(scores["pit"], 0.5, atol=1e-6)


def test_everywhere_is_predict_on_every_cell(draws):
    users, items = draws.data.coords["user"], draws.data.coords["item"]
    grid = pd.MultiIndex.from_product([users, items], names=["user", "item"]).to_frame(index=False)
    one, all_ = draws.predict(grid), draws.everywhere(memory=2**16)
    shape = (len(users), len(items))
    np.testing.assert_allclose(all_.mean, one.mean.reshape(shape), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(all_.sd, one.sd.reshape(shape), rtol=1e-4)
    np.testing.assert_allclose(all_.sd_mean, one.sd_mean.reshape(shape), rtol=1e-3, atol=1e-6)


def test_blocks_do_not_change_the_answer(draws, frame):
    whole, pieces = draws.predict(frame), draws.predict(frame)
    pieces.memory = 2**15
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-10)
    np.testing.assert_allclose(pieces.sd_mean, whole.sd_mean, rtol=1e-8)


def test_saved_and_loaded_is_the_same_fit(tmp_path, point, draws, frame):
    for fit in (point, draws):
        again = bf.load(fit.save(tmp_path / fit.engine.__class__.__name__))
        assert repr(again) == repr(fit)
        assert again.hyper == fit.hyper
        assert again.engine == fit.engine
        np.testing.assert_array_equal(again.predict(frame).mean, fit.predict(frame).mean)
        np.testing.assert_array_equal(again.trace, fit.trace)
        assert again.data.probe.equals(fit.data.probe)
    assert np.shape(bf.load(tmp_path / "FixedPoint").params.alpha) == ()


@pytest.mark.parametrize("file", ["header.json", "arrays.npz", "draws/U.npy"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_folder_is_never_wrong_numbers(tmp_path, draws, file, harm):
    place = tmp_path / "fit" / file
    draws.save(tmp_path / "fit")
    raw = bytearray(place.read_bytes())
    if harm == "flip" and file == "header.json":
        raw[0] = ord("x")
    elif harm == "flip":
        raw[len(raw) // 2] ^= 1
    place.write_bytes(bytes(raw[: len(raw) // 2] if harm == "cut" else raw))
    if harm == "remove":
        place.unlink()
    with pytest.raises(CorruptFile, match="Expected"):
        bf.load(tmp_path / "fit")


def test_a_foreign_folder_is_neither_read_nor_overwritten(tmp_path, point):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(CorruptFile, match=r"no header.json"):
        bf.load(tmp_path)
    with pytest.raises(FileExistsError, match="something else"):
        point.save(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_a_full_disk_leaves_the_old_fit_and_no_litter(tmp_path, point, draws):
    place = tmp_path / "fit"
    point.save(place)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        patch("bayesfac.fits.saving.np.save", side_effect=full),
        pytest.raises(OSError, match="No space left"),
    ):
        draws.save(place)
    assert bf.load(place).is_point
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]
    draws.save(place)
    assert not bf.load(place).is_point
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_init_from_any_other_fit(frame, point, draws):
    from_point = bf.fit(
        "bpmf", frame, bf.FixedPoint(max_iter=50, tol=1e-3), n_components=2, init=point
    )
    assert from_point.trace[0] <= point.trace[-1] + 1e-6
    bf.fit("pmf", frame, n_components=2, init=draws)  # U and V fit; the rest begins afresh
    bf.fit("bpmf", frame, bf.Gibbs(1, 1, 1), n_components=2, init=point.params)
    with pytest.raises(ValueError, match="Expected an init with a site of bpmf"):
        bf.fit("bpmf", frame, n_components=3, init={"W": np.zeros(2)})
    others = frame.assign(user=frame["user"] + "x")
    with pytest.raises(ValueError, match="same user labels"):
        bf.fit("bpmf", others, n_components=2, init=point)
    with pytest.raises(TypeError, match="Expected init to be a Fit"):
        bf.fit("bpmf", frame, n_components=2, init=3)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda d: bf.fit("bpfm", d), UnknownName, r"Unknown method 'bpfm'; did you mean 'bpmf'\?"),
        (lambda d: bf.fit("bpmf", d, n_component=2), UnknownName, "did you mean 'n_components'"),
        (
            lambda d: bf.fit("pmf", d, biases="no"),
            ValueError,
            "biases to be True or False, got 'no'",
        ),
        (lambda d: bf.fit("pmf", d, biases=2), ValueError, "biases to be True or False, got 2"),
        (lambda d: bf.fit("BPMF", d), UnknownName, r"Unknown method 'BPMF'; did you mean 'bpmf'\?"),
        (lambda d: bf.fit("bpmf", d, n_factors=2), UnknownName, "did you mean 'n_components'"),
        (lambda d: bf.fit("bpmf", d, draws=9), UnknownName, r"'bpmf', data, bf.Gibbs\(draws=9\)"),
        (
            lambda d: bf.fit("pmf", d, tol=0.1),
            UnknownName,
            r"FixedPoint, LBFGS.*FixedPoint\(tol=0.1",
        ),
        (lambda d: bf.fit("pmf", d, bf.NUTS, draws=9), UnknownName, r"bf.NUTS\(draws=9\)"),
        (lambda d: bf.Gibbs(samples=9), UnknownName, "of Gibbs 'samples'; did you mean 'draws'"),
        (lambda d: bf.NUTS(drawz=9), UnknownName, "of NUTS 'drawz'; did you mean 'draws'"),
        (lambda d: bf.fit("bpmf", "a.csv"), TypeError, r"Ratings for bpmf.*bf.datasets.read\(path"),
        (lambda d: bf.fit("plsa", Path("a")), TypeError, r"Views for plsa.*bf.datasets.read\(path"),
        (lambda d: bf.Ratings("a.csv"), TypeError, r"bf.datasets.read\(path\) reads a file"),
        (lambda d: bf.fit("bpmf", d, "gibbs"), UnknownName, r"bf.Gibbs\(\)"),
        (
            lambda d: bf.fit("mmmf", d, bf.Gibbs()),
            BayesfacError,
            "mmmf cannot run with Gibbs",
        ),
        (
            lambda d: bf.fit("plsa", bf.Ratings(d)),
            TypeError,
            "Expected Views for plsa, got Ratings",
        ),
        (lambda d: bf.fit("bpmf", d, n_components=500), ValueError, "between 1 and 9 .*got 500"),
        (lambda d: bf.fit("bpmf", d, n_components=2.5), ValueError, "n_components"),
        (
            lambda d: bf.fit("bpmf", d, n_components=2, alpha=-1),
            ValueError,
            "alpha .* above 0, got -1",
        ),
        (lambda d: bf.fit("pmf", d, n_components=2, noise="loud"), ValueError, "noise"),
        (lambda d: bf.fit("bpmf", d, seed=2**32, n_components=2), ValueError, "seed from 0"),
        (
            lambda d: bf.fit("plsa", -np.eye(3), n_components=2),
            ValueError,
            "at least 0 in view 'x', got -1 in row 0",
        ),
        (
            lambda d: bf.fit("plsa", np.zeros((3, 3)), n_components=2),
            ValueError,
            "at least one count",
        ),
        (lambda d: bf.fit("plsa", {"a": np.eye(3), "b": np.eye(3)}), ValueError, "one view, got 2"),
        (
            lambda d: bf.fit("plsa", np.eye(4), n_components=2, a=0.5),
            ValueError,
            "concentration a of at least 1",
        ),
        (
            lambda d: bf.fit("bpmf", d, bf.SVI(guide="laplace"), n_components=2),
            ValueError,
            "may rotate",
        ),
    ],
)
def test_wrong_turns_are_one_clear_line(frame, call, error, said):
    with pytest.raises(error, match=said) as caught:
        call(frame)
    assert "\n" not in str(caught.value)


def test_attributes_that_a_fit_cannot_have_say_what_has_it(point, draws):
    with pytest.raises(AttributeError, match=r"\.posterior has them"):
        draws.params  # noqa: B018
    with pytest.raises(AttributeError, match=r"\.params has it"):
        point.posterior  # noqa: B018


@pytest.mark.parametrize("rated", [1, 5])
def test_equal_ratings_are_told_where_the_fit_is_printed(rated):
    user, item = np.divmod(np.arange(rated), 2)
    fit = bf.fit("pmf", bf.Ratings(user, item, np.full(rated, 3.0)), n_components=1, progress=False)
    assert "\nevery value is 3: such data do not rank items" in repr(fit)


def test_one_rating_one_user_one_item():
    fit = bf.fit("bpmf", bf.Ratings(["ann"], ["x"], [4]), bf.Gibbs(5, 5, 1), n_components=1)
    assert np.isfinite(fit.predict({"user": ["ann", "bob"], "item": ["x", "x"]}).mean).all()


def test_two_threads_are_refused(frame):
    said = []

    def second():
        try:
            bf.fit("pmf", frame, n_components=2)
        except BayesfacError as error:
            said.append(str(error))

    from bayesfac.inference import fixed_point

    check = fixed_point.check_sites

    def meanwhile(params, where):
        if not said:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
        check(params, where)

    with patch.object(fixed_point, "check_sites", meanwhile):
        bf.fit("pmf", frame, n_components=2)
    assert "one fit at a time" in said[0]


def test_methods_lists_every_method_with_its_paper():
    table = bf.methods()
    assert {"pmf", "bpmf", "plsa", "mvplsa"} <= set(table.index)
    assert "Gibbs" in table.loc["bpmf", "engines"]
    assert "Gibbs" not in table.loc["mmmf", "engines"]


def test_an_empty_query_has_no_answers(draws):
    none = draws.predict({"user": [], "item": []})
    assert (len(none), none.mean.shape, none.interval()[0].shape) == (0, (0,), (0,))
    assert none.draws_of_mean().shape == (2, 30, 0)
    assert none.scores([])["crps"].shape == none.frame()["sd"].shape == (0,)


def test_numbers_of_numpy_and_paths_are_settings_like_any_other(tmp_path, frame):
    settings = {
        "n_components": np.int64(2),
        "noise": np.float32(0.5),
        "scale_user": jnp.asarray(0.7),
    }
    engine = bf.Gibbs(np.int64(3), np.int32(4), 1, folder=tmp_path / "run")
    fit = bf.fit("pmf", frame, engine, **settings)
    assert {type(value) for value in fit.hyper} <= {int, float, bool}
    again = bf.load(fit.save(tmp_path / "fit"))
    assert again.hyper == fit.hyper
    assert again.engine.draws == 4
    np.testing.assert_array_equal(again.predict(frame).mean, fit.predict(frame).mean)


def test_a_fit_in_single_precision_answers_in_double(frame):
    """A saved fit is read wherever it is wanted, whatever the precision there."""
    with jax.enable_x64(False):
        fit = bf.fit("bpmf", frame, bf.FixedPoint(20, tol=1e-2), n_components=2)
        asked = {"user": ["u1", "nobody"], "item": ["film 1", "film 1"]}
        expected = fit.predict(asked)
        assert fit.params.U.dtype == "float32"
        single = expected.mean, expected.sd
    np.testing.assert_allclose(fit.predict(asked).mean, single[0], rtol=1e-5)
    np.testing.assert_allclose(fit.predict(asked).sd, single[1], rtol=1e-5)
    old = bf.fit("pmf", frame, n_components=2, init=fit, progress=False)
    assert old.params.U.dtype == "float64"


def test_views_are_predicted_by_row_view_and_feature():
    x = np.random.default_rng(0).poisson(3.0, (6, 7)).astype(float)
    views = bf.Views({"left": x[:, :4], "right": x[:, 4:]})
    fit = bf.fit("mvplsa", views, bf.FixedPoint(500, tol=1e-4), n_components=2, n_topics=2)
    whole = np.concatenate(
        [fit.params.A @ fit.params.B[n] @ fit.params.C[n] for n in views.names], 1
    )
    frame = views.frame()
    column = frame["feature"].astype(int) + np.where(frame["view"] == "right", 4, 0)
    np.testing.assert_allclose(fit.predict(views).mean, whole[frame["row"], column], rtol=1e-9)
    np.testing.assert_allclose(fit.everywhere().mean, whole, rtol=1e-5)
    new = fit.predict({"row": [99], "view": ["right"], "feature": [1]})
    assert new.flagged.all()
    np.testing.assert_allclose(
        new.mean, (fit.params.B["right"] @ fit.params.C["right"])[:, 1].mean()
    )
    with pytest.raises(ValueError, match="Expected a feature of view 'left', got 6"):
        fit.predict({"row": [0], "view": ["left"], "feature": [6]})
    with pytest.raises(ValueError, match="Expected views among .'left', 'right'., got 'up'"):
        fit.predict({"row": [0], "view": ["up"], "feature": [1]})
    with pytest.raises(BayesfacError, match="mvplsa predicts probabilities, not outcomes"):
        fit.predict(views).scores(frame["value"])


def test_a_fork_is_refused(frame, monkeypatch):
    monkeypatch.setattr("bayesfac.inference._PROCESS", -1)
    with pytest.raises(BayesfacError, match="a fork after import: use spawn"):
        bf.fit("pmf", frame, n_components=2)


def test_a_path_takes_different_values():
    ratings = bf.datasets.make_ratings(20, 10, 2, density=0.6)
    with pytest.raises(ValueError, match="Expected different values"):
        bf.path("mmmf", ratings, [3.0, 3], n_components=1, repeats=1)


@pytest.mark.parametrize(("method", "name"), [("attitude", "n_components"), ("emmmf", "members")])
def test_a_path_takes_settings_of_real_numbers(method, name):
    """All values share one start: every number of components had the errors of the first."""
    ratings = bf.datasets.make_ratings(20, 10, 2, density=0.6)
    with pytest.raises(ValueError, match=f"Expected a setting of real numbers, got {name}"):
        bf.path(method, ratings, [1, 2], name=name, repeats=1)


def test_errors_on_a_path_name_the_value_and_the_repeat(monkeypatch):
    ratings = bf.datasets.make_ratings(20, 10, 2, density=0.6)

    def lost(look, at, *settings, **more):
        at.value[1] = np.inf

    monkeypatch.setattr("bayesfac.choosing.advance", lost)
    with pytest.raises(NumericalError, match="at penalty=7.5") as caught:
        bf.path("mmmf", ratings, [1.0, 7.5], n_components=1, repeats=1)
    assert caught.value.__notes__ == ["in repeat 1 of the path"]


def test_methods_are_found_before_any_fit():
    code = "from bayesfac.core.method import lookup; print(lookup('enmf'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Unknown method 'enmf'; did you mean" in done.stderr and "bpmf" in done.stderr


def test_a_fit_imports_only_what_it_needs():
    """In a new process: what plots, reports and clusters need takes half a second."""
    slow = {
        "arviz_base",
        "arviz_plots",
        "arviz_stats",
        "matplotlib",
        "scipy.optimize",
        "scipy.stats",
    }
    code = (
        "import sys, bayesfac as bf\n"
        "bf.fit('bpmf', bf.datasets.load('ratings'), n_components=2, progress=False)\n"
        f"assert not {slow} & set(sys.modules), {slow} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
