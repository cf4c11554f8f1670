"""The command `bayesfac`: fit, compare and report from a shell.

Results go to standard output; progress, warnings and errors to standard error. Exit codes: 0 done,
1 diagnostics failed (with --strict; sbc), 2 wrong usage or input, with one line that says what is wrong.
Slow modules are imported inside the commands, so that help and usage errors are immediate.
"""

import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from bayesfac.cli import processes
from bayesfac.cli.options import build_parser
from bayesfac.core.errors import ConvergenceWarning, DataWarning

BAD, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Examples
    --------
    >>> main(["data", "fetch", "digits"])
    digits is made here and needs no file
    0
    """
    verbose = False
    try:
        args = build_parser().parse_args(argv)
        args.line = list(sys.argv[1:] if argv is None else argv)
        verbose = args.verbose
        _log(verbose, args.quiet)
        with warnings.catch_warnings():
            for ours in (ConvergenceWarning, DataWarning):
                warnings.simplefilter("always", ours)
            warnings.showwarning = _show_warning
            code = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `bayesfac methods | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("bayesfac: interrupted", file=sys.stderr)
        return processes.leave(INTERRUPTED)
    except Exception as error:  # every error becomes one line; -v prints the traceback
        if verbose:
            traceback.print_exc()
        print(f"bayesfac: error: {_said(error)}", file=sys.stderr)
        return processes.leave(BAD)


def _said(error: Exception) -> str:
    """The message of an error in one line, with the type of an unexpected error."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text = re.sub(r"\b(bad|duplicates|decimal)='([\w,]+)'", r"--\1 \2", " ".join(text.split()))
    foreseen = ValueError | TypeError | LookupError | OSError | ImportError | MemoryError
    if text and (isinstance(error, foreseen) or type(error).__module__.startswith("bayesfac.")):
        return text
    return f"{type(error).__name__}: {text or 'no message'} (-v shows where)"


def _log(verbose: bool, quiet: bool) -> None:
    """Print log records of bayesfac to standard error: all, warnings, or errors only."""
    logger = logging.getLogger("bayesfac")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("bayesfac: %(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    logging.getLogger("bayesfac").warning("warning: %s", " ".join(str(message).split()))
