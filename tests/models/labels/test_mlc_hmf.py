"""MLC-HMF: its nodes by hand, its tree, its votes, and what it is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels._mlc_hmf_nodes import level
from bayesfac.labels.models.labels._mlc_hmf_tree import Growing, fit_node, grow, planted
from bayesfac.labels.models.labels.mlc_hmf import METHOD, Hyper, Params, derive, prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4))
Y = (RNG.random((12, 3)) < 0.5).astype(float)
SIGN = 2 * Y - 1


def hinge(z):
    part = np.clip(1 - z, 0, 1)
    return part * (1 - z) - part**2 / 2


def node_cost(x, y, U, V, penalty):
    """(5.19), as it is printed."""
    total = sum(
        hinge(y[i, k] * (x[i] @ U @ V[k])) for i in range(len(x)) for k in range(y.shape[1])
    )
    return total + penalty / 2 * (np.sum(U**2) + np.sum(V**2))


def grown(labels=Y, x=X, **hyper):
    given = {"n_components": 2, "penalty": 0.5, "threshold": 0.1, "depth": 3, "minimum": 2} | hyper
    data = Tasks({"v": x}, labels)
    settled = prepare(data, Hyper(**given))
    return grow(data, settled), settled


def rows_of(tree):
    """{(depth, node): its rows} of the levels."""
    found = {}
    for depth, part in tree.nodes.items():
        slot, row = np.asarray(part.slot), np.asarray(part.row)
        found |= {(depth, k): row[own[own >= 0]] for k, own in enumerate(slot)}
    return found


def test_the_objective_is_the_sum_over_the_nodes():
    tree, hyper = grown()
    p = METHOD.init(jax.random.key(0), tree, hyper)
    p = jax.tree.map(lambda a: a + 0.3, p)
    total = sum(
        node_cost(X[at], SIGN[at], np.asarray(p.U[d][k]), np.asarray(p.V[d][k]), 0.5)
        for (d, k), at in rows_of(tree).items()
    )
    assert METHOD.objective(p, tree, hyper) == pytest.approx(total, rel=1e-12)


def golden(method):
    """A sweep of one node."""
    tree, hyper = grown(depth=1)
    U = {"1": jnp.asarray(RNG.normal(size=tree.start["1"][0].shape))}
    V = {"1": jnp.asarray(RNG.normal(size=tree.start["1"][1].shape))}
    new = method.solver.update(Params(U, V), tree, hyper)
    at = rows_of(tree)["1", 0]
    x, y, u, v = X[at], SIGN[at], np.asarray(U["1"][0]), np.asarray(V["1"][0])
    a = x @ u
    target = a @ v.T + y * np.clip(1 - y * (a @ v.T), 0, 1)  # the parabola's minimum, curvature 1
    v = np.linalg.solve(a.T @ a + 0.5 * np.eye(2), a.T @ target).T
    np.testing.assert_allclose(new.V["1"][0], v, rtol=1e-8)
    target = a @ v.T + y * np.clip(1 - y * (a @ v.T), 0, 1)
    system = np.kron(v.T @ v, x.T @ x) + 0.5 * np.eye(8)
    u = np.linalg.solve(system, (x.T @ target @ v).ravel(order="F")).reshape(2, 4).T
    np.testing.assert_allclose(new.U["1"][0], u, rtol=1e-7)


def test_golden_step():
    golden(METHOD)


def test_a_tree_keeps_what_it_classifies_well_and_cuts_the_rest():
    tree, hyper = grown()
    rows = rows_of(tree)
    first = np.sort(np.concatenate([rows["1", k] for k in range(len(tree.start["1"][0]))]))
    assert len(np.unique(first)) == len(first) <= len(X)
    for depth in range(2, len(tree.nodes) + 1):
        above = {}
        for k, (U, V) in enumerate(zip(*map(np.asarray, tree.start[f"{depth - 1}"]), strict=True)):
            for i in rows[f"{depth - 1}", k]:
                above[i] = np.mean((X[i] @ U @ V.T > 0) != (Y[i] > 0))
        here = np.concatenate([rows[f"{depth}", k] for k in range(len(tree.start[f"{depth}"][0]))])
        assert all(above[i] > hyper.threshold for i in here)
        assert min(len(rows[f"{depth}", k]) for k in range(len(tree.start[f"{depth}"][0]))) >= 2


def test_another_seed_of_the_tree_grows_another_tree():
    def fit(**settings):
        engine = bf.FixedPoint(max_iter=3)
        common = {"n_components": 2, "penalty": 1.0, "cut": 0.5, "progress": False}
        return bf.fit("mlc_hmf", Tasks({"v": X}, Y), engine, **common, **settings)

    with pytest.warns(bf.ConvergenceWarning):
        one, same, other = fit(), fit(tree_seed=0), fit(tree_seed=1)
    assert other.hyper.tree_seed == 1
    np.testing.assert_array_equal(one.everywhere().mean, same.everywhere().mean)
    assert np.abs(one.everywhere().mean - other.everywhere().mean).max() > 1e-3


def test_the_tree_is_the_same_for_rows_in_another_order():
    order = np.random.default_rng(3).permutation(40)
    x = RNG.normal(size=(40, 4)) + 8 * (np.arange(40) % 2)[:, None]  # two clusters, beyond doubt
    y = (x[:, :3] > x[:, 1:].mean(0)).astype(float)
    parts = []
    for at in (np.arange(40), order):
        tree, _ = grown(y[at], x[at], depth=1, threshold=1.0)
        parts.append({frozenset(at[rows].tolist()) for rows in rows_of(tree).values()})
    assert parts[0] == parts[1] and len(parts[0]) == 2


@pytest.mark.parametrize("vote", ["hard", "soft"])
def test_the_votes_are_those_of_the_nearest_rows_nodes(vote):
    labels = Y.copy()
    labels[[2, 7]] = np.nan
    tree, hyper = grown(labels, neighbours=3, vote=vote, threshold=0.34)
    share = np.asarray(derive(METHOD.init(jax.random.key(0), tree, hyper), tree, hyper)["share"])
    rows, x = rows_of(tree), X[tree.rows.to_numpy()]
    y = tree[LABELS].toarray()
    home = {}
    for (depth, k), at in rows.items():
        U, V = (np.asarray(side[k]) for side in tree.start[depth])
        for i in at:
            if np.mean((x[i] @ U @ V.T > 0) != (y[i] > 0)) <= 0.34:
                home.setdefault(i, (U, V))
    stayed = np.array(sorted(home))
    for i in range(12):
        near = stayed[np.argsort(((x[stayed] - x[i]) ** 2).sum(1), kind="stable")[:3]]
        score = np.array([x[i] @ home[j][0] @ home[j][1].T for j in near])
        odds = hinge(-score) - hinge(score)
        votes = 1 / (1 + np.exp(-odds)) if vote == "soft" else score > 0
        np.testing.assert_allclose(share[i], votes.mean(0), atol=1e-6)


def test_the_solver_improves_on_the_start_and_agrees_with_it():
    tree, hyper = grown(depth=2)
    p = METHOD.init(jax.random.key(0), tree, hyper)
    update = jax.jit(lambda p, data: METHOD.solver.update(p, data, hyper))
    before = float(METHOD.objective(p, tree, hyper))
    for _ in range(50):
        p = update(p, tree)
    after = float(METHOD.objective(p, tree, hyper))
    assert after <= before * (1 + 1e-10) and before - after < 0.02 * before


def test_items_stand_in_the_columns_of_their_node():
    x = sp.csr_matrix(X)
    row, node = np.array([0, 3, 3, 5]), np.array([1, 0, 2, 1])
    part = level(x, row, node, 3)
    U = RNG.normal(size=(3, 4, 2))
    expected = np.stack([X[r] @ U[k] for r, k in zip(row, node, strict=True)])
    np.testing.assert_allclose(part.codes(jnp.asarray(U)), expected)
    np.testing.assert_allclose(part.gathered(part.spread(jnp.asarray(expected))), expected)
    back = np.zeros((3, 4, 2))
    for a, r, k in zip(expected, row, node, strict=True):
        back[k] += np.outer(X[r], a)
    np.testing.assert_allclose(part.back(jnp.asarray(expected), 3), back)


def test_a_node_ends_where_the_printed_slopes_vanish():
    U, V = fit_node(sp.csr_matrix(X), SIGN, 2, 0.5, np.random.default_rng(1))
    base = node_cost(X, SIGN, U, V, 0.5)
    for at in np.ndindex(U.shape):
        moved = U.copy()
        moved[at] += 1e-4
        assert abs(node_cost(X, SIGN, moved, V, 0.5) - base) < 1e-4 * 5e-2


def test_what_one_map_cannot_do_a_tree_can():
    # two clouds in which the same feature means the opposite: no single linear map serves both
    rng = np.random.default_rng(5)
    side = np.repeat([-1.0, 1.0], 150)
    x = np.column_stack([6 * side, rng.normal(size=(300, 3)), np.ones(300)])
    y = (x[:, 1:4] * side[:, None] > 0).astype(float)
    hidden = rng.random(300) < 0.3
    data = bf.Tasks(x, np.where(hidden[:, None], np.nan, y))
    at = data.rows.get_indexer(np.flatnonzero(hidden))

    def accuracy(method, **hyper):
        fit = bf.fit(method, data, bf.FixedPoint(300, tol=1e-5), progress=False, **hyper)
        found = fit.predict(data.grid()).mean.reshape(300, 3)[at] > 0.5
        return np.mean(found == y[hidden])

    tree = accuracy("mlc_hmf", n_components=3, penalty=1.0, threshold=0.1, depth=2)
    assert tree > 0.9 > 0.75 > accuracy("leml", n_components=3, penalty=1.0)


def test_the_posterior_of_votes_is_smoother_than_the_points():
    data, hyper = METHOD.example(jax.random.key(0))
    raw = Tasks(
        {"words": data["words"]}, np.where(data.labelled[:, None], data[LABELS].toarray(), np.nan)
    )
    settings = hyper._asdict() | {"vote": "hard"}
    point = bf.fit("mlc_hmf", raw, progress=False, **settings)
    engine = bf.NUTS(warmup=150, draws=150, chains=2)
    draws = bf.fit("mlc_hmf", raw, engine, init=point, progress=False, **settings)
    one, mean = (np.asarray(f.predict(raw.grid()).mean) for f in (point, draws))
    assert len(np.unique(one.round(6))) <= 4 < len(np.unique(mean.round(6)))


@pytest.mark.parametrize(
    ("labels", "hyper", "message"),
    [
        (SIGN, {}, "labels 0 and 1, got -1 and 1"),
        (Y + 0.5, {}, "labels 0 and 1, got other numbers"),
        (Y, {"depth": 0}, "depth between 1"),
        (Y, {"minimum": 13}, "minimum between 1 and 12"),
        (Y, {"neighbours": 0}, "neighbours between 1"),
        (Y, {"vote": "loud"}, "vote to be one of"),
        (Y, {"threshold": -0.1}, "threshold to be a finite number above 0"),
        (Y, {"tree_seed": -1}, "tree_seed"),
        (
            np.maximum(Y, [1, 0, 0]),
            {"threshold": 0, "penalty": 1e6, "scaled": False},
            "at most 0, got none",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(labels, hyper, message):
    with pytest.raises(ValueError, match=message):
        bf.fit("mlc_hmf", Tasks({"v": np.abs(X)}, labels), progress=False, **hyper)


def test_copies_of_one_row_and_labels_nobody_has():
    x, y = np.ones((10, 2)), np.zeros((10, 2))
    y[:, 0] = 1
    fit = bf.fit("mlc_hmf", bf.Tasks(x, y), n_components=1, penalty=0.1, progress=False)
    found = fit.predict(bf.Tasks(x, y).grid()).mean.reshape(10, 2)
    assert (found[:, 0] > 0.5).all() and (found[:, 1] < 0.5).all()


@pytest.mark.parametrize("vote", ["hard", "soft"])
def test_a_label_that_no_row_has_is_never_predicted(vote):
    """Its probability is .26 here, as the penalty holds margins back."""
    labels = np.where(np.arange(12)[:, None] < 9, Y * [1, 1, 0], np.nan)
    data = bf.Tasks(X, labels)
    settings = {"minimum": 2, "threshold": 1.0, "penalty": 3.0, "cut": 0.1, "vote": vote}
    fit = bf.fit("mlc_hmf", data, n_components=2, progress=False, **settings)
    assert "no row has the label 2: it is never predicted" in fit.notes
    found = fit.predict(data.grid()).level.reshape(12, 3)
    assert not found[:, 2].any() and found[:, :2].any(0).all()


def test_too_few_labelled_rows_are_said():
    labels = np.where(np.arange(12)[:, None] < 4, Y, np.nan)
    with pytest.raises(ValueError, match="at least 5 labelled rows, got 4 .* lower minimum"):
        bf.fit("mlc_hmf", bf.Tasks(X, labels), progress=False)


def test_a_depth_in_which_nobody_stays_is_asked_by_nobody():
    tree, hyper = grown(vote="hard")
    pair = np.ones((4, 2)), np.ones((3, 2))
    rows, nodes = [np.arange(12), np.arange(6)], [np.zeros(12, int), np.zeros(6, int)]
    found = Growing(
        rows, nodes, [[pair], [pair]], home=np.zeros(12, int)
    )  # of depth 1, all of them
    tree = planted(tree, sp.csr_matrix(X), found, hyper)
    assert set(tree.votes) == {"1"} and set(tree.nodes) == {"1", "2"}
    share = derive(METHOD.init(jax.random.key(0), tree, hyper), tree, hyper)["share"]
    np.testing.assert_array_equal(share, (X @ pair[0] @ pair[1].T > 0).astype(float))


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")  # tol=0 is never met
def test_the_sweeps_find_nothing_to_do():
    """A node is fitted to its minimum when the tree grows: after 200 steps, 30 sweeps gain 7e-4."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 60)) * (rng.random((200, 60)) < 0.3)
    y = (x @ rng.normal(size=(60, 20)) + rng.normal(size=(200, 20)) > 1).astype(float)
    fit = bf.fit(
        "mlc_hmf", Tasks(x, y), bf.FixedPoint(30, tol=0.0), penalty=1.0, depth=1, progress=False
    )
    assert fit.trace[-1] > fit.trace[0] * (1 - 1e-5)


@pytest.mark.parametrize("vote", ["soft", "hard"])
def test_rounding_errors_of_nodes_without_factors_decide_nothing(vote):
    """Neither which rows stay in a node nor for which labels it votes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 4)), (rng.random((24, 6)) < 0.2).astype(float)
    order = rng.permutation(6)
    given = {"penalty": 1e3, "cut": 0.5, "vote": vote, "depth": 2, "progress": False}
    shares = []
    for features, labels in ((x, y), (x, y[:, order]), (np.hstack([x, np.ones((24, 1))]), y)):
        fit = bf.fit("mlc_hmf", bf.Tasks(features, labels), n_components=3, **given)
        assert "collapsed" in fit.notes[-1]
        shares.append(np.asarray(fit.params.share))
    np.testing.assert_allclose(shares[1], shares[0][:, order], atol=1e-6)
    np.testing.assert_allclose(shares[2], shares[0], atol=1e-6)
