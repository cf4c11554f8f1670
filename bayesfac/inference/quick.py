"""A short Gibbs run, which stops when predictions are precise enough."""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax

from bayesfac.core import checks
from bayesfac.inference.checkpoint import SAVE_EVERY
from bayesfac.inference.gibbs import Gibbs, draws_of_a_sweep
from bayesfac.inference.result import Engine, Job, Result, check_settings
from bayesfac.inference.widths import monte_carlo_error

FEWEST, MOST = 80, 640  # sweeps of a chain: fewer blur the spread; more are a run for `Gibbs`
STUCK = 0.85  # of the error before; with twice as many independent draws it would be .71
JITTER, OVER = 0.1, 0.5  # of the chains: both shorten the way from the start

SHORT = (
    "the Monte Carlo error of predictions is {:.2f} of their standard deviation, or of half that of the "
    "outcome, after {} sweeps, and the aim was {:g}: a long run of Gibbs is more precise"
)


@dataclass(frozen=True)
class Quick(Engine):
    """A Gibbs run that is only as long as precise predictions need.

    The chains begin at the method's own start, or at rotated copies of `init`. They make 80 sweeps, and then
    160, 320 or 640 in all, of which the second half is kept. The run ends when the Monte Carlo error of
    the predictions at some cells (the probe cells) is small enough. It also ends when this error hardly falls
    any more, for example because the chains stay in different modes. A kept sweep gives several draws, as
    `Gibbs(pairs=...)` describes. The rule does not use the time, so the same seed gives the same fit.

    Parameters
    ----------
    error : float
        The Monte Carlo error that ends the run, in units of the standard deviation of an expected outcome,
        or of half that of the outcome where this is smaller: .1 then costs at most .00125 of the log score.
        If the run ends with a larger error, the fit says so.
    sweeps : int, optional
        A fixed number of sweeps of each chain. `fit.engine.sweeps` says how many sweeps were made.
    chains : int
        The number of independent chains.
    draws : int
        The largest number of draws that each chain keeps, from evenly spaced sweeps.
    pairs : int
        The number of pairs of draws of each block of normal rows at a kept sweep.
    folder : str, optional
        Write draws and checkpoints to this folder, as Gibbs does.
    """

    error: float = 0.1
    sweeps: int | None = None
    chains: int = 2
    draws: int = 320
    pairs: int = 1
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        least = {"chains": 1, "draws": 4, "pairs": 0}
        check_settings(self, **least, **({} if self.sweeps is None else {"sweeps": 4}))
        checks.positive(self, "error")

    def run(self, job: Job) -> Result:
        """Run chains, each time to twice as many sweeps. An interrupted run returns the last draws."""
        found: Result | None = None
        n, before = self.sweeps or FEWEST, math.inf
        starts = Gibbs(chains=self.chains, jitter=JITTER).starts(job)
        each = draws_of_a_sweep(job, jax.tree.map(lambda x: x[0], starts), self.pairs)
        while True:
            longer = replace(job, identity=f"{job.identity} {n} sweeps")
            try:
                new = self.chains_of(n, each).run(longer, found.last if found else (0, starts))
            except KeyboardInterrupt:
                if found is None:
                    raise
                return replace(found, notes=[f"interrupted after {n // 2} sweeps"], partial=True)
            new.engine = replace(self, sweeps=n)
            if new.partial or self.sweeps is not None:
                return new
            error = monte_carlo_error(job, new.draws)
            if error is None or error <= self.error:
                return new
            if n == MOST or error > STUCK * before:
                new.notes.append(SHORT.format(error, n, self.error))
                return new
            found, n, before = new, 2 * n, error

    def chains_of(self, sweeps: int, each: int) -> Gibbs:
        """A Gibbs run of so many sweeps. The second half is kept, and a kept sweep gives `each` draws."""
        half, most = sweeps - sweeps // 2, max(1, self.draws // each)
        thin = -(-half // most)
        kept = half // thin
        folder = None if self.folder is None else f"{self.folder}/{sweeps}"
        place: dict[str, Any] = {"folder": folder, "save_every": self.save_every}
        warmup = sweeps - kept * thin
        return Gibbs(warmup, kept, self.chains, thin, JITTER, self.pairs, OVER, **place)
