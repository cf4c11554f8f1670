"""A noise of each user, item or label of a mode."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayesfac as bf
from bayesfac.core.data.cells import Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.distributions import NormalOrStudentT
from bayesfac.testing import CHECKS
from tests.inference.test_geweke import THRESHOLD, z_scores
from tests.inference.test_shares import ratings

PER = {
    "item": bf.factorization(bf.Spherical(), observed=bf.Normal(per="item")),
    "user": bf.factorization(bf.Relevance(), observed=bf.Normal(per="user"), biases=True),
    "week": bf.factorization(bf.Spherical(), observed=bf.Normal(per="week"), structure="tensor"),
}
MODEL = PER["item"]


@pytest.mark.parametrize("check", ["conditionals", "moves", "variational", "unseen"])
def test_contract(check, key):
    assert CHECKS[check](MODEL, key) is None


@pytest.mark.slow
@pytest.mark.parametrize("per", ["item", "user"])
def test_sweeps_leave_the_prior_alone(per):
    assert np.abs(z_scores(PER[per], {})).max() < THRESHOLD


def test_the_noise_of_a_mode(key):
    for check in ("joint", "conditionals"):
        assert CHECKS[check](PER["week"], key) is None


def test_a_new_label_has_the_noise_of_the_prior():
    """Beside the mean over 20,000 quantiles of alpha ~ Gamma(3, 3 v) of normal laws; the score is unsure."""
    v, wide, y = 0.4, 0.2, jnp.asarray([-2.0, 0.3, 1.5])
    law = NormalOrStudentT(jnp.zeros(3, bool), 6.0, jnp.full(3, 0.1), v**0.5, jnp.full(3, wide))
    alpha = stats.gamma(3, scale=1 / (3 * v)).ppf((np.arange(20_000) + 0.5) / 20_000)[:, None]
    parts = stats.norm(0.1, np.sqrt(wide + 1 / alpha))
    np.testing.assert_allclose(law.log_prob(y), np.log(parts.pdf(y).mean(0)), atol=1e-3)
    np.testing.assert_allclose(law.cdf(y), parts.cdf(y).mean(0), atol=1e-4)
    np.testing.assert_allclose(law.variance, wide + v * 6 / 4, rtol=1e-6)


def test_known_labels_have_their_own_noise_beside_new_ones(key):
    """Where the user is new, the law is normal and includes the variance of the score."""
    data, h = MODEL.example(key)
    p = MODEL.init(key, data, h)._replace(
        alpha=jnp.arange(1.0, 1 + data.n_items), v=jnp.asarray(0.3)
    )
    user, item = np.array([0, -1, 0]), np.array([1, 1, -1])
    law = MODEL.predict(p, Query(user, item), h)
    product = p.U[0] @ p.V[1]
    about = [h.offset + product, h.offset, h.offset]
    score = [0.0, h.scale_user**2 * jnp.sum(p.V[1] ** 2), h.scale_item**2 * jnp.sum(p.U[0] ** 2)]
    noise = np.array([1 / 2, 1 / 2, 0.3 * h.alike / (h.alike - 1)])
    np.testing.assert_allclose(law.mean, jnp.stack(about), rtol=1e-5)
    np.testing.assert_allclose(law.variance, noise + jnp.stack(score), rtol=1e-5)
    wanted = stats.norm(about[1], np.sqrt(noise[1] + score[1])).logpdf(1.7)
    np.testing.assert_allclose(law.log_prob(1.7)[1], wanted, rtol=1e-5)
    drawn = law.sample(key, (20_000,))
    np.testing.assert_allclose(drawn[:, :2].var(0), law.variance[:2], rtol=0.05)


def test_a_point_finds_the_noises():
    """Five items are measured with a tenth of the noise of five others; predictions know it."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 10))
    sd = np.where(np.arange(10) < 5, 0.1, 1.0)
    data = bf.Ratings(score + sd * rng.normal(size=score.shape))
    model = bf.factorization(observed=bf.Normal(per="item"))
    fit = bf.fit(model, data, n_components=2, progress=False)
    assert fit.converged
    np.testing.assert_allclose(fit.params.alpha[5:] ** -0.5, sd[5:], rtol=0.2)
    precise = np.asarray(fit.params.alpha[:5] ** -0.5)  # with the variance of the rows of few items
    assert precise.min() > 0.1 and np.median(precise) < 0.2
    wide = np.ptp(np.stack(fit.predict(([0, 0], [0, 9])).interval(0.9)), 0)
    assert wide[1] > 4 * wide[0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: bf.Normal(alpha=2.0, per="item"), r"Expected alpha=None .* bf.Normal\(2.0\) has one"),
        (lambda: bf.factorization(observed=bf.Normal(per="week")), "Expected per to be 'user' or 'item'"),
        (
            lambda: PER["week"].prepare(
                bf.Tensor([0, 0, 1], [0, 1, 0], [0, 1, 1], [1.0, 2.0, 3.0]), PER["week"].Hyper(1)
            ),
            "Expected per to be one of .*mode_1.*, got 'week'",
        ),
        (
            lambda: bf.fit(MODEL, ratings(), bf.Gibbs(1, 1, 1, shares=True), n_components=2),
            "Expected a method whose rows can be divided",
        ),
        (
            lambda: bf.fit(MODEL, ratings(), n_components=2, alike=1.0),
            "Expected alike above 1, so that values of new labels have a variance, got 1.0",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(wrong, says):
    with pytest.raises((ValueError, BayesfacError), match=says):
        wrong()
