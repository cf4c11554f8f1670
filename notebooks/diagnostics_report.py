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
# # What does the report say, and what do I do about it?
#
# One call writes a page: a verdict, a table of scores, a dozen pictures. This notebook explains each part of
# the page with made-up ratings, first for a sampler with too few draws, then for one with enough.
# `docs/reading_a_report.md` explains the report without code.

# %%
import os
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesfac as bf

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # few draws, to test the code
warnings.simplefilter("ignore", bf.ConvergenceWarning)  # here the report says it
pd.set_option("display.width", 120, "display.max_columns", None, "display.precision", 3)
folder = Path(tempfile.mkdtemp())

ratings = bf.datasets.make_ratings(120, 80, 2, density=0.25, noise=0.7, seed=0)
train, test = bf.split.holdout(ratings, 0.2, seed=0)
print(train)

# %% [markdown]
# ## 1. One model, three fits, one page

# %%
settings = {"n_components": 2, "seed": 0, "progress": False}
long = (200, 400) if FAST else (500, 2000)
fits = {
    "point": bf.fit("bpmf", train, bf.FixedPoint(2000, every=10), **settings),
    "hasty": bf.fit("bpmf", train, bf.Gibbs(5, 25, chains=4), **settings),
    "patient": bf.fit("bpmf", train, bf.Gibbs(*long, chains=4), **settings),
}
comparison = bf.compare(fits, test, about="random 80/20, seed 0")
page = comparison.to_html(folder / "report.html")
print(f"{Path(page).stat().st_size / 1e6:.1f} MB, one file that loads nothing")
comparison  # the same table and verdicts as at the top of the page

# %% [markdown]
# ## 2. The verdict: may I use these draws?
#
# Each line is one check, and a mark shows its result. A line that is not good ends with what to do. Read the
# verdict before any score: the score of a chain that has not converged depends on its start.

# %%
fits["hasty"].diagnostics()

# %%
fits["patient"].diagnostics()

# %% [markdown]
# ## 3. Why is no single factor in the table?
#
# $U$ and $V$ may rotate together without changing a prediction. So four chains that agree perfectly about
# every rating can disagree about every entry of $U$.

# %%
draws = fits["patient"].draws
entry = draws["U"][:, :, 0, 0]
rating = np.einsum("cdk,cdk->cd", draws["U"][:, :, 0], draws["V"][:, :, 0])
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for panel, title, values in zip(
    axes, ("one entry of U", "one product u · v"), (entry, rating), strict=True
):
    for number, chain in enumerate(values):
        panel.plot(chain, lw=0.6, label=f"chain {number}")
    panel.set(title=title, xlabel="draw", ylabel="value")
axes[0].legend(loc="upper right", fontsize=7)
plt.show()

# %% [markdown]
# *Left, an entry of a factor table: every chain has another rotation, and a high R-hat would be a false
# alarm. Right, the predicted rating of user 0 for item 0, relative to the mean: the chains agree. The
# report judges identified quantities: predictions, the log joint, hyper-parameters, singular values.*
#
# To read factors nevertheless, first rotate all draws to agree as well as possible. The residual is their
# remaining difference, and `modes` is the number of distinct solutions among the draws.

# %%
aligned = fits["patient"].aligned()
print(aligned)

# %% [markdown]
# ## 4. The scores: which line do I report?
#
# RMSE and MAE judge point predictions and often do not differ. The log score, the CRPS and, for levels, the
# RPS judge the whole distribution. Every difference has a paired standard error over users; do not read
# differences that are smaller than two standard errors.

# %%
for sentence in comparison.sentences():
    print("-", sentence)

# %% [markdown]
# ## 5. Calibration: do 90 % intervals hold nine in ten values?
#
# The PIT (probability integral transform) of a held-out rating is the predicted probability of a smaller
# one. If the predictive distributions are right, PIT values are uniform. A U shape means too narrow, a hump
# too wide, a slope biased.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
for panel, name in zip(axes, ("point", "patient"), strict=True):
    answer = fits[name].predict(test)
    panel.hist(answer.scores(test.value)["pit"], bins=10, range=(0, 1), density=True)
    panel.axhline(1, color="0.3", ls=":")
    lower, upper = answer.interval(0.9)
    inside = np.mean((lower <= test.value) & (test.value <= upper))
    panel.set(title=f"{name}: {inside:.0%} inside the 90 % interval", xlabel="PIT value")
axes[0].set_ylabel("relative frequency")
plt.show()

# %% [markdown]
# *If the bars are above the dotted line at both ends, too many ratings had a small predicted probability.
# The uneven bars in the middle are no fault: a real-valued model predicts whole stars.*
#
# ## 6. Use in other programs
#
# The draws are an ArviZ DataTree with your labels, which many tools can read. A fit is saved
# as a folder without pickle; draws alone also as NetCDF.

# %%
tree = fits["patient"].posterior
print(tree.posterior)
fits["patient"].save(folder / "patient")
again = bf.load(folder / "patient")
fits["patient"].to_netcdf(folder / "patient.nc")

# %% [markdown]
# ## What was learned
#
# - Read the verdict first, then the scores, then the pictures.
# - With "usable in part" the verdict says for what, why, and how many draws would be enough. R-hat of raw
#   factors is never a reason.
# - Point and posterior often have the same RMSE, but the coverage of their intervals differs.
# - A report, a saved fit or a NetCDF file is never left half written, and loading runs no code.

# %%
assert (again.predict(test).mean == fits["patient"].predict(test).mean).all()
assert fits["hasty"].diagnostics().uses["single"] == "bad"
assert sorted(p.name for p in folder.iterdir()) == ["patient", "patient.nc", "report.html"]
