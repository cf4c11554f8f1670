"""Coordinate ascent variational Bayes (VB): optimise the distribution of each site in turn."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.laws import response
from bayesfac.core.method import Method, from_sites, sites
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.fixed_point import FixedPoint
from bayesfac.inference.gibbs import continued
from bayesfac.inference.result import Engine, Job, Result, check_settings, program, require

FEW = 10  # sweeps of coordinate ascent after which chains are compared
SADDLE = (
    "standard deviations of rows are those of the variational distribution and may be too small: linear "
    "response, which would correct them, found no strict maximum of the ELBO"
)
AS_FITTED = (
    "standard deviations are those of the variational distribution and may be too small: {} has no linear "
    "response, so VB(widen=True) changes nothing"
)


@dataclass(frozen=True)
class VB(Engine):
    """Variational Bayes: approximate the posterior by a product of independent distributions of all sites.

    Coordinate ascent maximises the ELBO, which is a lower bound of the log probability of the data. Each row
    of a factor has a normal distribution with a full K x K covariance, and rows are independent of one
    another. Because this ignores correlations between rows, the distributions are too narrow; `widen`
    corrects this on average.

    Parameters
    ----------
    warmup : int
        Gibbs sweeps from the method's `init` before coordinate ascent begins. In many point estimates some
        components are zero. Coordinate ascent cannot change this, but Gibbs sweeps let them grow.
    chains : int
        The number of chains that make these sweeps, each from a start of its own, or all from the `init` of
        the fit. Some chains may lose a component. The fit continues from the chain with the highest ELBO
        after 10 sweeps of coordinate ascent.
    max_iter : int
        The largest number of sweeps.
    tol : float
        Stop when a sweep changes the ELBO by less than this, relative to 1 + |ELBO|.
    draws : int
        The number of independent draws from the fitted distribution.
    every : int
        Sweeps between two evaluations of the ELBO. With more than 1, sweeps have no momentum. The trace has
        minus the ELBO.
    widen : bool
        Multiply the standard deviations of rows by one factor, which comes from linear response and takes the
        time of a few sweeps. It includes correlations between rows given all other sites, but not the
        uncertainty of these sites; `docs/engines.md` has figures.
    check : bool
        Check the standard deviations by a few Gibbs sweeps, which take longer than the fit.
        `fit.diagnostics()` has the result.
    folder : str, optional
        Write a checkpoint there every `save_every` seconds. If the run is killed, the same call continues it.
    """

    warmup: int = 50
    chains: int = 4
    max_iter: int = 2000
    tol: float = 1e-5
    draws: int = 500
    every: int = 1
    widen: bool = True
    check: bool = False
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, warmup=0, chains=1, max_iter=1, draws=1, every=1)
        require(0 <= self.tol < 1, f"Expected VB(tol=...) in [0, 1), got {self.tol!r}")

    def run(self, job: Job) -> Result:
        """The fitted distribution, and draws from it. A resumed run begins at its checkpoint."""
        climbing = replace(job, method=ascent(job.method))
        point = Checkpoint(self.folder, job.identity, self.save_every)
        found = self._climb(self.max_iter).descend(climbing, self._start(job, climbing), point)
        many = program(drawn, job.data, job.method, job.hyper, self.draws, self.widen)
        draws, factor = many(found.params, jax.random.fold_in(job.key, 1), job.data)
        share = float(factor)
        notes = [SADDLE] if np.isnan(share) else response.told(share, "in the fitted law")
        law: Any = job.method.variational
        if self.widen and law.widened is None:
            notes = [AS_FITTED.format(job.method.name)]
        kept = {site: np.asarray(x)[None] for site, x in draws.items()}
        return replace(found, params=None, draws=kept, notes=[*found.notes, *notes])

    def _climb(self, sweeps: int) -> FixedPoint:
        return FixedPoint(sweeps, self.tol, every=self.every)

    def _start(self, job: Job, climbing: Job) -> Any:
        """Fit a few sweeps from the end of each Gibbs chain, and return the result with the highest ELBO."""
        begin, states = program(_begin, job.data, job.method, job.hyper), self._states(job)
        quiet, nowhere = replace(climbing, progress=False), Checkpoint(None, "", 0.0)

        def ended(p: Any) -> Result:
            end = self._climb(FEW).descend(quiet, begin(p, job.data), nowhere)
            if end.partial:
                raise KeyboardInterrupt("interrupted before a chain was chosen: there is no law")
            return end

        if len(states) == 1:
            return begin(states[0], job.data)
        # one law takes n x K x K numbers: `min` holds two at a time
        return min(map(ended, states), key=lambda end: end.trace[-1]).params

    def _states(self, job: Job) -> list[Any]:
        """The states of all Gibbs chains after their sweeps; without sweeps, one start."""
        keys = jax.random.split(job.key, self.chains)
        if not self.warmup or not job.method.gibbs.conditionals:
            return [job.start_point(job.key)]
        starts = jax.tree.map(lambda *each: jnp.stack(each), *map(job.start_point, keys))
        state = continued(job, starts, keys, self.warmup - 1, 1, 0)
        return [
            from_sites(job.method, {site: jnp.asarray(x[chain, 0]) for site, x in state.items()})
            for chain in range(self.chains)
        ]


@lru_cache
def ascent(method: Method) -> Method:
    """The record whose update is a sweep of q, and whose objective is minus the ELBO of q."""
    law: Any = method.variational

    def objective(q: Any, data: Any, hyper: Any) -> jax.Array:
        return -law.elbo(q, data, hyper)

    return replace(method, objective=objective, solver=method.solver._replace(update=law.update))


def _begin(method: Method, hyper: Any, p: Any, data: Any) -> Any:
    return method.variational.begin(p, data, hyper)  # type: ignore[union-attr]


def drawn(
    method: Method, hyper: Any, count: int, widen: bool, q: Any, key: jax.Array, data: Any
) -> tuple[dict[str, jax.Array], jax.Array]:
    """{site: draws} from the distribution q, wider if `widen`, and the factor of standard deviations."""
    law: Any = method.variational
    factor, (probe, *keys) = jnp.ones(()), jax.random.split(key, 1 + len(sites(q)))
    if widen and law.widened:
        wide, factor = law.widened(probe, q, data, hyper)
        q = jax.tree.map(lambda own, new: jnp.where(jnp.isnan(factor), own, new), q, wide)
    laws = law.laws(q).items()

    def each(key: jax.Array, own: Any) -> jax.Array:
        # one draw at a time: gamma variables are drawn by rejection, all of them until the last is accepted
        return jax.lax.map(own.sample, jax.random.split(key, count))

    found = {s: each(k, own) for k, (s, own) in zip(keys, laws, strict=False)}
    return law.split(found, hyper), factor
