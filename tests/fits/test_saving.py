"""Smaller folders, and the card in each."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.fits.saving import _less


@pytest.fixture(scope="module")
def draws():
    ratings = bf.datasets.make_ratings(12, 10, 2, seed=1).named("films")
    engine = bf.Gibbs(warmup=5, draws=20, chains=2)
    return bf.fit("bpmf", ratings, engine, n_components=2, progress=False)


def test_a_thin_fit_has_fewer_draws_of_fewer_digits(draws, tmp_path):
    small = bf.load(draws.save(tmp_path / "small", thin=5, dtype="float16"))
    assert np.load(tmp_path / "small/draws/U.npy").dtype == np.float16
    assert small.draws["U"].dtype == np.float32  # sums in half precision would be wrong
    np.testing.assert_allclose(small.draws["U"], draws.draws["U"][:, ::5], rtol=1e-3, atol=1e-6)
    assert small.stats["lp"].shape == (2, 4)
    query = {"user": [0, 1], "item": [3, 4]}
    mean = draws.predict(query).draws_of_mean()[:, ::5].mean((0, 1))
    np.testing.assert_allclose(small.predict(query).mean, mean, rtol=5e-3)
    assert small.everywhere().mean.dtype == np.float32
    assert {"saved with one draw in 5", "saved as float16"} <= set(small.result.notes)
    again = bf.load(small.save(tmp_path / "again"))  # from lazily read draws
    np.testing.assert_array_equal(again.draws["U"], small.draws["U"])


def test_a_thin_fit_tells_what_dropped_draws_told(draws, tmp_path):
    """Draws 3 and 13 diverged and are dropped; energies that are far apart tell nothing of slow tails."""
    diverging = np.zeros((2, 20), bool)
    diverging[0, [3, 13]] = True
    depth, energy = np.where(diverging, 10, 4), np.random.default_rng(0).normal(size=(2, 20))
    stats = {"lp": draws.stats["lp"], "diverging": diverging, "tree_depth": depth, "energy": energy}
    of_nuts = replace(draws, engine=bf.NUTS(5, 20, 2), result=replace(draws.result, stats=stats))
    thin = bf.load(of_nuts.save(tmp_path / "thin", thin=2))
    np.testing.assert_array_equal(np.flatnonzero(thin.stats["diverging"][0]), [1, 6])
    thinner = bf.load(thin.save(tmp_path / "thinner", thin=2))  # as with thin=4
    for fit, count in ((thin, 20), (thinner, 10)):
        assert fit.stats["tree_depth"].max() == 10
        texts = " ".join(f.text for f in fit.diagnostics().findings)
        assert f"2 draws with divergent transitions ({2 / count:.1%})" in texts, texts
        assert "E-BFMI" not in texts


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="draws of U that fit into float16, got 100000"):
        _less("U", np.full((1, 2, 3), 1e5), 1, "float16")
    assert _less("z", np.ones((1, 4), np.int64), 2, "float16").dtype == np.int64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"thin": 0}, r"save\(thin=...\) to be a whole number"),
        ({"dtype": "int8"}, "dtype 'float16' or 'float32', got 'int8'"),
    ],
)
def test_wrong_settings_are_refused(draws, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        draws.save(tmp_path / "fit", **settings)
    assert not (tmp_path / "fit").exists()


def test_the_card_says_what_the_fit_is(draws, tmp_path):
    draws.save(tmp_path / "fit", thin=2)
    card = (tmp_path / "fit" / "model_card.md").read_text(encoding="utf-8")
    assert card.startswith("# bpmf on films\n")
    assert "users 12" in card and "n_components=2" in card and "- saved with one draw in 2" in card
    with (tmp_path / "fit" / "model_card.md").open("a") as file:
        file.write("my remark")
    assert bf.load(tmp_path / "fit").data.name == "films"


def test_names_of_data_stay_with_their_parts(tmp_path):
    ratings = bf.datasets.load("ratings")
    train, test = bf.split.holdout(ratings, 0.1)
    assert ratings.name == train.name == test.name == "ratings"
    train.frame().to_csv(tmp_path / "own.csv", index=False)
    assert bf.datasets.read(tmp_path / "own.csv").name == "own.csv"
    assert train.named("mine").name == "mine" and train.name == "ratings"


def test_draws_are_found_after_a_change_of_the_folder(draws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws.save("fit")
    loaded = bf.load("fit")
    monkeypatch.chdir(tmp_path.parent)
    np.testing.assert_array_equal(loaded.draws["U"], draws.draws["U"])


ITEM, STARS = np.tile([0, 1, 2, 3], 3), np.arange(12.0) % 5
DAYS = pd.date_range("2020-01-01", periods=6)
DATES = [DAYS, DAYS.tz_localize("Europe/Berlin"), DAYS.astype("datetime64[s]")]
NEVER = [pd.period_range("2020-01", periods=6, freq="M"), pd.Index([(i, "a") for i in range(6)])]


@pytest.mark.parametrize("ids", DATES, ids=lambda ids: str(ids.dtype))
def test_dates_are_saved_as_they_are(ids, tmp_path):
    data = bf.Ratings(ids.repeat(2), ITEM, STARS)
    fit = bf.fit("pmf", data, bf.FixedPoint(3, tol=0.9), n_components=1, progress=False)
    again = bf.load(fit.save(tmp_path / "fit"))
    for one in (again.data.coords["user"], again.data.probe["user"]):
        assert one.dtype == ids.dtype
    assert again.data.coords["user"].equals(ids)
    assert not again.predict({"user": ids, "item": [0] * 6}).flagged.any()


@pytest.mark.parametrize("ids", NEVER, ids=["periods", "tuples"])
def test_labels_that_no_folder_holds_are_refused_before_the_run(ids, tmp_path):
    data, given = bf.Ratings(ids.repeat(2), ITEM, STARS), {"n_components": 1, "progress": False}
    folder = tmp_path / "run"
    with pytest.raises(TypeError, match="Expected user labels that are numbers, text or dates"):
        bf.fit("pmf", data, bf.Gibbs(2, 2, 1, folder=str(folder)), **given)
    assert not folder.exists()
    assert bf.fit("pmf", data, bf.Gibbs(2, 2, 1), **given).draws


def test_a_type_and_a_thinning_are_kept_without_the_other(draws, tmp_path):
    short = bf.load(draws.save(tmp_path / "short", dtype="float16"))
    few = bf.load(draws.save(tmp_path / "few", thin=3))
    assert np.load(tmp_path / "short/draws/U.npy").dtype == np.float16
    assert np.load(tmp_path / "few/draws/U.npy").dtype == draws.draws["U"].dtype
    assert short.draws["U"].shape == draws.draws["U"].shape and short.info.get("thin", 1) == 1
    np.testing.assert_array_equal(few.draws["U"], draws.draws["U"][:, ::3])
    np.testing.assert_array_equal(few.stats["lp"], draws.stats["lp"][:, ::3])
    assert short.result.notes == [*draws.result.notes, "saved as float16"]
    assert few.result.notes == [*draws.result.notes, "saved with one draw in 3"]


def test_a_fit_of_another_method_is_not_replaced_unasked(draws, tmp_path):
    """Neither are other files; a fit of the same method is, so that a script may run again."""
    data = bf.datasets.make_ratings(12, 10, 2, seed=2)
    other = bf.fit("pmf", data, bf.FixedPoint(3, tol=0.9), n_components=1, progress=False)
    place = tmp_path / "fit"
    draws.save(place)
    with pytest.raises(FileExistsError, match="saved fit of pmf, got a fit of bpmf: .*overwrite"):
        other.save(place)
    assert bf.load(place).name == "bpmf"
    draws.save(place, thin=2)
    assert bf.load(place).draws["U"].shape[1] == 10
    other.save(place, overwrite=True)
    assert bf.load(place).name == "pmf"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "header.json").write_text("{}")
    with pytest.raises(FileExistsError, match="got something else there"):
        other.save(tmp_path / "own", overwrite=True)
