r"""Weighted matrix factorization of implicit feedback, by alternating least squares.

Hu, Koren & Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008, eq. 3-6. The method
recommends items from counts, such as clicks. A pair with a count is preferred, p_ui = 1, with the confidence
c_ui = 1 + alpha epsilon log(1 + r_ui / epsilon), which is 1 + alpha r_ui for an infinite epsilon (eq. 6 calls
alpha what is alpha epsilon here). Any other pair is not preferred, p_ui = 0, with the confidence 1.

    J(U, V) = 1/(2 s^2) sum_ui c_ui (p_ui - u_u.v_i)^2 + 1/2 (|U|^2/s_u^2 + |V|^2/s_v^2)

    paper      here        shape
    x_u, y_i   U, V        users x K, items x K
    p, c       data.y, data.weight   listed pairs
    r          -           the counts: `ready` computes p and c from them
    alpha      alpha       one number; epsilon likewise
    lambda     (noise / scale_user)^2, (noise / scale_item)^2

The sum runs over all pairs, but zeros are not listed. As sum_ui (u_u.v_i)^2 = trace(U'U V'V), the normal
equations of a user are V'V, which is the same for all users, plus the sum of (c - 1) v v' over the user's own
pairs. The NumPyro model is p_ui ~ N(u_u.v_i, s^2 / c_ui) for all pairs, with given confidences. Preferences
are zeros and ones, so intervals of single cells say little. Every zero is an observation, so the posterior of
a user with few pairs is no wider than that of others (in `hpf` it is, relative to the rates). The paper has
only lambda, which determines the point estimate; s determines the width of the posterior.

Defaults: let d be the share of the pairs that are listed. c - 1 has the mean sqrt((1 - d) / d). This is the
geometric mean of two choices: equal confidence of all pairs, and equal total confidence of listed and other
pairs. epsilon is the median count, so that a few very large counts do not outweigh all other pairs. If you
give alpha, epsilon is infinite, as in eq. 3. s is the standard deviation of p, weighted by c. A table of
independent c p with this density has a largest singular value of about e = sqrt(d mean(c^2)) (sqrt(users) +
sqrt(items)). lambda is near e / 2, because the ridge subtracts lambda from every singular value. `bf.fit`
compares multiples of e / 2 by ranks of held-out pairs: pairs that only show how popular items are need a
larger lambda. With fewer than 500 pairs lambda is e / 2. The rules for alpha and lambda were checked by pairs
held out of the training pairs of MovieLens-100K and -1M.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.counts import Counts
from bayesfac.core.laws.counts import WeightedTable, weighted_error
from bayesfac.core.math import edge
from bayesfac.core.method import Choose, Notes, register
from bayesfac.parts.composition import composed
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed.normal import Preference
from bayesfac.parts.priors import ridge


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array


class Hyper(NamedTuple):
    n_components: int = 50  # upper limit: lambda switches off components below the noise
    alpha: float | None = None  # None: from the share of pairs that are listed
    epsilon: float | None = None  # larger counts enter as logarithms; None: the median count
    noise: float | None = None  # None: sd of preferences, weighted by confidence; at least .1
    scale_user: float | None = None  # None: chosen with scale_item by held-out pairs
    scale_item: float | None = None


def prepare(data: Counts, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    total = float(data.n_users * data.n_items)
    usual = float(np.median(data.value)) or 1.0
    hyper = checks.filled(hyper, epsilon=usual if hyper.alpha is None else np.inf)
    checks.positive(hyper, "epsilon", infinite=True)
    density, count = len(data) / total, dampened(np.maximum(data.value, 0), hyper)
    odds = max(1 - density, 0.5 / total) / density
    alpha = odds**0.5 / (count.mean() or 1.0) if hyper.alpha is None else hyper.alpha
    c = 1 + alpha * count
    share = c.sum() / (c.sum() + total - len(data))
    noise = max(share * (1 - share), 0.01) ** 0.5 if hyper.noise is None else hyper.noise
    scale = float(noise / (np.mean(c**2) ** 0.5 * edge(data) / 2) ** 0.5)
    hyper = hyper._replace(alpha=float(alpha), noise=float(noise))
    hyper = checks.filled(hyper, scale_user=scale, scale_item=scale)
    checks.positive(hyper, "alpha", "noise", "scale_user", "scale_item")
    return hyper


def dampened(count: Any, hyper: Hyper) -> Any:
    """(c - 1) / alpha."""
    if math.isinf(hyper.epsilon):
        return count
    log1p = jnp.log1p if isinstance(count, jax.Array) else np.log1p
    return hyper.epsilon * log1p(count / hyper.epsilon)


def choices(data: Counts, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
    """Scales that make lambda .35 to 2.8 times e / 2; the ranks of held-out pairs decide."""
    if chosen or hyper.scale_user is not None or hyper.scale_item is not None:
        return []
    scale = prepare(data, checks.sized(hyper, data)).scale_user
    each = [scale * 2 ** (-step / 4) for step in range(-3, 4)]
    return [{"scale_user": one, "scale_item": one} for one in each]


def ready(data: Counts, hyper: Hyper) -> Counts:
    """Preferences with their confidences, instead of counts."""
    if data.weight is not None:
        return data
    return data.replaced(y=jnp.ones_like(data.y), weight=1 + hyper.alpha * dampened(data.y, hyper))


def objective(p: Params, data: Counts, hyper: Hyper) -> jax.Array:
    fit = weighted_error(data.cells, data.y, data.weight, p.U, p.V) / hyper.noise**2
    ridge = jnp.sum(p.U**2) / hyper.scale_user**2 + jnp.sum(p.V**2) / hyper.scale_item**2
    return 0.5 * (fit + ridge)


def model(data: Counts, hyper: Hyper) -> None:
    (n, m), one = data.shape, jnp.ones(hyper.n_components)
    with numpyro.plate("user", n):
        U = numpyro.sample("U", dist.Normal(0, hyper.scale_user * one).to_event(1))
    with numpyro.plate("item", m):
        V = numpyro.sample("V", dist.Normal(0, hyper.scale_item * one).to_event(1))
    law = WeightedTable(U, V, data.cells, data.weight, hyper.noise**-2)
    numpyro.sample("rating", law, obs=data.y)


def example(key: jax.Array) -> tuple[Counts, Hyper]:
    data = Counts(np.asarray(jax.random.poisson(key, 0.8, (7, 5))))
    hyper = prepare(data, Hyper(2, alpha=0.7, noise=0.6, scale_user=0.8, scale_item=0.9))
    return ready(data, hyper), hyper


METHOD = register(
    composed(
        "wrmf", cite="hu2008wrmf", home=__name__, data=Counts, Params=Params, Hyper=Hyper,
        structure=Matrix((
            ridge("user", "U", "scale_user", linked=False),
            ridge("item", "V", "scale_item", linked=False),
        )),
        observed=Preference(), objective=objective, model=model, example=example, prepare=prepare,
        ready=ready,
        choose=Choose(candidates=choices, sweeps=8, by="ranks"),
        notes=Notes(traits={
            "nonnegative": "counts are not negative",
            "no_minibatch": "a law of the whole table: a sample of the listed pairs lacks the zeros",
        }),
    )
)  # fmt: skip
