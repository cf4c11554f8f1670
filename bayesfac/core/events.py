"""What happened inside an update that its caller should hear of: safeguards that fired, counted."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import jax

_listening: list[Counter[str]] = []


@contextmanager
def listen() -> Iterator[Counter[str]]:
    """Count what is told inside the block."""
    heard: Counter[str] = Counter()
    _listening.append(heard)
    try:
        yield heard
        jax.effects_barrier()
    finally:
        _listening.pop()


def tell(what: str, happened: jax.Array) -> None:
    """Once more, if it happened; also from compiled code. Nothing where nobody listens."""
    if _listening:
        jax.debug.callback(partial(_count, _listening[-1], what), happened)


def _count(heard: Counter[str], what: str, happened: jax.Array) -> None:
    heard[what] += int(happened)
