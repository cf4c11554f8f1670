"""Normal-Wishart priors of users and items, as in Bayesian matrix factorization.

Each side has Lambda ~ Wishart(K, I / rate), mu ~ N(0, (beta0 Lambda)^-1) and rows x_i ~ N(mu, Lambda^-1).
This file has the sites, the energy and the conditionals of both sides, and moves along the scales of U
against V. `h` is a Hyper with `beta0` and `rate`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.math import metropolis
from bayesfac.core.method import Rotation
from bayesfac.models.ratings._margins import start_factors

FRAMES = 4  # random frames in which `rescale` draws scales, in one sweep


class RowAffine(Transform):
    """x = mu + root z for all rows; the inverse is one triangular solve for all rows."""

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(self, mu: jax.Array, root: jax.Array) -> None:
        self.mu, self.root = mu, root

    def __call__(self, z: jax.Array) -> jax.Array:
        return self.mu + z @ self.root.T

    def _inverse(self, x: jax.Array) -> jax.Array:
        flat = jnp.reshape(x - self.mu, (-1, self.mu.shape[-1]))
        z = jax.scipy.linalg.solve_triangular(self.root, flat.T, lower=True).T
        return jnp.reshape(z, x.shape)

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: Any = None
    ) -> jax.Array:
        return jnp.broadcast_to(jnp.sum(jnp.log(jnp.diag(self.root))), jnp.shape(x)[:-1])

    def tree_flatten(self) -> tuple:
        return (self.mu, self.root), (("mu", "root"), {})


def normal_rows(mu: jax.Array, precision: jax.Array) -> dist.TransformedDistribution:
    """x ~ N(mu, precision^-1) as a transformed standard normal, which NUTS can sample instead."""
    zero = jnp.zeros_like(mu)
    root = dist.MultivariateNormal(zero, precision_matrix=precision).scale_tril
    return dist.TransformedDistribution(dist.Normal(zero, 1).to_event(1), RowAffine(mu, root))


def sample_normal_wishart(name: str, plate: str, n: int, K: int, h: Any) -> jax.Array:
    """Sample the sites Lambda_`name`, mu_`name` and `name` (n x K); return the rows."""
    wishart = dist.Wishart(float(K), scale_tril=jnp.eye(K) / h.rate**0.5)
    precision = numpyro.sample(f"Lambda_{name}", wishart)
    spread = dist.MultivariateNormal(jnp.zeros(K), precision_matrix=h.beta0 * precision)
    mu = numpyro.sample(f"mu_{name}", spread)
    with numpyro.plate(plate, n):
        return numpyro.sample(name, normal_rows(mu, precision))


def normal_wishart_energy(x: jax.Array, mu: jax.Array, precision: jax.Array, h: Any) -> jax.Array:
    """Minus the log density of rows, mean and precision (L), without constants.

    1/2 sum (x - mu)' L (x - mu) - n/2 log|L| + beta0/2 mu' L mu - 1/2 log|L| + rate/2 tr L + 1/2 log|L|; the
    last term is -(nu0 - K - 1)/2 log|L| at nu0 = K and cancels the -1/2 log|L| of mu.
    """
    logdet = jnp.linalg.slogdet(precision)[1]
    rows = jnp.sum((x - mu) @ precision * (x - mu)) - x.shape[0] * logdet
    return 0.5 * (rows + h.beta0 * mu @ precision @ mu + h.rate * jnp.trace(precision))


def normal_wishart_mean(
    x: jax.Array, precision: jax.Array, beta0: float
) -> dist.MultivariateNormal:
    """mu | x, Lambda."""
    n = x.shape[0]
    return dist.MultivariateNormal(x.sum(0) / (beta0 + n), precision_matrix=(beta0 + n) * precision)


def normal_wishart_precision(x: jax.Array, mu: jax.Array, h: Any) -> dist.Wishart:
    """Lambda | x, mu: each row of x adds one degree of freedom, and mu adds one."""
    n, K = x.shape
    own = h.rate * jnp.eye(K, dtype=x.dtype) + h.beta0 * jnp.outer(mu, mu)
    return dist.Wishart(K + n + 1.0, rate_matrix=own + (x - mu).T @ (x - mu))


def mode(conditional: dist.Distribution) -> jax.Array:
    """The mode of a full conditional, to which iterated conditional modes set the block."""
    if isinstance(conditional, dist.Wishart):
        K, nu = conditional.event_shape[0], conditional.concentration
        return (nu - K - 1) / nu * conditional.mean
    if isinstance(conditional, dist.Gamma):
        return (conditional.concentration - 1) / conditional.rate
    return conditional.mean


def balance(key: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Draw t from the density proportional to exp(-a e^{-2t} - b e^{2t}).

    This is exp(-c cosh 2(t - t0)) with c = 2 sqrt(a b) and e^{4 t0} = a/b. By rejection: as
    cosh x >= 1 + x^2/2, the density of x = 2(t - t0) lies below that of N(0, 1/c), closely for large c.
    """
    c = 2 * jnp.sqrt(a * b)

    def attempt(state: tuple) -> tuple:
        key, x, rejected, count = state
        key, kx, ku = jax.random.split(key, 3)
        new = jax.random.normal(kx, c.shape, c.dtype) / jnp.sqrt(c)
        excess = c * (jnp.cosh(new) - 1 - new**2 / 2)
        accept = jnp.log(jax.random.uniform(ku, c.shape, c.dtype)) < -excess
        return key, jnp.where(rejected & accept, new, x), rejected & ~accept, count + 1

    # for c near 0 or NaN the loop ends after 10,000 attempts with NaN, which the engine reports
    start = (key, jnp.full_like(c, jnp.nan), jnp.isfinite(c), 0)
    x = jax.lax.while_loop(lambda s: jnp.any(s[2]) & (s[3] < 10_000), attempt, start)[1]
    return jnp.log(a / b) / 4 + x / 2


# -- both sides: Params has U, mu_U, Lambda_U and V, mu_V, Lambda_V; the data depend on u.v alone -------
def blocks(observed: Any) -> dict[str, Any]:
    """{site: conditional} in sweep order, eq. 11-14 of Salakhutdinov & Mnih 2008.

    Given `target, weight = observed(p, data, hyper, *auxiliary)`, each cell observes u.v as a Gaussian
    `target` with precision `weight` (one number, or one for each cell).
    """

    def conditional_U(p: Any, data: Any, h: Any, *auxiliary: Any) -> GaussianRows:
        target, weight = observed(p, data, h, *auxiliary)
        return GaussianRows(data.cells.by_row, target, p.V, weight, p.Lambda_U, p.Lambda_U @ p.mu_U)

    def conditional_V(p: Any, data: Any, h: Any, *auxiliary: Any) -> GaussianRows:
        target, weight = observed(p, data, h, *auxiliary)
        return GaussianRows(data.cells.by_col, target, p.U, weight, p.Lambda_V, p.Lambda_V @ p.mu_V)

    return {
        "Lambda_U": lambda p, _, h, *auxiliary: normal_wishart_precision(p.U, p.mu_U, h),
        "mu_U": lambda p, _, h, *auxiliary: normal_wishart_mean(p.U, p.Lambda_U, h.beta0),
        "U": conditional_U,
        "Lambda_V": lambda p, _, h, *auxiliary: normal_wishart_precision(p.V, p.mu_V, h),
        "mu_V": lambda p, _, h, *auxiliary: normal_wishart_mean(p.V, p.Lambda_V, h.beta0),
        "V": conditional_V,
    }


GAUGE = Rotation(("U", "V"), {"U": 1, "V": 1, "mu_U": 0, "mu_V": 0}, ("Lambda_U", "Lambda_V"))
DIMS = {
    "U": ("user", "component"),
    "mu_U": ("component",),
    "Lambda_U": ("component", "component_"),
    "V": ("item", "component"),
    "mu_V": ("component",),
    "Lambda_V": ("component", "component_"),
}


def start(key: jax.Array, shape: tuple[int, int], K: int) -> dict[str, Any]:
    """Starting values of both sides: small factors, and Lambda at the inverse of their variance."""
    U, V = start_factors(key, shape, K)
    zero, precision = jnp.zeros(K), jnp.eye(K) * 4 * K**0.5
    user = {"U": U, "mu_U": zero, "Lambda_U": precision}
    return user | {"V": V, "mu_V": zero, "Lambda_V": precision}


def sample_sides(shape: tuple[int, int], h: Any) -> tuple[jax.Array, jax.Array]:
    """Sample the sites of both sides; return U and V."""
    U = sample_normal_wishart("U", "user", shape[0], h.n_components, h)
    return U, sample_normal_wishart("V", "item", shape[1], h.n_components, h)


def energy(p: Any, h: Any) -> jax.Array:
    """`normal_wishart_energy` of both sides."""
    user = normal_wishart_energy(p.U, p.mu_U, p.Lambda_U, h)
    return user + normal_wishart_energy(p.V, p.mu_V, p.Lambda_V, h)


def new_rows(p: Any) -> tuple:
    """(mean, covariance) of the prior of a user, and of an item, without training data."""
    return (p.mu_U, jnp.linalg.inv(p.Lambda_U)), (p.mu_V, jnp.linalg.inv(p.Lambda_V))


def lowest_scale(p: Any, h: Any) -> jax.Array:
    """The log c_k that minimise J along `stretch`.

    With s = c_k^2, J is (n - m)/2 log s + a/2s + b s/2 plus a constant, where a is rate Lambda_U,kk and b is
    rate Lambda_V,kk; the minimum solves b s^2 + (n - m) s = a.
    """
    a, b = h.rate * jnp.diag(p.Lambda_U), h.rate * jnp.diag(p.Lambda_V)
    rows = len(p.U) - len(p.V)
    return jnp.log(2 * a / (rows + jnp.sqrt(rows**2 + 4.0 * a * b))) / 2


def stretch(p: Any, t: jax.Array) -> Any:
    """Map u_k -> c_k u_k and v_k -> v_k / c_k with c = e^t, and their priors alike; u.v does not change."""
    c, square = jnp.exp(t), jnp.exp(t[:, None] + t)
    p = p._replace(U=p.U * c, mu_U=p.mu_U * c, Lambda_U=p.Lambda_U / square)
    return p._replace(V=p.V / c, mu_V=p.mu_V / c, Lambda_V=p.Lambda_V * square)


def swell(key: jax.Array, p: Any, h: Any, size: int, rest: Any) -> tuple[jax.Array, Any]:
    """Metropolis steps along U -> c U, mu_U -> c mu_U, Lambda_U -> Lambda_U / c^2; return t = log c and p.

    The caller scales its thresholds by c too: with blocks alone, thresholds and factors mix slowly. `rest(t)`
    is the log density, with Jacobians, of all sites but the U side. The density of U and mu_U, with their
    Jacobians, does not change; that of Lambda_U changes by -K^2 t - rate tr Lambda_U (e^{-2t} - 1) / 2.
    """
    K, trace = p.U.shape[1], h.rate * jnp.trace(p.Lambda_U)

    def density(t: jax.Array) -> jax.Array:
        t = t[0, 0]
        return (rest(t) - K**2 * t - 0.5 * trace * (jnp.exp(-2 * t) - 1))[None]

    width, walk = jax.random.split(key)
    step = 2 / size**0.5 * jnp.exp(jax.random.normal(width, (), p.U.dtype))
    t = metropolis(walk, jnp.zeros((1, 1), p.U.dtype), step, density, times=2)[0, 0]
    c = jnp.exp(t)
    return t, p._replace(U=p.U * c, mu_U=p.mu_U * c, Lambda_U=p.Lambda_U / c**2)


def rescale(key: jax.Array, p: Any, data: Any, hyper: Any) -> Any:
    """Draw A exactly along U -> U A, V -> V A^-1, for A = Q diag(e^t) Q' in several random frames Q.

    The likelihood, the rows and the means keep their density, with Jacobians. With M = rate Q' Lambda_U Q
    and N = rate Q' Lambda_V Q the two Wisharts leave the density exp(-M_kk e^{-2t_k}/2 - N_kk e^{2t_k}/2) of
    t_k (Liu & Sabatti 2000). A single fixed frame would scale the components but never shear them, and the
    eigenvalues of Lambda_U would mix slowly.
    """
    K = p.U.shape[1]

    def turn(number: int, state: tuple) -> tuple:
        Lambda_U, Lambda_V, A, inverse = state
        frame, scale = jax.random.split(jax.random.fold_in(key, number))
        Q = jnp.linalg.qr(jax.random.normal(frame, (K, K), p.U.dtype))[0]
        a, b = (hyper.rate / 2 * jnp.diag(Q.T @ L @ Q) for L in (Lambda_U, Lambda_V))
        t = balance(scale, a, b)
        S, T = (Q * jnp.exp(t)) @ Q.T, (Q * jnp.exp(-t)) @ Q.T
        return T @ Lambda_U @ T, S @ Lambda_V @ S, A @ S, inverse @ T

    eye = jnp.eye(K, dtype=p.U.dtype)
    begin = (p.Lambda_U, p.Lambda_V, eye, eye)
    Lambda_U, Lambda_V, A, inverse = jax.lax.fori_loop(0, FRAMES, turn, begin)
    p = p._replace(U=p.U @ A, mu_U=p.mu_U @ A, Lambda_U=(Lambda_U + Lambda_U.T) / 2)
    return p._replace(V=p.V @ inverse, mu_V=p.mu_V @ inverse, Lambda_V=(Lambda_V + Lambda_V.T) / 2)
