"""The comparators find what is there, climb, and agree with dense arithmetic."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesfac import Views
from bayesfac.core.clustering import leading, normalised
from bayesfac.core.data.graphs import neighbours
from bayesfac.labels.comparators import clusterings
from bayesfac.metrics import clustering_accuracy


def blobs(n, K, spread, seed=0, widths=(3, 4)):
    """Labels, and as many views as widths: a point for every cluster in each, and noise about it."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return y, {
        f"view{i}": 10 * rng.standard_normal((K, m))[y] + spread * rng.standard_normal((n, m))
        for i, m in enumerate(widths)
    }


METHODS = {
    "kmeans": clusterings.kmeans,
    "pairwise": clusterings.coregularised,
    "centroid": lambda views, K, **more: clusterings.coregularised(views, K, "centroid", **more),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("n", [60, 240])  # all eigenvectors, and the first ones alone
def test_well_separated_views_are_recovered(name, n):
    y, named = blobs(n, 4, spread=0.3)
    found = METHODS[name](Views(named), 4, seed=1)
    assert found.shape == (n,) and found.dtype.kind == "i"
    assert clustering_accuracy(y, found) == 1
    np.testing.assert_array_equal(found, METHODS[name](Views(named), 4, seed=1))


def test_sparse_features_are_clustered_as_dense_ones_are():
    rng = np.random.default_rng(2)
    y = np.arange(90) % 3
    x = sp.csr_matrix(rng.poisson(np.kron(np.eye(3), np.full((1, 10), 2.0))[y]))
    assert 2 * x.nnz < x.shape[0] * x.shape[1]  # this one stays sparse
    assert clustering_accuracy(y, clusterings.kmeans(Views({"words": x}), 3)) == 1


@pytest.mark.parametrize("how", clusterings.HOW)
def test_views_that_agree_are_better_than_the_best_of_them(how):
    """Three noisy views, three draws of them; gap measured on these and others: .04 to .13."""
    joint, best = [], []
    for seed in (1, 2, 3):
        y, named = blobs(150, 3, spread=7.0, seed=seed, widths=(2, 2, 2))
        alone = [Views({name: x}) for name, x in named.items()]
        best.append(max(clustering_accuracy(y, clusterings.coregularised(x, 3)) for x in alone))
        joint.append(clustering_accuracy(y, clusterings.coregularised(Views(named), 3, how)))
    assert np.mean(joint) > np.mean(best)


@pytest.mark.parametrize("how", clusterings.HOW)
@pytest.mark.parametrize("weight", [0.0, 0.01, 0.5, 2.0])
@pytest.mark.parametrize(("n", "spread"), [(60, 6.0), (300, 6.0), (300, 0.3)])
def test_the_objective_never_falls(how, weight, n, spread):
    """With little spread the graphs fall apart, and their first eigenvalue comes several times."""
    _, named = blobs(n, 5, spread, widths=(2, 3, 4))
    found = clusterings.embeddings(Views(named), 5, how, weight)
    J = np.array(found.objective)
    assert np.all(np.diff(J) >= -1e-10 * np.abs(J[1:]))
    assert len(J) == 31 or J[-1] - J[-2] <= 1e-4 * J[-2]  # it ends where it stands still
    for U in found.views.values():
        np.testing.assert_allclose(U.T @ U, np.eye(5), atol=1e-9)


@pytest.mark.parametrize("how", clusterings.HOW)
def test_agreement_rises_with_its_weight(how):
    _, named = blobs(150, 4, spread=8.0)

    def agreement(weight):
        one, two = clusterings.embeddings(Views(named), 4, how, weight).views.values()
        return np.sum((one.T @ two) ** 2)

    assert agreement(0.0) < agreement(0.2) < agreement(5.0) <= 4 + 1e-9


@pytest.mark.parametrize("how", clusterings.HOW)
def test_the_objective_is_the_one_in_the_header(how):
    _, named = blobs(130, 4, spread=6.0, widths=(2, 3, 4))
    found = clusterings.embeddings(Views(named), 4, how, 0.7)
    views = Views(named)
    J, P = 0.0, {name: U @ U.T for name, U in found.views.items()}
    for name in views.names:
        W = neighbours(views[name], 5).toarray()
        d = W.sum(1)
        J += np.sum(W / np.sqrt(d[:, None] * d) * P[name])  # tr U'SU = sum of S times UU'
    if how == "pairwise":
        J += 0.7 * sum(np.sum(P[v] * P[w]) for v in P for w in P if v < w)
    else:
        vectors = np.linalg.eigh(sum(P.values()))[1][:, -4:]
        centre = vectors @ vectors.T
        np.testing.assert_allclose(found.centroid @ found.centroid.T, centre, atol=1e-9)
        J += 0.7 * sum(np.sum(p * centre) for p in P.values())
    assert found.objective[-1] == pytest.approx(J, rel=1e-9)


def test_the_operator_step_is_the_dense_one():
    rng = np.random.default_rng(4)
    n, K = 180, 5
    S = normalised(neighbours(rng.standard_normal((n, 3)), 6))
    beside = [np.linalg.qr(rng.standard_normal((n, K)))[0] for _ in range(2)]
    found = leading(S, K, rng, beside, 0.4)
    values, vectors = np.linalg.eigh(S.toarray() + 0.4 * sum(U @ U.T for U in beside))
    assert values[-K] - values[-K - 1] > 1e-3  # the subspace is well defined
    np.testing.assert_allclose(found @ found.T, vectors[:, -K:] @ vectors[:, -K:].T, atol=1e-8)


def test_graphs_that_the_views_bring_are_used():
    y = np.arange(120) % 2
    ring = sp.csr_matrix(
        (y[:, None] == y) & (np.abs(np.subtract.outer(range(120), range(120))) < 7)
    )
    views = Views({"noise": np.random.default_rng(5).random((120, 3))}, graphs={"ring": ring})
    assert list(clusterings.embeddings(views, 2).views) == ["ring"]
    assert clustering_accuracy(y, clusterings.coregularised(views, 2)) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"K": 13}, r"K between 1 and 12 \(the number of rows\), got 13"),
        ({"K": 0}, "K between 1 and 12 .*, got 0"),
        ({"K": 2.0}, r"K between 1 and 12 .*, got 2\.0"),
        ({"how": "both"}, r"how to be one of \('pairwise', 'centroid'\), got 'both'"),
        ({"weight": -0.1}, r"weight to be a finite number of at least 0, got -0\.1"),
        ({"weight": np.nan}, "weight to be a finite number of at least 0, got nan"),
        ({"weight": "1"}, "weight to be a finite number of at least 0, got '1'"),
        ({"max_iter": 0}, "max_iter .*, got 0"),
        ({"neighbours": 12}, "neighbours between 1 and 11 .*, got 12"),
        ({"metric": "cosin"}, "metric to be one of .*, got 'cosin'"),
    ],
)
def test_bad_input_is_said(given, said):
    views = Views({"x": np.random.default_rng(6).random((12, 2))})
    with pytest.raises(ValueError, match=f"^Expected {said}"):
        clusterings.coregularised(views, **{"K": 2, **given})


def test_what_is_no_views_is_said():
    with pytest.raises(TypeError, match="^Expected Views, got ndarray"):
        clusterings.kmeans(np.ones((3, 2)), 2)
    with pytest.raises(ValueError, match=r"^Expected K between 1 and 3 .*, got 4"):
        clusterings.kmeans(Views({"x": np.ones((3, 2))}), 4)
