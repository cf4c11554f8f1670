"""Whether a posterior can be trusted: what R-hat says of factors, warm starts, guides, and memory.

identification   MovieLens-100K, random 90/10, BPMF, four chains from different starts: R-hat of raw factors,
                 of aligned ones and of predictions; coverage of 50, 80, 90 and 95 % intervals; PSIS-LOO
                 of the training ratings beside ten-fold cross-validation of the same ratings
starts           chains of a made-up matrix (60 x 40, rank 3) from the prior and from the MAP (a copy of it
                 for each chain, jittered): sweeps of Gibbs until the log joint of every chain is where the
                 last half of all draws is (within 3 of their sds), and what NUTS has after a short warm-up
guides           the same matrix: every guide of SVI beside Gibbs. ELBO, Pareto's k of the weights, the
                 guide's sds of predictions relative to Gibbs', coverage of held-out cells, seconds
memory           MovieLens-1M, 4 x 1,000 draws of BPMF, K = 32, on disk: the peak of a process (VmHWM, all of
                 it; Linux only) that loads them and writes the report, and of one for the PSIS-LOO
"""

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, Cells, arguments, hold_cores, in_process, report, surroundings, table

import bayesfac as bf

PARTS = ("identification", "starts", "guides", "memory")
GUIDES = ("normal", "lowrank", "multivariate", "flow")
LEVELS = (0.5, 0.8, 0.9, 0.95)
Numbers = dict[str, Any]


# -- identification ---------------------------------------------------------------------------------
def ratings(name: str, quick: bool) -> bf.Ratings:
    return bf.datasets.make_ratings(60, 40, 3, seed=0) if quick else bf.datasets.load(name)


def largest(r_hat: np.ndarray) -> dict[str, float]:
    """The middle and the largest, NaN (nothing moves) aside."""
    seen = r_hat[np.isfinite(r_hat)]
    return {"median": float(np.median(seen)), "largest": float(seen.max())}


def identification(quick: bool) -> Numbers:
    from bayesfac.report import arviz_versions

    data = ratings("movielens-100k", quick)
    train, test = bf.split.holdout(data, 0.1, seed=0)
    length = {"warmup": 50, "draws": 100} if quick else {"warmup": 500, "draws": 1000}
    size = {"n_components": 3 if quick else 10, "progress": False}
    fit = bf.fit("bpmf", train, bf.Gibbs(**length, chains=4), **size)
    found = fit.diagnostics()
    probes = found.table.loc[found.table["quantity"] == "prediction", "r_hat"].to_numpy()
    aligned = fit.aligned()
    r_hat = {
        "raw factors": largest(arviz_versions.rhat(np.asarray(fit.draws["U"]))),
        "aligned factors": largest(arviz_versions.rhat(aligned.draws["U"])),
        "predictions": largest(probes),
    }
    scores = bf.compare({"Gibbs": fit}, test).scores["Gibbs"]
    covered = {str(level): float(scores.inside(level).mean()) for level in LEVELS}
    loo = fit.loo(train)
    folds = fit.kfold(train, k=3 if quick else 10)
    return {
        "R-hat": r_hat,
        "residual": float(np.median(aligned.residual)),
        "modes": aligned.modes,
        "ambiguous": aligned.ambiguous,
        "covered": covered,
        "test log score": float(scores.log_score.mean()),
        "LOO a rating": [loo.elpd / len(train), loo.se / len(train)],
        "k above the limit": float((loo.bad).mean()),
        "folds a rating": [folds.elpd / len(train), folds.se / len(train)],
        "seconds": fit.seconds,
    }


# -- starts -----------------------------------------------------------------------------------------
def made_up(quick: bool) -> tuple[bf.Ratings, bf.Ratings]:
    shape = (20, 15, 2) if quick else (60, 40, 3)
    data, _ = bf.datasets.make_gaussian(*shape, density=0.5, seed=0)
    return bf.split.holdout(data, 0.2, seed=0)


def settled(lp: np.ndarray) -> int:
    """Draws until every chain's log joint is within 3 sds of where the last half of all is."""
    late = lp[:, lp.shape[1] // 2 :]
    near = np.abs(lp - late.mean()) < 3 * late.std()
    return int(max(np.argmax(chain) for chain in near))


def starts(quick: bool) -> Numbers:
    train, _ = made_up(quick)
    size = {"n_components": 2 if quick else 3, "progress": False}
    found = {}
    for method in ("pmf", "bpmf"):
        point = bf.fit(method, train, **size)
        for name, init in (("prior", None), ("MAP", point)):
            gibbs = bf.fit(method, train, bf.Gibbs(0, 200 if quick else 1000, 4), init=init, **size)
            begun = time.perf_counter()
            nuts = bf.fit(method, train, bf.NUTS(50 if quick else 300, 100, 4), init=init, **size)
            found[f"{method} from the {name}"] = {
                "Gibbs sweeps until settled": settled(gibbs.stats["lp"]),
                "R-hat of predictions after 300 of NUTS": worst(nuts),
                "leapfrog steps a draw": float(nuts.stats["n_steps"].mean()),
                "seconds of NUTS": round(time.perf_counter() - begun, 1),
            }
    return found


def worst(fit: bf.Fit) -> float:
    rows = fit.diagnostics().table
    return float(rows.loc[rows["quantity"] == "prediction", "r_hat"].max())


# -- guides -----------------------------------------------------------------------------------------
def guides(quick: bool) -> Numbers:
    from bayesfac.report.diagnostics import psis

    train, test = made_up(quick)
    size = {"n_components": 2 if quick else 3, "progress": False}
    gibbs = bf.fit("pmf", train, bf.Gibbs(500, 2000, 4), **size)
    reference = gibbs.predict(test).sd_mean
    found = {"Gibbs": {"sd, relative": 1.0, **judged(gibbs, test)}}
    steps = {"steps": 400 if quick else 20_000, "draws": 2000}
    for guide in GUIDES:
        fit = bf.fit("pmf", train, bf.SVI(guide=guide, **steps), **size)
        found[guide] = {
            "ELBO": float(-np.mean(fit.trace[-500:])),
            "Pareto's k": psis.tail(fit.stats["log_weight"]),
            "sd, relative": float(np.median(fit.predict(test).sd_mean / reference)),
            **judged(fit, test),
            "steps": len(fit.trace),
        }
    return found


def judged(fit: bf.Fit, test: bf.Ratings) -> Numbers:
    scores = bf.compare({"": fit}, test).scores[""]
    return {
        "covers 90 %": float(scores.inside(0.9).mean()),
        "log score": float(scores.log_score.mean()),
        "seconds": round(fit.seconds, 1),
    }


# -- memory -----------------------------------------------------------------------------------------
def work(task: Numbers) -> Numbers:
    """One operation on saved draws, in this process."""
    begun = time.perf_counter()
    if task["what"] == "sample":
        engine = bf.Gibbs(20, task["draws"], 4, folder=f"{task['folder']}/run")
        data = ratings("movielens-1m", task["quick"])
        fit = bf.fit("bpmf", data, engine, n_components=task["K"], progress=False)
        fit.save(f"{task['folder']}/fit")
    else:
        fit = bf.load(f"{task['folder']}/fit")
        if task["what"] == "report":
            fit.to_html(f"{task['folder']}/report.html")
        else:
            print(fit.loo(ratings("movielens-1m", task["quick"])), file=sys.stderr)
    return {"seconds": round(time.perf_counter() - begun, 1), "GB at most": round(peak(), 2)}


def peak() -> float:
    """GB that this process held at most; ru_maxrss would be that of the parent where it held more."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    raise OSError("Expected a line VmHWM in /proc/self/status, got none")


def memory(quick: bool, threads: int) -> Numbers:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        task = {"folder": folder, "quick": quick, "draws": 20 if quick else 1000}
        task |= {"K": 3 if quick else 32}
        for what in ("sample", "report", "LOO"):
            found[what] = in_process(__file__, {**task, "what": what}, threads)
            print(f"  {what}: {found[what]}", file=sys.stderr, flush=True)
        found["draws on disk, GB"] = (
            sum(path.stat().st_size for path in Path(folder, "fit").rglob("*.npy")) / 2**30
        )
    return found


def shown(found: Numbers) -> list[Numbers]:
    """One row for each entry, of few digits; columns are those of all of them, where all have columns."""
    if not all(isinstance(value, dict) for value in found.values()):
        return [{"": name, "found": few(value)} for name, value in found.items()]
    columns = dict.fromkeys(name for value in found.values() for name in value)
    return [{"": k} | {n: few(v.get(n, "")) for n in columns} for k, v in found.items()]


def few(value: Any) -> Any:
    if isinstance(value, list):
        return " ± ".join(map(few, value))
    if isinstance(value, dict):
        return "; ".join(f"{name} {few(part)}" for name, part in value.items())
    return f"{value:.4g}" if isinstance(value, float) else value


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    args = parser.parse_args()
    if args.worker:
        hold_cores(args.threads)
        print(json.dumps(work(json.loads(args.worker))))
        return
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "trust.json"))
    make = {
        "identification": lambda: identification(args.quick),
        "starts": lambda: starts(args.quick),
        "guides": lambda: guides(args.quick),
        "memory": lambda: memory(args.quick, args.threads),
    }
    lines = []
    for part in args.parts:
        found = cells.get(part, make[part])
        lines.append(f"{part}\n\n{table(shown(found))}")
    report("trust", args, {"where": where, "results": cells.found}, "\n\n".join(lines))


if __name__ == "__main__":
    main()
