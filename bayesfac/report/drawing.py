"""Figures of ArviZ and the style of all figures. The import takes most of a second, so statistics do
without this file."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.resources import files
from typing import Any

import arviz_plots
import matplotlib
import matplotlib.pyplot as plt
import xarray as xr
from matplotlib import rc_params_from_file
from matplotlib.figure import Figure

GREY = "#666666"

# the one style sheet of reports, plots by name and notebooks
_STYLE = rc_params_from_file(
    str(files("bayesfac").joinpath("style.mplstyle")), use_default_template=False
)
COLOURS = tuple(_STYLE["axes.prop_cycle"].by_key()["color"])


_OPEN = ContextVar("open", default=False)


@contextmanager
def kept_open() -> Iterator[None]:
    """Figures drawn inside stay with pyplot, so that notebooks and `plt.show()` display them."""
    token = _OPEN.set(True)
    try:
        yield
    finally:
        _OPEN.reset(token)


def close(drawn: Figure) -> None:
    """Remove a figure from pyplot, unless `kept_open` is in effect."""
    if not _OPEN.get():
        plt.close(drawn)


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of bayesfac, then restore the user's settings."""
    with matplotlib.rc_context(_STYLE), plt.ioff():
        yield


def figure(plot: str, tree: xr.DataTree, size: tuple[float, float], **settings: Any) -> Figure:
    """`arviz_plots.plot_<plot>` as a matplotlib figure."""
    draw = getattr(arviz_plots, f"plot_{plot}")
    with style():
        draw(tree, backend="matplotlib", figure_kwargs={"figsize": size}, **settings)
        drawn = plt.gcf()
        close(drawn)
        drawn.set_layout_engine("constrained")
    return drawn
