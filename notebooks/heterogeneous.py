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
# # Which labels would I rather not guess?
#
# Rows of several tasks have features in several views, and some rows have labels. A method predicts the
# labels of all other rows. Some predictions are better than others: do its probabilities show which?
#
# Here `heres` is fitted as a point and as a posterior and compared with a vote of neighbours, first on all
# rows, then without the least certain rows (`docs/tasks.md`).

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesfac as bf

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # small data, few draws, to test the code
FOLDER = Path(os.environ.get("BAYESFAC_DATA", "."))
pd.set_option("display.width", 120, "display.max_columns", None, "display.precision", 3)

# %% [markdown]
# ## The data
#
# If the folder `BAYESFAC_DATA` has `emotions.npz`, the data are `emotions` of the Mulan collection: 593
# pieces of music, two views (rhythm, 8 features, and timbre, 64), six moods. Otherwise they are made-up
# tasks. Half of the labelled rows lose their labels, and the fits predict these labels.


# %%
def music():
    with np.load(FOLDER / "emotions.npz") as z:
        x, y, view = z["X"].astype(float), z["Y"].astype(float), z["view_of_feature"]
        names = [str(name) for name in z["label_names"]]
    x = (x - x.mean(0)) / x.std(0)
    # none of these models has an intercept: a column that never varies gives them one
    constant = np.full((len(x), 1), 3.0)
    views = {"rhythm": x[:, view == 0], "timbre": x[:, view == 1], "constant": constant}
    return bf.Tasks(views, pd.DataFrame(y, columns=names))


real = not FAST and (FOLDER / "emotions.npz").exists()
data = music() if real else bf.datasets.make_tasks(60 if FAST else 300, 3, labelled=1.0, seed=0)[0]
train, test = bf.split.holdout(data, 0.5, seed=0)
print(data, train, sep="\n")

# %% [markdown]
# ## A point, a posterior, and the neighbours
#
# The point and the draws come from one model. Gibbs begins at the point: each sweep draws all rows, then all
# bases, from normal laws.

# %%
given = {"n_components": 20, "weight": 1.0, "sparsity": 1.0, "beta": 1.0}
point = bf.fit("heres", train, bf.FixedPoint(30 if FAST else 500, tol=1e-3), **given)
length = {"warmup": 20, "draws": 20} if FAST else {"warmup": 300, "draws": 300}
posterior = bf.fit("heres", train, bf.Gibbs(**length, chains=2), init=point, **given)
print(point, posterior, posterior.diagnostics(), sep="\n")

# %% [markdown]
# The data identify predictions, but not the columns of a factor, which may change places. So the verdict
# judges predictions.

# %%
seen, asked = train.take(train.labelled), test
both = [np.hstack([part[v].toarray() for v in data.names]) for part in (seen, asked)]
neighbours = bf.comparators.ml_knn(both[0], seen["labels"].toarray(), both[1])
truth = asked["labels"].toarray()
query = asked.frame()
probability = {
    "point": point.predict(query).mean.reshape(truth.shape),
    "posterior": posterior.predict(query).mean.reshape(truth.shape),
    "ML-kNN": neighbours,
}
rows = []
for name, p in probability.items():
    told = bf.multilabel.scores(truth, predicted=(p > 0.5).astype(int), probability=p)
    rows.append({"method": name} | told)
table = pd.DataFrame(rows).set_index("method")
print(table[["hamming_loss", "example_f1", "micro_f1", "brier", "expected_calibration_error"]].T)

# %% [markdown]
# ## Are the probabilities calibrated?
#
# Of the labels with a predicted probability of 30 %, 30 % should be true.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
axes[0].plot([0, 1], [0, 1], ":", color="grey", label="calibrated")
for number, (name, p) in enumerate(probability.items()):
    found = bf.multilabel.reliability(truth, p, bins=8).dropna()
    axes[0].plot(found["predicted"], found["observed"], "os^"[number] + "-", ms=4, label=name)
axes[0].set(xlabel="probability given to a label", ylabel="labels that came true (share)")
axes[0].set_title("Reliability", loc="left")
axes[0].legend()
shares = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])


def f1(Y, p):
    return bf.multilabel.example_f1(Y, p > 0.5)


for number, (name, p) in enumerate(probability.items()):
    curve = bf.multilabel.abstain_curve(truth, p, shares, f1)
    axes[1].plot(100 * shares, curve, "os^"[number] + "-", ms=4, label=name)
axes[1].set(xlabel="least certain rows left out (%)", ylabel="F1 of the rest, mean over rows")
axes[1].set_title("Abstaining", loc="left")
axes[1].legend()
plt.show()
gains = {
    name: bf.multilabel.abstain(truth, p, 0.2, f1) - f1(truth, p) for name, p in probability.items()
}
print("F1 gained by leaving a fifth out:", {name: round(float(g), 3) for name, g in gains.items()})

# %% [markdown]
# *Left: calibration of the predicted probabilities. Right: the curve rises if the least certain rows of a
# method are its worst.*
#
# ## New rows
#
# New rows of a known task need no new fit: `fold_in` fits their representation and keeps all other
# parameters.

# %%
late = asked.take(np.arange(5), labelled=np.zeros(asked.n_rows, bool))
folded = posterior.fold_in(late)
print(folded.predict(late).frame().head(6))

# %% [markdown]
# ## What was learned
#
# Use the score of a label as a probability only after a check, for example by the reliability curve. On the
# music the probabilities of the point are calibrated; those of the draws are too close to one half. All three
# methods order the rows well: without the least certain fifth, F1 of the rest is higher. The vote of the
# neighbours has the highest F1 and gains least. These figures are from the table above, for one split.

# %%
if not FAST:
    assert gains["posterior"] > 0, "leaving out the least certain rows should help"
