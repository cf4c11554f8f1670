"""`pmf` with heavy tails: a law whose quantiles NumPyro has only with packages that nobody must install."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.math import inner
from bayesfac.models.ratings import pmf
from tests.tools.records import changed

DF = 5.0


def law(p, data, h):
    mean = pmf.offsets(p, data.cells, h) + inner(p.U, p.V, data.cells)
    return dist.StudentT(DF, mean, h.noise)


def priors(data, h):
    (n, m), K = data.shape, h.n_components
    laws = {"U": (h.scale_user, (n, K)), "V": (h.scale_item, (m, K))}
    laws |= {"bias_user": (h.scale_bias, (n,)), "bias_item": (h.scale_bias, (m,))}
    return {site: dist.Normal(0, s).expand(size).to_event() for site, (s, size) in laws.items()}


def model(data, h):
    p = pmf.Params(**{site: numpyro.sample(site, of) for site, of in priors(data, h).items()})
    with numpyro.plate("cell", len(data.cells.row)):
        numpyro.sample("rating", law(p, data, h), obs=data.y)


def objective(p, data, h):
    prior = (of.log_prob(getattr(p, site)) for site, of in priors(data, h).items())
    return -jnp.sum(law(p, data, h).log_prob(data.y)) - sum(prior)


def predict(p, query, h):
    normal = pmf.METHOD.predict(p, query, h)
    return dist.StudentT(DF, normal.loc, normal.scale)


METHOD = changed(
    pmf.METHOD, name="student", model=model, objective=objective, predict=predict,
    update=None, conditionals={}, candidates=None,
)  # fmt: skip
