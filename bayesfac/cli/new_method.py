"""`bayesfac new-method NAME`: write a method that runs, its bibliography entry and its test."""

import argparse
import keyword
import re
from contextlib import ExitStack
from datetime import date
from pathlib import Path

from bayesfac.core.files import atomic

# family -> the method that is copied, and its test
SKELETONS = {
    "ratings": ("docs/skeleton_method.py", "tests/templates/ratings.py"),
    "counts": ("docs/skeleton_counts.py", "tests/templates/counts.py"),
    "topics": ("bayesfac/models/topics/plsa.py", "tests/templates/topics.py"),
    "labels": ("docs/skeleton_labels.py", "tests/templates/labels.py"),
    "tasks": ("docs/skeleton_labels.py", "tests/templates/labels.py"),
}
# families of one method, which is no skeleton: most of its lines are about its own law
ALONE = {"collective": "cmf", "tensors": "cp"}
WING, LABELLED = "bayesfac/labels/models", ("labels", "tasks")  # families of the wing of labels
BIBLIOGRAPHY = "bayesfac/references.bib"
ENTRY = """
@article{{{name},
  author  = {{TO FILL IN}},
  title   = {{TO FILL IN}},
  journal = {{TO FILL IN}},
  year    = {{{year}}}
}}
"""


def new_method(args: argparse.Namespace) -> int:
    """Create a method of your own (in a source checkout)."""
    root = Path(__file__).resolve().parents[2]
    files = laid_out(root, args.name, args.family)
    with ExitStack() as stack:  # files get their names only when all of them are complete
        for path, text in files.items():
            stack.enter_context(atomic(root / path)).write_text(text, encoding="utf-8")
    for path in files:
        print(f"wrote {path}")
    print(
        f'next: make test ARGS="-k {args.name}"; then write the paper\'s method into the file, fill in '
        "the bibliography entry, and run make readme"
    )
    return 0


def laid_out(root: Path, name: str, family: str) -> dict[str, str]:
    """Map the path of each file to its text, or refuse the name."""
    if family in ALONE:
        raise ValueError(
            f"Expected a family with a skeleton ({', '.join(SKELETONS)}), got {family}: begin with a copy of "
            f"bayesfac/models/{family}/{ALONE[family]}.py, of its test and of its entry in {BIBLIOGRAPHY}"
        )
    source, test = SKELETONS[family]
    for needed in (source, test, BIBLIOGRAPHY, "pyproject.toml"):
        if not (root / needed).is_file():
            raise FileNotFoundError(
                f"new-method works in a source checkout of bayesfac only: {root} has no {needed}"
            )
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(
            f"Expected NAME to be a Python identifier in lower case, as demo_method, got {name!r}"
        )
    bibliography = (root / BIBLIOGRAPHY).read_text(encoding="utf-8")
    places = (
        f"bayesfac/models/*/{name}.py",
        f"{WING}/*/{name}.py",
        f"tests/models/*/test_{name}.py",
    )
    taken = [path for place in places for path in root.glob(place)]
    if taken or re.search(rf"^@\w+\{{{name},", bibliography, re.M):
        where = taken[0].relative_to(root).as_posix() if taken else BIBLIOGRAPHY
        raise FileExistsError(f"Expected the name of a new method, got {name!r}: see {where}")
    method = (root / source).read_text(encoding="utf-8")
    method = method.replace(" Copy this file to begin a method.", "", 1)
    method = re.sub(r'name="\w+"(,\s*)cite="\w+"', rf'name="{name}"\1cite="{name}"', method)
    tests = (root / test).read_text(encoding="utf-8")
    tests = re.sub(r"skeleton_(method|counts|topics|labels)", name, tests)
    return {
        f"{WING if family in LABELLED else 'bayesfac/models'}/{family}/{name}.py": method,
        f"tests/models/{family}/test_{name}.py": tests,
        BIBLIOGRAPHY: bibliography + ENTRY.format(name=name, year=date.today().year),
    }
