"""Leave-one-out scores without refitting, by importance weights 1 / p(cell | draw); or by refitting.

Vehtari, Gelman & Gabry, "Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC",
Statistics and Computing 2017; for samples of cells: Magnusson, Vehtari, Jonasson & Andersen, AISTATS 2020.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.calls import Shared, finished_calls
from bayesfac.core.data.cards import check_same
from bayesfac.core.data.cells import Query
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError, noted
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.math import row_sums
from bayesfac.core.method import Method, from_sites, portable, site_dims
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.by_draw import param_blocks
from bayesfac.inference.predictions.pointwise import Told
from bayesfac.inference.result import bar
from bayesfac.inference.stored_draws import Thinned
from bayesfac.report.diagnostics import psis
from bayesfac.report.diagnostics.elpd import Loo
from bayesfac.report.diagnostics.psis import left_out
from bayesfac.split import k_fold

MEMORY = 2 * 2**30


def loo(
    fit: Any,
    data: Any,
    *,
    by: str = "cell",
    memory: int = MEMORY,
    subsample: int | None = None,
    seed: int = 0,
    thin: int = 1,
) -> Loo:
    """See `Fit.loo`."""
    if by not in ("cell", "user"):
        raise ValueError(f"Expected by='cell' or by='user', got {by!r}")
    begun = time.perf_counter()
    draws, data = draws_and_data(fit, data, thin)
    if by == "cell":
        result = by_cell(fit, data, draws, memory, subsample, seed)
    elif subsample is not None:
        raise ValueError(f"Expected subsample=None with by='user', got {subsample!r}")
    else:
        result = by_user(fit, data, draws, memory)
    return replace(result, seconds=time.perf_counter() - begun)


def draws_and_data(fit: Any, data: Any, thin: int = 1) -> tuple[Mapping[str, np.ndarray], Any]:
    """Every `thin`-th draw of a sampler, enough for importance weights, and the checked training data."""
    if fit.is_point:
        raise BayesfacError(
            f"Expected draws, got the point fit {fit.name!r}: fit it with Gibbs or NUTS, or refit it "
            "with fit.kfold(data)"
        )
    if type(fit.engine).__name__ not in ("Gibbs", "NUTS"):
        raise BayesfacError(
            f"Expected draws of the posterior, got those of {type(fit.engine).__name__}'s guide, which "
            "importance weights do not correct here: use Gibbs or NUTS, or refit with fit.kfold(data)"
        )
    length = next(iter(fit.draws.values())).shape[1]
    checks.whole("thin", thin, length, "the draws of a chain")
    draws = Thinned(fit.draws, thin)
    psis.enough(int(np.prod(next(iter(draws.values())).shape[:2])))
    data = fit.method.ready(data, fit.hyper)
    check_same(fit.data, data)
    return draws, data


def cells_of(fit: Any, data: Any) -> tuple[Told, pd.DataFrame, np.ndarray]:
    """The training cells, their labels, and the index of each cell's user or row."""
    query, labels, _ = fit.data.locate(data)
    cells = pointwise.told(fit.method, data, query, fit.data.levels)
    return cells, labels, pd.factorize(labels[fit.data.columns[0]])[0]


def what_is_scored(levels: Any) -> str:
    """The kind of score in words; densities and masses of levels cannot be compared."""
    return "log density" if levels is None else "log mass of the level"


def by_cell(
    fit: Any,
    data: Any,
    draws: Mapping[str, np.ndarray],
    memory: int,
    subsample: int | None,
    seed: int,
) -> Loo:
    """Leave out every cell, or a random sample of the cells."""
    pointwise.refuse_entangled(fit.method, data)
    cells, labels, cluster = cells_of(fit, data)
    at, lpd = None, None
    if subsample is not None:
        checks.whole("subsample", subsample, len(cells), "all cells")
        at = np.sort(checks.generator(seed).permutation(len(cells))[:subsample])
        lpd = pointwise.log_means(fit.method, fit.hyper, draws, cells, memory)
        cells, labels, cluster = cells.take(at), labels.iloc[at], cluster[at]
    chains, length = next(iter(draws.values())).shape[:2]
    elpd, whole, k = np.empty((3, len(cells)))
    for part, factor, score in pointwise.by_block(fit.method, fit.hyper, draws, cells, memory):
        elpd[part], whole[part], k[part] = psis.left_out(factor, score, chains)
    table = labels.reset_index(drop=True).assign(elpd=elpd, p_loo=whole - elpd, pareto_k=k)
    return Loo(
        fit.name, table, what_is_scored(fit.data.levels), fit.data.form.unit, "PSIS",
        chains * length, cluster, lpd, at,
    )  # fmt: skip


# -- refits: slower, without weights that could fail ---------------------------------------------
def kfold(
    whole: Any, data: Any, k: int, seed: int, jobs: int | None, refit: Callable[..., Any]
) -> Loo:
    """See `Fit.kfold`; `refit` is `bayesfac.fit`."""
    if not data.by_pair:
        raise BayesfacError(
            f"Expected ratings to divide into folds, got {type(data).__name__}: bf.evaluate holds out rows"
        )
    check_same(whole.data, data)
    begun = time.perf_counter()
    cells, labels, cluster = cells_of(whole, data)
    shared = Shared((data, tuple(cells.query)))
    again = partial(
        refit, portable(whole.method), seed=whole.seed, progress=False, **whole.hyper._asdict()
    )
    calls = [
        (_fold, shared, number, k, seed, again, _with_own_folder(whole.engine, number))
        for number in range(k)
    ]
    elpd = np.empty(len(data))
    with bar(True, k, f"{whole.name}: folds") as shown:
        for at, scores in finished_calls(calls, jobs):
            elpd[at] = scores
            shown.update(1)
    table = labels.assign(elpd=elpd, p_loo=_log_means(whole, cells) - elpd, pareto_k=np.nan)
    draws = int(np.prod(next(iter(whole._as_draws().values())).shape[:2]))
    notes = (f"Each of the {k} fits lacked a whole fold, so it knows less than without one cell.",)
    return Loo(
        whole.name, table, what_is_scored(whole.data.levels), data.unit, f"{k} folds", draws,
        cluster, seconds=time.perf_counter() - begun, notes=notes,
    )  # fmt: skip


def _fold(
    shared: tuple[Ratings, tuple], number: int, k: int, seed: int, again: Callable[..., Any], engine: Any
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The cells of one fold, and their log scores by a fit to all others."""
    data, query = shared
    train, test = next(islice(k_fold(data, k, seed=seed), number, None))
    with noted(f"in fold {number + 1} of {k}"):
        part = again(data=train, engine=engine)
    if part.partial:  # Ctrl-C: the scores of a part are not those of a whole fit
        raise KeyboardInterrupt(
            f"interrupted during fold {number + 1} of {k}: there are no scores of all cells"
        )
    code = data.user.astype(np.int64) * data.n_items + data.item
    at = np.isin(code, test.user.astype(np.int64) * data.n_items + test.item)
    # a label that has no rating outside the fold is predicted from the prior; where there are features, only
    # its draws know them
    located = Query(*query) if part.data.encodings else part.data.locate(data)[0]
    cells = pointwise.told(part.method, data, located, part.data.levels)
    with noted(f"in fold {number + 1} of {k}"):
        return at, _log_means(part, cells.take(at))


def _log_means(fit: Any, cells: Told) -> np.ndarray:
    return pointwise.log_means(fit.method, fit.hyper, fit._as_draws(), cells, MEMORY)


def _with_own_folder(engine: Any, number: int) -> Any:
    """The engine; if it writes draws, each fold has a folder of its own."""
    if getattr(engine, "folder", None) is None:
        return engine
    return replace(engine, folder=f"{engine.folder}/fold-{number}")


# -- users: their own factors are integrated out --------------------------------------------------
# log p(y_u | y_-u) = -log mean_s 1 / p(y_u | g_s),  g_s a draw of everything but the user's own factors x
# log p(y_u | g) = log p(y_u | x, g) + log p(x | g) - log p(x | y_u, g)  at any x (Chib, JASA 1995)
# The second line is exact where p(x | y_u, g), the Gibbs conditional, is Gaussian; x is its mean. The average
# over the draws is Pareto-smoothed, as for single cells.
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
