"""Simulation-based calibration, a test of samplers.

True parameters are drawn from the prior, and data given these parameters. The sampler then draws from the
posterior given the data, and the rank of the true values among the draws is computed. If the sampler is
correct, the ranks are uniform.

Talts, Betancourt, Simpson, Vehtari & Gelman, "Validating Bayesian inference algorithms with simulation-based
calibration", 2018; Modrak et al., "Simulation-based calibration checking for Bayesian computation: the
choice of test quantities shapes sensitivity", Bayesian Analysis 2023. The second paper explains why the
likelihood of the data is among the quantities that are ranked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.calls import Shared, finished_calls
from bayesfac.core.errors import check_names
from bayesfac.core.method import Method, contain, lookup, portable, settle
from bayesfac.inference import ENGINES, joint
from bayesfac.inference.result import Job, bar
from bayesfac.report import arviz_versions
from bayesfac.simulation.quantities import identified, probes
from bayesfac.simulation.results import Calibration as Calibration
from bayesfac.simulation.samplers import SAMPLERS, Length

BLOCK = 100  # replications at a time
# For each engine: warm-up, and steps for each draw.
USUAL = {"Gibbs": (500, 20), "NUTS": (300, 3), "SVI": (0, 1), "VB": (50, 1), "Quick": (0, 1)}
SETTINGS = {  # the settings of each engine that `sbc` accepts
    "Gibbs": (),
    "NUTS": ("target_accept", "max_tree_depth", "jitter"),
    "SVI": ("guide", "steps", "learning_rate"),
    "VB": ("max_iter", "widen"),
    "Quick": ("sweeps", "chains", "pairs"),
}


def sbc(
    method: Any,
    engine: str = "Gibbs",
    *,
    replications: int = 500,
    draws: int = 99,
    warmup: int | None = None,
    thin: int | None = None,
    seed: int = 0,
    data: Any = None,
    hyper: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> Calibration:
    """Simulation-based calibration: test whether an engine samples the posterior of a method correctly.

    In each replication, parameters are drawn from the method's joint distribution, and data given the
    parameters. The engine then draws from the posterior. For every identified quantity (one that does not
    change if factors are rotated or relabelled), the rank of its true value among its draws is computed. The
    ranks are uniform if the sampler is correct. SVI, VB and Quick are approximations, and the ranks measure
    their error. Replications run in blocks of at most 100, each in one compiled program, in float64.

    Parameters
    ----------
    method : str or Method
    engine : {"Gibbs", "NUTS", "SVI", "VB", "Quick"}
    replications : int
        The number of simulated data sets.
    draws : int
        Draws in each replication. The bins of the ranks are equal if `draws` + 1 has many divisors.
    warmup, thin : int, optional
        Steps that are thrown away, and steps for each kept draw. The defaults make draws nearly independent.
    seed : int
        The same seed gives the same ranks.
    data : optional
        Data whose sizes and cells are used; the values are drawn anew. By default the method's example.
    hyper : mapping, optional
        Hyper-parameters that replace those of the example, or the defaults if there are `data`.
    jobs : int, optional
        Blocks of replications that run at a time, each in a separate process; -1 means all cores. Without it
        `joblib.parallel_config` decides. Results do not depend on it.
    settings
        Settings of the engine: `target_accept`, `max_tree_depth`, `jitter` (NUTS), `guide`, `steps`,
        `learning_rate` (SVI), `max_iter`, `widen` (VB), `sweeps`, `chains`, `pairs` (Quick).

    Examples
    --------
    >>> import bayesfac as bf
    >>> found = bf.sbc("pmf", "Gibbs", replications=40, draws=19, warmup=20, thin=2, progress=False)
    >>> found.ranks.shape[0], found.ok
    (40, True)
    >>> bf.sbc("pmmmf", "NUTS").reason
    'pmmmf has no law of ratings: its centres are made of the ratings themselves'
    """
    from bayesfac import models  # noqa: F401  # registers every method

    method = lookup(method)
    made = _engine(method, engine, settings)
    usual = USUAL[engine]
    length = Length(
        usual[0] if warmup is None else warmup, draws, usual[1] if thin is None else thin
    )
    for what, value, least in (
        ("warmup", length.warmup, 0), ("draws", draws, 1), ("thin", length.thin, 1),
        ("replications", replications, 10),
    ):  # fmt: skip
        checks.whole_number(what, value, least)
    checks.seeded(seed)
    with jax.enable_x64(True):
        example, full = _example(method, data, hyper)
        name = f"{engine} ({made.guide})" if engine == "SVI" else engine
        ran = {"seed": seed, "warmup": length.warmup, "thin": length.thin, **settings}
        empty = Calibration(method.name, name, settings=ran | {"hyper": dict(hyper or {})})
        if reason := joint.obstacle(method, example, full):
            return replace(empty, reason=reason)
        key, walk = jax.random.split(jax.random.key(seed))
        truths = joint.truths(method, example, full, key, replications)
        if truths.reason:
            return replace(empty, reason=truths.reason)
        job = Job(method, example, full, walk, progress=progress)
        samples = _run(job, engine, made, length, truths.keys, jobs)
    return _judged(empty, length, truths, *samples)


# -- running --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Replicated:
    """What all blocks of one calibration have in common. The name identifies the calibration, so that a
    process compiles its program once."""

    name: str
    method: Any = field(compare=False)
    engine: tuple[str, Any] = field(compare=False)
    length: Length = field(compare=False)
    hyper: Any = field(compare=False)
    example: Any = field(default=None, compare=False)


def _run(
    job: Job, engine: str, made: Any, length: Length, truths: jax.Array, jobs: int | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray], bool]:
    """True values (replication), draws (replication, draw), the engine's statistics, whether interrupted."""
    what = Replicated(uuid4().hex, portable(job.method), (engine, made), length, job.hyper)
    shared, count = Shared(job.data), len(truths)
    blocks = -(-count // BLOCK)
    size = -(-count // blocks)
    at = np.minimum(np.arange(blocks * size), count - 1)  # the last truth pads the last block
    keys = [
        np.asarray(jax.random.key_data(key)) for key in (truths, jax.random.split(job.key, count))
    ]
    calls = [
        (_block, what, shared, number, *(key[block] for key in keys))
        for number, block in enumerate(at.reshape(blocks, size))
    ]
    parts = dict[int, Any]()
    with bar(job.progress, count, f"{job.method.name}: replications") as shown:
        try:
            for number, found in finished_calls(calls, jobs):
                parts[number] = found
                shown.update(size)
        except KeyboardInterrupt:
            if not parts:
                raise
    done = sorted(parts)
    real = np.arange(blocks * size).reshape(blocks, size)[done].ravel() < count
    joined = jax.tree.map(lambda *x: np.concatenate(x)[real], *(parts[number] for number in done))
    return (*joined, int(real.sum()) < count)


def _block(
    what: Replicated, example: Any, number: int, truths: np.ndarray, keys: np.ndarray
) -> tuple[int, Any]:
    """All replications of a block, in one program."""
    every = _program(replace(what, example=example))
    found = every(*(jax.random.wrap_key_data(jnp.asarray(key)) for key in (truths, keys)))
    return number, jax.tree.map(np.asarray, found)


@lru_cache(maxsize=1)
def _program(what: Replicated) -> Any:
    """The function (true parameters, key) -> true values, draws, statistics, for many at once."""
    from bayesfac import models  # noqa: F401  # registers every method, in another process too

    method, example, hyper = lookup(what.method), what.example, what.hyper
    engine, made = what.engine
    cells, job = probes(example), Job(method, example, hyper, jax.random.key(0))
    posterior = SAMPLERS[engine](job, made, what.length)

    def one(truth: jax.Array, key: jax.Array) -> tuple:
        p = joint.prior_draw(method, example, hyper, truth)
        drawn, sampled = jax.random.split(key)
        data = joint.redrawn(method, example, hyper, p, drawn)
        many, stats = posterior(sampled, data)

        every = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), p, many)
        numbers = jax.lax.map(lambda p: identified(method, p, data, hyper, cells), every)
        return {q: x[0] for q, x in numbers.items()}, {q: x[1:] for q, x in numbers.items()}, stats

    return jax.jit(jax.vmap(one))


def _judged(
    empty: Calibration, length: Length, truths: joint.Truths, true: dict[str, np.ndarray],
    drawn: dict[str, np.ndarray], stats: dict[str, np.ndarray], partial: bool,
) -> Calibration:  # fmt: skip
    """The calibration with the ranks of the true values, and notes for the reader."""
    fine = np.all([np.isfinite(true[q]) & np.isfinite(drawn[q]).all(1) for q in true], axis=0)
    rng = np.random.default_rng(empty.settings["seed"])
    ranks = pd.DataFrame({q: ranked(true[q][fine], drawn[q][fine], rng) for q in true})
    ess = pd.Series(dict.fromkeys(true, float(length.draws)))
    if not empty.engine.startswith(("SVI", "VB", "Quick")):
        ess = pd.Series({q: effective(drawn[q][fine]) for q in true})
    notes = [f"interrupted after {len(fine)} replications"] if partial else []
    if truths.pool:
        notes.append(
            f"true values were drawn with weights from {truths.pool} draws of the prior, whose effective "
            f"size is {truths.effective:.0f}, because the model has a factor that is not a density"
        )
    if broken := int((~fine).sum()):
        notes.append(f"{broken} of {len(fine)} replications gave NaN or infinity")
    if (worst := ess.min()) < length.draws / 2:
        more = int(np.ceil(length.thin * length.draws / max(worst, 1)))
        notes.append(
            f"{length.draws} draws of {ess.idxmin()} are worth {worst:.0f} independent draws: correlated "
            f"draws give false alarms; thin={more} would be enough"
        )
    if "diverging" in stats and (share := float(stats["diverging"].mean())):
        notes.append(f"{share:.2%} of the transitions diverged")
    return replace(
        empty, ranks=ranks, draws=length.draws, ess=ess, notes=tuple(notes), broken=broken
    )


def ranked(true: np.ndarray, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The number of draws (replication, draw) below the true value; ties are broken at random.

    >>> ranked(np.array([0.5, 2.0]), np.array([[0, 1], [0, 1]]), np.random.default_rng(0)).tolist()
    [1, 2]
    """
    below, equal = (drawn < true[:, None]).sum(1), (drawn == true[:, None]).sum(1)
    return below + rng.integers(0, equal + 1)


def effective(drawn: np.ndarray) -> float:
    """The effective sample size of a replication's draws: the mean over the first hundred replications; the
    number of draws if no draw moves."""
    each = arviz_versions.ess(drawn[:100].T[None])
    finite, count = each[np.isfinite(each)], drawn.shape[1]
    return float(np.minimum(finite, count).mean()) if len(finite) else count


# -- arguments ------------------------------------------------------------------------------------
def _engine(method: Method, engine: str, settings: Mapping[str, Any]) -> Any:
    """The engine with its settings; a wrong name is an error."""
    check_names("engine of sbc", (engine,), SAMPLERS)
    if engine not in method.engines:
        raise ValueError(
            f"Expected an engine of {method.name}, got {engine!r}: it declares no conditionals; "
            "'NUTS' draws from any model"
        )
    known = ("draws", "warmup", "thin", *SETTINGS[engine])
    check_names(f"setting of sbc by {engine}", settings, known)
    return ENGINES[engine](**settings)


def _example(method: Method, data: Any, hyper: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """The data, whose values do not matter, and the Hyper, both complete."""
    if data is None:
        example, usual = method.example(jax.random.key(0))
        check_names(f"hyper-parameter of {method.name}", hyper or {}, usual._fields)
        return example, method.prepare(example, usual._replace(**(hyper or {})))
    if not isinstance(data, method.data):
        raise TypeError(
            f"Expected {method.data.__name__} for {method.name}, got {type(data).__name__}"
        )
    full = settle(method, contain(method, data), hyper or {})
    return method.ready(joint.doubled(data), full), full
