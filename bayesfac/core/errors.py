"""Errors and warnings of bayesfac."""

from collections.abc import Iterator
from contextlib import contextmanager


class BayesfacError(Exception):
    """A request that cannot be met; the message is one line."""


class NumericalError(BayesfacError):
    """A fit produced NaN or infinity; the message names the step and the site."""


class UnknownName(BayesfacError, LookupError):
    """A method, engine, data set or hyper-parameter that does not exist."""


class CorruptFile(BayesfacError, ValueError):
    """A file that is damaged, not written by bayesfac, or of another version."""


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged."""


class DataWarning(UserWarning):
    """Part of the data is left out, or the data do not suit the computation; the message says how."""


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
