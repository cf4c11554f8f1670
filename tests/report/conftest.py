"""What both files on leaving one out begin with; a file with a `data` or `fit` of its own keeps it."""

import pytest

import bayesfac as bf
from tests.report.loo_data import GIBBS, PMF, few


@pytest.fixture(scope="session")
def data():
    return few()


@pytest.fixture(scope="session")
def fit(data):
    return bf.fit("pmf", data, GIBBS, progress=False, **PMF)
