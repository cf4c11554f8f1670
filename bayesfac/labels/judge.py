"""How `bf.auto` compares methods of labels; `Tasks` names this class."""

from typing import Any

import numpy as np

from bayesfac.core.data.reading import positions_of
from bayesfac.search.automatic.judges import Judge, LogScores, by_law


class OfLabels(Judge):
    """Labels 0 and 1 of rows; the baseline knows how frequent each label is."""

    what, share, measure = "labels", 0.2, "micro-F1"
    first = ("cplst", "lsml", "faie", "leml", ("leml", {"loss": "logistic"}))
    then = ("heres", "grople", "lsa_mml", "himls", "himlsd", "mlc_hmf")

    def amount(self, data: Any) -> tuple[float, str]:
        if not data.binary:
            raise ValueError("Expected labels 0 and 1 in some rows, got other numbers or no labels")
        return float(data.labelled.sum()), "labelled rows"

    def seen(self, method: Any, train: Any, test: Any) -> Any:
        """Rows with held-out labels are added later as new rows, if possible."""
        return train.take(positions_of(test.rows, train.rows) < 0) if method.fold_in else train

    def asked(self, fit: Any, test: Any) -> Any:
        none = np.zeros(test.n_rows, bool)
        return fit.fold_in(test.take(~none, labelled=none)) if fit.method.fold_in else fit

    def of_fit(self, fit: Any, train: Any, test: Any) -> LogScores:
        predicted = fit.predict(test).score > fit.cut
        return LogScores(by_law(fit, test), _f1(test, predicted))

    def of_baseline(self, train: Any, test: Any) -> LogScores:
        frame, known = test.frame(), train.frame().groupby("label")["value"].agg(["sum", "count"])
        share = (known["sum"] + 1) / (known["count"] + 2)
        share = share.reindex(train.labels, fill_value=0.5)
        p = share.to_numpy()[positions_of(train.labels, frame["label"])]
        return LogScores(np.log(np.where(test.value == 1, p, 1 - p)), _f1(test, p > 0.5))


def _f1(test: Any, predicted: np.ndarray) -> float:
    """Micro-F1: twice the labels that are right, over those that are predicted and those that are."""
    truth, found = test.value.astype(bool), predicted.astype(bool)
    return 2 * float((truth & found).sum()) / max(1, int(truth.sum() + found.sum()))
