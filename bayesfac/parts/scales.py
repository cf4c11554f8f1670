"""The scale of one factor against another: u -> T u and v -> T^-1 v do not change u.v, but their priors do.

With T = Q diag(e^t) Q', a factor's log density, with the Jacobians of rows, mean, links and precision, is

    - a_k e^(-2 t_k) - b_k e^(2 t_k) - c t_k      summed over k, up to a constant.

If the precision P moves with the rows (P -> T^-1 P T^-1), the density of the rows does not change, a is
diag(Q'S0 P Q) / 2 of its prior, and b is 0. If P is given, or shared with a factor that does not move alike,
a is 0 and b is diag(Q'P S Q) / 2. J has no Jacobians: there c is replaced by d.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.core.laws.normal_wishart import balance
from bayesfac.core.math import metropolis
from bayesfac.parts.factors import Factor, Factors, sharing, squares
from bayesfac.parts.precisions import Wishart
from bayesfac.parts.sites import get, put

FRAMES = 4  # random rotations in which `mixed` draws scales, in one sweep
# factors whose scales move one way, and those that move the other way
Groups = tuple[Factors, Factors]


class Along(NamedTuple):
    """The coefficients of a factor's density along its scales."""

    a: jax.Array
    b: jax.Array
    c: Any
    d: Any


def moves(every: Factors, f: Factor) -> bool:
    """Whether the precision moves with the rows: it is a site of this factor alone."""
    return bool(f.precision.site) and len(sharing(every, f.precision)) == 1


def along(every: Factors, f: Factor, p: Any, data: Any, h: Any, Q: jax.Array) -> Along:
    """The coefficients for the directions in the columns of Q."""
    P, none, free = f.P(p, h), jnp.zeros(Q.shape[1]), 0.0
    S, N = squares(p, data, f, h)
    if f.level:  # its prior does not move with P
        none, free = none + 0.5 * (get(p, f.level) / h.scale_level) ** 2, 1.0
    if not moves(every, f):
        return Along(0 * none, none + jnp.diag(Q.T @ P @ S @ Q) / 2, -float(N) - free, 0.0)
    S0, N0 = f.precision.prior(h, len(Q))
    a, c = jnp.diag(Q.T @ S0 @ P @ Q) / 2, f.precision.tilt(h, len(Q))
    return Along(a, none, c - free, N + N0)


def carried(p: Any, f: Factor, A: jax.Array) -> Any:
    """u -> u A, with mean, level and links."""
    sites = [f.rows, f.mean, f.level, *(f"{f.link}.{key}" for key in f.groups(p))]
    times = (lambda x: x * A[0, 0]) if f.bias else (lambda x: x @ A)
    return put(p, {site: times(get(p, site)) for site in sites if site})


def matched(every: Factors, p: Any, f: Factor, inverse: jax.Array, h: Any) -> Any:
    """The precision for rows T u, if it moves; T is symmetric."""
    if not moves(every, f):
        return p
    return put(p, {f.precision.site: f.precision.value(inverse @ f.P(p, h) @ inverse)})


def stretched(every: Factors, p: Any, f: Factor, T: jax.Array, inverse: jax.Array, h: Any) -> Any:
    """u -> T u with mean and links, and the precision to match."""
    return carried(matched(every, p, f, inverse, h), f, T)


def both(every: Factors, groups: Groups, *given: Any) -> Along:
    """The coefficients of u -> T u in one group, v -> T^-1 v in the other."""
    each = ([along(every, f, *given) for f in group] for group in groups)
    one, two = (Along._make(map(sum, zip(*found, strict=True))) for found in each)
    return Along(one.a + two.b, one.b + two.a, one.c - two.c, one.d - two.d)


def turned(every: Factors, groups: Groups, p: Any, h: Any, t: jax.Array, Q: jax.Array) -> Any:
    """u -> T u in one group, v -> T^-1 v in the other."""
    T, inverse = (Q * jnp.exp(t)) @ Q.T, (Q * jnp.exp(-t)) @ Q.T
    for group, A, B in zip(groups, (T, inverse), (inverse, T), strict=True):
        for f in group:
            p = stretched(every, p, f, A, B, h)
    return p


def lowest(every: Factors, groups: Groups, p: Any, data: Any, h: Any) -> Any:
    """The scales at which J is lowest: a e^-2t + b e^2t + d t. Of the two forms of the root, one also holds
    where a or b is 0."""
    eye = jnp.eye(groups[0][0].width(h))
    a, b, _, d = both(every, groups, p, data, h, eye)
    root = jnp.sqrt(d**2 + 16 * a * b)
    t = jnp.log(jnp.where(d > 0, 4 * a / (root + d), (root - d) / (4 * b))) / 2
    return turned(every, groups, p, h, t, eye)


def rescaled(key: jax.Array, every: Factors, groups: Groups, p: Any, data: Any, h: Any) -> Any:
    """Draw the scales exactly (Liu & Sabatti 2000)."""
    moved = [f for group in groups for f in group]
    if len(moved) == len([f for f in every if not f.bias]) and all(free(every, f) for f in moved):
        return mixed(key, every, groups, p, data, h)
    eye = jnp.eye(moved[0].width(h))
    a, b, c, _ = both(every, groups, p, data, h, eye)
    # one group has precisions that move with its rows, the other has none: e^2t or e^-2t is Gamma
    one, two = ([moves(every, f) for f in group] for group in groups)
    if all(two) and not any(one):
        t = jnp.log(jax.random.gamma(key, -c / 2, b.shape, b.dtype) / b) / 2
    elif all(one) and not any(two):
        t = -jnp.log(jax.random.gamma(key, c / 2, a.shape, a.dtype) / a) / 2
    else:
        t = balance(key, a, b, c)
    return turned(every, groups, p, h, t, eye)


def free(every: Factors, f: Factor) -> bool:
    """Whether the factor may be rotated, and its precision turns with it."""
    return isinstance(f.precision, Wishart) and moves(every, f)


def mixed(key: jax.Array, every: Factors, groups: Groups, p: Any, data: Any, h: Any) -> Any:
    """Draw the scales of factors that may be rotated, in several random frames.

    With one fixed frame components would be scaled but never mixed, and the eigenvalues of the precisions
    would mix slowly. The scales depend on the precisions alone, so the rows are multiplied once, at the end.
    """
    K = groups[0][0].width(h)

    def turn(number: int, state: tuple) -> tuple:
        q, A, inverse = put(p, state[0]), *state[1:]
        frame, scale = jax.random.split(jax.random.fold_in(key, number))
        Q = jnp.linalg.qr(jax.random.normal(frame, (K, K)))[0]
        a, b, c, _ = both(every, groups, q, data, h, Q)
        t = balance(scale, a, b, c)
        S, T = (Q * jnp.exp(t)) @ Q.T, (Q * jnp.exp(-t)) @ Q.T
        for group, other in zip(groups, (T, S), strict=True):
            for f in group:
                q = matched(every, q, f, other, h)
        return {site: get(q, site) for site in state[0]}, A @ S, inverse @ T

    eye, sites = jnp.eye(K), [f.precision.site for group in groups for f in group]
    begin = {site: get(p, site) for site in sites}, eye, eye
    precisions, *by = jax.lax.fori_loop(0, FRAMES, turn, begin)
    p = put(p, precisions)
    for group, A in zip(groups, by, strict=True):
        for f in group:
            p = carried(p, f, A)
    return p


def swollen(
    key: jax.Array, step: Any, every: Factors, own: list[tuple[Factor, jax.Array]],
    p: Any, data: Any, h: Any, rest: Any, times: int = 2,
) -> tuple[jax.Array, Any]:  # fmt: skip
    """Metropolis steps along u -> c u in the directions Q of these factors, with all that is above them;
    return t = log c and p. `rest(t)` is the log density, with Jacobians, of all other sites and the cells."""
    slopes = [along(every, f, p, data, h, Q) for f, Q in own]

    def density(t: jax.Array) -> jax.Array:
        t = t[0, 0]
        cost = sum(
            jnp.sum(a * jnp.exp(-2 * t) + b * jnp.exp(2 * t)) + len(a) * c * t
            for a, b, c, _ in slopes
        )
        return (rest(t) - cost)[None]

    t = metropolis(key, jnp.zeros((1, 1)), step, density, times)[0, 0]
    for f, Q in own:
        T, inverse = (jnp.eye(len(Q)) + jnp.expm1(sign * t) * Q @ Q.T for sign in (1, -1))
        p = stretched(every, p, f, T, inverse, h)
    return t, p
