"""Milliseconds of a Gibbs sweep, all models in turn in one process."""

import statistics
import time
from collections.abc import Mapping
from typing import Any

import bayesfac as bf


def in_turn(
    models: Mapping[str, tuple[Any, Any, Mapping[str, Any]]], repeats: int, length: int
) -> dict[str, dict[str, float]]:
    """{name: ms a sweep, and its ratio to that of the first} of models with their data and settings:
    differences of long and short runs of one chain, the median of the repeats. Each program is compiled
    before the first timing."""

    def seconds(name: str, count: int) -> float:
        model, data, settings = models[name]
        begun = time.perf_counter()
        bf.fit(model, data, bf.Gibbs(1, count, 1), progress=False, **settings)
        return time.perf_counter() - begun

    for name in models:
        seconds(name, length), seconds(name, 3 * length)
    found: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(repeats):
        for name in models:
            short, long = (seconds(name, n) for n in (length, 3 * length))
            found[name].append((long - short) / (2 * length))
    ms = {name: 1000 * statistics.median(each) for name, each in found.items()}
    first = next(iter(ms))
    return {name: {"ms a sweep": x, f"times {first}": x / ms[first]} for name, x in ms.items()}
