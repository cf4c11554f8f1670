"""NUTS of methods without conditionals, and of PMF, on small made-up ratings: seconds and effective draws.

60 x 40 ratings of rank 3, half of the cells seen; of all methods but pmf cut into five levels. `bf.NUTS` runs
4 chains of 500 + 500 transitions at the settings that the point chose. Seconds are by the clock, with
compilation. Effective draws and R-hat are those of expected ratings at some 50 of the probe cells.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.report import arviz_versions

METHODS = ("pmf", "mmmf", "pmmmf", "hmf", "attitude", "ipmmmf", "emmmf")
Numbers = dict[str, Any]


def ratings(method: str, quick: bool, seed: int) -> bf.Ratings:
    """Values of rank 3 with noise, or their levels."""
    size = (15, 10) if quick else (60, 40)
    data, _ = bf.datasets.make_gaussian(*size, 3, density=0.5, seed=seed)
    if method == "pmf":
        return data
    level = 1.0 + np.searchsorted(np.quantile(data.value, [0.1, 0.3, 0.6, 0.85]), data.value)
    return bf.Ratings(data.users[data.user], data.items[data.item], level, levels=5)


def measured(method: str, components: int, quick: bool, seed: int) -> Numbers:
    """One run of NUTS, and what it is worth."""
    data, draws = ratings(method, quick, seed), 30 if quick else 500
    point = bf.fit(method, data, n_components=components, progress=False)
    begun = time.perf_counter()
    engine = bf.NUTS(draws, draws, 2 if quick else 4)
    fit = bf.fit(method, data, engine, progress=False, **point.hyper._asdict())
    seconds = time.perf_counter() - begun
    expected = fit.predict(fit.data.probe).draws_of_mean()
    some = np.asarray(expected, float)[:, :, :: max(1, expected.shape[2] // 50)]
    effective = arviz_versions.ess(some)
    return {
        "seconds": seconds,
        "steps": float(np.mean(fit.stats["n_steps"])),
        "diverging": int(fit.stats["diverging"].sum()),
        "effective, least": float(np.min(effective)),
        "effective, median": float(np.median(effective)),
        "R-hat, largest": float(np.max(arviz_versions.rhat(some))),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", default=",".join(METHODS), metavar="NAMES", help="with commas")
    parser.add_argument("--components", type=int, nargs="+", default=[3, 10], metavar="K")
    parser.add_argument("--seed", type=int, default=0, help="of the data (0)")
    args = parser.parse_args()
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "nuts.json"))
    for method in args.only.split(","):
        for K in args.components[:1] if args.quick else args.components:
            run = partial(measured, method, K, args.quick, args.seed)
            cells.get(f"{method}, K = {K}, seed {args.seed}", run)
    rows = [
        {"run": key} | {name: f"{x:.3g}" for name, x in cell["value"].items()}
        for key, cell in cells.found.items()
    ]
    report("nuts", args, {"where": where, "results": cells.found}, table(rows))


if __name__ == "__main__":
    main()
