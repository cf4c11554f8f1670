"""The list of methods, as a table that is printed without omissions."""

import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.core.method import REGISTRY


class Listing(pd.DataFrame):
    """A table that prints every row and every column, however wide the texts are."""

    def __repr__(self) -> str:
        lines = []
        for kind, rows in self.groupby("data"):
            lines.append(f"{kind}")
            for name, row in rows.iterrows():
                lines += [f"  {name:<12} {row['what']}", f"{'':15}{row['cite']}: {row['engines']}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return str(self.to_html())


def methods() -> pd.DataFrame:
    """All methods: what they do, their data, solver, engines and paper. The first engine is the solver."""
    rows = [
        {
            "method": method.name,
            "what": method.paper,
            "data": method.data.__name__,
            "solver": method.default_engine,
            "engines": ", ".join(method.engines),
            "cite": method.cite,
        }
        for _, method in sorted(REGISTRY.items())
    ]
    return Listing(pd.DataFrame(rows).set_index("method"))
