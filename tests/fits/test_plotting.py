"""Plots by name: they draw the numbers that they name, and refuse what they cannot show."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.report.diagnostics.held_out import score
from bayesfac.report.plots.fit_plots import _largest

WORDS = bf.Views({"word": np.random.default_rng(0).poisson(3, (12, 8))})


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def parts():
    return bf.split.holdout(bf.datasets.make_uneven_ratings(30, 20, seed=2), 0.3, seed=0)


@pytest.fixture(scope="module")
def point(parts):
    return bf.fit("bpmf", parts[0], bf.FixedPoint(max_iter=200), n_components=2, progress=False)


@pytest.fixture(scope="module")
def draws(parts):
    engine = bf.Gibbs(warmup=10, draws=20, chains=2)
    return bf.fit("bpmf", parts[0], engine, n_components=2, progress=False)


@pytest.fixture(scope="module")
def topics():
    return bf.fit("plsa", WORDS, n_components=3, progress=False)


def test_a_figure_stays_with_pyplot_so_that_a_notebook_shows_it(point):
    plt.close("all")  # of other tests
    axes = point.plot.trace()
    assert isinstance(axes, Axes)
    assert plt.get_fignums() == [axes.figure.number]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), point.trace)


@pytest.mark.filterwarnings("ignore:2 of 67 held-out:bayesfac.core.errors.DataWarning")
def test_reports_leave_no_figure_open(parts, point, tmp_path):
    bf.compare({"point": point}, parts[1]).to_html(tmp_path / "r.html")
    assert not plt.get_fignums()


def test_coverage_is_that_of_the_scores(parts, draws):
    axes = draws.plot.coverage(parts[1])
    curve = score(draws, parts[1]).coverage_curve()
    np.testing.assert_allclose(axes.lines[1].get_xydata(), curve[["level", "coverage"]])


def test_traces_of_draws_have_a_line_for_each_chain(draws):
    axes = draws.plot.trace()
    assert len(axes) == 4
    assert axes[0].get_title() == "log joint"
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), draws.stats["lp"][0])
    assert all(len(panel.lines) == 2 for panel in axes)
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["chain 0", "chain 1"]
    assert [line.get_color() for line in legend.get_lines()] == [
        line.get_color() for line in axes[0].lines
    ]


def test_levels_are_the_probabilities(parts, draws):
    axes = draws.plot.levels(parts[1])
    widths = np.array([bar.get_width() for bar in axes.patches]).reshape(10, -1)
    np.testing.assert_allclose(widths.sum(0), 1, atol=1e-4)
    prediction = draws.predict(parts[1])
    lowest, highest = prediction.mean.argmin(), prediction.mean.argmax()
    np.testing.assert_allclose(widths[:, 0], prediction.probabilities[lowest], atol=1e-6)
    np.testing.assert_allclose(widths[:, -1], prediction.probabilities[highest], atol=1e-6)
    assert len(axes.lines) == 1  # the observed levels
    assert not draws.plot.levels().lines
    assert axes.get_ylabel() == "user, item"


def test_the_point_stands_beside_the_draws(point, draws, parts):
    axes = point.plot.point_beside(draws)
    shown = np.concatenate([line.get_xdata() for line in axes.lines[1:]])
    np.testing.assert_allclose(np.sort(shown), np.sort(point.predict(point.data.probe).mean))
    some = point.plot.point_beside(draws, parts[1].frame().head(7))
    assert sum(len(line.get_xdata()) for line in some.lines[1:]) == 7
    with pytest.raises(BayesfacError, match="point.plot.point_beside"):
        draws.plot.point_beside(point)


def test_factors_have_the_labels_and_the_largest_entries(point, draws):
    V = np.stack([np.arange(20.0), -10 * np.arange(20.0)], 1)
    known = replace(point, result=replace(point.result, params=point.params._replace(V=V)))
    panels = known.plot.factors()
    assert [panel.get_title(loc="left") for panel in panels] == ["component 2", "component 1"]
    labels = [text.get_text() for text in panels[0].get_yticklabels()]
    assert labels == [str(label) for label in point.data.coords["item"][12:]]
    assert panels[0].lines[0].get_xdata().tolist() == V[12:, 1].tolist()
    aligned = draws.plot.factors("U")
    assert aligned[0].get_xlabel() == "U (user)"
    with pytest.raises(BayesfacError, match="got site='W'"):
        draws.plot.factors("W")


def test_factors_of_several_views_have_a_row_each():
    rng = np.random.default_rng(0)
    views = bf.Views({"word": rng.poisson(3, (12, 8)), "tag": rng.poisson(2, (12, 5))})
    fit = bf.fit(
        "mvplsa", views, bf.FixedPoint(5, tol=0.5), n_components=2, n_topics=3, progress=False
    )
    panels = np.reshape(fit.plot.factors(), (2, 3))
    for row, name in zip(panels, ("tag", "word"), strict=True):
        assert {panel.get_xlabel() for panel in row} == {f"C.{name} (feature)"}
        shown = {int(panel.get_title(loc="left").split()[1]) - 1 for panel in row}
        assert shown == {0, 1, 2}
    (alone,) = np.unique([panel.get_xlabel() for panel in fit.plot.factors("C.tag")])
    assert alone == "C.tag (feature)"


def test_modes_of_a_tensor_show_the_same_components_and_views_their_own():
    """The second component is largest in one table, the third in both together."""
    tables = {"U.item": [[0.1, 3.0, 2.9]], "U.week": [[2.0, 0.1, 4.0]]}
    tables = {name: np.array([rows]) for name, rows in tables.items()}
    shown = _largest(REGISTRY["cp"], tables, dict.fromkeys(tables, 1))
    assert {name: list(order) for name, order in shown.items()} == dict.fromkeys(tables, [2, 1, 0])
    tables = {"C.a": tables["U.item"], "C.b": tables["U.week"]}
    shown = _largest(REGISTRY["mvplsa"], tables, dict.fromkeys(tables, 0))
    assert {name: list(order) for name, order in shown.items()} == {
        "C.a": [1, 2, 0],
        "C.b": [2, 0, 1],
    }


def test_an_unknown_plot_is_an_error_that_lists_the_plots(point):
    with pytest.raises(
        AttributeError, match=r"'density'. Known: coverage, trace, levels, point_be"
    ):
        point.plot.density  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'factors'"):
        point.plot.Factor  # noqa: B018


def test_clusters_are_counted(topics):
    axes = topics.plot.clusters()
    heights = np.array([bar.get_height() for bar in axes.patches])
    assert heights.sum() == 12
    largest = bf.clusters(topics)["cluster"].value_counts().iloc[0]
    assert heights.reshape(3, -1).sum(0)[0] == largest


def test_what_cannot_be_shown_is_refused(topics, point, draws):
    with pytest.raises(BayesfacError, match="counts, which have no intervals"):
        topics.plot.coverage(WORDS)
    with pytest.raises(BayesfacError, match="counts, which have no intervals"):
        topics.plot.point_beside(draws)
    with pytest.raises(BayesfacError, match="puts rows into clusters"):
        point.plot.clusters()
    with pytest.raises(ValueError, match="Expected ordinal ratings"):
        topics.plot.levels()
    assert "coverage, trace, levels, point_beside, factors, explain, variance_explained" in repr(
        point.plot
    )


def test_dots_of_levels_stand_in_their_rows_for_a_table_in_any_order(parts, point):
    """A column of a table is taken by place, not by the labels of its index."""
    table = parts[1].frame().rename(columns={"rating": "value"})
    one, other = (
        point.plot.levels(t) for t in (table, table.iloc[::-1].set_index(table.index + 5))
    )

    def dots(axes):
        (line,) = (x for x in axes.lines if x.get_label() == "observed")
        return dict(
            zip((t.get_text() for t in axes.get_yticklabels()), line.get_xdata(), strict=True)
        )

    assert dots(one) == pytest.approx(dots(other))
    backwards = point.plot.levels(table.iloc[::-1])
    assert dots(one) == pytest.approx(dots(backwards))
