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
# # Eight models agree. Are they right?
#
# A cheap way to estimate the uncertainty of a point estimate is to fit it again from other starts and to
# compare the predictions. Does their spread measure the uncertainty? If not, for which users is the point
# wrong although it gives its prediction a high probability?
#
# Stars are ordered levels, so here ordinal methods are fitted: three margin factorizations fitted
# as points (MMMF, HMF, PMMMF), an ensemble of the first, and two posteriors by Gibbs sampling. Each
# fit predicts a probability for each level, so all fits can be scored on the same ratings.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesfac as bf

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # small data, few draws, to test the code
pd.set_option("display.width", 120, "display.max_columns", None, "display.precision", 3)

# %% [markdown]
# ## The data
#
# If MovieLens-100K was fetched (`bayesfac data fetch movielens-100k`), the data are these ratings. The text
# describes results on them (one random 80/20 split, fits with seed 0; a whole run takes about ten minutes).
# Otherwise the ratings are made up: the code is the same, but the text does not describe the results.

# %%
large = not FAST and bool(bf.datasets.list().loc["movielens-100k", "at hand"])
name = "movielens-100k" if large else "ratings"
ratings = bf.datasets.load(name, download=False)
train, test = bf.split.holdout(ratings, 0.2, seed=0)
print(f"{name}: {train}, {len(test)} held out")
if not large:
    print("These are made up: what the text says was seen on MovieLens-100K, by a whole run.")

# %% [markdown]
# ## How strong a penalty?
#
# `bf.path` fits many penalties side by side and scores each on ratings held out of the training part.

# %%
penalties = (5, 10, 15, 20, 30) if large else (5, 10, 20)
common = {"n_components": 10, "seed": 0}
found = bf.path("mmmf", train, penalties, repeats=1 if FAST else 2, held_out=5, n_components=10)
print(found)
print(found.table)
wrong = found.table["zero-one"]
print(f"chosen: {found.best:g}; the candidates differ by {wrong.max() - wrong.min():.3f} at most")

# %% [markdown]
# The two repeats differ by about as much as the best penalty does from its neighbours, so this choice is only
# approximate. The penalties of HMF and PMMMF are given below and not chosen, so do not rank these methods.
#
# ## Six fits
#
# `gibbs_mmmf` has the same thresholds as `mmmf` and the unsmoothed hinge loss, with priors in place of the
# penalty; its chains start from the point. `ordinal_mf` has thresholds too, but a likelihood instead of a
# margin.

# %%
solver = bf.LBFGS(max_iter=300, tol=1e-5)
hmf, pmmmf = (12.0, 60.0) if large else (3.0, 10.0)
sweeps, kept = (50, 50) if FAST else (300, 200)
point = bf.fit("mmmf", train, solver, penalty=found.best, **common)
ensemble = bf.fit("emmmf", train, solver, penalty=found.best, members=3 if FAST else 8, **common)
gibbs = bf.Gibbs(sweeps, kept, chains=2)
fits = {
    "MMMF": point,
    "HMF": bf.fit("hmf", train, solver, penalty=hmf, **common),
    "PMMMF": bf.fit("pmmmf", train, solver, penalty=pmmmf, **common),
    "E-MMMF": ensemble,
    "Gibbs MMMF": bf.fit("gibbs_mmmf", train, gibbs, init=point, cost=0.3, **common),
    "ordinal Gibbs": bf.fit("ordinal_mf", train, gibbs, **common),
}

# %%
comparison = bf.compare(fits, test)
columns = ["RMSE", "MAE of level", "NMAE", "zero-one", "ordinal log score", "RPS", "covers 90 %"]
print(comparison.table[columns])
print(comparison.differences.xs("RPS", level="loss"))
for name in ("Gibbs MMMF", "ordinal Gibbs"):
    print(f"\n{fits[name].diagnostics()}")

# %% [markdown]
# The posteriors predict better levels than the points (column MAE of level) and have better probabilities
# (column RPS, in stars). The ensemble is a part of the way from MMMF, the point that it is made of, to them.
#
# The verdict says what chains as short as these may be used for. The text below describes no single
# prediction. Averages over many ratings are more stable, but a longer run may change them.
#
# ## Are the probabilities right?

# %%
look = {"MMMF": "C0s-", "E-MMMF": "C1^--", "Gibbs MMMF": "C2D-.", "ordinal Gibbs": "C3o-"}
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
axes.axhline(0, color="0.4", ls=":", label="probabilities mean what they say")
gaps = {}
for name, style in look.items():
    told = comparison.scores[name].reliability()
    told = told[told["n"] >= 100]
    error = np.sqrt(told["observed"] * (1 - told["observed"]) / told["n"])
    gap = told["observed"] - told["predicted"]
    axes.errorbar(told["predicted"], gap, error, fmt=style, ms=4, capsize=2, label=name)
    likely = told["predicted"] > 0.6
    gaps[name] = {"up to .6": gap[~likely].abs().max(), "above": gap[likely].abs().max()}
axes.set(xlabel="probability given to a level", ylabel="share that came true, less that")
axes.set_title("Reliability of the probabilities of levels", loc="left")
axes.legend(loc="lower left", fontsize="small")
plt.show()
gaps = pd.DataFrame(gaps).T
print("largest distance from the line, by the probability given", gaps, sep="\n")

# %% [markdown]
# *All levels of all held-out ratings, grouped by their predicted probability. On the dotted line this
# probability is the share of true levels; below the line the fit was too sure. Bars are one standard error;
# groups of less than 100 are left out.* Up to 60 %, where most levels are, ordinal Gibbs is nearest to the
# line. The probabilities of the three margin methods, one of which is a posterior, are too high between 30
# and 60 %, and too low for unlikely levels: exp(-loss) is no likelihood.
#
# ## Where the ensemble is unsure, and where the posterior is
#
# The same question for both: how much do the predicted *levels* differ between the members of the ensemble,
# or between the draws? The prediction of a posterior counts levels over draws (`votes`). An ensemble is a
# single point of its method, so the code below computes the level of each member: the number of thresholds
# below u.v and the bias of the item.

# %%
stars = np.asarray(train.levels)
U, V, theta, bias = ensemble.params
x = np.einsum("mnk,mnk->mn", U[:, test.user], V[:, test.item]) + bias[:, test.item]
level = (x[..., None] > theta[:, test.user]).sum(-1)  # member, held-out rating
votes = {"E-MMMF": (level[..., None] == np.arange(len(stars))).mean(0)}
votes |= {name: fits[name].predict(test).votes for name in ("Gibbs MMMF", "ordinal Gibbs")}
spread = {n: np.sqrt(np.maximum(v @ stars**2 - (v @ stars) ** 2, 0)) for n, v in votes.items()}
miss = {n: np.abs(fits[n].predict(test).level - test.value) for n in votes}

known = np.bincount(train.item, minlength=train.n_items)[test.item]
edges = [0, 5, 20, 50, 100, 200, 600] if large else [0, 30, 36, 42, 100]
between = list(zip(edges[:-1], edges[1:], strict=True))
films = [(low <= known) & (known < high) for low, high in between]
names = [f"{low}–{high - 1}" for low, high in between]
by_film = {n: [s[rows].mean() for rows in films] for n, s in spread.items()}
by_fifth = {
    n: [miss[n][rows].mean() for rows in np.array_split(np.argsort(s, kind="stable"), 5)]
    for n, s in spread.items()
}
print(pd.DataFrame(by_film, pd.Index(names, name="ratings of the film")).round(2))
print(pd.DataFrame(by_fifth, pd.Index(range(1, 6), name="fifth by spread")).round(2))
truth = np.searchsorted(stars, test.value)
for name, shares in votes.items():
    agreed = shares == 1 if name == "E-MMMF" else shares**8  # the chance that eight draws name it
    right = agreed[np.arange(len(test)), truth].sum() / agreed.sum()
    print(f"{name}: eight are of one voice on {agreed.sum(1).mean():.0%} of the ratings, "
          f"and right on {right:.0%} of these")  # fmt: skip

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.8), layout="constrained")
for name in spread:
    left.plot(by_film[name], look[name], ms=4, label=name)
    right.plot(range(1, 6), by_fifth[name], look[name], ms=4, label=name)
left.set_xticks(range(len(names)), names, rotation=35, ha="right")
left.set(xlabel="training ratings of the film", ylabel="spread of the levels named (stars)")
left.set_title("Who is unsure about rare films", loc="left")
left.legend(fontsize="small")
right.set(xlabel="held-out ratings by their spread", ylabel="mean absolute error (stars)")
right.set_xticks(range(1, 6), ["least\nfifth", "2", "3", "4", "largest\nfifth"])
right.set_title("Does the spread foretell the error", loc="left")
right.legend(fontsize="small")
plt.show()

# %% [markdown]
# *Left: the standard deviation of the levels predicted by the members or draws, averaged over the held-out
# ratings of rarely and often rated films. Right: the error of the method's own level, in fifths of the
# held-out ratings from least to largest spread (the first three fifths of the ensemble have no spread).*
#
# Ensemble and draws disagree about what is uncertain. The draws differ more for films with few ratings than
# for films with many. The members of the ensemble differ less for films with few ratings: the penalty pulls
# the factors of a rare film to zero from every start, so the members agree most there. Restarts differ in
# the optimum that they find, and this does not show what the data leave open.
#
# So agreement of the ensemble says little: its members agree on most ratings, and are right on these hardly
# more often than on all. Draws agree on fewer ratings, and are right on more of them (the shares are printed
# above). In all three fits the largest spread goes with large errors; only for the draws does a small spread
# go with small errors.
#
# ## For whom is the point wrong and sure?
#
# One half of the held-out ratings selects users: those for whom the log score of the point is most below that
# of ordinal Gibbs. *Sure* is the mean probability of the predicted level, *right* the share of predicted
# levels that are true, *known* the number of training ratings. Users who are selected as the worst look worse
# than they are, so the table also shows the other half, which was not used to select them.

# %%
parts = {}
for name in ("MMMF", "ordinal Gibbs"):
    scores = comparison.scores[name]
    code = np.searchsorted(stars, scores.level)
    sure = scores.probabilities[np.arange(len(test)), code]
    right = scores.level == scores.value
    told = {"sure": sure, "right": right, "log score": scores.ordinal_log_score}
    parts[name] = pd.DataFrame(told, index=pd.Index(test.users[test.user], name="user"))
told = pd.concat(parts, axis=1)
half = np.random.default_rng(0).random(len(test)) < 0.5
users, others = (told[part].groupby("user") for part in (half, ~half))
lost = users.mean()["ordinal Gibbs", "log score"] - users.mean()["MMMF", "log score"]
enough = users.size().index[users.size() >= 5].intersection(others.size().index)
worst = lost[enough].nlargest(20).index
activity = pd.Series(np.bincount(train.user, minlength=train.n_users), train.users)
table = users.mean().loc[worst].round(2)
table.insert(0, ("", "known"), activity[worst])
table.insert(1, ("", "held out"), users.size()[worst])
print(table.head(10))
summary = {
    "these 20, where found": users.mean().loc[worst].mean(),
    "these 20, other half": others.mean().loc[worst].mean(),
    "all users, other half": others.mean().mean(),
}
print(pd.DataFrame(summary).T.round(2))
again = others.mean()["ordinal Gibbs", "log score"] - others.mean()["MMMF", "log score"]
error = again[worst].std() / np.sqrt(len(worst))
print(f"log score lost by the point, other half: {again[worst].mean():.2f} ± {error:.2f} for these 20, "
      f"{again.mean():.2f} for all users")  # fmt: skip

# %% [markdown]
# *The ten worst of the twenty users in the half that selected them; then the means over all twenty, in this
# half and in the other half.*
#
# Much of the table is chance: in the other half the point is right about these users more often. But there
# too the log score of the point is below that of the posterior, and the difference is several times that
# for all users. The point is as sure of these users as of others; the posterior is less sure of them. Few
# ratings are not the only reason: see the column "known".
#
# ## What was learned
#
# - Restarts agree where the penalty determines the fit, so the spread of the ensemble is smallest for films
#   with few ratings. The ensemble improves the prediction a little, but is a wrong measure of uncertainty.
# - The posteriors have a large spread for rare films and a small spread where their errors are small, and
#   they predict better levels.
# - A margin posterior is a generalised one. Its probabilities are wrong by a few percentage points where
#   those of the proper likelihood are right. To report a probability, take `ordinal_mf`; for a quick level,
#   `mmmf`.
# - One half of the held-out ratings finds users for whom the point is wrong and sure. The other half shows
#   the same, but less of it. Never report the half that selected the users.
# - The chains were short, as their verdict says. The text describes averages of one split; run longer
#   chains before you report a single prediction.
#
# Next: `bagging=True` for an ensemble of other ratings instead of other starts; `docs/ratings.md` for the
# methods not shown; `comparison.to_html("report.html")` for all of this on one page.

# %%
posteriors = ("Gibbs MMMF", "ordinal Gibbs")
assert all(spread["E-MMMF"].mean() < spread[name].mean() for name in posteriors)
if large:
    assert comparison.best["RPS"] == "ordinal Gibbs"
    assert gaps["up to .6"].idxmin() == "ordinal Gibbs"
    assert by_film["E-MMMF"][0] < by_film["E-MMMF"][-1]
    assert all(by_film[name][0] > by_film[name][-1] for name in posteriors)
    assert again[worst].mean() > again.mean()
