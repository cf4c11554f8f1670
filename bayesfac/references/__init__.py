"""Reference posteriors: small data sets, models, and summaries of their posteriors, to test samplers with.

In the spirit of posteriordb (Magnusson et al., 2024), which has no factorization. The posterior of each pair
of data and model was drawn by two samplers until R-hat of every summary was at most 1.001. Summaries are the
same for all rotations and labels of the factors: predictions of every cell, spectra, the log joint, scalars.
`benchmarks/references.py` writes the files.
"""

from bayesfac.references.checking import Check as Check
from bayesfac.references.checking import check as check
from bayesfac.references.stored import Reference as Reference
from bayesfac.references.stored import load as load
from bayesfac.references.stored import names as names
from bayesfac.references.stored import table as table

__all__ = ["Check", "Reference", "check", "load", "names", "table"]


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)
