"""Classifiers with several labels."""

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_is_fitted,
)

from bayesfac.api import fit as run
from bayesfac.core.data.reading import plain
from bayesfac.fits.fit import Fit
from bayesfac.sklearn.base import Estimator, Table, settings


class Labels(ClassifierMixin, Estimator):
    """A classifier of several labels: X is rows x features, Y rows x labels of 0 and 1.

    X is a dense or scipy sparse matrix. For methods of several views, X is a dict of such matrices by name,
    a list of them, or a DataFrame with two levels of columns, the view and its feature (which `GridSearchCV`
    can split). Y may be sparse or a DataFrame, whose columns are then `classes_`. If Y has one dimension,
    every class becomes a label, and the most probable class is predicted.

    `predict_proba` returns the probability of every label. `predict` returns the labels with a probability
    above a threshold that was chosen on the training rows (`fit_.cut`); with `return_std=True` it also
    returns the standard deviation of every label. `score` is the share of rows with all labels right. `fit_`
    is the `bf.Fit`. All rows belong to one task; for several tasks use `bf.fit`.
    """

    extra = {"constant": False}
    extra_doc = {"constant": "whether to add an intercept, a feature of ones, to every view"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = tags.target_tags.multi_output = True
        tags.classifier_tags.poor_score = True  # least squares of 0 and 1
        return tags

    def fit(self, X: Any, Y: Any) -> "Labels":
        """Fit to rows and their labels."""
        table = self._read(X, reset=True)
        known = self._targets(Y)
        check_consistent_length(table.rows, known)
        truth = pd.DataFrame(known, table.rows, pd.Index(self.classes_))
        data = self.method.data(table.container, truth, constant=self.constant)
        self.fit_ = self._run(data)
        # without fold_in, `predict` fits again to training rows and new rows together
        self._train = (table, truth) if self.method.fold_in is None else None
        return self

    def _targets(self, Y: Any) -> np.ndarray:
        """Y as rows x labels; sets `classes_`."""
        if Y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None.")
        gaps = "gaps" in self.method.Hyper._fields
        named = Y.columns if isinstance(Y, pd.DataFrame) else None
        how = {"accept_sparse": True, "ensure_2d": False, "dtype": None, "input_name": "y"}
        y = check_array(Y, ensure_all_finite="allow-nan" if gaps else True, **how)
        y = y.toarray() if sp.issparse(y) else y
        if gaps and y.ndim == 1:
            assert_all_finite(y, input_name="y")
        known = np.where(np.isnan(y), 0, y) if gaps and y.dtype.kind == "f" else y
        check_classification_targets(known)
        kind = type_of_target(known)
        self._single = kind != "multilabel-indicator"
        if not self._single:  # scikit-learn calls any two numbers an indicator
            if not (ok := np.isin(known, (0, 1))).all():
                raise ValueError(f"Expected labels of 0 and 1, got {plain(known[~ok][0])!r}")
            self.classes_ = np.arange(y.shape[1]) if named is None else np.asarray(named)
            return y.astype(float)
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(f"Expected labels of 0 and 1, or one column of classes, got {kind}")
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Expected at least two classes, got 1 class: {plain(self.classes_[0])!r}"
            )
        return (y.reshape(-1, 1) == self.classes_).astype(float)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Labels above the cut, or the most probable class; with `return_std` also the sd of every label."""
        fit, new = self._ask(X)
        mean, sd = _moments(fit, new)
        if self._single:
            answer = self.classes_[self._scores(fit, new).argmax(1)]
        else:
            answer = (mean > self.fit_.cut).astype(int)
        return (answer, sd) if return_std else answer

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities, rows x labels; those of classes sum to one."""
        mean = np.clip(_moments(*self._ask(X))[0], 0, 1)
        return mean / mean.sum(1, keepdims=True) if self._single else mean

    def _ask(self, X: Any) -> tuple[Fit, slice]:
        """A fit that contains these rows, and their position in it."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        if self._train is None:
            table = table._replace(rows=pd.RangeIndex(len(table.rows)))
            return self.fit_.fold_in(
                self.method.data(table.container, constant=self.constant)
            ), slice(None)
        return self._beside(*self._train, table), slice(len(self._train[0].rows), None)

    def _scores(self, fit: Fit, new: slice) -> np.ndarray:
        """Scores of the classes before clipping, after which several classes may have probability .999."""
        rows = fit.data.coords["row"][new]
        cells = np.repeat(rows, len(self.classes_)), np.tile(self.classes_, len(rows))
        return fit.predict(cells).score.reshape(len(rows), -1)

    def _beside(self, old: Table, truth: pd.DataFrame, new: Table) -> Fit:
        """Fit again to the training rows and the new rows without labels, from the end of the first fit."""
        n, rows = len(old.rows), pd.RangeIndex(len(old.rows) + len(new.rows))
        both = {v: sp.vstack([sp.csr_matrix(t.views[v]) for t in (old, new)]) for v in old.views}
        labels = truth.set_axis(rows[:n]).reindex(rows)
        data = self.method.data(
            Table(both, old.columns, rows).container, labels, constant=self.constant
        )
        own = self.fit_
        hyper = {name: getattr(own.hyper, name) for name in settings(self.method)}
        return run(self.method, data, own.engine, seed=own.seed, init=own, progress=False, **hyper)


def _moments(fit: Fit, rows: slice) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of every label of some rows."""
    both = fit.everywhere()
    return both.mean[rows].astype(float), both.sd[rows].astype(float)
