"""HERES: one sweep by hand, the corollaries, what is switched off, and its Gibbs sampler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, substitute, trace

import bayesfac as bf
from bayesfac.core.data.cells import Grid
from bayesfac.core.laws.units import unit_of
from bayesfac.core.method import REGISTRY, sites
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.laws import few_tasks
from bayesfac.labels.models.tasks._row_groups import Cluster, GroupSparse, SharedRows
from bayesfac.labels.models.tasks.heres import weights

HERES = REGISTRY["heres"]


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def golden(method):
    """(5), (8), (9), (10), task by task, with an instance in a column as printed."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    new = method.solver.update(p, data, h)
    lam, eye = h.weight, np.eye(3)
    phi = [np.asarray(p.F)[at].T for at in data.bounds]
    norm = [np.sqrt((f**2).sum(1) + h.smooth**2) for f in phi]
    every = np.sqrt(sum((f**2).sum(1) for f in phi) + h.smooth**2)
    D = [h.sparsity / (2 * n) + 2 * h.sparsity / (2 * every) for n in norm]  # T alpha for all
    B, seen = {}, {}
    for b in data.blocks:
        X = [(data[b].toarray()[at].T, np.asarray(p.F)[at].T) for _, at in data.spans(b)]
        B[b] = sum(x @ f.T for x, f in X) @ np.linalg.inv(h.beta * eye + sum(f @ f.T for _, f in X))
        np.testing.assert_allclose(new.B[b], B[b], rtol=1e-8)
        seen[b] = data[b].toarray()
    F = np.zeros_like(p.F)
    for n in range(data.n_rows):
        i = data.task[n]
        blocks = [b for b in data.names if data.host.present[b][i]]
        blocks += ["labels"] if data.labelled[n] else []
        stack = np.vstack([(lam if b == "labels" else 1) * B[b] for b in blocks])
        x = np.concatenate([(lam if b == "labels" else 1) * seen[b][n] for b in blocks])
        F[n] = np.linalg.solve(stack.T @ stack + np.diag(D[i]), stack.T @ x)
    np.testing.assert_allclose(new.F, F, rtol=1e-8, atol=1e-12)


def test_golden_step():
    golden(HERES)


def test_objective_by_hand():
    data, h = HERES.example(jax.random.key(0))
    p = HERES.solver.start(jax.random.key(1), data, h)
    J = 0.0
    for b in data.blocks:
        w = h.weight**2 if b == "labels" else 1
        for _, at in data.spans(b):
            J += w * np.sum((data[b].toarray()[at] - np.asarray(p.F)[at] @ p.B[b].T) ** 2)
        J += w * h.beta * np.sum(np.asarray(p.B[b]) ** 2)
    for at, alpha in (*((at, 0.5) for at in data.bounds), (slice(None), 1.0)):
        J += alpha * np.sum(np.sqrt(np.sum(np.asarray(p.F)[at] ** 2, 0) + h.smooth**2))
    np.testing.assert_allclose(HERES.objective(p, data, h), J, rtol=1e-10)


def three_tasks():
    rng = np.random.default_rng(0)
    views = {t: {"x": rng.normal(size=(4, 5))} for t in "abc"}
    clusters = {"first": ["a", "b"], "second": ["b", "c"]}
    return Tasks(views, {t: rng.normal(size=(4, 2)) for t in "abc"}, clusters=clusters)


@pytest.mark.parametrize(
    ("setting", "sparsity", "members", "alpha"),
    [
        ("task", 0.5, [[0], [1], [2]], [0.5, 0.5, 0.5]),  # Corollary 1
        ("common", 0.5, [[0, 1, 2]], [0.5]),  # Corollary 2
        ("both", 0.5, [[0], [1], [2], [0, 1, 2]], [0.5, 0.5, 0.5, 1.5]),  # Corollary 3
        ("both", (1, 2, 3, 4), [[0], [1], [2], [0, 1, 2]], [1, 2, 3, 4]),
        ("given", (0.3, 0.7), [[0, 1], [1, 2]], [0.3, 0.7]),
    ],
)
def test_clusters_weigh_as_the_corollaries_say(setting, sparsity, members, alpha):
    data = three_tasks()
    h = HERES.prepare(data, HERES.Hyper(3, clusters=setting, sparsity=sparsity, smooth=1e-6))
    p = HERES.init(jax.random.key(0), data, h)
    D = np.zeros((3, 3))
    for tasks, a in zip(members, alpha, strict=True):
        rows = np.concatenate([np.asarray(p.F)[data.bounds[i]] for i in tasks])
        D[tasks] += a / (2 * np.linalg.norm(rows, axis=0))
    np.testing.assert_allclose(weights(p, data, h), D, rtol=1e-6)


def test_what_a_task_does_not_use_is_switched_off():
    """Two tasks that share one direction and have one of their own each: the posterior mode says which."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(12, 3)))[0].T * 4
    used = {"a": [0, 1], "b": [0, 2]}
    views, labels = {}, {}
    for name, dims in used.items():
        z = rng.normal(size=(60, 2))
        views[name] = {"x": z @ basis[dims] + 0.1 * rng.normal(size=(60, 12))}
        labels[name] = z[:, :1]
    data = Tasks(views, labels)
    # scaled data have a constant, which is one more direction
    given = {"n_components": 8, "sparsity": 2.0, "scaled": False}
    fit = bf.fit("heres", data, bf.FixedPoint(5000, tol=1e-7), progress=False, **given)
    norms = np.stack([np.linalg.norm(np.asarray(fit.params.F)[at], axis=0) for at in data.bounds])
    on = norms > 0.05 * norms.max()
    assert on.sum(1).tolist() == [2, 2], norms.round(2)
    assert on.any(0).sum() == 3
    # a column that one task uses still dims in the other (linearly, so 0.1 is left); the rest are off
    assert norms[~on].max() < 0.02 * norms.max()
    assert norms[:, ~on.any(0)].max() < 1e-6


def test_rows_with_one_precision_are_drawn_and_weighed_as_normal_ones():
    rng = np.random.default_rng(0)
    shift = jnp.asarray(rng.normal(size=(5, 3)))
    half = rng.normal(size=(2, 3, 4))
    P = jnp.asarray(half @ half.transpose(0, 2, 1))
    law = SharedRows(shift, P, (slice(0, 2), slice(2, 5)))
    own = np.asarray(P)[[0, 0, 1, 1, 1]]
    np.testing.assert_allclose(law.mean, np.linalg.solve(own, shift[..., None])[..., 0], rtol=1e-9)
    draws = np.asarray(law.sample(jax.random.key(0), (40_000,)))
    for n in range(5):
        cov = np.linalg.inv(own[n])
        np.testing.assert_allclose(np.cov(draws[:, n].T), cov, atol=0.05 * np.trace(cov))
    from scipy.stats import multivariate_normal as normal

    want = sum(
        normal(np.asarray(law.mean)[n], np.linalg.inv(own[n])).logpdf(shift[n]) for n in range(5)
    )
    np.testing.assert_allclose(law.log_prob(shift), want, rtol=1e-9)


def test_the_sparse_law_is_that_of_its_norms():
    """With one cluster of n rows and smooth ~ 0 the norm of a column is Gamma(n, alpha)."""
    law = GroupSparse((slice(0, 2), slice(2, 5)), (Cluster((0, 1), 1.7),), 1e-6, 4)
    draws = np.asarray(law.sample(jax.random.key(0), (4000,)))
    norm = np.linalg.norm(draws, axis=1).ravel()
    assert abs(norm.mean() - 5 / 1.7) < 5 * np.sqrt(5) / 1.7 / np.sqrt(len(norm))
    assert abs(norm.var() - 5 / 1.7**2) < 0.1 * 5 / 1.7**2
    assert abs(draws.mean()) < 5 * draws.std() / np.sqrt(draws.size)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_components": 0}, "Expected n_components between 1"),
        ({"clusters": "all"}, "Expected clusters to be one of"),
        (
            {"clusters": "given"},
            r"Expected Tasks\(..., clusters=...\) with clusters='given', got none",
        ),
        ({"sparsity": 0.0}, "Expected sparsity above 0, one number or one for each of 3 clusters"),
        ({"sparsity": (1.0, 2.0)}, "Expected sparsity above 0, one number or one for each of 3"),
        ({"beta": 0}, "Expected beta to be a finite number above 0"),
        ({"smooth": 0}, "Expected smooth to be a finite number above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        bf.fit("heres", few_tasks(jax.random.key(0)), **given)


def test_more_components_than_rows_or_features_are_fine():
    """The paper takes thousands."""
    data = few_tasks(jax.random.key(0))
    fit = bf.fit("heres", data, bf.FixedPoint(20, tol=0.9), n_components=40, progress=False)
    assert np.isfinite(fit.predict(data.grid()).mean).all()


def test_gibbs_and_the_point_agree_about_labels():
    """Rows of two kinds: the mean of the draws' probabilities is near the mode's."""
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=60)
    x = np.eye(2)[z] @ rng.normal(size=(2, 8)) * 2 + rng.normal(size=(60, 8))
    y = np.where(rng.random((60, 1)) < 0.3, np.nan, np.eye(2)[z])
    data = Tasks({"x": x}, y)
    given = {"n_components": 4, "weight": 2.0, "sparsity": 0.5, "progress": False}
    point = bf.fit("heres", data, bf.FixedPoint(3000, tol=1e-5), **given)
    draws = bf.fit("heres", data, bf.Gibbs(warmup=200, draws=300, chains=2), **given)
    hidden = data.grid()
    hidden = hidden[hidden["row"].isin(data.rows[~data.labelled])]
    truth = np.eye(2)[z][hidden["row"], hidden["label"]]
    assert ((point.predict(hidden).mean > 0.5) == truth).mean() > 0.85
    assert ((draws.predict(hidden).mean > 0.5) == truth).mean() > 0.85
    assert np.abs(point.predict(hidden).mean - draws.predict(hidden).mean).mean() < 0.15
    assert draws.predict(hidden).sd_mean.mean() > 0.01


@pytest.mark.parametrize("name", ["heres", "himls", "lsa_mml", "himlsd"])
def test_a_real_valued_label_is_as_uncertain_as_the_model_says(name):
    """What is predicted of a cell at a point is the law that the model draws it from."""
    method = REGISTRY[name]
    data = few_tasks(jax.random.key(0))
    data = data.fill({f"view.{b}": data[b].toarray() + 0.5 for b in data.blocks})
    more = {"himls": {"layers": ((3, 2),)}, "himlsd": {"layers": ((3, 2),)}}
    given = {"weight": 3.0, **more.get(name, {"n_components": 3})}
    h = method.prepare(data, method.Hyper(**given))
    assert not h.binary
    p = method.init(jax.random.key(1), data, h)
    at = trace(seed(substitute(method.model, data=sites(p)), 0)).get_trace(data, h)
    law = at["view.labels"]["fn"]
    drawn = np.asarray(law.sample(jax.random.key(2), (20_000,)))[:, data.labelled]
    if method.derive:
        p = p._replace(**method.derive(p, data, h))
    grid = Grid(np.flatnonzero(data.labelled), np.arange(2))
    centre, unit = unit_of(h, grid)
    drawn, told = centre + unit * drawn, method.predict(p, grid, h)
    np.testing.assert_allclose(told.mean, drawn.mean(0), atol=0.05)
    sd = np.broadcast_to(np.sqrt(told.variance), told.mean.shape)
    np.testing.assert_allclose(sd, drawn.std(0), rtol=0.05)


def test_a_point_starts_from_the_factors_with_the_least_penalty():
    """Columns at their best lengths cost (|f| |b|)^(2/3); of one product, singular vectors cost the least."""
    data = few_tasks(jax.random.key(0))
    data = bf.Tasks({v: data[v].toarray()[:5] for v in data.names}, data["labels"].toarray()[:5])
    h = HERES.prepare(data, HERES.Hyper(2, 0.8, 0.5, beta=0.3, smooth=1e-6))
    p = HERES.solver.start(jax.random.key(1), data, h)
    F = np.asarray(p.F)
    B = np.vstack([np.asarray(b) * (0.8 if v == "labels" else 1) for v, b in p.B.items()])
    cost = np.sum((np.linalg.norm(F, axis=0) * np.linalg.norm(B, axis=0)) ** (2 / 3))
    least = np.sum(np.linalg.svd(F @ B.T, compute_uv=False)[:2] ** (2 / 3))
    np.testing.assert_allclose(cost, least, rtol=1e-4)


def test_chains_start_apart():
    data, h = HERES.example(jax.random.key(0))
    one, other = (np.asarray(HERES.init(jax.random.key(k), data, h).F) for k in (1, 2))
    assert np.abs(np.corrcoef(one[:, 0], other.T)[0, 1:]).max() < 0.99


def more_features_than_rows(**given):
    """The scores and the truth of 40 new rows, and how many decisions are right; 80 rows have labels."""
    rng = np.random.default_rng(1)
    z, x = rng.normal(size=(120, 4)), rng.normal(size=(120, 800))
    x[:, :200] += z @ rng.normal(size=(4, 200))
    y = (z @ rng.normal(size=(4, 6)) + 0.5 * rng.normal(size=(120, 6)) > -0.5).astype(float)
    hidden = np.where(np.arange(120)[:, None] < 80, y, np.nan)
    fit = bf.fit("heres", Tasks(x, hidden), progress=False, **given)
    row, label = np.repeat(np.arange(80, 120), 6), np.tile(np.arange(6), 40)
    score = fit.predict({"row": row, "label": label}).score.reshape(40, 6)
    return score, y[80:], ((score > fit.cut) == y[80:]).mean()


def test_few_columns_of_many_features_keep_the_constant():
    score, truth, _ = more_features_than_rows(n_components=8, sparsity=1.0)
    np.testing.assert_allclose(score.mean(), truth.mean(), atol=0.1)


def test_as_many_columns_as_rows_do_not_explain_the_labels_by_noise():
    assert more_features_than_rows()[2] > 0.8
