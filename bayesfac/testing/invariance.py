"""Changes without effect: missing cells, backend, padding, order of labels, symmetries of the joint."""

from dataclasses import replace
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from bayesfac.core.data.counts import Counts
from bayesfac.core.data.linked.measured import Measurements
from bayesfac.core.data.linked.relations import Relations
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.tensor import Tensor
from bayesfac.core.data.views import Views
from bayesfac.core.gauge import moved, random_move
from bayesfac.core.kernels import sparse
from bayesfac.core.method import (
    Method,
    Permutation,
    gauge_of,
    log_joint,
    moved_sites,
    site_dims,
    sites,
)
from bayesfac.inference.result import replace_sites
from bayesfac.testing.tools import axes, example, likelihood, listed, require, same

Orders = dict[str, np.ndarray]  # {axis: which of its labels stands in each place}


@listed
def check_mask(method: Method, key: jax.Array) -> str | None:
    """The parameters of a user and of an item without ratings change neither likelihood nor fit."""
    case = example(method, key)
    data, hyper, (p, other) = case.data, case.hyper, case.points[:2]
    if not data.listed or data.implicit:
        return f"{type(data).__name__} have no missing cells: a cell that is not stored is zero"
    data = without_first(data)
    spoiled = {}
    for name, value in sites(p).items():
        for at, axis in enumerate(site_dims(method, name)):
            if axis in axes(data):
                first = (slice(None),) * at + (0,)
                value = value.at[first].set(sites(other)[name][first])
        spoiled[name] = value

    @jax.jit
    def parts(p: Any) -> tuple[jax.Array, jax.Array]:
        seen = likelihood(method, p, data, hyper)
        prior = log_joint(method, p, data, hyper) - seen
        return seen, -method.objective(p, data, hyper) - prior

    (model, solver), (model_too, solver_too) = map(parts, (p, replace_sites(p, spoiled)))
    same(model, model_too, "the model's likelihood depends on cells that were not observed")
    same(solver, solver_too, "the objective depends on cells that were not observed")
    return None


@listed
def check_backends(method: Method, key: jax.Array) -> str | None:
    """Numba and JAX give the same objective, gradient and update."""
    case = example(method, key)
    data, hyper, p = case.data, case.hyper, case.points[0]
    pairs: dict[str, Any] = {
        "objective": (case.objective, jax.value_and_grad(method.objective)),
        "update": (case.update, method.solver.update),
    }
    for name, (program, plain) in pairs.items():
        if plain is None:
            continue
        with sparse.use("jax"):
            in_jax = jax.jit(lambda p, data, f=plain: f(p, data, hyper))(p, data)
        same(in_jax, program(p, data), f"{name} under JAX and under Numba")
    return None


@listed
def check_relabelling(method: Method, key: jax.Array) -> str | None:
    """Reordering rows, users, items and features reorders the results and changes nothing else."""
    if why := method.notes.traits.get("coupled"):
        return why
    case = example(method, key)
    data = case.data
    orders = random_orders(data, key)
    shuffled = reorder(data, orders)
    if type(data) is Ratings:  # a new object, without the parts that the method adds
        shuffled = method.ready(shuffled, case.hyper)

    def turn(p: Any) -> Any:
        turned = {}
        for name, value in sites(p).items():
            for at, axis in enumerate(site_dims(method, name)):
                value = jnp.take(value, orders[axis], at) if axis in orders else value
            turned[name] = value
        return replace_sites(p, turned)

    def answers(p: Any, data: Any) -> dict[str, Any]:
        numbers = {"objective": case.objective(p, data)[0], "log joint": case.joint(p, data)[0]}
        return numbers | ({"update": case.update(p, data)} if case.update else {})

    first, second = answers(case.points[0], data), answers(turn(case.points[0]), shuffled)
    if "update" in first:
        first["update"] = turn(first["update"])
    for name, value in first.items():
        same(value, second[name], f"the {name} depends on the order of the labels")
    return None


def random_orders(data: Any, key: jax.Array) -> Orders:
    """An order of the labels of every axis."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    orders = {axis: rng.permutation(size) for axis, size in axes(data).items()}
    if "task" in orders:
        orders["row"] = data.rows_in_order(orders["task"], rng)
    if "feature" in orders:  # the only view has two names for one axis
        orders |= {axis: orders["feature"] for axis in orders if axis.startswith("feature.")}
    # implicit features have the items a user rated, and the users of an item; the data do not name them
    for side, other in (("user", "item"), ("item", "user")):
        if other in orders:
            orders[f"implicit_{side}_feature"] = orders[other]
    return orders


def recoded(code: np.ndarray, axes: Any, orders: Orders) -> np.ndarray:
    """The codes of cells, an axis in each column, after these axes are reordered."""
    return np.stack([np.argsort(orders[axis])[code[:, at]] for at, axis in enumerate(axes)], 1)


@singledispatch
def reorder(data: Any, orders: Orders) -> Any:
    """The data with the order[k]-th user, item, row or feature in place k."""
    return data.reordered(orders)


@reorder.register
def _reordered_ratings(data: Ratings, orders: Orders) -> Ratings:
    """A new object, without the parts that the method adds."""
    cells = (data.value, tuple(recoded(data.code, data.columns, orders).T))
    tables: dict[str, Any] = {}
    for side, known in data.host.features.items():
        raw = known.raw if sp.issparse(known.raw) else known.raw.to_numpy()
        tables[f"{side}_features"] = raw[orders[side]][:, orders[f"{side}_feature"]]
    return Ratings(sp.coo_matrix(cells, shape=data.shape), levels=data.levels, **tables)


@reorder.register
def _reordered_measurements(data: Measurements, orders: Orders) -> Measurements:
    rows = orders["user"]
    views = {n: data.table(n).to_numpy()[rows][:, orders[f"feature.{n}"]] for n in data.views}
    return Measurements(views)


@reorder.register
def _reordered_counts(data: Counts, orders: Orders) -> Counts:
    user, item = recoded(data.code, data.columns, orders).T
    return data._part(user, item, data.value, data.users, data.items, slice(None))


@reorder.register
def _reordered_relations(data: Relations, orders: Orders) -> Relations:
    user, item = recoded(data.code, data.columns, orders).T
    part = data._part(user, item, data.value, data.users, data.items, slice(None))
    return relinked(part, lambda table: recoded(table.code, (table.row, table.col), orders))


@reorder.register
def _reordered_tensor(data: Tensor, orders: Orders) -> Tensor:
    tensor = object.__new__(Tensor)
    tensor._fill(recoded(data.code, data.modes, orders), data.value, data.axes)
    return tensor


@reorder.register
def _reordered_views(data: Views, orders: Orders) -> Views:
    rows = orders["row"]
    views = {name: data[name][rows][:, orders[f"feature.{name}"]] for name in data.names}
    return Views(views, graphs=None if data.graphs is None else data.graphs.take(rows))


@singledispatch
def without_first(data: Any) -> Any:
    """The data without the cells of the first label of each axis."""
    return data.take((data.code != 0).all(1))


@without_first.register
def _measurements_without_first(data: Measurements) -> Measurements:
    firsts = np.cumsum([0, *map(len, data.views.values())])
    part: Any = data.take((data.user != 0) & ~np.isin(data.item, firsts))
    return part


@without_first.register
def _relations_without_first(data: Relations) -> Relations:
    rest: Any = data.take((data.code != 0).all(1))
    return relinked(rest, lambda table: table.code, lambda code: (code != 0).all(1))


def relinked(data: Relations, code: Any, kept: Any = lambda code: slice(None)) -> Relations:
    """The data with the cells of the other matrices at `code(table)`, those in `kept(code)`."""
    tables = {}
    for name, table in data.host.tables.items():
        new = code(table)
        at = np.arange(len(new))[kept(new)]
        at = at[np.lexsort(new[at].T[::-1])]
        tables[name] = replace(table, code=new[at], value=table.value[at])
    other = data.replaced()
    other._link(tables, data.host.axes)
    return other


@listed
def check_gauge(method: Method, key: jax.Array) -> str | None:
    """The rotations and permutations that `gauge` declares as exact leave the objective unchanged. And every
    axis that can be reordered is declared, unless the data have it."""
    case = example(method, key)
    p = case.points[0]
    flat = sites(p)
    gauge = gauge_of(method, flat)
    for part in gauge:
        R, signs = random_move(key, part, flat)
        if isinstance(part, Permutation):  # a random order may be the identity
            flips = jnp.where(jnp.arange(len(R)) % 2, 1.0, -1.0)
            R, signs = jnp.roll(jnp.eye(len(R)), 1, 0), jnp.ones_like(signs).at[:2].set(flips)
        turned = replace_sites(p, moved(part, flat, R, signs))
        before, after = (case.objective(at, case.data)[0] for at in (p, turned))
        if getattr(part, "exact", True):
            same(before, after, f"the objective is not invariant under {part}")
        else:
            other = jnp.abs(after - before) > 1e-9 * (1 + jnp.abs(before))
            require(other, f"the objective is invariant under {part}, which is called inexact")
    declared = {site for part in gauge for site in moved_sites(part)}
    for axis, found in free_axes(method, case.data, flat).items():
        rolled = {site: jnp.roll(flat[site], (1,) * len(at), at) for site, at in found.items()}
        if declared.isdisjoint(found):
            both = p, replace_sites(p, rolled)
            before, after = (case.objective(at, case.data)[0] for at in both)
            changed = not jnp.abs(after - before) <= 1e-9 * (1 + jnp.abs(before))
            what = f"the objective stays the same when {axis}s change places"
            require(changed, f"{what}: gauge does not say so")
    return None if gauge else "the method declares no gauge"


def free_axes(
    method: Method, data: Any, flat: dict[str, Any]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """{axis: {site: its places there}} of axes longer than one that the data do not have, as of components;
    the second axis of a table of components has the name with an underscore."""
    known, found = axes(data), dict[str, dict[str, tuple[int, ...]]]()
    for site, value in flat.items():
        for at, name in enumerate(site_dims(method, site)):
            axis = name.rstrip("_")
            if axis not in known and name not in known and value.shape[at] > 1:
                mine = found.setdefault(axis, {})
                mine[site] = (*mine.get(site, ()), at)
    return found
