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
# # Which of these clusters would I bet on?
#
# A clustering gives every digit, or every document, a cluster and a probability. For some rows a slightly
# different fit would give another cluster. Which rows are these?
#
# There are two ways to find out. The quick way fits the point again from other starts and compares the
# clusters. The other way counts clusters over draws from the posterior. This notebook uses both ways: for
# handwritten digits by `mggm`, whose clusters are shared by several views and smooth on a graph of neighbours
# in each view, and for documents by `concat_ltm`, the simpler model of all views side by side
# (`docs/graphs.md`).

# %%
import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesfac as bf

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # small data, few steps, to test the code
FOLDER = Path(os.environ.get("BAYESFAC_DATA", "."))
jax.config.update("jax_enable_x64", True)  # rows of thousands of probabilities that sum to one
pd.set_option("display.width", 120, "display.max_columns", None, "display.precision", 2)

# %% [markdown]
# ## The data
#
# Digits: three hundred UCI numerals in five views if they were fetched (`bayesfac data fetch handwritten`),
# otherwise scikit-learn's digits in four views. Documents: three hundred Reuters stories in three languages
# if the folder `BAYESFAC_DATA` has `reuters_multilingual_1200.npz`, otherwise made-up documents. The text
# describes the first data set of each kind (a run takes about ten minutes), not the others.


# %%
def some(views, y, n, seed=0):
    """n rows at random, as many of every class."""
    rng, classes = np.random.default_rng(seed), np.unique(y)
    each = n // len(classes)
    kept = np.sort([rng.choice(np.flatnonzero(y == c), each, replace=False) for c in classes], None)
    return views.take(kept), np.unique(y, return_inverse=True)[1][kept]


def digits():
    if not FAST and bool(bf.datasets.list().loc["handwritten", "at hand"]):
        every = bf.datasets.load("handwritten", download=False)
        named = {name: every[name] for name in ("pix", "fou", "fac", "zer", "mor")}
        return *some(bf.Views(named), bf.datasets.target("handwritten", download=False), 300), True
    every, y = bf.datasets.load("digits"), bf.datasets.target("digits")
    if FAST:  # one view of four classes
        return *some(bf.Views({"pixels": every["pixels"][y < 4]}), y[y < 4], 60), False
    return *some(every, y, 300), False


def documents():
    path = FOLDER / "reuters_multilingual_1200.npz"
    if not FAST and path.exists():
        every = bf.datasets.read(path, kind="views")
        with np.load(path) as arrays:
            y = arrays["y"]
        named = {name: every[name] for name in ("english", "french", "german")}
        return *some(bf.Views(named), y, 300), True
    words = {"title": 25, "text": 50}
    made, truth = bf.datasets.make_topics(60 if FAST else 300, words, 4, 4, 40, 0.25, seed=0)
    return made, truth.cluster, False


sets = {"digits": digits(), "documents": documents()}
large = all(real for _, _, real in sets.values())
for name, (views, y, real) in sets.items():
    print(f"{name}: {views}, {len(np.unique(y))} classes{'' if real else ' (small or made up)'}")

# %% [markdown]
# ## A point and a posterior
#
# Point and posterior come from one model. `scale="minmax"` brings every feature between 0 and 1, and the sum
# of a row counts as its number of words. The default, `scale="complement"`, gives every row length one: for a
# point this is as good, but a posterior from so few words is wide.

# %%
common = {"scale": "minmax", "divergence": "squared", "penalty": 3.0}
method = {"digits": "mggm", "documents": "concat_ltm"}
settings = {name: common | {"n_components": len(np.unique(y))} for name, (_, y, _) in sets.items()}
settings["digits"] |= {"n_topics": 5 if FAST else 20, "selectivity": 0.5}
solver = bf.FixedPoint(15 if FAST else 100, tol=1e-5)
guide = bf.SVI(steps=100 if FAST else 4000, guide="normal", learning_rate=0.003, draws=100)
points, posteriors = {}, {}
for name, (views, _, _) in sets.items():
    points[name] = bf.fit(method[name], views, solver, **settings[name])
    posteriors[name] = bf.fit(method[name], views, guide, init=points[name], **settings[name])
    for fit in (points[name], posteriors[name]):
        print(name, fit, *fit.info["notes"], sep="\n  ")

# %% [markdown]
# `bf.clusters` has a line for every row: its cluster, and the probability of this cluster. For a posterior
# the probability is the mean over the draws, and `agreement` is the share of the draws that put the row
# into this cluster. The clusters of the draws were matched to those of the point, and the note says how
# well they match.

# %%
tables = {}
for name, (_, y, _) in sets.items():
    point, posterior = points[name], posteriors[name]
    told = bf.clusters(posterior, reference=point)
    print(told.attrs["note"])
    both = {each: f"{each} of draws" for each in ("cluster", "probability")}
    table = bf.clusters(point).join(told.rename(columns=both))
    best = pd.crosstab(table["cluster"], y).idxmax(axis=1)  # the class that most of a cluster is of
    table["right"] = best.loc[table["cluster"]].to_numpy() == y
    tables[name] = table
    print(table.groupby("cluster").agg(rows=("right", "size"), probability=("probability", "mean"),
                                       agreement=("agreement", "mean"), right=("right", "mean")))  # fmt: skip

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.9), layout="constrained", sharey=True)
for panel, (name, table) in zip(axes, tables.items(), strict=True):
    for right, mark, what in (
        (True, "C0o", "as most of its cluster"),
        (False, "C3x", "another class"),
    ):
        part = table[table["right"] == right]
        panel.plot(part["probability"], part["agreement"], mark, ms=4, alpha=0.6, label=what)
    panel.set(xlabel="probability of its cluster, point estimate", ylim=(0, 1.05))
    panel.set_title(f"{name}", loc="left")
axes[0].set_ylabel("draws that agree (share)")
axes[0].legend(loc="lower right", fontsize="small", title="class of the row")
plt.show()

# %% [markdown]
# *Every mark is a row: the probability that the point gives its cluster, and the share of the draws that
# put the row into this cluster. Crosses: another class than most rows of the cluster.*
#
# Where the point is sure, nearly all draws agree. Where the point is not sure, the draws tell rows apart that
# have the same probability: for some rows all draws agree, for others half of them. Most crosses lie to the
# left or low.
#
# ## Doubtful rows
#
# First, the rows with a probability above one half in the point for which the draws agree least. Then the
# share of right rows in fifths of all rows, from the least to the most certain, by each of the three columns.

# %%
shrugs = {}
for name, table in tables.items():
    shrugs[name] = table[table["probability"] > 0.5].nsmallest(8, "agreement")
    print(f"\n{name}, the point above one half:")
    print(shrugs[name])
    odd = (~shrugs[name]["right"]).sum()
    print(f"of another class: {odd} of these, and {(~table['right']).mean():.0%} of all rows")
    fifths = {
        by: [
            table["right"].iloc[rows].mean()
            for rows in np.array_split(told.argsort(kind="stable").to_numpy(), 5)
        ]
        for by, told in table.drop(columns=["cluster", "cluster of draws", "right"]).items()
    }
    print(pd.DataFrame(fifths, pd.Index(range(1, 6), name="share right, fifth by")))

# %%
views = sets["digits"][0]
view, shape = ("pix", (16, 15)) if "pix" in views.names else ("pixels", (8, 8))
picture, chosen = views[view], shrugs["digits"]
figure, axes = plt.subplots(2, 4, figsize=(7, 4.2), layout="constrained")
for panel, (label, line) in zip(axes.flat, chosen.iterrows(), strict=False):
    panel.imshow(picture[views.rows.get_loc(label)].toarray().reshape(shape), cmap="gray_r")
    panel.set_title(f"cluster {line['cluster']}: point {line['probability']:.2f},\n"
                    f"draws agree {line['agreement']:.2f}", fontsize="small")  # fmt: skip
    panel.set(xticks=[], yticks=[], xlabel="" if line["right"] else "another class")
plt.show()

# %% [markdown]
# *The eight digits of the list, as they were written.*
#
# Rows of the two lists are of another class more often than all rows are (the line under each list): look at
# a row whose probability is above one half but about which the draws disagree. The fifths show that for a
# ranking of all rows the probability of the point is as good as that of the posterior.
#
# ## Does another start say the same?
#
# The code fits the point again from other seeds, with starts near the uniform distribution. For all pairs of
# rows it counts in how many of these fits both rows are in one cluster. For the posterior, `bf.together` says
# how likely this is. Neither number depends on the names of the clusters.

# %%
pairs = {}
for name, (views, _, _) in sets.items():
    other = settings[name] | {"start": "random"}
    seeds = range(1, 2 if FAST else 6)
    again = [bf.fit(method[name], views, solver, seed=seed, **other) for seed in seeds]
    own = [bf.clusters(fit)["cluster"].to_numpy() for fit in (points[name], *again)]
    pairs[name] = {
        "restarts": np.mean([c[:, None] == c for c in own], axis=0),
        "point": bf.together(points[name], views.rows).to_numpy(),
        "posterior": bf.together(posteriors[name], views.rows).to_numpy(),
    }

# %%
figure, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
for line, (name, shares) in zip(axes, pairs.items(), strict=True):
    order = np.argsort(sets[name][1], kind="stable")
    for panel, (what, share) in zip(line, shares.items(), strict=True):
        seen = panel.imshow(share[np.ix_(order, order)], vmin=0, vmax=1, cmap="magma")
        panel.set_title(f"{name}: {what}", loc="left", fontsize="medium")
        panel.set(xlabel="rows, sorted by class", ylabel="rows, sorted by class")
figure.colorbar(
    seen, ax=axes, label="share of restarts, or probability, of one cluster", shrink=0.7
)
plt.show()

# %% [markdown]
# *All pairs of rows. Left: the share of the point fits that have both in one cluster. Middle: the probability
# by the first point. Right: the probability by the posterior. Squares on the diagonal are classes.*
#
# The first point started from a good clustering, the restarts from near the uniform. So where restarts
# differ, the reason may be a poor start, and not a doubtful row.
#
# ## Are two rows together as often as they are said to be?

# %%
look = {"restarts": "C1^--", "point": "C0s-", "posterior": "C2o-"}
edges = np.array([0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9, 1.001])
figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.9), layout="constrained", sharey=True)
scores = {}
for panel, (name, shares) in zip(axes, pairs.items(), strict=True):
    y = sets[name][1]
    upper = np.triu_indices(len(y), 1)
    same = (y[:, None] == y)[upper]
    panel.axline((0, 0), slope=1, color="0.5", ls=":", label="as often as said")
    for what, share in shares.items():
        said = share[upper]
        group = np.digitize(said, edges) - 1
        kept = [g for g in range(len(edges) - 1) if (group == g).sum() >= 30]
        points_of = [(said[group == g].mean(), same[group == g].mean()) for g in kept]
        panel.plot(*np.transpose(points_of), look[what], ms=4, label=what)
        high = (0.7 <= said) & (said < 0.9)
        scores[name, what] = {"Brier score": np.mean((said - same) ** 2), "mean said": said.mean(),
                              "of one class": same.mean(), "said .7 to .9": said[high].mean(),
                              "of these, one class": same[high].mean()}  # fmt: skip
    panel.set(xlabel="probability said, or share of restarts", xlim=(0, 1), ylim=(0, 1))
    panel.set_title(name, loc="left")
axes[0].set_ylabel("pairs that are of one class (share)")
axes[0].legend(fontsize="small", loc="lower right")
plt.show()
print(pd.DataFrame(scores).T.round(3))

# %% [markdown]
# *All pairs of rows, grouped by the predicted probability that they are in one cluster; the share of pairs
# of one class. The model does not know the classes, and a class need not be a cluster. So the dotted line
# is only a help for comparison. Groups of less than 30 pairs are left out.*
#
# On the documents all three are too sure: of the pairs with a probability of .7 to .9, fewer are of one class
# (the last two columns). The posterior has the smallest Brier score. On the digits it is the opposite: nearly
# all pairs to which point and posterior give .7 to .9 are of one class. The restarts have the largest Brier
# score on both data sets.
#
# ## What was learned
#
# - The probability of a cluster shows where to look: in the least sure fifth of the digits most rows are
#   wrong, and in the surest fifth hardly any. This needs no fit beyond the point.
# - The probability itself may be wrong: on the documents it was too
#   large, on the digits too small. The posterior is a generalised one: `scale` says what counts as a word,
#   and so how wide the posterior is.
# - Restarts also measure the effect of the starts, and say less about single rows than point and posterior
#   do.
# - The posterior here is a mean-field guide around the point, and its ELBO still changed when SVI stopped.
#   NUTS on a few dozen rows would show how much of the uncertainty comes from the guide.
#
# Next: a graph that you have (`bf.Views(..., graphs={"citations": sparse})`) in place of neighbours, and
# what `scale`, `start` and `penalty` do, in `docs/graphs.md`.

# %%
assert all(table["agreement"].between(0, 1).all() for table in tables.values())
assert all(np.allclose(np.diag(shares["posterior"]), 1) for shares in pairs.values())
