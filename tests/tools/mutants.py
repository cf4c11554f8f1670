"""Known mistakes, each with the check that has to find it; one for the golden step of every method."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.cells import Grid
from bayesfac.core.data.graphs import degrees
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.sparse import ratio_step, spread
from bayesfac.core.math import normalise
from bayesfac.core.method import REGISTRY, laws_of
from bayesfac.labels.models.labels import leml
from bayesfac.labels.models.tasks import _layer_sweeps as sweeps
from bayesfac.labels.models.tasks import heres, himls, himlsd, lsa_mml
from bayesfac.models.ratings import bpmf, pmf
from bayesfac.models.topics import _graph_smoothing as smooth
from bayesfac.models.topics import _words as topics
from bayesfac.models.topics import mggm, mvplsa, plsa
from bayesfac.parts.observed.normal import Normal
from tests.tools import student
from tests.tools.records import changed, entry

MUTANTS = {}


def plant(method, field, check):
    """Put the function below in place of a field of the record, as a mistake that `check` finds."""

    def register(function):
        name, _, key = field.partition(".")
        wrong = {**entry(method, name), key: function} if key else function
        label = f"{method.name}: {function.__name__.replace('_', ' ')}"
        MUTANTS[label] = check, changed(method, **{name: wrong})
        return function

    return register


# -- pmf ------------------------------------------------------------------------------------------
P = pmf.METHOD


@plant(P, "objective", "joint")
def a_whole_for_a_half(p, data, h):
    return pmf.objective(p, data, h) + 0.5 * jnp.sum(p.U**2) / h.scale_user**2


@plant(P, "objective", "joint")
def a_mean_for_a_sum(p, data, h):
    return pmf.objective(p, data, h) / len(data.y)


@plant(P, "objective", "joint")
def one_cell_is_forgotten(p, data, h):
    i, j = data.cells.row[0], data.cells.col[0]
    residual = data.y[0] - h.offset - p.bias_user[i] - p.bias_item[j] - p.U[i] @ p.V[j]
    return pmf.objective(p, data, h) - 0.5 * (residual / h.noise) ** 2


@plant(P, "model", "joint")
def precision_for_scale_in_the_model(data, h):
    pmf.model(data, h._replace(scale_user=h.scale_user**-2))


@plant(P, "model", "map")
def prior_of_the_biases_dropped_from_the_model(data, h):
    pmf.model(data, h._replace(scale_bias=1e6))


@plant(P, "objective", "slopes")
def right_value_and_wrong_gradient(p, data, h):
    still = jax.lax.stop_gradient(p.V)
    return pmf.objective(p, data, h) + 0.5 * jnp.sum(still**2 - p.V**2)


@plant(P, "update", "descent")
def jacobi_sweep_with_stale_factors(p, data, h):
    return p._replace(**{site: f(p, data, h).mean for site, f in laws_of(P, p).items()})


@plant(P, "update", "optimum")
def update_forgets_the_noise(p, data, h):
    return P.solver.update(p, data, h._replace(noise=1.0))


@plant(P, "update", "optimum")
def update_ignores_a_cell(p, data, h):
    """The first rating counts as one of zero."""
    return pmf.METHOD.solver.update(
        p, jax.tree.map(lambda x: x.at[0].set(0) if x is data.y else x, data), h
    )


@plant(P, "update", "relabelling")
def update_treats_the_first_row_apart(p, data, h):
    q = P.solver.update(p, data, h)
    return q._replace(U=q.U.at[0].multiply(1.01))


@plant(P, "update", "tree")
def update_falls_back_to_single_precision(p, data, h):
    return jax.tree.map(jnp.float32, P.solver.update(p, data, h))


@plant(P, "conditionals.U", "conditionals")
def conditional_forgets_the_noise(p, data, h):
    return P.gibbs.conditionals["U"](p, data, h._replace(noise=1.0))


def cost_of_zeros(p, data, h):
    """What nobody rated counts as a rating of the mean."""
    dense = p.bias_user[:, None] + p.bias_item + p.U @ p.V.T
    seen = dense[data.cells.row, data.cells.col]
    return 0.5 * (jnp.sum(dense**2) - jnp.sum(seen**2)) / h.noise**2


def model_with_zeros(data, h):
    with numpyro.handlers.trace() as trace:
        pmf.model(data, h)
    p = pmf.Params(*(trace[site]["value"] for site in pmf.Params._fields[:4]))
    numpyro.factor("rating", -cost_of_zeros(p, data, h))


@plant(replace(P, model=model_with_zeros), "objective", "mask")
def missing_cells_are_zeros_everywhere(p, data, h):
    return pmf.objective(p, data, h) + cost_of_zeros(p, data, h)


@plant(P, "objective", "backends")
def padding_is_read(p, data, h):
    rows = data.cells.by_row
    at = sparse.chunks(rows)
    read = jnp.sum(jnp.where(at < 0, p.V[rows.index[at], 0] ** 2, 0))
    return pmf.objective(p, data, h) + (read if sparse.backend() == "jax" else 0)


@plant(P, "init", "sites")
def init_leaves_sites_out(key, data, h):
    return P.init(key, data, h._replace(biases=False))


@plant(P, "model", "prior")
def hidden_ratings_are_not_sampled(data, h):
    pmf.model(data if data.y is not None else data.fill({"rating": data.host.value}), h)


@plant(P, "predict", "predict")
def blocks_are_predicted_upside_down(p, query, h):
    upside_down = query._replace(row=query.row[::-1]) if isinstance(query, Grid) else query
    return pmf.METHOD.predict(p, upside_down, h)


@plant(P, "predict", "observed")
def predictions_forget_the_offset(p, query, h):
    return pmf.METHOD.predict(p, query, h._replace(offset=0.0))


@plant(P, "predict", "observed")
def intervals_forget_the_noise(p, query, h):
    return pmf.METHOD.predict(p, query, h._replace(noise=0.1 * h.noise))


@plant(replace(P, model=student.model), "predict", "observed")
def student_t_forgets_the_offset(p, query, h):
    return student.predict(p, query, h._replace(offset=0.0))


MUTANTS["pmf: axes exchanged"] = (
    "structure",
    changed(P, dims={**P.axes.dims, "U": ("item", "component")}),
)
MUTANTS["pmf: U turns alone"] = (
    "gauge",
    changed(P, gauge=(replace(P.axes.gauge("UV")[0], axes={"U": 1}),)),
)

# -- bpmf -----------------------------------------------------------------------------------------
B = bpmf.METHOD


@plant(B, "objective", "joint")
def log_alpha_counted_once_more(p, data, h):
    return bpmf.objective(p, data, h) - 0.5 * jnp.log(p.alpha)


@plant(B, "model", "joint")
def prior_of_the_means_dropped(data, h):
    bpmf.model(data, h._replace(beta0=1e-6))


@plant(B, "update", "optimum")
def wishart_mode_off_by_one(p, data, h):
    """(nu - K) times the scale matrix, where nu - K - 1 = n belongs."""
    q = B.solver.update(p, data, h)
    return q._replace(Lambda_U=q.Lambda_U * (len(p.U) + 1) / len(p.U))


@plant(B, "update", "optimum")
def a_block_is_frozen(p, data, h):
    return B.solver.update(p, data, h)._replace(alpha=p.alpha)


@plant(B, "conditionals.Lambda_U", "conditionals")
def the_mean_itself_is_no_row(p, data, h):
    right = B.gibbs.conditionals["Lambda_U"](p, data, h)
    S = right.rate_matrix - h.beta0 * jnp.outer(p.mu_U, p.mu_U)
    return dist.Wishart(right.concentration, rate_matrix=S)


@plant(B, "conditionals.alpha", "conditionals")
def noise_from_half_the_cells(p, data, h):
    right = B.gibbs.conditionals["alpha"](p, data, h)
    return dist.Gamma(h.alpha_shape + 0.25 * len(data.y), right.rate)


class Sharper(Normal):
    """Values about scores that are a tenth larger."""

    def energy(self, p, x, data, h):
        return super().energy(p, 1.1 * x, data, h)


MUTANTS["bpmf: parts with other scores"] = (
    "parts", replace(B, parts=replace(B.parts, observed=Sharper()))
)  # fmt: skip


@plant(B, "moves.rescale", "moves")
def one_side_moves_alone(key, p, data, h):
    return B.gibbs.moves["rescale"](key, p, data, h)._replace(V=p.V)


# -- plsa -----------------------------------------------------------------------------------------
L = plsa.METHOD


@plant(L, "update", "optimum")
def concentration_a_for_a_minus_one(p, data, h):
    return plsa.update(p, data, h._replace(a=h.a + 1))


@plant(L, "update", "tree")
def topics_are_not_normalised(p, data, h):
    (cells,), (y,) = data.cells.values(), data.y.values()
    RC, RA = ratio_step(cells, y, p.A, p.C.T)
    return plsa.Params(normalise(h.a - 1 + p.A * RC, p.A), h.c - 1 + p.C * RA.T)


@plant(L, "update", "optimum")
def topics_are_frozen(p, data, h):
    return plsa.update(p, data, h)._replace(C=p.C)


@plant(L, "update", "golden")
def step_is_over_relaxed(p, data, h):
    """It descends and converges to the right place: only the step itself gives it away."""
    q = plsa.update(p, data, h)
    return q._replace(A=normalise(p.A * (q.A / p.A) ** 1.5, p.A))


@plant(L, "model", "joint")
def prior_of_the_topics_dropped(data, h):
    plsa.model(data, h._replace(c=1.0))


@plant(L, "objective", "gauge")
def one_topic_is_dearer(p, data, h):
    return plsa.objective(p, data, h) + p.A[0, 0]


# -- mvplsa ---------------------------------------------------------------------------------------
M = mvplsa.METHOD


def crossed(tables):
    return dict(zip(tables, list(tables.values())[::-1], strict=True))


@plant(M, "objective", "joint")
def topics_of_another_view(p, data, h):
    return mvplsa.objective(p._replace(B=crossed(p.B)), data, h)


@plant(M, "update", "optimum")
def update_takes_the_topics_of_another_view(p, data, h):
    return mvplsa.update(p._replace(B=crossed(p.B)), data, h)


@plant(M, "objective", "joint")
def prior_of_the_clusters_once_per_view(p, data, h):
    return mvplsa.objective(p, data, h) - (h.a - 1) * jnp.sum(jnp.log(p.A))


@plant(M, "update", "tree")
def topics_normalised_over_the_clusters(p, data, h):
    q = mvplsa.update(p, data, h)
    return q._replace(B={name: normalise(B.T, B.T).T for name, B in q.B.items()})


@plant(M, "predict", "observed")
def words_of_another_view(p, query, h):
    return mvplsa.predict(p._replace(B=crossed(p.B)), query, h)


@plant(M, "predict", "predict")
def blocks_are_predicted_by_another_view(p, query, h):
    q = p._replace(B=crossed(p.B)) if isinstance(query, Grid) else p
    return mvplsa.predict(q, query, h)


# -- mggm -----------------------------------------------------------------------------------------
G = mggm.METHOD


@plant(G, "objective", "joint")
def every_edge_counts_twice(p, data, h):
    return mggm.objective(p, data, h._replace(penalty=2 * h.penalty))


@plant(G, "objective", "golden")
def weights_that_sum_to_one_where_their_roots_should(p, data, h):
    return mggm.objective(p._replace(alpha=p.alpha**h.selectivity), data, h)


@plant(G, "update", "optimum")
def the_step_of_15_alone(p, data, h):
    """It stands still where the quadratic in the divergence's place does."""
    V, B, C = topics.em_of_views(p, data, h)
    edges = h.penalty * mggm.weights(p.alpha, h) @ data.graphs.weight
    beside = partial(spread, data.graphs.cells.by_row, edges[data.graphs.edge])
    A = smooth.solve(beside, degrees(data.graphs, edges)[:, None], V, p.A)
    return mggm.Params(normalise(A, A), B, C, mggm.update(p, data, h).alpha)


@plant(G, "update", "optimum")
def weights_that_favour_the_rough_graph(p, data, h):
    q = mggm.update(p, data, h)
    return q._replace(alpha=q.alpha[::-1])


# -- tasks ----------------------------------------------------------------------------------------
S, D, H, A, E = himls.METHOD, himlsd.METHOD, heres.METHOD, lsa_mml.METHOD, leml.METHOD


@plant(S, "objective", "joint")
def the_coupling_leaves_a_view_out(p, data, h):
    gap = jnp.sum((p.M["topics"] - p.M["labels"]) ** 2)
    return himls.objective(p, data, h) - h.coupling * gap


@plant(S, "update", "golden")
def labels_weigh_as_much_as_features(p, data, h):
    return himls.update(p, data, h._replace(weight=1.0))


@plant(S, "update", "optimum")
def the_rate_of_the_prior_counts_twice(p, data, h):
    return himls.update(p, data, h._replace(rate=2 * h.rate))


@plant(D, "objective", "joint")
def the_divergence_of_the_spaces_is_turned_round(p, data, h):
    turned = himlsd.gap({**p.M, "labels": p.M["words"], "words": p.M["labels"]})
    return himlsd.objective(p, data, h) + h.coupling * jnp.sum(turned - himlsd.gap(p.M))


@plant(D, "update", "optimum")
def the_printed_25(p, data, h):
    def view(M, num, den, other, h):
        return (M * num + h.shape - 1 + h.coupling * other) / (den + h.rate + h.coupling)

    return sweeps.sweep(p, data, h, himlsd.DIVERGENCE._replace(view=view))


@plant(H, "objective", "joint")
def the_norms_are_not_smoothed(p, data, h):
    return heres.objective(p, data, h._replace(smooth=1e-6))


@plant(H, "update", "golden")
def sparsity_of_the_rows_to_come(p, data, h):
    return heres.update(heres.update(p, data, h)._replace(B=p.B), data, h)


@plant(H, "conditionals.B", "conditionals")
def bases_of_half_a_precision(p, data, h, w, block):
    right = heres.conditional_B(p, data, h, w, block)
    return type(right)(right.shift, right.precision / 2, right.spans)


@plant(H, "predict", "observed")
def labels_of_half_a_score(p, query, h):
    return heres.predict(p._replace(F=p.F / 2), query, h)


@plant(E, "predict", "observed")
def odds_of_a_label_are_doubled(p, query, h):
    return leml.predict(p._replace(A=2 * p.A), query, h)


@plant(A, "objective", "joint")
def independence_is_sought(p, data, h):
    return lsa_mml.objective(p, data, h._replace(alignment=-h.alignment))


@plant(A, "update", "golden")
def labels_know_no_ridge(p, data, h):
    return lsa_mml.update_W(lsa_mml.update(p, data, h), data, h._replace(ridge=1e-9))


# -- every method ---------------------------------------------------------------------------------
def falling_short(method):
    """A sweep that goes all but a thousandth of the way, and an objective that is a millionth too large.

    A golden step computes a sweep or the objective by hand, and must find one of both.
    """

    def update(p, data, h):
        return jax.tree.map(
            lambda old, new: new + (old - new) / 1000, p, method.solver.update(p, data, h)
        )

    def objective(p, data, h):
        return method.objective(p, data, h) * (1 + 1e-6)

    return changed(method, objective=objective, update=update if method.solver.update else None)


for name, method in sorted(REGISTRY.items()):
    MUTANTS[f"{name}: falls short"] = "golden", falling_short(method)
