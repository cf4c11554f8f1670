"""MGGM: what it is without its parts, its printed equations, and what it says of a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.graphs import neighbours
from bayesfac.core.method import REGISTRY

MGGM, MVPLSA, LTM = (REGISTRY[name] for name in ("mggm", "mvplsa", "ltm"))


def golden(method):
    """J of the example by plain loops: eq. 2, eq. 3 with mu of 8, and the priors."""
    data, h = MGGM.example(jax.random.key(3))
    p = MGGM.init(jax.random.key(4), data, h)
    A, alpha = np.asarray(p.A), np.asarray(p.alpha)
    J = -(h.a - 1) * np.log(A).sum()
    for name in data.names:
        B, C, x = np.asarray(p.B[name]), np.asarray(p.C[name]), data[name].toarray()
        for i in range(7):
            for w in range(x.shape[1]):
                joint = sum(
                    A[i, c] * B[c, z] * C[z, w] for c in range(3) for z in range(h.n_topics)
                )
                J -= x[i, w] * np.log(joint)
        J -= (h.b - 1) * np.log(B).sum() + (h.c - 1) * np.log(C).sum()
    for t, name in enumerate(data.graphs.names):
        U = data.graphs[name].toarray()
        for i in range(7):
            for s in range(7):  # both orders, as (3) sums them; D is half of both divergences
                forth = (A[i] * np.log(A[i] / A[s])).sum()
                back = (A[s] * np.log(A[s] / A[i])).sum()
                J += h.penalty * alpha[t] ** (1 / h.selectivity) * U[i, s] * 0.5 * (forth + back)
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-12)


def test_golden_objective():
    golden(MGGM)


def test_without_the_graphs_it_is_mvplsa():
    data, h = MGGM.example(jax.random.key(0))
    h = MGGM.prepare(data, h._replace(penalty=0))
    p = MGGM.init(jax.random.key(1), data, h)
    plain = MVPLSA.Hyper(h.n_components, h.n_topics, h.a, h.b, h.c)
    q = MVPLSA.Params(p.A, p.B, p.C)
    assert MGGM.objective(p, data, h) == MVPLSA.objective(q, data, plain)
    for ours, theirs in zip(
        MGGM.solver.update(p, data, h)[:3], MVPLSA.solver.update(q, data, plain), strict=True
    ):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("divergence", ["kl", "squared"])
def test_one_view_with_topics_that_are_clusters_is_ltm(divergence):
    """P(z|c) held at the identity stays there: EM multiplies it."""
    data, h = LTM.example(jax.random.key(0))
    h = h._replace(divergence=divergence)
    p = LTM.init(jax.random.key(1), data, h)
    more = MGGM.Hyper(3, 3, h.penalty, divergence=divergence, a=h.a, b=1.0, c=h.c)
    q = MGGM.Params(p.A, {"x": jnp.eye(3)}, {"x": p.C}, None)
    for _ in range(3):
        np.testing.assert_allclose(
            LTM.objective(p, data, h), MGGM.objective(q, data, more), rtol=1e-12
        )
        p, q = LTM.solver.update(p, data, h), MGGM.solver.update(q, data, more)
        # a row is divided by its only number: one unit in the last place, on some platforms
        np.testing.assert_allclose(q.B["x"], jnp.eye(3), rtol=3e-16, atol=0)
        np.testing.assert_allclose(p.A, q.A, atol=1e-12)
        np.testing.assert_allclose(p.C, q.C["x"], atol=1e-12)


def test_topics_from_sums_are_those_of_the_whole_posterior():
    """Eq. 12 and 14 with the literal posterior over (z, c) for every word."""
    data, h = MVPLSA.example(jax.random.key(0))
    p = MVPLSA.init(jax.random.key(1), data, h)
    new = MVPLSA.solver.update(p, data, h)
    A_mass = np.full((7, 3), h.a - 1)
    for name in data.names:
        A, B, C = (np.asarray(x) for x in (p.A, p.B[name], p.C[name]))
        joint = np.einsum("ic,cz,zw->iwcz", A, B, C)
        counted = data[name].toarray()[:, :, None, None] * joint / joint.sum((2, 3), keepdims=True)
        A_mass += counted.sum((1, 3))
        B_mass, C_mass = h.b - 1 + counted.sum((0, 1)), h.c - 1 + counted.sum((0, 2)).T
        np.testing.assert_allclose(new.B[name], B_mass / B_mass.sum(1, keepdims=True), rtol=1e-9)
        np.testing.assert_allclose(new.C[name], C_mass / C_mass.sum(1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(new.A, A_mass / A_mass.sum(1, keepdims=True), rtol=1e-9)


@pytest.fixture(scope="module")
def digits():
    rows = np.random.default_rng(0).permutation(1797)[:600]
    return bf.datasets.load("digits").take(rows), bf.datasets.target("digits")[rows]


SMALL = {"n_components": 10, "n_topics": 20, "progress": False}
ENGINE = bf.FixedPoint(40, tol=1e-5)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_graphs_help_on_digits(digits):
    """The claim of the paper: above MVPLSA by at least 4 points."""
    views, truth = digits
    options = {"penalty": 1.0, "start": "spectral", "joint": False}
    fits = [
        bf.fit("mggm", views, ENGINE, **options, **SMALL),
        bf.fit("mvplsa", views, ENGINE, start="random", scale="none", **SMALL),
    ]
    score = [bf.metrics.clustering_accuracy(truth, np.asarray(f.params.A).argmax(1)) for f in fits]
    assert score[0] > max(0.7, score[1] + 0.04)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_a_collapse_is_said(digits):
    """From a random start a large lambda averages the rows before clusters have formed."""
    views, _ = digits
    fit = bf.fit("mggm", views, ENGINE, penalty=10_000.0, start="random", **SMALL)
    assert any("no row" in note for note in fit.info["notes"])


def test_given_graphs_and_given_weights():
    views = bf.Views(
        {"x": np.eye(6) + 1}, graphs={"cites": sp.eye(6, k=1), "same venue": sp.eye(6, k=2)}
    )
    given = {"n_components": 2, "n_topics": 2, "progress": False, "start": "random"}
    fit = bf.fit("mggm", views, bf.FixedPoint(5, tol=0.9), mu=(1, 0.5), **given)
    assert fit.params.alpha is None
    assert fit.hyper.mu == (1.0, 0.5)
    one = bf.fit("mggm", views, bf.FixedPoint(5, tol=0.9), graph="cites", **given)
    assert one.params.alpha is None
    both = bf.fit("mggm", views, bf.FixedPoint(5, tol=0.9), **given)
    assert not both.hyper.joint
    assert both.params.alpha.sum() == pytest.approx(1)


def test_a_joint_graph_is_one_more():
    data = bf.Views({"x": GOOD[:, :2], "y": GOOD[:, 2:]})
    given = {"n_components": 2, "n_topics": 2, "scale": "none", "progress": False}
    given["start"] = "kmeans"
    fit = bf.fit("mggm", data, bf.FixedPoint(5, tol=0.9), joint=True, neighbours=2, **given)
    assert fit.params.alpha.shape == (3,)
    graphs = MGGM.ready(data, fit.hyper).graphs
    assert graphs.names == ("all", "x", "y")
    np.testing.assert_array_equal(graphs["all"].toarray(), neighbours(GOOD, 2).toarray())
    named = bf.Views({"x": GOOD}, graphs={"all": sp.eye(12, k=1)})
    with pytest.raises(ValueError, match="^Expected no graph called 'all'"):
        bf.fit("mggm", named, joint=True, **given)


@pytest.mark.slow
def test_a_posterior_has_weights_of_the_graphs():
    data, h = MGGM.example(jax.random.key(0))
    fit = bf.fit("mggm", data, bf.NUTS(20, 10, 2, max_tree_depth=4), progress=False, **h._asdict())
    assert fit.draws["alpha"].shape == (2, 10, 2)
    np.testing.assert_allclose(fit.draws["alpha"].sum(-1), 1, atol=1e-5)


GOOD = np.random.default_rng(0).random((12, 4))


@pytest.mark.parametrize(
    ("views", "options", "said"),
    [
        ({"x": -GOOD}, {"scale": "none"}, "counts of at least 0 in view 'x'"),
        ({"x": GOOD, "y": GOOD[:5]}, {}, "as many rows in every view"),
        ({"x": GOOD}, {"neighbours": 12}, "neighbours between 1 and 11"),
        ({"x": GOOD}, {"selectivity": 1.0}, "selectivity between 0 and 1, got 1.0"),
        ({"x": GOOD}, {"selectivity": 0}, "selectivity to be a finite number above 0"),
        ({"x": GOOD}, {"penalty": -1}, "penalty to be a finite number above 0, got -1"),
        ({"x": GOOD}, {"mu": (1, 2)}, r"one mu for each of the graphs \['x'\], got 2 numbers"),
        ({"x": GOOD}, {"mu": (-1,)}, "finite weights of at least 0"),
        ({"x": GOOD}, {"graph": "y"}, r"one of the views \['x'\], got 'y'"),
        ({"x": GOOD}, {"start": "guess"}, "start to be one of"),
        ({"x": GOOD}, {"scale": "log"}, "scale to be one of"),
        ({"x": GOOD}, {"n_components": 13}, "n_components between 1 and 12"),
    ],
)
def test_bad_input(views, options, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("mggm", views, **{"n_components": 3, "n_topics": 3, "progress": False} | options)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("start", ["spectral", "kmeans", "random"])
def test_odd_views_have_an_answer(start):
    """A row of zeros, a feature that nobody has, a view of one column, a disconnected graph."""
    x = np.random.default_rng(0).poisson(1.0, (24, 6)).astype(float)
    x[5], x[:, 2] = 0, 0
    views = bf.Views({"x": x, "one": x[:, :1] + 1}, graphs={"apart": sp.eye(24, k=12)})
    for scale in ("none", "minmax", "unit"):
        fit = bf.fit(
            "mggm", views, bf.FixedPoint(10, tol=0), n_components=3, n_topics=2, scale=scale, start=start,
            progress=False,
        )  # fmt: skip
        assert np.isfinite(np.asarray(fit.params.A)).all()
        assert (np.diff(fit.trace) <= 1e-9 * np.abs(fit.trace[1:])).all()


def test_negative_features_are_shifted_only_where_that_is_asked_for():
    fit = bf.fit(
        "mggm", {"x": GOOD - 0.5}, bf.FixedPoint(3, tol=0.9), n_components=2, n_topics=2, progress=False,
        start="kmeans",
    )  # fmt: skip
    ready = MGGM.ready(bf.Views({"x": GOOD - 0.5}), fit.hyper)["x"]
    assert ready.min() >= 0
    share = (GOOD - GOOD.min(0)) / np.ptp(
        GOOD, 0
    )  # minmax, the rest of dense features, rows of length one
    wanted = np.hstack([share, 1 - share[:, (share > 0).mean(0) > 0.5]])
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(ready.toarray(), wanted, atol=1e-6)
