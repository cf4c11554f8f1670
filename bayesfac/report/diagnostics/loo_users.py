"""Leave-one-user-out scores, with the user's own factors integrated out.

    log p(y_u | y_-u) = -log mean_s 1 / p(y_u | g_s),    g_s a draw of everything but the user's own factors x
    log p(y_u | g) = log p(y_u | x, g) + log p(x | g) - log p(x | y_u, g)      at any x (Chib, JASA 1995)

The second line is exact where p(x | y_u, g), the Gibbs conditional, is Gaussian; x is its mean. The average
over the draws is Pareto-smoothed, as for single cells.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.math import row_sums
from bayesfac.core.method import Method, from_sites, site_dims
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.by_draw import param_blocks
from bayesfac.report.diagnostics.elpd import Loo
from bayesfac.report.diagnostics.psis import left_out


def by_user(fit: Any, data: Any, draws: Mapping[str, np.ndarray], memory: int) -> Loo:
    """Leave out every user who has ratings."""
    site = own_site(fit.method, data, draws)
    _check_gaussian(fit, data, draws, site)
    active = np.flatnonzero(fit.data.row_counts > 0)
    chains, length = next(iter(draws.values())).shape[:2]
    elpd, whole, k = np.full((3, data.n_users), np.nan)
    for first, last in _blocks(fit.data.row_counts, draws, site, memory):
        logs = _block(fit, data.of_users(first, last), draws, site, slice(first, last), memory)
        here = active[(first <= active) & (active < last)]
        of_active = logs[here - first]
        elpd[here], whole[here], k[here] = left_out(of_active, of_active, chains)
    table = pd.DataFrame({"user": data.users[active], "ratings": fit.data.row_counts[active]})
    table = table.assign(elpd=elpd[active], p_loo=(whole - elpd)[active], pareto_k=k[active])
    what = "log density of all ratings of a user"
    cluster = np.arange(len(active))
    return Loo(fit.name, table, what, "user", "PSIS", chains * length, cluster)


def own_site(method: Method, data: Any, draws: Mapping[str, np.ndarray]) -> str:
    """The name of the users' site; an error unless there is exactly one and it has a conditional."""
    start = f"{method.name} cannot leave out a user:"
    if not data.by_pair:
        raise BayesfacError(f"{start} its data are {type(data).__name__}, not ratings")
    own = [site for site in draws if "user" in site_dims(method, site)]
    if method.gibbs.augment is not None:
        raise BayesfacError(
            f"{start} the conditional of {' and '.join(own)} is known given auxiliary variables only, one "
            "for each rating, and auxiliary variables cannot be integrated out"
        )
    if not set(own) & set(method.gibbs.conditionals):
        raise BayesfacError(f"{start} it declares no conditional of {' and '.join(own)}")
    if len(own) != 1:
        raise BayesfacError(
            f"{start} a user has {len(own)} blocks ({', '.join(own)}), and the method declares no joint "
            "conditional" + (" (without biases there is one)" if "bias_user" in own else "")
        )
    return own[0]


def _check_gaussian(fit: Any, data: Ratings, draws: Mapping[str, np.ndarray], site: str) -> None:
    """Refuse a conditional that is not Gaussian row by row."""
    like = from_sites(fit.method, {s: jnp.asarray(v[0, 0]) for s, v in draws.items()})
    kind: list[type] = []
    conditional = fit.method.gibbs.conditionals[site]
    jax.eval_shape(lambda p: kind.append(type(conditional(p, data, fit.hyper))), like)
    if kind[0] is not GaussianRows:
        raise BayesfacError(
            f"{fit.name} cannot leave out a user: the conditional of {site} is a {kind[0].__name__}, not "
            "Gaussian row by row"
        )


def _blocks(
    counts: np.ndarray, draws: Mapping[str, np.ndarray], site: str, memory: int
) -> Iterator[tuple[int, int]]:
    """Ranges of users that fit into memory, with factors per rating, K x K systems, and smoothing."""
    chains, length, _, K = draws[site].shape
    each = 8 * (4 * K * K + pointwise.ARRAYS * chains * length)
    cost = np.cumsum(each + 8 * np.asarray(counts, float) * K * (K + 4))
    first = 0
    while first < len(cost):
        spent = cost[first - 1] if first else 0.0
        last = max(first + 1, int(np.searchsorted(cost, spent + memory / 2, side="right")))
        while last < len(cost) and not counts[first:last].any():
            last += 1  # a range ends with a user who has ratings
        if counts[first:last].any():
            yield first, last
        first = last


def _block(
    fit: Any, part: Ratings, draws: Mapping[str, np.ndarray], site: str, users: slice, memory: int
) -> np.ndarray:
    """log p(y_u | g_s), users x draws."""
    axis = site_dims(fit.method, site).index("user") + 2
    at = (slice(None),) * axis + (users,)
    own = {s: value[at] if s == site else value for s, value in draws.items()}
    blocks = param_blocks(fit.method, own, part.n_users, memory // 4)
    logs = (_marginal(fit.method, fit.hyper, site, params, part) for params in blocks)
    return np.concatenate([np.asarray(block, float) for block in logs]).T


@partial(jax.jit, static_argnums=(0, 1, 2))
def _marginal(method: Method, hyper: Any, site: str, params: Any, part: Ratings) -> jax.Array:
    def one(p: Any) -> jax.Array:
        law = method.gibbs.conditionals[site](p, part, hyper)
        parts = (law.rows, law.target, law.V, law.weight, law.precision, law.shift)
        P, b = sparse.normal_equations(*parts)
        x = jnp.linalg.solve(P, b[..., None])[..., 0]
        x = x if law.centre is None else x + law.centre
        laws = pointwise.laws(method, p._replace(**{site: x}), part, hyper)
        likelihood = row_sums(part.cells.by_row, laws["rating"].log_prob(part.y))
        conditional = 0.5 * (jnp.linalg.slogdet(P)[1] - x.shape[1] * jnp.log(2 * jnp.pi))
        return likelihood + laws[site].log_prob(x) - conditional

    return jax.lax.map(one, params)
