"""A query of rows is answered for rows of training only; for other rows the message names `fold_in`."""

import numpy as np
import pytest

import bayesfac as bf

QUIET = {"n_components": 2, "progress": False}


def drawn(n, seed):
    x = np.random.default_rng(seed).normal(size=(n, 5)).round(3)
    return bf.Tasks({"a": x[:, :3], "b": x[:, 3:]}, (x[:, :2] > 0).astype(int))


@pytest.fixture(scope="module")
def fit():
    return bf.fit("heres", drawn(40, 0), bf.FixedPoint(5, tol=0.9), **QUIET)


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
@pytest.mark.parametrize(
    "n, message", [(10, "got other features in row 0"), (50, "got 40, which is none")]
)
def test_new_rows_with_the_numbers_of_training_are_refused_until_they_are_folded_in(
    fit, n, message
):
    new = drawn(n, 1)
    with pytest.raises(ValueError, match=message + r".*fit.fold_in\(data\).predict\(data\)"):
        fit.predict(new)
    folded = fit.fold_in(new)
    assert len(folded.predict(new)) == 2 * n
    with pytest.raises(ValueError, match="other features in row 0"):
        folded.predict(drawn(n, 2))


def test_rows_of_training_are_known_in_any_form(fit, tmp_path):
    data = drawn(40, 0)
    every = fit.predict(data)
    part = data.take(np.arange(5, 9))
    asked = fit.predict(part)
    np.testing.assert_array_equal(asked.mean, fit.predict(part.frame()).mean)
    again = bf.load(fit.save(tmp_path / "fit"))
    for same in (
        data.pooled(),
        data.concatenated(),
        data.take(data.labelled, labelled=~data.labelled),
    ):
        np.testing.assert_array_equal(again.predict(same).mean, every.mean)
    with pytest.raises(ValueError, match="other features in row 0"):
        again.predict(drawn(10, 1))


def test_views_may_be_thinned_but_not_numbered_anew():
    counts = lambda n, seed: bf.Views(np.random.default_rng(seed).poisson(3, (n, 6)))  # noqa: E731
    train, test = bf.split.holdout(counts(30, 0), 0.3, seed=0)
    fit = bf.fit("plsa", train, **QUIET)
    assert not fit.predict(test).flagged.any()
    assert len(fit.predict(bf.Views(train["x"][:4]))) == len(fit.predict(train.take(range(4))))
    for whole in (counts(30, 0), train.take(range(30))):
        assert len(fit.predict(whole))
    assert len(fit.predict(test.take(range(3, 9))))
    for n in (5, 30, 35):
        with pytest.raises(ValueError, match="fold_in"):
            fit.predict(counts(n, 1))
    named = bf.Views(counts(30, 1)["x"], rows=list(range(30)))
    assert len(fit.predict(named))  # the user says which rows these are
    assert len(fit.fold_in(counts(5, 1)).predict(counts(5, 1)))
