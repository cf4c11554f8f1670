"""The base class of distributions of a whole table whose log probability is a sum over cells."""

import jax
import numpyro.distributions as dist

from bayesfac.core.data.cells import Query


class CellwiseLaw(dist.Distribution):
    """One distribution of a whole table whose log density is a sum over cells."""

    def of_cells(self, query: Query, value: jax.Array) -> jax.Array:
        """The terms of these cells, whose values are `value`, in `log_prob`."""
        raise NotImplementedError
