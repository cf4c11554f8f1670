"""Why a fit expects a rating: what each rating of the user adds to it, `fit.explain`.

Given the rows of the items and all else but the row of the user, this row is normal, and its mean is linear
in the user's ratings. With its prior N(c, P^-1), and a rating y_j that observes its score with precision w_j,

    E x_t = v_t.c + b_t + sum_j w_j (y_j - m - b_j - v_j.c) a.v_j,   a = (P + sum_j w_j v_j v_j')^-1 v_t

where b are biases. So a rating adds what it exceeds the one of a usual user by, times its weight for item t.
The sum is exact for every draw of the other parameters; a table has means over the draws.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.scipy.linalg import cho_factor, cho_solve

from bayesfac.core.data.reading import plain, positions_of, same_labels
from bayesfac.core.errors import BayesfacError, UnknownName
from bayesfac.core.method import contain, from_sites, site_dims
from bayesfac.fits.fitted import Fitted

MEAN, USUAL, BIAS = "mean of all ratings", "the item for a usual user", "bias of the user"
FEATURES = "features of the user"
LEAST = 16  # ratings for which a program is compiled at least, so that few programs serve all users


class Own(NamedTuple):
    """The ratings of one user, padded: values, items as numbers of their own, and which are no padding."""

    y: jax.Array
    col: jax.Array
    kept: jax.Array

    @property
    def cells(self) -> "Own":
        return self

    @property
    def row(self) -> jax.Array:
        return jnp.zeros_like(self.col)

    @property
    def codes(self) -> tuple[jax.Array, jax.Array]:
        return self.row, self.col


def explain(fit: Fitted, data: Any, user: Any, item: Any) -> pd.DataFrame:
    """What each rating of a user, and what else, adds to the rating that the fit expects of an item.

    The parts add up to the prediction. A rating adds more if it differs more from what a usual user would
    give to its item, and if its item is more like the one that is asked for. Without the rating a prediction
    would change by less where other ratings say the same.

    Parameters
    ----------
    data : Ratings
        The training data, because a fit does not store them.
    user, item : label
        A user with ratings, and an item.

    Returns
    -------
    DataFrame
        One row for each part, `what` it is, its `label` and `value`, and the mean and standard deviation over
        the draws of what it `adds`. First come the mean of all ratings, what a usual user thinks of the item,
        and if the model has them the user's bias and features; then the user's ratings, the one that adds
        most first. `attrs["prediction"]` is the sum of `adds`. For draws, it is the mean of the prediction
        given the parameters of the items, which has less Monte Carlo error than `predict`.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_gaussian(30, 20, 2, seed=0)[0]
    >>> fit = bf.fit("bpmf", ratings, n_components=2, progress=False)
    >>> why = fit.explain(ratings, user=3, item=5)
    >>> bool(abs(why["adds"].sum() - fit.predict(([3], [5])).mean[0]) < 1e-3)
    True
    """
    _check(fit)
    data = contain(fit.method, data)
    for side in ("user", "item"):
        if not same_labels(fit.data.coords[side], getattr(data, f"{side}s")):
            raise ValueError(f"Expected the training data, got other labels of {side}s")
    i, t = (_code(fit, axis, label) for axis, label in (("user", user), ("item", item)))
    first, last = np.asarray(data.cells.by_row.ptr)[i : i + 2]
    rated = np.asarray(data.cells.col)[first:last]
    if len(rated) != fit.data.row_counts[i] or not len(rated):
        raise ValueError(
            f"Expected the {fit.data.row_counts[i]} ratings of user {plain(user)!r} of training, at least "
            f"one, got {len(rated)}"
        )
    value = np.asarray(data.host.value[data.host.origin[first:last]], float)
    base, each = _parts(fit, data, i, rated, value, t)
    about = [what for what in (MEAN, USUAL, BIAS, FEATURES) if what in base]
    named = [(what, "", np.nan, base[what].mean(), base[what].std()) for what in about]
    mean, sd, label = each.mean(0), each.std(0), data.items[rated]
    order = np.argsort(-np.abs(mean), kind="stable")
    named += [("rating", label[j], value[j], mean[j], sd[j]) for j in order]
    table = pd.DataFrame(named, columns=["what", "label", "value", "adds", "sd"])
    total = float(table["adds"].sum())
    table.attrs = {"user": plain(user), "item": plain(item), "prediction": total}
    return table


def _check(fit: Fitted) -> None:
    """Refuse models whose predictions are not linear in the ratings of the user."""
    c = fit.method.parts
    why = ""
    if c is None or not fit.data.form.by_pair or fit.method.data.implicit:
        why = "it is not made of parts, or its data are no ratings"
    elif hasattr(c.observed, "augment") or not hasattr(c.observed, "target"):
        why = "its rows are not linear in the values"
    elif any(f.mixture or f.along or f.positive for f in c.at(fit.hyper).main[:1]):
        why = "its rows of users are not normal, or depend on one another"
    if why:
        raise BayesfacError(
            f"Expected a model of real values with normal rows of users for explain, such as 'bpmf', got "
            f"{fit.name}: {why}"
        )


def _code(fit: Fitted, axis: str, label: Any) -> int:
    (at,) = positions_of(fit.data.coords[axis], [label])
    if at < 0:
        raise UnknownName(f"Expected {axis} to be a label of training, got {plain(label)!r}")
    return int(at)


def _parts(
    fit: Fitted, data: Any, i: int, rated: np.ndarray, value: np.ndarray, t: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What each part of the prediction adds in each draw: {what: (draw,)}, and (draw, rating)."""
    method, h, n = fit.method, fit.hyper, len(rated)
    size = max(LEAST, 1 << int(np.ceil(np.log2(n + 1))))
    # the rated items, padded by the one that is asked for
    items = np.append(rated, np.full(size - n, t))

    def small(site: str, x: np.ndarray) -> np.ndarray:
        """The rows of the user and of the items alone, of every draw."""
        x = x.reshape(-1, *x.shape[2:])
        for axis, dim in enumerate(site_dims(method, site)):
            if dim in ("user", "item"):
                x = np.take(x, [i] if dim == "user" else items, axis + 1)
        return x

    held = {site: small(site, np.asarray(x)) for site, x in fit._as_draws().items()}
    f = method.parts.at(h).main[0]
    groups = f.groups(from_sites(method, {site: x[0] for site, x in held.items()}))
    if unread := [key for key in groups if key not in data.x]:
        raise BayesfacError(
            f"Expected features that the data have for explain, got {fit.name} with {unread[0]!r}"
        )
    featured = jnp.zeros(())
    if groups:
        own = data.within(np.array([i]), rated)
        own = own.encoded(fit.data.encodings, ("user",)) if fit.data.encodings else own
        featured = jax.vmap(lambda draw: f.explained(from_sites(method, draw), own)[0])(held)
    y = np.append(value, np.zeros(size - n))
    cells = Own(jnp.asarray(y), jnp.arange(size), jnp.arange(size) < n)
    base, each = _of_draws(method, h, held, featured, cells)
    return {what: np.asarray(x, float) for what, x in base.items()}, np.asarray(each, float)[:, :n]


@partial(jax.jit, static_argnums=(0, 1))
def _of_draws(method: Any, h: Any, held: Any, featured: Any, own: Own) -> Any:
    c = method.parts
    s, many = c.at(h), featured.ndim > 0
    f, g = s.main

    def one(draw: Any, shift: Any) -> tuple[dict[str, Any], jax.Array]:
        p = from_sites(method, draw)
        seen, centre = g.table(p), jnp.zeros(h.n_components) + f.centre(p)
        target, weight = c.observed.target(p, own, h)
        offset = own.y - target  # the same for all cells
        asked = seen[-1]  # of the padding
        w = own.kept * weight
        P = f.P(p, h) + (w[:, None] * seen).T @ seen
        toward = seen @ cho_solve(cho_factor(P), asked)
        beyond = target - s.offsets(p, own) - seen @ (centre + shift)
        bias = {b.axis: b.table(p)[:, 0] for b in s.biases}
        base = {MEAN: offset[0], USUAL: asked @ centre}
        if "item" in bias:
            base[USUAL] += bias["item"][-1]
        if "user" in bias:
            base[BIAS] = bias["user"][0]
        if many:
            base[FEATURES] = asked @ shift
        return base, w * beyond * toward

    return jax.vmap(one, (0, 0 if many else None))(held, featured)
