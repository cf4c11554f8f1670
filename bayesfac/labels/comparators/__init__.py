"""Multi-label classifiers from the literature, for comparison: plain functions from tables to scores.

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
    mlsf            Sun, Kudo & Kimura, "Multi-label classification with meta-label-specific features", ICPR
                    2016
    plst            Tai & Lin, "Multilabel classification with principal label space transformation", Neural
                    Comput. 2012
    rakel           Tsoumakas, Katakis & Vlahavas, "Random k-labelsets for multilabel classification", IEEE
                    TKDE 2011
    ssjdr_mll       Yu & Zhang, "Semisupervised multilabel learning with joint dimensionality reduction",
                    IEEE Signal Process. Lett. 2016
    tram            Kong, Ng & Zhou, "Transductive multilabel learning via label set propagation", IEEE
                    TKDE 2013

X and Y are the features (dense, scipy sparse or DataFrame) and labels (0 or 1, rows x labels) of training
rows; X_new are the features of new rows. Every function returns scores, new rows x labels. A larger score
means a more likely label. The scores of the functions in `PROBABILITIES` are probabilities. `as_labels` turns
scores into 0 and 1. All arithmetic is in double precision. Sparse features stay sparse, and distances are
computed in blocks. Only `cssp`, `llsf`, `ls_ml`, `mlsf`, `plst` and `ssjdr_mll` need a square table, whose
size is the smaller of rows and features. `metric` is "euclidean" or "cosine", which scales rows to length
one. With "cosine", a row of zeros has no neighbours and is no neighbour, and its scores are averages over
training rows. Among rows at the same distance (to 12 digits) the first are taken. Random choices depend on
`seed`. `ridges.grid` gives the scores of `plst`, `cssp` and CPLST for a grid of settings from one
decomposition, and `grids.faie` and `grids.leml` give those of FAiE and LEML.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bayesfac.core.data import reading
from bayesfac.labels.comparators import clusterings as clusterings
from bayesfac.labels.comparators import grids as grids
from bayesfac.labels.comparators import ridges as ridges
from bayesfac.labels.comparators.classifiers import (
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
from bayesfac.labels.comparators.graphical import l2f, ml_knn, tram
from bayesfac.labels.comparators.ridges import cssp, ls_ml, plst
from bayesfac.labels.comparators.specific import mlsf, ssjdr_mll

__all__ = ["PROBABILITIES", "as_labels", "clusterings", "grids", "ridges"]


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)


NOISE = 1e-6  # larger than the error that a solver of linear systems leaves in a score
CUTS: dict[str, float] = {
    **dict.fromkeys(("adaboost_mh", "bp_mll", "br_svm", "clr", "lift", "mlsf"), 0.0),
    "ssjdr_mll": 0.0,
    **dict.fromkeys(("br_knn", "chain", "cssp", "label_powerset", "llsf", "plst"), 0.5),
    **dict.fromkeys(("ls_ml", "ml_dt", "ml_knn", "rakel"), 0.5),
}
PROBABILITIES = frozenset({"br_knn", "chain", "ml_dt", "ml_knn"})
NAMED: dict[str, Callable[..., np.ndarray]] = {
    f.__name__: f
    for f in (
        *(adaboost_mh, bp_mll, br_knn, br_svm, chain, clr, cssp, l2f, label_powerset, lift, llsf),
        *(ls_ml, ml_dt, ml_knn, mlsf, plst, rakel, ssjdr_mll, tram),
    )
}


def as_labels(score: Any, method: str, threshold: Any = None) -> np.ndarray:
    """Turn scores into 0 and 1, by the rule of a method or by a threshold (one number, or one for a label).

    tram, l2f       the labels with the largest scores. Their number is the sum of the row, rounded. Among
                    equal scores the first are taken; labels with scores of 0 or less are never taken
    other methods   the labels whose scores reach `CUTS[method]`: 0 for margins and differences of votes, 0.5
                    for probabilities, shares and regressions on 0 and 1

    Examples
    --------
    >>> as_labels([[0.9, 0.8, 0.4]], "ml_knn").tolist(), as_labels([[1.2, 0.2, 0.1]], "tram").tolist()
    ([[1, 1, 0]], [[1, 1, 0]])
    """
    if method not in NAMED:
        raise ValueError(f"Expected method to be one of {tuple(NAMED)}, got {method!r}")
    scores = np.asarray(score, float)
    if scores.ndim != 2:
        raise ValueError(f"Expected scores as rows x labels, got shape {scores.shape}")
    reading.check_finite(scores, "scores")
    cut = CUTS.get(method) if threshold is None else threshold
    if cut is not None:
        return (scores >= np.asarray(cut)).astype(int)
    rank = np.argsort(np.argsort(-scores, 1, kind="stable"), 1)
    size = np.floor(scores.sum(1, keepdims=True) + 0.5 + NOISE)
    return ((rank < size) & (scores > NOISE)).astype(int)
