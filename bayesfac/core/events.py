"""Count how often safeguards inside updates are used, so that a fit can report the counts."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import jax

_listening: list[Counter[str]] = []


@contextmanager
def listen() -> Iterator[Counter[str]]:
    """Yield a counter of the events told inside the block."""
    counter: Counter[str] = Counter()
    _listening.append(counter)
    try:
        yield counter
        jax.effects_barrier()
    finally:
        _listening.pop()


def tell(event: str, happened: jax.Array) -> None:
    """Add `happened` to the count of `event`; works under jit; does nothing without a listener."""
    if _listening:
        jax.debug.callback(partial(_count, event), happened)


def _count(event: str, happened: jax.Array) -> None:
    if _listening:  # a program may outlive the listener of its first run
        _listening[-1][event] += int(happened)
