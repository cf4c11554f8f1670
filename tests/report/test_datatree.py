"""The DataTree carries the user's labels, survives a file, and a damaged file says so."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayesfac.core.errors import BayesfacError
from bayesfac.report.datatree import labels, to_datatree, to_netcdf
from tests.report.fakes import (
    SVI,
    point_ratings,
    ratings_sets,
    sampled_ratings,
    sampled_stages,
    sampled_views,
)


def read(path) -> xr.DataTree:
    with xr.open_datatree(path, engine="h5netcdf") as file:
        return file.load()


def test_dims_and_labels_are_the_users() -> None:
    fit = sampled_ratings(hostile=True)
    tree = to_datatree(fit)
    assert tree.posterior["U"].dims == ("chain", "draw", "user", "component")
    assert tree.posterior["Lambda_U"].dims == ("chain", "draw", "component", "component_")
    assert tree.posterior["alpha"].dims == ("chain", "draw")
    assert list(tree.posterior["user"].values) == list(ratings_sets(True)[0].users)
    np.testing.assert_array_equal(tree.posterior["V"].values, fit.draws["V"])
    np.testing.assert_array_equal(tree.sample_stats["lp"].values, fit.stats["lp"])
    assert json.loads(tree.attrs["method"]) == "toy_ratings"
    assert json.loads(tree.attrs["engine"]) == {
        "name": "Gibbs",
        "warmup": 100,
        "draws": 100,
        "chains": 2,
    }
    assert json.loads(tree.attrs["hyper"])["scale"] == 1.5


def test_sites_of_views_keep_their_keys() -> None:
    tree = to_datatree(sampled_views())
    assert tree.posterior["C.pix"].dims == ("chain", "draw", "topic.pix", "feature.pix")
    assert tree.posterior["C.fou"].shape == (2, 60, 4, 9)


def test_stages_and_derived_sites_have_their_axes_and_levels_their_values(tmp_path) -> None:
    fit = sampled_stages()
    tree = to_datatree(fit)
    assert tree.posterior["U"].dims == ("chain", "draw", "stage", "user", "component")
    assert tree.posterior["Lambda"].dims[2:] == ("stage", "component", "component_")
    assert tree.posterior["theta"].dims == ("chain", "draw", "user", "level")
    assert tree.posterior["level"].values.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(tree.posterior["theta"].values, fit.draws["theta"])
    to_netcdf(tree, tmp_path / "staged.nc")
    assert read(tmp_path / "staged.nc").identical(tree)


def test_thin_and_the_guard() -> None:
    fit = sampled_ratings()
    assert to_datatree(fit, thin=5).posterior.sizes["draw"] == 20
    total = sum(site.nbytes for site in fit.draws.values())
    with pytest.raises(BayesfacError, match="most of it 'U'.*thin=3"):
        to_datatree(fit, max_bytes=total // 3 + 1)
    assert to_datatree(fit, thin=3, max_bytes=total // 3 + 1).posterior.sizes["draw"] == 34


def test_a_point_fit_has_no_tree() -> None:
    with pytest.raises(ValueError, match="see .params"):
        to_datatree(point_ratings())


def test_variational_draws_are_one_chain() -> None:
    tree = to_datatree(sampled_ratings(chains=1, engine=SVI()))
    assert tree.posterior.sizes["chain"] == 1 and "sample_stats" not in tree.children


@pytest.mark.parametrize(
    ("given", "kind"),
    [([3, 1], "i"), (["a", 1, None], "U"), ([1.5, np.nan], "U"), ([("a", 1), ("b", 2)], "U"),
     (pd.date_range("2020-01-01", periods=2), "M"), (["a", "b"], "U"), ([True, False], "b")],
)  # fmt: skip
def test_labels_of_any_kind_can_be_stored(given: list, kind: str) -> None:
    assert labels(given).dtype.kind == kind and labels(given).ndim == 1


def test_xarray_reads_the_same_tree_back(tmp_path) -> None:
    tree = to_datatree(sampled_ratings(hostile=True))
    path = tmp_path / "posterior.nc"
    to_netcdf(tree, path)
    again = read(path)
    assert again.identical(tree)
    to_netcdf(again, path)  # over itself: nothing holds the file open
    assert [p.name for p in tmp_path.iterdir()] == ["posterior.nc"]


def test_a_label_with_nul_is_stored_with_a_sign_for_it(tmp_path) -> None:
    fit = sampled_ratings()
    users = [f"{n}\0" for n in range(len(fit.data.coords["user"]))]
    coords = {**fit.data.coords, "user": pd.Index(users)}
    to_netcdf(to_datatree(replace(fit, data=replace(fit.data, coords=coords))), tmp_path / "nul.nc")
    assert read(tmp_path / "nul.nc").posterior["user"].values.tolist()[:2] == ["0␀", "1␀"]


def test_odd_names_of_views_and_labels_survive(tmp_path) -> None:
    fit = sampled_views()
    rename = {"C.pix": "C.<b> $x_1 & é"}
    draws = {rename.get(name, name): site for name, site in fit.draws.items()}
    coords = {**fit.data.coords, "feature.<b> $x_1 & é": [f"🙂 {i}" for i in range(12)]}
    fit = replace(fit, draws=draws, data=replace(fit.data, coords=coords))
    to_netcdf(to_datatree(fit), tmp_path / "odd.nc")
    tree = read(tmp_path / "odd.nc")
    assert tree.posterior["feature.<b> $x_1 & é"].values[3] == "🙂 3"
