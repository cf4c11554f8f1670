"""The few errors and warnings that are bayesfac's own."""


class BayesfacError(Exception):
    """A request that cannot be met, said in one line."""


class NumericalError(BayesfacError):
    """A fit produced NaN or infinity; the message names the step and the site."""


class UnknownName(BayesfacError, LookupError):
    """A method, engine, data set or hyper-parameter that does not exist."""


class CorruptFile(BayesfacError, ValueError):
    """A file that is damaged, foreign, or of another version."""


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged."""


class DataWarning(UserWarning):
    """Some of the data were left out, as asked."""
