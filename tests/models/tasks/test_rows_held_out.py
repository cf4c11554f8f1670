"""Settings and the cut of a task method come from rows whose labels are held out, and reproduce."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.choosing import by_rows, choose
from bayesfac.choosing.settings import Settings
from bayesfac.core.data.reading import positions_of
from bayesfac.core.data.tasks import LABELS
from bayesfac.core.laws.decisions import placed_cut
from bayesfac.core.method import lookup
from bayesfac.models.tasks import _pretraining as pretraining


def made(n=90, shift=0.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)) * np.logspace(-3, 3, 6) + shift
    score = (x - shift) / np.logspace(-3, 3, 6) @ rng.normal(size=(6, 3)) - 1
    return x, (score + 0.5 * rng.normal(size=score.shape) > 0).astype(float)


def test_the_cut_is_chosen_said_and_reproduces(monkeypatch):
    one, every = lambda *given: every(*given)[:1], by_rows.thirds_of
    monkeypatch.setattr(by_rows, "thirds_of", one)  # quick; the next test has all three thirds
    x, y = made()
    data, engine = bf.Tasks({"x": x[:60]}, y[:60]), bf.FixedPoint(40, tol=1e-3)
    fit = bf.fit("heres", data, engine, n_components=5, sparsity=0.1, progress=False)
    assert fit.hyper.cut == fit.cut != 0.5
    assert "cut=" in repr(fit) and "micro-F1 of 20 rows" in repr(fit)
    again = bf.fit("heres", data, engine, progress=False, **fit.hyper._asdict())
    np.testing.assert_array_equal(again.params.F, fit.params.F)
    assert not again.info["chosen"]
    new = fit.fold_in(bf.Tasks({"x": x[60:]}))
    told = new.predict(bf.Tasks({"x": x[60:]}))
    np.testing.assert_array_equal(told.level, (told.score > fit.cut).astype(float))
    predicted = told.level.reshape(30, 3)
    trivial = bf.multilabel.micro_f1(y[60:], np.ones((30, 3)))
    assert bf.multilabel.micro_f1(y[60:], predicted) > trivial + 0.1


def test_the_best_candidate_is_chosen_and_the_cut_is_that_of_three_thirds(monkeypatch):
    """With made scores: those of a sparsity of 1 are the best, and only all three thirds place the cut."""
    x, y = made()
    data, seen = bf.Tasks({"x": x}, y), []

    def scores(method, whole, train, held, settings, number, key):
        sparsity = settings.settled[number].sparsity
        seen.append((sparsity, held[LABELS].toarray(), held.rows))
        noise = np.random.default_rng(len(seen)).normal(size=(held.n_rows, 3))
        seen[-1] += (held[LABELS].toarray() + {1.0: 0.4}.get(sparsity, 2.0) * noise,)
        return seen[-1][3]

    monkeypatch.setattr(by_rows, "scores_of_rows", scores)
    found = choose(lookup("heres"), data, {}, 0)
    assert found.values["sparsity"] == 1.0
    truth, score = (np.vstack([part[k] for part in seen if part[0] == 1.0]) for k in (1, 3))
    assert len(truth) == 90 and len(seen) == 5
    assert found.values["cut"] == placed_cut(truth, score) != placed_cut(truth[:30], score[:30])
    held = [tuple(sorted(part[2])) for part in seen if part[0] == 1.0]
    assert len(set().union(*held)) == 90  # three thirds without overlap
    assert "in 5 short fits" in found.how[0]


@pytest.mark.parametrize("name", ["heres", "grople", "lsa_mml", "himls", "himlsd"])
def test_one_program_serves_all_numbers_and_thirds_and_gives_what_each_alone_gives(name):
    """The thirds hide other numbers of labels; without `alike` each would need a program of its own."""
    data = bf.Tasks(*made())
    method, key = lookup(name), jax.random.key(0)
    size = {"layers": ((3, 3),)} if name[:5] == "himls" else {"n_components": 3}
    candidates = method.choose.candidates(data, method.Hyper(**size), {})
    thirds = [bf.split.holdout(data, 1 / 3, seed=seed) for seed in (0, 1)]
    assert len({int(train[LABELS].sum()) for train, _ in thirds}) == 2

    def scores(third, settings, number):
        return by_rows.scores_of_rows(method, data, *third, settings, number, key)

    for program in (by_rows.swept_by_blocks, by_rows.scored):
        program.clear_cache()
    first = Settings(method, thirds[0][0], size, candidates, ("start",))
    assert first.numbers and len(candidates) > 1
    together = [scores(thirds[0], first, i) for i in range(len(candidates))]
    last = candidates[-1:]
    other = Settings(method, thirds[1][0], size, last, ("start",), first)
    again = scores(thirds[1], other, 0)
    assert by_rows.swept_by_blocks._cache_size() == by_rows.scored._cache_size() == 1
    for candidate, score in zip(candidates, together, strict=True):
        alone = Settings(method, thirds[0][0], size, [candidate])
        np.testing.assert_allclose(scores(thirds[0], alone, 0), score, rtol=1e-6, atol=1e-8)
    alone = scores(thirds[1], Settings(method, thirds[1][0], size, last), 0)
    np.testing.assert_allclose(alone, again, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["heres", "lsa_mml"])
def test_new_rows_take_no_part_in_the_sweeps(name):
    """Their cells are stored zeros, and all other parameters are as without these rows. Labelled rows would
    otherwise have larger scores than new ones, because the representation was fitted to their features."""
    data, method = bf.Tasks(*made(60)), lookup(name)
    train, test = by_rows.hidden(data, by_rows.thirds_of(data, 0)[0])
    held = positions_of(train.rows, test.rows)
    hyper = method.prepare(train, method.Hyper(n_components=3))
    scaled = method.ready(train, hyper)
    zeroed, kept = by_rows.alike(scaled, data, held), ~np.isin(np.arange(60), held)
    alone = scaled.take(kept)
    p = method.init(jax.random.key(0), zeroed, hyper)
    rows = {"heres": "F", "lsa_mml": "P"}[name]
    q = p._replace(**{rows: getattr(p, rows)[kept]})
    for _ in range(2):
        p, q = method.solver.update(p, zeroed, hyper), method.solver.update(q, alone, hyper)
    for field, value in q._asdict().items():
        own = getattr(p, field)[kept] if field == rows else getattr(p, field)
        for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(value), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_rows_without_labels_are_scored_alike_with_and_without_stored_zeros():
    x, y = made()
    hidden = bf.split.holdout(bf.Tasks({"x": x}, y), 1 / 3, seed=0)[1].rows[0]
    y[:, 2] = np.arange(90) == hidden  # no other row has this label
    data, method = bf.Tasks({"x": x}, y), lookup("heres")
    train, _ = bf.split.holdout(data, 1 / 3, seed=0)
    padded = by_rows.alike(train, data)
    assert padded.had.tolist() == [True, True, False]
    assert padded.cells[LABELS].row.shape == data.cells[LABELS].row.shape
    np.testing.assert_array_equal(padded[LABELS].toarray(), train[LABELS].toarray())
    np.testing.assert_array_equal(padded.had, train.had)
    hyper = method.prepare(train, method.Hyper(n_components=3))
    p = method.init(jax.random.key(0), train, hyper)
    assert float(method.objective(p, padded, hyper)) == pytest.approx(
        float(method.objective(p, train, hyper)), rel=1e-6
    )


@pytest.mark.parametrize("name", ["heres", "grople"])
def test_numbers_far_from_zero_are_scored_in_their_own_unit(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    y = 1000 + 50 * x @ rng.normal(size=(4, 2)) + 20 * rng.normal(size=(90, 2))
    found = choose(lookup(name), bf.Tasks({"x": x}, y), {}, 0)
    assert all(15 < sd < 27 for sd in found.values["label_sd"])
    explained = float(found.how[0].split("held out: ")[1].split(",")[0])
    assert explained > 0.8


def both(note):
    """The micro-F1 of the fit and of the frequencies, as the note has them."""
    found = re.search(r"held out: ([\d.]+) \(.*, by frequencies alone ([\d.]+)\)", note)
    return tuple(map(float, found.groups()))


def test_what_is_chosen_stands_beside_the_frequencies_of_the_labels():
    """On labels that no feature explains, the note shows two numbers that are nearly the same."""
    rng = np.random.default_rng(0)
    y = (rng.random((90, 3)) < (0.2, 0.5, 0.7)).astype(float)
    found = choose(lookup("heres"), bf.Tasks({"x": rng.normal(size=(90, 4))}, y), {}, 0)
    own, usual = both(found.how[0])
    assert own == pytest.approx(usual, abs=0.06)
    x, y = made()
    found = choose(lookup("heres"), bf.Tasks({"x": x}, y), {}, 0)
    own, usual = both(found.how[0])
    assert own > usual + 0.1


def test_few_rows_cut_at_one_half():
    x, y = made(30)
    fit = bf.fit("heres", bf.Tasks({"x": x}, y), bf.FixedPoint(5, tol=0.9), n_components=3,
                 progress=False)  # fmt: skip
    assert fit.cut == 0.5 and not fit.info["chosen"]


@pytest.mark.parametrize("name", ["himls", "himlsd"])
def test_the_weight_of_labels_counts_in_the_sweeps_before_the_fit(name):
    """One compiled program serves all weights, but each weight has a result of its own."""
    x, y = made()
    data, method = bf.Tasks({"x": x}, y), lookup(name)
    starts = []
    for weight in (0.3, 30.0):
        hyper = method.prepare(data, method.Hyper(layers=((3, 3),), weight=weight))
        starts.append(method.init(jax.random.key(0), method.ready(data, hyper), hyper).R)
    assert float(jnp.max(jnp.abs(starts[0] - starts[1]))) > 0.01


@pytest.mark.parametrize("sizes", [(5, 5), (2, 4)])  # more and fewer clusters than labels
def test_a_start_by_labels_has_a_cluster_for_each_label(sizes):
    x, y = made()
    y[60:] = np.nan
    method = lookup("himls")
    hyper = method.prepare(bf.Tasks({"x": x}, y), method.Hyper(layers=(sizes,)))
    data = method.ready(bf.Tasks({"x": x}, y), hyper)
    assert data["x"].min() >= 0
    R, C, M = pretraining.by_labels(jax.random.key(0), data, *sizes)
    order = np.argsort(-y[:60].mean(0))[: sizes[0]]
    np.testing.assert_allclose(
        R[:60, : len(order)], y[:60][:, order] + pretraining.LEAST, atol=1e-6
    )
    np.testing.assert_allclose(
        R[60, : len(order)], y[:60].mean(0)[order] + pretraining.LEAST, atol=1e-6
    )
    assert C["labels"].shape == (3, sizes[1]) and M["x"].shape == (1, *sizes)
    assert all(bool(jnp.all(part > 0)) for part in (R, *C.values(), *M.values()))


@pytest.mark.parametrize(
    ("name", "setting"),
    [("heres", "sparsity"), ("lsa_mml", "ridge"), ("grople", "beta"), ("mlc_hmf", "penalty")],
)
def test_a_setting_left_open_has_candidates_and_a_given_one_has_none(name, setting):
    x, y = made(30)
    method, data = lookup(name), bf.Tasks({"x": x}, y)
    candidates = method.choose.candidates(data, method.Hyper(), {})
    assert len(candidates) > 1 and all(list(one) == [setting] for one in candidates)
    assert method.choose.candidates(data, method.Hyper(), candidates[0]) == []
    assert method.choose.candidates(data, method.Hyper(**candidates[1]), {}) == []
    assert choose(method, data, {}, 0).hyper == {}  # too few rows to choose by
    for given, one in (({}, candidates[0]), (candidates[1], candidates[1])):
        settled = method.prepare(data, method.Hyper(**given))
        assert getattr(settled, setting) == one[setting]


def test_what_is_given_of_weight_and_start_is_kept():
    x, y = made(30)
    himls, data = lookup("himls"), bf.Tasks({"x": x}, y)

    def told(chosen=(), **given):
        return himls.choose.candidates(data, himls.Hyper(**given), dict(chosen))

    assert [one["start"] for one in told()] == ["labels", "svd", "labels"]
    assert [list(one) for one in told(start="svd")] == [["weight"]] * 2
    assert told(weight=2.0) == [{"start": "labels"}, {"start": "svd"}]
    assert told(weight=2.0, start="svd") == told(chosen={"weight": 2.0}) == []


@pytest.mark.parametrize("name", ["himls", "himlsd"])
@pytest.mark.parametrize(
    ("rows", "views", "labels", "size"),
    [
        (40, (12,), 2, 8),  # two thirds of the features
        (40, (4, 20), 2, 16),  # of all views
        (40, (12,), 10, 10),  # but a cluster for each label
        (5, (12,), 2, 5),  # and at most as many as rows
        (400, (300,), 3, 153),  # 150 more than labels where features are many
    ],
)
def test_there_are_fewer_clusters_than_features_by_default(name, rows, views, labels, size):
    """With as many, the rows reproduce the features exactly and share nothing with the labels."""
    rng = np.random.default_rng(0)
    x = {f"view{v}": rng.random((rows, width)) for v, width in enumerate(views)}
    data = bf.Tasks(x, rng.integers(0, 2, (rows, labels)))
    method = lookup(name)
    assert method.prepare(data, method.Hyper()).layers == ((size, size),)
