"""Transformers, which return factors of rows, for matrices with missing cells and for views."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import check_is_fitted

from bayesfac import split
from bayesfac.core.data.cells import Grid
from bayesfac.core.data.counts import Counts
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.views import Views
from bayesfac.core.method import from_sites, site_dims
from bayesfac.fits.fit import Fit
from bayesfac.sklearn.base import Estimator, Table, factor, table_of

LEVELS = 100  # at most so many distinct values are taken as an ordinal scale


class Rows(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator, ABC):
    """Factors of the training rows; new rows are not possible."""

    axes: tuple[str, str]  # of rows and columns, as the method's parameters call them

    def fit(self, X: Any, y: Any = None) -> "Rows":
        """Fit to all rows; y is ignored."""
        self.fit_ = self._run(self._data(X, reset=True))
        site = self.fit_._as_draws()[factor(self.fit_, self.axes[0])]
        self._n_features_out = site[0, 0].size // len(self.fit_.data.row_counts)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return the factors of the rows."""
        return self.fit(X).embedding_

    @abstractmethod
    def _data(self, X: Any, reset: bool) -> Any:
        """X as the container that the method takes."""

    @property
    def embedding_(self) -> np.ndarray:
        """The factors of the training rows, rows x components; for a point fit only."""
        return table_of(self.fit_, factor(self.fit_, self.axes[0]), self.axes[0])

    def inverse_transform(self, Z: Any) -> np.ndarray:
        """The expected cells of rows with the factors Z, rows x all columns; for counts the expected shares.

        Other parameters of a row, such as a bias or thresholds, are not in Z. For them the means over the
        training rows are used. For a point fit only.
        """
        check_is_fitted(self)
        fit, axis = self.fit_, self.axes[0]
        assert fit.params is not None  # `params` of draws raises an error that says what to do
        held = {site: np.asarray(value[0, 0]) for site, value in fit._as_draws().items()}
        main = factor(fit, axis)
        z = check_array(Z, dtype=held[main].dtype, input_name="Z")
        if z.shape[1] != self._n_features_out:
            raise ValueError(f"Expected Z with {self._n_features_out} columns, got {z.shape[1]}")
        for site, value in held.items():
            dims = site_dims(fit.method, site)
            if axis in dims:
                at = dims.index(axis)
                mean = np.repeat(value.mean(at, keepdims=True), len(z), at)
                held[site] = rows_first(z, mean.shape, at) if site == main else mean
        grid = Grid(np.arange(len(z)), np.arange(fit.data.shape[1]))
        return np.asarray(fit.method.predict(from_sites(fit.method, held), grid, fit.hyper).mean)

    @property
    def components_(self) -> np.ndarray | dict[str, np.ndarray]:
        """Components x columns; for several views a dict by name."""
        first = factor(self.fit_, self.axes[1])
        name, _, key = first.partition(".")
        every = [site for site in self.fit_._as_draws() if site.split(".")[0] == name]
        tables = {s.partition(".")[2]: table_of(self.fit_, s, self.axes[1]).T for s in every}
        return tables if len(tables) > 1 else tables[key]


class NewRows(Rows):
    """Factors of training rows and of new rows, which are fitted while all other parameters stay."""

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """The same as `fit(X).transform(X)`, which treats training rows like new rows."""
        return self.fit(X).transform(X)

    def transform(self, X: Any) -> np.ndarray:
        """The factors of these rows, fitted with all other parameters fixed. For a point fit only."""
        check_is_fitted(self)
        # `params` of draws raises an error that says what to do
        assert self.fit_.params is not None
        fit, rows = self._ask(X)
        return table_of(fit, factor(self.fit_, self.axes[0]), self.axes[0])[rows]

    def _ask(self, X: Any) -> tuple[Fit, slice]:
        """A fit that holds these rows, and where they stand in it."""
        return self.fit_.fold_in(self._data(X, reset=False)), slice(None)


class NewUsers(NewRows):
    """New rows of ratings and counts, also where no row has any."""

    finite: bool | str = True  # what scikit-learn's check allows: "allow-nan" for missing cells
    _container: Callable[[Table], Any]  # the data of a table that was read
    _some: Callable[[Any], bool]  # whether a matrix has a rating, or a count above zero

    def _ask(self, X: Any) -> tuple[Fit, slice]:
        table = self._read(X, False, self.finite)
        n, width = table.views["x"].shape
        if not self._some(table.views["x"]):
            # containers hold at least one cell: a last row has one, which tells nothing of the others
            value = (self.fit_.data.levels or (1.0,))[0]
            x = sp.csr_matrix(([value], ([n], [0])), (n + 1, width))
            table = Table({"x": x}, table.columns, pd.RangeIndex(n + 1))
        return self.fit_.fold_in(self._container(table)), slice(n)


class Cells(Rows):
    """A transformer of a matrix with missing cells: rows are users, columns items.

    X is a dense matrix with NaN where nothing was observed, or a scipy sparse matrix, whose stored entries
    are the observed cells (a stored zero is a rating of zero). y is ignored, as in every transformer. For
    (user, item) pairs with ratings y use `bayesfac.sklearn.pairs`.

    `fit_` is the `bf.Fit`, `embedding_` has the factors of the training rows, and `components_` the factors
    of the columns. `transform` fits the factors of any rows to their cells with all other parameters fixed.
    `impute` fills missing cells. `score` is minus the root mean squared error of one cell of every row,
    which is held out while the factors of the row are fitted. Methods without `Fit.fold_in` have
    `fit_transform` only.
    """

    axes = ("user", "item")
    extra_doc = {
        "levels": "the ordinal scale, 5 for 1..5; None is the distinct values of X in `fit`"
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = "levels" in self.method.Hyper._fields
        return tags

    def fit(self, X: Any, y: Any = None) -> "Rows":
        """Fit to all observed cells; y is ignored."""
        self._scale: dict[str, Any] | None = None
        return super().fit(X)

    def _data(self, X: Any, reset: bool) -> Ratings:
        return self._container(self._read(X, reset, "allow-nan"))

    def _container(self, table: Table) -> Ratings:
        (x,), (items,) = table.views.values(), table.columns.values()
        if self._scale is None:
            cells = x.data if sp.issparse(x) else x[~np.isnan(x)]
            self._scale = scale_of(self, cells)
        ratings = Ratings(x, **(self._scale or {}))
        ratings.host = replace(ratings.host, users=table.rows, items=items)
        return ratings


class NewCells(NewUsers, Cells):
    """Cells of training rows and of new rows."""

    finite = "allow-nan"

    def impute(self, X: Any, return_std: bool = False) -> Any:
        """X as an array with missing cells filled by the predictive mean.

        With `return_std`, the standard deviation of each cell is returned too; it is 0 for observed cells.
        """
        check_is_fitted(self)
        fit, rows = self._ask(X)
        everywhere = fit.everywhere()
        x = dense(self._read(X, False, self.finite).views["x"])
        lost = np.isnan(x)
        filled = np.where(lost, everywhere.mean[rows], x)
        return (
            (filled, np.where(lost, everywhere.sd[rows], np.float64(0))) if return_std else filled
        )

    def _some(self, x: Any) -> bool:
        return not np.isnan(dense(x)).all()

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the root mean squared error of one held-out cell of every row, drawn with the fit's seed."""
        check_is_fitted(self)
        given, held = split.weak_generalisation(self._data(X, reset=False), seed=self.fit_.seed)
        mean = self.fit_.fold_in(given).predict(held).mean
        return -float(np.sqrt(np.mean((mean - held.value) ** 2)))


Cells.with_new_rows = NewCells


class Visits(NewUsers):
    """A transformer of counts: rows are users, columns items, and a zero is a count like any other.

    X is a dense or scipy sparse matrix without negative numbers. `fit_` is the `bf.Fit`, `embedding_` has
    the factors of the training rows, and `components_` the factors of the columns. `transform` fits the
    factors of any rows to their counts with all other parameters fixed.
    """

    axes = ("user", "item")

    def _data(self, X: Any, reset: bool) -> Counts:
        return self._container(self._read(X, reset))

    def _some(self, x: Any) -> bool:
        return bool(x.sum() > 0)

    def _container(self, table: Table) -> Counts:
        (x,), (items,) = table.views.values(), table.columns.values()
        data = Counts(x)
        data.host = replace(data.host, users=table.rows, items=items)
        return data


class Topics(Rows):
    """A transformer of a matrix without missing cells: rows are documents, columns words.

    X is a dense or scipy sparse matrix. For methods of several views, X is a dict of such matrices by name, a
    list of them, or a DataFrame with two levels of columns, the view and its feature (which `GridSearchCV`
    can split).

    `fit_` is the `bf.Fit`, `embedding_` has the shares of the topics in the training rows, and `components_`
    the features of each topic (for several views a dict by name). Methods without a graph have `transform`,
    which returns the shares of any rows with all other parameters fixed, and `score`, the mean log
    probability of a count given the shares of its row. Methods with a graph have `fit_transform` only,
    because a row depends on its neighbours.
    """

    axes = ("row", "feature")

    def _data(self, X: Any, reset: bool) -> Views:
        return self._read(X, reset).container


class NewTopics(NewRows, Topics):
    """Shares of training rows and of new rows."""

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log probability of a count. Shares are fitted to these rows; topics stay fixed."""
        check_is_fitted(self)
        data = self._data(X, reset=False)
        cells = data.frame()
        probability = self.fit_.fold_in(data).predict(cells).mean
        tiny = np.finfo(float).tiny
        return float(np.average(np.log(np.maximum(probability, tiny)), weights=cells["value"]))


Topics.with_new_rows = NewTopics


class Imputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer that fills missing cells, for pipelines; it supports `set_output` and names of columns.

    Parameters
    ----------
    estimator : an estimator of `bayesfac.sklearn` with `impute`
        Its settings are `estimator__n_components` and so on. The fitted copy is `estimator_`.

    Examples
    --------
    >>> import pandas as pd
    >>> import bayesfac as bf
    >>> X = pd.DataFrame(np.outer(np.arange(1, 9), np.arange(-3.0, 4)), columns=list("abcdefg"))
    >>> X.iloc[2, 0] = np.nan
    >>> step = bf.sklearn.Imputer(bf.sklearn.pmf(n_components=1, noise=1.0, random_state=0))
    >>> float(step.set_output(transform="pandas").fit_transform(X).loc[2, "a"].round())
    -9.0
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def fit(self, X: Any, y: Any = None) -> "Imputer":
        """Fit the estimator to all observed cells; y is ignored."""
        if not hasattr(self.estimator, "impute"):
            name = type(self.estimator).__name__
            raise TypeError(f"Expected an estimator with impute, such as pmf(), got {name}")
        self.estimator_ = clone(self.estimator).fit(X)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """X with the predictive mean in missing cells; factors of the rows are fitted, all others stay."""
        check_is_fitted(self)
        return self.estimator_.impute(X)


def rows_first(table: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """The inverse of `table_of`: rows along `axis`, all other axes unfolded."""
    rest = (*shape[:axis], *shape[axis + 1 :])
    return np.moveaxis(table.reshape(len(table), *rest), 0, axis)


def dense(x: Any) -> np.ndarray:
    """X as an array; entries that a sparse matrix does not store are NaN."""
    if not sp.issparse(x):
        return x
    full, coo = np.full(x.shape, np.nan), x.tocoo()
    full[coo.row, coo.col] = coo.data
    return full


def scale_of(estimator: Estimator, values: np.ndarray) -> dict[str, Any]:
    """`levels` for a method that has this setting: the user's, or the distinct values."""
    if "levels" not in estimator.method.Hyper._fields:
        return {}
    levels = estimator.get_params()["levels"]
    if levels is None:
        levels = np.unique(values)
        if len(levels) > LEVELS:
            raise ValueError(
                f"Expected at most {LEVELS} levels in X, got {len(levels)} distinct values: name them "
                "(levels=5), or take a method of real values"
            )
    return {"levels": levels}
