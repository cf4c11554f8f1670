"""Ratings that are given more often where they are high, and ratings of random items beside them."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings
from bayesfac.datasets.generators import check_sizes


class Selected(NamedTuple):
    """The truth of `make_selected`: expected ratings, and probabilities that a user gives a rating, both
    users x items, and the standard deviation of the noise."""

    score: np.ndarray
    propensity: np.ndarray
    noise: float


def make_selected(
    n_users: int = 200,
    n_items: int = 150,
    rank: int = 3,
    strength: float = 1.0,
    *,
    noise: float = 0.5,
    density: float = 0.2,
    asked: int = 30,
    seed: int = 0,
) -> tuple[Ratings, Ratings, Selected]:
    """Ratings that users chose to give, ratings of items that they were asked for, and the truth.

    The ratings are those of `make_gaussian`: U V' with variance 1, plus noise. Each user is asked for the
    ratings of `asked` random items. Of all other items a user rates those that he chooses, and the more he
    will like an item, the more often: the logarithm of the odds is a constant plus `strength` times the
    expected rating. With a strength of 1, an expected rating that is one standard deviation higher has 2.7
    times the odds; with 0, items are chosen at random. The constant is such that propensities have the mean
    `density`. A user or item may have no rating among the first.

    Examples
    --------
    >>> chosen, asked, truth = make_selected(60, 50, strength=2.0, asked=10)
    >>> len(asked), bool(chosen.value.mean() > asked.value.mean() + 0.5)
    (600, True)
    """
    check_sizes(noise, n_users=n_users, n_items=n_items, rank=rank, asked=asked)
    if not (0 < density < 1 and np.isfinite(strength)):
        raise ValueError(
            f"Expected a density between 0 and 1 and a finite strength, got {density}, {strength}"
        )
    if asked >= n_items:
        raise ValueError(f"Expected asked to be below the {n_items} items, got {asked}")
    rng = checks.generator(seed)
    U = rng.standard_normal((n_users, rank))
    score = U @ rng.standard_normal((n_items, rank)).T / np.sqrt(rank)
    far = np.abs(strength * score).max() + abs(np.log(density / (1 - density))) + 1
    constant = brentq(lambda c: expit(c + strength * score).mean() - density, -far, far)
    propensity = expit(constant + strength * score)
    value = score + noise * rng.standard_normal(score.shape)
    first = rng.random(score.shape).argsort(1)[:, :asked]
    random = np.zeros(score.shape, bool)
    np.put_along_axis(random, first, True, 1)
    chosen = ~random & (rng.random(score.shape) < propensity)
    given, asked_for = (
        Ratings(np.nonzero(kept)[0], np.nonzero(kept)[1], value[kept]) for kept in (chosen, random)
    )
    return given, asked_for, Selected(score, propensity, float(noise))
