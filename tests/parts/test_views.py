"""Several views of the same rows, each with its own law: structure and law of `mofa`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.method import from_sites, lookup, sites
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed.noises import Noises
from bayesfac.parts.observed.per_view import PerView, Settings, usual_law

METHOD = lookup("mofa")


@pytest.fixture(scope="module")
def case():
    data, h = METHOD.example(jax.random.key(3))
    p = METHOD.init(jax.random.key(4), data, h)
    flat = {
        n: x * (1 + 0.3 * jnp.cos(jnp.arange(x.size))).reshape(x.shape) for n, x in sites(p).items()
    }
    flat = {n: jnp.minimum(x, 0.9) if n.startswith("share") else x for n, x in flat.items()}
    return data, h, from_sites(METHOD, flat)


def test_a_view_is_the_matrix_of_its_features(case):
    """Rows of V and intercepts of one view have the conditionals of a matrix of this view alone."""
    data, h, p = case
    s, view = METHOD.parts.at(h), next(v for v in h.views if v.name == "real")
    own = view.values(data)
    alone = Matrix((s.user, s.of_view("real")), (s.intercept("real"),))
    f, weight = s.of_view("real"), p.alpha["real"][own.cells.col]
    P = jnp.broadcast_to(f.P(p, h), (4, 2, 2))
    expected = alone.rows(p, own, f, h, own.y, weight, P=P)
    aux = METHOD.parts.augment(p, data, h).sample(jax.random.key(0))
    found = s.rows(p, data, f, h, *METHOD.parts.observed.target(p, data, h, aux), P=P)
    assert jnp.allclose(found.mean, expected.mean, rtol=1e-5)


def test_the_rows_see_all_views(case):
    """The precision of a row is I plus the sum over all its cells, whatever the view."""
    data, h, p = case
    s, aux = METHOD.parts.at(h), METHOD.parts.augment(p, data, h).sample(jax.random.key(0))
    t, w = METHOD.parts.observed.target(p, data, h, aux)
    V, c = (jnp.concatenate([of[v.name] for v in h.views]) for of in (p.V, p.c))
    i = 2
    at = np.flatnonzero(np.asarray(data.cells.row) == i)
    col = data.cells.col[at]
    S = jnp.linalg.inv(jnp.eye(2) + (V[col] * w[at, None]).T @ V[col])
    mean = S @ ((w[at] * (t[at] - c[col])) @ V[col])
    assert jnp.allclose(s.rows(p, data, s.user, h, t, w).mean[i], mean, rtol=1e-4, atol=1e-5)


def test_each_view_has_the_law_of_its_values(case):
    """Energies add up over views: of the normal view that of `Noises` on standardised values."""
    data, h, p = case
    x = METHOD.parts.at(h).scores(p, data)
    each = PerView().at("energy", p, x, data, h)
    own = data.view("real")
    y = (own.y - own.mean) / own.spread
    alone = bf.Ratings(np.asarray(data.table("real")))
    q = p._replace(alpha=p.alpha["real"], v=p.v["real"], r=None)
    given = Settings(h, offset=0.0, alpha_rate=1.0)
    expected = Noises("item").energy(q, data.of_view("real", x), alone.replaced(y=y), given)
    assert jnp.allclose(each["real"], expected, rtol=1e-6)
    assert jnp.allclose(PerView().energy(p, x, data, h), sum(each.values()))


def test_laws_are_told_from_values():
    assert usual_law(np.array([0.0, 1, 1])) == "bernoulli"
    assert usual_law(np.array([0.0, 3, 25])) == "counts"
    for other in ([1.0, 3, 5], [0.0, 4, 10], [0.5, 20], [-1.0, 0, 20], [1.0, 1, 1], [3.0, 25]):
        assert usual_law(np.array(other)) == "normal"


def test_laws_can_be_given():
    table = {"a": np.arange(12.0).reshape(4, 3) * 2, "b": np.eye(4)[:, :2]}
    data = bf.Measurements(table)
    laws = {v.name: v.law for v in bf.fit("mofa", data, n_components=1, progress=False).hyper.views}
    assert laws == {"a": "counts", "b": "bernoulli"}
    fit = bf.fit("mofa", data, n_components=1, binary=(), counts=(), progress=False)
    assert {v.law for v in fit.hyper.views} == {"normal"}
    with pytest.raises(ValueError, match=r"some of the views \['a', 'b'\], got 'c'"):
        bf.fit("mofa", data, binary=("c",))
    with pytest.raises(ValueError, match="Expected values 0 and 1"):
        bf.fit("mofa", data, binary=("a",))
    with pytest.raises(ValueError, match="Expected spike below 1"):
        bf.fit("mofa", data, spike=1.5)


def test_predictions_are_in_the_units_of_the_view():
    """Other units of a view change its predictions alone, and these by the same factor."""
    data = bf.datasets.make_measurements(30, {"a": 6, "b": 5}, 2, seed=3)[0]
    moved = {"a": 1000 * data.table("a") - 5, "b": data.table("b")}
    fits = [
        bf.fit("mofa", d, n_components=2, progress=False) for d in (data, bf.Measurements(moved))
    ]
    one, two = (fit.predict(([0, 0], ["a: 1", "b: 1"])) for fit in fits)
    assert np.allclose(1000 * one.mean[0] - 5, two.mean[0], rtol=1e-2)
    assert np.allclose(1000 * one.sd[0], two.sd[0], rtol=1e-2)
    assert np.allclose([one.mean[1], one.sd[1]], [two.mean[1], two.sd[1]], rtol=1e-2)


def test_the_start_finds_the_leading_components():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    cells = bf.Ratings(table).cells
    U, V = bayes.leading(jax.random.key(0), cells, jnp.asarray(table.ravel()), 2)
    assert np.allclose(U @ V.T, table, atol=1e-3 * np.abs(table).max())
    assert np.allclose(jnp.mean(U**2), 1, rtol=1e-4)


def test_new_rows_agree_with_the_rows_of_a_refit():
    """Rows that are folded in have the posterior that they have as training rows: with some views too."""
    data, _ = bf.datasets.make_measurements(80, {"a": 20, "b": 15}, 2, laws={}, seed=5)
    tables = {n: data.table(n) for n in data.views}
    late = data.users[-10:]
    some = {n: t.loc[late] if n == "a" else t.loc[late[:5]] for n, t in tables.items()}
    kept = bf.Measurements({n: t.drop(late) for n, t in tables.items()})
    engine = bf.Gibbs(200, 200, 2)
    fit = bf.fit("mofa", kept, engine, n_components=2, progress=False)
    drop = {n: t.dropna(axis=1, how="all") for n, t in some.items()}
    new = fit.fold_in(bf.Measurements(drop))
    whole = bf.Measurements({n: pd_concat(tables[n].drop(late), some[n]) for n in tables})
    refit = bf.fit("mofa", whole, engine, n_components=2, progress=False)
    where = ([*late] * 2, ["a: 3"] * 10 + ["b: 4"] * 10)
    one, two = new.predict(where), refit.predict(where)
    assert np.abs(one.mean - two.mean).max() < 3 * two.sd_mean.max()
    assert np.abs(one.mean - two.mean).mean() < 0.5 * two.sd_mean.mean()
    assert np.allclose(one.sd_mean, two.sd_mean, rtol=0.6)


def pd_concat(*parts: object) -> object:
    import pandas as pd

    return pd.concat(parts)
