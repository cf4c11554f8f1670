"""A figure with its caption: how to read it, and whether this one is good."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics.findings import Finding

SIZE = (5.4, 3.5)
DOTS = 110


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure that explains itself. `finding` holds the caption's judgement on this very one."""

    figure: Figure
    title: str
    how: str
    finding: Finding

    @property
    def caption(self) -> str:
        """One sentence on how to read it, one on this one."""
        return f"{self.how} {self.finding}"

    def png(self) -> bytes:
        """The picture as a PNG file's bytes."""
        target = io.BytesIO()
        with arviz_versions.style():
            self.figure.savefig(target, format="png", dpi=DOTS)
        return target.getvalue()

    @property
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
    """An empty figure of our style that pyplot knows nothing of, and its axes as a flat array."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, np.ravel(figure.subplots(rows, columns, squeeze=False))


def short(label: str, width: int = 30) -> str:
    """A label that fits above a panel."""
    return label if len(label) <= width else label[: width - 1] + "…"
