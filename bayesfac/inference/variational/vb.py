"""Coordinate ascent variational Bayes: every site's law at its best given the others, in turn."""

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
from bayesfac.inference.result import Job, Result, check_settings, program, require

FEW = 10  # sweeps of coordinate ascent after which chains are compared
SADDLE = (
    "standard deviations of rows are those of the fitted law, which may be too narrow: linear response finds "
    "no strict maximum of the ELBO there"
)
AS_FITTED = (
    "standard deviations are those of the fitted law, which may be too narrow: {} has no linear response, so "
    "that VB(widen=True) changes nothing"
)


@dataclass(frozen=True)
class VB:
    """Fit independent laws of all sites by coordinate ascent on the ELBO, then draw from them.

    Each row of a factor has a normal law with its full K x K covariance; rows, and sides, are independent.
    So the laws ignore correlations between rows, and are too narrow. `widen` corrects them on average.

    Parameters
    ----------
    warmup : int
        Gibbs sweeps from the method's `init`, after which coordinate ascent begins. Where components have
        vanished, as in many points, coordinate ascent would leave them so; Gibbs lets them grow.
    chains : int
        Chains of these sweeps, each from a start of its own, or all from the `init` of the fit. Some chains
        may miss a component. The fit goes on from the chain whose law has the highest ELBO after 10 sweeps.
    max_iter : int
        Sweeps at most.
    tol : float
        Stop when the ELBO changes by less than this, relative to 1 + |ELBO|, per sweep.
    draws : int
        Independent draws from the fitted law.
    every : int
        Sweeps between two evaluations of the ELBO, which enter the trace with the sign changed.
    widen : bool
        Multiply the standard deviations of rows by one factor, for methods of ratings: by linear response,
        which takes the time of a few sweeps. It counts what rows of both sides share, given all other
        sites, and not the uncertainty of these: `docs/engines.md` has figures.
    check : bool
        Compare the widths of the draws with those after a few Gibbs sweeps, which take longer than the fit;
        `fit.diagnostics()` says the result.
    folder : str, optional
        Keep a checkpoint there, written every `save_every` seconds; a killed run resumes from it.
    """

    warmup: int = 50
    chains: int = 4
    max_iter: int = 2000
    tol: float = 1e-5
    draws: int = 500
    every: int = 5
    widen: bool = True
    check: bool = False
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, warmup=0, chains=1, max_iter=1, draws=1, every=1)
        require(0 <= self.tol < 1, f"Expected VB(tol=...) in [0, 1), got {self.tol!r}")

    def run(self, job: Job) -> Result:
        """The law, and draws from it. A resumed run begins at the law of its checkpoint."""
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
        return FixedPoint(sweeps, self.tol, accelerate=False, every=self.every)

    def _start(self, job: Job, climbing: Job) -> Any:
        """Of the laws that begin at the chains of Gibbs, the one with the highest ELBO after a few sweeps."""
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
        """The states of all chains of Gibbs after their sweeps; without sweeps, one start."""
        keys = jax.random.split(job.key, self.chains)
        if not self.warmup or not job.method.conditionals:
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

    return replace(method, objective=objective, update=law.update)


def _begin(method: Method, hyper: Any, p: Any, data: Any) -> Any:
    return method.variational.begin(p, data, hyper)  # type: ignore[union-attr]


def drawn(
    method: Method, hyper: Any, count: int, widen: bool, q: Any, key: jax.Array, data: Any
) -> tuple[dict[str, jax.Array], jax.Array]:
    """{site: draws} of the law q, wider if `widen`, and the factor of standard deviations."""
    law: Any = method.variational
    factor, (probe, *keys) = jnp.ones(()), jax.random.split(key, 1 + len(sites(q)))
    if widen and law.widened:
        wide, factor = law.widened(probe, q, data, hyper)
        q = jax.tree.map(lambda own, new: jnp.where(jnp.isnan(factor), own, new), q, wide)
    laws = law.laws(q).items()

    def each(key: jax.Array, own: Any) -> jax.Array:
        # one draw at a time: gamma numbers are drawn by rejection, all again until the last is accepted
        return jax.lax.map(own.sample, jax.random.split(key, count))

    found = {s: each(k, own) for k, (s, own) in zip(keys, laws, strict=False)}
    return law.split(found, hyper), factor
