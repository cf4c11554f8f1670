"""What a sweep of BPMF by several machines costs: computed from measured constants, not run.

For N ratings, n users, m items, K components and P processes of one core, a sweep of one chain takes

    divided    a [N K (K + 9) + (n + m) (K^3 / 6 + 8 K^2)] / P      laws of rows
    whole      a [4 (n + m) K^2] / 3                                products of whole tables, 3 times as fast
    rest       b (n + m) K                                          normal numbers, kept draws, gathering
    network    4 (n + m) K (P - 1) / P bytes to each process        rows of the other processes

seconds. `a` is set by the sweep of one process in `results/processes.json` (MovieLens-1M, K = 64), for b = 0:
the table "one process" says what two processes should then take, beside what they took. `a` and `b`
together are set by the sweeps of one and of two processes: the rest has the messages of the loopback in it.
With them the table "eight machines" says what eight would take at several speeds of the network, and the
efficiency: the sweep of one machine over eight times that of eight.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from common import RESULTS, arguments, table

MACHINES = 8
SPEEDS = (1, 10, 25)  # Gbit/s
BYTES = 4  # of a number in single precision


class Size(NamedTuple):
    """Ratings, rows of both sides together, components."""

    ratings: float
    rows: float
    K: int

    @property
    def divided(self) -> float:
        return self.ratings * self.K * (self.K + 9) + self.rows * (self.K**3 / 6 + 8 * self.K**2)

    @property
    def whole(self) -> float:
        return 4 * self.rows * self.K**2 / 3

    @property
    def numbers(self) -> float:
        return self.rows * self.K


MEASURED = Size(1_000_209, 6_040 + 3_706, 64)  # MovieLens-1M
SIZES = {
    "MovieLens-1M, K = 64": MEASURED,
    "100 million ratings of 500,000 users and 100,000 items, K = 64": Size(1e8, 6e5, 64),
}


class Constants(NamedTuple):
    """Seconds of a multiplication, and of a number of the factors."""

    a: float
    b: float

    def seconds(self, size: Size, processes: int, speed: float | None = None) -> dict[str, float]:
        """What each part of a sweep takes; without a speed the network is the loopback, in the rest."""
        sent = 0.0
        if speed is not None:
            sent = BYTES * size.numbers * (processes - 1) / processes / (speed * 1e9 / 8)
        return {
            "divided": self.a * size.divided / processes,
            "whole": self.a * size.whole,
            "rest": self.b * size.numbers,
            "network": sent,
        }


def one(seconds: dict[int, float]) -> Constants:
    """From the sweep of one process, if nothing but products of whole tables stayed whole."""
    return Constants(seconds[1] / (MEASURED.divided + MEASURED.whole), 0.0)


def both(seconds: dict[int, float]) -> Constants:
    """From the sweeps of one and of two processes, whose difference is half of what is divided."""
    a = 2 * (seconds[1] - seconds[2]) / MEASURED.divided
    return Constants(a, (seconds[1] - a * (MEASURED.divided + MEASURED.whole)) / MEASURED.numbers)


def predicted(seconds: dict[int, float]) -> list[dict[str, Any]]:
    """The sweep of two processes, as one process foretells it."""
    found = sum(one(seconds).seconds(MEASURED, 2).values())
    return [
        {
            "one process": f"{seconds[1]:.3f} s",
            "two, computed": f"{found:.3f} s",
            "two, measured": f"{seconds[2]:.3f} s",
            "measured / computed": f"{seconds[2] / found:.2f}",
        }
    ]


def machines(seconds: dict[int, float]) -> list[dict[str, Any]]:
    """Eight machines at each speed."""
    known, rows = both(seconds), []
    for name, size in SIZES.items():
        alone = sum(known.seconds(size, 1).values())
        for speed in SPEEDS:
            parts = known.seconds(size, MACHINES, speed)
            total = sum(parts.values())
            rows.append(
                {
                    "ratings": name,
                    "Gbit/s": speed,
                    "one machine": f"{alone:.3g} s",
                    **{part: f"{value:.2g}" for part, value in parts.items()},
                    "eight machines": f"{total:.3g} s",
                    "times as fast": f"{alone / total:.1f}",
                    "efficiency": f"{alone / total / MACHINES:.0%}",
                }
            )
    return rows


def main() -> None:
    parser = arguments(__doc__ or "")
    add = parser.add_argument
    add("--measured", type=Path, default=RESULTS / "processes.json", metavar="FILE")
    add("--seconds", type=float, nargs=2, metavar="S", help="of one and of two processes instead")
    args = parser.parse_args()
    found = json.loads(args.measured.read_text(encoding="utf-8"))
    if found["task"]["data"] != "movielens-1m" or found["task"]["components"] != MEASURED.K:
        parser.error(f"Expected sweeps on MovieLens-1M with K = 64 in {args.measured}")
    seconds = {int(count): min(each) for count, each in found["seconds"].items()}
    if args.seconds:
        seconds = dict(zip((1, 2), args.seconds, strict=True))
    known = both(seconds)
    print(f"a = {known.a:.2e} s, b = {known.b:.2e} s\n")
    print(table(predicted(seconds)) + "\n\n" + table(machines(seconds)))


if __name__ == "__main__":
    main()
