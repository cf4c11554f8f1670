"""A small data set, its fit and its leave-one-out scores."""

import pytest

import bayesfac as bf
from tests.report.diagnostics.few_ratings import GIBBS, PMF, few


@pytest.fixture(scope="session")
def data():
    return few()


@pytest.fixture(scope="session")
def fit(data):
    return bf.fit("pmf", data, GIBBS, progress=False, **PMF)


@pytest.fixture(scope="session")
def loo(fit, data):
    return fit.loo(data)
