"""The plain data of a fit, with its predictions: what everything that one does with a fit begins with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bayesfac.core.data.cards import Card
from bayesfac.core.laws.units import cut_of
from bayesfac.core.method import COLLAPSED, Method, sites
from bayesfac.inference.predictions import related
from bayesfac.inference.predictions.conformal import Recalibration
from bayesfac.inference.predictions.predict import Prediction
from bayesfac.inference.result import Result


@dataclass(eq=False)
class Fitted:
    """A method, its settings, and the result of an engine. `Fit` adds what one does with it."""

    method: Method
    hyper: Any
    engine: Any
    seed: int
    result: Result = field(repr=False)
    data: Card = field(repr=False)
    seconds: float = 0.0
    info: dict[str, Any] = field(default_factory=dict, repr=False)
    recalibration: Recalibration | None = field(default=None, repr=False)  # of `Fit.recalibrated`

    @property
    def name(self) -> str:
        """The method's name."""
        return self.method.name

    @property
    def is_point(self) -> bool:
        """Whether the fit is a point estimate; otherwise it has draws."""
        return self.result.draws is None

    @property
    def params(self) -> Any:
        """The point estimate. Draws have none: a mean of rotated factors is meaningless."""
        if self.is_point:
            return self.result.params
        raise AttributeError(
            "Expected a point fit, got draws: .posterior has them, .aligned() puts their factors in one "
            "frame, .predict(query) averages predictions"
        )

    @property
    def draws(self) -> Mapping[str, np.ndarray] | None:
        """{site: (chain, draw, ...)}, or None for a point."""
        return self.result.draws

    @property
    def stats(self) -> dict[str, np.ndarray]:
        """Statistics of a sampler, {name: (chain, draw)}; `lp` is the log joint density."""
        return self.result.stats

    @property
    def trace(self) -> np.ndarray:
        return self.result.trace

    @property
    def converged(self) -> bool | None:
        return self.result.converged

    @property
    def partial(self) -> bool:
        """Whether the run was interrupted, so that the fit has fewer steps or draws."""
        return self.result.partial

    @property
    def cut(self) -> float | None:
        """The probability above which a label is predicted; None for methods without labels."""
        return cut_of(self.hyper) if self.data.form.by_cut else None

    @property
    def notes(self) -> list[str]:
        """Sentences on how settings were chosen, then remarks of the engine and the method."""
        return [*self.info.get("chosen", ()), *self.result.notes]

    @property
    def tried(self) -> pd.DataFrame | None:
        """What `bf.auto` tried before this fit, best first; None for a fit by `bf.fit`."""
        rows = self.info.get("tried")
        return None if rows is None else pd.DataFrame(rows).astype({"components": "Int64"})

    def predict(
        self, query: Any, *, matrix: str | None = None, user_features: Any = None, item_features: Any = None
    ) -> Prediction:  # fmt: skip
        """The predictive distribution of each cell of the query, in the order of the query.

        `query` is a container, or a table of labels without values. The prediction for a user, item or row
        without training data comes from the prior and is flagged. If the training data had features, this
        prior uses the features of new users and items (by default those of the query). For a fit to
        `Relations`, `matrix` names the matrix. For new rows of `Tasks` and `Views` call `fold_in` first.
        """
        return related.predict(self, query, matrix, {"user": user_features, "item": item_features})

    def _as_draws(self) -> Mapping[str, np.ndarray]:
        if self.draws is not None:
            return self.draws
        return {site: np.asarray(value)[None, None] for site, value in sites(self.params).items()}

    def __repr__(self) -> str:
        engine = type(self.engine).__name__
        if self.is_point:
            state = "converged" if self.converged else "not converged"
            if any(note.startswith(COLLAPSED) for note in self.result.notes):
                state += ", but collapsed"
            after = f"after {(n := len(self.trace) - 1)} evaluation{'s' * (n != 1)}"
            what = f"point, objective {self.trace[-1]:.6g} {after}, {state}"
        else:
            chains, draws = next(iter(self._as_draws().values())).shape[:2]
            what = f"{chains} chain(s) x {draws} draws"
        part = ", interrupted" if self.partial else ""
        line = f"Fit({self.name} by {engine}: {what}{part}, {self.seconds:.1f} s)"
        corrected = [str(self.recalibration)] if self.recalibration else []
        return "\n".join([line, *self.info.get("chosen", ()), *self.data.remarks, *corrected])


F = TypeVar("F", bound=Fitted)  # what is made from a fit is of its class
