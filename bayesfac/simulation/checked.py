"""`bf.check`: every check of the contract on one method, and a short calibration of its sampler."""

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import pandas as pd

from bayesfac.core.errors import check_names
from bayesfac.core.method import Method, lookup
from bayesfac.inference.result import bar
from bayesfac.simulation import sbc
from bayesfac.testing import CHECKS
from bayesfac.testing.waived import WAIVED

KEPT, LEFT, FAILED = "kept", "does not apply", "FAILS"
CALIBRATED = "calibrated"  # the check after those of the contract
SHORT: dict[str, Any] = {"replications": 100, "draws": 19, "warmup": 300, "thin": 10}


@dataclass(frozen=True, eq=False)
class Checked:
    """The result of `bf.check`.

    `table` has a line for each check: its answer ("kept", "does not apply", or "FAILS"), its seconds, what it
    requires, and why it fails or does not apply.
    """

    method: str
    table: pd.DataFrame

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not (self.table["answer"] == FAILED).any()

    def __repr__(self) -> str:
        count = self.table["answer"].value_counts()
        failed = int(count.get(FAILED, 0))
        says = f"{failed} of {len(self.table)} checks FAIL" if failed else "every check is kept"
        head = f"{self.method}: {says} ({count.get(LEFT, 0)} do not apply)"
        lines = [
            f"  {name:<14}{row['answer']:<16}{row['seconds']:5.1f} s  {row['why'] or row['requires']}"
            for name, row in self.table.iterrows()
        ]
        return "\n".join([head, *lines])


def check(
    method: str | Method,
    *,
    waived: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Checked:
    """Check a method: that its solver is right, and that its posterior is sampled.

    The objective must be minus the log joint of the NumPyro model; each conditional must be that of the
    joint, and every step of a Gibbs sweep must leave the joint as it is; the objective must not rise;
    predictions, symmetries and variational bounds must be what the record says. At the end the sampler is
    calibrated in a short run (`bf.sbc`). All of it runs on the method's `example`, in a few minutes at most.

    Parameters
    ----------
    method : str or Method
    waived : mapping, optional
        {check: reason} of checks that do not apply to this method; they are not run. Those of methods of this
        package are known.

    Returns
    -------
    Checked
        Its `ok` is True if nothing failed, its `table` has the answers, and `print` shows both.

    Examples
    --------
    >>> import bayesfac as bf
    >>> found = bf.check("wrmf", progress=False)  # doctest: +SKIP
    >>> found.ok  # doctest: +SKIP
    True
    """
    method = lookup(method)
    reasons = {**WAIVED.get(method.name, {}), **(waived or {})}
    check_names("check", reasons, [*CHECKS, CALIBRATED])
    key, rows = jax.random.key(seed), {}
    with bar(progress, len(CHECKS) + 1, f"{method.name}: checks") as shown:
        for name, one in CHECKS.items():
            requires = (inspect.getdoc(one) or "").split(".")[0].replace("\n", " ")
            rows[name] = _answer(partial(one, method, key), requires, reasons.get(name))
            shown.update()
        requires = (
            "Simulated data, fitted by Gibbs, give the parameters back as often as they should"
        )
        own = partial(_calibrated, method, seed)
        rows[CALIBRATED] = _answer(own, requires, reasons.get(CALIBRATED))
        shown.update()
    return Checked(method.name, pd.DataFrame.from_dict(rows, orient="index").rename_axis("check"))


def _answer(run: Callable[[], str | None], requires: str, waived: str | None) -> dict[str, Any]:
    """What a check says; an error in a function of the method is a failure, and its text the reason."""
    begun, answer = time.perf_counter(), KEPT
    try:
        why = waived or run() or ""
        answer = LEFT if why else KEPT
    except AssertionError as wrong:
        answer, why = FAILED, str(wrong)
    except Exception as wrong:
        answer, why = FAILED, f"ended with {type(wrong).__name__}: {wrong}"
    seconds = time.perf_counter() - begun
    return {"answer": answer, "seconds": seconds, "requires": requires, "why": why}


def _calibrated(method: Method, seed: int) -> str | None:
    if not method.gibbs.conditionals:
        return method.notes.traits.get("no_gibbs", "the method declares no conditionals")
    found = sbc(method, "Gibbs", seed=seed, progress=False, **SHORT)
    if found.ok is False:
        raise AssertionError(repr(found).splitlines()[0])
    return found.reason or None
