"""The contract that every method keeps, as functions: for ours in tests/, for yours anywhere.

A check takes a method and a JAX key, builds the method's own `example` in float64, and raises an
AssertionError that says what differs. Where it does not apply it returns the reason why: the one the
method waives it with, or that there is nothing to check. `contract(method)` makes all of them.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import scipy.sparse as sp
from numpyro.infer import Predictive
from numpyro.infer.util import log_density

from bayesfac.core import kernels
from bayesfac.core.cards import describe
from bayesfac.core.cells import Grid, Query, Rows
from bayesfac.core.data import Ratings
from bayesfac.core.method import (
    Method, Permutation, from_sites, gauge_of, log_joint, site_dims, sites,
)  # fmt: skip
from bayesfac.core.views import Views
from bayesfac.inference import ENGINES, LBFGS, MAP
from bayesfac.inference.result import compiled, replace_sites
from bayesfac.inference.unconstrained import constrain, supports, unconstrain

Check = Callable[[Method, jax.Array], str | None]
CHECKS: dict[str, Check] = {}
BACKENDS = ("numba", "jax")


def contract(method: Method, seed: int = 0) -> dict[str, str]:
    """Every check on one method: {check: "kept", or why it does not apply}.

    Examples
    --------
    >>> from bayesfac.models import pmf
    >>> check_tree(pmf.METHOD, jax.random.key(0)) is None
    True
    """
    return {name: check(method, jax.random.key(seed)) or "kept" for name, check in CHECKS.items()}


def _listed(function: Check) -> Check:
    """Put a check on the list: in float64, and not where the method waives it."""
    name = function.__name__.removeprefix("check_")

    @wraps(function)
    def check(method: Method, key: jax.Array) -> str | None:
        if name in method.waived:
            return method.waived[name]
        with jax.enable_x64(True):
            return function(method, key)

    CHECKS[name] = check
    return check


# -- what the checks are made of ------------------------------------------------------------------
def same(left: Any, right: Any, what: str, rtol: float = 1e-9) -> None:
    """Two trees of numbers are equal up to rtol (1 + size of the larger), leaf by leaf."""
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        scale = 1 + max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
        gap = np.abs(a - b).max(initial=0) / scale
        _require(gap <= rtol, f"{what}: relative difference {gap:.3g}, at most {rtol:g} expected")


def _require(fine: Any, message: str) -> None:
    if not fine:
        raise AssertionError(message)


def points(method: Method, key: jax.Array, data: Any, hyper: Any, count: int) -> list[Any]:
    """Feasible points with nothing left at a default: starts, shaken in unconstrained coordinates."""
    found = []
    for sub in jax.random.split(key, count):
        start = method.init(sub, data, hyper)
        transforms = supports(method, data, hyper, start)
        free = unconstrain(transforms, start)
        keys = dict(zip(free, jax.random.split(sub, len(free)), strict=True))
        moved = {k: x + 0.3 * jax.random.normal(keys[k], jnp.shape(x)) for k, x in free.items()}
        found.append(constrain(method, transforms, moved))
    return found


def _likelihood(method: Method, p: Any, data: Any, hyper: Any) -> jax.Array:
    """The part of the log joint that looks at the data."""
    trace = log_density(method.model, (data, hyper), {}, sites(p))[1].values()
    seen = [site for site in trace if site["type"] == "sample" and site["is_observed"]]
    return sum(jnp.sum(site["fn"].log_prob(site["value"])) for site in seen)


def _optimum(method: Method, key: jax.Array, data: Any, hyper: Any) -> Any:
    """Where the method's own solver ends, with patience."""
    start = method.init(key, data, hyper)
    if method.update is None:
        tight = LBFGS(max_iter=20_000, tol=0)
        args = {"key": key, "start": sites(start), "progress": False, "run": ""}
        return tight.run(method, data, hyper, **args).params

    def step(state: tuple) -> tuple:
        p, _, count = state
        new = method.update(p, data, hyper)
        gaps = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), new, p))
        return new, jnp.max(jnp.stack(gaps)), count + 1

    with kernels.use("jax"):
        go_on = lambda state: (state[1] > 1e-13) & (state[2] < 50_000)  # noqa: E731
        return jax.jit(lambda p: jax.lax.while_loop(go_on, step, (p, jnp.inf, 0)))(start)[0]


def _each_backend() -> Iterator[str]:
    for backend in BACKENDS:
        with kernels.use(backend):
            yield backend


# -- 1, 6, 12: the record -------------------------------------------------------------------------
@_listed
def check_sites(method: Method, key: jax.Array) -> str | None:
    """The model's latent sites are the fields of Params, alike in shape; what is observed is named
    as the container fills it."""
    data, hyper = method.example(key)
    p = sites(method.init(key, data, hyper))
    free = numpyro.handlers.trace(numpyro.handlers.seed(method.model, key)).get_trace(data, hyper)
    sampled = {name: site for name, site in free.items() if site["type"] == "sample"}
    latent = {k: site for k, site in sampled.items() if not site["is_observed"]}
    _require(set(latent) == set(p), f"sites {sorted(latent)}, but Params has {sorted(p)}")
    for name, site in latent.items():
        _require(jnp.shape(site["value"]) == jnp.shape(p[name]), f"{name} has another shape in the model")
        _require(jnp.all(site["fn"].support(p[name])), f"init leaves the support of {name}")
    for name in set(sampled) - set(latent):
        fine = name == "rating" or name.startswith("view.")
        _require(fine, f"an observed site is called rating or view.NAME, not {name}")
    _require(len(sampled) > len(latent), "the model observes nothing")
    return None


@_listed
def check_tree(method: Method, key: jax.Array) -> str | None:
    """`update` keeps fields, shapes, dtypes and supports."""
    if method.update is None:
        return "the gradient engine solves it"
    data, hyper = method.example(key)
    for start in points(method, key, data, hyper, 2):
        new = method.update(start, data, hyper)
        for what in (jax.tree.structure, _shapes, _dtypes):
            _require(what(new) == what(start), f"update changes Params: {what(new)}, not {what(start)}")
        trace = log_density(method.model, (data, hyper), {}, sites(start))[1]
        for name, value in sites(new).items():
            _require(jnp.all(trace[name]["fn"].support(value)), f"update leaves the support of {name}")
    return None


def _shapes(params: Any) -> Any:
    return jax.tree.map(jnp.shape, params)


def _dtypes(params: Any) -> Any:
    return jax.tree.map(jnp.result_type, params)


@_listed
def check_structure(method: Method, key: jax.Array) -> str | None:
    """The record is complete: every axis of every site is named, and names that it uses exist."""
    data, hyper = method.example(key)
    p = sites(method.init(key, data, hyper))
    _require(method.cite and method.name.islower(), "no citation, or a name that is not snake_case")
    _require(all(method.waived.values()), f"a waived check has its reason: {dict(method.waived)}")
    _require(isinstance(data, method.data), f"example gives {type(data)}, data says {method.data}")
    again = method.prepare(data, hyper)
    _require(again == hyper, f"prepare changes what it completed: {again}, not {hyper}")
    sizes: dict[str, int] = {axis: len(labels) for axis, labels in _axes(data).items()}
    for name, value in p.items():
        axes = site_dims(method, name)
        _require(len(axes) == jnp.ndim(value), f"{name} has shape {jnp.shape(value)}, axes {axes}")
        for axis, size in zip(axes, jnp.shape(value), strict=True):
            _require(sizes.setdefault(axis, size) == size, f"axis {axis} of {name} has size {size}")
    turned = {site for g in gauge_of(method, p) for site in (*g.axes, *getattr(g, "forms", ()))}
    for site in {*turned, *method.noncentred, *method.conditionals} - set(p):
        _require(False, f"{site} is named in the record and is no site")
    return None


def _axes(data: Any) -> dict[str, Any]:
    """{axis: labels}; the features of an only view need no view's name."""
    axes = data.coords()
    features = [labels for axis, labels in axes.items() if axis.startswith("feature.")]
    return axes | ({"feature": features[0]} if len(features) == 1 else {})


# -- 2, 3: two versions of one method -------------------------------------------------------------
@_listed
def check_joint(method: Method, key: jax.Array) -> str | None:
    """Objective + log joint is one number, wherever we look."""
    data, hyper = method.example(key)
    several = points(method, key, data, hyper, 5)
    for backend in _each_backend():
        cost = np.array([method.objective(p, data, hyper) for p in several])
        gap = cost + np.array([log_joint(method, p, data, hyper) for p in several])
        worst = np.ptp(gap) / (1 + np.abs(cost).max())
        _require(worst <= 1e-9, f"objective + log joint varies ({backend}), relatively: {worst:.3g}")
    return None


@_listed
def check_slopes(method: Method, key: jax.Array) -> str | None:
    """Both have the slope that the objective's own values show, along lines between feasible points."""
    data, hyper = method.example(key)
    p, q = points(method, key, data, hyper, 2)
    step = jax.tree.map(jnp.subtract, q, p)

    def at(t: Any) -> Any:
        return jax.tree.map(lambda a, d: a + t * d, p, step)

    def slope(function: Callable[[Any], jax.Array]) -> float:
        gradient = jax.grad(function)(at(0.5))
        return sum(map(jnp.vdot, jax.tree.leaves(gradient), jax.tree.leaves(step)))

    model = slope(lambda p: -log_joint(method, p, data, hyper))
    for backend in _each_backend():
        ends = [float(method.objective(at(0.5 + h), data, hyper)) for h in (-1e-5, 1e-5)]
        solver = slope(lambda p: method.objective(p, data, hyper))
        same(solver, model, f"slope of the objective and of the log joint ({backend})", 1e-8)
        same(solver, np.diff(ends)[0] / 2e-5, f"gradient and differences ({backend})", 1e-6)
    return None


# -- 4, 5, 9: the solver --------------------------------------------------------------------------
@_listed
def check_descent(method: Method, key: jax.Array) -> str | None:
    """The objective never rises over 100 updates, and falls overall, from any admissible start."""
    if method.update is None:
        return "the gradient engine solves it"
    data, hyper = method.example(key)
    starts = [method.init(key, data, hyper), *points(method, key, data, hyper, 1)]
    for backend, p in zip(_each_backend(), starts, strict=True):
        objective = compiled(lambda p: method.objective(p, data, hyper))
        update = compiled(lambda p: method.update(p, data, hyper))
        trace = [float(objective(p))]
        for _ in range(100):
            p = update(p)
            trace.append(float(objective(p)))
        _require(np.isfinite(trace).all(), f"the objective is not finite ({backend})")
        rise = np.diff(trace) / (1 + np.abs(trace[1:]))
        told = f"the objective rose by {rise.max():.3g} in step {rise.argmax()} ({backend})"
        _require(rise.max() <= 1e-10, told)
        _require(trace[-1] < trace[0], f"100 updates did not lower the objective ({backend})")
    return None


@_listed
def check_optimum(method: Method, key: jax.Array) -> str | None:
    """Where the solver stands still, the gradient in unconstrained coordinates is zero."""
    data, hyper = method.example(key)
    p = _optimum(method, key, data, hyper)
    transforms = supports(method, data, hyper, p)

    def objective(free: dict[str, jax.Array]) -> jax.Array:
        return method.objective(constrain(method, transforms, free), data, hyper)

    gradient = jax.grad(objective)(unconstrain(transforms, p))
    worst = {name: float(jnp.abs(g).max()) for name, g in gradient.items()}
    _require(max(worst.values()) < 1e-5, f"the solver stops where the objective slopes: {worst}")
    return None


@_listed
def check_map(method: Method, key: jax.Array) -> str | None:
    """The gradient engine on the model, started at the solver's optimum, stays there."""
    data, hyper = method.example(key)
    p = _optimum(method, key, data, hyper)
    engine = MAP(steps=200, learning_rate=1e-4, patience=False)
    args = {"key": key, "start": sites(p), "progress": False, "run": ""}
    found = engine.run(method, data, hyper, **args).params
    same(found, p, "MAP leaves the solver's optimum", 1e-3)
    ends = [method.objective(x, data, hyper) for x in (found, p)]
    same(*ends, "MAP ends at another objective", 1e-6)
    return None


# -- 7: what is not observed ----------------------------------------------------------------------
@_listed
def check_mask(method: Method, key: jax.Array) -> str | None:
    """Cells that nobody observed change nothing: the rows of a user and of an item without any
    rating may hold what they like, as far as the data are concerned."""
    data, hyper = method.example(key)
    _require(isinstance(data, Ratings), "only Ratings have missing cells: waive 'mask' with a reason")
    data = data.take((data.user != 0) & (data.item != 0))
    p, other = points(method, key, data, hyper, 2)
    first = {axis: jnp.arange(len(labels)) == 0 for axis, labels in _axes(data).items()}
    spoiled = {}
    for name, value in sites(p).items():
        for at, axis in enumerate(site_dims(method, name)):
            if axis in first:
                where = jnp.expand_dims(first[axis], [i for i in range(value.ndim) if i != at])
                value = jnp.where(where, sites(other)[name], value)
        spoiled[name] = value
    q = replace_sites(p, spoiled)
    seen = [_likelihood(method, x, data, hyper) for x in (p, q)]
    same(*seen, "the likelihood in the model looks at cells that nobody observed")
    prior = [log_joint(method, x, data, hyper) - like for x, like in zip((p, q), seen, strict=True)]
    for backend in _each_backend():
        part = [method.objective(x, data, hyper) + prior[i] for i, x in enumerate((p, q))]
        same(*part, f"the objective looks at cells that nobody observed ({backend})")
    return None


@_listed
def check_backends(method: Method, key: jax.Array) -> str | None:
    """Numba and JAX give the same objective, gradient and update; padding of rows is never read."""
    data, hyper = method.example(key)
    p = points(method, key, data, hyper, 1)[0]

    def spoil(rows: Any) -> Any:
        return rows._replace(chunk=jnp.where(rows.chunk < 0, -3, rows.chunk)) if _is_rows(rows) else rows

    padded = jax.tree.map(spoil, data, is_leaf=_is_rows)
    functions = {"objective": method.objective, "gradient": jax.grad(method.objective)}
    functions |= {"update": method.update} if method.update else {}
    for name, function in functions.items():
        with kernels.use("numba"):
            expected = function(p, data, hyper)
        with kernels.use("jax"):
            same(function(p, data, hyper), expected, f"{name} under JAX and under Numba")
            same(function(p, padded, hyper), expected, f"{name} reads the padding of short rows")
    return None


def _is_rows(node: Any) -> bool:
    return isinstance(node, Rows)


# -- 8: the sampler -------------------------------------------------------------------------------
@_listed
def check_conditionals(method: Method, key: jax.Array) -> str | None:
    """The log ratio of every conditional between two values of its block is the joint's."""
    if not method.conditionals:
        return "it declares no conditionals"
    data, hyper = method.example(key)
    p, q = points(method, key, data, hyper, 2)
    for site, conditional in method.conditionals.items():
        if site not in sites(p):
            continue
        moved = replace_sites(p, {site: sites(q)[site]})
        whole = log_joint(method, moved, data, hyper) - log_joint(method, p, data, hyper)
        for backend in _each_backend():
            block = conditional(p, data, hyper)
            part = [jnp.sum(block.log_prob(sites(x)[site])) for x in (moved, p)]
            same(part[0] - part[1], whole, f"conditional of {site} and the log joint ({backend})")
            draw = block.sample(key)
            fine = draw.shape == sites(p)[site].shape and jnp.all(block.support(draw))
            _require(fine, f"a draw of {site} has shape {draw.shape}, or leaves its support")
    return None


@_listed
def check_moves(method: Method, key: jax.Array) -> str | None:
    """A move along a gauge changes parameters, and nothing that the data see."""
    if not method.moves:
        return "it declares no moves"
    data, hyper = method.example(key)
    p = points(method, key, data, hyper, 1)[0]
    before = _likelihood(method, p, data, hyper)
    for name, move in method.moves.items():
        new = move(key, p, data, hyper)
        same(_likelihood(method, new, data, hyper), before, f"move {name} changes the likelihood")
        gaps = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), new, p)
        _require(max(jax.tree.leaves(gaps)) > 1e-6, f"move {name} moves nothing")
    return None


# -- 10: names mean nothing -----------------------------------------------------------------------
@_listed
def check_relabelling(method: Method, key: jax.Array) -> str | None:
    """Rows, users, items and features in another order: the same answer in that order."""
    data, hyper = method.example(key)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    orders = {axis: rng.permutation(len(labels)) for axis, labels in data.coords().items()}
    shuffled = _reorder(data, orders)
    by_axis = orders | {"feature": list(orders.values())[-1]}

    def turn(p: Any) -> Any:
        turned = {}
        for name, value in sites(p).items():
            for at, axis in enumerate(site_dims(method, name)):
                value = jnp.take(value, by_axis[axis], at) if axis in by_axis else value
            turned[name] = value
        return replace_sites(p, turned)

    p = points(method, key, data, hyper, 1)[0]
    functions = {"objective": method.objective, "log joint": lambda *a: log_joint(method, *a)}
    for name, function in functions.items():
        args = [(p, data, hyper), (turn(p), shuffled, hyper)]
        same(function(*args[0]), function(*args[1]), f"{name} depends on the order of the labels")
    if method.update:
        new = turn(method.update(p, data, hyper))
        same(method.update(turn(p), shuffled, hyper), new, "update depends on the order of the labels")
    return None


def _reorder(data: Any, orders: dict[str, np.ndarray]) -> Any:
    """The same data, its k-th user, item, row or feature being the order[k]-th of before."""
    if isinstance(data, Ratings):
        user, item = (np.argsort(orders[axis]) for axis in ("user", "item"))
        cells = (data.value, (user[data.user], item[data.item]))
        return Ratings(sp.coo_matrix(cells, shape=data.shape), levels=data.levels)
    rows = orders["row"]
    return Views({name: data[name][rows][:, orders[f"feature.{name}"]] for name in data.names})


@_listed
def check_gauge(method: Method, key: jax.Array) -> str | None:
    """Turning or relabelling what the record says may be turned or relabelled changes nothing."""
    data, hyper = method.example(key)
    p = points(method, key, data, hyper, 1)[0]
    flat = sites(p)
    gauge = gauge_of(method, flat)
    for part in gauge:
        site, at = next(iter(part.axes.items()))
        K = flat[site].shape[at]
        if isinstance(part, Permutation):
            R = jnp.roll(jnp.eye(K), 1, axis=0)
        else:
            R = jnp.linalg.qr(jax.random.normal(key, (K, K)))[0]
        turned = {s: jnp.moveaxis(jnp.moveaxis(flat[s], a, -1) @ R, -1, a) for s, a in part.axes.items()}
        turned |= {s: R.T @ flat[s] @ R for s in getattr(part, "forms", ())}
        cost = [method.objective(x, data, hyper) for x in (p, replace_sites(p, turned))]
        same(*cost, f"the objective knows {part}")
    return None if gauge else "it declares no gauge"


# -- 11: from the prior to a prediction -----------------------------------------------------------
@_listed
def check_prior(method: Method, key: jax.Array) -> str | None:
    """Parameters and data drawn from the model, then a fit to these: it runs, and it descends."""
    data, hyper = method.example(key)
    draws = Predictive(method.model, num_samples=2)(key, data.hide(), hyper)
    names = set(sites(method.init(key, data, hyper)))
    drawn = {name: value[0] for name, value in draws.items() if name not in names}
    for name in drawn:
        _require(jnp.isfinite(draws[name]).all(), f"the prior predictive of {name} is not finite")
        _require(jnp.any(draws[name][0] != draws[name][1]), f"{name} is not sampled when it is hidden")
    truth = from_sites(method, {name: draws[name][0] for name in names})
    filled = data.fill(drawn)
    hyper = method.prepare(filled, hyper)
    _require(jnp.isfinite(method.objective(truth, filled, hyper)), "infinite at its own truth")
    engine = ENGINES[method.solver](max_iter=30)
    result = engine.run(method, filled, hyper, key=key, start=None, progress=False, run="")
    _require(result.trace[-1] < result.trace[0], "a fit to data from the prior does not descend")
    return None


@_listed
def check_predict(method: Method, key: jax.Array) -> str | None:
    """A prediction is one distribution per cell, the same asked cell by cell or as a block; a label
    that training never saw (-1) has an answer too."""
    data, hyper = method.example(key)
    p = points(method, key, data, hyper, 1)[0]
    rows, cols = (np.arange(n) for n in describe(data).shape)
    block = method.predict(p, Grid(rows, cols), hyper).mean
    cells = Query(np.repeat(rows, len(cols)), np.tile(cols, len(rows)))
    one = method.predict(p, cells, hyper).mean
    _require(block.shape == (len(rows), len(cols)), f"a block of predictions has shape {block.shape}")
    same(one, block.ravel(), "predictions cell by cell and as a block")
    new = method.predict(p, Query(np.array([-1, 0]), np.array([0, 0])), hyper)
    fine = jnp.isfinite(new.mean).all() and jnp.all(new.variance >= 0)
    _require(fine, "no prediction for a row that training never saw")
    return None
