"""With nothing set, on features as they come, labels are predicted as well as by a user's first try."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bayesfac as bf
from bayesfac.core.laws.decisions import best_cut

EMOTIONS = Path(os.environ.get("BAYESFAC_DATA", ".")) / "emotions.npz"
SCALES = [("lsml", 1e-3), ("lsml", 1e4), ("cplst", 1.0), ("faie", 1.0)]


@pytest.mark.realdata
@pytest.mark.skipif(not EMOTIONS.is_file(), reason="emotions.npz is not in BAYESFAC_DATA")
@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_emotions(name, scale):
    with np.load(EMOTIONS, allow_pickle=False) as z:
        x, y = z["X"].astype(float) * scale, z["Y"].astype(float)
    test = np.random.default_rng(0).permutation(np.arange(len(y)) % 5) == 0
    frequency = np.tile(y[~test].mean(0), (len(y), 1))
    trivial = frequency[test] > best_cut(y[~test], frequency[~test])
    usual = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression()))
    first_try = usual.fit(x[~test], y[~test].astype(int)).predict(x[test])
    fit = bf.fit(name, bf.Tasks({"x": x[~test]}, y[~test]), progress=False)
    predicted = fit.fold_in(bf.Tasks({"x": x[test]})).predict(bf.Tasks({"x": x[test]})).level
    f1 = bf.multilabel.micro_f1(y[test], predicted.reshape(-1, y.shape[1]))
    assert fit.converged
    assert f1 > bf.multilabel.micro_f1(y[test], trivial) + 0.1
    assert f1 > bf.multilabel.micro_f1(y[test], first_try) - 0.02  # the noise of 119 rows
