"""New users drawn from their conditional, beside a fit to all users, and what a row costs.

Of MovieLens-1M (or -100K with --set) 1,000 users (200) are new. Seven in ten of their ratings are told, three
are held out. One fit knows the other users alone, and takes the new ones by `fold_in`; the refit knows the
told ratings too. Both are `bpmf` by Gibbs. x is the expected rating of a held-out cell.

rows    Two fold-ins of one fit with other random numbers differ by the noise of the rows alone: their
        variances are 2 (var - cov) / draws, with the covariance, over draws, of x in the two.
items   Rows folded into the refit, whose items know all ratings, and the refit's own rows have one law: their
        differences have mean zero, with the Monte Carlo error that their means in each chain show.
refit   Fold-in and refit differ by the Monte Carlo errors of both (means of independent chains; the share of
        x's variance that they are is averaged over cells) and because the refit learns of item j from m_j new
        ratings beside its n_j old ones. To condition on more moves an expectation by as much variance as the
        posterior loses (law of total variance). The part of x's variance that items bring is cov / var, and
        m / (n + m) of it is lost, as precision grows with the ratings: shift^2 = cov m / (n + m). That is the
        law where the model is true ("made up": drawn from it); ratings of films need not obey it.
z is the difference over the root of the sum; it should be within 1.96 for 95 % of the cells.

`sweeps` compares rows by the usual sweeps with rows by 64 sweeps of each draw, for methods with auxiliary
variables: differences of expectations in sds, beside those of two runs of 64 sweeps, and the ratio of sds.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.fits import new_rows

SETS = {"made up": 300, "movielens-1m": 1000, "movielens-100k": 200, "ratings": 10}
AUXILIARY = ("pmf", "ordinal_mf", "gibbs_mmmf", "hpf", "urp")
LONG = 64


def parts(name: str, kind: Any = bf.Ratings) -> tuple[Any, Any, Any]:
    """Ratings of known users, told ratings of new users, and held-out ratings of these."""
    rng = np.random.default_rng(0)
    if name == "made up":
        data = bf.datasets.make_gaussian(1500, 500, 10, density=0.08, seed=0)[0]
    else:
        data = bf.datasets.load(name)
    frame, new = data.frame(), rng.permutation(data.n_users)[: SETS[name]]
    is_new, told = np.isin(data.user, new), rng.random(len(data)) < 0.7

    def made(mask: np.ndarray) -> Any:
        some = frame[mask]
        more = {} if kind is bf.Counts else {"levels": data.levels}
        return kind(some["user"], some["item"], some["rating"], **more)

    train = made(~is_new)
    known = is_new & np.isin(frame["item"], np.asarray(train.items))
    given = made(known & told)
    held = known & ~told & np.isin(frame["user"], np.asarray(given.users))
    return train, given, made(held)


def both(a: Any, b: Any) -> Any:
    """The ratings of two sets of users."""
    one, two = a.frame(), b.frame()
    columns = [np.concatenate([one[name], two[name]]) for name in ("user", "item", "rating")]
    return bf.Ratings(*columns, levels=a.levels)


def seen(fit: Any, held: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws of the expected rating of every cell, their variance, and the error variance of their mean."""
    x = fit.predict(held).draws_of_mean().astype(float)
    chains, var = len(x), x.reshape(-1, x.shape[-1]).var(0)
    share = np.mean(x.mean(1).var(0, ddof=1) / chains) / np.mean(var)
    return x.reshape(-1, x.shape[-1]), var, share * var


def within(a: np.ndarray, b: np.ndarray, variance: np.ndarray) -> float:
    """The share of cells whose difference of means is at most 1.96 standard errors."""
    return float(np.mean(np.abs(a.mean(0) - b.mean(0)) <= 1.96 * np.sqrt(variance)))


def rms(a: np.ndarray, b: np.ndarray, var: np.ndarray) -> float:
    """The root mean square of the cells' differences of means, in standard deviations."""
    return float(np.sqrt(np.mean((a.mean(0) - b.mean(0)) ** 2 / var)))


def scores(fit: Any, held: Any) -> dict[str, float]:
    """RMSE and coverage of 90 % intervals."""
    found = fit.predict(held)
    low, high = found.interval(0.9)
    rmse = float(np.sqrt(np.mean((found.mean - held.value) ** 2)))
    return {"RMSE": rmse, "covers 90 %": float(np.mean((low <= held.value) & (held.value <= high)))}


def agreement(name: str, engine: Any, components: int) -> dict[str, Any]:
    """One fit with new users folded in, beside a refit."""
    train, told, held = parts(name)
    own = {"n_components": components, "progress": False}
    fit = bf.fit("bpmf", train, engine, **own)
    times = []
    for _ in range(2):
        wall, cpu = time.perf_counter(), time.process_time()
        folded = fit.fold_in(told)
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    draws = engine.chains * engine.draws
    found: dict[str, Any] = {"users": told.n_users, "told": len(told), "draws": draws}
    found["s, first call"], found["CPU s, second call"] = times[0][0], times[1][1]
    found["CPU ms a row, 400 draws"] = 1000 * times[1][1] / told.n_users * 400 / draws
    refit = bf.fit("bpmf", both(train, told), engine, seed=1, **own)
    again = replace(fit, seed=7).fold_in(told)
    (a, var, error), (b, _, more), (c, *_) = (seen(f, held) for f in (folded, refit, again))
    items = np.mean((a - a.mean(0)) * (c - c.mean(0))) / np.mean(var)
    old, new = (
        pd.Series(part.frame()["item"]).value_counts().reindex(held.frame()["item"]).fillna(0)
        for part in (train, told)
    )
    x = refit.fold_in(told).predict(held).draws_of_mean() - refit.predict(held).draws_of_mean()
    spread = x.reshape(draws, -1).var(0)
    share = np.mean(x.mean(1).var(0, ddof=1) / len(x)) / np.mean(spread)
    shift = items * var * (new.to_numpy() / (old.to_numpy() + new.to_numpy()))
    found["items' share of variance"] = float(items)
    found["rows: within 1.96"] = within(a, c, 2 * (1 - items) * var / draws)
    found["items: within 1.96"] = within(x.reshape(draws, -1), 0 * a[:1], share * spread)
    found["refit: within 1.96, Monte Carlo error alone"] = within(a, b, error + more)
    found["refit: within 1.96"] = within(a, b, error + more + shift)
    found["refit: rms difference in sds"] = rms(a, b, var)
    found["expected: Monte Carlo error"] = float(np.mean((error + more) / var) ** 0.5)
    found["expected: shift"] = float(np.mean(shift / var) ** 0.5)
    found["folded in"], found["refit"] = scores(folded, held), scores(refit, held)
    return found


def sweeps(name: str, method: str, engine: Any, components: int) -> dict[str, float]:
    """The usual sweeps beside long runs."""
    train, told, held = parts(name, bf.Counts if method == "hpf" else bf.Ratings)
    fit = bf.fit(method, train, engine, n_components=components, progress=False)
    usual, found = new_rows.SWEEPS, {}
    for what, number, seed in (("usual", usual, 1), ("long", LONG, 2), ("again", LONG, 3)):
        new_rows.SWEEPS = number
        other = replace(fit, seed=seed)
        other.fold_in(told)  # compiles
        cpu = time.process_time()
        folded = other.fold_in(told)
        cpu = time.process_time() - cpu
        found[what] = *seen(folded, held)[:2], cpu
    new_rows.SWEEPS = usual
    a, b, c = (found[what] for what in ("usual", "long", "again"))
    each = 1000 * a[2] / told.n_users * 400 / (engine.chains * engine.draws)
    return {
        "rms difference in sds": rms(a[0], b[0], b[1]),
        "of two long runs": rms(c[0], b[0], b[1]),
        "ratio of sds": float(np.mean(np.sqrt(a[1] / b[1]))),
        "CPU ms a row, 400 draws": each,
    }


def shown(found: dict[str, Any]) -> str:
    """Both tables."""
    texts = []
    for word in ("agreement", "sweeps"):
        rows = []
        for key, one in found.items():
            if key.startswith(word):
                value = {k: v for k, v in one["value"].items() if not isinstance(v, dict)}
                rows.append({"": key} | {k: f"{v:.4g}" for k, v in value.items()})
        texts += [table(rows)] if rows else []
    return "\n\n".join(texts)


def main() -> None:
    """Write the figures as they come: a run that was stopped goes on where it was."""
    parser = arguments(__doc__)
    parser.add_argument("--set", default="movielens-1m", choices=list(SETS))
    parser.add_argument("--parts", nargs="+", default=["agreement", *AUXILIARY])
    args = parser.parse_args()
    name = "ratings" if args.quick else args.set
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "new_rows.json"))
    for part in args.parts:
        own = (5, 10, 4) if args.quick else (100, 150, 4) if part == "agreement" else (150, 25, 4)
        engine = bf.Gibbs(*own, thin=1 if part == "agreement" else 4)
        size = 2 if args.quick else 10 if part == "agreement" else 8
        key = f"agreement on {name}" if part == "agreement" else f"sweeps of {part} on {name}"
        work = partial(agreement, name) if part == "agreement" else partial(sweeps, name, part)
        cells.get(key, partial(work, engine, size), engine=repr(engine), components=size)
    report("new_rows", args, {"where": where, "results": cells.found}, shown(cells.found))


if __name__ == "__main__":
    main()
