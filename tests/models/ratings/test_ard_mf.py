"""ARD: one sweep by hand, a prior that does not know K, and the number of components that data support."""

import jax
import numpy as np
import pytest
from scipy import stats

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.fits.components import above_noise
from bayesfac.models.ratings import ard_mf

ARD = REGISTRY["ard_mf"]


def golden(method):
    """Every block at the mode of its conditional in turn, by sums over a table with holes; then the scale
    that U and V share at its lowest J."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    U, V, mu_U, mu_V, tau, alpha = (np.array(x) for x in p)
    y = np.full(data.shape, np.nan)
    y[data.user, data.item] = data.value - h.offset

    def rows(y, other, mu):
        out = []
        for line in y:
            v, t = other[~np.isnan(line)], line[~np.isnan(line)]
            P = np.diag(tau) + alpha * v.T @ v
            out.append(np.linalg.solve(P, tau * mu + alpha * v.T @ t))
        return np.array(out)

    def square(x, mu):
        return ((x - mu) ** 2).sum(0) + h.beta0 * mu**2

    mu_U = U.sum(0) / (h.beta0 + 7)
    U = rows(y, V, mu_U)
    mu_V = V.sum(0) / (h.beta0 + 5)
    V = rows(y.T, U, mu_V)
    A, B = square(U, mu_U), square(V, mu_V)
    tau = (h.tau_shape - 1 + (7 + 5 + 2) / 2) / (h.tau_rate + (A + B) / 2)
    error = np.nansum((y - U @ V.T) ** 2)
    alpha = (h.alpha_shape - 1 + len(data) / 2) / (h.alpha_rate + error / 2)
    c = (B / A) ** 0.25
    wanted = U * c, V / c, mu_U * c, mu_V / c, tau, alpha
    for mine, theirs in zip(wanted, method.solver.update(p, data, h), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-9)


def test_golden_step():
    golden(ARD)


def test_the_prior_of_the_sum_of_scales_is_the_same_for_every_limit():
    """1 / tau has the stable law of Levy: here its quantiles, from the rule that sets tau_rate."""
    ratings = bf.datasets.make_ratings(40, 30, 2, seed=0)
    rng, sums = np.random.default_rng(0), []
    for K in (1, 4, 25):
        h = ARD.prepare(ratings, ARD.Hyper(K))
        tau = rng.gamma(h.tau_shape, 1 / h.tau_rate, (20_000, K))
        sums.append((1 / tau).sum(1) / ratings.spread)
    for each in sums[1:]:
        assert stats.ks_2samp(sums[0], each).pvalue > 0.01
    assert abs(np.median(sums[0]) - 1.1) < 0.05


def test_singular_values_are_compared_with_the_noise():
    """Uniform counts: the limit is (n m)^(3/4) / sqrt(N alpha), and a turn of U and V changes nothing."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(n, 3)))[0] for n in (40, 30))
    by_user, by_item, alpha = np.full(40, 9), np.full(30, 12), 2.0
    limit = (40 * 30) ** 0.75 / np.sqrt(360 * alpha)
    A = rng.normal(size=(3, 3))
    for share, count in (([3, 1.01, 0.5], 2), ([3, 0.99, 0.5], 1), ([0.9, 0.9, 0], 0)):
        U = left * share * limit
        assert above_noise(U @ A, right @ np.linalg.inv(A).T, alpha, by_user, by_item) == count


@pytest.fixture(scope="module")
def planted():
    ratings = bf.datasets.make_gaussian(90, 70, rank=3, noise=0.4, density=0.4, seed=0)[0]
    return bf.split.holdout(ratings, 0.1, seed=0)


def test_draws_use_the_components_of_the_truth(planted, tmp_path):
    fit = bf.fit("ard_mf", planted[0], bf.Gibbs(100, 60, 2), n_components=8, progress=False)
    assert fit.in_use.number.shape == (2, 60)
    low, high = fit.in_use.interval()
    assert low <= 3 <= high <= 4 and fit.in_use.table.sum() == 1
    assert "components in use: 3 of at most 8" in repr(fit)
    fit.save(tmp_path / "fit")
    assert repr(bf.load(tmp_path / "fit")) == repr(fit)


def test_a_point_switches_components_off(planted):
    """Sixty sweeps leave a few hundredths of what is switched off."""
    fit = bf.fit("ard_mf", planted[0], n_components=8, progress=False)
    assert fit.in_use.number.tolist() == [[3]] and fit.converged
    size = np.sort(np.linalg.norm(fit.params.U, axis=0) * np.linalg.norm(fit.params.V, axis=0))
    assert size[-4] < 0.05 * size[-3]
    right = bf.fit("bpmf", planted[0], n_components=3, progress=False)
    error = [bf.metrics.rmse(f.predict(planted[1]).mean, planted[1].value) for f in (fit, right)]
    assert error[0] < 1.05 * error[1]
    with pytest.raises(BayesfacError, match="upper limit .ard_mf., got bpmf"):
        _ = right.in_use


def test_a_limit_that_is_reached_is_said(planted):
    fit = bf.fit("ard_mf", planted[0], n_components=2, progress=False)
    assert fit.notes[-1] == (
        "components in use: 2 of at most 2; the limit is reached: raise n_components"
    )


@pytest.mark.slow  # a minute: two long runs
def test_gibbs_and_nuts_agree():
    """Means of log tau, mu-free: the product at one cell, and the noise."""
    data, h = ARD.example(jax.random.key(0))
    given = h._asdict() | {"progress": False}
    gibbs = bf.fit("ard_mf", data, bf.Gibbs(500, 8000, 4), **given)
    nuts = bf.fit("ard_mf", data, bf.NUTS(1000, 4000, 4), **given)

    def looks(fit):
        d = fit.draws
        product = np.einsum("cdk,cdk->cd", d["U"][:, :, 0], d["V"][:, :, 0])
        return np.stack([np.log(d["tau"]).sum(-1), np.log(d["tau"]).max(-1), np.log(d["alpha"]),
                         product, np.tanh(product) ** 2], -1)  # fmt: skip

    one, two = looks(gibbs), looks(nuts)
    blocks = [x.reshape(4 * 20, -1, x.shape[-1]).mean(1) for x in (one, two)]
    error = np.sqrt(sum(b.var(0, ddof=1) / len(b) for b in blocks))
    z = (one.mean((0, 1)) - two.mean((0, 1))) / error
    assert np.abs(z).max() < 4, z


def test_a_point_has_the_ridge_and_the_noise_that_it_lacks():
    """`point_of` beside its definition, row by row; afterwards both sides have the same precision."""
    data, h = ARD.example(jax.random.key(5))
    q = ARD.variational.begin(ARD.init(jax.random.key(6), data, h), data, h)
    for _ in range(3):
        q = ARD.variational.update(q, data, h)
    U, V = ({name: np.asarray(x) for name, x in site.items()} for site in (q.U, q.V))
    alpha = float(q.alpha["shape"] / q.alpha["rate"])
    tau, cells = (
        np.asarray(q.tau["shape"] / q.tau["rate"]),
        list(zip(data.user, data.item, strict=True)),
    )

    def ridge(
        other, which
    ):  # every row has alpha times the variances of its cells; a cell has that of its row
        sums = {row: 0.0 for row in {cell[which] for cell in cells}}
        for cell in cells:
            sums[cell[which]] = sums[cell[which]] + alpha * np.diag(other["cov"][cell[1 - which]])
        return sum(sums[cell[which]] for cell in cells) / len(cells)

    user, item = tau + ridge(V, 0), tau + ridge(U, 1)
    doubts = []
    for i, j in cells:  # the variance of u.v if the cell were left out
        S, T, u, v = U["cov"][i], V["cov"][j], U["mean"][i], V["mean"][j]
        variance = np.sum(S * T) + v @ S @ v + u @ T @ u
        doubts.append(variance / (1 - min(alpha * variance, 0.8)))
    share, c = 1 / (1 + alpha * np.mean(doubts)), (user / item) ** 0.25
    p = ard_mf.point_of(q, data, h)
    np.testing.assert_allclose(p.alpha, share * alpha, rtol=1e-9)
    np.testing.assert_allclose(p.tau, share * np.sqrt(user * item), rtol=1e-9)
    for mine, theirs in ((p.U, U["mean"] * c), (p.V, V["mean"] / c)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    # rows of precision tau' = tau c^2 that are u / c have the precision tau of u
    np.testing.assert_allclose(p.tau / share * c**2, user, rtol=1e-9)
    np.testing.assert_allclose(p.tau / share / c**2, item, rtol=1e-9)
