"""What the loops of all engines have in common: a progress bar, a pace, checkpoints and Ctrl-C."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from bayesfac.core.together import Alone
from bayesfac.inference.checkpoint import Checkpoint
from bayesfac.inference.result import Job, bar, program

BLOCK = 0.5  # seconds between two looks at the keyboard, the clock and the progress bar


class Run:
    """Around a loop of compiled calls, from step `done` to step `total` or less.

    Before a call the loop may ask for the `pace`, and after it the loop says what was `made`. `arrays` gives
    what a checkpoint holds; the last checkpoint is written at the end.

    Ctrl-C ends the loop without an error; then `interrupted` is true. It writes no checkpoint, because some
    arrays may be those after a call and others those before: the run continues from an earlier checkpoint.
    """

    def __init__(
        self,
        job: Job,
        done: int,
        total: int,
        point: Checkpoint,
        arrays: Callable[[], Mapping[str, Any]],
        place: Alone | None = None,
        what: str = "",
    ) -> None:
        self.point, self.arrays, self.place = point, arrays, place or Alone(job, None, program)
        self.interrupted, self.steps, self.begun = False, 1, 0.0
        self.shown = bar(job.progress, total, f"{job.method.name} {what}".strip())
        self.shown.update(done)

    def __enter__(self) -> Self:
        return self

    def pace(self) -> int:
        """How many steps the next call makes: one at first, and later as many as take `BLOCK` seconds, by
        the time of the call before, but at most twice as many as that."""
        if self.begun:
            seconds = self.place.agreed(time.perf_counter() - self.begun)
            self.steps = max(1, min(2 * self.steps, int(self.steps * BLOCK / max(seconds, 1e-9))))
        self.begun = time.perf_counter()
        return self.steps

    def made(self, steps: int, **numbers: Any) -> None:
        """Show that a call made so many steps, and these numbers; write a checkpoint if one is due."""
        self.shown.update(steps)
        if numbers:
            self.shown.set_postfix(numbers)
        if self.point.due():
            self.point.save(self.arrays())

    def __exit__(self, kind: type | None, *_: Any) -> bool:
        self.shown.close()
        self.interrupted = kind is KeyboardInterrupt
        if self.interrupted:
            self.place.interrupted()
        elif kind is None:
            self.point.save(self.arrays())
            self.place.finished()
        return self.interrupted

    def notes(self, chains: int, draws: int) -> list[str]:
        """What to say of the draws that all chains have."""
        if draws < 1:
            raise KeyboardInterrupt("interrupted during warm-up: there are no draws to return")
        return [f"interrupted: {chains} chain(s) of {draws} draws"] if self.interrupted else []
