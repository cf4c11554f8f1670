"""Sparse rows beside mofapy2: made-up tables of 200 rows and 300 columns with five components, of which each
column has a fifth, noise 1, a fifth of the cells left out. Everybody fits eight components.

RMSE         of the left-out cells; the noise has 1
correlation  of the true loadings and those that are most alike, the mean over components
precision    of the loadings called non-zero: `in_slab`, or mofapy2's probability, above a half; for the
recall       horseshoe and `Relevance` those whose 90 % interval does not have 0
seconds      of the fit, compilation included
"""

import contextlib
import io
import time
from typing import Any

import numpy as np
from common import arguments, hold_cores, report, surroundings, table
from scipy.optimize import linear_sum_assignment

import bayesfac as bf

try:
    from mofapy2.run.entry_point import entry_point
except ImportError:
    entry_point = None

ROWS, COLUMNS, TRUE, FITTED = 200, 300, 5, 8
U = bf.Spherical(1.0)
MODELS = {
    "spike and slab": bf.factorization(U, bf.SpikeAndSlab()),
    "horseshoe": bf.factorization(U, bf.Horseshoe()),
    "relevance": bf.factorization(U, bf.Relevance()),
}


def made_up(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table, the true loadings, and which cells are left out."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(COLUMNS, TRUE)) * (rng.random((COLUMNS, TRUE)) < 0.2)
    Y = rng.normal(size=(ROWS, TRUE)) @ V.T + rng.normal(size=(ROWS, COLUMNS))
    return Y, V, rng.random(Y.shape) < 0.2


def ours(name: str, Y: np.ndarray, out: np.ndarray, draws: int) -> tuple[np.ndarray, ...]:
    """Predictions of all cells, loadings, and which are called non-zero."""
    data = bf.Ratings(np.where(out, np.nan, Y))
    engine = bf.Gibbs(draws, draws, 2)
    fit = bf.fit(MODELS[name], data, engine, n_components=FITTED, progress=False)
    found = fit.loadings("item")
    free = "in_slab" in found
    called = found["in_slab"] > 0.5 if free else found["low"] * found["high"] > 0
    loadings = found["mean"].unstack().to_numpy()
    return fit.everywhere().mean, loadings, called.unstack().to_numpy()


def theirs(Y: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same of mofapy2."""
    held = np.where(out, np.nan, Y)
    run = entry_point()
    with contextlib.redirect_stdout(io.StringIO()):
        run.set_data_options(scale_views=False)
        run.set_data_matrix([[held]])
        run.set_model_options(factors=FITTED, spikeslab_weights=True, ard_weights=True)
        run.set_train_options(convergence_mode="medium", seed=1, verbose=False)
        run.build()
        run.run()
    nodes = run.model.nodes
    W, Z = nodes["W"].getExpectation()[0], nodes["Z"].getExpectation()
    called = nodes["W"].nodes[0].getParameters()["theta"] > 0.5
    return Z @ W.T + np.nanmean(held, 0), W, called


def scores(found: tuple[np.ndarray, ...], Y: np.ndarray, V: np.ndarray, out: np.ndarray) -> dict:
    mean, loadings, called = found
    alike = np.abs(np.corrcoef(loadings.T, V.T)[: loadings.shape[1], loadings.shape[1] :])
    at, of = linear_sum_assignment(-np.nan_to_num(alike))
    hit, true = called[:, at], V[:, of] != 0
    return {
        "RMSE": float(np.sqrt(np.mean((mean - Y)[out] ** 2))),
        "correlation": float(alike[at, of].mean()),
        "precision": float((hit & true).sum() / max(hit.sum(), 1)),
        "recall": float((hit & true).sum() / true.sum()),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="their number (5)")
    parser.add_argument(
        "--draws", type=int, default=500, help="of each chain, and of warm-up (500)"
    )
    args = parser.parse_args()
    hold_cores(args.threads)
    where = surroundings()
    seeds, draws = (1, 30) if args.quick else (args.seeds, args.draws)
    each: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        Y, V, out = made_up(seed)
        for name in [*MODELS, *(["mofapy2"] if entry_point else [])]:
            begun = time.perf_counter()
            found = theirs(Y, out) if name == "mofapy2" else ours(name, Y, out, draws)
            seconds = {"seconds": time.perf_counter() - begun}
            each.setdefault(name, []).append(scores(found, Y, V, out) | seconds)
    rows: list[dict[str, Any]] = [
        {"model": name}
        | {what: f"{np.mean([one[what] for one in found]):.4g}" for what in found[0]}
        for name, found in each.items()
    ]
    if not entry_point:
        print("mofapy2 is not installed, and is left out")
    report("sparse_rows", args, {"where": where, "results": each}, table(rows))


if __name__ == "__main__":
    main()
