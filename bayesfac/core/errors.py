"""Errors and warnings of bayesfac."""

import difflib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Self


class BayesfacError(Exception):
    """A request that cannot be met; the message is one line."""


class NumericalError(BayesfacError):
    """A fit produced NaN or infinity; the message names the step and the site."""


class UnknownName(BayesfacError, LookupError):
    """A method, engine, data set or hyper-parameter that does not exist."""


class CorruptFile(BayesfacError, ValueError):
    """A file that is damaged, not written by bayesfac, or of another version."""


class DiskFull(BayesfacError, OSError):
    """A file does not fit on its disk; the message names the file, and `reason` is what the disk said."""

    reason = ""


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged, or was interrupted."""


class DataWarning(UserWarning):
    """Part of the data is left out, or the data do not suit the computation; the message says how."""


WORDS = {  # {our name: names of the same in other libraries}
    "draws": "samples n_samples num_samples",
    "warmup": "burn_in burnin n_burnin num_warmup tune",
    "chains": "n_chains num_chains",
    "n_components": "factors n_factors num_factors latent_dim n_latent num_latent rank k",
    "max_iter": "epochs n_epochs n_iter iter iterations",
    "steps": "epochs n_epochs n_iter iter iterations",
}


# {last word of what it is, and its name: what the message says}, for what older versions had
REMOVED = {
    "engine blocks": "Blocks was removed: use bf.Gibbs(shares=True)",
    "himls multiplicative": "multiplicative= of himls was removed: leave it out, rows and columns are always "
    "updated entry by entry",
    "himlsd multiplicative": "multiplicative= of himlsd was removed: leave it out, rows and columns are "
    "always updated entry by entry",
    "himlsd approximate": "approximate= of himlsd was removed: leave it out, the update of M is always exact",
}


def unknown(what: str, name: str, known: Any) -> str:
    """Compose the message for a name that does not exist: the nearest name, then all names.

    >>> unknown("method", "BPMF", ["pmf", "bpmf"])
    "Unknown method 'BPMF'; did you mean 'bpmf'? Known: pmf, bpmf"
    """
    if gone := REMOVED.get(f"{what.split()[-1]} {name}".lower()):
        return gone
    asked, in_lower_case = str(name).lower(), {str(one).lower(): one for one in known}
    near = [ours for ours, theirs in WORDS.items() if asked in theirs.split() and ours in known]
    near = near or difflib.get_close_matches(asked, in_lower_case, n=1)
    hint = f"; did you mean {in_lower_case[near[0]]!r}?" if near else "."
    return f"Unknown {what} {name!r}{hint} Known: {', '.join(known)}"


def check_names(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise an error for a name that is not among the known ones."""
    for name in names:
        if name not in known:
            raise UnknownName(unknown(what, name, known))


class Settings:
    """The base of records of settings: an unknown one raises an error that names the nearest one."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        kind: Any = cls
        check_names(f"setting of {cls.__name__}", named, [field.name for field in fields(kind)])
        return super().__new__(cls)


@contextmanager
def noted(where: str) -> Iterator[None]:
    """Say where an error arose: one of many fits, which its own message does not know.

    >>> with noted("in fold 2 of 10"):
    ...     fine = True
    """
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise
