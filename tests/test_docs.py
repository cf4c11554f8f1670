"""The documentation is true: its examples run, its lists are complete, its generated pages hold together."""

import ast
import doctest
import importlib
import os
import re
import sys
import types
import warnings
from operator import attrgetter
from pathlib import Path

import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
sys.path.insert(0, str(DOCS / "tools"))
import generate  # noqa: E402
import graph  # noqa: E402
import laws  # noqa: E402
import method_pages  # noqa: E402

sys.path.remove(str(DOCS / "tools"))


def with_examples(folder, pattern):
    found = [path for path in sorted(folder.rglob(pattern)) if ">>> " in path.read_text("utf-8")]
    return {"argvalues": found, "ids": lambda path: str(path.relative_to(ROOT))}


def module_of(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return importlib.import_module(name)


@pytest.mark.parametrize("path", **with_examples(ROOT / "bayesfac", "*.py"))
def test_examples_in_docstrings(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)  # examples are short
        found = doctest.testmod(module_of(path), optionflags=FLAGS)
    assert found.attempted and not found.failed


LONG = (
    "warmup=300, draws=1000, chains=4"  # of the quickstart, for a verdict to act on: half a minute
)
SHORT = "warmup=100, draws=100, chains=2"


@pytest.mark.parametrize("path", **with_examples(DOCS, "*.md"))
def test_examples_in_pages(path):
    text = path.read_text("utf-8").replace(LONG, SHORT)
    page = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    with warnings.catch_warnings():
        runner.run(page)
    assert runner.tries and not runner.failures


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_code_in_pages_is_python_with_names_that_exist(page):
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        if ">>> " not in code:
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "bf":
                    getattr(bf, node.attr)


# ---------------------------------------------------------------------- complete


def test_the_table_of_laws_is_that_of_the_code():
    assert laws.page() == laws.PAGE.read_text("utf-8"), "run python docs/tools/laws.py"


def test_how_to_choose_names_every_method():
    rows = re.findall(r"^\|[^|]*\| `(\w+)`", (DOCS / "choosing.md").read_text("utf-8"), re.M)
    assert sorted(rows) == sorted(REGISTRY), "run `make readme`"


def test_every_error_of_the_faq_is_raised_there():
    text = (DOCS / "faq.md").read_text("utf-8").split("## Questions")[0]
    sections = re.split(r"^### ", text, flags=re.M)[1:]
    assert len(sections) > 15
    for section in sections:
        title = section.splitlines()[0]
        assert "Traceback (most recent call last)" in section, title
        if title.startswith(("Expected ", "Unknown ")):
            start = " ".join(title.split()[:2]).rstrip(",")
            assert re.search(rf"^[\w.]*(Error|Name|File|TooLarge): {start}", section, re.M), title


def test_the_reference_has_every_public_name():
    listed = {name for _, _, names in generate.API.values() for name in names.split()}
    assert not set(bf.__all__) - listed, "give it a place in API of docs/tools/generate.py"
    assert all(attrgetter(name)(bf) for name in listed)


def test_every_name_of_the_reference_has_a_level():
    promises = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## What users may rely on")[1]
    known = re.findall(r"^\| (\w+) \|", promises.split("\n## ")[0], re.M)[1:]
    assert known == ["stable", "provisional", "internal"]
    assert [*generate.LEVELS] == [*generate.API]
    for page, (usual, others) in generate.LEVELS.items():
        assert {usual, *others.values()} <= set(known) and usual not in others.values()
        listed = generate.API[page][2].split()
        names = {
            f"{name}.{one}"
            for name in listed
            if isinstance(module := attrgetter(name)(bf), types.ModuleType)
            for one in generate.public(module)
        }
        assert others.keys() <= {*listed, *names}, page
    assert generate.promised("split") == (
        "[Level](../contributing.md#what-users-may-rely-on): stable, but `split.PairFolds` is provisional."
    )


def test_every_page_is_in_a_table_of_contents():
    index = (DOCS / "index.md").read_text("utf-8")
    for page in DOCS.glob("*.md"):
        assert page.stem == "index" or re.search(rf"^{page.stem}$", index, re.M), (
            f"add {page.stem} to a contents list of docs/index.md"
        )


def test_tables_have_a_rule_under_every_column():
    for page in (*DOCS.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), ROOT / "README.md"):
        for line in page.read_text("utf-8").splitlines():
            if re.fullmatch(r"\|[\s|:-]*--[\s|:-]*\|", line):
                rules = [rule.strip() for rule in line.strip("|").split("|")]
                assert all(rules), f"{page.name} has a table that is none: {line}"


# ---------------------------------------------------------------------- pages of methods


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_pages_of_methods_say_what_the_file_says(name, monkeypatch):
    picture = graph.Picture({"x": graph.Node("x", "Normal", "latent", ())}, {}, ())
    monkeypatch.setattr(graph, "look", lambda method: picture)  # all but the picture: quick
    method, page = REGISTRY[name], method_pages.page(REGISTRY[name])
    for heading in ("Objective", "Notation", "Settings", "Model", "An example", "The whole file"):
        assert f"\n## {heading}\n" in page, heading
    for field in method.Hyper._fields:
        assert f"| `{field}` |" in page, field
    assert re.search(
        r'(^|alttext="|&#10;) *J.* = ', page.split("## Objective\n")[1].split("\n## ")[0], re.M
    )
    assert f"`{method.cite}`" in page
    notation = page.split("## Notation\n\n")[1].split("\n\n")[0].splitlines()
    assert len(notation) > 3 and {len(re.findall(r"(?<!\\)\|", row)) for row in notation} == {4}


@pytest.mark.parametrize("name", ["bpmf", "mggm"])
def test_pictures_of_methods(name):
    look = graph.look(REGISTRY[name])
    scene, ends = graph.arranged(look)
    assert {node.kind for node in look.nodes.values()} >= {"latent", "observed"}
    for plate, inside in look.plates.items():
        assert all(ends[plate][0] < ends[n][0] and ends[n][1] < ends[plate][1] for n in inside)
    for a, b in graph.neighbours(scene, list(ends)):
        assert ends[a][1] < ends[b][0] or ends[b][1] < ends[a][0], (a, b)
    if name == "mggm":
        assert look.plates["left, right"] == {"B", "C", "view"}
        assert look.nodes["graphs"].kind == "factor"
    else:
        assert look.nodes["U"].parents == ("Lambda_U", "mu_U")
        assert look.plates["user"] == {"U"}


def test_the_nearest_point_under_constraints():
    pull = graph.np.diag([1.0, 4.0])
    found = graph.nearest(
        pull, graph.np.array([[1.0, 1.0], [1.0, 0.0]]), graph.np.array([5.0, 1.0])
    )
    graph.np.testing.assert_allclose(found, [4.0, 1.0])  # by hand: x = 4y on the edge x + y = 5


def run_example(name):
    scope = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        exec(method_pages.example(REGISTRY[name]), scope)
    assert scope["fit"].name == name and scope["fit"].is_point


@pytest.mark.parametrize("name", ["pmf", "leml"])
def test_examples_of_methods(name):
    run_example(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(REGISTRY) - {"pmf", "leml"}))
def test_examples_of_the_other_methods(name):
    run_example(name)


# ---------------------------------------------------------------------- links


def test_links_are_turned_towards_the_site():
    page = DOCS / "trust.md"
    turned = {
        "engines.md#gibbs": "engines.md#gibbs",
        "../benchmarks/README.md": "benchmarks.md",
        "../notebooks/trust.py": "notebooks/trust.md",
        "../bayesfac/models/ratings/pmf.py": "methods/pmf.md",
        "../bayesfac/core/kernels/losses.py": "files/bayesfac/core/kernels/losses.py",
        "images/report.png": "files/docs/images/report.png",
        "https://example.com/x": "https://example.com/x",
        "#here": "#here",
    }
    for before, after in turned.items():
        assert generate.relinked(page, f"[x]({before})") == f"[x]({after})"
    back = generate.relinked(ROOT / "benchmarks" / "README.md", "[x](../docs/calibration.md)")
    assert back == "[x](calibration.md)"


def test_links_to_pages_lead_to_pages_of_the_site():
    pages = generate.copied()
    known = {*pages, "methods/index.md", "api/index.md", "notebooks/index.md"}
    known |= {f"methods/{name}.md" for name in REGISTRY}
    known |= {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.py")}
    for name, text in pages.items():
        for target in re.findall(r"\]\((?!\w+:)([^)\s#]+\.md)", text):
            found = os.path.normpath(os.path.join(os.path.dirname(name), target))
            assert found in known, f"{name} leads to {found}, which is no page"


def test_a_link_to_nothing_is_an_error():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        generate.relinked(DOCS / "trust.md", "[x](nowhere.md)")


def test_a_notebook_becomes_a_page(tmp_path):
    cells = [
        generate.nbformat.v4.new_markdown_cell("# Title\n\nText."),
        generate.nbformat.v4.new_code_cell("1 + 1"),
    ]
    cells[1].outputs = [
        generate.nbformat.v4.new_output("execute_result", {"text/plain": "2"}),
        generate.nbformat.v4.new_output("display_data", {"image/png": "AAEC"}),
    ]
    book = generate.nbformat.v4.new_notebook(cells=cells)
    book.metadata["bayesfac"] = {"versions": {"jax": "1.2", "numba": "3"}}
    page = generate.notebook_page(ROOT / "notebooks" / "trust.py", book, tmp_path)
    assert page.startswith("# Title\n") and "```python\n1 + 1\n```" in page
    assert "\n2\n````" in page and "*Run with jax 1.2, numba 3. Files: [trust.py]" in page
    assert "![output](trust-1-1.png)" in page and "(../files/notebooks/trust.ipynb)" in page
    assert (tmp_path / "notebooks" / "trust-1-1.png").read_bytes() == bytes([0, 1, 2])
    cells[1].outputs.append(generate.nbformat.v4.new_output("display_data", {"text/plain": ""}))
    whole = generate.notebook_page(ROOT / "notebooks" / "trust.py", book, tmp_path)
    assert whole.count("````") == page.count("````")  # nothing is left of a progress bar
