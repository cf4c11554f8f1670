"""BMMMF: the thesis's running example, Tables 3.1-3.5."""

import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.kernels.losses import BINARY
from bayesfac.core.method import REGISTRY

BMMMF = REGISTRY["bmmmf"]
Y = np.array(  # Table 3.1
    [[0, 1, 0, 0, 1, 0, -1], [-1, 0, 1, 1, 1, 0, -1], [0, 1, -1, 0, 0, 1, -1], [-1, 1, -1, 1, -1, 1, 0],
     [-1, 0, -1, 1, 1, 0, 0], [0, -1, 0, 1, 0, 1, 1], [1, 1, 0, -1, 0, 0, 0]]
)  # fmt: skip
U = np.array(  # Table 3.2
    [[-0.63, -0.50], [-0.69, -0.96], [0.27, -1.09], [0.63, -0.84], [-0.02, -1.03], [1.19, -0.03],
     [-1.11, 0.21]]
)  # fmt: skip
V = np.array(
    [[-0.37, 0.94], [-0.70, -1.02], [-1.06, 0.42], [0.55, -0.97], [-1.04, -0.36], [0.67, -0.58],
     [0.65, 0.81]]
)  # fmt: skip
HINGE = np.array(  # Table 3.4 without its 7th column
    [[0, 0.05, 0, 0, 0.16, 0], [0.35, 0, 0.67, 0.45, 0, 0], [0, 0.08, 0.26, 0, 0, 0.19],
     [0, 0.58, 0, 0, 0.65, 0.09], [0.04, 0, 0.59, 0.01, 0.61, 0], [0, 0.20, 0, 0.32, 0, 0.19],
     [0.39, 0.44, 0, 0.19, 0, 0]]
)  # fmt: skip
SMOOTH = np.array(  # Table 3.5 without its 7th column
    [[0, 0, 0, 0, 0.01, 0], [0.06, 0, 0.23, 0.10, 0, 0], [0, 0, 0.03, 0, 0, 0.02],
     [0, 0.17, 0, 0, 0.21, 0], [0, 0, 0.17, 0, 0.19, 0], [0, 0.02, 0, 0.05, 0, 0.02],
     [0.08, 0.10, 0, 0.02, 0, 0]]
)  # fmt: skip
ratings = bf.Ratings(np.where(Y == 0, np.nan, Y), levels=(-1, 1))


def golden(method):
    """J at the printed factors: the losses of Table 3.5 and the ridge, summed by hand."""
    h = BMMMF.prepare(ratings, BMMMF.Hyper(2, penalty=0.5, biases=False))
    z = (Y * (U @ V.T))[Y != 0]
    loss = sum(0.0 if m >= 1 else (0.5 * (1 - m) ** 2 if m > 0 else 0.5 - m) for m in z)
    expected = loss + 0.25 * ((U**2).sum() + (V**2).sum())
    found = method.objective(method.Params(jnp.asarray(U), jnp.asarray(V)), ratings, h)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_golden_objective():
    golden(BMMMF)


@pytest.mark.parametrize(("name", "table"), [("hinge", HINGE), ("smooth_hinge", SMOOTH)])
def test_tables_3_4_and_3_5(name, table):
    """All but the 7th column, which in print repeats the 1st: a misprint. The factors are printed to two
    decimals, so products are good to .01 and hinge losses to .02."""
    loss = np.where(Y != 0, BINARY[name].value(jnp.asarray(Y * (U @ V.T))), 0)
    assert np.abs(loss[:, :6] - table).max() < 0.015
    if name == "hinge":
        np.testing.assert_allclose(loss[[0, 2, 5], 6], [0.19, 0.29, 0.25], atol=0.01)
        assert np.abs(loss[[0, 2, 5], 6] - table[[0, 2, 5], 0]).max() > 0.15  # what is printed


def test_the_cut_decides_what_is_liked():
    """Eq. 3.4; with threshold 0.1, y_34 is predicted as +1 (Figure 3.1)."""
    p = BMMMF.Params(jnp.asarray(U), jnp.asarray(V))
    h = BMMMF.prepare(ratings, BMMMF.Hyper(2, cut=0.1, biases=False))
    from bayesfac.core.data.cells import Grid

    said = BMMMF.predict(p, Grid(np.arange(7), np.arange(7)), h)
    assert said.choice[2, 3] == 1
    np.testing.assert_array_equal(said.choice, (U @ V.T >= 0.1).astype(int))


def test_a_fit_to_the_example_separates_it():
    options = {"n_components": 3, "penalty": 0.05, "biases": False, "progress": False}
    fit = bf.fit("bmmmf", ratings, **options)
    x = np.asarray(fit.params.U @ fit.params.V.T)
    assert (x * Y)[Y != 0].min() > 0
    assert fit.converged


def test_five_levels_are_for_hmf():
    with pytest.raises(ValueError, match=r"two levels for bmmmf, got 5 .*hmf"):
        bf.fit("bmmmf", bf.datasets.make_ratings(12, 9, 2), progress=False)
