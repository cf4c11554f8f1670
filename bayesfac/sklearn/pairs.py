"""Methods for ratings as regressors: X has a row (user, item) for every rating, y is the rating.

`Cells` does the same for tensors, whose cells have three or more labels.

Examples
--------
>>> import numpy as np
>>> from bayesfac.sklearn import pairs
>>> X = np.array([["ann", "x"], ["ann", "y"], ["bob", "x"], ["bob", "y"], ["cid", "x"]])
>>> model = pairs.pmf(n_components=1).fit(X, [5.0, 1.0, 4.0, 2.0, 5.0])
>>> mean, sd = model.predict([["cid", "y"], ["eve", "x"]], return_std=True)
>>> mean.shape, sd.shape  # eve has no ratings: her mean is that of the prior
((2,), (2,))
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from bayesfac.core.data import reading
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.tensor import LEAST, Tensor
from bayesfac.core.errors import DataWarning
from bayesfac.inference.gibbs import Gibbs
from bayesfac.sklearn.base import Estimator, shelf
from bayesfac.sklearn.transformers import scale_of


class Cells(RegressorMixin, Estimator):
    """A regressor of cells: X has three or more columns, the labels of a cell; y is its value.

    Labels are text or numbers. Labels without training data are predicted from the prior.
    `predict(X, return_std=True)` returns the mean and the standard deviation of the value, including the
    noise. `score` is minus the root mean squared error. `fit_` is the `bf.Fit`.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any) -> "Cells":
        """Fit to these cells."""
        labels = self._labels(X, reset=True)
        if len(labels) < LEAST:
            raise ValueError(
                f"Expected X with {LEAST} or more columns of labels, got {len(labels)} columns"
            )
        values = column_or_1d(y, warn=True)
        self.fit_ = self._run(Tensor(*labels.values(), values, modes=list(labels)))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of every value, with `return_std` also its standard deviation."""
        check_is_fitted(self)
        labels = self._labels(X, reset=False).values()
        prediction = self.fit_.predict(dict(zip(self.fit_.data.coords, labels, strict=True)))
        return (prediction.mean, prediction.sd) if return_std else prediction.mean

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the root mean squared error."""
        square = (self.predict(X) - column_or_1d(y, dtype=float, warn=True)) ** 2
        return -float(np.sqrt(np.average(square, weights=sample_weight)))

    def _labels(self, X: Any, reset: bool) -> dict[str, np.ndarray]:
        """{name of the column: its labels}; the columns of an array are mode_1, mode_2, ..."""
        if sp.issparse(X):
            raise TypeError(
                "Expected X with a column for each label, such as (user, item), got a sparse matrix: "
                "estimators of bayesfac.sklearn read matrices of users and items"
            )
        frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
        checked = X if frame is X else frame.to_numpy()
        validate_data(self, checked, reset=reset, skip_check_array=True)
        named = frame is X and all(isinstance(name, str) for name in frame.columns)
        return {
            str(name) if named else f"mode_{number}": frame.iloc[:, number - 1].to_numpy()
            for number, name in enumerate(frame.columns, 1)
        }


class Pairs(Cells):
    """A regressor of ratings: X has two columns, the labels of a user and of an item; y is the rating.

    Labels are text or numbers. Users and items without training data are predicted from the prior.
    `predict(X, return_std=True)` returns the mean and the standard deviation of the rating, including the
    noise. `score` is minus the root mean squared error, and warns if most users of X have no training data.
    For cross-validation use `cv=bf.split.PairFolds()`, which shuffles the ratings. `fit_` is the `bf.Fit`.
    """

    extra_doc = {
        "levels": "the ordinal scale, 5 for 1..5; None is the distinct values of y in `fit`"
    }

    def fit(self, X: Any, y: Any) -> "Pairs":
        """Fit to these ratings."""
        user, item = self._labels(X, reset=True).values()
        check_consistent_length(user, y)
        values = column_or_1d(y, warn=True)
        self.fit_ = self._run(Ratings(user, item, values, **scale_of(self, values)))
        self._told = pd.DataFrame({"user": user, "item": item, "rating": values})
        return self

    def partial_fit(self, X: Any, y: Any) -> "Pairs":
        """Add these ratings to those of earlier calls, and continue from the present parameters.

        The estimator stores all ratings. A point fit continues from its parameters; new users and items begin
        at the mean of the known ones. Draws of Gibbs continue with `bf.Fit.update`. Other engines begin anew.
        Settings and the scale stay those of the first call. If a pair has two ratings, the last one counts.
        """
        if not hasattr(self, "fit_"):
            return self.fit(X, y)
        user, item = self._labels(X, reset=False).values()
        check_consistent_length(user, y)
        new = pd.DataFrame({"user": user, "item": item, "rating": column_or_1d(y, warn=True)})
        every = pd.concat([self._told, new], ignore_index=True)
        # as labels are compared: 7 and "7" are one user
        sides = ("user", "item")
        codes = pd.DataFrame({side: reading.labels(every[side], side)[0] for side in sides})
        every = every[~codes.duplicated(keep="last")]
        old, levels = self.fit_, self.fit_.data.levels
        data = Ratings(every["user"], every["item"], every["rating"], levels=levels)
        if old.is_point or isinstance(old.engine, Gibbs):
            self.fit_ = old.update(data)
        else:
            self.fit_ = self._run(data, old.hyper)
        self._told = every
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the root mean squared error; warns if most users of X were not in fit."""
        check_is_fitted(self)
        user, item = self._labels(X, reset=False).values()
        row = self.fit_.data.locate({"user": user, "item": item})[0].row
        new, n = len(pd.unique(user[row < 0])), len(pd.unique(user))
        if 2 * new > n:
            warnings.warn(
                f"{new} of the {n} users of X were not in fit: their ratings are predicted from the prior. "
                "Pass cv=bf.split.PairFolds() to test other ratings of known users",
                DataWarning,
                stacklevel=2,
            )
        return super().score(X, y, sample_weight)

    def _labels(self, X: Any, reset: bool) -> dict[str, np.ndarray]:
        """The two columns as user and item, whatever their names."""
        columns = list(super()._labels(X, reset).values())
        if len(columns) != 2:
            raise ValueError(f"Expected X as pairs (user, item), got {len(columns)} columns")
        return dict(zip(("user", "item"), columns, strict=True))


__getattr__, __dir__, estimator = shelf(__name__, globals(), {"Ratings": Pairs, "Tensor": Cells})
