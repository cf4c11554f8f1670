"""Every method as a scikit-learn estimator: `bayesfac.sklearn.NAME(...)`, with NAME as in `bf.methods()`.

The kind of the estimator depends on the data of the method:

    Ratings   a transformer: X has a row for every user, NaN (or no entry) where nothing was observed.
              `bayesfac.sklearn.pairs.NAME` is the same method as a regressor of (user, item) pairs
    Counts    a transformer: X has a row for every user, with zeros where nothing was counted
    Tensor    only in `bayesfac.sklearn.pairs`: a regressor of cells, with a column for each label
    Views     a transformer: X has no missing cells, or consists of several views of the same rows
    Relations no estimator, because X is one matrix and these data are several matrices
    Tasks     a classifier with several labels, or with several classes

`Imputer(estimator)` is a step of a pipeline that fills missing cells. The other classes are made from the
registry of methods on first use, so methods of your own are included. `estimator(model)` is the class of what
`bf.factorization` made, also in `pairs`.

Examples
--------
>>> import numpy as np
>>> import bayesfac as bf
>>> X = np.outer(np.arange(1, 9), np.arange(-3.0, 4))
>>> X[2, 0] = X[5, 2] = np.nan  # were -9 and -6
>>> model = bf.sklearn.pmf(n_components=1, noise=1.0, random_state=0).fit(X)
>>> model.impute(X)[[2, 5], [0, 2]].round()
array([-9., -6.])
"""

from bayesfac.sklearn.base import shelf
from bayesfac.sklearn.classifiers import Labels
from bayesfac.sklearn.transformers import Cells, Imputer, Topics, Visits

__getattr__, __dir__, estimator = shelf(
    __name__,
    globals(),
    {"Ratings": Cells, "Counts": Visits, "Views": Topics, "Tasks": Labels},
    [Imputer.__name__],
)
