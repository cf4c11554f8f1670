"""Make one page for every method from its file: header, settings, model, code, and pages that use it."""

import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import graph
from formulas import equations

from bayesfac.core.data.ratings import Ratings
from bayesfac.core.method import TRAITS, Method, Permutation, Rotation, gauge_of
from bayesfac.testing.waived import WAIVED

ROOT = Path(__file__).resolve().parents[2]


def page(method: Method) -> str:
    """The page of a method, as Markdown."""
    look = graph.look(method)
    title, paper, *rest = paragraphs(method.header)
    parts = [
        f"# {method.name}",
        f"*{prose(title)}*",
        prose(paper),
        facts(method),
        *header(rest),
        "## Graphical model",
        picture(method, look),
        "## Settings",
        settings(method),
        "## An example",
        f"```python\n{example(method)}```",
        f'Its posterior: `bf.fit("{method.name}", train, bf.{method.engines[-1]}(), init=fit)`; '
        "see [engines](../engines.md).",
        *code(method),
        *conditionals(method),
        *notes(method, look.sites),
        "## See also",
        see_also(method),
        *whole(method),
    ]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------- the header of the file


def paragraphs(text: str) -> list[str]:
    """Blocks between empty lines."""
    return [block for block in re.split(r"\n\s*\n", text) if block.strip()]


def prose(text: str) -> str:
    """Text as one line of Markdown, with everything escaped except `code` and *stress*."""
    pieces = re.split(r"(`[^`]+`|(?<!\w)\*[A-Za-z][^*`]*[a-z]\*(?!\w))", " ".join(text.split()))
    return "".join(
        piece if at % 2 else re.sub(r"([\\*_<\[\]|~#^{}$])", r"\\\1", piece)
        for at, piece in enumerate(pieces)
    )


def header(blocks: list[str]) -> list[str]:
    """The objective, the table of notation and the remarks of a header, under headings."""
    parts: list[str] = []
    for block in blocks:
        if re.match(r" +paper +here +shape", block):
            parts += ["## Notation", notation(block), "## What to know"]
        elif block.startswith("    "):
            if "## Objective" not in parts:
                parts.append("## Objective")
            plain = textwrap.dedent(block)
            parts.append(equations(plain) or f"```text\n{plain}\n```")
        else:
            parts.append(prose(block))
    return parts


def notation(block: str) -> str:
    """The table paper | here | shape of a header, as Markdown."""
    first, *lines = block.splitlines()
    starts = [first.index(word) for word in ("paper", "here", "shape")]
    rows = []
    for line in lines:
        cells = ["", "", ""]
        for found in re.finditer(r"\S+(?: \S+)*", line):
            column = max(i for i, at in enumerate(starts) if at <= found.start() or not i)
            more = "; " if column == 2 else " "
            cells[column] += more * bool(cells[column]) + found[0]
        rows.append([prose(cells[0]), named(cells[1]), prose(cells[2])])
    return table(["paper", "here", "shape, and what it is"], rows)


def named(text: str) -> str:
    """Format names as code and descriptions as text."""
    is_code = re.fullmatch(r"[\w.]+(\[[^\]]+\])?(, [\w.]+(\[[^\]]+\])?)*", text)
    return f"`{text}`" if is_code else prose(text)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---------------------------------------------------------------------- the record


def folds(method: Method) -> bool:
    """Whether rows can be added to some fit of the method: by its own step, by conditionals or by descent."""
    own = method.fold_in or issubclass(method.data, Ratings) and method.gibbs.conditionals
    return bool(own or issubclass(method.data, Ratings) and "no_fold_in" not in method.notes.traits)


def facts(method: Method) -> str:
    """The facts of the record in one table."""
    rows = [
        ["Data", f"{{py:class}}`bayesfac.{method.data.__name__}`"],
        ["Solver", solver(method)],
        ["Engines", ", ".join(f"`{name}`" for name in method.engines)],
        [
            "New\N{NO-BREAK SPACE}rows",
            "`fit.fold_in(more)`" if folds(method) else "draws from the prior, flagged",
        ],
        ["Cite", reference(method.cite)],
    ]
    if method.gibbs.conditionals:
        blocks = [*method.gibbs.conditionals, *method.gibbs.moves]
        rows.insert(
            3, ["Gibbs\N{NO-BREAK SPACE}sweep", ", ".join(f"`{block}`" for block in blocks)]
        )
    if "views_given" in method.notes.traits:
        rows.insert(1, ["Models", "the labels, conditional on the features"])
    return table(["", ""], rows)


def solver(method: Method) -> str:
    if method.solver.update:
        return "`FixedPoint`: repeats `update`, which never raises the objective"
    return "`LBFGS` on the objective; the method has no `update`"


def reference(key: str) -> str:
    """The bibliography entry as one sentence."""
    text = (ROOT / "bayesfac" / "references.bib").read_text(encoding="utf-8")
    entry = text.split(f"{{{key},")[1].split("\n}")[0]
    fields = {
        name: " ".join(value.replace("{", "").replace("}", "").split()).replace("--", "-")
        for name, value in re.findall(r"(\w+)\s*=\s*\{((?:[^{}]|\{[^{}]*\})*)\}", entry)
    }
    authors = [
        " ".join(reversed([part.strip() for part in one.split(",", 1)]))
        for one in fields["author"].split(" and ")
    ]
    where = next(fields[name] for name in ("journal", "booktitle", "school") if name in fields)
    said = f"{', '.join(authors)} ({fields['year']}). {prose(fields['title'])}. *{prose(where)}*."
    return f"{said} `{key}`"


def picture(method: Method, look: graph.Picture) -> str:
    """The graphical model, and a table of the sites with their laws and axes."""
    rows = []
    for name, node in look.nodes.items():
        field, _, key = name.partition(".")
        axes = [dim.format(key=key or "view") for dim in method.axes.dims.get(field, ())]
        given = ", ".join(f"`{p}`" for p in node.parents)
        rows.append([f"`{name}`", f"`{node.law}`" if node.kind != "factor" else "",
                     " × ".join(axes), given, node.kind])  # fmt: skip
    caption = "Shaded: observed. Dashed: a factor of the joint that is not a density. Boxes: repeated parts."
    return (
        f'<figure class="graph">{graph.svg(method.name, look)}\n'
        f"<figcaption>{caption}</figcaption></figure>\n\n"
        + table(["site", "law", "axes", "given", "kind"], rows)
    )


def settings(method: Method) -> str:
    """Hyper's fields, their defaults, and the comments beside them."""
    source = inspect.getsource(method.Hyper).splitlines()
    rows = []
    for node in ast.parse("\n".join(source)).body[0].body:
        if isinstance(node, ast.AnnAssign):
            comment = source[node.end_lineno - 1][node.end_col_offset :].strip().removeprefix("#")
            rows.append(
                [
                    f"`{node.target.id}`",
                    f"`{ast.unparse(node.value)}`" if node.value else "",
                    f"`{ast.unparse(node.annotation)}`".replace("|", "\\|"),
                    prose(comment),
                ]
            )
    return table(["name", "default", "type", ""], rows)


def notes(method: Method, sites: tuple[str, ...]) -> list[str]:
    """Symmetries of the joint, traits, and waived checks of the method."""
    free = [moved(one) for one in gauge_of(method, sites)]
    parts = ["## What is not identified", "\n".join(f"- {one}" for one in free)] if free else []
    if parts:
        parts.append("Why that matters: [can I trust this posterior?](../trust.md)")
    known = [f"- {TRAITS[trait]}: {prose(why)}" for trait, why in method.notes.traits.items()]
    if known:
        parts += ["## What to know before using it", "\n".join(known)]
    if waived := WAIVED.get(method.name):
        parts += ["## Checks of the contract that the method does not pass, and why"]
        parts += ["\n".join(f"- *{check}*: {prose(why)}" for check, why in waived.items())]
    return parts


def moved(free: Rotation | Permutation) -> str:
    axes = ", ".join(f"`{name}`" for name in free.axes)
    if isinstance(free, Rotation):
        each = ", one for every entry of their first axis" if free.each else ""
        forms = (
            f"; {', '.join(f'`{name}`' for name in free.forms)} turn along" if free.forms else ""
        )
        return f"{axes}: one orthogonal matrix turns them together{each}{forms}."
    signs = (
        f"; {', '.join(f'`{name}`' for name in free.signed)} may change sign" if free.signed else ""
    )
    return f"{axes}: names along *{free.name}* may change places{signs}."


# ---------------------------------------------------------------------- code


def code(method: Method) -> list[str]:
    """The solver (`update` or the objective) and the model, to compare with the paper."""
    parts = []
    if method.solver.update and method.solver.update.__module__ != method.module:
        said = (
            "Each block in turn at the mode of its conditional, by [parts](../parts.md), of this J."
        )
        parts += ["## Update", said, block(method.objective)]
    elif method.solver.update:
        parts += ["## Update", "One sweep of the solver.", block(method.solver.update)]
    else:
        objective = block(method.objective)
        parts += ["## Update", "None: L-BFGS minimises this objective by its gradient.", objective]
    return [*parts, "## Model", "The generative twin, in NumPyro.", block(method.model)]


RULE = " | rest ~ "
ROWS = (
    "Given all else, a row of a factor has the precision P and the mean c, and a cell observes its score as "
    "t with the precision w. S and N are the sum and the number of the squares that involve P. Other rows "
    "alike."
)


def conditionals(method: Method) -> list[str]:
    """The laws of the blocks of Gibbs, by the docstrings of a method's own and the headers of its parts."""
    laws = [law for law in method.gibbs.conditionals.values() if inspect.isfunction(law)]
    own = [(inspect.getdoc(law) or "").partition(". ")[0].rstrip(".") for law in laws]
    parts = [equations(text) or prose(f"{text}.") for text in own if re.match(r"\w+ \| ", text)]
    if method.parts and method.gibbs.conditionals:
        lines = [line for text in headers_of_parts(method.parts) for line in text.splitlines()]
        plain = "\n".join(line.strip() for line in lines if RULE in line)
        parts += [ROWS, equations(plain) or f"```text\n{plain}\n```"]
    return ["## Conditionals", *parts] if parts else []


def headers_of_parts(parts: Any) -> list[str]:
    """What the files and classes of parts say of themselves."""
    structure = parts.structure
    factors = getattr(structure, "main", None) or [structure.factor("x")]
    texts = [inspect.getdoc(sys.modules[type(structure).__module__])]
    if any(f.mean for f in factors):
        texts.append(inspect.getdoc(sys.modules[type(factors[0]).__module__]))
    texts += dict.fromkeys(inspect.getdoc(type(f.precision)) for f in factors if f.precision.site)
    return [*texts, inspect.getdoc(type(parts.observed)) or ""]


def block(function: Any) -> str:
    return f"```python\n{inspect.getsource(inspect.unwrap(function))}```"


def whole(method: Method) -> list[str]:
    """The code of the file without its header."""
    path = Path(inspect.getfile(sys.modules[method.module]))
    text = path.read_text(encoding="utf-8")
    after = text.split('"""\n', 1)[1].strip()
    name = path.relative_to(ROOT).as_posix()
    return [
        "## The whole file",
        f"`{name}` without its header, which is shown above; [as a file](../files/{name}).",
        f"<details><summary>Show the code</summary>\n\n```python\n{after}\n```\n\n</details>",
    ]


DATA = {
    "Ratings": """\
ratings = bf.datasets.make_ratings(60, 40, 3, density=0.5, seed=0){likes}
train, test = bf.split.holdout(ratings, 0.2, seed=0)
""",
    "Counts": """\
ratings = bf.datasets.make_ratings(60, 40, 3, density=0.5, seed=0).frame()
likes = bf.Counts(ratings.loc[ratings["rating"] >= 4, ["user", "item"]])
train, test = bf.split.holdout(likes, 0.2, seed=0)
""",
    "Relations": """\
data, truth = bf.datasets.make_relations(60, 40, 3, density=0.2, seed=0)
train, test = bf.split.holdout(data, 0.2, seed=0)
""",
    "Measurements": """\
data, truth = bf.datasets.make_measurements(60, {{"genes": 20, "drugs": 10}}, 3, seed=0)
train, test = bf.split.holdout(data, 0.2, seed=0)
""",
    "Tensor": """\
data, truth = bf.datasets.make_tensor((30, 20, 10), 3, density=0.3, seed=0)
train, test = bf.split.holdout(data, 0.2, seed=0)
""",
    "Views": """\
train = bf.datasets.load("digits").take(range(200)){one}
""",
    "Tasks": """\
data, truth = bf.datasets.make_tasks(90, 1, {{"words": 30}}, labelled=1.0, seed=0)
train, test = bf.split.holdout(data, 0.3, seed=0)
""",
}
ASK = {
    "Views": "print(bf.clusters(fit).head())",
    "Measurements": "print(fit.variance_explained())",
    "Counts": "print(fit.recommend(train.users[:2], 3, exclude=train))",
}
ONE_VIEW = '\ntrain = bf.Views({"pixels": train["pixels"]})  # the method takes one view'


def example(method: Method) -> str:
    """A short program that fits the method to data of the right kind."""
    fields, kind = method.Hyper._fields, method.data.__name__
    sizes = {"layers": "((6, 4),)", "n_components": "3", "n_topics": "6"}
    size = "".join(f", {name}={value}" for name, value in sizes.items() if name in fields)
    likes = ".above(3)  # likes against the rest" if method.name == "bmmmf" else ""
    one = ONE_VIEW if "one_view(" in inspect.getsource(method.prepare) else ""
    made = DATA[kind].format(likes=likes, one=one)
    ask = ASK.get(kind, "print(fit.predict(test).frame().head())")
    if method.name == "faie":
        made += "train = train.take(train.labelled)  # the method uses labelled rows only\n"
        ask = ask.replace("fit.", "fit.fold_in(test).")  # so that all others are new rows
    fit = f'fit = bf.fit("{method.name}", train{size})'
    return f"import bayesfac as bf\n\n{made}{fit}\nprint(fit)\n{ask}\n"


# ---------------------------------------------------------------------- beyond


def see_also(method: Method) -> str:
    """Links to the guides and notebooks that mention the method."""
    links = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if f"`{method.name}`" in text and path.stem not in {"index", "architecture"}:
            links.append(f"- [{text.splitlines()[0].lstrip('# ')}](../{path.name})")
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if f'"{method.name}"' in text:
            head = re.search(r"^# # (.*)$", text, re.M)[1]
            links.append(f"- notebook: [{head}](../notebooks/{path.stem}.md)")
    return "\n".join(links)
