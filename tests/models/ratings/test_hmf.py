"""HMF: the thesis's cascade, Tables 3.8-3.17, and stages as one axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import Grid
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings.hmf import cascade

HMF = REGISTRY["hmf"]
Y = np.array(  # Table 3.8
    [[3, 0, 0, 5, 2, 0, 0], [5, 4, 0, 1, 5, 3, 4], [1, 0, 4, 0, 3, 1, 0], [5, 4, 0, 0, 0, 0, 1],
     [0, 3, 2, 0, 5, 2, 0]]
)  # fmt: skip
U = np.array(  # Tables 3.9, 3.11, 3.13
    [[[-0.48, -0.54], [0.12, -1.09], [0.98, -0.13], [-0.77, -0.29], [-0.01, -0.94]],
     [[-0.69, -0.47], [-0.43, 1.06], [0.92, 0.01], [-0.79, 0.05], [0.24, 0.86]],
     [[-0.42, 0.70], [0.26, -1.05], [-0.80, 0.44], [0.84, 0.08], [-0.05, -0.81]]]
)  # fmt: skip
V = np.array(
    [[[-0.70, -0.63], [-0.36, -0.72], [0.47, -0.53], [-0.51, 0.25], [0.28, -0.80], [-0.52, -0.66],
      [0.58, -0.37]],
     [[-0.89, 0.21], [-0.43, 0.64], [0.42, -0.54], [-0.21, -0.67], [0.53, 0.76], [-0.76, 0.01],
      [0.35, 0.56]],
     [[0.72, -0.54], [0.80, -0.12], [-0.18, 0.68], [-0.26, 0.62], [0.26, -0.83], [0.59, 0.52],
      [-0.39, -0.57]]]
)  # fmt: skip
FOURTH = np.array(  # the sign matrix of Table 3.15, which prints only 5 of the 7 rows of V^4
    [[-1, 1, 1, 1, -1, 1, 1], [1, -1, -1, -1, 1, -1, -1], [-1, 1, -1, 1, -1, -1, 1],
     [1, -1, -1, -1, 1, -1, -1], [1, -1, -1, -1, 1, -1, -1]]
)  # fmt: skip
AFTER = {  # Tables 3.10, 3.12, 3.14, 3.16: what is filled in after each stage
    1: [[0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0], [1, 1, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 0, 1],
        [0, 0, 0, 1, 0, 0, 0]],
    2: [[0, 2, 2, 0, 2, 0, 1], [0, 0, 2, 1, 0, 0, 0], [1, 1, 0, 1, 0, 1, 0], [0, 0, 1, 0, 2, 0, 1],
        [2, 0, 2, 1, 0, 2, 0]],
    3: [[3, 2, 2, 0, 2, 0, 1], [0, 0, 2, 1, 0, 3, 0], [1, 1, 0, 1, 3, 1, 0], [0, 0, 1, 3, 2, 0, 1],
        [2, 3, 2, 1, 0, 2, 0]],
    4: [[3, 2, 2, 0, 2, 0, 1], [0, 4, 2, 1, 0, 3, 4], [1, 1, 4, 1, 3, 1, 0], [0, 4, 1, 3, 2, 4, 1],
        [2, 3, 2, 1, 0, 2, 4]],
}  # fmt: skip
COMPLETE = np.array(  # Table 3.17
    [[3, 2, 2, 5, 2, 5, 1], [5, 4, 2, 1, 5, 3, 4], [1, 1, 4, 1, 3, 1, 5], [5, 4, 1, 3, 2, 4, 1],
     [2, 3, 2, 1, 5, 2, 4]]
)  # fmt: skip


def test_the_cascade_of_tables_3_8_to_3_17():
    """The stages' scores from the printed factors, then the rule; the observed keep their ratings."""
    x = np.concatenate([U @ np.swapaxes(V, 1, 2), FOURTH[None]])
    said = np.asarray(cascade(jnp.moveaxis(jnp.asarray(x), 0, -1), 0.0)) + 1
    complete = np.where(Y > 0, Y, said)
    for stage, table in AFTER.items():
        np.testing.assert_array_equal(np.where(complete <= stage, complete, 0), table)
    np.testing.assert_array_equal(complete, COMPLETE)


def golden(method):
    """J of the example: for each stage, users, items by plain loops (algorithm 4)."""
    data, h = HMF.example(jax.random.key(3))
    p = HMF.init(jax.random.key(4), data, h)
    J = 0.0
    each = zip(*map(np.asarray, p), h.penalty, h.offset, strict=True)
    for q, (u, v, b, c, penalty, m) in enumerate(each, 1):
        J += 0.5 * penalty * ((u**2).sum() + (v**2).sum())
        J += 0.5 * ((b**2).sum() + (c**2).sum()) / h.scale_bias**2
        for i, j, y in zip(data.user, data.item, data.value, strict=True):
            z = (-1 if y <= q else 1) * (m + b[i] + c[j] + u[i] @ v[j])
            J += 0 if z >= 1 else (0.5 * (1 - z) ** 2 if z > 0 else 0.5 - z)
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-12)


def test_golden_objective():
    golden(HMF)


def fits(**options):
    ratings = bf.datasets.make_ratings(30, 25, 2, density=0.6, seed=0)
    engine = bf.LBFGS(2000, tol=0)
    return ratings, bf.fit("hmf", ratings, engine, n_components=2, progress=False, **options)


def test_each_stage_is_a_bmmmf():
    """A stage solved beside the other stages ends where a bmmmf of its own likes ends."""
    penalty = (0.5, 1.0, 1.5, 2.0)
    ratings, parallel = fits(penalty=penalty)
    for q, level in enumerate(ratings.levels[:-1]):
        init = {name: value[q] for name, value in parallel.params._asdict().items()}
        alone = bf.fit(
            "bmmmf", ratings.above(level), n_components=2, penalty=penalty[q], init=init, progress=False
        )  # fmt: skip
        assert alone.trace[0] - alone.trace[-1] < 1e-6 * alone.trace[0]


def test_a_stage_may_be_damaged_without_the_others():
    """Each stage decides only the levels up to its own."""
    _, fit = fits(penalty=1.0)
    grid = Grid(np.arange(30), np.arange(25))
    said = HMF.predict(fit.params, grid, fit.hyper).choice
    spoiled = fit.params._replace(U=fit.params.U.at[3].multiply(-1))
    again = HMF.predict(spoiled, grid, fit.hyper).choice
    assert (said == again)[said < 3].all()
    assert (said != again)[said >= 3].any()


def test_a_new_user_is_given_the_middle_of_what_is_likely():
    """Every stage's score is 0 on average there, which the cascade would read as "likes everything"."""
    ratings, fit = fits(penalty=1.0)
    said = fit.predict({"user": [-1], "item": ratings.items[:1]})
    assert said.flagged[0]
    middle = np.searchsorted(np.cumsum(said.probabilities[0]), 0.5)
    assert said.level[0] == ratings.levels[middle] < ratings.levels[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": (1.0, 2.0)}, r"a penalty above 0, or 4 of them"),
        ({"penalty": -1.0}, r"a penalty above 0"),
        ({"offset": (0.0, 1.0)}, r"4 finite offsets, one for each stage"),
        ({"offset": (0.0, 1.0, np.inf, 2.0)}, r"4 finite offsets"),
        ({"penalty": "a"}, r"penalty to be a number or a list of numbers or None, got .a."),
        ({"scale_bias": -1.0}, r"scale_bias to be a finite number above 0, got -1.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        fits(**options)


def test_a_saved_fit_predicts_as_it_did(tmp_path):
    """Levels and penalties are tuples; JSON gives lists back, which no compiled program takes."""
    ratings, fit = fits(penalty=(0.5, 1.0, 1.5, 2.0))
    fit.save(tmp_path / "fit")
    again = bf.load(tmp_path / "fit")
    assert again.hyper == fit.hyper
    np.testing.assert_array_equal(again.predict(ratings).level, fit.predict(ratings).level)
