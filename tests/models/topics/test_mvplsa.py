"""MVPLSA: one EM step by its explicit posterior, PLSA as a special case, and its cost."""

import jax
import numpy as np
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.kernels import sparse
from bayesfac.core.method import REGISTRY

MVPLSA, PLSA = REGISTRY["mvplsa"], REGISTRY["plsa"]


def golden(method):
    """Eq. 12-14 with the posterior of (cluster c, topic z) written out for every word."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    p = p._replace(
        B={v: B * np.array([1.0, 2.0 + i]) for i, (v, B) in enumerate(p.B.items())}
    )  # views differ
    p = p._replace(B={v: B / B.sum(1, keepdims=True) for v, B in p.B.items()})
    new = method.solver.update(p, data, h)
    A = np.full(p.A.shape, h.a - 1)
    for name in data.names:
        n = data[name].toarray()
        posterior = np.einsum("ic,cz,zw->iwcz", p.A, p.B[name], p.C[name])
        posterior /= posterior.sum((2, 3), keepdims=True)
        counts = n[..., None, None] * posterior
        A += counts.sum((1, 3))
        B = h.b - 1 + counts.sum((0, 1))
        C = h.c - 1 + counts.sum((0, 2)).T
        np.testing.assert_allclose(new.B[name], B / B.sum(1, keepdims=True), rtol=1e-10)
        np.testing.assert_allclose(new.C[name], C / C.sum(1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(new.A, A / A.sum(1, keepdims=True), rtol=1e-10)


def test_golden_step():
    golden(MVPLSA)


def test_one_view_with_a_topic_per_cluster_is_plsa():
    """B = I says that cluster c speaks of topic c alone, and EM never leaves that."""
    data, _ = PLSA.example(jax.random.key(0))
    simple = PLSA.prepare(data, PLSA.Hyper(3))
    h = MVPLSA.prepare(data, MVPLSA.Hyper(3, 3))
    q = PLSA.init(jax.random.key(1), data, simple)
    p = MVPLSA.Params(q.A, {"x": np.eye(3)}, {"x": q.C})
    for _ in range(5):
        cost = MVPLSA.objective(p, data, h), PLSA.objective(q, data, simple)
        np.testing.assert_allclose(*cost, rtol=1e-12)
        p, q = MVPLSA.solver.update(p, data, h), PLSA.solver.update(q, data, simple)
        np.testing.assert_allclose(p.A, q.A, rtol=1e-9)
        np.testing.assert_allclose(p.C["x"], q.C, rtol=1e-9)
        np.testing.assert_allclose(p.B["x"], np.eye(3), atol=1e-12)


def test_views_share_the_clusters():
    """The paper's reason for it: clusters that either view alone shows in part, both show whole."""
    words, links = (
        np.repeat([[9, 0], [9, 0], [0, 9]], 8, 0),
        np.repeat([[9, 0], [0, 9], [0, 9]], 8, 0),
    )
    rng = np.random.default_rng(0)
    views = {"words": rng.poisson(words + 0.1), "links": rng.poisson(links + 0.1)}
    truth = np.repeat(np.arange(3), 8)

    def accuracy(data):
        engine = bf.FixedPoint(restarts=5)
        fit = bf.fit("mvplsa", data, engine, n_components=3, n_topics=2, progress=False)
        return bf.metrics.clustering_accuracy(truth, np.argmax(fit.params.A, 1))

    assert accuracy(views) == 1
    assert max(accuracy({name: view}) for name, view in views.items()) < 0.9


def flops(n_features, per_row, n_rows=1000):
    """Operations of one EM step as XLA counts them."""
    rng = np.random.default_rng(0)
    col = np.concatenate([rng.choice(n_features, per_row, replace=False) for _ in range(n_rows)])
    row = np.repeat(np.arange(n_rows), per_row)
    data = bf.Views(sp.csr_matrix((np.ones(len(col)), (row, col)), shape=(n_rows, n_features)))
    h = MVPLSA.prepare(data, MVPLSA.Hyper(8, 4))
    p = MVPLSA.init(jax.random.key(0), data, h)
    with sparse.use("jax"):
        step = jax.jit(lambda p, data: MVPLSA.solver.update(p, data, h)).lower(p, data).compile()
    return step.cost_analysis()["flops"]


def test_an_iteration_costs_what_is_stored_and_not_rows_times_features():
    """O(nnz K + K Q M): twice the cells, twice the work; ten times the features, hardly more."""
    base = flops(1280, 64)
    assert 1.7 < flops(1280, 128) / base < 2.3
    assert base / flops(128, 64) < 1.5


def test_other_words_of_short_documents_are_foretold_better_than_by_frequencies():
    """The paper's likelihood puts the shares of a row with few words at 0 or 1."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(3, 0.3), 1000)
    words = {name: shares @ rng.dirichlet(np.full(120, 0.1), 3) for name in ("text", "tags")}
    train, test = (
        {name: np.stack([rng.multinomial(4, p) for p in P]) for name, P in words.items()}
        for _ in range(2)
    )

    def score(p, name):
        P = np.asarray(p.A @ p.B[name] @ p.C[name])
        return np.sum(test[name] * np.log(np.maximum(P, 1e-12))) / test[name].sum()

    def blind(name):
        frequency = (train[name].sum(0) + 1) / (train[name].sum() + 120)
        return np.sum(test[name] * np.log(frequency)) / test[name].sum()

    fit = bf.fit("mvplsa", bf.Views(train), n_components=3, n_topics=3, progress=False)
    paper = bf.fit("mvplsa", bf.Views(train), n_components=3, n_topics=3, a=1.0, progress=False)
    assert fit.hyper.a > 1
    assert any("chosen: a=" in note for note in fit.notes)
    for name in words:
        assert score(fit.params, name) > blind(name) + 0.1
        assert score(paper.params, name) < score(fit.params, name) - 0.1
