"""Rows left out in closed form are rows left out; cuts and penalties come from them alone."""

import sys

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.laws.decisions import best_cut
from bayesfac.core.method import lookup
from bayesfac.labels.models.labels._left_out import LeftOut


def made(n=40, d=6, L=3, noise=1.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    score = x @ rng.normal(size=(d, L)) + noise * rng.normal(size=(n, L)) - 1
    return x, (score > 0).astype(float)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("d", [6, 60])  # fewer and more features than rows
def test_a_row_is_predicted_by_the_regression_on_all_others(centred, d):
    x, y = made(d=d)
    rows = LeftOut(bf.Tasks(x, y), centred=centred)
    found = rows(rows.Y, 2.0)
    x = np.float64(np.float32(x))
    for i in (0, 17):
        rest = np.arange(len(x)) != i
        mean, base = (x[rest].mean(0), y[rest].mean(0)) if centred else (0.0, 0.0)
        own = x[rest] - mean
        W = np.linalg.solve(own.T @ own + 2.0 * np.eye(d), own.T @ (y[rest] - base))
        np.testing.assert_allclose(found[i], (x[i] - mean) @ W + base, atol=1e-6)


def test_the_best_cut_is_the_best():
    rng = np.random.default_rng(0)
    truth, score = rng.integers(0, 2, (50, 4)), rng.random((50, 4)).round(1)  # with ties
    score[score == 0] = 0.1
    every = [bf.multilabel.micro_f1(truth, score > cut) for cut in np.arange(0.05, 1, 0.1)]
    found = bf.multilabel.micro_f1(truth, score > best_cut(truth, score))
    assert found == pytest.approx(max(every))


@pytest.mark.parametrize("name", ["lsml", "cplst", "faie", "leml"])
def test_what_was_chosen_reproduces_and_more_noise_has_a_larger_penalty(name):
    method, chosen = lookup(name), []
    for noise in (0.1, 30.0):
        data = bf.Tasks(*made(80, 12, 3, noise))
        hyper = method.prepare(data, method.Hyper())
        assert None not in hyper._replace(label_sd=())  # which labels of 0 and 1 do not have
        assert method.prepare(data, method.Hyper(**hyper._asdict())) == hyper
        chosen.append(hyper.beta if name == "lsml" else hyper.penalty)
    assert chosen[1] > 2 * chosen[0]


@pytest.mark.parametrize(("copies", "d"), [(1, 4), (2, 2)])
def test_faie_has_as_many_codes_as_there_are_different_labels(copies, d):
    """Four labels that four features tell exactly; or two such labels, each of them twice."""
    x = np.random.default_rng(0).normal(size=(80, 4))
    y = np.tile((x[:, : 4 // copies] > 0).astype(float), copies)
    method = lookup("faie")
    assert method.prepare(bf.Tasks(x, y), method.Hyper()).n_components == d


@pytest.mark.parametrize(
    "name", ["lsml", "grople", "mlc_hmf", "heres", "lsa_mml", "himls", "himlsd"]
)
@pytest.mark.parametrize("cut", [1.5, -1.0])
def test_a_cut_outside_of_probabilities_is_refused(name, cut):
    with pytest.raises(ValueError, match="Expected cut between"):
        bf.fit(name, bf.Tasks(*made()), cut=cut)


@pytest.mark.parametrize("name", ["cplst", "faie", "leml", "lsml"])
def test_what_was_chosen_is_said_and_chosen_once(name, monkeypatch):
    x, y = made(80, 6, 3, 0.5)
    method, calls = lookup(name), []
    chosen = sys.modules[method.prepare.__module__].left_out
    monkeypatch.setattr(
        sys.modules[method.prepare.__module__], "left_out", lambda *a: calls.append(1) or chosen(*a)
    )
    fit = bf.fit(name, bf.Tasks(x, y), progress=False)
    (note,) = [note for note in fit.notes if note.startswith("chosen: ")]
    assert (
        f"cut={fit.cut:.4g}" in note and ", by the training rows, the micro-F1 of 80 rows" in note
    )
    assert len(calls) == 1
    numbers = bf.fit(name, bf.Tasks(x, y + x[:, :3]), progress=False)
    (note,) = [note for note in numbers.notes if note.startswith("chosen: ")]
    assert "label_sd=(" in note and "cut" not in note
