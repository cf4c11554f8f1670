"""The factor of a cell in the joint is a density in the unit of the user."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

from bayesfac.core.data.cells import Query
from bayesfac.core.kernels.tables import CellwiseLaw
from bayesfac.inference.predictions import pointwise
from bayesfac.labels.data.tasks import Tasks

UNITS = ((10.0, 4.0), (0.0, 1.0), (-3.0, 0.5))
QUERY = Query(np.array([0, 1, 1, 0]), np.array([0, 2, 1, 0]))


class Table(CellwiseLaw):
    """Normal cells of one table."""

    def of_cells(self, query, value):
        return dist.Normal(0.5, 2.0).log_prob(value)


@pytest.mark.parametrize(
    "law", [Table(), dist.Normal(0.5 * jnp.ones(4), 2.0)], ids=["table", "cells"]
)
def test_factors_have_the_jacobian_of_the_unit(monkeypatch, law):
    monkeypatch.setattr(pointwise, "laws", lambda *known: {"view.labels": law})
    y = jnp.array([12.0, -4.0, 0.7, 3.0])
    mean, sd = np.array(UNITS).T[:, QUERY.col]
    with jax.enable_x64(True):
        scaled = pointwise.factors(None, None, Tasks, SimpleNamespace(units=UNITS), QUERY, y)
        plain = pointwise.factors(None, None, Tasks, SimpleNamespace(), QUERY, y)
    np.testing.assert_allclose(scaled, stats.norm(mean + sd * 0.5, sd * 2).logpdf(y), rtol=1e-6)
    np.testing.assert_allclose(plain, stats.norm(0.5, 2).logpdf(y), rtol=1e-6)


def test_sums_of_logarithms_are_those_of_scipy():
    table = np.array([[-1.0, 2, 3], [-1000, -1001, -np.inf], [-np.inf] * 3])
    np.testing.assert_allclose(pointwise.log_sum(table), logsumexp(table, 1))
