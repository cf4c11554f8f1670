"""`bf.check`: every check of the contract on one method, and a short calibration of its sampler."""

import inspect
import re
import time
from collections.abc import Callable, Collection, Mapping
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
# a right sampler fails by chance once in a hundred runs: what fails in the first is run again, for longer
SHORT: tuple[dict[str, Any], ...] = (
    {"replications": 100, "draws": 19, "warmup": 300, "thin": 10},
    {"replications": 100, "draws": 19, "warmup": 600, "thin": 20},
)


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
        head = f"{self.method}: {says} (do not apply: {count.get(LEFT, 0)})"
        lines = [
            f"  {name:<14}{row['answer']:<16}{row['seconds']:5.1f} s  {row['why'] or row['requires']}"
            for name, row in self.table.iterrows()
        ]
        return "\n".join([head, *lines])


def check(
    method: str | Method,
    *,
    only: Collection[str] | None = None,
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
    only : collection of str, optional
        Names of checks; without it all of them are made.
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
    >>> found = bf.check("pmf", only=["joint", "descent"], progress=False)
    >>> found.ok, found.table["answer"].tolist()
    (True, ['kept', 'kept'])
    """
    method = lookup(method)
    every = {**CHECKS, CALIBRATED: _calibrated}
    reasons = {**WAIVED.get(method.name, {}), **(waived or {})}
    check_names("check", [*reasons, *(only or ())], every)
    chosen = {name: one for name, one in every.items() if only is None or name in only}
    key, rows = jax.random.key(seed), {}
    with bar(progress, len(chosen), f"{method.name}: checks") as shown:
        for name, one in chosen.items():
            first = re.split(r"\.\s", f"{inspect.getdoc(one)} ")[0].replace("\n", " ")
            rows[name] = _answer(partial(one, method, key), first, reasons.get(name))
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


def _calibrated(method: Method, key: jax.Array) -> str | None:
    """Simulated data, fitted by Gibbs, give the parameters back as often as they should."""
    if not method.gibbs.conditionals:
        return method.notes.traits.get("no_gibbs", "the method declares no conditionals")
    for number, lengths in enumerate(SHORT):
        seed = int(jax.random.randint(jax.random.fold_in(key, number), (), 0, 2**31 - 1))
        found = sbc(method, "Gibbs", seed=seed, progress=False, **lengths)
        if found.ok is not False:
            return found.reason or None
    raise AssertionError(repr(found).splitlines()[0])
