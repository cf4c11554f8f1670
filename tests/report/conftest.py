"""Fixtures of several rooms of the report."""

import pytest

from bayesfac.report.compare import compare
from tests.report import fakes
from tests.report.fakes import NAMES


@pytest.fixture(scope="session")
def hostile():
    """A comparison whose names would break a page or a picture that does not escape them."""
    draws = fakes.sampled_ratings(
        chains=4, draws=100, engine=fakes.NUTS(draws=100, chains=4), hostile=True,
        info={**fakes.INFO, "notes": ["<img src=x onerror=alert(1)>"]},
    )  # fmt: skip
    fits = {NAMES["point"]: fakes.point_ratings(hostile=True), NAMES["NUTS"]: draws}
    return compare(fits, fakes.ratings_sets(True)[1], about="</main><script>x</script>")
