"""The cut of a task method comes from rows whose labels are held out, stands in the fit and reproduces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import lookup
from bayesfac.models.tasks import _pretraining as pretraining


def made(n=90, shift=0.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)) * np.logspace(-3, 3, 6) + shift
    score = (x - shift) / np.logspace(-3, 3, 6) @ rng.normal(size=(6, 3)) - 1
    return x, (score + 0.5 * rng.normal(size=score.shape) > 0).astype(float)


def test_the_cut_is_chosen_said_and_reproduces():
    x, y = made()
    data, engine = bf.Tasks({"x": x[:60]}, y[:60]), bf.FixedPoint(40, tol=1e-3)
    fit = bf.fit("heres", data, engine, n_components=5, progress=False)
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
