"""What topic models choose when nothing is set, and what they say when it goes wrong."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

import bayesfac as bf
from bayesfac.core.clustering import leading
from bayesfac.core.data.views import Views
from bayesfac.core.method import REGISTRY
from bayesfac.datasets.fetch import VARIABLE
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import mggm

MVPLSA, MGGM, PLSA, LTM = (REGISTRY[name] for name in ("mvplsa", "mggm", "plsa", "ltm"))
TRUTH = np.repeat(np.arange(3), 12)


def blocks(seed=0):
    """Three clusters in two views of counts, each cluster with words of its own."""
    rng = np.random.default_rng(seed)
    own = TRUTH[:, None] == np.arange(12) % 3
    return Views({"x": rng.poisson(1 + 6 * own), "y": rng.poisson(1 + 6 * own[:, :9])})


def ring(order):
    """Every row of `order` is a neighbour of the next."""
    n = len(order)
    return sp.csr_matrix((np.ones(n - 1), (order[:-1], order[1:])), shape=(n, n))


def penalty(graph, factor=1.0):
    data = Views({"x": factor * blocks()["x"].toarray()}, graphs={"g": graph})
    return LTM.prepare(data, LTM.Hyper(3, scale="none")).penalty


def test_a_graph_is_trusted_as_far_as_k_means_agrees_with_it():
    """Along the clusters 2 of 35 edges are cut: odds of (2/3 - 2.5/36) / (2.5/36) with half an edge more."""
    along, across = (
        penalty(ring(np.arange(36))),
        penalty(ring(np.arange(36).reshape(3, 12).T.ravel())),
    )
    x = blocks()["x"]
    ends = np.array([23, 24, 23]) / 70
    odds = (1 - ends @ ends - 2.5 / 36) / (2.5 / 36)
    assert along == pytest.approx(odds * x.sum() / 70, rel=1e-5)
    assert across == pytest.approx(0.01 * x.sum() / 70, rel=1e-5)


@pytest.mark.parametrize(("most", "quarters"), [(1e9, 0), (0.2, 2), (-1.0, starts.QUARTERS)])
def test_a_penalty_that_empties_a_cluster_is_quartered(monkeypatch, most, quarters):
    """With made runs, which join clusters 1 and 2 where the penalty is above `most`."""
    data = MGGM.ready(blocks(), MGGM.Hyper(3, 3, joint=False))

    def run(update, objective, hyper, p, data):
        joined = p.A.at[:, 1].add(p.A[:, 2]).at[:, 2].set(0)
        return p._replace(A=joined if hyper.penalty > most else p.A), 0.0

    monkeypatch.setattr(starts, "_short_run", run)
    given = MGGM.Hyper(3, 3, penalty=1.0, mu=(1.0, 1.0))
    found = starts.apart(data, given, mggm.begin, MGGM.solver.update, MGGM.objective)
    assert found == given._replace(penalty=4.0**-quarters)


def test_the_penalty_is_on_the_scale_of_the_words():
    graph = ring(np.arange(36))
    assert penalty(graph, 50) == pytest.approx(50 * penalty(graph), rel=1e-5)


def test_what_was_chosen_stands_in_the_settings_and_reproduces_them():
    data = blocks()
    hyper = MGGM.prepare(data, MGGM.Hyper(3, 3))
    assert hyper.joint and hyper.penalty > 0
    assert MGGM.ready(data, hyper).graphs.names == ("all", "x", "y")
    assert MGGM.prepare(data, hyper) == hyper
    given = Views({"x": data["x"], "y": data["y"]}, graphs={"g": ring(np.arange(36))})
    assert not MGGM.prepare(given, MGGM.Hyper(3, 3)).joint


@pytest.mark.parametrize("place", [0, 2])
def test_the_start_with_the_lowest_objective_goes_on(monkeypatch, place):
    data = blocks()
    hyper = MVPLSA.prepare(data, MVPLSA.Hyper(3, 3))
    rng = np.random.default_rng(0)
    labels = [rng.permutation(TRUTH) for _ in range(3)]
    labels[place] = TRUTH
    ready = [0.99 * jax.nn.one_hot(label, 3) + 0.01 / 3 for label in labels]
    monkeypatch.setattr(starts, "several_rows", lambda *_: ready)
    monkeypatch.setattr(
        starts, "SHORT", 1
    )  # words of random halves tell nothing about wrong clusters
    p = MVPLSA.init(jax.random.key(0), data, hyper)
    assert bf.metrics.clustering_accuracy(TRUTH, np.asarray(p.A).argmax(1)) == 1


def test_flowers_in_two_views_have_starts():
    """Graphs of few rows with many copies: the iterative eigenvectors of one of them did not converge."""
    x = load_iris().data
    data = Views({"sepals": x[:, :2], "petals": x[:, 2:]})
    hyper = MGGM.prepare(data, MGGM.Hyper(3, 2))
    found = starts.several_rows(jax.random.key(0), MGGM.ready(data, hyper), hyper)
    assert len(found) == 8 and all(np.isfinite(A).all() for A in found)


def test_a_random_start_leaves_the_saddle():
    """Near the uniform in A, B and C, EM made no progress in three sweeps and stopped there."""
    fit = bf.fit("mvplsa", blocks(), n_components=3, n_topics=3, start="random", progress=False)
    assert fit.converged and len(fit.trace) > 10
    assert bf.metrics.clustering_accuracy(TRUTH, np.asarray(fit.params.A).argmax(1)) > 0.9
    assert not fit.result.notes


@pytest.mark.parametrize("name", ["plsa", "mvplsa", "ltm", "concat_ltm", "mggm"])
def test_a_saddle_is_said(name):
    """All clusters have the words of the mean row, whatever A is."""
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)

    def mean(view, C):
        share = np.asarray(data[view].sum(0)).ravel()
        return jnp.broadcast_to(share / share.sum(), C.shape)

    if isinstance(p.C, dict):
        same = p._replace(C={view: mean(view, C) for view, C in p.C.items()})
    else:
        same = p._replace(C=mean(data.names[0], p.C))
    notes = method.notes.remarks(same, data, hyper)
    assert any(note.startswith("collapsed: the clusters explain 0.0%") for note in notes)


@pytest.mark.parametrize("name", ["plsa", "mvplsa", "ltm", "concat_ltm", "mggm"])
def test_empty_clusters_are_said(name):
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)
    full = p._replace(A=jnp.eye(3)[np.arange(7) % 3])
    one = p._replace(A=jnp.eye(3)[np.arange(7) % 2])
    assert not any("no row" in note for note in method.notes.remarks(full, data, hyper))
    (note,) = (note for note in method.notes.remarks(one, data, hyper) if "no row" in note)
    assert note.startswith("collapsed: 1 of 3 clusters have no row")


COUNTS = np.random.default_rng(0).poisson(2.0, (12, 6)) + 1.0


@pytest.mark.parametrize(
    ("views", "scale"),
    [
        ({"x": COUNTS, "y": COUNTS}, "none"),
        ({"x": COUNTS, "y": 100 * COUNTS}, "rows"),
        ({"x": COUNTS, "y": COUNTS + 0.5}, "rows"),
    ],
)
def test_only_counts_of_one_size_stay_as_they_are(views, scale):
    data = Views(views)
    hyper = MVPLSA.prepare(data, MVPLSA.Hyper(2, 2))
    assert hyper.scale == scale
    length = [sp.linalg.norm(MVPLSA.ready(data, hyper)[name], axis=1) for name in views]
    if scale == "rows":
        np.testing.assert_allclose(length, 1, rtol=1e-6)


def test_new_rows_are_scaled_as_the_training_rows():
    x = COUNTS + 0.5
    fit = bf.fit("plsa", x, n_components=2, progress=False)
    A, B = (fit.fold_in(new).params.A for new in (x, 1000 * x))
    np.testing.assert_allclose(A, B, atol=1e-4)


def test_negative_features_are_refused_with_what_to_do():
    with pytest.raises(
        ValueError, match="got -1 in row 0.*subtract the least value of each such feature"
    ):
        bf.fit("mvplsa", {"x": -(COUNTS**0)}, n_components=2, n_topics=2, progress=False)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.realdata
@pytest.mark.slow  # a minute: real data
@pytest.mark.parametrize("name", ["cora", "dblp_four_area"])
def test_defaults_are_above_k_means_on_real_data(monkeypatch, name):
    """A small version of benchmarks/default_clusters.py: every fourth row, two seeds, one method."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "benchmarks"))
    benchmark = importlib.import_module("default_clusters")
    if benchmark.locate(name) is None:
        pytest.skip(f"{name}.npz is not in the folder that {VARIABLE} names")
    views, y = benchmark.data(name)
    views, y = views.take(np.arange(0, len(y), 4)), y[::4]
    used = {v: views[v][:, np.asarray(views[v].sum(0)).ravel() > 0] for v in views.names}
    scores = {
        method: np.mean([benchmark.one(method, Views(used), y, seed)["AC"] for seed in (0, 1)])
        for method in ("k-means", "mvplsa")
    }
    assert scores["mvplsa"] > scores["k-means"]


def test_a_graph_in_many_pieces_has_leading_vectors():
    """150 cliques of five rows: the eigenvalue 1 is there 150 times, and Lanczos does not converge."""
    cliques = sp.kron(sp.eye(150), np.full((5, 5), 0.2)).tocsr()
    U = leading(cliques, 3, np.random.default_rng(0))
    np.testing.assert_allclose(cliques @ U, U, atol=1e-8)
    np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-8)


def test_rows_of_one_length_keep_the_sizes_of_dense_features():
    """The dense view tells rows apart by size alone; of the sparse view nothing is doubled."""
    dense, sparse = np.outer([1.0, 2, 3, 4], [1, 10, 100]), np.eye(4)
    given = bf.Views({"sizes": dense, "words": sparse})
    made = starts.scaled(given, "complement")
    x = made["sizes"].toarray()
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    share = np.linspace(0, 1, 4)
    own = share / np.sqrt(3 * share**2 + 3 * (1 - share) ** 2)
    np.testing.assert_allclose(x[:, :3], np.tile(own[:, None], 3), atol=1e-6)
    assert list(made.features["sizes"]) == [0, 1, 2, "0 (rest)", "1 (rest)", "2 (rest)"]
    assert made["words"].shape == (4, 4) and list(made.features["words"]) == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("method", ["plsa", "mvplsa", "himlsd"])
def test_a_word_that_no_row_had_before_tells_nothing_of_a_new_row(method):
    """However often it stands there: the other words place the row."""
    rng = np.random.default_rng(0)
    x, new = (rng.poisson(1.0, (n, 12)).astype(float) for n in (60, 4))
    x[:, 7] = new[:, 7] = 0
    often = new.copy()
    often[0, 7] = 1000
    if method == "himlsd":
        y = (x[:, :3] > 1).astype(float)
        train, given = bf.Tasks({"a": x}, y), {"layers": ((6, 6),), "scaled": False}
        old, changed = (bf.Tasks({"a": rows}, None) for rows in (new, often))
    else:
        names = ("a",) if method == "plsa" else ("a", "b")
        train, old, changed = (bf.Views(dict.fromkeys(names, rows)) for rows in (x, new, often))
        given = {"n_components": 3}
    fit = bf.fit(method, train, bf.FixedPoint(60), progress=False, **given)
    site = "R" if method == "himlsd" else "A"
    rows = [np.asarray(getattr(fit.fold_in(data).params, site)) for data in (old, changed)]
    assert np.ptp(rows[0][0]) > 1e-3
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-5)
