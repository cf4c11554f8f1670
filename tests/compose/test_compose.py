"""Factorizations that a user composes."""

import json
import pickle
import subprocess
import sys
from itertools import cycle, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import bayesfac as bf
from bayesfac import compose
from bayesfac.cli import main
from bayesfac.core.errors import UnknownName
from bayesfac.core.laws.sides import Side
from bayesfac.core.method import REGISTRY, gauge_of, log_joint, settle
from bayesfac.parts.estimate import Scales, diagonal, formed
from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Gammas, Given, Wishart
from bayesfac.sklearn import pairs as of_pairs
from bayesfac.sklearn.base import shelf
from bayesfac.testing import CHECKS
from bayesfac.testing.tools import points
from tests.inference.test_geweke import THRESHOLD, z_scores
from tests.tools.by_commit import shuffled

PRIORS = [bf.NormalWishart(), bf.Relevance(), bf.Spherical()]
SPARSE = [bf.SpikeAndSlab(), bf.Horseshoe()]
REAL = bf.Normal, bf.StudentT  # laws of scores that are the values themselves
LAWS = [kind() for kind in compose.LAWS.values()]
LAWS += [bf.Normal(per="user"), bf.Normal(per="item")]
LAWS += [bf.Ordinal(thresholds="user"), bf.Ordinal(spread="user")]
COUPLINGS = [kind() for kind in compose.COUPLINGS.values()]
EVERY = {
    made.name: made
    for rows, columns, law, biases in product(PRIORS, PRIORS, LAWS, (False, True))
    for made in [bf.factorization(rows, columns, law, biases=biases)]
}
EVERY |= {
    made.name: made
    for rows, columns, law in product([*PRIORS, *SPARSE], SPARSE, LAWS)
    for made in [bf.factorization(rows, columns, law)]
}
EVERY |= {
    made.name: made
    for rows, law in product([*PRIORS, *SPARSE, bf.NonNegative()], LAWS)
    if not law.has_draws
    and not (rows.positive and (type(law) not in REAL or getattr(law, "per", None)))
    for made in [bf.factorization(rows, observed=law, structure="tensor")]
}
EVERY |= {
    made.name: made
    for rows, law in product([*PRIORS, bf.NonNegative()], REAL)
    for made in [bf.factorization(rows, bf.NonNegative(), law())]
}
# rows that depend on one another: with every law, with every prior, on both sides, in both structures
EVERY |= {
    made.name: made
    for law, along in zip(LAWS, cycle(COUPLINGS), strict=False)
    for made in [bf.factorization(along, observed=law)]
}
EVERY |= {
    made.name: made
    for made in (
        bf.factorization(bf.Spherical() + bf.Graph(), bf.Spherical() + bf.Graph(), biases=True),
        bf.factorization(bf.Relevance() + bf.RandomWalk(), bf.Relevance() + bf.AutoRegressive()),
        bf.factorization(bf.Relevance(), bf.Spherical() + bf.AutoRegressive(), bf.StudentT()),
        bf.factorization(bf.Spherical(), bf.Graph(), bf.Bernoulli("probit"), biases=True),
        bf.factorization(bf.NonNegative(), bf.Relevance() + bf.RandomWalk()),
        bf.factorization(bf.Spherical() + bf.RandomWalk(), bf.SpikeAndSlab()),
        bf.factorization(bf.Graph(), bf.Horseshoe(), bf.StudentT()),
        bf.factorization(structure="tensor", modes={"week": bf.RandomWalk()}),
        bf.factorization(bf.Relevance(), structure="tensor", modes={"week": bf.RandomWalk()}),
        bf.factorization(
            bf.Spherical() + bf.AutoRegressive(), None, bf.NegativeBinomial(), structure="tensor"
        ),
    )
}
# what differs from combination to combination; what engines do with a record has tests of its own
QUICK = (
    "structure",
    "sites",
    "joint",
    "parts",
    "slopes",
    "gauge",
    "conditionals",
    "descent",
    "predict",
)
TABLE = bf.datasets.make_gaussian(60, 40, 2, noise=0.3, seed=0)[0]
CELLS = bf.datasets.make_tensor((20, 12, 6), 2, noise=0.3, density=0.5, seed=0)[0]
TENSOR = bf.factorization(bf.Relevance(), structure="tensor")
WEEKS = bf.factorization(structure="tensor", modes={"week": bf.RandomWalk()})


@pytest.mark.parametrize("name", shuffled(sorted(EVERY))[:2])
def test_the_contract_of_some_combinations(name, key):
    for check in QUICK:
        CHECKS[check](EVERY[name], key)


@pytest.mark.slow
@pytest.mark.parametrize("check", [*QUICK, "moves", "variational", "observed", "unseen", "mask"])
@pytest.mark.parametrize("name", sorted(EVERY))
def test_the_contract_of_every_combination(name, check, key):
    CHECKS[check](EVERY[name], key)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "spherical_graph_spherical_graph_normal_biases",
        "relevance_random_walk_relevance_auto_regressive_normal",
    ],
)
def test_sweeps_of_rows_that_depend_on_one_another_leave_the_prior_alone(name):
    """Geweke's joint test. 400 chains have too few: precisions of biases mix slowly and have long tails."""
    z = z_scores(EVERY[name], {}, chains=1600)
    assert np.abs(z).max() < THRESHOLD, f"z scores up to {np.abs(z).max():.1f}"


@pytest.mark.parametrize("check", ["moves", "descent"])
@pytest.mark.parametrize(
    "sides", [(bf.Spherical(), bf.Relevance()), (bf.NormalWishart(), bf.Spherical())]
)
def test_scales_of_given_against_learned_precisions(sides, check, key):
    """The scale is then a Gamma number, and where J is lowest has no second root."""
    CHECKS[check](bf.factorization(*sides), key)


def test_vb_of_sparse_rows(key):
    CHECKS["variational"](bf.factorization(bf.Spherical(1.0), bf.SpikeAndSlab()), key)


def test_vb_of_biases_with_learned_precisions(key):
    CHECKS["variational"](bf.factorization(biases=True), key)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("bpmf", bf.factorization(bf.NormalWishart())),
        ("ard_mf", bf.factorization(bf.Relevance())),
        (
            "ordinal_mf",
            bf.factorization(bf.NormalWishart(), observed=bf.Ordinal(thresholds="user")),
        ),
        ("cp", bf.factorization(structure="tensor")),
    ],
)
def test_a_composition_is_the_method_of_the_paper(name, model, key):
    """Up to constants: J, the joint, and the conditionals of all rows."""
    method = REGISTRY[name]
    data, hyper = method.example(key)
    own = model.prepare(data, model.Hyper(**hyper._asdict()))
    assert name in model.notes.remarks(None, data, own)[0]
    gaps = []
    for p in points(method, key, data, hyper, 3):
        q = model.Params(**{n: v for n, v in p._asdict().items() if n in model.Params._fields})
        J = float(method.objective(p, data, hyper)), float(model.objective(q, data, own))
        joint = log_joint(method, p, data, hyper), log_joint(model, q, data, own)
        gaps.append([J[0] - J[1], float(joint[0] - joint[1])])
    np.testing.assert_allclose(np.ptp(gaps, 0), 0, atol=1e-8)


def test_a_point_of_any_priors_predicts_as_that_of_bpmf():
    train, test = bf.split.holdout(TABLE, 0.1, seed=0)

    def error(model):
        fit = bf.fit(model, train, n_components=2, progress=False)
        assert fit.converged
        return bf.metrics.rmse(test.value, fit.predict(test).mean)

    usual = error("bpmf")
    assert error(bf.factorization(bf.Relevance())) == pytest.approx(usual, rel=1e-3)
    assert error(bf.factorization(bf.Spherical(), bf.NormalWishart())) < 1.1 * usual
    assert error(bf.factorization(bf.NormalWishart(), biases=True)) < 1.1 * usual


def test_a_coupling_is_added_from_either_side():
    assert bf.Graph(2.0) + bf.Relevance() == bf.Relevance() + bf.Graph(2.0)


def test_settings_that_nobody_tried_are_told():
    fit = bf.fit(MODEL, TABLE, n_components=2, progress=False)
    assert any("nobody has tried them" in note for note in fit.result.notes)


def test_a_point_with_biases_begins_near_its_end(key):
    model = bf.factorization(biases=True)
    h = settle(model, TABLE, {"n_components": 2})
    J = [
        model.objective(p, TABLE, h)
        for p in (model.init(key, TABLE, h), model.solver.start(key, TABLE, h))
    ]
    fit = bf.fit(model, TABLE, n_components=2, progress=False)
    assert abs(J[1] - fit.trace.ravel()[-1]) < 0.1 * abs(J[0] - J[1])


@pytest.mark.parametrize(
    ("one", "two"),
    [(Gammas("t"), Gammas("t")), (Given("sd"), Wishart("L")), (Wishart("L"), Given("sd"))],
)
def test_factors_take_coordinates_in_which_precisions_have_their_forms(one, two, key):
    """Products stay, and so does what both priors say of the rows."""
    given = Scales(2, 1.0, 0.01, 1.0, 0.1)
    h = type("Settings", (), {"sd": 0.7, **given._asdict()})
    main = Factor("user", "U", one), Factor("item", "V", two)
    before = []
    for number, own in enumerate(jax.random.split(key)):
        a, b, c = jax.random.split(own, 3)
        root = jax.random.normal(a, (2, 2))
        P = root @ root.T + jnp.eye(2)
        mean = jax.random.normal(b, (4 + number, 2))
        before.append(Side(mean, jnp.zeros((4, 2, 2)), jax.random.normal(c, (2,)), P))
    after = formed(main, before, h)
    for f, side in zip(main, after, strict=True):
        P = side.precision
        np.testing.assert_allclose(P, jnp.diag(jnp.diag(P)), atol=1e-9)
        if isinstance(f.precision, Given):
            np.testing.assert_allclose(P, jnp.eye(2) / 0.7**2, rtol=1e-6)
    if one == two:
        np.testing.assert_allclose(after[0].precision, after[1].precision, rtol=1e-6)
    for old, new in ((before, after),):
        products = [u.mean @ v.mean.T for u, v in (old, new)]
        np.testing.assert_allclose(*products, atol=1e-9)
        for a, b in zip(old, new, strict=True):
            squares = [jnp.sum((s.mean - s.mu) @ s.precision * (s.mean - s.mu), 1) for s in (a, b)]
            np.testing.assert_allclose(*squares, rtol=1e-6)


def test_modes_take_the_nearest_diagonal_precision_of_all(key):
    """Products stay, and variances too if they are alike in all modes."""
    P, mean = jnp.array([[2.0, 0.7], [0.7, 1.0]]), jax.random.normal(key, (3, 4, 2))
    sizes, mu = jnp.array([[1.0, 1.0], [2.0, 0.5], [0.5, 2.0]]), jnp.array([0.3, -0.4])
    for part in (bf.Relevance(), bf.Spherical()):
        main = [part.keyed(mode) for mode in "abc"]
        before = [
            Side(s * u, jnp.zeros((4, 2, 2)), s * mu, P / jnp.outer(s, s))
            for s, u in zip(sizes, mean, strict=True)
        ]
        after = diagonal(main, before)
        variance = jnp.diag(jnp.linalg.inv(P)) + (0 if main[0].mean else mu**2)
        for side, u in zip(after, mean, strict=True):
            np.testing.assert_allclose(side.precision, jnp.diag(1 / variance), rtol=1e-6)
            np.testing.assert_allclose(side.mean, u, rtol=1e-6)
            np.testing.assert_allclose(side.mu, mu, rtol=1e-6)


def test_tensors_begin_near_their_values(key):
    """Annealed draws leave little more than their noise, of a third of the variance at the end."""
    h = settle(TENSOR, CELLS, {"n_components": 2})
    p = TENSOR.init(key, CELLS, h)
    rest = CELLS.y - h.offset - TENSOR.parts.at(h).scores(p, CELLS)
    assert jnp.mean(rest**2) < CELLS.spread**2 / 3


@pytest.mark.parametrize("rows", PRIORS, ids=lambda rows: type(rows).__name__)
def test_a_point_of_a_tensor_predicts_with_any_prior(rows):
    train, test = bf.split.holdout(CELLS, 0.1, seed=0)
    model = bf.factorization(rows, structure="tensor")
    fit = bf.fit(model, train, n_components=2, progress=False)
    assert fit.converged
    assert bf.metrics.rmse(test.value, fit.predict(test).mean) < 0.3 * 1.2  # the noise, and a fifth


def test_usual_scales_of_tensors():
    """Those of cp; and the largest variances of relevance multiply to those of a matrix."""
    own = {"n_components": 3}
    usual = settle(REGISTRY["cp"], CELLS, own)
    assert settle(bf.factorization(structure="tensor"), CELLS, own).rate == usual.rate
    rate, matrix = (
        settle(model, data, own).tau_rate * 3**2
        for model, data in ((TENSOR, CELLS), (bf.factorization(bf.Relevance()), TABLE))
    )
    assert (rate**3 / CELLS.spread**2) == pytest.approx(matrix**2 / TABLE.spread**2)
    h = settle(bf.factorization(bf.Spherical(), structure="tensor"), CELLS, own)
    assert 3 * h.scale**6 == pytest.approx(CELLS.spread**2 / 4)


def test_components_of_mixed_precisions_change_signs_together():
    model = bf.factorization(bf.NormalWishart(), bf.Relevance())
    (free,) = gauge_of(model, ["U", "V", "mu_U", "mu_V", "Lambda_U", "tau_V"])
    assert free.forms == ("Lambda_U",) and "Lambda_U" in free.signed and "tau_V" not in free.signed


# -- recipes -----------------------------------------------------------------------------------------------
MODEL = bf.factorization(bf.NormalWishart(), bf.Relevance(tau_shape=1.0), biases=True)


def test_one_record_for_one_recipe():
    again = bf.factorization(
        bf.NormalWishart, bf.Relevance(tau_shape=1.0), bf.Normal(), biases=True
    )
    assert again is MODEL and compose.of_recipe(MODEL.recipe) is MODEL
    assert pickle.loads(pickle.dumps(MODEL)) is MODEL
    data, hyper = MODEL.example(jax.random.key(0))
    assert pickle.loads(pickle.dumps(hyper)) == hyper
    p = MODEL.init(jax.random.key(0), data, hyper)
    assert type(pickle.loads(pickle.dumps(p))) is MODEL.Params
    assert bf.factorization(bf.NormalWishart(), bf.Relevance(), biases=True) is not MODEL


def test_a_tensor_has_one_recipe(tmp_path):
    assert bf.factorization(bf.Relevance, features=False, structure="tensor") is TENSOR
    assert pickle.loads(pickle.dumps(TENSOR)) is TENSOR
    (tmp_path / "model.toml").write_text('rows = "Relevance"\nstructure = "tensor"\n')
    assert compose.read(tmp_path / "model.toml") is TENSOR


def test_a_recipe_of_rows_that_depend_on_one_another(tmp_path):
    rows, columns = bf.Relevance() + bf.RandomWalk(step=0.5), bf.NormalWishart() + bf.Graph()
    model = bf.factorization(rows, columns)
    assert model.name == "relevance_random_walk_normal_wishart_graph_normal"
    assert compose.of_recipe(json.loads(json.dumps(model.recipe))) is model
    assert pickle.loads(pickle.dumps(model)) is model
    (tmp_path / "model.toml").write_text(
        'columns = {part = "NormalWishart", along = "Graph"}\n'
        'rows = {part = "Relevance", along = {part = "RandomWalk", step = 0.5}}\n'
    )
    assert compose.read(tmp_path / "model.toml") is model
    assert bf.factorization(bf.Graph) is bf.factorization(bf.NormalWishart() + bf.Graph())
    assert bf.factorization(bf.Graph()).recipe["columns"] == bf.factorization().recipe["columns"]
    for mode in ("week", "user", "the week"):  # "user" is an axis of a matrix too
        tensor = bf.factorization(structure="tensor", modes={mode: bf.RandomWalk()})
        assert compose.of_recipe(json.loads(json.dumps(tensor.recipe))) is tensor
        assert tensor.recipe["modes"][mode]["part"] == "RandomWalk"
    assert "step_the_week" in tensor.Hyper._fields


def test_what_a_model_of_rows_that_depend_on_one_another_prints():
    said = repr(bf.factorization(bf.AutoRegressive(), bf.Relevance()))
    for text in (
        "rows of users depend on one another",
        "u_t ~ N(r u_(t-1), 1 - r^2)",
        "shifted by the features of the item",
        "Engines: FixedPoint, LBFGS, MAP, SVI, NUTS, Gibbs, Quick.",
        "VB: rows depend on one another",
    ):
        assert text in said
    assert "features of the user" not in said
    tensor = repr(bf.factorization(structure="tensor", modes={"week": bf.RandomWalk()}))
    assert "rows of week depend on one another" in tensor and "VB: rows depend" in tensor


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "model.toml",
            'rows = "NormalWishart"\ncolumns = {part = "Relevance", tau_shape = 1.0}\nbiases = true\n',
        ),
        (
            "model.json",
            '{"rows": "NormalWishart", "columns": {"part": "Relevance", "tau_shape": 1.0}, "biases": true}',
        ),
    ],
)
def test_a_recipe_in_a_file(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    assert compose.read(tmp_path / file) is MODEL


def test_a_recipe_in_a_file_is_a_method(tmp_path, capsys):
    (tmp_path / "model.toml").write_text(
        'observed = {part = "StudentT", nu = 5.0}\nname = "mine"\n'
    )
    fit = bf.fit(str(tmp_path / "model.toml"), TABLE, n_components=2, progress=False)
    assert fit.name == "mine" and fit.hyper.nu == 5.0
    out, recipe = tmp_path / "out", tmp_path / "model.toml"
    said = main(["fit", str(recipe), "ratings", "--set", "n_components=2", "-q", "--out", str(out)])
    assert said == 0 and bf.load(out).method is fit.method
    assert main(["fit", str(tmp_path / "none.toml"), "ratings", "-q"]) != 0
    assert "none.toml" in capsys.readouterr().err
    recipe.write_text("rows = ")
    with pytest.raises(ValueError, match="Expected a recipe in .*model.toml, got"):
        compose.read(recipe)


def test_a_saved_fit_loads_in_another_process(tmp_path):
    fit = bf.fit(MODEL, TABLE, n_components=2, progress=False)
    fit.save(tmp_path / "fit")
    assert bf.load(tmp_path / "fit").method is MODEL
    code = "import sys, bayesfac as bf; print(bf.load(sys.argv[1]).predict(([0], [0])).mean[0])"
    place = str(tmp_path / "fit")
    said = subprocess.run(
        [sys.executable, "-c", code, place], capture_output=True, text=True, check=True
    )
    assert float(said.stdout) == pytest.approx(float(fit.predict(([0], [0])).mean[0]))


def test_draws_know_their_recipe():
    fit = bf.fit(MODEL, TABLE, bf.Gibbs(5, 10, 1), n_components=2, progress=False)
    tree = fit.datatree(TABLE)
    assert set(bf.align(tree).turned) >= {"U", "V", "Lambda_U", "tau_V"}
    assert "Relevance" in tree.attrs["recipe"]


def test_what_a_model_prints():
    said = repr(MODEL)
    for text in (
        "rows NormalWishart, columns Relevance, observed Normal",
        "x_ij = u_i.v_j + b_i + c_j",
        "tau_V         component",
        "Engines: FixedPoint, LBFGS, MAP, SVI, NUTS, Gibbs, Quick, VB.",
    ):
        assert text in said
    levels = bf.factorization(observed=bf.Ordinal(), biases=True)
    assert "VB: " in repr(levels) and "FixedPoint: " in repr(levels)


def test_estimators_of_scikit_learn():
    pairs, wide = (module.estimator(MODEL) for module in (of_pairs, bf.sklearn))
    assert pairs is of_pairs.estimator(MODEL.recipe) and pairs is not wide
    assert pairs is pickle.loads(pickle.dumps(pairs))
    frame = TABLE.frame()
    X, y = frame[["user", "item"]], frame["rating"]
    made = pairs(n_components=2, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(made.predict(X), again.predict(X))
    assert clone(made).get_params()["tau_shape"] == 1.0
    assert of_pairs.estimator("bpmf") is of_pairs.bpmf
    with pytest.raises(TypeError, match="Expected a method of Views, got one of Ratings"):
        shelf("m", {}, {"Views": object})[2](MODEL)


def test_what_a_tensor_prints():
    said = repr(TENSOR)
    for text in (
        "rows of all modes Relevance, observed Normal",
        "x_c = sum_k u_ik v_jk ... w_tk",
        "v_j, ..., w_t likewise, with one tau for all",
        "U.MODE        mode x component",
        "tau           component",
        "Engines: FixedPoint, LBFGS, MAP, SVI, NUTS, Gibbs, Quick, VB.",
    ):
        assert text in said
    assert "user" not in said


# -- what is refused ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: bf.factorization(bf.Normal()), "Expected rows to be one of bf.NormalWishart()"),
        (lambda: bf.factorization("bpmf"), "Expected rows to be one of .* got 'bpmf'"),
        (
            lambda: bf.factorization(observed=bf.Relevance()),
            "Expected observed to be one of bf.Normal",
        ),
        (
            lambda: bf.factorization(bf.NormalWishart(beta0=2), bf.Relevance()),
            "Expected the same beta0 for rows and columns, got 2 and 0.01",
        ),
        (
            lambda: bf.SpikeAndSlab(spyke=0.1),
            "setting of SpikeAndSlab 'spyke'; did you mean 'spike'",
        ),
        (lambda: bf.Normal(pre="item"), "setting of Normal 'pre'; did you mean 'per'"),
        (
            lambda: bf.fit(bf.factorization(columns=bf.SpikeAndSlab(spike=np.nan)), TABLE),
            "Expected spike to be .*, got nan",
        ),
        (
            lambda: bf.Relevance() + bf.Graph() + bf.RandomWalk(),
            "Expected one of RandomWalk, AutoRegressive and Graph, got",
        ),
        (lambda: bf.NonNegative() + bf.Graph(), "Expected a prior of normal rows to add Graph"),
        (
            lambda: bf.factorization(bf.NonNegative(), bf.Horseshoe()),
            "Expected no Horseshoe.* beside bf.NonNegative",
        ),
        (
            lambda: bf.factorization(bf.NonNegative(), observed=bf.Normal(per="item")),
            "Expected one noise with bf.NonNegative",
        ),
        (lambda: bf.factorization(n_components=0), "n_components"),
        (lambda: compose.of_recipe({"row": "Normal"}), "did you mean 'rows'"),
        (lambda: compose.of_recipe({"rows": "NormalWishrt"}), "did you mean 'NormalWishart'"),
        (lambda: compose.of_recipe({"rows": {"part": "Relevance", "shape": 1}}), "tau_shape"),
        (lambda: bf.fit(MODEL, TABLE, tau_rat=2.0), "did you mean 'tau_rate'"),
        (lambda: bf.fit(MODEL, TABLE, tau_rate="a"), "Expected tau_rate to be a number"),
        (
            lambda: bf.fit(bf.factorization(observed=bf.Ordinal()), TABLE),
            "Expected ordinal ratings",
        ),
        (
            lambda: bf.factorization(structure="cube"),
            "Expected structure to be one of .* got 'cube'",
        ),
        (
            lambda: bf.factorization(columns=bf.Relevance(), structure="tensor"),
            "Expected no columns .* leave columns out",
        ),
        (
            lambda: bf.factorization(biases=True, structure="tensor"),
            "Expected biases=False .* raise n_components",
        ),
        (
            lambda: bf.factorization(observed=bf.Bernoulli(), structure="tensor"),
            r"need draws of scores, .* structure='matrix' takes bf.Bernoulli\(\)",
        ),
        (
            lambda: bf.fit(TENSOR, CELLS, n_components=73),
            "the product of all modes but the largest",
        ),
        (lambda: bf.fit(TENSOR, CELLS, modes=("a", "b", "c")), "Expected the modes of the data"),
        (
            lambda: bf.factorization(bf.Graph(), structure="tensor"),
            r"got bf.Graph\(\): a tensor has no graph",
        ),
        (
            lambda: bf.factorization(structure="tensor", modes={"week": bf.Relevance()}),
            r"Expected bf.RandomWalk\(\) or bf.AutoRegressive\(\) for the mode 'week'",
        ),
        (
            lambda: bf.factorization(modes={"item": bf.RandomWalk()}),
            "Expected modes with structure='tensor' alone",
        ),
        (
            lambda: bf.fit(WEEKS, CELLS, n_components=2),
            r"Expected modes among \('mode_1', 'mode_2', 'mode_3'\), got 'week'",
        ),
        (
            lambda: bf.fit(bf.factorization(bf.Graph()), TABLE, n_components=2),
            "Expected a graph of users, .*user_graph=edges",
        ),
        (
            lambda: bf.fit(bf.factorization(bf.AutoRegressive(1.0)), TABLE, n_components=2),
            "Expected correlation_user to be below 1, got 1.0",
        ),
        (
            lambda: bf.fit(bf.factorization(bf.RandomWalk(-1.0)), TABLE, n_components=2),
            "Expected step_user to be a finite number above 0, got -1.0",
        ),
        (lambda: bf.Normal() + bf.Graph(), "unsupported operand"),
        (
            lambda: compose.of_recipe({"rows": {"part": "Relevance", "along": "Grap"}}),
            "did you mean 'Graph'",
        ),
    ],
    ids=[
        "law_as_rows",
        "name_as_rows",
        "rows_as_law",
        "two_beta0",
        "setting_of_a_prior",
        "setting_of_a_law",
        "nan",
        "two_couplings",
        "coupled_nonnegative",
        "sparse_nonnegative",
        "noises_of_nonnegative",
        "no_components",
        "entry",
        "part",
        "setting",
        "setting_of_a_fit",
        "type",
        "real_values",
        "structure",
        "columns_of_a_tensor",
        "biases_of_a_tensor",
        "draws_of_a_tensor",
        "components_of_a_tensor",
        "modes",
        "graph_of_a_tensor",
        "prior_of_a_mode",
        "modes_of_a_matrix",
        "modes_that_the_data_lack",
        "no_graph",
        "correlation",
        "step",
        "law_with_a_graph",
        "coupling",
    ],
)
def test_what_is_refused(wrong, says):
    with pytest.raises((TypeError, ValueError, UnknownName), match=says):
        wrong()
