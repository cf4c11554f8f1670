"""When SVI stops, and what a guide that runs away is called."""

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.inference.variational.svi import gain, settled

NOISE = np.random.default_rng(0).normal(size=2000)


def test_only_a_trace_that_stands_has_settled():
    level, slope = np.full(2000, 100.0), np.linspace(0, 100, 2000)
    assert settled([*(level + NOISE)])
    assert not settled([*(level - slope + NOISE)]), "it still improves"
    assert not settled([*(level + slope + NOISE)]), "it runs away"
    assert not settled([*(level + NOISE)[:1999]]), "too few to see"
    assert gain([*(level - slope)]) > 1 > -3 > gain([*(level + slope)])
    assert gain([1.0] * 8) == np.inf


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_a_guide_that_runs_away_is_no_good_news():
    data, _ = bf.datasets.make_gaussian(8, 6, 2, density=0.7, seed=0)
    given = {"n_components": 2, "progress": False}
    wild = bf.fit("pmf", data, bf.SVI(300, draws=50), **given)
    wild.result.trace[:] = np.linspace(1, 9, 300) ** 3 + NOISE[:300]
    (said,) = [f for f in wild.diagnostics().findings if "ELBO" in f.text]
    assert said.level == "bad" and "got worse" in said.text and "learning_rate" in said.advice
