"""The notebooks with pictures are those of their scripts, whole, small, and say nothing of the machine."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import bayesfac as bf

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "tools"))
import notebooks  # noqa: E402

sys.path.remove(str(ROOT / "docs" / "tools"))
SCRIPTS = sorted(notebooks.FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script_run_as_a_whole(script):
    text = script.with_suffix(".ipynb").read_text("utf-8")
    book = nbformat.reads(text, 4)
    nbformat.validate(book)
    again = f"run make notebooks-written BOOKS=notebooks/{script.name}"
    made = [(cell.cell_type, cell.source) for cell in book.cells]
    assert made == [(cell.cell_type, cell.source) for cell in notebooks.read(script).cells], again
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code if cell.source.strip()), again
    kinds = {one.output_type for cell in code for one in cell.outputs}
    assert kinds <= {"stream", "execute_result", "display_data"}
    assert notebooks.pictures(book) and len(text) <= notebooks.LARGEST
    versions = book.metadata["bayesfac"]["versions"]
    assert versions["bayesfac"] == bf.__version__ and versions.keys() >= {
        "python",
        "jax",
        "numpyro",
    }
    outputs = "\n".join(str(cell.outputs) for cell in code)
    assert not re.search(r"/(home|root|tmp|Users|work)/", outputs)


def test_the_picture_of_the_readme_is_that_of_the_notebook():
    name = f"{notebooks.SHOWN}.ipynb"
    shown = notebooks.pictures(nbformat.read(notebooks.FOLDER / name, 4))[notebooks.NUMBER]
    assert notebooks.PICTURE.read_bytes() == shown
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"](docs/images/{notebooks.PICTURE.name})](notebooks/{name})" in readme
    assert all(f"(notebooks/{script.stem}.ipynb)" in readme for script in SCRIPTS)


def test_a_script_is_run_without_messages(tmp_path):
    """In a process of its own: an import of ipykernel makes this one look like a notebook."""
    (tmp_path / "two.py").write_text(
        "# %% [markdown]\n# # Two\n\n# %%\nimport sys, os\n\nprint(1 + 1, len(os.listdir()))\n"
        'print("a warning", file=sys.stderr)\n'
    )
    code = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import notebooks; "
    code += "notebooks.FOLDER = pathlib.Path(sys.argv[2]); notebooks.main(['two'])"
    words = [sys.executable, "-c", code, str(ROOT / "docs" / "tools"), str(tmp_path)]
    subprocess.run(words, check=True, capture_output=True)
    book = nbformat.read(tmp_path / "two.ipynb", 4)
    nbformat.validate(book)
    assert [cell.cell_type for cell in book.cells] == ["markdown", "code"]
    assert [(one.name, one.text) for one in book.cells[1].outputs] == [("stdout", "2 0\n")]
    assert book.metadata["bayesfac"]["versions"]["bayesfac"] == bf.__version__
