"""Simulation-based calibration: true parameters from the prior, data from these, and their rank among draws.

Talts, Betancourt, Simpson, Vehtari & Gelman, "Validating Bayesian inference algorithms with simulation-based
calibration", 2018; Modrak et al., "Simulation-based calibration checking for Bayesian computation: the choice
of test quantities shapes sensitivity", Bayesian Analysis 2023, who say why the likelihood of the data belongs
among the quantities.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.kernels import sparse
from bayesfac.core.method import Method, lookup, settle, unknown
from bayesfac.inference import ENGINES
from bayesfac.inference.result import bar
from bayesfac.report import arviz_versions
from bayesfac.simulation import joint
from bayesfac.simulation.quantities import identified, probes
from bayesfac.simulation.results import Calibration as Calibration
from bayesfac.simulation.samplers import SAMPLERS, Length, Posterior

BLOCK = 100  # replications at a time
USUAL = {"Gibbs": (500, 20), "NUTS": (300, 3), "SVI": (0, 1)}  # warm-up, and steps for each draw
SETTINGS = {  # of the engines, what makes sense here
    "Gibbs": (),
    "NUTS": ("target_accept", "max_tree_depth", "jitter"),
    "SVI": ("guide", "steps", "learning_rate"),
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
    progress: bool = True,
    **settings: Any,
) -> Calibration:
    """Check an engine on a method by the ranks of true values among the draws of their posterior.

    For each replication the parameters are drawn from the method's joint and the data given these; the
    engine then draws from the posterior, and the true value of every identified quantity is ranked among
    its draws. Ranks of a right sampler are uniform. SVI is an approximation: how far it is off is measured.
    All replications of a block run in one compiled program, in float64.

    Parameters
    ----------
    method : str or Method
    engine : {"Gibbs", "NUTS", "SVI"}
    replications : int
    draws : int
        Draws that are ranked among; `draws` + 1 with many divisors makes even bins.
    warmup, thin : int, optional
        Steps thrown away, and steps for each draw that is kept: so many that draws are nearly independent.
    seed : int
    data : optional
        Sizes and cells, whose values are drawn anew; the method's own tiny example by default.
    hyper : mapping, optional
        Hyper-parameters other than those of the example (of `data`: other than the defaults).
    settings
        Of the engine: `target_accept`, `max_tree_depth`, `jitter` (NUTS), `guide`, `steps`, `learning_rate`
        (SVI).

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
    length = _length(engine, warmup, draws, thin)
    _count("replications", replications, 10)
    _count("seed", seed, 0)
    with jax.enable_x64(True), sparse.use("jax"):
        example, full = _example(method, data, hyper)
        said = made.guide if engine == "SVI" else ""
        name = f"{engine} ({said})" if said else engine
        ran = {"seed": seed, "warmup": length.warmup, "thin": length.thin, **settings}
        ran |= {"hyper": dict(hyper or {})}
        if reason := joint.obstacle(method, example, full):
            return Calibration(method.name, name, settings=ran, reason=reason)
        key, walk = jax.random.split(jax.random.key(seed))
        found = joint.truths(method, example, full, key, replications)
        if found.reason:
            return Calibration(method.name, name, settings=ran, reason=found.reason)
        posterior = SAMPLERS[engine](method, example, full, made, length)
        whole_run = _run(method, example, full, posterior, found.keys, walk, progress)
    return _judged(method, engine, name, length, found, ran, whole_run)


# -- running --------------------------------------------------------------------------------------
def _run(
    method: Method,
    example: Any,
    hyper: Any,
    posterior: Posterior,
    truths: jax.Array,
    walk: jax.Array,
    progress: bool,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray], bool]:
    """True values (replication), draws (replication, draw), what the engine says, and whether cut short."""
    cells = probes(example)

    def one(truth: jax.Array, key: jax.Array) -> tuple:
        p = joint.prior_draw(method, example, hyper, truth)
        drawn, sampled = jax.random.split(key)
        data = joint.redrawn(method, example, hyper, p, drawn)
        many, told = posterior(sampled, data)

        every = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), p, many)
        numbers = jax.lax.map(lambda p: identified(method, p, data, hyper, cells), every)
        return {q: x[0] for q, x in numbers.items()}, {q: x[1:] for q, x in numbers.items()}, told

    every = jax.jit(jax.vmap(one))
    count = len(truths)
    blocks = -(-count // BLOCK)
    size = -(-count // blocks)
    at = np.minimum(np.arange(blocks * size), count - 1)  # the last one again fills the last block
    keys = jax.random.split(walk, count)
    parts: list[Any] = []
    with bar(progress, count, f"{method.name}: replications") as shown:
        try:
            for block in at.reshape(blocks, size):
                parts.append(jax.tree.map(np.asarray, every(truths[block], keys[block])))
                shown.update(size)
        except KeyboardInterrupt:
            if not parts:
                raise
    done = min(count, size * len(parts))
    joined = jax.tree.map(lambda *x: np.concatenate(x)[:done], *parts)
    return (*joined, done < count)


def _judged(
    method: Method,
    engine: str,
    name: str,
    length: Length,
    truths: joint.Truths,
    ran: dict[str, Any],
    found: tuple,
) -> Calibration:
    """Ranks, and what a reader should know of them."""
    true, drawn, told, partial = found
    fine = np.all([np.isfinite(true[q]) & np.isfinite(drawn[q]).all(1) for q in true], axis=0)
    rng = np.random.default_rng(ran["seed"])
    ranks = pd.DataFrame({q: ranked(true[q][fine], drawn[q][fine], rng) for q in true})
    ess = pd.Series(dict.fromkeys(true, float(length.draws)))
    if engine != "SVI":
        ess = pd.Series({q: effective(drawn[q][fine]) for q in true})
    notes = ["interrupted: this is what there was"] if partial else []
    if truths.pool:
        notes.append(
            f"true values were chosen by weight from {truths.pool} draws of the prior, which are worth "
            f"{truths.effective:.0f}: the model has a factor that is no density"
        )
    if broken := int((~fine).sum()):
        notes.append(f"{broken} of {len(fine)} replications gave NaN or infinity")
    if (worst := ess.min()) < length.draws / 2:
        more = int(np.ceil(length.thin * length.draws / max(worst, 1)))
        notes.append(
            f"{length.draws} draws of {ess.idxmin()} are worth {worst:.0f} independent ones: correlated "
            f"draws give false alarms; thin={more} would do"
        )
    if "diverging" in told and (share := float(told["diverging"].mean())):
        notes.append(f"{share:.2%} of the transitions diverged")
    return Calibration(method.name, name, ranks, length.draws, ess, ran, tuple(notes), broken)


def ranked(true: np.ndarray, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many draws (replication, draw) are below the true value; ties are broken at random.

    >>> ranked(np.array([0.5, 2.0]), np.array([[0, 1], [0, 1]]), np.random.default_rng(0)).tolist()
    [1, 2]
    """
    below, equal = (drawn < true[:, None]).sum(1), (drawn == true[:, None]).sum(1)
    return below + rng.integers(0, equal + 1)


def effective(drawn: np.ndarray) -> float:
    """How many independent draws those of a replication are worth: the mean over the first hundred, and all
    where none moves."""
    each = arviz_versions.ess(drawn[:100].T[None])
    count = drawn.shape[1]
    return (
        float(np.minimum(each[np.isfinite(each)], count).mean())
        if np.isfinite(each).any()
        else count
    )


# -- what was asked for ---------------------------------------------------------------------------
def _engine(method: Method, engine: str, settings: Mapping[str, Any]) -> Any:
    """The engine with its settings."""
    if engine not in SAMPLERS:
        raise LookupError(unknown("engine of sbc", engine, SAMPLERS))
    if engine not in method.engines:
        raise ValueError(
            f"Expected an engine of {method.name}, got {engine!r}: it declares no conditionals; "
            "'NUTS' draws from any model"
        )
    for name in settings:
        if name not in SETTINGS[engine]:
            raise LookupError(unknown(f"setting of sbc by {engine}", name, SETTINGS[engine]))
    return ENGINES[engine](**settings)


def _length(engine: str, warmup: int | None, draws: int, thin: int | None) -> Length:
    usual = USUAL[engine]
    length = Length(
        usual[0] if warmup is None else warmup, draws, usual[1] if thin is None else thin
    )
    for name, least in (("warmup", 0), ("draws", 1), ("thin", 1)):
        _count(name, getattr(length, name), least)
    return length


def _count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ValueError(f"Expected {name} to be a whole number from {least} on, got {value!r}")


def _example(method: Method, data: Any, hyper: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """Data whose values do not matter, and the Hyper, both complete."""
    if data is None:
        example, usual = method.example(jax.random.key(0))
        for name in hyper or {}:
            if name not in usual._fields:
                raise LookupError(unknown(f"hyper-parameter of {method.name}", name, usual._fields))
        return example, method.prepare(example, usual._replace(**(hyper or {})))
    if not isinstance(data, method.data):
        raise TypeError(
            f"Expected {method.data.__name__} for {method.name}, got {type(data).__name__}"
        )
    full = settle(method, data, hyper or {})
    real = jax.tree.map(lambda x: jnp.asarray(x, float) if x.dtype.kind == "f" else x, data)
    return method.ready(real, full), full
