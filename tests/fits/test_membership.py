"""Clusters of rows, and rows together: against plain NumPy on made-up draws."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core import clustering
from bayesfac.core.clustering import alike
from bayesfac.core.data.cards import describe
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Permutation, gauge_of, lookup, settle, site_dims, sites
from bayesfac.fits import membership
from bayesfac.inference.result import Result

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
TOPIC_MODELS = ("plsa", "mvplsa", "ltm", "concat_ltm", "mggm")
LABELS = [f"row {i:02d}" for i in range(24)]
SHAPE = (2, 15)  # chains, draws


@cache
def views(several: bool = True) -> bf.Views:
    made, _ = bf.datasets.make_topics(
        24, {"left": 9, "right": 7} if several else {"left": 9}, n_clusters=3, n_topics=3, seed=1
    )
    return bf.Views({name: made[name] for name in made.names}, rows=LABELS)


@cache
def point(name: str = "mvplsa", K: int = 3) -> bf.Fit:
    """What a fit would be that never left its start: nothing here depends on how good it is."""
    method, views_of = lookup(name), views(several=name not in ("plsa", "ltm"))
    size = {"n_topics": 3} if name in ("mvplsa", "mggm") else {}
    hyper = settle(method, views_of, {"n_components": K, "start": "kmeans", **size})
    data = method.ready(views_of, hyper)
    params = method.init(jax.random.key(3), data, hyper)
    return bf.Fit(method, hyper, bf.FixedPoint(), 0, Result(params), describe(data))


def posterior(fit: bf.Fit, permuted: bool, seed: int = 0) -> bf.Fit:
    """Draws about well separated clusters, the labels of every draw in an order of its own if `permuted`."""
    rng = np.random.default_rng(seed)
    draws = {}
    for site, value in sites(fit.params).items():
        shape = np.shape(value)
        mean = rng.dirichlet(np.full(shape[-1], 0.2), shape[:-1])
        some = mean[None, None] + 0.4 * rng.random((*SHAPE, *shape))
        draws[site] = some / some.sum(-1, keepdims=True)
    if permuted:
        for free in gauge_of(fit.method, draws):
            for at in np.ndindex(*SHAPE):
                for site, axis in free.axes.items():
                    order = np.random.default_rng([*at, 7]).permutation(3)
                    draws[site][at] = np.take(draws[site][at], order, axis)
    return replace(fit, engine=bf.SVI(), result=Result(draws=draws))


def by_hand(A: np.ndarray) -> pd.DataFrame:
    """The three columns for the largest shares, of draws (S, rows, K) whose labels agree."""
    mean, own = A.mean(0), A.argmax(2)
    best = mean.argmax(1)
    return pd.DataFrame(
        {
            "cluster": best,
            "probability": mean.max(1),
            "agreement": [(own[:, i] == best[i]).mean() for i in range(len(best))],
        },
        pd.Index(LABELS, name="row"),
    )


# ---------------------------------------------------------------------- clusters


@pytest.mark.parametrize("name", TOPIC_MODELS)
def test_a_point_names_the_largest_of_each_row(name: str) -> None:
    fit = point(name)
    table, A = bf.clusters(fit, by="largest"), np.asarray(fit.params.A)
    assert table.index.tolist() == LABELS and table.index.name == "row"
    assert table.columns.tolist() == ["cluster", "probability"]
    assert table["cluster"].tolist() == A.argmax(1).tolist()
    np.testing.assert_allclose(table["probability"], A.max(1), rtol=1e-6)
    assert "note" not in table.attrs  # there was nothing to match


def test_rows_with_similar_mixtures_form_a_cluster() -> None:
    """Eight rows of each of three mixtures that share their largest component, or nearly so."""
    centres = np.array([[0.40, 0.35, 0.25], [0.34, 0.33, 0.33], [0.30, 0.31, 0.39]])
    truth = np.repeat([0, 1, 2], 8)
    A = centres[truth] + np.random.default_rng(0).normal(0, 0.005, (24, 3))
    A[8] = 0.33, 0.34, 0.33  # the first row whose largest component is the second
    A /= A.sum(1, keepdims=True)
    fit = point()
    fit = replace(fit, result=Result(fit.params._replace(A=A)))
    table = bf.clusters(fit)
    assert table["cluster"].tolist() == truth.tolist()
    np.testing.assert_allclose(table["probability"], A[range(24), truth])
    assert bf.metrics.clustering_accuracy(truth, bf.clusters(fit, by="largest")["cluster"]) < 0.9
    shaken = A + np.random.default_rng(1).normal(0, 0.002, (*SHAPE, 24, 3))
    draws = replace(
        fit, engine=bf.SVI(), result=Result(draws=dict(posterior(fit, False).draws, A=shaken))
    )
    told = bf.clusters(draws, fit)
    assert told["cluster"].tolist() == truth.tolist() and (told["agreement"] == 1).all()


def test_rows_of_one_component_keep_its_number() -> None:
    A = np.eye(4)[np.random.default_rng(2).integers(0, 3, 24)]  # nobody has the last component
    assert alike(A).tolist() == A.argmax(1).tolist()
    same = np.full((5, 3), 1 / 3)
    assert alike(same).tolist() == [0] * 5
    assert clustering.nearest_cluster(same, alike(same), A[:2]).tolist() == [0, 0]
    assert alike(np.ones((4, 1))).tolist() == [0] * 4


def test_a_component_that_is_the_largest_of_no_row_can_tell_rows_apart() -> None:
    rng, truth = np.random.default_rng(3), np.arange(60) % 3
    centre = np.array([[0.45, 0.35, 0.2], [0.4, 0.3, 0.3], [0.3, 0.45, 0.25]])
    A = centre[truth] + rng.normal(0, 0.004, (60, 3))
    found = alike(A)
    assert not (A.argmax(1) == 2).any() and set(found) == {0, 1, 2}
    assert bf.metrics.clustering_accuracy(truth, found) == 1


@pytest.mark.parametrize("sample", [clustering.SAMPLE, 50])
@pytest.mark.parametrize("seed", [2, 27])
def test_clusters_from_the_largest_components_may_be_a_poor_minimum(seed, sample, monkeypatch):
    """A search from there puts rows of two mixtures together, and divides those of a third."""
    monkeypatch.setattr(clustering, "SAMPLE", sample)
    rng, truth = np.random.default_rng(seed), np.arange(200) % 5
    A = 0.2 + 0.02 * rng.normal(size=(5, 5))[truth] + rng.normal(0, 0.004, (200, 5))
    A /= A.sum(1, keepdims=True)
    poor = clustering._compact(A, A.argmax(1))
    assert len(np.unique(poor)) == 5
    assert bf.metrics.clustering_accuracy(truth, poor) < 0.8
    assert bf.metrics.clustering_accuracy(truth, alike(A)) > 0.95
    assert clustering.inhabited(A) == 5


@pytest.mark.parametrize("seed", range(3))
def test_clusters_do_not_depend_on_which_mixtures_are_called_components(seed):
    """Component 3 is farther away, so that its rows are mostly component 0: the same words, and the same
    clusters. k-means divides the large cluster."""
    rng, truth = np.random.default_rng(seed), np.repeat(np.arange(4), [120, 20, 20, 40])
    A = 0.1 + 0.6 * np.eye(4)[truth] + rng.normal(0, 0.05, (200, 4))
    A /= A.sum(1, keepdims=True)
    near, far = A, A @ np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0.85, 0, 0, 0.15]])
    assert bf.metrics.clustering_accuracy(truth, alike(near)) == 1
    assert bf.metrics.clustering_accuracy(truth, alike(far)) == 1
    assert bf.metrics.clustering_accuracy(truth, clustering.kmeans_labels(far, 4, 0)) < 0.9


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_decide_between_clusters_of_nearly_the_same_determinant(seed):
    """To divide the wide group and to put the two others together has the smaller determinant."""
    rng, truth = np.random.default_rng(seed), np.repeat([0, 1, 2], 100)
    centre = np.array([[0.2, 0.4, 0.4], [0.7, 0.175, 0.125], [0.7, 0.125, 0.175]])
    A = centre[truth] + rng.normal(0, 0.007, (300, 3))
    A[:100] += np.outer(rng.uniform(-0.1, 0.1, 100), [0, 1, -1])
    wrong = clustering._compact(A, np.where(truth == 0, A[:, 1] > A[:, 2], 2))
    assert clustering._size(A, wrong) < 0.97 * clustering._size(A, truth)
    assert bf.metrics.clustering_accuracy(truth, alike(A)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_determinant_never_rises(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.ones(5), 80)
    monkeypatch.setattr(clustering, "LLOYD", 1)
    number, sizes = A.argmax(1), []
    for _ in range(20):
        sizes.append(clustering._size(A, number))
        number = clustering._compact(A, number)
    assert np.all(np.diff(sizes) <= 1e-12) and sizes[-1] < sizes[0]


@cache
def trained(draws: bool) -> bf.Fit:
    engine = bf.Gibbs(5, 15, 2) if draws else None
    return bf.fit("mvplsa", views(), engine, n_components=3, n_topics=3, progress=False)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("by", ["mixture", "largest"])
def test_new_rows_get_the_clusters_of_the_training_rows(draws: bool, by: str) -> None:
    fit = trained(draws)
    of_all = bf.clusters(fit, by=by)
    sure = np.sort(of_all["probability"].to_numpy().argsort()[-2:])
    new = fit.fold_in(views().take(sure))  # too few rows to find clusters in them
    found = bf.clusters(new, of=fit, by=by)
    assert found.index.tolist() == [LABELS[i] for i in sure] and list(found) == list(of_all)
    assert found["cluster"].tolist() == of_all["cluster"].iloc[sure].tolist()
    if by == "mixture":
        with pytest.raises(ValueError, match="at least 3 rows to find 3 clusters, got 2: pass of="):
            bf.clusters(new)


def test_the_nearest_cluster_is_that_in_the_metric_of_all_clusters() -> None:
    """Clusters are wide in the first direction: to be far away in this direction counts less."""
    number = np.arange(200) % 2
    A = np.random.default_rng(0).normal(0, [1, 0.05], (200, 2)) + number[:, None] * [2, 1]
    new = np.array([[1.9, 0.0], [0.1, 1.0]])
    assert clustering.nearest_cluster(A, number, new).tolist() == [0, 1]


def test_new_rows_move_as_the_training_rows_were_moved() -> None:
    rng = np.random.default_rng(0)
    raw, new = rng.random((2, 3, 5, 4)), rng.random((2, 3, 2, 4))
    orders = [rng.permutation(4) for _ in range(6)]
    aligned, wanted = (
        np.stack([A[:, o] for A, o in zip(x.reshape(6, -1, 4), orders, strict=True)])
        for x in (raw, new)
    )
    np.testing.assert_array_equal(membership._moved_alike(aligned, raw, new), wanted)


def test_new_rows_of_another_fit_are_refused() -> None:
    fit = trained(False)
    new = fit.fold_in(views().take(np.arange(4)))
    other = bf.fit("mvplsa", views(), n_components=3, n_topics=3, seed=1, progress=False)
    with pytest.raises(
        ValueError, match="of to be the fit that got the rows of mvplsa, got another"
    ):
        bf.clusters(new, of=other)


def test_a_mistyped_reading_is_refused() -> None:
    with pytest.raises(
        ValueError, match="Expected by to be 'mixture' or 'largest', got 'mixtures'"
    ):
        bf.clusters(point(), by="mixtures")


def test_draws_whose_labels_agree_are_averaged_and_counted() -> None:
    fit = posterior(point(), permuted=False)
    A = fit.draws["A"].reshape(-1, 24, 3)
    reference = replace(point(), result=Result(params=point().params._replace(A=A.mean(0))))
    wanted = by_hand(A)
    pd.testing.assert_frame_equal(bf.clusters(fit, reference, by="largest"), wanted)
    assert (wanted["agreement"] < 1).any(), "the made-up draws never differ: nothing was tested"


@pytest.mark.parametrize("name", ["plsa", "mvplsa", "mggm"])
def test_labels_that_change_between_draws_change_nothing(name: str) -> None:
    plain, mixed = (posterior(point(name), permuted) for permuted in (False, True))
    assert not np.allclose(plain.draws["A"], mixed.draws["A"])
    table, wanted = bf.clusters(mixed, by="largest"), by_hand(plain.draws["A"].reshape(-1, 24, 3))
    pairs = pd.crosstab(table["cluster"], wanted["cluster"]).to_numpy()
    assert ((pairs > 0).sum(0) == 1).all() and ((pairs > 0).sum(1) == 1).all()  # only renamed
    kept = ["probability", "agreement"]
    pd.testing.assert_frame_equal(table[kept], wanted[kept])


def test_a_reference_gives_the_clusters_its_names() -> None:
    fit = posterior(point(), permuted=True)
    mean = posterior(point(), permuted=False).draws["A"].mean((0, 1))
    for order in ([0, 1, 2], [2, 0, 1]):
        params = point().params._replace(A=mean[:, order])
        reference = replace(point(), result=Result(params=params))
        named = bf.clusters(fit, reference, by="largest")["cluster"]
        assert named.tolist() == mean[:, order].argmax(1).tolist()


def test_the_note_says_what_matching_left() -> None:
    fit = posterior(point(), permuted=True)
    found = fit.aligned()
    note = bf.clusters(fit).attrs["note"]
    assert note.startswith("Matching the clusters of 30 draws left 0.")
    assert 0 < float(note.split(" left ")[1].split()[0]) <= np.median(found.residual) + 1e-3
    alike = dict(fit.draws, A=np.full((*SHAPE, 24, 3), 1 / 3))
    note = bf.clusters(replace(fit, result=Result(draws=alike))).attrs["note"]
    assert "hard to tell apart" in note


# ---------------------------------------------------------------------- together


@pytest.mark.parametrize("permuted", [False, True])
def test_together_is_the_mean_product_and_one_on_the_diagonal(permuted: bool) -> None:
    plain = posterior(point(), permuted=False).draws["A"].reshape(-1, 24, 3)
    rows = ["row 07", "row 00", "row 23"]
    table = bf.together(posterior(point(), permuted), rows)
    at = [7, 0, 23]
    wanted = np.mean([A[at] @ A[at].T for A in plain], 0)
    np.fill_diagonal(wanted, 1)
    np.testing.assert_allclose(table, wanted, rtol=1e-12)
    assert table.index.tolist() == rows and table.columns.tolist() == rows


@pytest.mark.parametrize("name", TOPIC_MODELS)
def test_together_of_a_point(name: str) -> None:
    fit = point(name)
    A = np.asarray(fit.params.A, float)
    table = bf.together(fit, LABELS[:5])
    assert table.loc["row 01", "row 04"] == pytest.approx(A[1] @ A[4])
    assert (np.diag(table) == 1).all()


def test_a_loaded_fit_says_the_same(tmp_path) -> None:
    fit = posterior(point(), permuted=True)
    fit.save(tmp_path / "fit")
    again = bf.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(bf.clusters(again, point()), bf.clusters(fit, point()))
    pd.testing.assert_frame_equal(bf.together(again, LABELS), bf.together(fit, LABELS))


def test_a_fit_that_was_run_has_its_clusters_on_the_blocks_it_was_given() -> None:
    blocks = np.kron(np.eye(2), np.full((5, 4), 6.0)) + 0.01
    fit = bf.fit("plsa", bf.Views(blocks), bf.FixedPoint(50), n_components=2, progress=False)
    assert bf.clusters(fit)["cluster"].nunique() == 2
    pairs = bf.together(fit, range(10)).to_numpy()
    np.testing.assert_allclose(pairs, np.kron(np.eye(2), np.ones((5, 5))), atol=0.05)


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("ask", [bf.clusters, lambda fit: bf.together(fit, [0])])
@pytest.mark.parametrize("name", ["pmf", "urp"])
def test_other_methods_are_refused_and_those_that_work_named(ask, name: str) -> None:
    fit = replace(
        point(), method=lookup(name)
    )  # refused by its record, before anything is looked at
    with pytest.raises(BayesfacError, match=f"^Expected .*, got {name}$") as error:
        ask(fit)
    assert all(f"{able}" in str(error.value) for able in TOPIC_MODELS)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (["row 00", "nobody"], ValueError, "got 'nobody'"),
        ([3], ValueError, "got 3"),
        ("row 00", TypeError, "sequence of row labels, got 'row 00'"),
        (["row 00", "row 01", "row 00"], ValueError, "once, got 'row 00' twice"),
        ([], ValueError, "1 to 2000 rows"),
        (range(2001), ValueError, "table of all their pairs, got 2001"),
    ],
)
def test_rows_that_cannot_be_answered(rows, error, words: str) -> None:
    with pytest.raises(error, match=words):
        bf.together(point(), rows)


def test_references_that_cannot_be_used() -> None:
    draws = posterior(point(), permuted=False)
    with pytest.raises(ValueError, match="Expected draws to compare with a reference"):
        bf.clusters(point(), point())
    with pytest.raises(ValueError, match="Expected a point fit as reference, got draws"):
        bf.clusters(draws, draws)
    fewer = point(K=2)
    with pytest.raises(ValueError, match=r"reference with A of \(24, 3\), got \(24, 2\)"):
        bf.clusters(draws, fewer)


# ---------------------------------------------------------------------- the facade


def test_the_names_at_the_door_are_the_functions() -> None:
    """A module of the same name would take the function's place once it is imported."""
    assert bf.clusters is membership.clusters
    assert bf.together is membership.together


@pytest.mark.parametrize("name", TOPIC_MODELS)
def test_what_makes_a_method_a_clustering_is_in_its_record(name: str) -> None:
    method = point(name).method
    assert site_dims(method, "A")[0] == "row"
    assert isinstance(membership._relabelling(method), Permutation)


def test_columns_on_counts_what_contributes_by_hand():
    data, _ = bf.datasets.make_tasks(40, 2, seed=0)
    fit = bf.fit("heres", data, bf.FixedPoint(5, tol=0), n_components=4, progress=False)
    found = bf.columns_on(fit, data, below=0.2)["on"]
    F, B = np.asarray(fit.params.F), [np.asarray(b) for b in fit.params.B.values()]
    used = []
    for at in data.bounds:
        part = [
            sum((F[at, r] ** 2).sum() * (b[:, r] ** 2).sum() for b in B) for r in range(F.shape[1])
        ]
        used.append({r for r, size in enumerate(part) if size > 0.2 * sum(part)})
    assert found.tolist() == [*map(len, used), len(set.union(*used)), len(set.intersection(*used))]
    assert found.index.tolist() == [*data.tasks, "some", "every"]


def test_a_larger_sparsity_leaves_fewer_columns_on_in_draws_too():
    data, _ = bf.datasets.make_tasks(40, 2, seed=0)
    engine = bf.Gibbs(warmup=30, draws=30, chains=1)
    few, many = (
        bf.columns_on(
            bf.fit("heres", data, engine, n_components=8, sparsity=s, progress=False), data, 0.02
        )
        for s in (50.0, 0.05)
    )
    assert few.columns.tolist() == ["on", "low", "high"]
    assert few.loc["some", "on"] < many.loc["some", "on"]
    assert (few["low"] <= few["on"]).all() and (few["on"] <= few["high"]).all()
    assert (few.loc["every"] <= few.loc["some"]).all()


def test_columns_on_is_for_heres_and_a_share():
    data, _ = bf.datasets.make_tasks(20, 2, seed=0)
    fit = bf.fit("himls", data, bf.FixedPoint(1), layers=((2, 2),), progress=False)
    with pytest.raises(
        BayesfacError, match=r"Expected a fit whose tasks switch columns off \(heres\), got"
    ):
        bf.columns_on(fit, data)
    fit = bf.fit("heres", data, bf.FixedPoint(1), n_components=2, progress=False)
    with pytest.raises(ValueError, match="between 0 and 1, got below=2"):
        bf.columns_on(fit, data, below=2)
    with pytest.raises(ValueError, match="20 rows that heres was fitted to, got 8 others"):
        bf.columns_on(fit, bf.datasets.make_tasks(8, 2, seed=0)[0])
    with pytest.raises(ValueError, match="got dict"):
        bf.columns_on(fit, {})
