"""With nothing set, on features as they come, labels are predicted better than by their frequencies."""

import os
from pathlib import Path

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.laws.labels import best_cut

EMOTIONS = Path(os.environ.get("BAYESFAC_DATA", ".")) / "emotions.npz"


@pytest.mark.realdata
@pytest.mark.skipif(not EMOTIONS.is_file(), reason="emotions.npz is not in BAYESFAC_DATA")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("name", ["lsml", "cplst", "faie"])
def test_emotions(name, scale):
    with np.load(EMOTIONS, allow_pickle=False) as z:
        x, y = z["X"].astype(float) * scale, z["Y"].astype(float)
    test = np.random.default_rng(0).permutation(np.arange(len(y)) % 5) == 0
    frequency = np.tile(y[~test].mean(0), (len(y), 1))
    trivial = frequency[test] > best_cut(y[~test], frequency[~test])
    fit = bf.fit(name, bf.Tasks(x[~test], y[~test]), progress=False)
    new = fit.fold_in(bf.Tasks({"x": x[test]}))
    predicted = new.predict(new.data.locate(bf.Tasks({"x": x[test]}))[1]).level
    f1 = bf.multilabel.micro_f1(y[test], predicted.reshape(-1, y.shape[1]))
    assert fit.converged
    assert f1 > bf.multilabel.micro_f1(y[test], trivial) + 0.1
    assert f1 > 0.64  # what scikit-learn's logistic regression reaches on five folds is .65
