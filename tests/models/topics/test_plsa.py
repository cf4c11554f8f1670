"""PLSA: one EM step by its explicit posterior, and what EM and the literature promise."""

import jax
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY

PLSA = REGISTRY["plsa"]


def expected_step(n, A, C, a, c):
    """Hofmann's eq. 3-6 with P(z | d, w) written out, word by word."""
    posterior = np.einsum("ik,kw->iwk", A, C)
    posterior /= posterior.sum(-1, keepdims=True)
    counts = n[..., None] * posterior
    A = a - 1 + counts.sum(1)
    C = c - 1 + counts.sum(0).T
    return A / A.sum(1, keepdims=True), C / C.sum(1, keepdims=True)


def golden(method):
    """One EM step on the example."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    (name,) = data.names
    expected = expected_step(data[name].toarray(), np.array(p.A), np.array(p.C), h.a, h.c)
    for mine, theirs in zip(expected, method.solver.update(p, data, h), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-10)


def test_golden_step():
    golden(PLSA)


def flat(data):
    """The paper's maximum likelihood: concentrations of one."""
    h = PLSA.prepare(data, PLSA.Hyper(3))
    return h, PLSA.init(jax.random.key(1), data, h)


def test_with_flat_priors_the_objective_is_the_papers_likelihood():
    """So PLSA is the mode of LDA under a uniform Dirichlet prior (Girolami and Kaban, 2003)."""
    data, _ = PLSA.example(jax.random.key(0))
    h, p = flat(data)
    n = data["x"].toarray()
    np.testing.assert_allclose(
        PLSA.objective(p, data, h), -np.sum(n * np.log(p.A @ p.C)), rtol=1e-12
    )
    smoothed = [PLSA.objective(p, data, h._replace(a=1 + e, c=1 + e)) for e in (1e-3, 1e-6)]
    gaps = np.abs(np.array(smoothed) - PLSA.objective(p, data, h))
    np.testing.assert_allclose(gaps[0] / gaps[1], 1000, rtol=1e-6)


def test_em_never_lowers_the_likelihood_and_keeps_word_totals():
    """After every step the model expects each word as often as it was seen."""
    data, _ = PLSA.example(jax.random.key(0))
    h, p = flat(data)
    n, likelihood = data["x"].toarray(), []
    for _ in range(30):
        p = PLSA.solver.update(p, data, h)
        likelihood.append(np.sum(n * np.log(p.A @ p.C)))
        np.testing.assert_allclose(n.sum(1) @ (p.A @ p.C), n.sum(0), rtol=1e-9)
    assert np.diff(likelihood).min() >= -1e-10


def test_it_finds_topics_that_share_no_word():
    """Documents over three disjoint vocabularies, one of them a mixture of two."""
    topics = np.kron(np.eye(3), np.ones(4)) / 4
    weights = np.vstack([np.repeat(np.eye(3), 5, 0), [[0.5, 0.5, 0.0]]])
    counts = np.random.default_rng(0).poisson(200 * weights @ topics)
    fit = bf.fit("plsa", counts, bf.FixedPoint(restarts=3), n_components=3, progress=False)
    order = np.argmax(np.asarray(fit.params.C) @ topics.T, 0)
    np.testing.assert_allclose(fit.params.C[order], topics, atol=0.03)
    np.testing.assert_allclose(fit.params.A[:, order], weights, atol=0.08)


def short_documents(seed=0):
    """1,000 documents of five of 120 words, from three topics: counts for training, and others."""
    rng = np.random.default_rng(seed)
    words = rng.dirichlet(np.full(120, 0.1), 3)
    shares = rng.dirichlet(np.full(3, 0.3), 1000) @ words
    return [np.stack([rng.multinomial(5, p) for p in shares]) for _ in range(2)]


def test_other_words_of_short_documents_are_foretold_better_than_by_frequencies():
    """The paper's likelihood puts the shares of such a document at 0 or 1."""
    train, test = short_documents()

    def score(P):
        return np.sum(test * np.log(np.maximum(P, 1e-12))) / test.sum()

    fit = bf.fit("plsa", train, n_components=3, progress=False)
    paper = bf.fit("plsa", train, n_components=3, a=1.0, c=1.0, progress=False)
    frequency = (train.sum(0) + 1) / (train.sum() + 120)
    blind = score(np.tile(frequency, (1000, 1)))
    assert fit.hyper.a > 1
    assert score(np.asarray(fit.params.A @ fit.params.C)) > blind + 0.1
    assert score(np.asarray(paper.params.A @ paper.params.C)) < blind
    again = bf.fit("plsa", train, progress=False, **fit.hyper._asdict())
    np.testing.assert_allclose(again.trace[-1], fit.trace[-1], rtol=1e-6)


@pytest.mark.parametrize("data", [np.eye(30), np.full((30, 30), 0.5)])
def test_few_counts_and_features_that_are_no_counts_keep_the_papers_priors(data):
    fit = bf.fit("plsa", data, n_components=2, progress=False)
    assert (fit.hyper.a, fit.hyper.c) == (1.0, 1.0)


def test_rows_and_words_without_a_count_stay_probabilities():
    """An empty document keeps its weights; a word that never occurs gets probability zero."""
    counts = np.array([[3.0, 1, 0, 2], [0, 0, 0, 0], [1, 4, 0, 1]])
    data = bf.Views(counts)
    h = PLSA.prepare(data, PLSA.Hyper(2))
    p = PLSA.init(jax.random.key(0), data, h)
    new = PLSA.solver.update(p, data, h)
    np.testing.assert_array_equal(new.A[1], p.A[1])
    np.testing.assert_allclose(new.C[:, 2], 0)
    np.testing.assert_allclose([new.A.sum(1).min(), new.C.sum(1).min()], 1)


def test_a_row_without_words_is_predicted_as_an_unknown_row():
    """Nothing is known of its topics, so no start may decide them."""
    x = np.random.default_rng(0).poisson(2.0, (12, 5)).astype(float)
    x[3] = 0
    for name, start in (("plsa", "kmeans"), ("plsa", "random"), ("mvplsa", "kmeans")):
        fit = bf.fit(name, bf.Views({"x": x}), n_components=3, start=start, progress=False)
        np.testing.assert_allclose(fit.params.A[3], 1 / 3, rtol=1e-6)
        cells = {"row": [3] * 5 + [99] * 5, "view": "x", "feature": [*range(5)] * 2}
        known, unknown = np.split(fit.predict(pd.DataFrame(cells)).mean, 2)
        np.testing.assert_allclose(known, unknown, rtol=1e-5)
        assert bf.clusters(fit).loc[3, "probability"] < 0.34
