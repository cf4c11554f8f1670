"""LTM: the objective of the paper, and one sweep of it."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.method import REGISTRY

LTM = REGISTRY["ltm"]


def golden(method):
    """J of the example by plain loops, for both divergences."""
    data, h = LTM.example(jax.random.key(3))
    p = LTM.init(jax.random.key(4), data, h)
    A, C, x = np.asarray(p.A), np.asarray(p.C), data["x"].toarray()
    U = data.graphs["x"].toarray()
    J = -(h.a - 1) * np.log(A).sum() - (h.c - 1) * np.log(C).sum()
    J -= (x * np.log(A @ C)).sum()
    rough = {"kl": 0.0, "squared": 0.0}
    for i in range(7):
        for s in range(i):
            rough["kl"] += U[i, s] * ((A[i] - A[s]) * (np.log(A[i]) - np.log(A[s]))).sum()
            rough["squared"] += U[i, s] * ((A[i] - A[s]) ** 2).sum()
    for divergence, R in rough.items():
        found = method.objective(p, data, h._replace(divergence=divergence))
        np.testing.assert_allclose(found, J + h.penalty * R, rtol=1e-12)


def test_golden_objective():
    golden(LTM)


def test_a_sweep_whose_step_is_taken_whole_is_that_of_the_paper():
    """Eq. 15 by a dense solve, where it needs no shortening: then only the step along the slope follows."""
    data, h = LTM.example(jax.random.key(3))
    h = h._replace(penalty=1e-6)
    p = LTM.init(jax.random.key(4), data, h)
    A, C, x = np.asarray(p.A), np.asarray(p.C), data["x"].toarray()
    V = h.a - 1 + A * ((x / (A @ C)) @ C.T)
    U = data.graphs["x"].toarray()
    system = np.diag(V.sum(1)) + h.penalty * (np.diag(U.sum(1)) - U)
    np.testing.assert_allclose(
        LTM.solver.update(p, data, h).A, np.linalg.solve(system, V), atol=1e-5
    )


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_citations_tell_two_topics_apart():
    """Words alone say nothing here; the graph that the views bring does."""
    n = 20
    words = np.ones((n, 6))
    halves = sp.block_diag([sp.csr_matrix(np.ones((n // 2, n // 2)))] * 2).tocsr()
    views = bf.Views({"words": words}, graphs={"cites": halves})
    fit = bf.fit("ltm", views, bf.FixedPoint(60, tol=0), n_components=2, penalty=5.0, scale="none",
                 start="random", progress=False)  # fmt: skip
    A = np.asarray(fit.params.A)
    assert A[: n // 2].std(0).max() < 0.01
    assert A[n // 2 :].std(0).max() < 0.01


@pytest.mark.parametrize(
    ("views", "said"),
    [
        (bf.Views([np.ones((4, 3)), np.ones((4, 2))]), "one view, got 2.*see concat_ltm, mggm"),
        (bf.Views(np.ones((4, 3)), graphs={"a": sp.eye(4), "b": sp.eye(4)}), "one graph, got"),
    ],
)
def test_one_view_and_one_graph(views, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("ltm", views, n_components=2, progress=False)


def test_accelerated_rows_stay_probabilities_and_reach_the_optimum_of_plain_sweeps():
    """Rows of an extrapolated A summed to 1.09: J fell, and the sweeps stopped above the minimum."""
    rng = np.random.default_rng(0)
    A, C = rng.dirichlet(np.full(5, 0.2), 60), rng.dirichlet(np.full(12, 0.3), 5)
    words = rng.poisson(40 * A @ C).astype(float)
    run = {"n_components": 5, "penalty": 1.0, "scale": "none", "progress": False}
    fit = bf.fit("ltm", words, **run)
    plain = bf.fit("ltm", words, bf.FixedPoint(accelerate=False), **run)
    np.testing.assert_allclose(np.asarray(fit.params.A).sum(1), 1, atol=1e-5)
    assert fit.trace[-1] == pytest.approx(plain.trace[-1], rel=1e-4)


def test_a_graph_without_edges_has_no_penalty():
    words = np.random.default_rng(0).poisson(1.0, (60, 12))
    data = bf.Views(words, graphs={"g": sp.csr_matrix((60, 60))})
    fit = bf.fit("ltm", data, bf.LBFGS(), n_components=2, progress=False)
    assert fit.hyper.penalty == 0 and np.isfinite(fit.trace).all()
