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
# # Which labels does a new document get, and when should I not believe the answer?
#
# A document may have several labels, or none. A classifier predicts the probability of each label, also for
# documents that differ from all training documents.
#
# Here `leml`, an embedding of the labels, is fitted as a point and as a posterior, and `mlc_hmf`, a tree of
# embeddings, predicts by vote. All predict the labels of held-out documents (`docs/multilabel.md`).

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesfac as bf

plt.style.use("bayesfac.style")  # that of the reports

FAST = os.environ.get("BAYESFAC_FAST") == "1"  # small data, few draws, to test the code
pd.set_option("display.width", 120, "display.max_columns", None, "display.precision", 3)

# %% [markdown]
# ## A file of documents
#
# The documents are made up. A document mixes eight topics, each topic prefers some of 40 words and implies
# some of eight labels, and a label is true where more than half of the document implies it. So words predict
# labels, the labels of a topic come together, and a document has too few words to be certain. Real data sets
# are often ARFF files, and so is this one: rows are sparse, labels come last, and the name has their number,
# as MEKA writes it.

# %%
NAMES = ["arts", "business", "health", "law", "music", "science", "sports", "travel"]


def documents(rows, seed, words=40, labels=8, topics=8):
    made, _ = bf.datasets.make_tasks(
        rows, 1, {"words": words}, n_labels=labels, n_topics=topics, labelled=1.0, seed=seed
    )
    return made["words"], made["labels"].toarray()


def write_arff(path, words, labels):
    head = [f"@relation 'documents: -C -{len(NAMES)}'"]
    head += [f"@attribute word{j} numeric" for j in range(words.shape[1])]
    head += [f"@attribute {name} {{0,1}}" for name in NAMES]
    rows = np.hstack([words.toarray(), labels])
    said = ["{" + ", ".join(f"{j} {row[j]:g}" for j in np.flatnonzero(row)) + "}" for row in rows]
    path.write_text("\n".join([*head, "@data", *said]), encoding="utf-8")


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "documents.arff"
    write_arff(path, *documents(150 if FAST else 600, seed=0))
    lines = path.read_text(encoding="utf-8").splitlines()
    file = bf.datasets.read_arff(path)
print(lines[0], lines[1], "...", lines[-1], file, sep="\n")

# %% [markdown]
# Counts become log(1 + count), minus their mean: with centred words the intercept is easier to sample.
# `constant=True` adds the intercept, a feature of ones. 30 % of the documents keep their labels; the fits
# predict the labels of the others.


# %%
def tasks(features, labels):
    x = np.log1p(features.toarray())
    return bf.Tasks({"words": x - x.mean(0)}, labels, constant=True)


data = tasks(file["features"], pd.DataFrame(file["labels"].toarray(), columns=file.labels))
train, test = bf.split.holdout(data, 0.7, seed=0)
seen = train.take(train.labelled)
asked = test.take(np.arange(test.n_rows), labelled=np.zeros(test.n_rows, bool))
truth = test["labels"].toarray()
share = pd.Series(seen["labels"].toarray().mean(0), data.labels)
print(seen, share.round(2).to_frame("share").T, sep="\n")

# %% [markdown]
# ## A point, a posterior, and a vote
#
# With its logistic loss the objective of `leml` is minus the log joint of a proper model, and NUTS samples
# that model, with the same default `penalty`. A larger penalty may improve a point: the *tuned point* has the
# penalty that is best on rows held out of the training part. `fold_in` adds new rows. `mlc_hmf` has no such
# step: it gets the words of all documents and the labels of some.

# %%
given = {"n_components": 4, "loss": "logistic"}


def point_fit(rows, penalty):
    return bf.fit("leml", rows, bf.LBFGS(), penalty=penalty, **given)


def asked_of(fit, rows=test):
    """The probability of every label, documents x labels."""
    return fit.predict(rows.frame()).mean.reshape(rows.n_rows, -1)


inner, valid = bf.split.holdout(seen, 1 / 3, seed=0)  # inner has the other rows too, without labels
loss = {
    penalty: bf.multilabel.log_loss(valid["labels"], asked_of(point_fit(inner, penalty), valid))
    for penalty in ((1.0, 10.0) if FAST else (1.0, 3.0, 10.0, 30.0))
}
best = min(loss, key=loss.get)
print(f"penalty {best:g} of", {penalty: round(value, 3) for penalty, value in loss.items()})

# %%
point, tuned = point_fit(seen, 1.0), point_fit(seen, best)
sampler = bf.NUTS(20, 20, 2) if FAST else bf.NUTS(150, 250, 2)
posterior = bf.fit("leml", seen, sampler, init=point, penalty=1.0, **given)
tree = bf.fit("mlc_hmf", train, bf.FixedPoint(20, tol=1e-4), penalty=3.0, depth=3, vote="soft")
print(point, tuned, posterior, tree, posterior.diagnostics(), sep="\n")

# %%
fits = {"point": point, "tuned point": tuned, "posterior": posterior}
fits = {name: fit.fold_in(asked) for name, fit in fits.items()}
answer = {name: asked_of(fit) for name, fit in (fits | {"MLC-HMF": tree}).items()}
measures = {
    name: bf.multilabel.scores(truth, predicted=(p > 0.5).astype(int), probability=p)
    for name, p in answer.items()
}
shown = ["hamming_loss", "micro_f1", "log_loss", "brier", "expected_calibration_error"]
print(pd.DataFrame(measures).T[shown])

# %% [markdown]
# The predicted labels differ little, the probabilities differ more. The probabilities of the draws have a
# lower log loss than those of the point where the draws started, and are better calibrated. Tuning lowers
# the log loss of the point too. The tree predicts labels nearly as well, but its probabilities are votes.
#
# ## Are the probabilities calibrated?
#
# Of the labels with a predicted probability of 30 %, 30 % should be true. And if a method may leave out
# documents, it should leave out those for which its labels are wrong.

# %%
LOOK = {"point": "C0s-", "tuned point": "C2D--", "posterior": "C3o-", "MLC-HMF": "C7^:"}


def f1(Y, p):
    return bf.multilabel.example_f1(Y, p > 0.5)


def certainty(p):
    return np.maximum(p, 1 - p)


shares = np.linspace(0, 0.6, 7)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.axhline(0, color="0.4", ls=":")
for name, p in answer.items():
    found = bf.multilabel.reliability(truth, p, bins=8)
    found = found[found["count"] >= 30]
    gap = found["observed"] - found["predicted"]
    error = np.sqrt(found["observed"] * (1 - found["observed"]) / found["count"])
    left.errorbar(found["predicted"], gap, error, fmt=LOOK[name], ms=4, capsize=2)
    curve = bf.multilabel.abstain_curve(truth, p, shares, f1)
    right.plot(100 * shares, curve, LOOK[name], ms=4, label=name)
left.set(xlabel="probability given to a label", ylabel="share that came true, less that")
left.set_title("Reliability", loc="left")
right.set(xlabel="least certain documents left out (%)", ylabel="F1 of the others (mean)")
right.set_title("Abstaining", loc="left")
right.legend(fontsize="small")
plt.show()

# %% [markdown]
# *Left: all labels of all held-out documents, in eight groups by their predicted probability; on the dotted
# line this probability is the share of true labels. Bars are one standard error. Right: F1 of the documents
# that remain without those of which the method itself is least certain.*
#
# The point is too sure: labels with a low probability are true more often than predicted, and labels with a
# high probability less often. The vote errs in the other direction. The draws are nearest to the line at both
# ends, where most labels are. All curves on the right rise: even a method with wrong probabilities can order
# documents by certainty.
#
# ## Sure and wrong
#
# The most harmful errors are confident ones: here, wrong labels with a probability above 95 %.

# %%
told, wrong = {}, {name: (p > 0.5) != truth for name, p in answer.items()}
for name, p in answer.items():
    sure, doubt = certainty(p) > 0.95, 1 - certainty(p)
    own = {"sure": sure.mean(), "wrong of these": wrong[name][sure].mean()}
    told[name] = own | {"expected": doubt[sure].mean()}
print(pd.DataFrame(told).T)

# %% [markdown]
# Where the point is sure, it is wrong more than twice as often as it expects. Which fit
# shows which of these answers are wrong? The table has the answers in fifths from the least to the most
# doubtful, once by the probability of the point, once by that of the posterior. Then follows a question about
# whole documents: how many labels does each have? (Simulated draw by draw; a point is one draw.)

# %%
among, parts = certainty(answer["point"]) > 0.95, {}
for name in ("point", "posterior"):
    doubt = 1 - certainty(answer[name][among])
    fifths = np.array_split(np.argsort(doubt, kind="stable"), 5)
    parts[name, "expected"] = [100 * doubt[at].mean() for at in fifths]
    parts[name, "wrong"] = [100 * wrong["point"][among][at].mean() for at in fifths]
parts = pd.DataFrame(parts, pd.Index(range(1, 6), name="fifth"))
print(parts.round(1))


def counts(p):
    """How many labels every document has: simulated from (draws, documents, labels)."""
    rng = np.random.default_rng(0)
    again = -(-2000 // len(p))
    return np.concatenate([(rng.random(p.shape) < p).sum(-1) for _ in range(again)])


query, number = test.frame(), truth.sum(1)
levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
jump = np.random.default_rng(1).random(len(number))
covers = {}
for name, fit in fits.items():
    simulated = counts(fit.predict(query).draws_of_mean().reshape(-1, *truth.shape))
    below, upto = (simulated < number).mean(0), (simulated <= number).mean(0)
    at = below + jump * (upto - below)  # where the truth lies, at random within its own mass
    covers[name] = 100 * (np.abs(at - 0.5) <= levels[:, None] / 2).mean(1)
covers = pd.DataFrame(covers, pd.Index(100 * levels, name="level"))
print(covers.round(1))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for name in ("point", "posterior"):
    color = LOOK[name][:2]
    left.plot(parts[name, "wrong"], LOOK[name], ms=4, label=f"wrong, sorted by the {name}")
    left.plot(parts[name, "expected"], f"{color}:", label=f"expected by the {name}")
left.set_xticks(range(1, 6), ["least\ndoubtful", "2", "3", "4", "most\ndoubtful"])
left.set(xlabel="fifths of the labels that the point is sure of", ylabel="wrong (%)")
left.set_title("Sure and wrong", loc="left")
left.legend(fontsize="small")
right.plot([50, 95], [50, 95], ":", color="0.4")
for name in covers:
    right.plot(covers[name], LOOK[name], ms=4, label=name)
right.set(xlabel="level of the interval (%)", ylabel="documents whose number it holds (%)")
right.set_title("How many labels has a document", loc="left")
right.legend(fontsize="small")
plt.show()

# %% [markdown]
# *Left: how many of the point's sure answers are wrong (solid), and how many were expected to be wrong
# (dotted). Right: how often the central interval of a document's number of labels holds the true number; on
# the dotted line the share equals the nominal level.*
#
# Point and posterior have most of the errors in the last fifth; the posterior expects most of them, the point
# few. The number of labels is more uncertain than the point says, and about as uncertain as the posterior
# says. How cautious the tuned point is depends on its penalty, which was chosen on few rows: the losses that
# are printed with the candidates differ little. The posterior is least certain of this document:

# %%
least = certainty(answer["posterior"]).mean(1).argmin()
told_of = {"true": truth, "point": answer["point"], "posterior": answer["posterior"]}
told_of["sd over draws"] = fits["posterior"].predict(query).sd_mean.reshape(truth.shape)
print(pd.DataFrame({what: table[least] for what, table in told_of.items()}, data.labels).T.round(2))

# %% [markdown]
# ## The rarest labels

# %%
rows = {}
for label in share.sort_values().index[:3]:
    at = [data.labels.get_loc(label)]
    always = np.full((len(truth), 1), share[label])
    row = {("", "training"): round(share[label] * seen.n_rows)}
    row["log loss", "its share"] = bf.multilabel.log_loss(truth[:, at], always)
    for name, p in answer.items():
        row["log loss", name] = bf.multilabel.log_loss(truth[:, at], p[:, at])
        row["F1", name] = bf.multilabel.micro_f1(truth[:, at], p[:, at] > 0.5)
    rows[label] = row
rarest = pd.DataFrame(rows).T
print(rarest[["", "log loss", "F1"]].round(3))

# %% [markdown]
# *The three rarest labels: how many training documents have the label; the log loss of a prediction that is
# always the share of these documents; log loss and F1 of each method.*
#
# With so few documents to learn from, no method finds the rarest label reliably. There the votes of the tree
# are worse probabilities than this share, and the draws and the tuned point have the best probabilities.
#
# ## When labels are missing
#
# Nobody ticks every box that applies. A label that is not ticked may be unknown rather than false; `leml`
# leaves unknown labels (NaN) out of its loss. Here some labels of the training documents are hidden at
# random. One fit gets them as unknown, the other as false.

# %%
hidden = np.random.default_rng(0).random(seen["labels"].shape)
full, words = seen["labels"].toarray(), seen["words"][:, :-1]  # the last feature is the constant
lost = {}
for how, value in (("unknown", np.nan), ("taken for false", 0.0)):
    for part in (0.0, 0.6) if FAST else (0.0, 0.3, 0.6):
        y = pd.DataFrame(np.where(hidden < part, value, full), columns=data.labels)
        some = bf.Tasks({"words": words}, y, constant=True)
        p = asked_of(point_fit(some, best).fold_in(asked))
        costs = bf.multilabel.log_loss(truth, p), bf.multilabel.micro_f1(truth, p > 0.5)
        lost[how, part] = {"log loss": costs[0], "micro F1": costs[1], "labels": p.sum(1).mean()}
lost = pd.DataFrame(lost).T
print(f"labels of a document: {number.mean():.2f} in truth", lost, sep="\n")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for (how, own), style in zip(lost.groupby(level=0, sort=False), ("C3o-", "C0s--"), strict=True):
    for axis, measure in zip(axes, ("log loss", "micro F1"), strict=True):
        axis.plot(100 * own.index.get_level_values(1), own[measure], style, label=how)
        axis.set(xlabel="training labels hidden (%)", ylabel=f"{measure} of held-out documents")
axes[0].legend(title="hidden labels are")
plt.show()

# %% [markdown]
# *The tuned point, fitted to fewer and fewer labels and asked for all labels of the held-out documents.*
#
# With some unknown labels the fit is hardly worse. If the hidden labels count as false, the fit learns to
# predict few labels: it expects fewer labels than the documents have (last column).
#
# ## Which method, then?
#
# `bf.evaluate` cross-validates methods and comparators on several sets of data, with the same folds for all.
# The three data sets are documents of few topics with many labels, documents of many topics with few labels,
# and 150 handwritten digits, labelled with properties of the number. Here the settings are given. For results
# that matter let `bf.Tuned` choose them, and pass a `folder`, which keeps every finished fold
# (`docs/multilabel.md`).


# %%
def digits(rows):
    pixels = bf.datasets.load("digits")["pixels"][:rows]
    number = bf.datasets.target("digits")[:rows]
    said = {
        "even": number % 2 == 0,
        "prime": np.isin(number, (2, 3, 5, 7)),
        "has a loop": np.isin(number, (0, 6, 8, 9)),
        "above four": number > 4,
        "divisible by three": number % 3 == 0,
    }
    return tasks(pixels, pd.DataFrame(said).astype(float))


n = 60 if FAST else 150
sets = {
    "few topics": tasks(*documents(n, 2, labels=12, topics=6)),
    "many topics": tasks(*documents(n, 3, labels=6, topics=12)),
    "digits": digits(n),
}
methods = {"LEML": ("leml", {**given, "penalty": 3.0}, bf.LBFGS())}
methods |= {"BSVM": "br_svm", "ML-kNN": "ml_knn", "chain": "chain"}
if not FAST:
    methods["MLC-HMF"] = ("mlc_hmf", {"penalty": 3.0, "depth": 3}, bf.FixedPoint(20, tol=1e-4))
found = bf.evaluate(methods, sets, folds=2 if FAST else 3, metrics=["micro_f1", "log_loss"])
print(found.table("micro_f1").T, found.table("log_loss").T, sep="\n\n")

# %%
ranks = found.ranks("micro_f1")
print(ranks, found.friedman("micro_f1"), sep="\n\n")
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
bf.ranks.cd_diagram(ranks, ax=axes, title="Micro F1, cross-validated")
plt.show()

# %% [markdown]
# *Mean ranks by micro F1; a bar joins methods that are nearer to one another than the critical difference
# (CD).*
#
# One bar joins all methods: three data sets do not show a difference between any two of them, and on each
# data set the folds differ by as much as the methods do. The table of log loss has no entry for BSVM, whose
# scores are no probabilities. MLC-HMF, whose probabilities are votes, has the largest log loss. To add a
# method, add a line such as `"GroPLE": "grople"`.
#
# ## What was learned
#
# - *Which labels?* Point, draws, tree and plain classifiers predict nearly the same labels here, and three
#   data sets do not rank them.
# - *When not to believe?* Where the point is sure, it is wrong more than twice as often as it expects. The
#   posterior of the same model with the same penalty expects nearly the right number of errors, for single
#   labels and for their number, and needs no held-out rows for this.
# - A penalty chosen on held-out rows improves the point about as much. But few rows do not determine it well,
#   and with too high a penalty all predictions look doubtful.
# - Leave the least certain documents to a person: every method is better on the documents that remain.
# - A missing label is not a false label. Pass NaN for unknown labels: the fit is then hardly worse.
# - The votes of a tree suit decisions. Before you read them as probabilities, check their calibration.
# - Next: `docs/multilabel.md` for the other methods, `bf.compare` for a page about several fits.

# %%
if not FAST:
    assert measures["posterior"]["log_loss"] < 0.9 * measures["point"]["log_loss"]
    assert told["point"]["wrong of these"] > 2 * told["point"]["expected"]
    assert abs(covers.loc[90, "posterior"] - 90) < abs(covers.loc[90, "point"] - 90)
    assert lost.loc[("unknown", 0.3), "log loss"] < lost.loc[("taken for false", 0.3), "log loss"]
