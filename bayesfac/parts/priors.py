"""Factors with the priors of papers, and the names of their sites."""

from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Gammas, Given, Wishart


def normal_wishart(axis: str, rows: str, own: str = "") -> Factor:
    """Rows about mu with a Wishart precision, as in BPMF; sites mu_U, Lambda_U, or those of `own`."""
    end = own or f"_{rows}"
    links = ("", "") if own else (f"B.{axis}", f"ridge.{axis}")
    return Factor(axis, rows, Wishart(f"Lambda{end}"), f"mu{end}", *links)


def ridge(axis: str, rows: str, sd: str, *, linked: bool = True) -> Factor:
    """Rows about 0 with a given standard deviation."""
    return Factor(axis, rows, Given(sd), "", *((f"B.{axis}", f"ridge.{axis}") if linked else ()))


def bias(axis: str, sd: str) -> Factor:
    """One number for each row, about 0 with a given standard deviation."""
    return Factor(axis, f"bias_{axis}", Given(sd), "", f"C.{axis}", f"ridge.{axis}", bias=True)


def relevance(axis: str, rows: str) -> Factor:
    """Rows about mu with one precision for each component, which other factors share."""
    return Factor(axis, rows, Gammas("tau"), f"mu_{rows}")
