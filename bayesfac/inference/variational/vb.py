"""Coordinate ascent variational Bayes: every site's law at its best given the others, in turn."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.method import Method, from_sites, sites
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.fixed_point import FixedPoint
from bayesfac.inference.gibbs import continued
from bayesfac.inference.result import Job, Result, check_number, check_settings, program, require

WIDER = "standard deviations of rows are {:.1%} wider than in the fitted law, by linear response"


@dataclass(frozen=True)
class VB:
    """Fit independent laws of all sites by coordinate ascent on the ELBO, then draw from them.

    Each row of a factor has a normal law with its full K x K covariance; rows, and sides, are independent.
    So the laws lack what the two sides share, and are too narrow. `widen` corrects them on average.

    Parameters
    ----------
    warmup : int
        Gibbs sweeps from the method's `init`, after which coordinate ascent begins. Where components have
        vanished, as in many points, coordinate ascent would leave them so; Gibbs lets them grow.
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
    max_iter: int = 2000
    tol: float = 1e-5
    draws: int = 500
    every: int = 5
    widen: bool = True
    check: bool = False
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, warmup=0, max_iter=1, draws=1, every=1)
        require(0 <= self.tol < 1, f"Expected VB(tol=...) in [0, 1), got {self.tol!r}")

    def run(self, job: Job) -> Result:
        """The law, and draws from it. A resumed run begins at the law of its checkpoint."""
        p = self._start(job)
        q = program(_begin, job.data, job.method, job.hyper)(p, job.data)
        climb = FixedPoint(self.max_iter, self.tol, accelerate=False, every=self.every)
        point = Checkpoint(self.folder, job.identity, self.save_every)
        found = climb.descend(replace(job, method=ascent(job.method)), q, point)
        many = program(drawn, job.data, job.method, job.hyper, self.draws, self.widen)
        draws, factor = many(found.params, jax.random.fold_in(job.key, 1), job.data)
        check_number(float(factor), "factor of standard deviations", "by linear response")
        notes = [WIDER.format(float(factor) - 1)] if factor != 1 else []
        kept = {site: np.asarray(x)[None] for site, x in draws.items()}
        return replace(found, params=None, draws=kept, notes=[*found.notes, *notes])

    def _start(self, job: Job) -> Any:
        """The state of one chain of Gibbs after some sweeps from the method's `init`."""
        p = job.start_point(job.key)
        if not self.warmup or not job.method.conditionals:
            return p
        chain = jax.tree.map(lambda x: x[None], p)
        state = continued(job, chain, jax.random.split(job.key, 1), self.warmup - 1, 1, 0)
        return from_sites(job.method, {site: jnp.asarray(x[0, 0]) for site, x in state.items()})


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
        q, factor = law.widened(probe, q, data, hyper)
    laws = law.laws(q).items()

    def each(key: jax.Array, own: Any) -> jax.Array:
        # one draw at a time: gamma numbers are drawn by rejection, all again until the last is accepted
        return jax.lax.map(own.sample, jax.random.split(key, count))

    found = {s: each(k, own) for k, (s, own) in zip(keys, laws, strict=False)}
    return law.split(found, hyper), factor
