"""The guides of SVI: distributions of all unconstrained parameters, which begin near the start point."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import constraints
from numpyro.distributions.transforms import LowerCholeskyAffine, Transform
from numpyro.infer import autoguide

from bayesfac.core.kernels import sparse

WIDTH = 0.1  # of every guide at the start
LARGEST = 64  # numbers of a row that share a covariance; longer rows have widths of their own


class Flow(autoguide.AutoIAFNormal):
    """An autoregressive flow that begins at the start point, with the same width as the other guides. If it
    began as a standard normal about zero, positive definite matrices would overflow at once."""

    def _get_posterior(self) -> dist.Distribution:
        about = LowerCholeskyAffine(self._init_latent, WIDTH * jnp.eye(self.latent_dim))
        flow = super()._get_posterior()
        return dist.TransformedDistribution(flow.base_dist, [*flow.transforms, about])


class Rows(autoguide.AutoContinuous):
    """A normal with a full covariance for each row of a table, and independent numbers elsewhere.

    A row is the last axis of a site with two axes or more, as that of a user in the factors U.
    """

    def _get_posterior(self) -> dist.Distribution:
        loc = numpyro.param(f"{self.prefix}_loc", self._init_latent)
        roots = {}
        for site, start in self._init_locs.items():
            shape = np.shape(start)
            if len(shape) > 1 and 1 < shape[-1] <= LARGEST:
                first = jnp.broadcast_to(WIDTH * jnp.eye(shape[-1]), (*shape, shape[-1]))
                kind: Any = constraints.scaled_unit_lower_cholesky
            else:
                first, kind = jnp.full(shape, WIDTH), constraints.softplus_positive
            roots[site] = numpyro.param(f"{self.prefix}_root_{site}", first, constraint=kind)
        return dist.TransformedDistribution(self.get_base_dist(), self._affine(loc, roots))

    def _affine(self, loc: jax.Array, roots: dict[str, jax.Array]) -> "Blocks":
        shapes = tuple(np.shape(start) for start in self._init_locs.values())
        return Blocks(loc, tuple(roots[site] for site in self._init_locs), shapes)

    def get_base_dist(self) -> dist.Distribution:
        """Independent standard normals."""
        return dist.Normal(jnp.zeros(self.latent_dim), 1).to_event(1)

    def get_transform(self, params: dict[str, jax.Array]) -> "Blocks":
        """The map from standard normals to the fitted distribution."""
        roots = {site: params[f"{self.prefix}_root_{site}"] for site in self._init_locs}
        return self._affine(params[f"{self.prefix}_loc"], roots)

    def median(self, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The sites at the centre of the distribution."""
        return self._unpack_and_constrain(params[f"{self.prefix}_loc"], params)


class Blocks(Transform):
    """x -> loc + L x, where L is block diagonal: Cholesky factors of rows, or widths of single numbers."""

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(
        self, loc: jax.Array, roots: tuple[jax.Array, ...], shapes: tuple[tuple, ...]
    ) -> None:
        self.loc, self.roots, self.shapes = loc, roots, shapes

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.loc + self._each(x, lambda root, z: (root @ z[..., None])[..., 0])

    def _inverse(self, y: jax.Array) -> jax.Array:
        def solved(root: jax.Array, z: jax.Array) -> jax.Array:
            root = jnp.broadcast_to(root, (*z.shape, z.shape[-1]))
            return solve_triangular(root, z[..., None], lower=True)[..., 0]

        return self._each(y - self.loc, solved, lambda width, z: z / width)

    def _each(
        self, x: jax.Array, block: Callable, single: Callable = lambda width, z: width * z
    ) -> jax.Array:
        """A function of every root and its part of x."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        parts = []
        for root, shape, part in zip(self.roots, self.shapes, jnp.split(x, ends, -1), strict=True):
            z = part.reshape(*x.shape[:-1], *shape)
            new = (block if root.ndim > len(shape) else single)(root, z)
            parts.append(new.reshape(part.shape))
        return jnp.concatenate(parts, -1)

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: Any = None
    ) -> jax.Array:
        """The log of the determinant of L."""
        total = jnp.zeros(x.shape[:-1], x.dtype)
        for root, shape in zip(self.roots, self.shapes, strict=True):
            widths = jnp.diagonal(root, 0, -2, -1) if root.ndim > len(shape) else root
            total += jnp.sum(jnp.log(widths))
        return total

    def tree_flatten(self) -> tuple:
        """The arrays, their names, and the shapes, for JAX."""
        return (self.loc, self.roots), (("loc", "roots"), {"shapes": self.shapes})


def curvature(f: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """The Hessian of f by reverse mode only: functions with custom gradients have no forward mode."""
    with sparse.use("jax"):  # the form of the loops that has second derivatives
        return jax.jacrev(jax.jacrev(f))(x)


class Laplace(autoguide.AutoLaplaceApproximation):
    """NumPyro's guide, with `curvature` for its Hessian."""

    def __init__(self, model: Callable[..., Any], **how: Any) -> None:
        super().__init__(model, hessian_fn=curvature, **how)


GUIDES: dict[str, Callable[..., Any]] = {
    "normal": autoguide.AutoDiagonalNormal,
    "rows": Rows,
    "multivariate": autoguide.AutoMultivariateNormal,
    "lowrank": autoguide.AutoLowRankMultivariateNormal,
    "laplace": Laplace,
    "flow": Flow,
    "delta": autoguide.AutoDelta,
}
