"""The moves of cp leave the joint of parameters and data as it is: many exact runs of one move each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.core.multilinear import multiplied
from bayesfac.models.tensors.cp import tables

CP = REGISTRY["cp"]
RUNS = 40_000


def statistics(p, data, h):
    """Numbers that every site has a part in, and that a shear or a step of all modes would change."""
    x = multiplied(tables(p, h), data.cells)
    rest = data.y - h.offset - x
    seen = {"misfit": p.alpha * jnp.mean(rest**2)}
    seen |= {"products": jnp.tanh(p.alpha**0.5 * jnp.mean(rest * x))}
    for mode, u in p.U.items():
        L, away = p.Lambda[mode], u - p.mu[mode]
        seen |= {
            f"rows of {mode}": jnp.mean(jnp.sum(away @ L * away, 1)) / away.shape[1],
            f"sizes of {mode}": jnp.log(jnp.mean(u**2)),
            f"mean of {mode}": p.mu[mode] @ L @ p.mu[mode],
            f"Lambda of {mode}": jnp.trace(L),
            f"corner of {mode}": L[0, 0],
            f"mixture of {mode}": L[0, 1] / jnp.sqrt(L[0, 0] * L[1, 1]),
        }
    rows = sum(seen[f"rows of {mode}"] * u.size for mode, u in p.U.items())
    # a path keeps the sum but for errors of its steps: its mean shows a wrong acceptance most clearly
    return seen | {"energy": seen["misfit"] * len(data) + rows}


@pytest.mark.parametrize("name", list(CP.gibbs.moves))
def test_a_move_leaves_the_joint_as_it_is(name, monkeypatch):
    """The mean change of each number, in standard errors of independent draws of the joint."""
    monkeypatch.setattr("bayesfac.models.tensors._paths.FAR", 1.1)  # every path has steps
    data, _ = bf.datasets.make_tensor((4, 3, 3), 2, density=0.7, seed=0)
    h = CP.prepare(
        data, CP.Hyper(2, alpha_shape=3.0, alpha_rate=3.0, beta0=2.0, rate=1.2, offset=0.3)
    )

    def one(key):
        wishart, rows, noise, values, walk = jax.random.split(key, 5)
        U, mu, Lambda = {}, {}, {}
        for m, (mode, n) in enumerate(zip(data.modes, data.shape, strict=True)):
            keys = jax.random.split(jax.random.fold_in(rows, m), 3)
            x = (
                jax.random.normal(keys[0], (2, 2)) / h.rate**0.5
            )  # Wishart with two degrees of freedom
            Lambda[mode] = x.T @ x
            root = jnp.linalg.inv(jnp.linalg.cholesky(Lambda[mode])).T
            mu[mode] = root @ jax.random.normal(keys[1], (2,)) / h.beta0**0.5
            U[mode] = mu[mode] + jax.random.normal(keys[2], (n, 2)) @ root.T
        alpha = jax.random.gamma(noise, h.alpha_shape) / h.alpha_rate
        p = CP.Params(U, mu, Lambda, alpha)
        y = h.offset + multiplied(tables(p, h), data.cells)
        mine = data.replaced(data.host, y=y + jax.random.normal(values, y.shape) / alpha**0.5)
        new = CP.gibbs.moves[name](walk, p, mine, h)
        return statistics(p, mine, h), statistics(new, mine, h)

    before, after = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), RUNS))
    moved = 0
    for what in before:
        change = np.asarray(after[what] - before[what])
        spread = change.std()
        moved += spread > 1e-6
        # 20 numbers and 3 moves: 4 is exceeded by chance in one of 250 sets of keys
        assert abs(change.mean()) < 4 * spread / RUNS**0.5 + 1e-9, what
    assert moved >= 3
