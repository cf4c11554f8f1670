"""Draw the reference posteriors of `bf.references`: each pair of data and model by two samplers.

    python benchmarks/references.py                  # lists the pairs
    python benchmarks/references.py pmf-rank-1       # draws one pair anew and writes its file
    python benchmarks/references.py pmf-rank-1 --times 2 --folder /tmp/new

The first sampler is Gibbs where the method has conditionals, else NUTS with a dense mass matrix: NumPyro's
own, from its own starting points and another seed. The second is this package's NUTS with a diagonal mass
matrix. A pair is written only if R-hat of every quantity is at most 1.001 in both, and the samplers agree.
`--page` writes the table of docs/references.md.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import numpyro
import pandas as pd

import bayesfac as bf
from bayesfac import models  # noqa: F401  # registers every method
from bayesfac.core.method import lookup, settle, sites
from bayesfac.inference import nuts
from bayesfac.references import stored
from bayesfac.references.checking import bonferroni, quantities, statistics, z_scores

LARGEST = 1.001  # R-hat
PAGE = Path(__file__).resolve().parents[1] / "docs" / "references.md"
CHAINS = 16


@dataclass(frozen=True)
class Pair:
    """Data, a model, and how long its samplers run: sweeps of Gibbs for each draw, draws of each chain."""

    method: str
    about: str
    data: Callable[[], dict[str, Any]]
    hyper: dict[str, Any] = field(default_factory=dict)
    gibbs: bool = True
    thin: int = 5
    draws: int = 4000
    centred: bool = False  # the second sampler is NUTS on the centred model


# -- data -----------------------------------------------------------------------------------------
def ratings(n: int, m: int, K: int, seed: int, share: float, noise: float, levels: int = 0) -> dict:
    """Normal factors of rank K, a share of the cells observed; on a scale, levels of equal frequency."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, K)) @ rng.normal(size=(K, m)) + noise * rng.normal(size=(n, m))
    seen = rng.random((n, m)) < share
    seen[np.arange(n), np.arange(n) % m] = True
    seen[np.arange(m) % n, np.arange(m)] = True
    user, item = np.nonzero(seen)
    value = np.round(x[seen], 2)
    plain = {"container": "Ratings", "user": user.tolist(), "item": item.tolist()}
    if levels:
        cuts = np.quantile(value, np.arange(1, levels) / levels)
        value = 1.0 + np.searchsorted(cuts, value)
        plain["levels"] = list(range(1, levels + 1))
    return plain | {"value": value.tolist()}


def counts(n: int, m: int, K: int, seed: int, mean: float) -> dict:
    """Poisson counts whose means are products of gamma factors; with K > 1 each row has its component."""
    rng = np.random.default_rng(seed)
    own = 0.15 + 2.0 * (np.arange(n)[:, None] % K == np.arange(K))
    other = 0.15 + 2.0 * (np.arange(m)[:, None] % K == np.arange(K))
    x = (own * rng.gamma(3.0, size=(n, K))) @ (other * rng.gamma(3.0, size=(m, K))).T
    table = rng.poisson(mean * x / x.mean())
    table[np.arange(n), np.arange(n) % m] += 1
    table[np.arange(m) % n, np.arange(m)] += 1
    return {"container": "Counts", "table": table.tolist()}


def views(n: int, widths: dict[str, int], K: int, seed: int, words: int) -> dict:
    """Counts of words: a row has mostly the words of its cluster, in every view."""
    rng = np.random.default_rng(seed)
    mixed = 0.1 / K + 0.9 * (np.arange(n)[:, None] % K == np.arange(K))
    tables = {}
    for name, m in widths.items():
        topic = 0.1 + 1.0 * (np.arange(m) % K == np.arange(K)[:, None])
        topic = topic * rng.gamma(4.0, size=(K, m))
        law = mixed @ (topic / topic.sum(1, keepdims=True))
        tables[name] = np.stack([rng.multinomial(words, row / row.sum()) for row in law]).tolist()
    return {"container": "Views", "views": tables}


def tasks(
    n: int, widths: dict[str, int], L: int, seed: int, bare: int = 0, positive: bool = False
) -> dict:
    """One direction behind features and labels; the last rows have no labels."""
    rng = np.random.default_rng(seed)
    z = rng.gamma(4.0, 0.25, size=n) if positive else rng.normal(size=n)
    tables = {}
    for name, m in widths.items():
        weight = rng.gamma(4.0, 0.25, size=m) if positive else rng.normal(size=m)
        table = np.outer(z, weight) + 0.4 * rng.normal(size=(n, m))
        tables[name] = np.round(np.abs(table) if positive else table, 2).tolist()
    score = np.outer(z - np.median(z), np.where(np.arange(L) % 2, -1, 1))
    label = (score + 0.5 * rng.normal(size=(n, L)) > 0).astype(float)
    return {
        "container": "Tasks",
        "views": tables,
        "labels": [[None] * L if i >= n - bare else row for i, row in enumerate(label.tolist())],
    }


# -- pairs ----------------------------------------------------------------------------------------
SCALES = {"noise": 0.5, "scale_user": 1.0, "scale_item": 1.0}
GAMMAS = {f"shape_{what}": 2.0 for what in ("user", "item")} | {
    f"shape_rate_{what}": 4.0 for what in ("user", "item")
}
WISHART = {"beta0": 2.0, "rate": 1.0, "scales": "joint"}
PAIRS = {
    "pmf-rank-1": Pair(
        "pmf", "10 x 6 made ratings, 80 %", lambda: ratings(10, 6, 1, 1, 0.8, 0.5),
        {"n_components": 1, "biases": False, **SCALES},
    ),
    "pmf-rank-2": Pair(
        "pmf", "14 x 8 made ratings, 80 %", lambda: ratings(14, 8, 2, 2, 0.8, 0.4),
        {"n_components": 2, "biases": False, **SCALES},
    ),
    "pmf-biases": Pair(
        "pmf", "10 x 8 made ratings, 70 %", lambda: ratings(10, 8, 1, 3, 0.7, 0.5),
        {"n_components": 1, "biases": True, "scale_bias": 0.5, **SCALES},
    ),
    "bpmf-rank-1": Pair(
        "bpmf", "12 x 8 made ratings, 80 %", lambda: ratings(12, 8, 1, 4, 0.8, 0.5),
        {"n_components": 1, "alpha": 4.0, **WISHART},
    ),
    "bpmf-rank-2": Pair(
        "bpmf", "16 x 9 made ratings, 90 %", lambda: ratings(16, 9, 2, 5, 0.9, 0.4),
        {"n_components": 2, "alpha_shape": 2.0, "alpha_rate": 1.0, **WISHART},
    ),
    "ordinal-shared": Pair(
        "ordinal_mf", "12 x 8 made ratings on 4 levels, 80 %", lambda: ratings(12, 8, 1, 6, 0.8, 0.6, 4),
        {"n_components": 1, "thresholds": "shared", **WISHART},
    ),
    "ordinal-users": Pair(
        "ordinal_mf", "10 x 8 made ratings on 3 levels, 80 %", lambda: ratings(10, 8, 1, 7, 0.8, 0.6, 3),
        {"n_components": 1, **WISHART},
    ),
    "ordinal-logistic": Pair(
        "ordinal_mf", "12 x 8 made ratings on 3 levels, 80 %", lambda: ratings(12, 8, 1, 8, 0.8, 0.6, 3),
        {"n_components": 1, "thresholds": "shared", "link": "logistic", **WISHART}, gibbs=False, centred=True,
    ),
    "mmmf-gibbs": Pair(
        "gibbs_mmmf", "10 x 7 made ratings on 3 levels, 80 %", lambda: ratings(10, 7, 1, 9, 0.8, 0.6, 3),
        {"n_components": 1, "cost": 1.0, "scale_theta": 1.0, **WISHART},
    ),
    "mmmf-smooth": Pair(
        "mmmf", "10 x 7 made ratings on 3 levels, 80 %", lambda: ratings(10, 7, 1, 10, 0.8, 0.6, 3),
        {"n_components": 1, "penalty": 1.0, "scale_theta": 1.0, "centres": (-0.5, 0.5), "biases": False},
        gibbs=False,
    ),
    "bmmmf-logistic": Pair(
        "bmmmf", "12 x 8 made likes and dislikes, 80 %", lambda: ratings(12, 8, 2, 11, 0.8, 0.4, 2),
        {"n_components": 2, "penalty": 1.0, "loss": "logistic", "biases": False}, gibbs=False,
    ),
    "urp": Pair(
        "urp", "12 x 8 made ratings on 3 levels, 90 %", lambda: ratings(12, 8, 1, 12, 0.9, 0.3, 3),
        {"n_components": 2, "alpha": 1.5, "eta": 1.5, "pull": 0.0},
    ),
    "hpf-rank-1": Pair(
        "hpf", "8 x 6 made counts, mean 3", lambda: counts(8, 6, 1, 13, 3.0),
        {"n_components": 1, **GAMMAS},
    ),
    "hpf-rank-2": Pair(
        "hpf", "10 x 8 made counts, mean 8", lambda: counts(10, 8, 2, 14, 8.0),
        {"n_components": 2, **GAMMAS},
    ),
    "wrmf-rank-1": Pair(
        "wrmf", "10 x 7 made counts, mean 1", lambda: counts(10, 7, 1, 15, 1.0),
        {"n_components": 1, "alpha": 1.0, "noise": 0.5, "scale_user": 1.0, "scale_item": 1.0},
    ),
    "wrmf-rank-2": Pair(
        "wrmf", "12 x 8 made counts, mean 1.5", lambda: counts(12, 8, 2, 16, 1.5),
        {"n_components": 2, "alpha": 1.0, "noise": 0.5, "scale_user": 1.0, "scale_item": 1.0},
    ),
    "plsa": Pair(
        "plsa", "8 documents of 60 of 6 words", lambda: views(8, {"words": 6}, 2, 17, 60),
        {"n_components": 2, "a": 1.5, "c": 1.5, "scale": "none", "start": "random"}, gibbs=False,
    ),
    "mvplsa": Pair(
        "mvplsa", "8 rows of two views of 5 and 4 features",
        lambda: views(8, {"left": 5, "right": 4}, 2, 18, 80),
        {"n_components": 2, "n_topics": 2, "a": 1.5, "b": 1.5, "c": 1.5, "scale": "none", "start": "random"},
        gibbs=False,
    ),
    "ltm": Pair(
        "ltm", "10 documents of 50 of 6 words, with their graph", lambda: views(10, {"words": 6}, 2, 19, 50),
        {"n_components": 2, "penalty": 2.0, "divergence": "squared", "neighbours": 2, "metric": "euclidean",
         "scale": "none", "start": "random", "a": 1.5, "c": 1.5}, gibbs=False,
    ),
    "leml-squared": Pair(
        "leml", "12 rows of 4 features and 4 labels", lambda: tasks(12, {"words": 4}, 4, 20),
        {"n_components": 1, "penalty": 1.0, "loss": "squared", "scaled": False, "cut": 0.5}, gibbs=False,
    ),
    "leml-logistic": Pair(
        "leml", "16 rows of 4 features and 4 labels", lambda: tasks(16, {"words": 4}, 4, 21),
        {"n_components": 1, "penalty": 0.5, "loss": "logistic", "scaled": False, "cut": 0.5}, gibbs=False,
    ),
    "faie": Pair(
        "faie", "12 rows of 4 features and 4 labels", lambda: tasks(12, {"words": 4}, 4, 22),
        {"n_components": 1, "alpha": 1.0, "penalty": 1.0, "weight": 2.0, "ridge": 0.5, "scaled": False,
         "cut": 0.5}, gibbs=False,
    ),
    "cplst": Pair(
        "cplst", "12 rows of 4 features and 4 labels", lambda: tasks(12, {"words": 4}, 4, 23),
        {"n_components": 1, "weight": 2.0, "penalty": 1.0, "scale": 1.0, "scaled": False, "cut": 0.5},
        gibbs=False,
    ),
    "heres": Pair(
        "heres", "10 rows of two views of 4 and 3 features and 3 labels, 2 rows unlabelled",
        lambda: tasks(10, {"topics": 3, "words": 4}, 3, 24, bare=2),
        {"n_components": 1, "weight": 1.0, "sparsity": 1.0, "clusters": "task", "beta": 1.0, "smooth": 0.1,
         "scaled": False, "cut": 0.5},
    ),
    "himls": Pair(
        "himls", "10 rows of two views of 4 and 3 features and 3 labels, 2 rows unlabelled",
        lambda: tasks(10, {"topics": 3, "words": 4}, 3, 25, bare=2, positive=True),
        {"layers": ((1, 1),), "weight": 1.0, "coupling": 1.0, "shape": 2.0, "rate": 1.0, "pretraining": 0,
         "start": "random", "scaled": False, "cut": 0.5}, gibbs=False,
    ),
    "himlsd": Pair(
        "himlsd", "10 rows of two views of 4 and 3 features and 3 labels, 2 rows unlabelled",
        lambda: tasks(10, {"topics": 3, "words": 4}, 3, 26, bare=2, positive=True),
        {"layers": ((1, 1),), "weight": 1.0, "coupling": 1.0, "shape": 2.0, "rate": 1.0, "pretraining": 0,
         "start": "random", "scaled": False, "cut": 0.5}, gibbs=False,
    ),
}  # fmt: skip


# -- samplers -------------------------------------------------------------------------------------
def by_gibbs(pair: Pair, r: Any, times: int) -> tuple[dict, dict, int]:
    engine = bf.Gibbs(1000, pair.draws, CHAINS, thin=pair.thin * times)
    fit = bf.fit(r.record, r.data, engine, seed=1, progress=False, **r.hyper)
    return dict(fit.draws), {"engine": "Gibbs", "sweeps a draw": pair.thin * times}, fit.seed


def by_nuts(pair: Pair, r: Any, times: int) -> tuple[dict, dict, int]:
    method = replace(r.record)  # another record, whose programs are its own
    engine = bf.NUTS(600, pair.draws, CHAINS, 0.9, chain_method="vectorized", thin=times)
    with mock.patch.object(nuts, "has_rows", (lambda *_: False) if pair.centred else nuts.has_rows):
        fit = bf.fit(method, r.data, engine, seed=2, progress=False, **r.hyper)
    what = "NUTS, centred" if pair.centred else "NUTS"
    says = {
        "diverging": int(fit.stats["diverging"].sum()),
        "leapfrog steps": float(fit.stats["n_steps"].mean()),
    }
    return dict(fit.draws), {"engine": what, "target_accept": 0.9, **says}, fit.seed  # fmt: skip


def by_dense_nuts(pair: Pair, r: Any, times: int) -> tuple[dict, dict, int]:
    kernel = numpyro.infer.NUTS(r.model, dense_mass=True, target_accept_prob=0.9)
    run = numpyro.infer.MCMC(
        kernel, num_warmup=600, num_samples=pair.draws * times, num_chains=CHAINS, thinning=times,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    run.run(jax.random.key(3))
    draws = {site: np.asarray(x) for site, x in run.get_samples(group_by_chain=True).items()}
    diverging = int(run.get_extra_fields()["diverging"].sum())
    return draws, {"engine": "NUTS, dense mass", "target_accept": 0.9, "diverging": diverging}, 3


def begun(name: str, pair: Pair) -> Any:
    """The reference without its numbers."""
    method, plain = lookup(pair.method), pair.data()
    data = stored.container(plain)
    hyper = settle(method, data, pair.hyper)
    with jax.enable_x64(True):
        shapes = sites(method.init(jax.random.key(0), method.ready(data, hyper), hyper))
    return stored.Reference(
        name, pair.about, pair.method, hyper._asdict(), {s: np.shape(x) for s, x in shapes.items()},
        plain, (), 0.0, 0.0, pd.DataFrame(),
    )  # fmt: skip


def drawn(name: str, pair: Pair, times: int) -> tuple[Any, list[str]]:
    """The reference, and why it must not be written; nothing if it may."""
    r = begun(name, pair)
    tables, samplers, reasons = [], [], []
    for run in (by_gibbs if pair.gibbs else by_dense_nuts, by_nuts):
        started = time.process_time()
        draws, says, seed = run(pair, r, times)
        found = quantities(r, draws)
        table = statistics(found)
        moving = table["sd"] > 1e-9 * table["mean"].abs()
        tables.append(table[moving])
        worst, least = float(tables[-1]["r_hat"].max()), float(tables[-1]["ess"].min())
        says |= {"seed": seed, "chains": CHAINS, "draws": CHAINS * pair.draws}
        samplers.append(says | {"r_hat": round(worst, 5), "ess": round(least)})
        at = tables[-1]["r_hat"].idxmax(), tables[-1]["ess"].idxmin()
        print(
            f"{name}: {samplers[-1]}, worst {at}, {time.process_time() - started:.0f} CPU s",
            flush=True,
        )
        if not worst <= LARGEST:
            reasons.append(f"R-hat of {at[0]} is {worst:.4f} by {says['engine']}")
    scores = z_scores(*tables)
    z, level = float(scores.abs().max().max()), bonferroni(scores.size)
    at = scores.abs().max(axis=1).idxmax()
    print(f"{name}: {len(scores)} quantities, largest |z| {z:.2f} at {at}, level {level:.2f}")
    if not z <= level:
        reasons.append(f"the samplers differ: largest |z| {z:.2f}, level {level:.2f}")
    done = replace(
        r, samplers=tuple(samplers), z=round(z, 3), level=round(level, 3), summaries=joined(*tables)
    )
    return done, reasons


def joined(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Means and sds of both samplers, weighted by precision; R-hat and ESS of the worse one."""
    columns = {}
    for what in ("mean", "sd"):
        a, b = one[f"mcse_{what}"] ** -2.0, other[f"mcse_{what}"] ** -2.0
        columns[what] = (a * one[what] + b * other[what]) / (a + b)
        columns[f"mcse_{what}"] = (a + b) ** -0.5
    columns["r_hat"] = np.maximum(one["r_hat"], other["r_hat"])
    columns["ess"] = np.minimum(one["ess"], other["ess"])
    return pd.DataFrame(columns)


def lines(table: pd.DataFrame) -> list[str]:
    """The table of all references in Markdown."""
    heads = ["reference", *table.columns]
    rows = [[name, *row.values()] for name, row in table.to_dict(orient="index").items()]
    shown = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    # a bar would begin a new column
    bars = [
        [text.replace("|", "\\|") for text in row] for row in [heads, ["---"] * len(heads), *shown]
    ]
    return [f"| {' | '.join(row)} |" for row in bars]


def write_page() -> None:
    """Write the table into docs/references.md, in place of the old one."""
    kept = [row for row in PAGE.read_text("utf-8").splitlines() if not row.startswith("| ")]
    text = "\n".join(kept).rstrip()
    PAGE.write_text(text + "\n\n" + "\n".join(lines(stored.table())) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *PAIRS], metavar="name")
    parser.add_argument(
        "--times", type=int, default=1, help="steps for each kept draw, beyond the pair's own"
    )
    parser.add_argument("--folder", type=Path, default=stored.FOLDER)
    parser.add_argument("--page", action="store_true", help="write the table of the page")
    args = parser.parse_args()
    if args.page:
        write_page()
        return
    jax.config.update("jax_enable_x64", True)
    for name in args.names:
        done, reasons = drawn(name, PAIRS[name], args.times)
        if reasons:
            print(f"{name} is not written: {'; '.join(reasons)}")
        else:
            print(f"{name}: {stored.write(done, args.folder).name}")
    if not args.names:
        print("\n".join(f"{name}: {pair.method}, {pair.about}" for name, pair in PAIRS.items()))


if __name__ == "__main__":
    main()
