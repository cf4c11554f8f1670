"""Laws of the observations given their scores, as a user names them in `bf.factorization`.

Each law is a record of its settings, and makes a part of `parts/observed/`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import numpy as np

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.errors import Settings
from bayesfac.core.laws.ordinal import levelled
from bayesfac.parts.estimate import noise_choices
from bayesfac.parts.observed import bernoulli, negative_binomial, noises, student_t
from bayesfac.parts.observed import normal as normal_part
from bayesfac.parts.observed import ordinal as ordinal_part
from bayesfac.parts.observed import thresholds as cuts


def snake(name: str) -> str:
    """A name of a class in the form of other names."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


@dataclass(frozen=True)
class Law(Settings, ABC):
    """What all laws have."""

    cite: ClassVar[str]
    about: ClassVar[str]  # the values
    model: ClassVar[str]  # the law of a value y given its score x
    example: ClassVar[dict[str, float]]  # settings for tests
    has_update: ClassVar[bool] = True  # whether sweeps of modes are its solver
    has_draws: ClassVar[bool] = False  # whether predictions for new labels need draws of scores

    def settings(self) -> dict[str, Any]:
        """{setting: its default}."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def word(self) -> str:
        """Its part of the name of a factorization."""
        return snake(type(self).__name__)

    @property
    @abstractmethod
    def part(self) -> Any:
        """The law as a part."""

    @property
    def said(self) -> str:
        """The law of a value, with the settings of the record."""
        return self.model

    def filled(self, data: Any, h: Any) -> Any:
        """The settings completed and checked; values that the law cannot have are refused."""
        return self.part.prepare(data, h)

    def scale(self, data: Any) -> float:
        """The scale of the scores of a good fit."""
        return 1.0

    def choices(self, data: Any, h: Any, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        """Candidates of its settings, for held-out cells."""
        return []

    def valued(self, x: Any) -> Any:
        """Values for tests, made of normal numbers."""
        return x

    def few(self, key: jax.Array) -> Ratings:
        """Ratings for tests."""
        return few_ratings(key, of=self.valued)

    def sampler(self) -> dict[str, Any]:
        """Entries of the record's group `gibbs`."""
        return {}


@dataclass(frozen=True)
class Real(Law):
    """Real values with a noise that is learned: its precision alpha, and the prior of alpha."""

    alpha: float | None = None
    alpha_shape: float = 1.0
    alpha_rate: float | None = None
    example: ClassVar[dict[str, float]] = {"alpha_shape": 2.0, "alpha_rate": 1.0}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"offset": None}

    def scale(self, data: Any) -> float:
        return data.spread

    def choices(self, data: Any, h: Any, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        return noise_choices(data, h, chosen)


@dataclass(frozen=True)
class Normal(Real):
    """Real values with a noise that is learned: y ~ N(m + x, 1 / alpha), alpha ~ Gamma(shape, rate).

    Parameters
    ----------
    alpha : float, optional
        A number fixes the precision of the noise.
    alpha_shape, alpha_rate : float
        The prior of alpha. If the rate is None, it is the variance of the values.
    per : "user", "item" or the name of a mode, optional
        Each user, item or label of this mode has a noise of its own: alpha_j ~ Gamma(alike, alike v). The
        variance v of a usual label is learned; its prior is exponential with the mean `alpha_rate`. alpha and
        alpha_shape are then not used.
    alike : float
        The precisions alpha_j vary by 1 / sqrt(alike) of their mean; above 1.

    Examples
    --------
    >>> import numpy as np, bayesfac as bf
    >>> rng = np.random.default_rng(0)
    >>> score = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 20))
    >>> sd = np.where(np.arange(20) < 10, 0.1, 1.0)  # ten items are measured well, ten badly
    >>> model = bf.factorization(observed=bf.Normal(per="item"))
    >>> table = bf.Ratings(score + sd * rng.normal(size=score.shape))
    >>> alpha = bf.fit(model, table, n_components=2, progress=False).params.alpha
    >>> bool(alpha[:10].min() > 10 * alpha[10:].max())
    True
    """

    per: str | None = None
    alike: float = 2.0
    cite: ClassVar[str] = "salakhutdinov2008bpmf"
    about: ClassVar[str] = "real values"
    model: ClassVar[str] = "N(m + x, 1 / alpha),  alpha ~ Gamma(alpha_shape, alpha_rate)"

    def __post_init__(self) -> None:
        if self.per and self.alpha is not None:
            raise ValueError(
                f"Expected alpha=None with per={self.per!r}, got {self.alpha}: bf.Normal({self.alpha}) has "
                "one noise of all cells"
            )

    def settings(self) -> dict[str, Any]:
        found = super().settings()
        unused = ("alpha", "alpha_shape", "per") if self.per else ("per", "alike")
        return {name: value for name, value in found.items() if name not in unused}

    @property
    def word(self) -> str:
        return f"normal_per_{self.per}" if self.per else "normal"

    @property
    def part(self) -> Any:
        return noises.Noises(self.per) if self.per else normal_part.Normal()

    @property
    def said(self) -> str:
        if not self.per:
            return self.model
        return (
            f"N(m + x, 1 / alpha_j),  alpha_j ~ Gamma(alike, alike v),  v ~ Gamma(1, 1 / alpha_rate),  "
            f"j the {self.per}"
        )

    def choices(self, data: Any, h: Any, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        return [] if self.per else super().choices(data, h, chosen)

    def sampler(self) -> dict[str, Any]:
        # a share has no sums over the cells of each label of the other axis
        return {"divisible": not self.per}


@dataclass(frozen=True)
class StudentT(Real):
    """Real values with heavy tails, so that outliers move the factors little: (y - m - x) sqrt(alpha) has
    Student's t law with nu degrees of freedom.

    Parameters
    ----------
    alpha : float, optional
        A number fixes the precision of the noise.
    alpha_shape, alpha_rate : float
        The prior of alpha. If the rate is None, it is the variance of the values.
    nu : float
        Degrees of freedom, above 2; with 30 the law is nearly normal.
    """

    nu: float = 4.0
    cite: ClassVar[str] = "lange1989robust"
    about: ClassVar[str] = "real values with outliers"
    model: ClassVar[str] = "t(nu) about m + x, precision alpha ~ Gamma(alpha_shape, alpha_rate)"

    @property
    def part(self) -> Any:
        return student_t.StudentT()


@dataclass(frozen=True)
class Bernoulli(Law):
    """Values 0 and 1: P(y = 1) = F(m + x), with the m of the share of ones.

    Parameters
    ----------
    link : "logit" or "probit"
        F is the logistic or the normal distribution function.
    """

    link: str = "logit"
    cite: ClassVar[str] = "polson2013bayesian"
    about: ClassVar[str] = "values 0 and 1"
    model: ClassVar[str] = "1 with probability F(m + x), else 0"
    example: ClassVar[dict[str, float]] = {}
    has_draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.one_of(self, "link", ("logit", "probit"))

    def settings(self) -> dict[str, Any]:
        return {"offset": None}

    @property
    def part(self) -> Any:
        return bernoulli.Bernoulli(self.link)

    def valued(self, x: Any) -> Any:
        return 1.0 * (x > 0)


@dataclass(frozen=True)
class NegativeBinomial(Law):
    """Counts of listed cells that vary more than Poisson ones: E y = exp(m + x), Var y = E y + (E y)^2 / r.

    Parameters
    ----------
    r : float, optional
        A number fixes the dispersion; a small r makes counts spread far.
    r_shape, r_rate : float
        r ~ Gamma(r_shape, r_rate), if it is learned.
    """

    r: float | None = None
    r_shape: float = 1.0
    r_rate: float = 0.1
    cite: ClassVar[str] = "polson2013bayesian"
    about: ClassVar[str] = "counts of listed cells"
    model: ClassVar[str] = "NB with E y = exp(m + x), dispersion r ~ Gamma(r_shape, r_rate)"
    example: ClassVar[dict[str, float]] = {"r_shape": 2.0, "r_rate": 0.7}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"offset": None}

    @property
    def part(self) -> Any:
        return negative_binomial.NegativeBinomial()

    def valued(self, x: Any) -> Any:
        return np.floor(2 * np.exp(x))


@dataclass(frozen=True)
class Ordinal(Law):
    """Levels, as stars: P(y <= r) = F((theta_r - x) / s), with thresholds that are learned.

    Parameters
    ----------
    link : "probit" or "logistic"
        F is the normal or the logistic distribution function. Gibbs needs "probit".
    thresholds : "shared" or "user"
        Whether all users have the same thresholds, or each has their own about the population's.
    spread : "shared" or "user"
        Whether s is 1 for all users, or each user has an s of its own, since ratings of some users are
        noisier than those of others: log s_i ~ N(0, scale_spread^2).
    scale_shift, scale_gap, scale_spread : float
        Of users: the standard deviation of the first threshold, of the logarithm of each gap, and of log s.
    """

    link: str = "probit"
    thresholds: str = "shared"
    spread: str = "shared"
    scale_shift: float = 0.5
    scale_gap: float = 0.3
    scale_spread: float = 0.3
    cite: ClassVar[str] = "koren2011ordrec"
    about: ClassVar[str] = "levels, as stars or answers"
    model: ClassVar[str] = "level r with probability F(theta_r - x) - F(theta_(r-1) - x)"
    example: ClassVar[dict[str, float]] = {}
    has_update: ClassVar[bool] = False
    has_draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.one_of(self, "spread", ("shared", "user"))

    def settings(self) -> dict[str, Any]:
        found = super().settings() | {"levels": None}
        unused = ("spread",) if self.spread == "user" else ("spread", "scale_spread")
        return {name: value for name, value in found.items() if name not in unused}

    @property
    def word(self) -> str:
        own = [what for what in ("thresholds", "spread") if getattr(self, what) == "user"]
        return "_".join(["ordinal", *(f"user_{what}" for what in own)])

    @property
    def part(self) -> Any:
        return ordinal_part.Ordinal("a factorization with bf.Ordinal()", self.spread == "user")

    @property
    def said(self) -> str:
        if self.spread == "shared":
            return self.model
        return (
            "level r with probability F((theta_r - x) / s_i) - F((theta_(r-1) - x) / s_i),  "
            "log s_i ~ N(0, scale_spread^2)"
        )

    def filled(self, data: Any, h: Any) -> Any:
        h = levelled(data, h, self.part.name)
        cuts.checked(h)
        return h

    def few(self, key: jax.Array) -> Ratings:
        return few_ratings(key, levels=4)

    def sampler(self) -> dict[str, Any]:
        alone = tuple(self.part.moves)
        return {
            "divisible": True,
            "row_moves": lambda hyper: alone if hyper.link == "probit" else None,
        }
