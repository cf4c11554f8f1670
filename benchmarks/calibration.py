"""Simulation-based calibration of every method by every engine that draws, as `bf.sbc` does it.

gibbs, nuts    samplers: ranks of true values must be uniform
svi, vb        the mean-field guide and coordinate ascent, measured; svi-full the guide with a full covariance
quick          Quick with 100 sweeps of each chain, measured

Each cell is kept in the results file as it comes, so that a run that was stopped goes on where it was. At the
end docs/calibration.md is written anew from all cells that are there. `--quick` writes neither.
"""

import argparse
from pathlib import Path
from typing import Any

from common import RESULTS, Cells, arguments, hold_cores, report, surroundings, table

import bayesfac as bf
from bayesfac.core.method import REGISTRY

PAGE = Path(__file__).resolve().parents[1] / "docs" / "calibration.md"
ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "gibbs": ("Gibbs", {}),
    "nuts": ("NUTS", {}),
    "quick": ("Quick", {"sweeps": 100}),
    "vb": ("VB", {"max_iter": 500}),
    "svi": ("SVI", {"steps": 4000}),
    "svi-full": ("SVI", {"steps": 4000, "guide": "multivariate"}),
}
# Where a factor is no density, it or what it works on is weaker than in the example: the weights of the
# prior's draws stay even. With the example's rate tables of HiMLS are a thousand times their noise, and its
# chains hardly move: 99 draws were worth one. Of cp, data that are thousands of times larger than their noise
# have several modes, and a chain stays in the one that it finds first (chains that begin at the truth have
# uniform ranks there); with the rate such data are rare.
HYPER: dict[str, dict[str, Any]] = {
    "bpmf": {"alpha_shape": 3.0, "alpha_rate": 3.0},
    "cp": {"rate": 0.1},
    "emmmf": {"penalty": 5.0, "scale_theta": 0.3, "scale_bias": 0.1},
    "faie": {"penalty": 20.0},
    "gibbs_mmmf": {"cost": 0.1},
    "grople": {"beta": 4.0, "ridge": 0.1},
    "himls": {"coupling": 0.1, "rate": 3.0},
    "hmf": {"penalty": 2.0},
}
# Samplers that need longer chains than usual (warm-up, steps for each draw), and those whose trees are cut,
# as every replication of a block waits for the longest.
LENGTHS: dict[tuple[str, str], dict[str, int]] = {
    ("heres", "gibbs"): {"warmup": 1000, "thin": 40},
    ("himls", "nuts"): {"max_tree_depth": 6, "thin": 5},
    ("himlsd", "nuts"): {"max_tree_depth": 6, "thin": 20},
    ("lsa_mml", "nuts"): {"max_tree_depth": 6},
    ("mlc_hmf", "nuts"): {"max_tree_depth": 6},
}
# From a random start of HiMLS 4,000 steps of SVI do not come to an end: not the guide would be measured.
STARTS = {("himls", "svi"): {"start": "plsa"}, ("himlsd", "svi"): {"start": "plsa"}}
Numbers = dict[str, Any]

HEAD = """\
# Is every sampler right?

Simulation-based calibration (Talts et al. 2018) draws parameters from a method's own prior, and data given
these parameters. The engine draws from the posterior of these data, without the true parameters. Then the
true value of each quantity is ranked among the draws. If the engine is right, every rank is equally likely,
whatever the model. The likelihood of the data is one of the quantities, as Modrak et al. (2023) advise,
because it shows mistakes that no parameter shows. Factors are left out, because symmetries of the model
change them: predictions, singular values, scalar parameters and sizes of components take their place.

    bayesfac sbc bpmf --engine gibbs        one method
    python benchmarks/calibration.py        all of this page

How to read the tables:

- **p** is the smallest of all p-values of the method, with Holm's correction for their number. Each quantity
  has two tests: a chi-square test of the histogram of ranks, and a test of the whole distribution function
  (Sailynoja, Buerkner & Vehtari 2022). A p below .01 means that something is wrong. With as many rows as
  here, one p of a few percent is expected.
- **worst** is the quantity with the smallest p (of Quick, VB and SVI: the one whose 90 % intervals are
  farthest off). **50 %** and **90 %** are the percentages of central intervals of that level that hold the
  true value. **its draws are** says in which direction the draws are off ("fine": in no direction).
  **Predictions** is the 90 % coverage of the prediction that is farthest off.
- **effective** is the number of independent draws that the ranked draws of a replication are worth, for the
  quantity that mixes worst. Correlated draws give false alarms: if the number is below half of the draws, a
  small p may mean that the sampler is slow, not wrong.
- Quick, VB and SVI are approximations and are expected to fail. Their rows show by how much: the coverage is
  that of the quantity that is farthest off. Quick has 100 sweeps here; by itself it takes 80 to 640.
- On larger data than these tiny examples, `python benchmarks/quick.py` compares `Quick` and `VB` with a long
  Gibbs run, and Laplace by blocks with NUTS ([figures](engines.md)).
  `fit.diagnostics().narrow` says by how much the standard deviations of predictions are too small, for
  every fit by `Quick` and by SVI of a method with conditionals (see [engines](engines.md)).

Sizes are those of each method's tiny `example` (about seven rows and five columns): the test covers
the arithmetic, not the mixing of chains on large data. A loss that is no likelihood gives a *generalised*
posterior; true values are then drawn from the prior with weights, and the settings in the last column keep
the weights even and the chains moving. A method without a law of its data cannot be calibrated; the reason
is given below the tables.
"""


def cell(method: str, engine: str, settings: Numbers, args: argparse.Namespace) -> Numbers:
    kind, own = ENGINES[engine]
    found = bf.sbc(method, kind, replications=args.replications, progress=False, **own | settings)
    kept = found.record()
    del kept["ranks"]
    for row in kept["quantities"].values():
        row |= {k: round(v, 4) for k, v in row.items() if isinstance(v, float)}
    return kept


def settings_of(method: str, engine: str, args: argparse.Namespace) -> Numbers:
    hyper = HYPER.get(method, {}) | STARTS.get((method, engine), {})
    if args.quick and engine == "vb":
        return {"draws": 19, "hyper": hyper, "max_iter": 20}
    if args.quick and engine == "quick":
        return {"draws": 19, "hyper": hyper}
    if args.quick:
        quick = {"steps": 200} if engine.startswith("svi") else {"warmup": 20, "thin": 1}
        return {"draws": 19, "hyper": hyper, **quick}
    return {"hyper": hyper, **LENGTHS.get((method, engine), {})}


def said(value: Numbers) -> str:
    return value["reason"] or f"p = {value['p']:.2g}"


def row_of(key: str, value: Numbers, seconds: float) -> Numbers:
    method, engine = key.split()
    quantities, hyper = value["quantities"], value["settings"]["hyper"]

    def off(quantity: str) -> float:
        return abs(quantities[quantity]["90 % covers"] - 0.9)

    if engine.startswith(("svi", "vb", "quick")):  # all p are nought there
        name = max(quantities, key=off)
    else:
        name = min(
            quantities, key=lambda q: min(quantities[q]["chi-square"], quantities[q]["ecdf"])
        )
    worst = quantities[name]
    predicted = max((q for q in quantities if q.startswith("prediction")), key=off)
    notes = [f"{k} = {v if isinstance(v, str) else format(v, 'g')}" for k, v in hyper.items()]
    if cut := value["settings"].get("max_tree_depth"):
        notes.append(f"trees of depth {cut} at most")
    notes += [note for note in value["notes"] if "diverged" in note and not note.startswith("0.00")]
    if value["broken"]:
        notes.append(f"{value['broken']} broken")
    return {
        "method": f"`{method}`",
        "p": "< .0001" if value["p"] < 1e-4 else f"{value['p']:.2g}",
        "": "" if value["ok"] else "**off**",
        "worst": name,
        "50 %": f"{100 * worst['50 % covers']:.0f}",
        "90 %": f"{100 * worst['90 % covers']:.0f}",
        "its draws are": worst["the draws are"],
        "predictions": f"{100 * quantities[predicted]['90 % covers']:.0f}",
        "effective": f"{min(q['ess'] for q in quantities.values()):.0f} of {value['draws']}",
        "data sets": value["replications"],
        "seconds": f"{seconds:.0f}",
        "with": ", ".join(notes),
    }


def page(found: dict[str, Numbers]) -> str:
    """The text above, and a table for each engine from the cells that are there."""
    titles = {"gibbs": "Gibbs", "nuts": "NUTS", "quick": "Quick", "vb": "VB, coordinate ascent"}
    titles |= {"svi": "SVI, mean field"}
    titles |= {"svi-full": "SVI, full covariance"}
    parts, reasons = [HEAD], {}
    for engine, title in titles.items():
        cells = {k: c for k, c in found.items() if k.split()[1] == engine}
        reasons |= {
            k.split()[0]: c["value"]["reason"] for k, c in cells.items() if c["value"]["reason"]
        }
        rows = [
            row_of(key, cells[key]["value"], cells[key]["seconds"])
            for key in sorted(cells)
            if not cells[key]["value"]["reason"]
        ]
        if rows:
            parts.append(f"## {title}\n\n{table(rows)}\n")
    if reasons:
        listed = "\n".join(f"- `{method}`: {reason}." for method, reason in sorted(reasons.items()))
        parts.append(f"## Not applicable\n\n{listed}\n")
    return "\n".join(parts)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="which (all)")
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=[e for e in ENGINES if e != "svi-full"],
        metavar="ENGINE", help=f"of {', '.join(ENGINES)} (all but the last)",
    )  # fmt: skip
    parser.add_argument(
        "--replications", type=int, default=500, metavar="N", help="data sets of each cell (500)"
    )
    args = parser.parse_args()
    hold_cores(args.threads)
    if args.quick:
        args.replications = 20
        args.methods = args.methods or ["pmf", "pmmmf"]
    where = surroundings("numpyro")
    keep = args.out or (None if args.quick else RESULTS / "calibration.json")
    cells = Cells(keep)
    from bayesfac import models  # noqa: F401  # registers every method

    for engine in args.engines:
        for method in args.methods or sorted(REGISTRY):
            if ENGINES[engine][0] not in REGISTRY[method].engines:
                continue
            settings = settings_of(method, engine, args)
            cells.get(
                f"{method} {engine}",
                lambda m=method, e=engine, s=settings: cell(m, e, s, args),
                told=said,
                replications=args.replications,
                **settings,
            )
    text = page(cells.found)
    if not args.quick:
        PAGE.write_text(text, encoding="utf-8")
    report("calibration", args, {"where": where, "results": cells.found}, text.removeprefix(HEAD))


if __name__ == "__main__":
    main()
