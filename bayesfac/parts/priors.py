"""Factors with the priors of papers, and the names of their sites."""

from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Gammas, Given, Wishart


def normal_wishart(axis: str, rows: str, own: str = "") -> Factor:
    """Rows about mu with a Wishart precision, as in BPMF; sites mu_U, Lambda_U, or those of `own`."""
    end = own or f"_{rows}"
    links = ("", "") if own else ("B", "ridge")
    return Factor(axis, rows, Wishart(f"Lambda{end}"), f"mu{end}", *links)


def keyed(key: str) -> Factor:
    """The factor of a mode or of a kind of label, with the sites U.KEY, mu.KEY and Lambda.KEY."""
    return normal_wishart(key, f"U.{key}", f".{key}")


def ridge(axis: str, rows: str, sd: str, *, linked: bool = True) -> Factor:
    """Rows about 0 with a given standard deviation."""
    return Factor(axis, rows, Given(sd), "", *(("B", "ridge") if linked else ()))


def bias(axis: str, sd: str) -> Factor:
    """One number for each row, about 0 with a given standard deviation."""
    return Factor(axis, f"bias_{axis}", Given(sd), "", "C", "ridge", bias=True)


def relevance(axis: str, rows: str) -> Factor:
    """Rows about mu with one precision for each component, which other factors share."""
    return Factor(axis, rows, Gammas("tau"), f"mu_{rows}")


def group(axis: str, rows: str) -> Factor:
    """Rows of a factorization machine: a mean and one precision for each component of the axis."""
    return Factor(axis, rows, Gammas(f"tau.{axis}"), f"mu.{axis}", "B", "ridge")


def group_of_biases(axis: str, level: str = "") -> Factor:
    """Biases of a factorization machine, with one precision for the axis, about a level or 0."""
    own = Gammas(f"tau_bias.{axis}", rate="bias_rate", dims=())
    return Factor(axis, f"bias_{axis}", own, "", "C", "ridge_bias", bias=True, level=level)
