"""The output of commands: places that are checked before any computation, tables, notes, reports."""

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pandas as pd

    from bayesfac.fits.fit import Fit


def new_folder(path: str) -> Path:
    """Refuse a folder that exists before any computation."""
    if (out := Path(path)).exists():
        raise FileExistsError(f"Expected a new folder as --out, got {out}, which exists already")
    return out


def writable(path: str | None) -> None:
    """Refuse a path that cannot be written before any computation."""
    if path and Path(path).is_dir():
        raise IsADirectoryError(f"Expected the name of a file to write, got the folder {path}")
    if path and not ((place := Path(path).resolve().parent).is_dir() and os.access(place, os.W_OK)):
        raise FileNotFoundError(
            f"Expected a writable folder for {path}, got one that is missing or read-only"
        )


def table_file(path: str | None) -> None:
    """Refuse a path that cannot be written, and a name with the ending of another kind of file."""
    writable(path)
    if path and not path.endswith((".csv", ".parquet")):
        raise ValueError(f"Expected the name of a .csv or .parquet file as --out, got {path}")


def write(table: "pd.DataFrame", path: str | None) -> None:
    """Write a table as CSV or Parquet, by the ending of the file name; without a path, print it as CSV."""
    from bayesfac.core.files import atomic

    if path is None:
        print(table.to_csv(index=False), end="")
        return
    with atomic(path) as part:
        if Path(path).suffix == ".parquet":
            table.to_parquet(part, index=False)
        else:
            table.to_csv(part, index=False)
    print(f"{len(table)} rows in {path}")


def save(fit: "Fit", out: Path) -> None:
    """Save a fit, in another place if `out` cannot be written: else the run would be lost."""
    try:
        fit.save(out)
    except OSError as error:
        raise OSError(f"{error}. {_saved_elsewhere(fit, out.name)}") from error
    print(f"saved in {out}")


def _saved_elsewhere(fit: "Fit", name: str) -> str:
    """Where the fit is now, in words."""
    for place in (Path.home(), Path(tempfile.gettempdir())):
        if os.access(place, os.W_OK):
            other = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place))
            try:
                return f"The fit was saved in {fit.save(other)} instead"
            except OSError:  # this disk is full too
                other.rmdir()
    if folder := getattr(fit.engine, "folder", None):
        return f"The draws are in {folder}, from which the same command goes on"
    return "The fit is lost, as no other disk has space; --with folder=FOLDER keeps draws in a run"


def tell(args: argparse.Namespace, text: str, file: TextIO | None = None) -> None:
    """Print a note, unless --quiet; commands that print a table write notes to standard error."""
    if not args.quiet:
        print(text, file=file, flush=True)


def to_html(result: Any, path: str | None) -> None:
    """Write the report of a fit or a comparison, if it has a path."""
    if path:
        result.to_html(path)
        print(f"report: {path}")


def markdown(table: "pd.DataFrame") -> str:
    """The table as Markdown, the index first and as code."""
    head = [str(table.index.name), *map(str, table.columns)]
    rows = [[f"`{row[0]}`", *map(str, row[1:])] for row in table.itertuples()]
    cells = [[cell.replace("|", r"\|") for cell in row] for row in [head, *rows]]
    lines = [cells[0], ["---"] * len(head), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
