"""Stand-ins for fits, small and with known answers, so that the report is tested by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr
from scipy.stats import norm

from bayesfac import metrics
from bayesfac.core.data.cards import Card, describe
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.views import Views
from bayesfac.core.method import Axes, Method, Permutation, Rotation, from_sites
from bayesfac.core.method import sites as site_values
from bayesfac.report.diagnostics.held_out import LevelScores, Scores

USERS, ITEMS, RANK = 30, 20, 2
INFO = {
    "when": "2026-11-21T06:01:21+00:00", "versions": {"python": "3.11.7", "bayesfac": "0.1.0"},
    "device": "cpu x 1, 2 cores", "precision": "float32", "notes": [],
}  # fmt: skip


class RatingParams(NamedTuple):
    U: Any
    V: Any
    mu_U: Any
    mu_V: Any
    Lambda_U: Any
    Lambda_V: Any
    alpha: Any


class TopicParams(NamedTuple):
    A: Any
    B: Any
    C: Any


class StageParams(NamedTuple):
    U: Any
    V: Any
    mu: Any
    Lambda: Any
    theta: Any  # derived: what the model does not sample


class Hyper(NamedTuple):
    n_components: int = RANK
    scale: Any = 1.5


@dataclass(frozen=True)
class FixedPoint:
    max_iter: int = 200


@dataclass(frozen=True)
class Gibbs:
    warmup: int = 100
    draws: int = 100
    chains: int = 2


@dataclass(frozen=True)
class NUTS(Gibbs):
    max_tree_depth: int = 10
    thin: int = 1


@dataclass(frozen=True)
class SVI:
    steps: int = 400


def _unused(*_: Any) -> None:
    raise AssertionError("the report runs no method")


_STUBS = dict.fromkeys(("init", "objective", "model", "predict", "example"), _unused)

RATING = Method(
    name="toy_ratings",
    cite="nobody2026",
    data=Ratings,
    Params=RatingParams,
    Hyper=Hyper,
    **_STUBS,
    axes=Axes(
        dims={
            "U": ("user", "component"),
            "V": ("item", "component"),
            "mu_U": ("component",),
            "mu_V": ("component",),
            "Lambda_U": ("component", "component_"),
            "Lambda_V": ("component", "component_"),
            "alpha": (),
        },
        gauge=(
            Rotation(("U", "V"), {"U": 1, "V": 1, "mu_U": 0, "mu_V": 0}, ("Lambda_U", "Lambda_V")),
        ),
    ),
)


def _topic_gauge(names: tuple[str, ...]) -> tuple[Permutation, ...]:
    views = [name[2:] for name in names if name.startswith("B.")]
    clusters = Permutation({"A": 1, **{f"B.{view}": 0 for view in views}}, name="cluster")
    return clusters, *(Permutation({f"B.{v}": 1, f"C.{v}": 0}, name=f"topic.{v}") for v in views)


TOPIC = Method(
    name="toy_topics", cite="nobody2026", data=Views, Params=TopicParams, Hyper=Hyper, **_STUBS,
    axes=Axes(
        dims={ "A": ("row", "cluster"), "B": ("cluster", "topic.{key}"),
            "C": ("topic.{key}", "feature.{key}"), },
        gauge=_topic_gauge,
    ),
)  # fmt: skip


STAGED = Method(
    name="toy_stages", cite="nobody2026", data=Ratings, Params=StageParams, Hyper=Hyper, **_STUBS,
    axes=Axes(
        dims={ "U": ("stage", "user", "component"), "V": ("stage", "item", "component"),
            "mu": ("stage", "component"), "Lambda": ("stage", "component", "component_"),
            "theta": ("user", "level"), },
        gauge=(Rotation(("U", "V"), {"U": 2, "V": 2, "mu": 1}, ("Lambda",), each=True),),
    ),
)  # fmt: skip


@dataclass
class FakePrediction:
    """A mixture over draws of Gaussians with one noise sd; or probabilities, when noise is 0."""

    means: np.ndarray  # (chain, draw, n)
    noise: float
    levels: tuple[float, ...] | None = None

    def __len__(self) -> int:
        return self.means.shape[-1]

    @property
    def mean(self) -> np.ndarray:
        return self.means.mean((0, 1))

    @property
    def sd_mean(self) -> np.ndarray:
        return self.means.std((0, 1))

    @property
    def sd(self) -> np.ndarray:
        return np.sqrt(self.sd_mean**2 + self.noise**2)

    @property
    def flagged(self) -> np.ndarray:
        return np.zeros(len(self), bool)

    def draws_of_mean(self) -> np.ndarray:
        return self.means

    @property
    def means_of_parts(self) -> np.ndarray:
        chains, draws = self.means.shape[:2]
        pieces = np.array_split(self.means, min(draws, -(-8 // chains)), axis=1)
        return np.concatenate([piece.mean(1) for piece in pieces])

    @property
    def replicates(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        return np.arange(len(self)), rng.normal(self.mean, self.sd, (50, len(self)))

    def quantiles(self, tails: list[float]) -> np.ndarray:
        return self.mean + norm.ppf(tails)[:, None] * self.sd

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        half = norm.ppf(0.5 + level / 2) * self.sd
        return self.mean - half, self.mean + half

    @property
    def probabilities(self) -> np.ndarray:
        scale = np.asarray(self.levels)
        cuts = (scale[1:] + scale[:-1]) / 2
        below = ndtr((cuts - self.mean[:, None]) / self.sd[:, None])
        return np.diff(below, axis=1, prepend=0, append=1)

    @property
    def level(self) -> np.ndarray:
        return np.clip(np.rint(self.mean), self.levels[0], self.levels[-1])

    def scores(self, value: np.ndarray) -> dict[str, np.ndarray]:
        if self.levels is None:
            return self._scores(value)
        told = (self.probabilities, value, self.levels)
        more = {"ordinal_log_score": metrics.ordinal_log_score(*told), "rps": metrics.rps(*told)}
        return self._scores(value) | more

    def _scores(self, value: np.ndarray) -> dict[str, np.ndarray]:
        mean, sd = self.mean, self.sd
        z = (value - mean) / sd
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return {
            "mean": mean, "sd": sd, "log_score": np.log(density / sd), "pit": ndtr(z),
            "crps": sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)),
        }  # fmt: skip


@dataclass
class FakeFit:
    method: Method
    engine: Any
    data: Card
    draws: Mapping[str, np.ndarray] | None = None
    params: Any = None
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    trace: np.ndarray = field(default_factory=lambda: 100 * np.exp(-np.arange(50) / 8) + 20)
    noise: float = 0.5
    seed: int = 0
    seconds: float = 1.25
    converged: bool | None = True
    partial: bool = False
    hyper: Any = Hyper()
    info: dict[str, Any] = field(default_factory=lambda: dict(INFO))

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def is_point(self) -> bool:
        return self.draws is None

    def predict(self, query: Any) -> FakePrediction:
        sites = self.draws or {
            k: np.asarray(v)[None, None] for k, v in site_values(self.params).items()
        }
        if self.data.kind == "Views":
            return FakePrediction(_probabilities(self, sites, query), 0.0)
        (user, item, *_), _, _ = self.data.locate(query)
        told = (sites["U"][..., user, :] * sites["V"][..., item, :]).sum(-1)
        means = 3 + told.reshape(*told.shape[:2], -1, told.shape[-1]).sum(2)  # over stages
        return FakePrediction(means, self.noise, self.data.levels)


def _probabilities(fit: FakeFit, sites: Mapping[str, np.ndarray], query: Any) -> np.ndarray:
    frame = query.frame() if isinstance(query, Views) else query
    out = np.zeros((*sites["A"].shape[:2], len(frame)))
    row = fit.data.coords["row"].get_indexer(frame["row"])
    for view in frame["view"].unique():
        here = (frame["view"] == view).to_numpy()
        column = fit.data.coords[f"feature.{view}"].get_indexer(frame["feature"][here])
        topics = np.einsum("cdkq,cdqm->cdkm", sites[f"B.{view}"], sites[f"C.{view}"])
        out[:, :, here] = np.einsum(
            "cdnk,cdkn->cdn", sites["A"][:, :, row[here]], topics[..., column]
        )
    return out


# -- ratings ------------------------------------------------------------------------------------
@cache
def _truth() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.normal(size=(USERS, RANK)) * [1.2, 0.7], rng.normal(size=(ITEMS, RANK)) * 0.8


def ratings_draws(chains: int = 2, draws: int = 100, turn: bool = True, noise: float = 0.1,
                  seed: int = 0) -> dict[str, np.ndarray]:  # fmt: skip
    """Draws about a known truth, each in its own frame when `turn`."""
    rng = np.random.default_rng(seed)
    u, v = _truth()
    shape = (chains, draws)
    spread = noise if turn else 0.0
    out = {
        "U": u + spread * rng.normal(size=(*shape, *u.shape)),
        "V": v + spread * rng.normal(size=(*shape, *v.shape)),
        "mu_U": np.array([2.0, -1.0]) + 0.05 * rng.normal(size=(*shape, RANK)),
        "mu_V": np.array([0.5, 1.0]) + 0.05 * rng.normal(size=(*shape, RANK)),
        "Lambda_U": np.diag([4.0, 1.0]) + np.zeros((*shape, RANK, RANK)),
        "Lambda_V": np.diag([1.0, 2.0]) + np.zeros((*shape, RANK, RANK)),
        "alpha": 4 + 0.2 * rng.normal(size=shape),
    }
    if turn:
        r = np.linalg.qr(rng.normal(size=(*shape, RANK, RANK)))[0]
        for name in ("U", "V"):
            out[name] = out[name] @ r
        for name in ("mu_U", "mu_V"):
            out[name] = (out[name][..., None, :] @ r)[..., 0, :]
        for name in ("Lambda_U", "Lambda_V"):
            out[name] = np.swapaxes(r, -1, -2) @ out[name] @ r
    return out


@cache
def ratings_sets(hostile: bool = False) -> tuple[Ratings, Ratings]:
    """(train, test): what the truth would have given, with noise of sd 0.5."""
    rng = np.random.default_rng(3)
    u, v = _truth()
    user, item = (grid.ravel() for grid in np.meshgrid(range(USERS), range(ITEMS), indexing="ij"))
    label = np.array([f"user {i:02d}" for i in range(USERS)], object)
    if hostile:
        label[:3] = ["<script>alert(1)</script>", "$x_{$", "\"quoted\" & 'odd'"]
    value = 3 + (u @ v.T)[user, item] + 0.5 * rng.normal(size=len(user))
    seen = rng.random(len(user)) < np.linspace(0.2, 0.9, USERS)[user]
    kept = np.flatnonzero(seen | (item == user % ITEMS) | (user == item))
    everything = Ratings(pd.DataFrame({
        "user": label[user[kept]],
        "item": [f"item {j:02d}" for j in item[kept]],
        "rating": value[kept],
    }))  # fmt: skip
    held = rng.random(len(kept)) < 0.3
    return everything.take(~held), everything.take(held)


@cache
def level_sets() -> tuple[Ratings, Ratings]:
    """The same, rounded to one of five stars."""
    rounded = (np.clip(np.rint(part.value), 1, 5) for part in ratings_sets())
    frames = (p.frame().assign(rating=v) for p, v in zip(ratings_sets(), rounded, strict=True))
    return tuple(Ratings(frame, levels=5) for frame in frames)


def staged_draws(chains: int = 2, draws: int = 40, turn: bool = True) -> dict[str, np.ndarray]:
    """Three stages, each draw of each in a frame of its own when `turn`."""
    rng = np.random.default_rng(6)
    shape = (chains, draws, 3)
    u, v = (np.stack([size * site for size in (0.8, 0.6, 0.4)]) for site in _truth())
    out = {
        "U": np.tile(u, (chains, draws, 1, 1, 1)),
        "V": np.tile(v, (chains, draws, 1, 1, 1)),
        "mu": np.tile([2.0, -1.0], (*shape, 1)),
        "Lambda": np.tile(np.diag([4.0, 1.0]), (*shape, 1, 1)),
        "theta": rng.normal(size=(chains, draws, USERS, 5)),
    }
    if turn:
        r = np.linalg.qr(rng.normal(size=(*shape, RANK, RANK)))[0]
        out |= {name: (out[name] + 0.05 * rng.normal(size=out[name].shape)) @ r for name in "UV"}
        out["mu"] = (out["mu"][..., None, :] @ r)[..., 0, :]
        out["Lambda"] = np.swapaxes(r, -1, -2) @ out["Lambda"] @ r
    return out


def sampled_stages() -> FakeFit:
    engine = Gibbs(draws=40, chains=2)
    return FakeFit(STAGED, engine, describe(level_sets()[0]), staged_draws(), converged=None)


def point_ratings(hostile: bool = False, **changes: Any) -> FakeFit:
    rng = np.random.default_rng(11)
    u, v = _truth()
    params = {"U": u + 0.3 * rng.normal(size=u.shape), "V": v + 0.3 * rng.normal(size=v.shape)}
    fit = FakeFit(
        RATING,
        FixedPoint(),
        describe(ratings_sets(hostile)[0]),
        params=from_sites(RATING, params),
        noise=0.3,
        seconds=0.2,
    )
    return replace(fit, **changes)


def sampled_ratings(
    chains: int = 2, draws: int = 100, engine: Any = None, hostile: bool = False, **changes: Any
) -> FakeFit:
    rng = np.random.default_rng(5)
    sites = ratings_draws(chains, draws)
    stats = {"lp": -500 + 3 * rng.normal(size=(chains, draws))}
    if isinstance(engine, NUTS):
        stats |= {
            "diverging": np.zeros((chains, draws), bool),
            "energy": 500 + 4 * rng.normal(size=(chains, draws)),
            "tree_depth": np.full((chains, draws), 5), "n_steps": np.full((chains, draws), 31),
            "acceptance_rate": np.full((chains, draws), 0.9),
        }  # fmt: skip
    engine = engine or Gibbs(draws=draws, chains=chains)
    fit = FakeFit(
        RATING, engine, describe(ratings_sets(hostile)[0]), sites, stats=stats, converged=None
    )
    if isinstance(engine, SVI):
        noise = rng.normal(size=400)
        fit = replace(fit, stats={}, trace=800 * np.exp(-np.arange(400) / 30) + 500 + noise)
    else:
        fit = replace(fit, trace=-stats["lp"].ravel())
    return replace(fit, **changes)


# -- topics -------------------------------------------------------------------------------------
@cache
def views_set() -> Views:
    rng = np.random.default_rng(2)
    return Views({"pix": rng.poisson(1.0, (24, 12)), "fou": rng.poisson(1.0, (24, 9))})


def _topic_sites() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    sites = {"A": rng.dirichlet(np.ones(3) * 0.3, 24)}
    for view, size in (("fou", 9), ("pix", 12)):
        sites[f"B.{view}"] = rng.dirichlet(np.ones(4), 3)
        sites[f"C.{view}"] = rng.dirichlet(np.ones(size) * 0.2, 4)
    return sites


def point_views(**changes: Any) -> FakeFit:
    return replace(
        FakeFit(
            TOPIC, FixedPoint(), describe(views_set()), params=from_sites(TOPIC, _topic_sites())
        ),
        **changes,
    )


def sampled_views(chains: int = 2, draws: int = 60, **changes: Any) -> FakeFit:
    rng = np.random.default_rng(4)
    out = {name: np.tile(site, (chains, draws, 1, 1)) for name, site in _topic_sites().items()}
    for site in out.values():
        site += 0.002 * rng.random(site.shape)
        site /= site.sum(-1, keepdims=True)
    for at in np.ndindex(chains, draws):
        cluster = rng.permutation(3)
        out["A"][at] = out["A"][at][:, cluster]
        for view in ("fou", "pix"):
            topic = rng.permutation(4)
            out[f"B.{view}"][at] = out[f"B.{view}"][at][cluster][:, topic]
            out[f"C.{view}"][at] = out[f"C.{view}"][at][topic]
    stats = {"lp": -900 + rng.normal(size=(chains, draws))}
    engine = Gibbs(draws=draws, chains=chains)
    fit = FakeFit(TOPIC, engine, describe(views_set()), out, stats=stats, converged=None)
    return replace(fit, trace=-stats["lp"].ravel(), **changes)


# -- scores -------------------------------------------------------------------------------------
def simulated_scores(n: int = 4000, stated: float = 1.0, seed: int = 0) -> Scores:
    """Truths with sd 1 about the mean, forecast with the sd `stated`."""
    rng = np.random.default_rng(seed)
    mean, sd = rng.normal(size=n), np.full(n, stated)
    value = mean + rng.normal(size=n)
    log_score, pit = norm.logpdf(value, mean, sd), norm.cdf(value, mean, sd)
    ends = mean - norm.ppf(0.95) * sd, mean + norm.ppf(0.95) * sd
    cluster, activity = rng.integers(50, size=n), rng.integers(1, 100, size=n)
    return Scores(
        value, mean, sd, log_score, sd * 0, pit, *ends, activity, cluster, np.zeros(n, bool)
    )


def simulated_levels(sharpen: float = 1.0, n: int = 4000) -> LevelScores:
    """Levels that come true as often as said, said again with powers of the probabilities."""
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(4), n)
    code = (rng.random((n, 1)) > np.cumsum(true, 1)[:, :-1]).sum(1)
    said = true**sharpen / (true**sharpen).sum(1, keepdims=True)
    base = {name: getattr(simulated_scores(n), name) for name in Scores.__dataclass_fields__}
    told = {"level": said.argmax(1) + 1.0, "probabilities": said, "levels": (1.0, 2.0, 3.0, 4.0)}
    nothing = {"ordinal_log_score": np.zeros(n), "rps": np.zeros(n)}
    return LevelScores(**{**base, "value": code + 1.0}, **told, **nothing)


# -- names that would break a page or a picture ---------------------------------------------------
NAMES = {"point": "<script>alert('name')</script>", "NUTS": '$x_{1 & "draws"$'}
