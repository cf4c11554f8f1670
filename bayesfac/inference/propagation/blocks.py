"""Posterior propagation: independent fits of blocks in three stages."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from bayesfac.core import calls, checks
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import portable, site_dims
from bayesfac.inference.checkpoint import read_arrays, write_arrays
from bayesfac.inference.gibbs import Gibbs
from bayesfac.inference.propagation import beliefs
from bayesfac.inference.propagation.beliefs import Belief, combined
from bayesfac.inference.propagation.cutting import cut, groups
from bayesfac.inference.propagation.stages import BlockData, completed, kinds, of_block, prior_of
from bayesfac.inference.result import Engine, Job, Result, bar, each_draw, log_joints

Place = tuple[int, int]
SIDES = ("user", "item")
APPROXIMATE = (
    "an approximation: rows are drawn from independent normal distributions, from {count} blocks"
)
UNEVEN = "the chains of a block do not agree (R-hat of a prediction {worst:.2f}): take more warmup and draws"
HIGH = 1.1  # R-hat


@dataclass(frozen=True)
class Blocks(Engine):
    """Posterior propagation (Qin et al. 2019): Gibbs on blocks of the ratings, in three stages.

    The ratings are cut into `rows` x `cols` blocks. Stage 1 fits the first block. Stage 2 fits the other
    blocks of the first row and of the first column. The factors that they share with the first block have
    its posterior as their prior, as a normal distribution for each row. Stage 3 fits all other blocks, with
    such priors for users and items. In the end the densities of each row from all blocks are multiplied,
    and divided by the priors that were counted several times.

    Fits of one stage do not depend on one another, and pass on only means and covariances. They can run in
    other processes or on a cluster (`joblib.parallel_config`), with the same result for any number of
    workers.

    The draws are an approximation. Rows have normal distributions and are independent of one another, and a
    block does not use ratings of later stages. `docs/machines.md` compares the result with Gibbs. `bpmf` and
    `pmf` can run with this engine, without features.

    Parameters
    ----------
    rows, cols : int
        The numbers of groups of users and of items. Users and items with most ratings are in the first
        groups, and all groups have about equally many ratings.
    warmup, draws, chains : int
        The settings of the Gibbs run of each block. The result has `chains` x `draws` independent draws.
    jobs : int, optional
        Blocks that run at a time, each in a separate process; without it `joblib.parallel_config` decides.
    folder : str, optional
        Store the result of each finished block there. If the run is killed, the same call continues it.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(60, 40, 2, seed=0)
    >>> fit = bf.fit("bpmf", ratings, bf.Blocks(2, 2, 50, 50, 2), n_components=2, progress=False)
    >>> fit.draws["U"].shape
    (1, 100, 60, 2)
    """

    rows: int = 2
    cols: int = 2
    warmup: int = 500
    draws: int = 500
    chains: int = 4
    jobs: int | None = None
    folder: str | None = None

    def __post_init__(self) -> None:
        for setting, low in {"rows": 1, "cols": 1, "warmup": 0, "draws": 1, "chains": 1}.items():
            value = getattr(self, setting)
            checks.whole_number(f"Blocks({setting}=...)", value, low)
            object.__setattr__(self, setting, int(value))
        calls.workers(self.jobs)

    def run(self, job: Job) -> Result:
        """Run all stages, then draw from the products of their densities."""
        plan = Plan(self, job)
        with bar(job.progress, len(plan.blocks), job.method.name) as shown:
            for stage in plan.stages:
                for place, found, r_hat in plan.run(stage):
                    plan.found[place] = found
                    plan.r_hat.append(r_hat)
                    shown.update(1)
        draws = plan.draws()
        lp = log_joints(job, draws)
        notes = [APPROXIMATE.format(count=len(plan.blocks))]
        if (worst := np.max(plan.r_hat)) > HIGH:
            notes.append(UNEVEN.format(worst=worst))
        return Result(draws=draws, trace=-lp.ravel(), stats={"lp": lp}, notes=notes)


class Plan:
    """The blocks of a run, and the results so far."""

    def __init__(self, engine: Blocks, job: Job) -> None:
        method, data = job.method, job.data
        if not isinstance(data, Ratings) or data.x or job.start:
            raise BayesfacError(
                "Expected Blocks with ratings, without features and init, got others"
            )
        self.engine, self.job = engine, job
        p = method.init(job.key, data, job.hyper)
        self.kinds = kinds(method, p, data, job.hyper)
        self.prior = {
            site: prior_of(method, site, p, data, job.hyper)
            for site, kind in self.kinds.items()
            if kind in ("biases", "gamma")
        }
        parts = {"user": engine.rows, "item": engine.cols}
        self.groups = {s: groups(data.per_row(s), parts[s], f"{s}s") for s in SIDES}
        self.blocks = cut(data, self.groups)
        self.found: dict[Place, dict[str, Belief]] = {}
        self.r_hat: list[float] = []

    @property
    def stages(self) -> list[list[Place]]:
        """The first block; the others of its row and column; the rest."""
        stage = {place: (place[0] > 0) + (place[1] > 0) for place in self.blocks}
        # blocks of the first row have one side in common with the first block, so do those of its column
        return [[place for place in self.blocks if stage[place] == k] for k in range(3)]

    def side(self, site: str) -> int | None:
        """Whether the rows of a site are those of users (0) or items (1); None: it has no rows."""
        axes = site_dims(self.job.method, site)
        return SIDES.index(axes[0]) if axes and axes[0] in SIDES else None

    def first_of(self, place: Place, side: int | None) -> Place:
        """The block whose posterior is the prior of a site in this block."""
        if side is None:
            return 0, 0
        return (place[0], 0) if side == 0 else (0, place[1])

    def known(self, place: Place) -> BlockData:
        """The ratings of a block, and the results of earlier stages for its sites."""
        rows, more = {}, {}
        for site, kind in self.kinds.items():
            before = self.first_of(place, self.side(site))
            if kind == "after" or before == place:
                continue
            belief = self.found[before][site]
            if kind == "rows":
                rows[site] = belief
            else:
                more[site] = belief.less(self.prior_at(site, place))
        return BlockData(self.blocks[place], rows, more)

    def prior_at(self, site: str, place: Place) -> Belief:
        """The method's prior of a site in a block."""
        side = self.side(site)
        if side is None:
            return self.prior[site]
        at = self.groups[SIDES[side]][place[side]]
        return Belief(*(x[at] for x in self.prior[site]))

    def run(self, stage: list[Place]) -> Iterator[tuple[Place, dict[str, Belief], float]]:
        """Yield the results of the blocks of a stage; those that are in the folder come first."""
        missing = []
        for place in stage:
            if (kept := self.kept(place)) is not None:
                yield place, *kept
            else:
                missing.append(place)
        results = calls.finished_calls(map(self.call, missing), self.engine.jobs)
        for place, found, r_hat in results:
            self.keep(place, found, r_hat)
            yield place, found, r_hat

    def call(self, place: Place) -> tuple:
        """The call that fits a block, with its own key, and without jitter if its start is known."""
        engine, job = self.engine, self.job
        number = place[0] * engine.cols + place[1]
        key = np.asarray(jax.random.key_data(jax.random.fold_in(job.key, number)))
        jitter = Gibbs.jitter if place == (0, 0) else 0.0
        gibbs = Gibbs(engine.warmup, engine.draws, engine.chains, jitter=jitter)
        known = calls.Shared(self.known(place))
        return of_block, portable(job.method), place, known, job.hyper, key, gibbs, self.kinds

    def path(self, place: Place) -> Path | None:
        folder = self.engine.folder
        return None if folder is None else Path(folder) / f"block-{place[0]}-{place[1]}.npz"

    def keep(self, place: Place, found: dict[str, Belief], r_hat: float) -> None:
        """Write the result of a block into the folder."""
        if (path := self.path(place)) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            parts = {site: belief._asdict().items() for site, belief in found.items()}
            arrays = {f"{part} of {s}": x for s, own in parts.items() for part, x in own}
            write_arrays(path, {"run": self.job.identity, "r_hat": r_hat}, arrays)

    def kept(self, place: Place) -> tuple[dict[str, Belief], float] | None:
        """The result of a block from an earlier start of this run, or None."""
        if (path := self.path(place)) is None or not path.exists():
            return None
        header, arrays = read_arrays(path)
        if header["run"] != self.job.identity:
            raise BayesfacError(
                f"Expected a folder of this run, got {path} of other data, settings, seed or version of "
                "bayesfac: take another one"
            )
        names = {site for site, kind in self.kinds.items() if kind != "after"}
        found = {s: Belief(*(arrays[f"{part} of {s}"] for part in Belief._fields)) for s in names}
        return found, float(header["r_hat"])

    def draws(self) -> dict[str, np.ndarray]:
        """{site: (1, draw, ...)} from the products of the densities of all blocks."""
        engine, job = self.engine, self.job
        count = engine.chains * engine.draws
        rng = np.random.default_rng(np.asarray(jax.random.key_data(job.key)))
        sample = {"rows": beliefs.sampled, "biases": beliefs.sampled, "gamma": _gammas}
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        found = {}
        for site, kind in self.kinds.items():
            if kind != "after":
                x = sample[kind](self.belief(site), count, rng)
                found[site] = np.asarray(x, dtype)[None]
        keys = jax.random.split(jax.random.fold_in(job.key, 2**20), (1, count))
        found["key"] = np.asarray(jax.random.key_data(keys))
        return each_draw(completed, found, job.data, job.method, job.hyper)

    def belief(self, site: str) -> Belief:
        """The combined result of all blocks for a site, in the order of the data."""
        side = self.side(site)
        if side is None:
            return self._product(site, (0, 0), None)
        of_group = self.groups[SIDES[side]]
        firsts = [(k, 0) if side == 0 else (0, k) for k in range(len(of_group))]
        found = [self._product(site, first, side) for first in firsts]
        back = np.argsort(np.concatenate(of_group))
        return Belief(*(np.concatenate(x)[back] for x in zip(*found, strict=True)))

    def _product(self, site: str, first: Place, side: int | None) -> Belief:
        """The density of the first block, times what each later block added to it."""
        later = [
            found[site]
            for place, found in sorted(self.found.items())
            if place != first and self.first_of(place, side) == first
        ]
        return combined(self.found[first][site], later)


def _gammas(belief: Belief, draws: int, rng: np.random.Generator) -> np.ndarray:
    return rng.gamma(float(belief.precision), 1 / float(belief.shift), draws)
