# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What do I write to add a method of my own, and who checks it?
#
# How often did each of sixty listeners play each of forty records? Often no code is needed: parts of
# factorizations can be combined, and we do this first. These counts need a factorization that is non-
# negative, which no part offers. So we then write such a method: Gamma-Poisson factorization (Cemgil,
# "Bayesian inference for nonnegative matrix factorisation models", 2009). It takes about sixty lines. The
# solver, the samplers, the comparison and the report then work for this method, and the contract (a list of
# checks) tests that its functions agree with each other.

# %%
import os
import warnings
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayesfac as bf
from bayesfac.core import checks
from bayesfac.core.data.cells import Grid
from bayesfac.core.laws.counts import UnsurePoisson
from bayesfac.core.math import inner
from bayesfac.core.method import Axes, Method, Permutation, Sampler, Solver, register

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # few draws, to test the code
warnings.simplefilter("ignore", bf.ConvergenceWarning)  # the report below says the same

# %% [markdown]
# ## 0. Without a file: a factorization of parts
#
# The counts are drawn from the model of section 1, so the true parameters are known; a fifth is held out.

# %%
rng = np.random.default_rng(1)
tastes, appeal = rng.gamma(1.1, 1.4, (60, 3)), rng.gamma(1.1, 1.4, (40, 3))
plays = rng.poisson(tastes @ appeal.T).astype(float)
plays[rng.random(plays.shape) > 0.5] = np.nan
train, test = bf.split.holdout(bf.Ratings(plays), 0.2, seed=0)
print(train)

# %% [markdown]
# `bf.factorization` takes a prior of the rows and a law of the observations. Solver, Gibbs, VB, NUTS, report
# and checks come with them. Negative binomial counts with normal rows have a mean $e^{m + u_i \cdot v_j}$.

# %%
composed = bf.factorization(rows=bf.NormalWishart(), observed=bf.NegativeBinomial(), biases=True)
print(composed)

# %%
first = bf.check(composed, only=["joint", "conditionals", "descent", "gauge"], progress=False)
print(first)
short = bf.Gibbs(*((50, 50) if FAST else (500, 500)), chains=2)
by_parts = bf.fit(composed, train, short, n_components=3, seed=0, progress=False)

# %% [markdown]
# The page [on compositions](../docs/compose.md) lists all parts. What follows is for a model that has a part
# of its own.
#
# ## 1. The objective
#
# A listener has $K$ tastes $u_i$, a record suits each taste by $v_j$, and the count is
# $y_{ij} \sim \mathrm{Poisson}(u_i \cdot v_j)$. With Gamma priors (shape $a$, rate $b$) on all entries,
# minus the log joint is, up to a constant,
#
# $$J = \sum_{ij \text{ seen}} \left[ u_i \cdot v_j - y_{ij} \log u_i \cdot v_j \right]
#     + \sum_{\text{entries } x} \left[ b\,x - (a - 1) \log x \right] .$$
#
# The fields of `Params` are the sample sites of the model, the fields of `Hyper` are the user's settings.


# %%
class Params(NamedTuple):
    U: jax.Array
    V: jax.Array


class Hyper(NamedTuple):
    n_components: int = 3
    shape: float = 1.5
    rate: float | None = None  # None: the prior expects the mean count


def prepare(data, hyper):
    """Compute defaults from the data, and refuse wrong settings."""
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    if not (data.value >= 0).all() or not (data.value == np.round(data.value)).all():
        raise ValueError("Expected counts of 0, 1, 2, ..., got fractions or numbers below zero")
    if hyper.rate is None:  # K (shape / rate)^2 is the mean
        expected = hyper.shape * (hyper.n_components / data.mean) ** 0.5
        hyper = hyper._replace(rate=float(expected))
    checks.positive(hyper, "rate")
    if not hyper.shape > 1:
        raise ValueError(f"Expected a shape above 1, for a mode inside, got {hyper.shape}")
    return hyper


def init(key, data, hyper):
    sizes = [(n, hyper.n_components) for n in data.shape]
    keys = jax.random.split(key)
    return Params(  # fmt: skip
        *(
            hyper.shape / hyper.rate * jax.random.gamma(k, 5.0, s) / 5
            for k, s in zip(keys, sizes, strict=True)
        )
    )


def objective(p, data, hyper):
    expected = inner(p.U, p.V, data.cells)
    prior = sum(jnp.sum(hyper.rate * x - (hyper.shape - 1) * jnp.log(x)) for x in p)
    return jnp.sum(expected - data.y * jnp.log(expected)) + prior


# %% [markdown]
# ## 2. The solver
#
# Each count is a sum of $K$ counts, one for each taste. Given $U$ and $V$, the expected parts are
# proportional to $u_{ik} v_{jk}$; given the parts, the best $u_{ik}$ is known. This is EM, and for Poisson
# counts it is also the multiplicative update: it never raises $J$. The sums are over seen cells only.


# %%
def gathered(p, data, side):
    """For U (side 0) or V: the expected counts and the exposures (rows x K each)."""
    rows, cols = (data.cells.row, data.cells.col)[:: 1 - 2 * side]
    mine, other = p[side], p[1 - side]
    share = data.y / inner(p.U, p.V, data.cells)
    n = mine.shape[0]
    counts = mine * jax.ops.segment_sum(share[:, None] * other[cols], rows, n)
    return counts, jax.ops.segment_sum(other[cols], rows, n)


def update(p, data, hyper):
    for side, name in enumerate(Params._fields):
        counts, exposed = gathered(p, data, side)
        new = (hyper.shape - 1 + counts) / (hyper.rate + exposed)
        p = p._replace(**{name: new})
    return p


# %% [markdown]
# ## 3. The model and its predictions
#
# `predict` takes one value of the parameters. A label without training data has code -1, and is a
# draw from the prior: an entry of its row has the mean $a/b$, and $E x^2 = (1 + 1/a) (E x)^2$. So the
# rate of its counts has a variance; `UnsurePoisson` is the law of a count with such a rate.


# %%
def model(data, hyper):
    law = dist.Gamma(hyper.shape, hyper.rate).expand([hyper.n_components]).to_event(1)
    with numpyro.plate("user", data.shape[0]):
        U = numpyro.sample("U", law)
    with numpyro.plate("item", data.shape[1]):
        V = numpyro.sample("V", law)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", dist.Poisson(inner(U, V, data.cells)), obs=data.y)


def predict(p, query, hyper):
    if isinstance(query, Grid):
        return UnsurePoisson(inner(p.U, p.V, query), 0.0)
    parts, more = 1.0, 1.0
    for x, at in zip(p, (query.row, query.col), strict=True):
        at = jnp.asarray(at)
        new = at[:, None] < 0
        parts *= jnp.where(new, hyper.shape / hyper.rate, x[at])
        more *= 1 + new / hyper.shape
    return UnsurePoisson(jnp.sum(parts, 1), jnp.sum((more - 1) * parts**2, 1))


# %% [markdown]
# ## 4. A Gibbs sampler in four more lines
#
# If the parts of a count are drawn, where EM takes their expectation, both conditionals are Gamma.


# %%
def augment(p, data, hyper):
    """The split of the count of each cell among the tastes."""
    parts = p.U[data.cells.row] * p.V[data.cells.col]
    return dist.Multinomial(
        data.y.astype(int), parts / parts.sum(1, keepdims=True), total_count_max=200
    )


def conditional(side):
    def law(p, data, hyper, split):
        rows = (data.cells.row, data.cells.col)[side]
        counts = jax.ops.segment_sum(split.astype(p.U.dtype), rows, p[side].shape[0])
        return dist.Gamma(hyper.shape + counts, hyper.rate + gathered(p, data, side)[1]).to_event(2)

    return law


# %% [markdown]
# ## 5. The record
#
# The data of `example` are tiny, and all checks run on them. The gauge declares that tastes may be
# relabelled.


# %%
def example(key):
    """Six listeners, five records, a quarter of the cells missing."""
    ks, kc = jax.random.split(key)
    counts = np.array(jax.random.poisson(kc, 4.0, (6, 5)), float)
    data = bf.Ratings(np.where(jax.random.uniform(ks, (6, 5)) < 0.75, counts, np.nan))
    return data, prepare(data, Hyper(n_components=2))


METHOD = register(
    Method(
        name="gamma_poisson",
        cite="cemgil2009nmf",
        data=bf.Ratings,
        Params=Params,
        Hyper=Hyper,
        prepare=prepare,
        init=init,
        objective=objective,
        model=model,
        predict=predict,
        example=example,
        solver=Solver(update=update),
        gibbs=Sampler(conditionals={"U": conditional(0), "V": conditional(1)}, augment=augment),
        axes=Axes(
            dims={"U": ("user", "taste"), "V": ("item", "taste")},
            gauge=(Permutation({"U": 1, "V": 1}, "taste"),),
        ),
    )
)
print(bf.check(METHOD, progress=False))

# %% [markdown]
# Each line says whether the check is kept, and what it requires, or why it does not apply. The checks are the
# same for every method: they compare the functions with one another, in double precision, on the tiny
# example. The last one simulates data, and looks whether the sampler gives their parameters back.
#
# ## 6. Two mistakes that the contract finds
#
# The first mistake sums the exposure over all cells instead of those that were seen. The
# second passes the inverse of the rate to the prior.


# %%
def exposed_to_all(p, data, hyper):
    for side, name in enumerate(Params._fields):
        counts, _ = gathered(p, data, side)
        new = (hyper.shape - 1 + counts) / (hyper.rate + p[1 - side].sum(0))
        p = p._replace(**{name: new})
    return p


def scale_for_rate(data, hyper):
    model(data, hyper._replace(rate=1 / hyper.rate))


for mistake, check in (
    ({"solver": Solver(exposed_to_all)}, bf.testing.check_descent),
    ({"model": scale_for_rate}, bf.testing.check_joint),
):
    try:
        check(replace(METHOD, **mistake), jax.random.key(0))
    except AssertionError as error:
        print(f"{check.__name__}: {error}")

# %% [markdown]
# ## 7. Fits, comparison and report
#
# The point comes from the solver above. Our Gibbs sampler and NUTS, which needs no further code, sample the
# posterior.

# %%
settings = {"n_components": 3, "shape": 1.1, "seed": 0, "progress": False}
point = bf.fit("gamma_poisson", train, bf.FixedPoint(5000, every=10), **settings)
gibbs = bf.Gibbs(*((100, 300) if FAST else (500, 2000)), chains=2)
nuts = bf.NUTS(*((50, 50) if FAST else (500, 500)), chains=2)
fits = {
    "point": point,
    "Gibbs": bf.fit("gamma_poisson", train, gibbs, init=point, **settings),
    "NUTS": bf.fit("gamma_poisson", train, nuts, init=point, **settings),
    "of parts": by_parts,
}
comparison = bf.compare(fits, test)
print(comparison)

# %% [markdown]
# The report answers two questions: do the chains agree, and are the intervals right?

# %%
for name in ("Gibbs", "NUTS"):
    diagnosis = fits[name].diagnostics()
    worth = diagnosis.worst.loc["prediction", "ess_bulk"]
    print(repr(diagnosis).partition("\n\n")[0])
    print(f"{fits[name].stats['lp'].size} draws of {name}, worth {worth:.0f} independent ones\n")

# %% [markdown]
# The contract checks that a sampler is right, not that it is quick. This Gibbs sampler mixes slowly: its
# draws are worth few independent draws. NUTS makes fewer draws, which are worth more independent ones. The
# verdict reports this, and says what to do.

# %%
levels = np.linspace(0.1, 0.95, 18)
figure, axes = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
axes.plot([0, 1], [0, 1], color="0.4", ls=":", label="what an interval promises")
for (name, fit), mark in zip(fits.items(), "so^d", strict=True):
    pit = fit.predict(test).scores(test.value)["pit"]  # uniform where the prediction is right
    axes.plot(
        levels, [np.mean(abs(pit - 0.5) < x / 2) for x in levels], f"{mark}-", ms=4, label=name
    )
axes.set(xlabel="nominal level of the interval (share)", ylabel="held-out counts inside it (share)")
axes.set_title("Coverage of predicted counts", loc="left")
axes.legend()
plt.show()

# %% [markdown]
# *Share of held-out counts inside central intervals. On the dotted line the share equals the
# nominal level. The point lies below, because it leaves out the uncertainty of the parameters. The two
# samplers of our method agree, because they sample the same model.*
#
# ## What was learned
#
# - A method is a few plain functions and a record: `prepare` checks the settings, `Params` names the
#   parameters, and the objective is minus the log joint.
# - The contract finds mistakes that a reader overlooks: a missing cell that counts as a zero, a rate in place
#   of a scale.
# - A posterior needs another engine, but no second implementation of the method.
#
# To bring a method into the library, see `CONTRIBUTING.md`; `docs/skeleton_method.py` is a file to copy.

# %%
assert first.ok
scores = comparison.table
assert abs(scores["RMSE"]["Gibbs"] - scores["RMSE"]["NUTS"]) < 0.2
assert abs(scores["covers 90 %"]["Gibbs"] - 0.9) < 0.06
