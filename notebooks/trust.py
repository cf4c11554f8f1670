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
# This notebook shows five fits that are wrong in different ways, with their diagnostics: labels that
# switch, SVI that was stopped too soon, a funnel, an improper prior, too few draws. Then it shows a fit
# that is right, and four checks of this fit that need no test set (`docs/trust.md`).

# %%
import os
import warnings

import matplotlib.pyplot as plt
import pandas as pd

import bayesfac as bf

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # few draws, to test the code
warnings.simplefilter("ignore", bf.ConvergenceWarning)  # the diagnostics below report the same
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
# `plsa` gives every document a mix of topics. Topic 0 of one chain may be topic 2 of another: the joint
# density is the same for every numbering of the topics. So the chains disagree about the share of topic 0,
# and the mean of all draws has no meaning, although the sampler is correct. Draws that are aligned to one
# order can be compared; the report judges only quantities that do not depend on the numbering.

# %%
documents, _ = bf.datasets.make_topics(features={"words": 40}, n_clusters=3, seed=0)
length = (50, 100) if FAST else (500, 1000)
switching = bf.fit("plsa", documents, bf.Gibbs(*length, chains=4), n_components=3)
aligned = switching.aligned()
print(aligned, "\n")
said(switching)

# %%
# The share of the first topic in one document, a line for each chain: as drawn, and after matching.
figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="constrained")
for panel, title, draws in zip(
    axes, ("as drawn", "aligned"), (switching.draws["A"], aligned.draws["A"]), strict=True
):
    for chain in draws[:, :, 0, 0]:
        panel.plot(chain, lw=0.6)
    panel.set(title=title, xlabel="draw", ylim=(0, 1))
axes[0].set_ylabel("share of topic 0, document 0")
plt.show()
for title, fit in (("as drawn", switching.draws["A"]), ("aligned", aligned.draws["A"])):
    print(f"means of the four chains, {title}: {fit[:, :, 0, 0].mean(1).round(2)}")

# %% [markdown]
# ## 2. SVI that was stopped too soon

# %%
said(bf.fit("pmf", train, bf.SVI(steps=300), n_components=2))

# %% [markdown]
# With more steps SVI converges. Still, Pareto's k of the importance weights shows that the mean-field guide
# differs from the posterior, because the two factors of a product depend on one another. A guide with
# correlations is nearer to the posterior.

# %%
steps = 500 if FAST else 20_000
for guide in ("normal", "multivariate"):
    said(bf.fit("pmf", train, bf.SVI(steps=steps, guide=guide), n_components=2))

# %% [markdown]
# ## 3. A funnel
#
# The data do not determine the precisions of components that they do not need. Where a precision is large,
# the factors are narrow, and no step size of NUTS suits both large and small precisions. A short warm-up and
# large steps make this worse.

# %%
large = bf.NUTS(50, 50 if FAST else 150, chains=2, target_accept=0.5, max_tree_depth=6)
said(bf.fit("bpmf", train, large, n_components=5))

# %% [markdown]
# ## 4. An improper prior
#
# The paper's MMMF has no prior on its thresholds. A point estimate exists, but no posterior, so `bf.fit`
# refuses to sample.

# %%
stars = bf.datasets.make_ratings(60, 30, 3, seed=0)
try:
    bf.fit("mmmf", stars, bf.NUTS(10, 10, 1), n_components=2, scale_theta=float("inf"))
except ValueError as error:
    print(error)

# %% [markdown]
# ## 5. Too few draws

# %%
said(bf.fit("bpmf", train, bf.Gibbs(10, 20, chains=2), n_components=2))

# %% [markdown]
# ## A fit that is right
#
# The same model with enough draws. The four chains start from copies of a point that are rotated at random,
# so that the factors of the chains differ, with noise added.

# %%
point = bf.fit("bpmf", train, n_components=2)
right = bf.fit("bpmf", train, bf.Gibbs(*length, chains=4), init=point, n_components=2)
said(right)
comparison = bf.compare({"point": point, "Gibbs": right}, test, about="random 80/20, seed 0")
print(comparison.table[["RMSE", "log score", "CRPS", "covers 90 %"]])

# %% [markdown]
# **Without a test set:** leave out every rating in turn, by importance weights.

# %%
print(right.loo(train))

# %% [markdown]
# **Is the sampler right at all?** Simulation-based calibration draws data from the model and asks whether
# the ranks of the true values among the draws are uniform. `docs/calibration.md` has a table of all methods.

# %%
print(bf.sbc("pmf", "Gibbs", replications=40 if FAST else 200, draws=19, progress=False))

# %% [markdown]
# **Does the prior make sense?** and **how strong is the influence of the prior?**

# %%
print(bf.prior_predictive("pmf", train, n_components=2, scale_user=1.0, scale_item=1.0))
print(right.sensitivity(train, alpha=(0.98, 1 / 0.98)))

# %% [markdown]
# ## What was learned
#
# - Factors may switch and rotate: judge predictions, and read factors only after alignment.
# - Every verdict says what to do next. "Usable in part" names the uses that it allows; "not usable yet"
#   allows none.
# - R-hat does not show the error of SVI; Pareto's k does, and calibration measures the error.
# - The library refuses to sample an improper posterior.
# - LOO, calibration, prior predictive and sensitivity need no test set. None of these checks
#   shows whether the model is right for new users; that needs data of new users.
