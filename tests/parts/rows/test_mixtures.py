"""Entries whose law is a mixture of normals: exact tests of a few seconds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import ks_2samp, kstest, norm

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import settle
from bayesfac.parts.estimate import fitted_mixture, varimax
from bayesfac.parts.rows import mixtures
from bayesfac.parts.rows.mixtures import Horseshoe, SpikeAndSlab
from bayesfac.parts.sites import put

ROWS = 4000
MODELS = {
    "spike": bf.factorization(bf.Spherical(1.0), bf.SpikeAndSlab(spike=0.2)),
    "horseshoe": bf.factorization(bf.Spherical(1.0), bf.Horseshoe(slab=3.0)),
}
SIZES = {"tau_V": jnp.array([1.5]), "share_V": jnp.array([0.4])}


def one_cell_each(name, key):
    """One user with u = 1, and for each item one value y: so an item's row has the density of its mixture
    times N(y; v, 1 / alpha). The rows are drawn from it, on a grid."""
    model = MODELS[name]
    data = bf.Ratings(np.zeros(ROWS, int), np.arange(ROWS), np.tile([0.3, 1.0], ROWS // 2))
    h = settle(model, data, {"n_components": 1, "offset": 0.0, "alpha": 4.0})
    p = model.init(key, data, h)
    p = put(p, {k: v for k, v in SIZES.items() if hasattr(p, k)})
    p = put(p, {"U": jnp.ones((1, 1)), "V": jnp.zeros((ROWS, 1))})
    f = model.parts.at(h).main[1]
    _, log, s = f.entries(p, h)
    grid = np.linspace(-4, 4, 4001)
    weighed = mixtures.weighed(SIZES["tau_V"] * grid[:, None] ** 2, log, s)
    prior = np.asarray(jax.nn.logsumexp(weighed, -1))[:, 0]
    value = np.array([0.3, 1.0])
    density = np.exp(prior[:, None] - 2 * (value - grid[:, None]) ** 2)
    below = np.cumsum(density, 0) / density.sum(0)
    u = np.asarray(jax.random.uniform(key, (ROWS // 2, 2)))
    exact = np.stack([np.interp(u[:, m], below[:, m], grid) for m in (0, 1)], 1)
    laws = [lambda x, m=m: np.interp(x, grid, below[:, m]) for m in (0, 1)]
    return model, data, h, put(p, {"V": jnp.asarray(exact.reshape(-1, 1))}), laws


@pytest.mark.parametrize("name", MODELS)
def test_a_draw_of_rows_leaves_their_law_as_it_is(name, key):
    model, data, h, p, laws = one_cell_each(name, key)
    drawn = model.parts.conditional("V", p, data, h).sample(jax.random.fold_in(key, 1))
    for m, law in enumerate(laws):
        old, new = (np.asarray(x)[m::2, 0] for x in (p.V, drawn))
        assert kstest(old, law).pvalue > 1e-3 and kstest(new, law).pvalue > 1e-3
        assert np.corrcoef(old, new)[0, 1] < 0.9  # and moves


@pytest.mark.parametrize(
    ("name", "site"), [("spike", "tau_V"), ("spike", "share_V"), ("horseshoe", "tau_V")]
)
def test_a_draw_above_rows_leaves_its_law_as_it_is(name, site, key):
    model, data, h, p, _ = one_cell_each(name, key)
    p = put(p, {"V": p.V[:30]})  # few rows, so that the law is wide
    grid = (
        jnp.linspace(0.001, 0.999, 2000)
        if site == "share_V"
        else jnp.exp(jnp.linspace(-5, 5, 2000))
    )

    def at(value):
        return model.parts.conditional(site, put(p, {site: value[None]}), data, h)

    density = jax.vmap(lambda value: at(value).log_prob(value[None]).sum())(grid)
    mass = np.exp(np.asarray(density - density.max(), float)) * np.gradient(np.asarray(grid, float))
    below = np.cumsum(mass) / mass.sum()
    start, later = jax.random.split(key)
    exact = jnp.interp(jax.random.uniform(start, (ROWS,)), below, grid)
    new = jax.vmap(lambda k, value: at(value).sample(k)[0])(jax.random.split(later, ROWS), exact)
    assert kstest(np.asarray(new), lambda x: np.interp(x, grid, below)).pvalue > 1e-3
    assert np.corrcoef(exact, new)[0, 1] < 0.99


@pytest.mark.parametrize("name", MODELS)
def test_conditionals_have_the_ratios_of_the_joint(name, key):
    model, data, h, p, _ = one_cell_each(name, key)
    for site in ("V", "tau_V", *(["share_V"] if name == "spike" else [])):
        law, now = model.parts.conditional(site, p, data, h), getattr(p, site)
        other = 0.7 * now
        joint = model.objective(p, data, h) - model.objective(put(p, {site: other}), data, h)
        assert float((law.log_prob(other) - law.log_prob(now)).sum()) == pytest.approx(
            float(joint), rel=1e-3
        )


@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_em_never_lowers_the_density(name, key):
    model, data, h, p, _ = one_cell_each(name, key)
    for site in ("V", "tau_V", *(["share_V"] if name == "spike" else [])):
        law = model.parts.conditional(site, p, data, h)
        now = law.log_prob(getattr(p, site)).sum()
        assert law.log_prob(law.mode).sum() > now


@pytest.mark.parametrize("u", [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0])
def test_the_grid_of_the_horseshoe(u):
    """Its density beside the integral over the half-Cauchy law."""
    h = type("Settings", (), {"slab": 10.0})

    def integrand(t):
        square = 1 / (np.exp(-2 * t) + 1 / h.slab**2)
        return norm.pdf(u, 0, square**0.5) / np.pi / np.cosh(t)

    log, s = Horseshoe().masses(None, h), Horseshoe().scales(h)
    ours = np.exp(mixtures.log_density(jnp.array([u**2]), log, s)) / np.sqrt(2 * np.pi)
    assert ours == pytest.approx(quad(integrand, -14, 14, limit=400)[0], rel=0.007)


def test_scales_of_entries_are_drawn_with_their_probabilities(key):
    h = type("Settings", (), {"spike": 0.2})
    log, s = SpikeAndSlab("").masses(jnp.array([0.3]), h), SpikeAndSlab("").scales(h)
    square = jnp.full((20_000, 1), 0.09)
    w = mixtures.drawn(key, square, log, s)
    slab, spike = 0.3 * norm.pdf(0.3), 0.7 * norm.pdf(0.3, 0, 0.2)
    assert jnp.mean(w == 1) == pytest.approx(slab / (slab + spike), abs=0.015)
    assert jnp.mean(w) == pytest.approx(float(mixtures.expected(square, log, s)[0, 0]), rel=0.02)


def test_varimax_finds_the_coordinates_of_few_entries(key):
    a, b, c = jax.random.split(key, 3)
    V = jax.random.normal(a, (300, 3)) * (jax.random.uniform(b, (300, 3)) < 0.2)
    R = jnp.linalg.qr(jax.random.normal(c, (3, 3)))[0]
    match = jnp.abs(jnp.corrcoef((V @ R @ varimax(V @ R)).T, V.T)[:3, 3:])
    assert jnp.all(jnp.max(match, 0) > 0.98)


def test_precision_and_share_of_a_mixture_fit_its_rows(key):
    model, data, h, p, _ = one_cell_each("spike", key)
    rows = mixtures.rows(*model.parts.at(h).main[1].entries(p, h)[1:], SIZES["tau_V"])
    p = put(p, {"V": rows.sample(key, (ROWS,))})
    found = fitted_mixture(p, model.parts.at(h).main[1], h)
    assert found["tau_V"] == pytest.approx(1.5, rel=0.1)
    assert found["share_V"] == pytest.approx(0.4, rel=0.1)


# -- what users see ----------------------------------------------------------------------------------------
def few_loadings(seed=0):
    """A table of three components with a fifth of the loadings, and these."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < 0.2)
    return bf.Ratings(rng.normal(size=(80, 3)) @ V.T + 0.5 * rng.normal(size=(80, 60))), V


@pytest.mark.parametrize("prior", [bf.SpikeAndSlab(), bf.Horseshoe()])
@pytest.mark.parametrize("engine", [None, bf.Gibbs(100, 100, 2)])
def test_loadings_are_found(prior, engine):
    data, V = few_loadings()
    fit = bf.fit(
        bf.factorization(bf.Spherical(1.0), prior), data, engine, n_components=3, progress=False
    )
    table = fit.loadings("item")
    found = table["mean"].unstack().to_numpy()
    match = np.abs(np.corrcoef(found.T, V.T)[:3, 3:])
    assert (match.max(0) > 0.95).all()
    assert table.index.names == ["item", "component"] and (table["low"] <= table["high"]).all()
    if isinstance(prior, bf.SpikeAndSlab):
        inside = table["in_slab"].unstack().to_numpy()[:, match.argmax(0)] > 0.5
        assert (inside == (V != 0)).mean() > 0.9


def test_loadings_that_have_no_meaning_are_refused():
    data, _ = few_loadings()
    fit = bf.fit("bpmf", data, n_components=2, progress=False)
    with pytest.raises(BayesfacError, match="stay as they are if all rows are rotated"):
        fit.loadings()
    sparse = bf.fit(MODELS["spike"], data, n_components=2, progress=False)
    with pytest.raises(
        ValueError, match="Expected axis to be one of .*'user', 'item'.*, got 'gene'"
    ):
        sparse.loadings("gene")
    with pytest.raises(ValueError, match="Expected level between 0 and 1, got 90"):
        sparse.loadings(level=90)
    with pytest.raises(BayesfacError, match="made of parts, got mmmf"):
        bf.fit("mmmf", bf.datasets.load("ratings"), n_components=2, progress=False).loadings()


def test_rows_of_new_items_take_several_sweeps():
    """Their draws are transitions; those of new users are exact."""
    data, V = few_loadings()
    fit = bf.fit(MODELS["spike"], data, bf.Gibbs(20, 20, 2), n_components=3, progress=False)
    cells = np.arange(80), np.full(80, "new"), data.frame()["rating"][data.frame()["item"] == 0]
    new = fit.fold_in(bf.Ratings(*cells), rows="item").predict((np.arange(80), ["new"] * 80)).mean
    old = fit.predict((np.arange(80), [0] * 80)).mean
    assert np.corrcoef(new, old)[0, 1] > 0.97


def test_features_of_a_sparse_axis_are_refused():
    data, _ = few_loadings()
    wide = bf.Ratings(data, item_features=np.eye(60))
    with pytest.raises(ValueError, match="Expected no features of the item.*features=False"):
        bf.fit(MODELS["spike"], wide, n_components=2)
    with pytest.raises(ValueError, match="Expected spike below 1"):
        bf.fit(MODELS["spike"], data, spike=1.5)


# -- turns ---------------------------------------------------------------------------------------------------
def test_turns_leave_the_law_as_it_is(key):
    """Rows of two items: the angle of the first against that of exact draws; scores and J of users stay."""
    model = bf.factorization(bf.NormalWishart(), bf.SpikeAndSlab(spike=0.2))
    data = bf.Ratings(np.arange(3.0).reshape(3, 1) * np.ones((1, 2)))
    h = settle(model, data, {"n_components": 2})
    p = put(
        model.init(key, data, h), {"tau_V": jnp.array([1.0, 8.0]), "share_V": jnp.array([0.3, 0.6])}
    )
    p = put(p, {"Lambda_U": jnp.array([[3.0, 1.0], [1.0, 1.0]])})
    f = model.parts.at(h).main[1]
    rows = mixtures.rows(*f.entries(p, h)[1:], p.tau_V)

    def once(key):
        first, later = jax.random.split(key)
        q = put(p, {"V": rows.sample(first, (2,))})
        move = model.gibbs.moves["turn"]
        return q, jax.lax.fori_loop(
            0, 10, lambda n, q: move(jax.random.fold_in(later, n), q, data, h), q
        )

    old, new = jax.vmap(once)(jax.random.split(key, ROWS))
    for site in ("U", "V", "Lambda_U"):
        assert new._asdict()[site].shape == old._asdict()[site].shape
    np.testing.assert_allclose(
        jnp.einsum("snk,smk->snm", new.U, new.V), jnp.einsum("nk,smk->snm", p.U, old.V), atol=1e-4
    )
    away = [
        jnp.einsum("snk,skl,snl->s", r, q.Lambda_U, r)
        for q in (old, new)
        for r in [q.U - q.mu_U[:, None]]
    ]
    np.testing.assert_allclose(*away, rtol=1e-3)
    moved = jnp.mean(jnp.any(new.V != old.V, (1, 2)))
    assert moved > 0.3
    for m in (0, 1):
        before, after = (np.asarray(q.V[:, 0, m]) for q in (old, new))
        fresh = np.asarray(rows.sample(jax.random.fold_in(key, 1), (ROWS,))[:, m])
        assert ks_2samp(after, fresh).pvalue > 1e-3
        assert abs(np.mean(np.abs(before) < 0.1) - np.mean(np.abs(after) < 0.1)) < 0.03
