"""Known mistakes in variational laws: what an expectation forgets."""

from dataclasses import replace

import jax.numpy as jnp

from bayesfac.core.data.cells import Query
from bayesfac.core.laws import beliefs, dirichlet_rows
from bayesfac.labels.models.tasks import heres
from bayesfac.models.ratings import bpmf, ordinal_mf, pmf, urp
from bayesfac.models.tensors import cp
from bayesfac.models.topics import mvplsa, plsa
from bayesfac.parts.observed.normal import Normal
from tests.tools.mutants import MUTANTS, plant
from tests.tools.records import changed


def plant_law(method, field):
    """Put the function below in place of a field of the method's variational record."""

    def register(function):
        law = method.variational._replace(**{field: function})
        label = f"{method.name}: {function.__name__.replace('_', ' ')}"
        MUTANTS[label] = "variational", replace(method, variational=law)
        return function

    return register


def sure(belief):
    """Rows without variance."""
    return {**belief, "cov": jnp.zeros_like(belief["cov"])}


# -- bpmf ------------------------------------------------------------------------------------------
B = bpmf.METHOD.variational


@plant_law(bpmf.METHOD, "update")
def rows_ignore_the_covariance_of_the_other_side(q, data, h):
    return B.update(q, data, h)._replace(U=B.update(q._replace(V=sure(q.V)), data, h).U)


@plant_law(bpmf.METHOD, "update")
def the_noise_ignores_the_variance_of_products(q, data, h):
    x = jnp.sum(q.U["mean"][data.cells.row] * q.V["mean"][data.cells.col], 1)
    rate = h.alpha_rate + 0.5 * Normal().wide(x, jnp.zeros(()), data, h)
    return B.update(q, data, h)._replace(alpha={**q.alpha, "rate": rate})


@plant_law(bpmf.METHOD, "expected")
def the_bound_ignores_the_uncertainty_of_mu(q, data, h):
    return B.expected(q._replace(mu_U=sure(q.mu_U)), data, h)


# -- ordinal_mf ------------------------------------------------------------------------------------
O = ordinal_mf.METHOD.variational  # noqa: E741


@plant_law(ordinal_mf.METHOD, "update")
def first_thresholds_have_half_their_variance(q, data, h):
    new = O.update(q, data, h)
    return new._replace(U={**new.U, "cov": new.U["cov"].at[:, -1, -1].multiply(0.5)})


@plant_law(ordinal_mf.METHOD, "update")
def the_centre_ignores_its_prior(q, data, h):
    new = O.update(q, data, h)
    free = jnp.concatenate([new.U["mean"][:, -1:], new.theta["gaps"]], 1)
    return new._replace(centre={**new.centre, "mean": free.mean(0)})


@plant_law(ordinal_mf.METHOD, "expected")
def the_bound_ignores_the_uncertainty_of_thresholds(q, data, h):
    return O.expected(q, data, h) + 0.5 * jnp.sum(q.U["cov"][:, -1, -1]) / h.scale_shift**2


# -- cp --------------------------------------------------------------------------------------------
C = cp.METHOD.variational


@plant_law(cp.METHOD, "update")
def a_mode_ignores_the_covariance_of_the_next(q, data, h):
    first, second = data.modes[:2]
    known = C.update(q._replace(U={**q.U, second: sure(q.U[second])}), data, h)
    new = C.update(q, data, h)
    return new._replace(U={**new.U, first: known.U[first]})


@plant_law(cp.METHOD, "expected")
def the_bound_of_a_tensor_ignores_the_uncertainty_of_rows(q, data, h):
    last = data.modes[-1]
    return C.expected(q._replace(U={**q.U, last: sure(q.U[last])}), data, h)


# -- heres -----------------------------------------------------------------------------------------
H = heres.METHOD.variational


@plant_law(heres.METHOD, "update")
def labels_ignore_the_covariance_of_rows(q, data, h):
    known = H.update(q._replace(B={b: sure(own) for b, own in q.B.items()}), data, h)
    return H.update(q, data, h)._replace(F=known.F)


@plant_law(heres.METHOD, "expected")
def the_ridge_ignores_the_covariance_of_columns(q, data, h):
    own = sum(len(x["mean"]) * jnp.trace(x["cov"]) for x in q.B.values())
    return H.expected(q, data, h) + h.beta * own


# -- Dirichlet rows --------------------------------------------------------------------------------
def mean(belief):
    """The means of Dirichlet rows: what their typical values are not."""
    return belief["conc"] / belief["conc"].sum(-1, keepdims=True)


@plant_law(plsa.METHOD, "update")
def shares_of_means(q, data, h):
    """The mean in place of exp E log; in the other examples topics end alike, and it makes no difference."""
    return plsa.METHOD.variational.begin(dirichlet_rows.each(q, mean), data, h)


def plant_in_rows(method):
    """A part of a count that nobody saw, and a term that the bound lacks."""
    law = method.variational

    @plant_law(method, "update")
    def a_fifth_of_a_count_too_many(q, data, h):
        new = law.update(q, data, h)
        return new._replace(A={"conc": new.A["conc"].at[:, 0].add(0.2)})

    @plant_law(method, "expected")
    def the_bound_forgets_the_prior_of_A(q, data, h):
        a = h.alpha if method is urp.METHOD else h.a
        return law.expected(q, data, h) - (a - 1) * jnp.sum(beliefs.expected_log(q.A))


for own in (urp.METHOD, plsa.METHOD, mvplsa.METHOD):
    plant_in_rows(own)


# -- new users and items --------------------------------------------------------------------------
@plant(pmf.METHOD, "predict", "unseen")
def new_users_are_as_sure_as_known_ones(p, query, h):
    """Factors and bias of zero for a new user, without the variance of the prior."""
    if isinstance(query, Query):
        known = jnp.all(query.row >= 0)
        p = p._replace(U=p.U * known, bias_user=p.bias_user * known)
        query = query._replace(row=jnp.maximum(query.row, 0))
    return pmf.METHOD.predict(p, query, h)


@plant(bpmf.METHOD, "predict", "unseen")
def an_unknown_item_is_the_last_one(p, query, h):
    if isinstance(query, Query):
        query = query._replace(col=query.col % len(p.V))
    return bpmf.METHOD.predict(p, query, h)


# -- new rows of views and tasks ------------------------------------------------------------------
@plant(plsa.METHOD, "fold_in", "fold_in")
def new_rows_have_another_prior(p, data, h):
    return plsa.METHOD.fold_in(p, data, h._replace(a=h.a + 1))


@plant(heres.METHOD, "fold_in", "fold_in")
def labels_of_new_rows_weigh_too_much(p, data, h):
    return heres.METHOD.fold_in(p, data, h._replace(weight=3 * h.weight))


# -- symmetries -----------------------------------------------------------------------------------
MUTANTS["pmf: no word of its rotations"] = "gauge", changed(pmf.METHOD, gauge=())
