"""Labels are any text: through verbs, plots and files they stay what they are."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import bayesfac as bf
from bayesfac.report.diagnostics.diagnose import diagnostics
from bayesfac.report.plots.chain_plots import spotlight

USERS, ITEMS = 6, 5
ODD = [
    "AC/DC", "/", "..", "", " ", "\0", "a\0b", "a\n", "$x_1^{", "{0}", "%s", "<b>&amp;", "nan", "007", "7",
    "1e3", "x" * 3000, "x" * 2999 + "y", "🙂", "é", "e\u0301", "\u202eabc", "'\"", "a,b", "log joint",
]  # fmt: skip
LABEL = st.sampled_from(ODD) | st.text(max_size=12)


def names(size):
    return st.lists(LABEL, min_size=size, max_size=size, unique=True)


BOTH = st.tuples(names(USERS), names(ITEMS))


@pytest.fixture(scope="module")
def fits():
    """A point and draws; only their labels change, so that nothing is fitted or compiled again."""
    data = bf.datasets.make_uneven_ratings(USERS, ITEMS, 1, seed=1)
    point = bf.fit("bpmf", data, bf.FixedPoint(3, tol=0.9), n_components=1, progress=False)
    engine = bf.Gibbs(warmup=2, draws=10, chains=2)
    return data, point, bf.fit("bpmf", data, engine, n_components=1, progress=False)


def labelled(fits, users, items):
    """The same ratings and fits with these labels."""
    data, *found = fits
    axes = {"user": pd.Index(users, dtype=object), "item": pd.Index(items, dtype=object)}
    frame = data.frame()
    for axis, labels in axes.items():
        frame[axis] = labels[frame[axis].to_numpy()]
    for number, fit in enumerate(found):
        probe = {axis: labels[fit.data.probe[axis]] for axis, labels in axes.items()}
        found[number] = replace(fit, data=replace(fit.data, coords=axes, probe=pd.DataFrame(probe)))
    return frame, *found


@settings(
    max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
@given(BOTH)
def test_verbs_and_files_keep_labels(fits, tmp_path_factory, both):
    users, items = both
    frame, _, draws = labelled(fits, users, items)
    asked, (data, _, plain) = draws.predict(frame), fits
    np.testing.assert_array_equal(asked.mean, plain.predict(data).mean)
    assert asked.labels.to_numpy().tolist() == frame[["user", "item"]].to_numpy().tolist()
    ratings = bf.Ratings(frame)
    lists = draws.recommend(users, 2, exclude=ratings)
    code = lists.assign(user=lists["user"].map(users.index), item=lists["item"].map(items.index))
    pd.testing.assert_frame_equal(code, plain.recommend(range(USERS), 2, exclude=data))
    assert {*draws.similar(items[:1], 2)["item"]} <= {*items}
    table = draws.diagnostics().table.index
    assert f"prediction ({', '.join(draws.data.probe.iloc[0])})" in table
    folder = tmp_path_factory.mktemp("labels")
    again = bf.load(draws.save(folder / "fit"))
    for axis, labels in draws.data.coords.items():
        assert list(again.data.coords[axis]) == list(labels)
    np.testing.assert_array_equal(again.predict(frame).mean, asked.mean)
    draws.to_netcdf(folder / "draws.nc")
    with xr.open_datatree(folder / "draws.nc", engine="h5netcdf") as tree:
        assert tree.posterior["item"].values.tolist() == [i.replace("\0", "␀") for i in items]


@pytest.mark.filterwarnings("ignore:Glyph")  # matplotlib's own font lacks some
@pytest.mark.parametrize("first", [0, 12])
def test_plots_take_odd_labels(fits, tmp_path, first):
    """All users and items have a slash, and many titles are alike where they are cut."""
    labels = [f"{odd}/{number}" for number, odd in enumerate(ODD[first : first + USERS + ITEMS])]
    frame, point, draws = labelled(fits, labels[:USERS], labels[USERS:])
    for axes in (draws.plot.trace(), draws.plot.factors(), draws.plot.coverage(frame)):
        np.ravel(axes)[0].figure.canvas.draw()
    point.plot.point_beside(draws).figure.canvas.draw()
    plt.close("all")
    tree, rows = spotlight(diagnostics(draws))
    titles = [values.attrs["long_name"] for values in tree["posterior"].data_vars.values()]
    assert len({*titles}) == len(titles) == len(rows)
    assert any("/" in title for title in titles)
