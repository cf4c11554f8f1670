"""Settings and the cut of a task method come from rows whose labels are held out, and reproduce."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac import choosing
from bayesfac.core.data.tasks import LABELS
from bayesfac.core.laws.labels import best_cut
from bayesfac.core.method import lookup
from bayesfac.models.tasks import _pretraining as pretraining


def made(n=90, shift=0.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)) * np.logspace(-3, 3, 6) + shift
    score = (x - shift) / np.logspace(-3, 3, 6) @ rng.normal(size=(6, 3)) - 1
    return x, (score + 0.5 * rng.normal(size=score.shape) > 0).astype(float)


def test_the_cut_is_chosen_said_and_reproduces(monkeypatch):
    monkeypatch.setattr(choosing, "TIMES", 1)  # quick; the next test has all three thirds
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

    def scores(method, train, held, hyper, *others):
        seen.append((hyper.sparsity, held[LABELS].toarray(), held.rows))
        noise = np.random.default_rng(len(seen)).normal(size=(held.n_rows, 3))
        seen[-1] += (held[LABELS].toarray() + {1.0: 0.4}.get(hyper.sparsity, 2.0) * noise,)
        return seen[-1][3]

    monkeypatch.setattr(choosing, "scores_of_rows", scores)
    found = choosing.choose(lookup("heres"), data, {}, 0)
    assert found.values["sparsity"] == 1.0
    truth, score = (np.vstack([part[k] for part in seen if part[0] == 1.0]) for k in (1, 3))
    assert len(truth) == 90 and len(seen) == 5
    assert found.values["cut"] == best_cut(truth, score) != best_cut(truth[:30], score[:30])
    assert len({tuple(sorted(part[2])) for part in seen}) == 3  # three different thirds
    assert "in 5 short fits" in found.how[0]


@pytest.mark.parametrize("name", ["heres", "grople", "lsa_mml"])
def test_one_program_serves_all_numbers_and_gives_what_each_alone_gives(name):
    x, y = made()
    train, held = bf.split.holdout(bf.Tasks({"x": x}, y), 1 / 3, seed=0)
    method, size = lookup(name), {"n_components": 3}
    candidates = [one for one in method.choices(train, method.Hyper(**size), {})]
    settings = choosing.Settings(method, train, size, candidates)
    assert settings.numbers and len(candidates) > 1
    choosing.swept_by_blocks.clear_cache()

    def scores(hyper, program):
        key = jax.random.key(0)
        return choosing.scores_of_rows(method, train, held, hyper, program, key)

    together = [scores(one, settings.program(i)) for i, one in enumerate(settings.settled)]
    assert choosing.swept_by_blocks._cache_size() == 1
    for one, score in zip(settings.settled[1:], together[1:], strict=True):
        np.testing.assert_allclose(score, scores(one, (one, {})), rtol=1e-6, atol=1e-8)


def test_few_rows_cut_at_one_half():
    x, y = made(30)
    fit = bf.fit("heres", bf.Tasks({"x": x}, y), bf.FixedPoint(5, tol=0.9), n_components=3,
                 progress=False)  # fmt: skip
    assert fit.cut == 0.5 and not fit.info["chosen"]


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
    candidates = method.choices(data, method.Hyper(), {})
    assert len(candidates) > 1 and all(list(one) == [setting] for one in candidates)
    assert method.choices(data, method.Hyper(), candidates[0]) == []
    assert method.choices(data, method.Hyper(**candidates[1]), {}) == []
    assert choosing.choose(method, data, {}, 0).hyper == {}  # too few rows to choose by
    for given, one in (({}, candidates[0]), (candidates[1], candidates[1])):
        settled = method.prepare(data, method.Hyper(**given))
        assert getattr(settled, setting) == one[setting]


def test_what_is_given_of_weight_and_start_is_kept():
    x, y = made(30)
    himls, data = lookup("himls"), bf.Tasks({"x": x}, y)

    def told(chosen=(), **given):
        return himls.choices(data, himls.Hyper(**given), dict(chosen))

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
