"""Stochastic variational inference (SVI), and its special case for a point estimate (MAP)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import optim
from numpyro.handlers import Messenger
from numpyro.infer import SVI as NumpyroSVI
from numpyro.infer import Trace_ELBO, init_to_value

from bayesfac.core import checks
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Method, Rotation, from_sites, gauge_of, sites
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint, freeze, thaw
from bayesfac.inference.driver import Run
from bayesfac.inference.result import (
    Engine,
    Job,
    Result,
    check_number,
    check_settings,
    check_sites,
    each_draw,
    log_joints,
    program,
    require,
)
from bayesfac.inference.unconstrained import off_edge, require_proper, supports, unconstrain
from bayesfac.inference.variational import laplace_rows
from bayesfac.inference.variational.guides import GUIDES

BLOCK = 100  # steps per compiled call: one progress report, one test of the stopping rule
WINDOW = 10  # the stopping rule compares the last 10 blocks with the 10 blocks before them


@dataclass(frozen=True)
class SVI(Engine):
    """Stochastic variational inference: fit a simple distribution, the guide, to the posterior.

    Adam maximises the ELBO, which is a lower bound of the log probability of the data.

    Parameters
    ----------
    steps : int
        The largest number of Adam steps. The learning rate falls to a hundredth over these steps.
    guide : {"normal", "rows", "multivariate", "lowrank", "laplace", "flow", "blocks"}
        The guide is a normal distribution of all unconstrained parameters. It is independent ("normal", mean
        field), has a full covariance for each row of a factor ("rows"), a full covariance ("multivariate"), a
        covariance of low rank plus a diagonal ("lowrank"), or the curvature at the mode ("laplace"). "flow"
        is an autoregressive flow. "blocks" takes no steps: it has the curvature at the solver's point for
        each row, for methods whose factors may rotate.
    learning_rate : float, optional
        By default 0.01, and 0.001 for a flow, which diverges with 0.01.
    batch : int, optional
        Cells in each step; all cells by default.
    draws : int
        The number of draws from the fitted guide.
    patience : bool
        Stop early, when the mean ELBO of 1000 steps is at most one standard error better, and at most
        three standard errors worse, than the mean of the 1000 steps before.
    check : bool
        Check the standard deviations by a few Gibbs sweeps, if the method has a Gibbs sampler.
        `fit.diagnostics()` has the result.
    folder : str, optional
        Write a checkpoint there every `save_every` seconds. If the run is killed, the same call continues it.
    """

    steps: int = 10_000
    guide: str = "normal"
    learning_rate: float | None = None
    batch: int | None = None
    draws: int = 1000
    patience: bool = True
    check: bool = True
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, steps=1, draws=1, **({} if self.batch is None else {"batch": 1}))
        checks.one_of(self, "guide", (*(name for name in GUIDES if name != "delta"), "blocks"))
        if self.learning_rate is not None:
            checks.positive(self, "learning_rate")

    def run(self, job: Job) -> Result:
        """Fit the guide, then draw from it; there is one chain, as draws are independent."""
        if self.guide == "blocks":
            return laplace_rows.run(self, job)
        method, p, key = job.method, job.start_point(job.key), jax.random.fold_in(job.key, 1)
        if self.batch is not None and (why := method.notes.traits.get("no_minibatch")):
            raise BayesfacError(
                f"SVI(batch=...) cannot run {method.name}: no minibatches, as {why}"
            )
        require_proper(method, job.data, job.hyper, p)
        turns = any(isinstance(g, Rotation) for g in gauge_of(method, sites(p)))
        require(
            self.guide != "laplace" or not turns,
            f"Expected a guide other than 'laplace' for {method.name}: its factors may rotate, so the "
            "curvature at the mode is zero in some directions and the Gaussian there has no width; "
            "guide='blocks' takes the curvature row by row",
        )
        free = unconstrain(supports(method, job.data, job.hyper, p), p)
        require(
            any(x.size for x in free.values()),
            f"Expected parameters that can vary, got none: with this data and these settings all "
            f"parameters of {method.name} are probabilities of one outcome",
        )
        made = _fit(self, job, p, key)
        known = method, job.hyper, settings_of(self)
        many = program(_draws, job.data, self.draws, *known)(p, key, job.data, made.params)
        draws = {site: np.asarray(many[site])[None] for site in sites(p)}
        for site, value in draws.items():
            require(bool(np.isfinite(value).all()), f"Expected finite draws of {site}, got NaN")
        weights = each_draw(_log_weight, draws, (p, job.data, made.params), *known)
        stats = {"lp": log_joints(job, draws), "log_weight": weights}
        return Result(draws=draws, trace=made.trace, stats=stats, **made.outcome)


@dataclass(frozen=True)
class MAP(Engine):
    """The mode of the joint density of the NumPyro model, found by Adam: a check of the method's own solver.

    Parameters
    ----------
    steps : int
        The largest number of Adam steps. The learning rate falls to a hundredth over these steps.
    learning_rate : float
    patience : bool
        Stop when 1000 steps are no better than the 1000 steps before.
    folder : str, optional
        Write a checkpoint there every `save_every` seconds. If the run is killed, the same call continues it.
    """

    steps: int = 10_000
    learning_rate: float = 0.01
    patience: bool = True
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, steps=1)
        checks.positive(self, "learning_rate")

    def run(self, job: Job) -> Result:
        """Maximise the log joint from the start."""
        p = job.start_point(job.key)
        made = _fit(self, job, p, job.key)
        median = program(_median, job.data, job.method, job.hyper, settings_of(self))
        values = median(p, job.key, job.data, made.params)
        point = from_sites(job.method, {site: values[site] for site in sites(p)})
        check_sites(point, "at the end")
        # the loss is the objective plus a constant of the data: the trace shows the objective
        trace = made.trace - made.trace[-1] + float(job.objective(point, job.data))
        return Result(point, None, trace, **made.outcome)


class Weighted(Messenger):
    """Scale the log density of observed sites: a minibatch stands for all cells."""

    def __init__(self, fn: Any, weights: Mapping[str, float]) -> None:
        super().__init__(fn)
        self.weights = weights

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["is_observed"] and msg["name"] in self.weights:
            msg["scale"] = self.weights[msg["name"]] * (1 if msg["scale"] is None else msg["scale"])


class Ordered(Trace_ELBO):
    """The ELBO, with its sites added in the order of their names. NumPyro adds them in the order of a set,
    which differs between processes, so a resumed run would have other rounding errors and another result."""

    def loss_with_mutable_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state = super().loss_with_mutable_state(*args, **kwargs)
        parts = state["loss"]
        return {**state, "loss": sum(parts[site] for site in sorted(parts))}


class Settings(NamedTuple):
    """The settings that determine the steps of a fit, together with the model and the start."""

    guide: str
    steps: int
    rate: float
    batch: int | None


def settings_of(engine: SVI | MAP) -> Settings:
    """The settings of the steps of this engine."""
    if isinstance(engine, MAP):
        return Settings("delta", engine.steps, engine.learning_rate, None)
    rate = engine.learning_rate or (0.001 if engine.guide == "flow" else 0.01)
    return Settings(engine.guide, engine.steps, rate, engine.batch)


class Made(NamedTuple):
    """Params of a guide, the trace of -ELBO, and fields of a Result that say how the fit ended."""

    params: Any
    trace: np.ndarray
    outcome: dict[str, Any]


def variational(
    method: Method, hyper: Any, settings: Settings, p: Any, key: jax.Array, data: Any
) -> tuple[NumpyroSVI, Any, Any]:
    """NumPyro's SVI over (data, weights of observed sites), its guide with its location at p, and the state
    before the first step. Every compiled function makes them anew, because they belong to one trace."""

    def model(data: Any, weights: Mapping[str, float]) -> None:
        with Weighted(None, weights):
            method.model(data, hyper)

    transforms = supports(method, data, hyper, p)
    at = init_to_value(values={k: off_edge(transforms[k], v) for k, v in sites(p).items()})
    guide = GUIDES[settings.guide](model, init_loc_fn=at)
    decay = optim.Adam(lambda i: settings.rate * 0.01 ** (i / settings.steps))
    svi = NumpyroSVI(model, guide, decay, Ordered(sum_sites=False))
    return svi, guide, svi.init(key, data, {})


def _begin(*known: Any) -> Any:
    return variational(*known)[2]


def _block(
    method: Method,
    hyper: Any,
    settings: Settings,
    length: int,
    p: Any,
    key: jax.Array,
    data: Any,
    state: Any,
) -> tuple[Any, jax.Array]:
    """So many steps of Adam and their losses."""
    svi, _, _ = variational(method, hyper, settings, p, key, data)

    def step(state: Any, _: None) -> tuple[Any, jax.Array]:
        if settings.batch is None:
            return svi.update(state, data, {})
        part, weights = data.batch(jax.random.fold_in(state.rng_key, 7), settings.batch)
        return svi.update(state, part, weights)

    return jax.lax.scan(step, state, None, length=length)


def _params(*args: Any) -> Any:
    *known, state = args
    return variational(*known)[0].get_params(state)


def _median(*args: Any) -> dict[str, jax.Array]:
    *known, params = args
    return variational(*known)[1].median(params)


def _draws(count: int, *args: Any) -> dict[str, jax.Array]:
    *known, params = args
    return variational(*known)[1].sample_posterior(known[4], params, sample_shape=(count,))


def _fit(engine: SVI | MAP, job: Job, p: Any, key: jax.Array) -> Made:
    """Steps in a compiled loop, until the ELBO no longer rises."""
    settings = settings_of(engine)
    known = job.data, job.method, job.hyper, settings
    start = p, key, job.data
    begin, params_of = (program(each, *known) for each in (_begin, _params))
    state = begin(*start)
    point = Checkpoint(engine.folder, job.identity, engine.save_every)
    trace: list[float] = []
    if saved := point.load():
        trace = list(saved.pop("trace"))
        state = thaw(saved, state)
    arrays = lambda: {"trace": trace, **freeze(state)}  # noqa: E731
    with Run(job, len(trace), engine.steps, point, arrays, what=settings.guide) as run:
        while len(trace) < engine.steps and not (engine.patience and settled(trace)):
            block = program(_block, *known, min(BLOCK, engine.steps - len(trace)))
            state, losses = block(*start, state)
            trace += np.asarray(losses, np.float64).tolist()
            where = f"in step {len(trace)}; try a smaller learning_rate"
            check_number(trace[-1], "ELBO", where)
            run.made(len(losses), loss=f"{np.mean(trace[-BLOCK:]):.6g}")
    if not trace:
        raise KeyboardInterrupt("interrupted before the first steps: there is nothing to return")
    notes = [f"interrupted after {len(trace)} steps"] if run.interrupted else []
    outcome = {"converged": settled(trace), "partial": run.interrupted, "notes": notes}
    if not outcome["converged"] and gain(trace) < -3:
        notes.append(f"the ELBO got worse after {len(trace)} steps: take a smaller learning_rate")
    elif not outcome["converged"]:
        notes.append(f"the ELBO was still moving after {len(trace)} steps: take more")
    return Made(params_of(*start, state), np.asarray(trace), outcome)


def settled(trace: list[float]) -> bool:
    """Whether the last 1000 steps are at most one standard error better than the 1000 before, and at most
    three standard errors worse. A guide that diverges has not converged."""
    return len(trace) >= 2 * WINDOW * BLOCK and -3 <= gain(trace) <= 1


def gain(trace: list[float]) -> float:
    """The gain of the last 1000 steps over the 1000 before (or of halves), in standard errors."""
    n = min(WINDOW * BLOCK, len(trace) // 2)
    if n < WINDOW:
        return math.inf
    means = np.asarray(trace[-2 * n :]).reshape(2, n)[:, : n // WINDOW * WINDOW]
    old, new = means.reshape(2, WINDOW, -1).mean(2)
    error = np.sqrt((old.var() + new.var()) / WINDOW) + 1e-9 * abs(new.mean())
    return float((old.mean() - new.mean()) / max(error, 1e-300))


def _log_weight(method: Method, hyper: Any, settings: Settings, known: tuple) -> Any:
    p, data, params = known
    guide = variational(method, hyper, settings, p, jax.random.key(0), data)[1]
    return log_weight(guide, params, method, hyper, data)


def log_weight(guide: Any, fitted: Any, method: Method, hyper: Any, data: Any) -> Any:
    """{site: value} of one draw -> log joint minus log guide, both in unconstrained coordinates, up to one
    constant.

    With the exponential as their weight, draws of the guide become draws of the posterior if the tails of
    the guide are wide enough. Pareto's k of the largest weights shows whether they are (Yao et al. 2018).
    """
    density = _density(guide, fitted)

    def of_draw(values: Mapping[str, jax.Array]) -> jax.Array:
        p = from_sites(method, values)
        transforms = supports(method, data, hyper, p)
        free = {site: transforms[site].inv(value) for site, value in values.items()}
        scale = {s: transforms[s].log_abs_det_jacobian(free[s], x) for s, x in values.items()}
        volume = sum(jnp.sum(each) for each in scale.values())
        return volume - method.objective(p, data, hyper) - density(free)

    return of_draw


def _density(guide: Any, fitted: Any) -> Any:
    """The guide's log density as a function of unconstrained numbers {site: value}."""
    law, order = guide.get_posterior(fitted), list(guide._init_locs)
    # JAX sorts the keys of a dict; the guide's own order differs where the model has plates
    return lambda free: jnp.sum(law.log_prob(jnp.concatenate([free[s].ravel() for s in order])))
