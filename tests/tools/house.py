"""Report the shape of the package: `python -m tests.tools.house`.

The report names circles of imports, crowded folders, the lines of the package, the share of repeated
lines, and methods over the soft limit. The exit code is 1 if there is a circle or a crowded folder, or
if too many lines are repeated.
"""

import ast
import re
import sys
from pathlib import Path

from scipy.sparse import lil_array
from scipy.sparse.csgraph import connected_components

PACKAGE = Path(__file__).resolve().parents[2] / "bayesfac"
CROWDED = (
    16  # files of one folder, without __init__.py and, in the folder of a family, without methods
)
METHOD_LINES = 300  # of a method and its private files _NAME_*.py
RUN, REPEATED = (
    6,
    0.015,
)  # equal lines in a row that count as a repetition; the largest share of lines
CONTAINERS = {"Ratings", "Counts", "Relations", "Tensor", "Views", "Tasks"}
ASKING = 40  # places that may ask which of these data are
ARGUMENT = "Length: "  # begins the line of a header that argues for a longer method


def lines(*files):
    """Count the lines of these files."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def imports(file, names):
    """The modules of `names` that a file imports, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield from {submodule if submodule in names else node.module} & set(names)


def circles(package=PACKAGE):
    """The groups of modules that import one another, directly or through other modules.

    A package imports the modules that its `__init__.py` imports; a module does not depend on the
    `__init__.py` of a package that contains the module.
    """
    files = {
        ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): file
        for file in sorted(package.rglob("*.py"))
    }
    names = list(files)
    edges = lil_array((len(names), len(names)), dtype=int)
    for at, (name, file) in enumerate(files.items()):
        for other in imports(file, files):
            if other != name and not name.startswith(f"{other}."):
                edges[at, names.index(other)] = 1
    group = connected_components(edges.tocsr(), connection="strong")[1]
    together = (
        [n for n, g in zip(names, group, strict=True) if g == k] for k in sorted(set(group))
    )
    return [members for members in together if len(members) > 1]


def methods(package=PACKAGE):
    """The files of methods, which are in the folders of their families."""
    return sorted([*package.glob("models/*/[!_]*.py"), *package.glob("labels/models/*/[!_]*.py")])


def crowded(package=PACKAGE):
    """Map every folder with more than CROWDED files to its number of files."""
    folders = [package, *(folder for folder in package.rglob("*") if folder.is_dir())]
    aside = {*package.rglob("__init__.py"), *methods(package)}
    sizes = {folder: len({*folder.glob("*.py")} - aside) for folder in folders}
    return {f.relative_to(package.parent).as_posix(): n for f, n in sizes.items() if n > CROWDED}


def asking(package=PACKAGE):
    """The places that ask which container data are, as (file, line, code): `isinstance`, `type`, `.kind`."""
    found = []
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            code = ast.unparse(node) if isinstance(node, ast.Call | ast.Compare) else ""
            words = set(re.findall(r"\w+", code))
            tested = isinstance(node, ast.Call) and code.startswith("isinstance(")
            if isinstance(node, ast.Compare):
                tested = ".kind" in code or isinstance(node.ops[0], ast.Is | ast.IsNot)
            if tested and words & CONTAINERS:
                found.append((file.relative_to(package.parent).as_posix(), node.lineno, code))
    return found


def statements(file):
    """The lines of code as (number, text): no blank lines, comments, docstrings or imports."""
    text = file.read_text(encoding="utf-8")
    aside = set()
    for node in ast.walk(ast.parse(text)):
        prose = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if prose or isinstance(node, ast.Import | ast.ImportFrom):
            aside.update(range(node.lineno, node.end_lineno + 1))
    rows = ((n, row.strip()) for n, row in enumerate(text.splitlines(), 1) if n not in aside)
    return [(number, row) for number, row in rows if row and not row.startswith("#")]


def repeated(package=PACKAGE):
    """The share of lines of code that stand in a run of RUN lines which the package has twice."""
    places, total = {}, 0
    for file in sorted(package.rglob("*.py")):
        rows = statements(file)
        total += len(rows)
        for at in range(len(rows) - RUN + 1):
            run = tuple(row for _, row in rows[at : at + RUN])
            places.setdefault(run, []).append([(file, number) for number, _ in rows[at : at + RUN]])
    twice = {line for runs in places.values() if len(runs) > 1 for run in runs for line in run}
    return len(twice) / max(total, 1)


def long_methods(package=PACKAGE):
    """Map every method over METHOD_LINES lines whose header has no argument to its number of lines."""
    found = {}
    for file in methods(package):
        size = lines(file, *file.parent.glob(f"_{file.stem}_*.py"))
        header = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        argued = any(line.startswith(ARGUMENT) for line in header.splitlines())
        if size > METHOD_LINES and not argued:
            found[file.stem] = size
    return found


def main():
    """Print the report and return the exit code."""
    wrong = circles(), crowded()
    for members in wrong[0]:
        print(f"circle of imports: {', '.join(members)}")
    for folder, size in wrong[1].items():
        print(f"crowded folder: {folder} has {size} files, at most {CROWDED} are allowed")
    for name, size in long_methods().items():
        print(
            f"long method: {name} and its private files have {size} lines, the soft limit is "
            f'{METHOD_LINES}; shorten them, or argue in a line "{ARGUMENT}..." of the header'
        )
    total, share = lines(*PACKAGE.rglob("*.py")), repeated()
    print(f"{len(asking())} places ask which container data are, at most {ASKING}")
    print(f"{PACKAGE.name}/ has {total} lines; {share:.2%} of its code is repeated")
    return int(any(wrong) or share > REPEATED)


if __name__ == "__main__":
    sys.exit(main())
