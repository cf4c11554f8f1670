"""A figure with a caption that explains how to read the figure and judges this one."""

import base64
import io
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from bayesfac.report import drawing
from bayesfac.report.diagnostics.findings import Finding

SIZE = (5.4, 3.5)
DOTS = 110


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, how to read the figure, and the finding about this one."""

    figure: Figure
    title: str
    how: str
    finding: Finding

    @property
    def caption(self) -> str:
        """How to read the figure, then the finding."""
        return f"{self.how} {self.finding}"

    def png(self) -> bytes:
        """The bytes of a PNG file."""
        figure, target = self.figure, io.BytesIO()
        kept, dots = figure.canvas, figure.dpi
        with drawing.style():
            try:  # `savefig` would draw the figure twice
                figure.dpi = DOTS
                drawn = FigureCanvasAgg(figure)
                drawn.draw()
                Image.fromarray(np.asarray(drawn.buffer_rgba())).convert("RGB").save(target, "png")
            finally:
                figure.dpi = dots
                figure.set_canvas(kept)
        return target.getvalue()

    @cached_property
    def uri(self) -> str:
        """The picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png()).decode("ascii")

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height in pixels."""
        width, height = self.figure.get_size_inches() * DOTS
        return round(width), round(height)

    def _repr_png_(self) -> bytes:
        return self.png()


def canvas(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE
) -> tuple[Figure, np.ndarray]:
    """An empty figure, and its axes as a flat array."""
    figure = plt.figure(figsize=size, layout="constrained")
    drawing.close(figure)
    return figure, np.ravel(figure.subplots(rows, columns, squeeze=False))


@contextmanager
def panel(
    title: str, x: str, y: str, legend: str = "best", **limits: Any
) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes; title, labels, limits and legend are set after the body."""
    with drawing.style():
        figure, (axes,) = canvas()
        yield figure, axes
        axes.set(xlabel=x, ylabel=y, **limits)
        axes.set_title(title, loc="left")
        if legend:
            axes.legend(loc=legend)


def colour(number: int) -> str:
    """The colour of the n-th fit or chain."""
    return drawing.COLOURS[number % len(drawing.COLOURS)]


def wrapped(label: str, width: int) -> str:
    r"""The label in two lines of at most `width` characters; what is longer is cut.

    >>> wrapped("prediction (customer-1, film with a long title)", 28)
    'prediction (customer-1, film\nwith a long title)'
    """
    return "\n".join(textwrap.wrap(label, width, max_lines=2, placeholder="…"))


def short(label: str, width: int = 30) -> str:
    """The label, cut to at most `width` characters."""
    return label if len(label) <= width else label[: width - 1] + "…"


def distinct(
    labels: Iterable[str], width: int = 30, cut: Callable[[str, int], str] = short
) -> list[str]:
    """The labels, cut: in the middle if their beginnings are alike; what is still alike gets a number.

    >>> distinct(["customer of the shop 7", "customer of the shop 8", "ann"], 12)
    ['custom…hop 7', 'custom…hop 8', 'ann']
    >>> distinct(["one", "one"])
    ['one', 'one (2)']
    """
    whole, half, found = list(labels), width // 2, list[str]()
    begun = [cut(label, width) for label in whole]
    for label, start in zip(whole, begun, strict=True):
        if len(label) > width and begun.count(start) > 1:
            start = cut(f"{label[:half]}…{label[half + 1 - width :]}", width)
        numbers = (f"{cut(label, width - 4)} ({n})" for n in count(2))
        found.append(next(name for name in chain([start], numbers) if name not in found))
    return found
