"""Classifiers of several labels at once to compare with, as plain functions from tables to scores.

    adaboost_mh     Schapire & Singer, "Improved boosting algorithms using confidence-rated predictions",
                    Mach. Learn. 1999, and "BoosTexter: A boosting-based system for text categorization",
                    Mach. Learn. 2000
    bp_mll          Zhang & Zhou, "Multilabel neural networks with applications to functional genomics and
                    text categorization", IEEE TKDE 2006
    br_knn          Spyromitros, Tsoumakas & Vlahavas, "An empirical study of lazy multilabel classification
                    algorithms", SETN 2008
    br_svm          Tsoumakas & Katakis, "Multi-label classification: An overview", IJDWM 2007
    chain           Read, Pfahringer, Holmes & Frank, "Classifier chains for multi-label classification",
                    Mach. Learn. 2011
    clr             Fuernkranz, Huellermeier, Loza Mencia & Brinker, "Multilabel classification via
                    calibrated label ranking", Mach. Learn. 2008
    cssp            Bi & Kwok, "Efficient multi-label classification with many labels", ICML 2013
    l2f             Yang, He, Yang & Fu, "Learning from label and feature heterogeneity", ICDM 2014: a
                    reconstruction
    label_powerset  Tsoumakas & Katakis, as above
    lift            Zhang & Wu, "LIFT: Multi-label learning with label-specific features", IEEE TPAMI 2015
    llsf            Huang, Li, Huang & Wu, "Learning label specific features for multi-label classification",
                    ICDM 2015
    ls_ml           Ji, Tang, Yu & Ye, "Extracting shared subspace for multi-label classification", KDD 2008
    ml_dt           Clare & King, "Knowledge discovery in multi-label phenotype data", PKDD 2001
    ml_knn          Zhang & Zhou, "ML-kNN: A lazy learning approach to multi-label learning", Pattern
                    Recogn. 2007
    plst            Tai & Lin, "Multilabel classification with principal label space transformation", Neural
                    Comput. 2012
    rakel           Tsoumakas, Katakis & Vlahavas, "Random k-labelsets for multilabel classification", IEEE
                    TKDE 2011
    tram            Kong, Ng & Zhou, "Transductive multilabel learning via label set propagation", IEEE
                    TKDE 2013

X and Y are features (dense, scipy sparse or DataFrame) and labels (0 or 1, rows x labels) of the training
rows, X_new the features of new ones. Scores are new rows x labels, the larger the more likely; those of
`PROBABILITIES` estimate probabilities, within 0 and 1. `as_labels` makes scores 0 and 1. Sparse features stay
sparse and distances come in blocks; `cssp`, `llsf`, `ls_ml` and `plst` alone hold a square table, of the
smaller of rows and features. A metric is "euclidean" or "cosine", which scales rows to length one: a row of
zeros has no neighbours then and is nobody's, and its scores are averages over training rows. Of rows equally
near, to 12 digits, the first are taken. What is random follows `seed`. `comparators.ridges.grid` gives the
scores of `plst`, `cssp` and CPLST for a whole grid of settings from one decomposition of the features.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bayesfac.comparators import ridges as ridges
from bayesfac.comparators.classifiers import (
    adaboost_mh,
    bp_mll,
    br_knn,
    br_svm,
    chain,
    clr,
    label_powerset,
    lift,
    llsf,
    ml_dt,
    rakel,
)
from bayesfac.comparators.embeddings import cssp, plst
from bayesfac.comparators.graphical import l2f, ls_ml, ml_knn, tram
from bayesfac.core import reading

NOISE = 1e-6  # more than what a solver of linear systems leaves in a score
CUTS: dict[str, float] = {
    **dict.fromkeys(("adaboost_mh", "bp_mll", "br_svm", "clr", "lift"), 0.0),
    **dict.fromkeys(("br_knn", "chain", "cssp", "label_powerset", "llsf", "plst"), 0.5),
    **dict.fromkeys(("ls_ml", "ml_dt", "ml_knn", "rakel"), 0.5),
}
PROBABILITIES = frozenset({"br_knn", "chain", "ml_dt", "ml_knn"})
NAMED: dict[str, Callable[..., np.ndarray]] = {
    f.__name__: f
    for f in (
        *(adaboost_mh, bp_mll, br_knn, br_svm, chain, clr, cssp, l2f, label_powerset, lift, llsf),
        *(ls_ml, ml_dt, ml_knn, plst, rakel, tram),
    )
}


def as_labels(score: Any, method: str, threshold: Any = None) -> np.ndarray:
    """Scores as 0 and 1, by the rule of their method or by a threshold (a number, or one for each label).

    tram, l2f       as many labels as the row sums to, rounded: the largest scores, of equal ones the first,
                    and none of 0 or less
    others          the labels whose scores reach `CUTS[method]`: 0 of margins and votes for and against, 0.5
                    of probabilities, shares and regressions on 0 and 1

    Examples
    --------
    >>> as_labels([[0.9, 0.8, 0.4]], "ml_knn").tolist(), as_labels([[1.2, 0.2, 0.1]], "tram").tolist()
    ([[1, 1, 0]], [[1, 1, 0]])
    """
    if method not in NAMED:
        raise ValueError(f"Expected method to be one of {tuple(NAMED)}, got {method!r}")
    found = np.asarray(score, float)
    if found.ndim != 2:
        raise ValueError(f"Expected scores as rows x labels, got shape {found.shape}")
    reading.check_finite(found, "scores")
    cut = CUTS.get(method) if threshold is None else threshold
    if cut is not None:
        return (found >= np.asarray(cut)).astype(int)
    rank = np.argsort(np.argsort(-found, 1, kind="stable"), 1)
    size = np.floor(found.sum(1, keepdims=True) + 0.5 + NOISE)
    return ((rank < size) & (found > NOISE)).astype(int)
