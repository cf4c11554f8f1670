"""Variational Bayes: the bound never falls, is the bound of the model, and has no gradient at the end."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.method import Method, from_sites, sites
from bayesfac.testing.tools import example, listed, require

DRAWS, SWEEPS, LONG, TIMES = 4000, 50, 1000, 6


@listed
def check_variational(method: Method, key: jax.Array) -> str | None:
    """The ELBO never falls, is E_q[log joint - log q] by draws, and has no gradient at the end of the sweeps.

    If the record says `below`, the ELBO is a lower bound of this expectation.
    """
    law = method.variational
    if law is None:
        return "the method has no variational law"
    case = example(method, key)
    data, hyper = case.data, case.hyper

    @jax.jit
    def climb(p: Any) -> tuple[Any, jax.Array]:
        def step(q: Any, _: None) -> tuple[Any, jax.Array]:
            return law.update(q, data, hyper), law.elbo(q, data, hyper)

        q = law.begin(p, data, hyper)
        return q, jax.lax.scan(step, q, None, SWEEPS)[1]

    for p in (case.start, *case.points[:2]):
        q, values = climb(p)
        trace = np.asarray(values)
        require(np.isfinite(trace).all(), "the ELBO is not finite")
        fall = -np.diff(trace) / (1 + np.abs(trace[1:]))
        message = f"the ELBO fell by {fall.max():.3g} (relative) in sweep {fall.argmax() + 1}"
        require(fall.max() <= 1e-10, message)
        require(trace[-1] > trace[0], f"{SWEEPS} sweeps did not raise the ELBO")
    _by_draws(method, q, trace[0], data, hyper, key, p)
    _stationary(law, q, data, hyper)
    return None


def _by_draws(
    method: Method, q: Any, bound: float, data: Any, hyper: Any, key: jax.Array, p: Any
) -> None:
    law: Any = method.variational

    def sampled(q: Any) -> dict[str, jax.Array]:
        draws = {s: x.sample(key) for s, x in law.laws(q).items()}
        return law.split(draws, hyper)

    like = jax.eval_shape(sampled, q)
    shapes = {site: x.shape for site, x in like.items()}
    mine = {site: jnp.shape(value) for site, value in sites(p).items()}
    require(shapes == mine, f"the law has sites {shapes}, Params has {mine}")

    @jax.jit
    def differences(q: Any, keys: jax.Array) -> jax.Array:
        laws = law.laws(q)

        def one(key: jax.Array) -> jax.Array:
            keys = dict(zip(laws, jax.random.split(key, len(laws)), strict=True))
            draw = {site: own.sample(keys[site]) for site, own in laws.items()}
            log_q = sum(jnp.sum(own.log_prob(draw[site])) for site, own in laws.items())
            p = from_sites(method, law.split(draw, hyper))
            return -method.objective(p, data, hyper) - log_q

        return jax.lax.map(one, keys)

    many = differences(q, jax.random.split(key, DRAWS))
    mean, error = float(many.mean()), float(many.std()) / DRAWS**0.5
    gap = (mean - bound) / error
    message = f"the ELBO is {bound:.4g}, and {mean:.4g} by draws (standard error {error:.2g})"
    require(gap > -5 and (law.below or gap < 5), message)


def _stationary(law: Any, q: Any, data: Any, hyper: Any) -> None:
    @jax.jit
    def slopes(q: Any) -> Any:
        q = jax.lax.fori_loop(0, LONG, lambda _, q: law.update(q, data, hyper), q)
        return q, jax.grad(lambda q: law.elbo(q, data, hyper))(q)

    for _ in range(TIMES):  # if sites depend strongly on one another, many sweeps are needed
        q, gradients = slopes(q)
        steep = {}
        for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
            site = jax.tree_util.keystr(path, simple=True, separator=".")
            if site.endswith("cov") and gradient.ndim > 1:  # covariances stay symmetric
                gradient = (gradient + jnp.swapaxes(gradient, -1, -2)) / 2
            steep[site] = float(jnp.abs(gradient).max(initial=0))
        if not (worst := {site: x for site, x in steep.items() if not x < 1e-5}):
            return
    message = ", ".join(f"{x:.3g} in {site}" for site, x in worst.items())
    require(False, f"the ELBO has a slope where sweeps end: {message}")
