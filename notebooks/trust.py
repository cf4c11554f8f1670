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
# # Would I notice if this posterior were wrong?
#
# Five fits that are wrong, each in another way, and what the diagnostics say of each: labels that switch,
# SVI that was stopped too soon, a funnel, a prior that is none, too few draws. Then one that is right, and
# four questions that may be asked of it without a test set (`docs/trust.md`).

# %%
import os
import warnings

import matplotlib.pyplot as plt
import pandas as pd

import bayesfac as bf

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # few draws: does it run, no more
warnings.simplefilter("ignore", bf.ConvergenceWarning)  # it would be right; here the report says it
pd.set_option("display.width", 120, "display.max_columns", None, "display.precision", 3)

data, _ = bf.datasets.make_gaussian(30, 20, rank=2, density=0.5, seed=0)
train, test = bf.split.holdout(data, 0.2, seed=0)
print(train)


def said(fit):
    """The verdict without the table below it."""
    print(repr(fit.diagnostics()).partition("\n\n")[0])


# %% [markdown]
# ## 1. Labels that switch
#
# `urp` gives every user a mix of attitudes. Attitude 0 of one draw may be attitude 2 of another: the joint
# density does not know their names. R-hat of the raw draws is high, a mean over them means nothing, and
# nothing is wrong with the sampler. Aligned to one order they can be compared, as far as they are determined
# at all; the report judges what needs no names.

# %%
stars = bf.datasets.make_ratings(60, 30, 3, seed=0)
length = (50, 100) if FAST else (500, 1000)
switching = bf.fit("urp", stars, bf.Gibbs(*length, chains=4), n_components=3)
aligned = switching.aligned()
print(aligned, "\n")
said(switching)

# %%
# The share of the first attitude for one user: as drawn, and after matching.
figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="constrained")
for panel, title, draws in zip(
    axes, ("as drawn", "aligned"), (switching.draws["A"], aligned.draws["A"]), strict=True
):
    for chain in draws[:, :, 0, 0]:
        panel.plot(chain, lw=0.6)
    panel.set(title=title, xlabel="draw", ylim=(0, 1))
axes[0].set_ylabel("share of attitude 0, user 0")
plt.show()

# %% [markdown]
# ## 2. SVI that was stopped too soon

# %%
said(bf.fit("pmf", train, bf.SVI(steps=300), n_components=2))

# %% [markdown]
# Longer, it settles, and yet Pareto's k of the weights that would turn its draws into draws of the posterior
# says that mean field is not it: the two factors of a product depend on one another. A guide that knows
# dependence comes nearer.

# %%
steps = 500 if FAST else 20_000
for guide in ("normal", "multivariate"):
    said(bf.fit("pmf", train, bf.SVI(steps=steps, guide=guide), n_components=2))

# %% [markdown]
# ## 3. A funnel
#
# Components that the data do not need have precisions that nothing holds: where these grow, the factors
# become narrow, and no step of NUTS is right for both ends. A short warm-up and large steps make it worse.

# %%
large = bf.NUTS(50, 50 if FAST else 150, chains=2, target_accept=0.5, max_tree_depth=6)
said(bf.fit("bpmf", train, large, n_components=5))

# %% [markdown]
# ## 4. A prior that is none
#
# The paper's MMMF has no prior on its thresholds. As a point that is fine; there is no posterior to sample,
# and so nothing is sampled.

# %%
try:
    bf.fit("mmmf", stars, bf.NUTS(10, 10, 1), n_components=2, scale_theta=float("inf"))
except ValueError as error:
    print(error)

# %% [markdown]
# ## 5. Too few draws

# %%
said(bf.fit("bpmf", train, bf.Gibbs(10, 20, chains=2), n_components=2))

# %% [markdown]
# ## And one that is right
#
# The same model, enough draws, from four copies of a point: turned, so that agreeing factors would prove
# nothing, and shaken.

# %%
point = bf.fit("bpmf", train, n_components=2)
right = bf.fit("bpmf", train, bf.Gibbs(*length, chains=4), init=point, n_components=2)
said(right)
comparison = bf.compare({"point": point, "Gibbs": right}, test, about="random 80/20, seed 0")
print(comparison.table[["RMSE", "log score", "CRPS", "covers 90 %"]])

# %% [markdown]
# **Without a test set:** every rating left out in turn, by importance weights.

# %%
print(right.loo(train))

# %% [markdown]
# **Is the sampler right at all?** Simulation-based calibration draws data from the model and asks whether
# true values fall anywhere among the draws. The table of all methods is `docs/calibration.md`.

# %%
print(bf.sbc("pmf", "Gibbs", replications=40 if FAST else 200, draws=19, progress=False))

# %% [markdown]
# **Does the prior make sense?** and **who decides, prior or data?**

# %%
print(bf.prior_predictive("pmf", train, n_components=2, scale_user=1.0, scale_item=1.0))
print(right.sensitivity(train, alpha=(0.98, 1 / 0.98)))

# %% [markdown]
# ## What was learned
#
# - Factors may switch and turn: judge predictions, and read factors only after alignment.
# - A verdict comes with what to do next; "care" is not "bad".
# - SVI cannot see its own error in R-hat; Pareto's k can, and calibration measures it.
# - An improper posterior is refused, not sampled.
# - LOO, calibration, prior predictive and sensitivity need no test set. None of them says whether the model
#   is right for new users: only new users do.
