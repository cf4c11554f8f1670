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
# # Can I trust this recommendation?
#
# A recommender predicts that Ann would give this film 4.2 stars. Did it learn that from forty of her
# ratings, or guess it from five? The number is the same.
#
# Here one model of ratings, Bayesian matrix factorization (Salakhutdinov & Mnih 2008), is fitted twice
# to the same data: as a *point*, the one best pair of factor tables, and as a *posterior*, many pairs
# that explain the ratings about equally well. Both then predict ratings that neither fit has seen.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesfac as bf

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # few draws, to test the code

# %% [markdown]
# ## The data
#
# There are 300 users, 200 items and ratings of 1 to 5 stars. The ratings are made up, so that the notebook
# runs without a network. Half of the ratings are held out; the least active users keep five.

# %%
ratings = bf.datasets.load("ratings")
train, test = bf.split.holdout(ratings, 0.5, seed=0)
print(train)

# %% [markdown]
# ## Two fits of one model
#
# Without an engine, `bf.fit` runs the method's own solver. `bf.Gibbs` samples the same model, with four
# chains, so that the chains can be compared. With `over=0.7` each step goes beyond the middle of its
# conditional, and the chains explore the posterior faster.

# %%
settings = {"n_components": 5, "seed": 0}
point = bf.fit("bpmf", train, bf.FixedPoint(max_iter=2000, every=10), **settings)
sampler = bf.Gibbs(50, 100, chains=2) if FAST else bf.Gibbs(500, 1500, chains=4, over=0.7)
posterior = bf.fit("bpmf", train, sampler, init=point, **settings)

# %% [markdown]
# First check whether the chains agree. R-hat compares the chains (1 is best). ESS, the effective sample
# size, is the number of independent draws that would be as precise. The diagnostics judge predictions and
# not single factors, because factors may rotate and change places while all predictions stay the same.

# %%
diagnosis = posterior.diagnostics()
print(diagnosis)

# %% [markdown]
# ## The same held-out ratings for both

# %%
comparison = bf.compare({"point": point, "posterior": posterior}, test)
scores = comparison.table
print(scores[["RMSE", "MAE of level", "RPS", "covers 50 %", "covers 90 %", "width"]].round(3))

# %% [markdown]
# RMSE, the error of the predicted level (MAE of level) and RPS, which judges the probabilities of all five
# levels, hardly differ. The share of ratings inside their intervals hardly differs either, but the intervals
# do. The point adds the noise of a single rating to its prediction and knows no uncertainty of its
# factors, so that its intervals have one width for everybody.
#
# ## Users with few ratings

# %%
inside, width = {}, {}
for name, fit in comparison.fits.items():
    lower, upper = fit.predict(test).interval(0.9)
    inside[name] = (lower <= test.value) & (test.value <= upper)
    width[name] = upper - lower

known = np.bincount(train.user, minlength=train.n_users)[test.user]  # training ratings of the user
edges = [(5, 9), (10, 12), (13, 15), (16, 18), (19, 30)]
groups = [(known >= low) & (known <= high) for low, high in edges]
names = pd.Index([f"{low}–{high}" for low, high in edges], name="ratings of the user")
widths = pd.DataFrame({n: [w[group].mean() for group in groups] for n, w in width.items()}, names)
print("mean width of the 90 % interval, in stars", widths.round(2), sep="\n")

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
axes.axhline(0.9, color="0.4", ls=":", label="what an interval of 90 % promises")
for (name, hits), mark, shift in zip(inside.items(), "so", (-0.06, 0.06), strict=True):
    share = np.array([hits[group].mean() for group in groups])
    error = [np.sqrt(p * (1 - p) / g.sum()) for p, g in zip(share, groups, strict=True)]
    axes.errorbar(
        np.arange(len(groups)) + shift, share, error, fmt=f"{mark}-", capsize=2, label=name
    )
axes.set_xticks(range(len(edges)), names)
axes.set(xlabel="training ratings of the user", ylabel="held-out ratings in the interval (share)")
axes.set_title("How often the 90 % interval is right", loc="left")
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# *Share of held-out ratings inside the 90 % interval, by how many ratings training had of the user;
# bars are one standard error. On the dotted line the share is 90 %.*
#
# The table shows what the point cannot: the posterior's intervals are widest for the users with the fewest
# ratings, and get narrower with every rating, while those of the point stay as they are. The difference is
# small, since most of a width is the noise of a single rating.
#
# ## One recommendation
#
# Take the user with the fewest ratings, and the unrated item with the highest prediction of the point. How
# likely are four stars or more?

# %%
user = np.bincount(train.user, minlength=train.n_users).argmin()
rated = set(train.items[train.item[train.user == user]])
open_items = [item for item in train.items if item not in rated]
offers = {"user": [train.users[user]] * len(open_items), "item": open_items}
best = int(point.predict(offers).mean.argmax())
offer = {axis: labels[best : best + 1] for axis, labels in offers.items()}
for name, fit in comparison.fits.items():
    answer = fit.predict(offer)
    liked = answer.probabilities[0, 3:].sum()  # of four stars and of five
    lower, upper = answer.interval(0.9)
    print(f"{name}: {answer.mean[0]:.2f} stars, 90 % interval {lower[0]:.1f} to {upper[0]:.1f}; "
          f"four or more with probability {liked:.2f}")  # fmt: skip

# %% [markdown]
# ## A new user
#
# The prediction for a user without ratings comes from the prior: its interval is wide, and it is flagged.

# %%
newcomer = posterior.predict({"user": [10_000], "item": offer["item"]})
somebody = posterior.predict(offer)
print(newcomer)
for user, answer in ((10_000, newcomer), (offer["user"][0], somebody)):
    print(f"user {user}: {answer.mean[0]:.2f} stars, sd {answer.sd[0]:.2f}")

# %% [markdown]
# ## What was learned
#
# - Point and posterior predict about equally well on average, so their errors do not show which to trust.
# - The point's intervals have one width for everybody. The posterior's are wider for users with few ratings
#   and narrower for the others: so the posterior says for whom a prediction is sure.
# - So rank items by either fit. To decide between "show this item" and "ask the user first", use the
#   probability of the posterior and the flag.
# - Read the verdict on the chains first: it says what the draws may be used for, and what to do for the rest.
#
# Next: your own ratings by `bf.Ratings(frame)`, every method in `bf.methods()`, and all of this on one
# page by `comparison.to_html("report.html")`.

# %%
assert (point.predict(test).sd_mean == 0).all() and (somebody.sd_mean > 0).all()
assert abs(scores["RMSE"]["point"] - scores["RMSE"]["posterior"]) < 0.03
assert abs(inside["posterior"].mean() - 0.9) < 0.04
assert widths["posterior"].iloc[0] > widths["posterior"].iloc[-1] and np.ptp(widths["point"]) < 0.01
assert newcomer.flagged.all() and not somebody.flagged.any() and newcomer.sd[0] > somebody.sd[0]
