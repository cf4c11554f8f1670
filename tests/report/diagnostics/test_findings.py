"""Advice of the findings on draws."""

import re

import pandas as pd
import pytest

from bayesfac.report.diagnostics.findings import judge_sampler
from tests.report import fakes


def table(r_hat: float, ess: tuple[float, float]) -> pd.DataFrame:
    kinds = ["prediction", "log joint"]
    numbers = {"mean": 0.0, "r_hat": [r_hat, 1.0], "ess_bulk": ess, "ess_tail": 900.0}
    return pd.DataFrame({"quantity": kinds, **numbers}, index=kinds)


@pytest.mark.parametrize(
    ("r_hat", "ess", "wanted"),
    [
        (1.03, (150, 90), {"Take about 500 draws per chain."}),
        (1.03, (350, 900), {"Take about 200 draws per chain."}),
        (1.00, (390, 900), {"Take about 200 draws per chain."}),
        (1.03, (15, 900), {"The chains mix slowly."}),
        (1.00, (900, 900), set()),
    ],
)
def test_all_advice_names_one_number_of_draws(r_hat, ess, wanted):
    found = judge_sampler(fakes.sampled_ratings(draws=100), table(r_hat, ess), None)
    said = {one.advice for one in found}
    assert said - {""} == wanted and not re.search("more draws", " ".join(said))
