"""Write the sources of the site: the pages of docs/, and pages made from the code.

python docs/tools/generate.py build/source

Pages keep their names; `docs/x.md` becomes `x.md`. `make docs` runs this script; never commit its output.
"""

import argparse
import base64
import inspect
import os
import re
import shutil
import textwrap
import types
from operator import attrgetter
from pathlib import Path
from typing import Any

import method_pages
import nbformat

import bayesfac as bf
import bayesfac.models  # registers every method
from bayesfac.core.method import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
PAGES = {  # page of the repository -> page of the site; docs/x.md is x.md
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/multilabel.md": "benchmarks_multilabel.md",
    "bayesfac/models": "methods/index.md",
    "bayesfac/__init__.py": "api/index.md",
    "notebooks": "notebooks/index.md",
}
API = {  # page -> its title, what it is for, and names of bf, or modules all of whose functions it lists
    "fitting": ("Fitting", "Fit, keep, compare.",
                "fit Fit auto load methods engines compare path ConvergenceWarning"),
    "compose": ("Compose", "Parts of a factorization of one's own: [the guide](../compose.md).",
                "factorization NormalWishart Relevance Spherical SpikeAndSlab Horseshoe NonNegative "
                "RandomWalk AutoRegressive Graph Normal StudentT Ordinal Bernoulli NegativeBinomial"),
    "data": ("Data", "Containers check once, when they are made.",
             "Ratings Counts Relations Measurements Tensor Views Tasks DataWarning"),
    "engines": ("Engines", "Settings of each; [what they do](../engines.md).",
                "FixedPoint LBFGS MAP SVI NUTS Gibbs Quick VB"),
    "trust": ("Trust", "Checks before, beside and after a fit: [the guide](../trust.md).",
              "align Rotation Permutation loo_compare prior_predictive sbc Calibration check Checked"),
    "references": ("bf.references", "Known posteriors: [the guide](../references.md).", "references"),
    "clusters": ("Clusters and columns", "Clusters from draws.", "clusters together columns_on"),
    "evaluation": ("Evaluation", "Cross-validation of many methods at once.", "evaluate Tuned"),
    "split": ("bf.split", "Training parts, test parts and folds.", "split split.PairFolds"),
    "metrics": ("bf.metrics", "Scores of ratings and clusterings.", "metrics"),
    "multilabel": ("bf.multilabel", "Scores of several labels at once.", "multilabel"),
    "ranks": ("bf.ranks", "Can methods be told apart over several data sets?", "ranks"),
    "comparators": ("bf.comparators", "Classifiers of several labels to compare with.", "comparators"),
    "clusterings": ("bf.comparators.clusterings", "Clusterings to compare with.", "comparators.clusterings"),
    "datasets": ("bf.datasets", "Data sets, readers, generators.", "datasets"),
    "sklearn": ("bf.sklearn", "Every method as an estimator: [the guide](../estimators.md).", "sklearn"),
    "testing": ("bayesfac.testing", "The contract, for methods of your own.", "testing"),
}  # fmt: skip

# page of API -> the level of its names, and names with another one; CONTRIBUTING.md says what each promises
LEVELS = {
    "fitting": ("stable", {"auto": "provisional", "engines": "provisional", "path": "provisional"}),
    "compose": ("provisional", {}),
    "data": ("stable", {"Measurements": "provisional", "Relations": "provisional", "Tensor": "provisional"}),
    "engines": ("stable", {"Quick": "provisional", "VB": "provisional"}),
    "trust": ("provisional", {"loo_compare": "stable", "prior_predictive": "stable", "sbc": "stable"}),
    "references": ("provisional", {}),
    "clusters": ("provisional", {}),
    "evaluation": ("provisional", {}),
    "split": ("stable", {"split.PairFolds": "provisional"}),
    "metrics": ("stable", {}),
    "multilabel": ("stable", {}),
    "ranks": ("stable", {}),
    "comparators": ("provisional", {}),
    "clusterings": ("provisional", {}),
    "datasets": ("stable", {"datasets.read_large": "provisional"}),
    "sklearn": ("stable", {}),
    "testing": ("provisional", {}),
}  # fmt: skip


def main() -> None:
    """Write all pages that have changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    made = {**copied(), **methods(), **api(), **notebooks(args.out)}
    for name, text in made.items():
        path = args.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        files(args.out, text)
    for old in {*args.out.rglob("*.md")} - {args.out / name for name in made}:
        old.unlink()


# ---------------------------------------------------------------------- pages that exist


def copied() -> dict[str, str]:
    """Every page of docs/ and the Markdown pages of PAGES, with links to pages of the site."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / n for n in PAGES if n.endswith(".md"))]
    pages.remove(ROOT / "README.md")
    return {on_site(page): relinked(page) for page in pages}


def on_site(path: Path) -> str:
    """The page of the site that shows a file, or "" if no page does."""
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md" or name in PAGES:
        return PAGES.get(name, name.removeprefix("docs/"))
    if path.parent.name == "notebooks":
        return f"notebooks/{path.stem}.md"
    return f"methods/{path.stem}.md" if path.stem in REGISTRY else ""


def relinked(page: Path, text: str | None = None) -> str:
    """A page whose links lead to pages of the site, or else to copies of the files."""
    here = Path(on_site(page)).parent

    def turn(found: re.Match[str]) -> str:
        target, _, anchor = found[1].partition("#")
        if re.match(r"\w+:", target) or not target:
            return found[0]
        path = (page.parent / target).resolve()
        if not path.exists():
            raise FileNotFoundError(
                f"Expected {target}, to which {page.name} links, got no such file"
            )
        new = on_site(path) or f"files/{path.relative_to(ROOT).as_posix()}"
        return f"]({os.path.relpath(new, here)}{'#' * bool(anchor)}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", turn, page.read_text("utf-8") if text is None else text)


def files(out: Path, text: str) -> None:
    """Copy the files to which a page links."""
    for name in set(re.findall(r"\]\((?:\.\./)*files/([^)#\s]+)", text)):
        target = out / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


# ---------------------------------------------------------------------- pages made from the code


def methods() -> dict[str, str]:
    """A page for each method, and the page that lists all methods."""
    made = {f"methods/{name}.md": method_pages.page(m) for name, m in REGISTRY.items()}
    parts = [
        "# Methods",
        "Each page is made from the header, the record and the code of the method's file.",
    ]
    guides = {
        "Ratings": "ratings",
        "Counts": "choosing",
        "Measurements": "measurements",
        "Relations": "ratings",
        "Tensor": "ratings",
    }
    guides |= {"Views": "graphs", "Tasks": "tasks"}
    for kind, guide in guides.items():
        chosen = {n: m for n, m in sorted(REGISTRY.items()) if m.data.__name__ == kind}
        rows = [[f"[{n}]({n}.md)", method_pages.prose(m.paper)] for n, m in chosen.items()]
        parts += [f"## {kind}", f"How to choose: [the guide](../{guide}.md)."]
        parts += [method_pages.table(["method", "what"], rows), contents(sorted(chosen))]
    return made | {"methods/index.md": "\n\n".join(parts) + "\n"}


def contents(pages: list[str]) -> str:
    return "```{toctree}\n:hidden:\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```"


def api() -> dict[str, str]:
    """The reference, from docstrings: a page for each group of names."""
    made, rows = {}, []
    for page, (title, about, names) in API.items():
        things = {name: attrgetter(name)(bf) for name in names.split()}
        told = [said(t) for t in things.values() if isinstance(t, types.ModuleType)]
        text = "\n\n".join(directive(name, thing) for name, thing in things.items())
        parts = [f"# {title}", about, promised(page), *told, f"```{{eval-rst}}\n{text}\n```"]
        made[f"api/{page}.md"] = "\n\n".join(parts) + "\n"
        rows.append([f"[{title}]({page}.md)", about])
    parts = [
        "# Reference",
        "The public names of `import bayesfac as bf`. The tests run all examples. Each page says how "
        "[stable](../contributing.md#what-users-may-rely-on) its names are.",
    ]
    parts += [method_pages.table(["page", "what"], rows), contents(list(API))]
    return made | {"api/index.md": "\n\n".join(parts) + "\n"}


def promised(page: str) -> str:
    """The level of the names of a page."""
    usual, others = LEVELS[page]
    text = ", ".join(f"`{name}` is {level}" for name, level in others.items())
    return f"[Level](../contributing.md#what-users-may-rely-on): {usual}{f', but {text}' if text else ''}."


def said(module: Any) -> str:
    """The docstring of a module without its first line and its examples."""
    blocks = method_pages.paragraphs(inspect.getdoc(module))[1:]
    return "\n\n".join(
        f"```text\n{textwrap.dedent(one)}\n```"
        if re.search("^ {4}|^- ", one)
        else method_pages.prose(one)
        for one in blocks
        if not one.startswith(">>>")
    )


def directive(name: str, thing: Any) -> str:
    """The directive of autodoc for a class, a function, or all functions of a module."""
    if isinstance(thing, types.ModuleType):
        return "\n\n".join(f".. autofunction:: bayesfac.{name}.{one}" for one in public(thing))
    if inspect.isfunction(thing):
        return f".. autofunction:: bayesfac.{name}"
    inherited = "\n   :inherited-members:" if thing is bf.Fit else ""
    return f".. autoclass:: bayesfac.{name}\n   :members:{inherited}"


def public(module: Any) -> list[str]:
    """The functions of a module or package, in the order of its files."""
    found = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__.startswith(module.__name__)
    ]
    return [name for name in found if inspect.isfunction(getattr(module, name))]


# ---------------------------------------------------------------------- notebooks


def notebooks(out: Path) -> dict[str, str]:
    """Every notebook with its outputs as a page."""
    made = {}
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        book = nbformat.read(path.with_suffix(".ipynb"), 4)
        made[f"notebooks/{path.stem}.md"] = notebook_page(path, book, out)
    links = "\n".join(f"- [{first_line(text)}]({Path(n).name})" for n, text in made.items())
    index = f"# Notebooks\n\n{links}\n\n{contents([Path(name).stem for name in made])}\n"
    return made | {"notebooks/index.md": index}


def first_line(text: str) -> str:
    return text.split("\n", 1)[0].removeprefix("# ")


def notebook_page(path: Path, book: Any, out: Path) -> str:
    """The cells of a notebook with their outputs, and what made them."""
    made_by = book.metadata["bayesfac"]["versions"].items()
    versions = ", ".join(f"{name} {number}" for name, number in made_by)
    parts = []
    for number, cell in enumerate(book.cells):
        if cell.cell_type == "markdown":
            parts.append(relinked(path, cell.source))
            continue
        if cell.cell_type == "code" and cell.source.strip():
            parts.append(f"```python\n{cell.source}\n```")
            parts += [output(one, f"{path.stem}-{number}-{at}", out)
                      for at, one in enumerate(cell.get("outputs", []))]  # fmt: skip
    title, *rest = parts[0].split("\n", 1)
    links = ", ".join(
        f"[{name}](../files/notebooks/{name})" for name in (path.name, f"{path.stem}.ipynb")
    )
    note = f"*Run with {versions}. Files: {links}.*"
    return "\n\n".join([title, note, *rest, *parts[1:]]) + "\n"


def output(found: Any, name: str, out: Path) -> str:
    """One output, in the richest form that a page can hold."""
    if found.output_type == "stream":
        return "" if found.name == "stderr" else fenced(found.text)
    data = found.get("data", {})
    if "image/png" in data:
        target = out / "notebooks" / f"{name}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(base64.b64decode(data["image/png"]))
        return f"![output]({target.name})"
    return fenced(data["text/plain"]) if data["text/plain"].strip() else ""  # a bar that was full


def fenced(text: str) -> str:
    return f"````{{code-block}} text\n:class: output\n\n{text.rstrip()}\n````"


if __name__ == "__main__":
    main()
