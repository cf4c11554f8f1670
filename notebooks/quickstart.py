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
# that explain the ratings about equally well. Both then face ratings that neither has seen.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import bayesfac as bf

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # fewer draws: does it run, not what does it say

# %% [markdown]
# ## The data
#
# 300 users, 200 items, ratings of 1 to 5 stars; made up, so this runs without a network. Half are
# held out, which leaves the least active users with five.

# %%
ratings = bf.datasets.load("ratings")
train, test = bf.split.holdout(ratings, 0.5, seed=0)
print(train)

# %% [markdown]
# ## Two fits of one model
#
# Without an engine, `bf.fit` runs the method's own solver. `bf.Gibbs` samples the same model; two
# chains, so that they can disagree.

# %%
settings = {"n_components": 5, "seed": 0}
point = bf.fit("bpmf", train, bf.FixedPoint(max_iter=2000, every=10), **settings)
sampler = bf.Gibbs(warmup=50, draws=100, chains=2) if FAST else bf.Gibbs(200, 400, chains=2)
posterior = bf.fit("bpmf", train, sampler, **settings)

# %% [markdown]
# Before anything else: did the chains agree? R-hat compares them (1 is best), ESS says how many
# independent draws they are worth. Predictions are judged, never single factors, which may turn and
# change places without a prediction changing.

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
# RMSE and the error of the nearest level hardly tell them apart, nor does RPS, which judges the
# probabilities of all five levels; the point is even a shade better. Intervals do: of the held-out
# ratings, 90 % should lie within the 90 % interval, and fewer lie within the point's. It adds the noise
# of a single rating to its prediction but knows nothing of its own uncertainty, so its intervals are
# too narrow, and all of one width.
#
# ## Where it matters: users that are hardly known

# %%
inside = {}
for name, fit in comparison.fits.items():
    lower, upper = fit.predict(test).interval(0.9)
    inside[name] = (lower <= test.value) & (test.value <= upper)

known = np.bincount(train.user, minlength=train.n_users)[test.user]  # training ratings of the user
edges = [(5, 9), (10, 12), (13, 15), (16, 18), (19, 30)]
groups = [(known >= low) & (known <= high) for low, high in edges]

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
axes.axhline(0.9, color="0.4", ls=":", label="what an interval of 90 % promises")
for (name, hits), mark, shift in zip(inside.items(), "so", (-0.06, 0.06), strict=True):
    share = np.array([hits[group].mean() for group in groups])
    error = [np.sqrt(p * (1 - p) / g.sum()) for p, g in zip(share, groups, strict=True)]
    axes.errorbar(
        np.arange(len(groups)) + shift, share, error, fmt=f"{mark}-", capsize=2, label=name
    )
axes.set_xticks(range(len(edges)), [f"{low}–{high}" for low, high in edges])
axes.set(xlabel="training ratings of the user", ylabel="held-out ratings in the interval (share)")
axes.set_title("How often the 90 % interval is right", loc="left")
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# *Share of held-out ratings inside the 90 % interval, by how many ratings training had of the user;
# bars are one standard error. On the dotted line the interval keeps its promise. The point falls short
# of it, most of all for users with few ratings; the posterior stays near it throughout.*
#
# ## One recommendation
#
# The least known user, and the unrated item that the point likes best for them. How likely are four
# stars or more?

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
# ## Somebody new
#
# A user without a single rating gets an answer too: the prior's, which is wide, and it is flagged.

# %%
newcomer = posterior.predict({"user": [10_000], "item": offer["item"]})
somebody = posterior.predict(offer)
print(newcomer)
for user, answer in ((10_000, newcomer), (offer["user"][0], somebody)):
    print(f"user {user}: {answer.mean[0]:.2f} stars, sd {answer.sd[0]:.2f}")

# %% [markdown]
# ## What was learned
#
# - Point and posterior predict about equally well on average; an error cannot say which to trust.
# - The point's intervals promise 90 % and hold less, least for users with few ratings. The posterior's
#   are wider where it knows less, and hold about what they promise.
# - So: rank by either; when the answer is "show this" or "better ask first", use the posterior's
#   probability, and look at the flag.
# - The chains' verdict comes first. "Usable with care" means here: predictions agree to a small fraction
#   of their uncertainty, while the spectrum of the factors mixes slowly and wants a longer run.
#
# Next: your own ratings by `bf.Ratings(frame)`, every method in `bf.methods()`, and all of this on one
# page by `comparison.to_html("report.html")`.

# %%
assert (point.predict(test).sd_mean == 0).all() and (somebody.sd_mean > 0).all()
assert abs(scores["RMSE"]["point"] - scores["RMSE"]["posterior"]) < 0.03
assert abs(inside["posterior"].mean() - 0.9) < abs(inside["point"].mean() - 0.9)
assert newcomer.flagged.all() and not somebody.flagged.any() and newcomer.sd[0] > somebody.sd[0]
