"""Distributions that NumPyro does not have: Gaussian rows, also cut to 0 and more, inverse Gaussian,
Student's t about a normal."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.cells import Rows
from bayesfac.core.data.divided.shares import Share
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.nonnegative import positive_rows
from bayesfac.core.kernels.simplex import gammas
from bayesfac.core.math import apart, normals, normals_of_rows, uniforms


class Modal(dist.Distribution):
    """A law that knows its mode; or, if its draws are transitions, a value where its density is no lower
    than at the present one."""

    arg_constraints: dict[str, Any] = {}
    reparametrized_params: list[str] = []

    @property
    def mode(self) -> jax.Array:
        raise NotImplementedError


class NormalRows(dist.Distribution):
    """Independent normal rows, as a function of standard normal noise."""

    def draws(self, noise: jax.Array | None) -> jax.Array:
        """Rows for noise of the rows' shape (n, K); for noise (n, S, K), S draws of each row; None: the
        mean."""
        raise NotImplementedError

    @property
    def mean(self) -> jax.Array:
        return self.draws(None)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        noise = normals(key, (*sample_shape, *self.event_shape), self.dtype)
        return jax.vmap(self.draws)(noise) if sample_shape else self.draws(noise)

    def beyond(self, key: jax.Array, old: jax.Array, over: float) -> jax.Array:
        """m - over (old - m) + sqrt(1 - over^2) e, a move that has this law as its invariant law."""
        z = normals(key, self.event_shape, self.dtype)
        mean, new = jnp.moveaxis(self.draws(jnp.stack([jnp.zeros_like(z), z], 1)), 1, 0)
        return mean - over * (old - mean) + (1 - over**2) ** 0.5 * (new - mean)

    def balanced(self, key: jax.Array, pairs: int) -> jax.Array:
        """2 x `pairs` draws of all rows, (2 pairs, n, K), whose mean is the mean of the law.

        They are pairs, m + e and m - e. For one row, the noise of different pairs is orthogonal, as far as
        the row has enough dimensions. So the draws show the covariance better than independent draws.
        """
        found: list[jax.Array] = []
        n, K = self.event_shape
        for z in normals(key, (pairs, n, K), self.dtype):
            length, free = jnp.linalg.norm(z, axis=-1, keepdims=True), z
            for q in found[len(found) - len(found) % K :]:
                free -= jnp.sum(free * q, -1, keepdims=True) / jnp.sum(q * q, -1, keepdims=True) * q
            found.append(free * length / jnp.linalg.norm(free, axis=-1, keepdims=True))
        noise = jnp.stack(found, 1)
        return jnp.moveaxis(self.draws(jnp.concatenate([noise, -noise], 1)), 1, 0)


class GaussianRows(NormalRows):
    """The rows of one factor of a bilinear Gaussian model, given the other factor.

        x_i ~ N(P_i^-1 b_i, P_i^-1),   P_i = L + sum_j w_ij v_j v_j',   b_i = s + sum_j w_ij t_ij v_j.

    `weight` is one number, or one per cell. The object stores the data, not n matrices P_i: `mean` is one
    ridge sweep (ALS), and `sample` is the same sweep with noise (Gibbs). Only `log_prob`, for tests, builds
    P_i. With a `centre` (n x K), x_i - centre_i has this law, and the caller has subtracted centre_i . v_j
    from targets.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    reparametrized_params: list[str] = []
    pytree_data_fields = ("rows", "target", "V", "weight", "precision", "shift", "centre")

    def __init__(
        self,
        rows: Rows | Share,
        target: jax.Array,
        V: jax.Array,
        weight: Any,
        precision: jax.Array,
        shift: jax.Array,
        centre: jax.Array | None = None,
    ) -> None:
        self.rows, self.target, self.V = rows, target, V
        self.weight, self.precision, self.shift = jnp.asarray(weight, V.dtype), precision, shift
        self.centre = centre
        super().__init__((), (rows.ptr.shape[0] - 1, V.shape[1]))

    @property
    def dtype(self) -> Any:
        return self.V.dtype

    def draws(self, noise: jax.Array | None) -> jax.Array:
        if isinstance(self.rows, Share):
            own = None if noise is None else noise[self.rows.own]
            return self._shared(self.rows, own)
        return self._around(sparse.solve_rows(*self._system, noise))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        n, K = self.event_shape
        if sample_shape or not isinstance(self.rows, Share) or n * K >= 2**32:
            return super().sample(key, sample_shape)
        return self._shared(self.rows, normals_of_rows(key, self.rows.own, K, self.dtype))

    def _shared(self, rows: Share, noise: jax.Array | None) -> jax.Array:
        """All rows, from noise for the rows of this process."""
        mine = sparse.solve_rows(rows.mine, *self._system[1:], noise)
        return self._around(rows.gathered(mine))

    def _around(self, x: jax.Array) -> jax.Array:
        if self.centre is None:
            return x
        return x + (self.centre if x.ndim == 2 else self.centre[:, None])

    def log_prob(self, value: jax.Array) -> jax.Array:
        P, b = sparse.normal_equations(*self._system)
        value = value if self.centre is None else value - self.centre
        mean = jnp.linalg.solve(P, b[..., None])[..., 0]
        return dist.MultivariateNormal(mean, precision_matrix=P).log_prob(value).sum()

    @property
    def _system(self) -> tuple[Any, ...]:
        return self.rows, self.target, self.V, self.weight, self.precision, self.shift


PASSES = 4  # through the entries of a row, for each draw; beside the sums over cells they take little time


class PositiveRows(Modal):
    """`GaussianRows` whose entries are at least 0.

    Such rows cannot be drawn at once. `sample` makes passes from the rows `old`, in which every entry is
    drawn given all others, and leaves the law as it is. `mode` makes passes in which every entry gets its
    best value. `log_prob` omits a number that does not depend on the rows.
    """

    exact = False
    support = constraints.independent(constraints.nonnegative, 2)
    pytree_data_fields = ("whole", "old")

    def __init__(self, whole: GaussianRows, old: jax.Array) -> None:
        self.whole, self.old = whole, old
        super().__init__((), whole.event_shape)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            raise NotImplementedError("rows of at least 0 are drawn from those before, one by one")
        return positive_rows(key, self.old, PASSES, *self.whole._system)

    @property
    def mode(self) -> jax.Array:
        return positive_rows(None, self.old, PASSES, *self.whole._system)

    def log_prob(self, value: jax.Array) -> jax.Array:
        P, b = sparse.normal_equations(*self.whole._system)
        return jnp.sum(value * (b - 0.5 * jnp.einsum("nkl,nl->nk", P, value)))


class HalfNormal(dist.HalfNormal):
    """NumPyro's law with 0 in its support: modes of rows are often exactly 0."""

    support = constraints.nonnegative


class InverseGaussian(dist.Distribution):
    """g > 0 with density (2 pi g^3)^{-1/2} exp(-(g - m)^2 / (2 m^2 g)): mean m, shape 1."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.positive
    pytree_data_fields = ("loc",)

    def __init__(self, loc: jax.Array) -> None:
        self.loc = loc
        super().__init__(jnp.shape(loc), ())

    @property
    def mean(self) -> jax.Array:
        return self.loc

    def log_prob(self, value: jax.Array) -> jax.Array:
        distance = (value / self.loc - 1) ** 2 / value
        return -0.5 * (jnp.log(2 * jnp.pi) + 3 * jnp.log(value) + distance)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Sample as Michael, Schucany & Haas 1976, with the smaller root in a form without cancellation.

        g is used as a precision, and a very large one would leave a Cholesky factor without correct digits.
        So samples are cut at eps^-0.6 (1e4 in float32).
        """
        normal, uniform = jax.random.split(key)
        shape, dtype = (*sample_shape, *self.batch_shape), self.loc.dtype
        b = self.loc * normals(normal, shape, dtype) ** 2 / 2
        ratio = 1 / (1 + b + jnp.sqrt(b * (b + 2)))  # the smaller root divided by the mean
        small = uniforms(uniform, shape, dtype) * (1 + ratio) <= 1
        g = self.loc * jnp.where(small, ratio, 1 / ratio)
        return jnp.minimum(g, jnp.finfo(dtype).eps ** -0.6)


NODES, TOGETHER = (
    128,
    16,
)  # of an integral over weights, and the cells for which it is computed at once


class SpreadStudentT(dist.Distribution):
    """loc + sqrt(wide) z + scale t: Student's t about a centre that is normal itself, with this variance.

    As t is normal with a precision w ~ Gamma(df/2, df/2), the density is an integral over w of normal
    densities with the variance wide + scale^2 / w, here by the trapezoid rule in log w.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    reparametrized_params: list[str] = []
    pytree_data_fields: tuple[str, ...] = ("loc", "scale", "wide")
    pytree_aux_fields = ("df",)

    def __init__(self, df: float, loc: jax.Array, scale: Any, wide: jax.Array) -> None:
        self.df, self.loc = df, loc
        self.scale, self.wide = (jnp.broadcast_to(x, loc.shape) for x in (scale, wide))
        super().__init__(loc.shape, ())

    @property
    def mean(self) -> jax.Array:
        return self.loc

    @property
    def variance(self) -> jax.Array:
        return self.wide + self.scale**2 * self.df / (self.df - 2)

    def log_prob(self, value: Any) -> jax.Array:
        return self._averaged("log_prob", value, lambda x, w: jax.nn.logsumexp(x, -1, b=w))

    def cdf(self, value: Any) -> jax.Array:
        return self._averaged("cdf", value, jnp.matmul)

    def _averaged(self, name: str, value: Any, mean: Callable) -> jax.Array:
        """A function of Student's law, or where the centre is not known the mean of those of normals."""
        known = getattr(dist.StudentT(self.df, self.loc, self.scale), name)(value)
        every = (self.loc, self.scale, self.wide, jnp.asarray(value, known.dtype))
        flat = [jnp.broadcast_to(x, known.shape).ravel() for x in every]
        half = self.df / 2
        # beyond these ends, the density of log w is below e^-40 of its largest value
        log_w = np.linspace(-40 / half - 4, np.log1p(40 / half + (80 / half) ** 0.5), NODES)
        density = np.exp(half * (log_w - np.exp(log_w) + 1))
        w, share = (jnp.asarray(x, known.dtype) for x in (np.exp(log_w), density / density.sum()))

        def spread(cells: jax.Array) -> jax.Array:
            loc, scale, wide, y = (x[cells][:, None] for x in flat)
            law = dist.Normal(loc, jnp.sqrt(wide + scale**2 / w))
            return mean(getattr(law, name)(y), share)

        return jnp.reshape(apart(flat[2] > 0, spread, known.ravel(), TOGETHER), known.shape)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        centre, noise = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        z = normals(centre, shape, self.loc.dtype)
        t = jax.random.t(noise, self.df, shape, self.loc.dtype)
        return self.loc + jnp.sqrt(self.wide) * z + self.scale * t


class NormalOrStudentT(SpreadStudentT):
    """`SpreadStudentT`; but where `known`, normal with the variance wide + scale^2."""

    pytree_data_fields = ("loc", "scale", "wide", "known")

    def __init__(self, known: jax.Array, df: float, loc: jax.Array, scale: Any, wide: Any) -> None:
        self.known = known
        whole = jnp.where(known, jnp.sqrt(scale**2 + wide), scale)
        super().__init__(df, loc, whole, jnp.where(known, 0, wide))

    @property
    def variance(self) -> jax.Array:
        return jnp.where(self.known, self.scale**2, super().variance)

    def log_prob(self, value: Any) -> jax.Array:
        own = dist.Normal(self.loc, self.scale).log_prob(value)
        return jnp.where(self.known, own, super().log_prob(value))

    def cdf(self, value: Any) -> jax.Array:
        own = dist.Normal(self.loc, self.scale).cdf(value)
        return jnp.where(self.known, own, super().cdf(value))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        own = dist.Normal(self.loc, self.scale).sample(key, sample_shape)
        return jnp.where(self.known, own, super().sample(key, sample_shape))


class Gamma(dist.Gamma):
    """A Gamma law whose numbers come from the kernel: JAX's loop for them takes one or two seconds to
    compile, for every law of a sweep anew."""

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        shape = (*sample_shape, *self.batch_shape)
        a, b = (jnp.broadcast_to(x, shape).ravel() for x in (self.concentration, self.rate))
        return gammas(key, a, b).reshape(shape)


class Beta(dist.Beta):
    """A Beta law whose numbers come from the kernel of Gamma numbers, as those of `Gamma`."""

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        shape = (*sample_shape, *self.batch_shape)
        both = [
            jnp.broadcast_to(x, shape).ravel() for x in (self.concentration1, self.concentration0)
        ]
        conc = jnp.concatenate(both)
        one, zero = gammas(key, conc, jnp.ones_like(conc)).reshape(2, -1)
        least = jnp.finfo(conc.dtype).eps
        return jnp.clip(one / (one + zero), least, 1 - least).reshape(shape)
