"""Write the notebooks of notebooks/: each is its script NAME.py, run as a whole, with outputs and pictures.

python docs/tools/notebooks.py NAME ...      all of them without a name; `make notebooks-written` runs this

Notebooks that can use real data do, where these were fetched or are in BAYESFAC_DATA. A notebook is written
if all its cells ran and it is small. It names the versions that made it.
"""

import base64
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

from bayesfac.core import provenance

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
LARGEST = 600_000  # bytes of one notebook
SHOWN, NUMBER = "multilabel", 1  # the picture of README
PICTURE = FOLDER.parent / "docs" / "images" / "sure_and_wrong.png"


def main(names: list[str]) -> None:
    """Run the scripts of these names, one after the other."""
    for name in names or sorted(path.stem for path in FOLDER.glob("*.py")):
        print(f"running {name}", flush=True)
        text = nbformat.writes(executed(read(FOLDER / f"{name}.py"))) + "\n"
        if len(text) > LARGEST:
            raise ValueError(f"Expected {name} in at most {LARGEST} bytes, got {len(text)}")
        (FOLDER / f"{name}.ipynb").write_text(text, encoding="utf-8")
        if name == SHOWN:
            PICTURE.write_bytes(pictures(nbformat.reads(text, 4))[NUMBER])


def read(script: Path) -> Any:
    """A script as a notebook without outputs; cells have their numbers as ids."""
    book = jupytext.reads(script.read_text(encoding="utf-8"), fmt="py:percent")
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
    return book


def pictures(book: Any) -> list[bytes]:
    """The pictures of a notebook, in their order."""
    outputs = [one for cell in book.cells for one in cell.get("outputs", [])]
    shown = [one["data"]["image/png"] for one in outputs if "image/png" in one.get("data", {})]
    return [base64.b64decode(text) for text in shown]


def executed(book: Any) -> Any:
    """The notebook with its outputs, run in an empty folder: without messages, which may name folders of the
    machine."""
    backend = "module://matplotlib_inline.backend_inline"  # `make` sets one without pictures
    os.environ["MPLBACKEND"] = backend
    with tempfile.TemporaryDirectory() as folder:
        at = {"metadata": {"path": folder}}
        NotebookClient(
            book, timeout=3600, kernel_name="python3", resources=at, record_timing=False
        ).execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for data in [one["data"] for one in cell.outputs if "image/png" in one.get("data", {})]:
                data["image/png"] = smaller(data["image/png"])
    versions = dict(provenance.versions())
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "bayesfac": {"versions": versions},
    }
    return book


def smaller(picture: str) -> str:
    """A picture with at most 256 colours, which takes a third of the space."""
    image, found = Image.open(io.BytesIO(base64.b64decode(picture))), io.BytesIO()
    image.convert("RGB").quantize(256).save(found, "png", optimize=True)
    return base64.b64encode(found.getvalue()).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
