"""Features of users and items: bpmf and fm with and without them, SMURFF's Macau and myFM, same splits and
sweeps.

MovieLens with age, sex and occupation of users and genres of films. A random tenth of the ratings is held
out; or, for a cold start, all ratings of a random tenth of the users and of a tenth of the films, scored
apart: new users (of old films), new films (by old users), and both new.

Shown are RMSE, the mean log score of the rating's density and the coverage of 90 % intervals, from one
chain. SMURFF gets the posterior mean of bpmf's noise precision, since its own adaptive noise has no prior,
and the encoded features of bpmf; its intervals are of a normal law with the variance of its draws and the
noise. myFM has a group of entries for ids, features and pattern of each side. `fm+implicit` is fm with
implicit=True, `ordinal_fm+implicit` alike; myFM then has the same pattern. No setting was chosen by
held-out ratings.

python benchmarks/features.py --sets movielens-100k --methods bpmf fm fm+implicit ordinal_fm+implicit
"""

import tempfile
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, hold_cores, installed, report, surroundings, table
from scipy.special import logsumexp
from scipy.stats import norm

import bayesfac as bf

SETS = ("movielens-100k", "movielens-1m")
SHARE = 0.1
Numbers = dict[str, Any]


def loaded(name: str, quick: bool, features: bool) -> bf.Ratings:
    if not quick:
        return bf.datasets.load(name, features=features)
    ratings = bf.datasets.make_ratings(60, 40, 3, seed=0)
    rng = np.random.default_rng(0)
    tables = {
        f"{side}_features": rng.normal(size=(n, 3))
        for side, n in zip(("user", "item"), ratings.shape, strict=True)
    }
    return bf.Ratings(ratings, levels=ratings.levels, **(tables if features else {}))


def parts(data: bf.Ratings, split: str, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The positions of the training ratings, and of each group of held-out ratings."""
    rng = np.random.default_rng(seed)
    if split == "random":
        held = rng.random(len(data)) < SHARE
        return np.flatnonzero(~held), {"random": np.flatnonzero(held)}
    new = [np.isin(code, rng.permutation(n)[: round(SHARE * n)])
           for code, n in zip((data.user, data.item), data.shape, strict=True)]  # fmt: skip
    groups = {"new users": new[0] & ~new[1], "new films": new[1] & ~new[0], "both": new[0] & new[1]}
    return np.flatnonzero(~(new[0] | new[1])), {k: np.flatnonzero(v) for k, v in groups.items()}


def judged(mean: np.ndarray, log: np.ndarray, inside: np.ndarray, truth: np.ndarray) -> Numbers:
    rmse = float(np.sqrt(np.mean((mean - truth) ** 2)))
    return {"rmse": rmse, "log score": float(log.mean()), "covers 90 %": float(inside.mean())}


def ours(data: bf.Ratings, split: str, seed: int, task: Numbers) -> Numbers:
    train, groups = parts(data, split, seed)
    engine = bf.Gibbs(task["warmup"], task["draws"], chains=1)
    method, _, more = task["method"].partition("+")
    settings = {"n_components": task["components"], "progress": False}
    settings |= {"implicit": True} if more else {}
    fit = bf.fit(method, data.take(train), engine, **settings)
    found = {}
    for name, at in groups.items():
        test = data.take(at)
        asked = fit.predict(test)
        log = asked.scores(test.value)["log_score"]
        low, high = asked.interval(0.9)
        inside = (low <= test.value) & (test.value <= high)
        found[name] = judged(asked.mean, log, inside, test.value)
    alpha = fit.draws.get("alpha") if fit.draws is not None else None
    return {"groups": found, "alpha": None if alpha is None else float(np.mean(alpha))}


def smurffs(data: bf.Ratings, split: str, seed: int, task: Numbers, alpha: float) -> Numbers:
    """SMURFF's Macau where the data have features, else its BPMF."""
    import smurff

    train, groups = parts(data, split, seed)
    mean, shape = data.value[train].mean(), data.shape
    held = np.concatenate(list(groups.values()))
    matrices = [
        sp.csr_matrix((data.value[at] - mean, (data.user[at], data.item[at])), shape=shape)
        for at in (train, held)
    ]
    priors = ["macau" if side in data.x else "normal" for side in ("user", "item")]
    with tempfile.TemporaryDirectory() as folder:
        session = smurff.TrainSession(
            priors, task["components"], task["threads"], task["warmup"], task["draws"], seed,
            verbose=0, save_freq=0, save_name=f"{folder}/draws.hdf5",
        )  # fmt: skip
        session.setTrain(matrices[0], smurff.FixedNoise(alpha))
        session.setTest(matrices[1])
        for mode, side in enumerate(("user", "item")):
            if side in data.x:
                session.addSideInfo(mode, np.asarray(data.x[side].table, float), direct=True)
        session.init()
        for _ in range(task["warmup"] + task["draws"]):
            super(smurff.TrainSession, session).step()
        seen = {tuple(p.coords): p for p in session.getTestPredictions()}
    found = {}
    for name, at in groups.items():
        cells = [seen[pair] for pair in zip(data.user[at], data.item[at], strict=True)]
        guess = mean + np.array([p.pred_avg for p in cells])
        # SMURFF keeps the sum of squared deviations as `var`
        sd = np.sqrt(np.array([p.var / (p.nsamples - 1) for p in cells]) + 1 / alpha)
        away = (data.value[at] - guess) / sd
        inside = np.abs(away) <= norm.ppf(0.95)
        found[name] = judged(guess, norm.logpdf(away) - np.log(sd), inside, data.value[at])
    return {"groups": found}


def myfms(data: bf.Ratings, split: str, seed: int, task: Numbers) -> Numbers:
    """myFM with ids, the features that the data have, and the pattern of the training ratings."""
    from myfm import MyFMGibbsRegressor, MyFMOrderedProbit, RelationBlock

    method, _, implicit = task["method"].partition("+")
    train, groups = parts(data, split, seed)
    codes, tables, sizes = (data.user, data.item), [], []
    for one, (side, own) in enumerate(zip(("user", "item"), codes, strict=True)):
        n, m, other = data.shape[one], data.shape[1 - one], codes[1 - one]
        blocks = [sp.eye(n, format="csr")]
        if side in data.x:
            blocks.append(sp.csr_matrix(np.asarray(data.x[side].table, float)))
        if implicit:
            count = np.bincount(own[train], minlength=n)
            cells = (count[own[train]] ** -0.5, (own[train], other[train]))
            blocks.append(sp.csr_matrix(cells, shape=(n, m)))
        tables.append(sp.hstack(blocks, format="csr"))
        sizes += [block.shape[1] for block in blocks]

    def related(at: np.ndarray) -> list[Any]:
        return [RelationBlock(code[at], table) for code, table in zip(codes, tables, strict=True)]

    ordinal, levels = method.startswith("ordinal"), np.unique(data.value)
    kind = MyFMOrderedProbit if ordinal else MyFMGibbsRegressor
    model, y = kind(task["components"], random_seed=seed), data.value
    target = np.searchsorted(levels, y[train]) if ordinal else y[train]
    sweeps = task["warmup"] + task["draws"]
    model.fit(
        None,
        target,
        related(train),
        n_iter=sweeps,
        n_kept_samples=task["draws"],
        group_shapes=sizes,
    )
    found = {}
    for name, at in groups.items():
        if ordinal:
            chance = model.predict_proba(None, related(at))
            below, truth = chance.cumsum(1), y[at]
            log = np.log(chance[np.arange(len(at)), np.searchsorted(levels, truth)])
            low, high = (levels[(below < q - 1e-12).sum(1)] for q in (0.05, 0.95))
            found[name] = judged(chance @ levels, log, (low <= truth) & (truth <= high), truth)
            continue
        empty = sp.csr_matrix((len(at), 0))
        draws = [s.predict_score(empty, related(at)) for s in model.predictor_.samples]
        alpha = np.array([h.alpha for h in model.history_.hypers])[-len(draws) :, None]
        log = logsumexp(norm.logpdf(y[at], draws, alpha**-0.5), 0) - np.log(len(draws))
        mean, sd = np.mean(draws, 0), np.sqrt(np.var(draws, 0) + np.mean(1 / alpha))
        inside = np.abs(y[at] - mean) <= norm.ppf(0.95) * sd
        found[name] = judged(mean, log, inside, y[at])
    return {"groups": found}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="+", default=["bpmf"], help="of bayesfac; NAME+implicit")
    parser.add_argument(
        "--splits", nargs="+", default=["random", "cold"], choices=["random", "cold"]
    )
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--only-features", action="store_true", help="no fits without features")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    hold_cores(chosen.threads)
    warnings.simplefilter("ignore")
    where = surroundings("smurff", "myfm")
    quick = {"components": 3, "warmup": 10, "draws": 10} if chosen.quick else {}
    task = {k: getattr(chosen, k) for k in ("components", "warmup", "draws", "threads")} | quick
    cells = Cells(None if chosen.quick else chosen.out or RESULTS / "features.json")
    lines = []
    for name in chosen.sets[:1] if chosen.quick else chosen.sets:
        kinds = (True,) if chosen.only_features else (False, True)
        data = {more: loaded(name, chosen.quick, more) for more in kinds}
        for split in chosen.splits:
            for seed in range(1 if chosen.quick else chosen.seeds):
                rows = run(cells, data, (name, split, seed), task, chosen.methods)
                lines += [
                    {"data": name, "held out": group, "seed": seed, "method": who} | numbers
                    for who, found in rows.items()
                    for group, numbers in found["groups"].items()
                ]
    shown = [
        {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in line.items()} for line in lines
    ]
    report("features", chosen, {"where": where, "results": cells.found}, table(shown))


def run(cells: Cells, data: Numbers, at: tuple, task: Numbers, methods: list[str]) -> Numbers:
    """{who: results} of one split."""
    name, split, seed = at
    key = f"{name} {split} {seed} K={task['components']}"
    rows, alpha = {}, None
    for method in methods:
        for more in data:
            who, one = f"{method}{', features' * more}", task | {"method": method}
            rows[who] = cells.get(
                f"{key} {who}",
                lambda m=more, o=one: ours(data[m], split, seed, o),
                **one,
            )
            alpha = alpha or rows[who]["alpha"]
            if "fm" in method and installed("myfm"):
                where = f"myFM{who.removeprefix(method)} for {method}"
                rows[where] = cells.get(
                    f"{key} {where}",
                    lambda m=more, o=one: myfms(data[m], split, seed, o), **one,
                )  # fmt: skip
    if installed("smurff") and alpha:
        for more in data:
            who = "SMURFF, Macau" if more else "SMURFF"
            rows[who] = cells.get(
                f"{key} {who}",
                lambda m=more: smurffs(data[m], split, seed, task, alpha), **task,
            )  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
