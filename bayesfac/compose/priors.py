"""Priors of the rows of a factor, as a user names them in `bf.factorization`.

Each prior is a record of its settings, and makes a factor (`parts/factors.py`). A number in the record is the
default of the setting of the same name; None means that it follows from the data.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from bayesfac.core import checks
from bayesfac.core.errors import Settings
from bayesfac.parts import priors as usual
from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Gammas, Given, Wishart
from bayesfac.parts.rows import mixtures


@dataclass(frozen=True)
class Prior(Settings, ABC):
    """What all priors of rows have."""

    cite: ClassVar[str]
    model: ClassVar[str]  # the law of a row u
    example: ClassVar[dict[str, float]]  # settings for tests
    shared: ClassVar[str] = ""  # what all modes of a tensor share, in words
    positive: ClassVar[bool] = False  # whether rows have entries of at least 0

    def settings(self, axis: str = "") -> dict[str, Any]:
        """{setting: its default} of rows along an axis; without one, of the rows of all modes."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @abstractmethod
    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        """The factor of these rows; `shared` if the rows of both axes have this prior."""

    @abstractmethod
    def keyed(self, mode: str) -> Factor:
        """The factor of a mode of a tensor; all modes have this prior."""

    @abstractmethod
    def filled(self, h: Any, scale: float, degree: int) -> Any:
        """The settings completed and checked; `scale` is that of the scores of a good fit, and `degree` the
        number of rows that a score multiplies."""


@dataclass(frozen=True)
class NormalWishart(Prior):
    """Rows about a mean with any covariance, as in BPMF (Salakhutdinov & Mnih, ICML 2008).

    Parameters
    ----------
    beta0 : float
        The mean has the precision beta0 P.
    rate : float, optional
        P ~ Wishart(K, I / rate) with K degrees of freedom. None: the scale of the scores; in a tensor of M
        modes (scale^2 K^(M - 2))^(1 / M), so that products vary alike.
    """

    beta0: float = 0.01
    rate: float | None = None
    cite: ClassVar[str] = "salakhutdinov2008bpmf"
    model: ClassVar[str] = "N(mu, P^-1),  mu ~ N(0, (beta0 P)^-1),  P ~ Wishart(K, I / rate)"
    example: ClassVar[dict[str, float]] = {"beta0": 2.0, "rate": 1.2}

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Wishart(f"Lambda_{rows}"), f"mu_{rows}")

    def keyed(self, mode: str) -> Factor:
        return usual.keyed(mode)

    def filled(self, h: Any, scale: float, degree: int) -> Any:
        rate = (scale**2 * h.n_components ** (degree - 2)) ** (1 / degree)
        h = checks.filled(h, rate=rate)
        checks.positive(h, "beta0", "rate")
        return h


@dataclass(frozen=True)
class Relevance(Prior):
    """Rows about a mean with one precision for each component, so that components can switch off (Lim & Teh,
    KDD Cup 2007). If the rows of both axes have this prior, they share the precisions, as all modes of a
    tensor do.

    Parameters
    ----------
    tau_shape, tau_rate : float
        tau_k ~ Gamma(tau_shape, tau_rate). If the rate is None, it is a quarter of the scale of the scores,
        over K^(1 / tau_shape): then more components change the prior little (see `ard_mf`). In a tensor of M
        modes the quarter has the power 2 / M, so that products vary alike.
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
    shared: ClassVar[str] = ", with one tau for all"

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Gammas("tau" if shared else f"tau_{rows}"), f"mu_{rows}")

    def keyed(self, mode: str) -> Factor:
        return Factor(mode, f"U.{mode}", Gammas("tau"), f"mu.{mode}")

    def filled(self, h: Any, scale: float, degree: int) -> Any:
        checks.positive(h, "beta0")
        return switched(h, scale, degree)


@dataclass(frozen=True)
class Sparse(Prior):
    """Rows about zero of which many entries are nearly zero; every component has a precision of its own."""

    tau_shape: float = 0.5
    tau_rate: float | None = None
    shared: ClassVar[str] = ", with tau of its own"

    @abstractmethod
    def mixture(self, end: str) -> Any:
        """The law of the entries, whose site ends so."""

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Gammas(f"tau_{rows}"), mixture=self.mixture(f"_{rows}"))

    def keyed(self, mode: str) -> Factor:
        return Factor(mode, f"U.{mode}", Gammas(f"tau.{mode}"), mixture=self.mixture(f".{mode}"))


@dataclass(frozen=True)
class SpikeAndSlab(Sparse):
    """Rows about zero whose entries are either nearly zero (in the spike) or not (in the slab), with the
    share of the slab learned for each component (George & McCulloch, JASA 1993). `fit.loadings` has the
    probability that an entry is in the slab.

    Parameters
    ----------
    tau_shape, tau_rate : float
        The slab of component k has the variance 1 / tau_k, tau_k ~ Gamma(tau_shape, tau_rate), as in
        `Relevance`.
    spike : float
        The standard deviation of the spike in units of the slab's; not 0, so that the density of the rows
        exists, and NUTS and a point too.
    share_a, share_b : float
        The share of the slab is Beta(share_a, share_b).
    """

    spike: float = 0.05
    share_a: float = 2.0
    share_b: float = 2.0
    cite: ClassVar[str] = "george1993variable"
    model: ClassVar[str] = (
        "pi_k N(0, 1 / tau_k) + (1 - pi_k) N(0, spike^2 / tau_k) for each entry k,  "
        "pi_k ~ Beta(share_a, share_b)"
    )
    example: ClassVar[dict[str, float]] = {
        "tau_shape": 2.0, "tau_rate": 1.2, "spike": 0.3, "share_a": 2.0, "share_b": 3.0
    }  # fmt: skip

    def mixture(self, end: str) -> Any:
        return mixtures.SpikeAndSlab(f"share{end}")

    def filled(self, h: Any, scale: float, degree: int) -> Any:
        checks.positive(h, "spike", "share_a", "share_b")
        if h.spike >= 1:
            raise ValueError(f"Expected spike below 1, the scale of the slab, got {h.spike!r}")
        return switched(h, scale, degree)


@dataclass(frozen=True)
class Horseshoe(Sparse):
    """Rows about zero whose entries are small, or hardly shrunken: the regularised horseshoe (Piironen &
    Vehtari, EJS 2017), with the scales of entries on a grid of 14 (`parts/rows/mixtures.py`).

    Parameters
    ----------
    tau_shape, tau_rate : float
        The scale of component k is tau_k^(-1/2), tau_k ~ Gamma(tau_shape, tau_rate), as in `Relevance`.
    slab : float
        The largest standard deviation of an entry, in units of the component's scale.
    """

    slab: float = 10.0
    cite: ClassVar[str] = "piironen2017sparsity"
    model: ClassVar[str] = (
        "N(0, s^2 / tau_k) for each entry k,  s^2 = slab^2 l^2 / (slab^2 + l^2),  l half-Cauchy"
    )
    example: ClassVar[dict[str, float]] = {"tau_shape": 2.0, "tau_rate": 1.2, "slab": 2.0}

    def mixture(self, end: str) -> Any:
        return mixtures.Horseshoe()

    def filled(self, h: Any, scale: float, degree: int) -> Any:
        checks.positive(h, "slab")
        return switched(h, scale, degree)


@dataclass(frozen=True)
class Spherical(Prior):
    """Rows about zero with one standard deviation, as in PMF (Salakhutdinov & Mnih, NIPS 2007).

    Parameters
    ----------
    scale : float, optional
        The standard deviation, a setting `scale_user` or `scale_item` of the fit, or `scale` of all modes of
        a tensor. None: held-out cells choose it; in a tensor, products then have a quarter of the variance.
    """

    scale: float | None = None
    cite: ClassVar[str] = "salakhutdinov2007pmf"
    model: ClassVar[str] = "N(0, sd^2 I)"
    example: ClassVar[dict[str, float]] = {"scale_user": 0.9, "scale_item": 1.2, "scale": 0.9}
    shared: ClassVar[str] = "; sd is the setting scale"

    def settings(self, axis: str = "") -> dict[str, Any]:
        return {f"scale_{axis}" if axis else "scale": self.scale}

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Given(f"scale_{axis}"))

    def keyed(self, mode: str) -> Factor:
        return Factor(mode, f"U.{mode}", Given("scale"))

    def filled(self, h: Any, scale: float, degree: int) -> Any:
        free = [name for name in h._fields if name in self.example]
        # the products have 5 % of the variance, if both sides have it; no cells choose that of a tensor
        share = 20 if degree == 2 else 4
        sd = (scale**2 / share / h.n_components) ** (0.5 / degree)
        h = checks.filled(h, **dict.fromkeys(free, sd))
        checks.positive(h, *free)
        return h


@dataclass(frozen=True)
class NonNegative(Prior):
    """Rows with entries of at least 0, half-normal with one precision for each component, so that components
    can switch off (Tan & Fevotte, PAMI 2013). If both axes have this prior, they share the precisions, as all
    modes of a tensor do.

    A score is then a sum of parts, as a spectrum is of the spectra of substances, and explains the value
    itself: `offset` is 0. Values are for `Normal` or `StudentT`; a few below 0, from noise, do no harm. If
    the other axis has another prior, scores may have any sign, and the offset is the mean of the values.

    Parameters
    ----------
    tau_shape, tau_rate : float
        tau_k ~ Gamma(tau_shape, tau_rate). If the rate is None, it is that of `Relevance`, with the root mean
        square of the values less the offset as their scale.

    Examples
    --------
    >>> import numpy as np, bayesfac as bf
    >>> rng = np.random.default_rng(0)
    >>> amounts, spectra = rng.gamma(1.0, size=(30, 2)), rng.gamma(1.0, size=(2, 20))
    >>> seen = np.where(rng.random((30, 20)) < 0.8, amounts @ spectra, np.nan)
    >>> model = bf.factorization(bf.NonNegative())
    >>> fit = bf.fit(model, bf.Ratings(seen), n_components=2, progress=False)
    >>> bool((fit.params.U >= 0).all() and (fit.params.V >= 0).all())
    True
    """

    tau_shape: float = 0.5
    tau_rate: float | None = None
    cite: ClassVar[str] = "tan2013automatic"
    model: ClassVar[str] = "N(0, diag(tau)^-1) cut to u >= 0,  tau_k ~ Gamma(tau_shape, tau_rate)"
    example: ClassVar[dict[str, float]] = {"tau_shape": 2.0, "tau_rate": 1.2}
    shared: ClassVar[str] = ", with one tau for all"
    positive: ClassVar[bool] = True

    def factor(self, axis: str, rows: str, shared: bool) -> Factor:
        return Factor(axis, rows, Gammas("tau" if shared else f"tau_{rows}"), positive=True)

    def keyed(self, mode: str) -> Factor:
        return Factor(mode, f"U.{mode}", Gammas("tau"), positive=True)

    def filled(self, h: Any, scale: float, degree: int) -> Any:
        return switched(h, scale, degree)


def switched(h: Any, scale: float, degree: int) -> Any:
    """The settings of components that can switch off."""
    checks.positive(h, "tau_shape")
    rate = (scale / 4) ** (2 / degree) / h.n_components ** (1 / h.tau_shape)
    h = checks.filled(h, tau_rate=rate)
    checks.positive(h, "tau_rate")
    return h
