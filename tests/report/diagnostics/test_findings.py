"""Advice of the findings on draws."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bayesfac.inference.quick import Quick
from bayesfac.report.diagnostics.chains import _divergences, judge_rhat, judge_sampler
from bayesfac.report.diagnostics.uses import uses
from tests.report import fakes

SHORT = replace(fakes.sampled_ratings(draws=40), engine=Quick())


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


@pytest.mark.parametrize(
    ("error", "level"), [(0.08, "good"), (0.104, "good"), (0.2, "care"), (0.4, "bad")]
)
def test_a_short_run_is_judged_by_the_error_of_its_predictions(error, level):
    found = judge_sampler(SHORT, table(1.07, (30, 9)), None, error)
    levels = uses("sampler", found)
    assert levels == {
        "averages": "care" if level == "bad" else level,
        "single": level,
        "hyper": "good",
    }


def test_other_numbers_of_a_short_run_keep_the_limits_of_rhat():
    wrong = table(1.0, (900, 900)).assign(r_hat=[1.0, 1.36])
    found = judge_sampler(SHORT, wrong, None, 0.08)
    assert uses("sampler", found) == {"averages": "good", "single": "good", "hyper": "bad"}
    assert "1.36 (log joint)" in found[1].text and "long run of Gibbs" in found[1].advice


@pytest.mark.parametrize(
    ("group", "r_hat", "level"),
    [
        ("Predictions", 1.0104, "good"), ("Predictions", 1.0106, "care"), ("Predictions", 1.05, "care"),
        ("Predictions", 1.0501, "bad"), ("Log joint", 1.0106, "care"), ("Log joint", 1.1, "care"),
        ("Log joint", 1.1001, "bad"), ("Hyper-parameters and spectrum", 3.0, "care"),
        ("Log joint", float("nan"), "good"),
    ],
)  # fmt: skip
def test_the_limits_of_rhat_belong_to_the_better_level(group, r_hat, level):
    assert judge_rhat(group, r_hat) == level


@pytest.mark.parametrize(
    ("r_hat", "single", "averages"),
    [(1.01, "good", "good"), (1.05, "care", "good"), (1.051, "bad", "care"), (1.2, "bad", "care"),
     (1.201, "bad", "bad")],
)  # fmt: skip
def test_averages_need_less_agreement_than_single_predictions(r_hat, single, averages):
    levels = uses(
        "sampler", judge_sampler(fakes.sampled_ratings(draws=100), table(r_hat, (900, 900)), None)
    )
    assert levels == {"averages": averages, "single": single, "hyper": "good"}


@pytest.mark.parametrize(
    ("count", "level", "share"),
    [(0, "good", ""), (1, "care", "0.1%"), (10, "care", "1.0%"), (11, "bad", "1.1%")],
)
def test_divergences_are_counted_among_all_draws(count, level, share):
    diverging = np.zeros((4, 250), bool)
    diverging[0, :count] = True
    found = _divergences(diverging, 1)
    assert found.level == level and share in found.text
    assert found.text.startswith(f"{count} divergent" if count else "No divergences.")
