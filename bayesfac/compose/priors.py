"""Priors of the rows of a factor, as a user names them in `bf.factorization`.

Each prior is a record of its settings, and makes a factor (`parts/factors.py`). A number in the record is the
default of the setting of the same name; None means that it follows from the data.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from bayesfac.core import checks
from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Gammas, Given, Wishart


@dataclass(frozen=True)
class Prior(ABC):
    """What all priors of rows have."""

    cite: ClassVar[str]
    model: ClassVar[str]  # the law of a row u
    example: ClassVar[dict[str, float]]  # settings for tests

    def settings(self, axis: str) -> dict[str, Any]:
        """{setting: its default} of rows along an axis."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @abstractmethod
    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        """The factor of these rows; `shared` if the rows of both axes have this prior."""

    @abstractmethod
    def filled(self, h: Any, scale: float) -> Any:
        """The settings completed and checked; `scale` is that of the scores of a good fit."""


@dataclass(frozen=True)
class NormalWishart(Prior):
    """Rows about a mean with any covariance, as in BPMF (Salakhutdinov & Mnih, ICML 2008).

    Parameters
    ----------
    beta0 : float
        The mean has the precision beta0 P.
    rate : float, optional
        P ~ Wishart(K, I / rate) with K degrees of freedom. None: the scale of the scores.
    """

    beta0: float = 0.01
    rate: float | None = None
    cite: ClassVar[str] = "salakhutdinov2008bpmf"
    model: ClassVar[str] = "N(mu, P^-1),  mu ~ N(0, (beta0 P)^-1),  P ~ Wishart(K, I / rate)"
    example: ClassVar[dict[str, float]] = {"beta0": 2.0, "rate": 1.2}

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Wishart(f"Lambda_{rows}"), f"mu_{rows}")

    def filled(self, h: Any, scale: float) -> Any:
        h = checks.filled(h, rate=scale)
        checks.positive(h, "beta0", "rate")
        return h


@dataclass(frozen=True)
class Relevance(Prior):
    """Rows about a mean with one precision for each component, so that components can switch off (Lim & Teh,
    KDD Cup 2007). If the rows of both axes have this prior, they share the precisions.

    Parameters
    ----------
    tau_shape, tau_rate : float
        tau_k ~ Gamma(tau_shape, tau_rate). If the rate is None, it is a quarter of the scale of the scores,
        over K^(1 / tau_shape): then more components change the prior little (see `ard_mf`).
    beta0 : float
        The mean has the precisions beta0 tau.
    """

    tau_shape: float = 0.5
    tau_rate: float | None = None
    beta0: float = 0.01
    cite: ClassVar[str] = "lim2007variational"
    model: ClassVar[str] = (
        "N(mu, diag(tau)^-1),  mu_k ~ N(0, 1 / (beta0 tau_k)),  tau_k ~ Gamma(tau_shape, tau_rate)"
    )
    example: ClassVar[dict[str, float]] = {"tau_shape": 2.0, "tau_rate": 1.2, "beta0": 2.0}

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Gammas("tau" if shared else f"tau_{rows}"), f"mu_{rows}")

    def filled(self, h: Any, scale: float) -> Any:
        checks.positive(h, "tau_shape", "beta0")
        h = checks.filled(h, tau_rate=scale / 4 / h.n_components ** (1 / h.tau_shape))
        checks.positive(h, "tau_rate")
        return h


@dataclass(frozen=True)
class Spherical(Prior):
    """Rows about zero with one standard deviation, as in PMF (Salakhutdinov & Mnih, NIPS 2007).

    Parameters
    ----------
    scale : float, optional
        The standard deviation, a setting `scale_user` or `scale_item` of the fit. None: held-out cells
        choose it.
    """

    scale: float | None = None
    cite: ClassVar[str] = "salakhutdinov2007pmf"
    model: ClassVar[str] = "N(0, sd^2 I)"
    example: ClassVar[dict[str, float]] = {"scale_user": 0.9, "scale_item": 1.2}

    def settings(self, axis: str) -> dict[str, Any]:
        return {f"scale_{axis}": self.scale}

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Given(f"scale_{axis}"))

    def filled(self, h: Any, scale: float) -> Any:
        free = [name for name in h._fields if name in ("scale_user", "scale_item")]
        # the products have 5 % of the variance, if both sides have it
        h = checks.filled(h, **dict.fromkeys(free, (scale**2 / 20 / h.n_components) ** 0.25))
        checks.positive(h, *free)
        return h
