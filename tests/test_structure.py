"""House rules that no linter expresses: sizes, layers, the paper's order, prose that is true."""

import ast
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tomllib
import warnings
import zipfile
from pathlib import Path
from unittest.mock import patch

import jax
import pytest

import bayesfac as bf
from bayesfac import cli, compose
from bayesfac.core.errors import UnknownName
from bayesfac.core.method import REGISTRY
from tests.tools.house import methods
from tests.tools.long_tests import LIMITS, listed
from tests.tools.records import changed

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bayesfac"
FILES = sorted(PACKAGE.rglob("*.py"))
METHODS = methods(PACKAGE)
SKELETON = ROOT / "docs" / "skeleton_method.py"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def by_path(paths):
    return {"argvalues": paths, "ids": lambda p: str(p.relative_to(ROOT))}


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def git_files(*under):
    """What git has, or would have after `git add`."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: the list of the project's files is git's")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *under]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (ROOT / name).is_file())


# ---------------------------------------------------------------------- sizes


def say_soft(what):
    """Listed at the end of a run, and no failure: see filterwarnings in pyproject.toml."""
    warnings.warn(f"soft limit: {what}", stacklevel=2)


def test_a_long_file_says_why():
    """Above 400 lines the header has a line `Length: `; above 300 the file is listed."""
    for path in [*FILES, SKELETON]:
        lines, where = len(path.read_text(encoding="utf-8").splitlines()), path.relative_to(ROOT)
        header = ast.get_docstring(tree(path)) or ""
        assert lines <= 400 or "Length: " in header, f"{where}: {lines} lines, and no reason"
        if lines > 300:
            say_soft(f"{where} has {lines} lines, aim: 300")


@pytest.mark.parametrize("path", **by_path([*FILES, SKELETON]))
def test_functions_stay_short(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1:2] if ast.get_docstring(node) else node.body[:1]
            lines = node.end_lineno - first[0].lineno + 1 if first else 0
            assert lines <= 60, f"{node.name}: {lines} lines without docstring, 40 is the aim"
            if lines > 40:
                say_soft(f"{path.stem}.{node.name} has {lines} lines, aim: 40")


# ---------------------------------------------------------------------- imports

SIDE = {
    *(
        "models",
        "inference",
        "datasets",
        "metrics",
        "ranks",
        "split",
    )
}
BELOW = SIDE | {"core", "choosing", "report", "testing"}
MAY_IMPORT = {  # module at the top of the package -> those of ours that it may import
    "core": {"core"},
    "parts": {"core", "parts"},
    **{name: {"core", name} for name in SIDE},
    "models": {"core", "models", "parts"},
    "compose": {"compose", "core", "parts"},
    "report": SIDE | {"core", "report"},
    "testing": SIDE | {"core", "testing"},
    "choosing": SIDE | {"core", "choosing"},
    "fits": BELOW | {"fits"},
    "api": BELOW | {"fits"},
    "simulation": BELOW | {"simulation"},
    "references": BELOW | {"references", "simulation"},
    **{name: BELOW | {"api", "fits", name} for name in ("search", "sklearn")},
    "labels": BELOW | {"api", "fits", "labels", "search", "sklearn"},
    "cli": BELOW | {"__init__", "cli", "fits", "search", "simulation"},
    "__init__": set(),
    "__main__": {"cli"},
}
NOT_IN_METHODS = ("arviz", "matplotlib", "sklearn", "optax", "scipy.optimize")


def imported(path):
    """Every module that a file imports, wherever in it; `from a import b` counts as a and a.b."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def rooms(path):
    """The modules at the top of the package that a file imports from."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "bayesfac":
            for alias in node.names:
                at = PACKAGE / alias.name
                yield alias.name if at.is_dir() or at.with_suffix(".py").exists() else "__init__"
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            yield from (
                (n + ".__init__").split(".")[1] for n in names if n.split(".")[0] == "bayesfac"
            )


@pytest.mark.parametrize("path", **by_path(FILES))
def test_imports_go_one_way(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert room in MAY_IMPORT, f"{room} has no layer yet: give it one here and in pyproject.toml"
    assert set(rooms(path)) <= MAY_IMPORT[room]


@pytest.mark.parametrize("path", **by_path([*METHODS, SKELETON]))
def test_methods_import_core_and_no_solver_of_others(path):
    family = ".".join(path.parent.relative_to(ROOT).parts)
    for name in imported(path):
        assert not name.startswith(NOT_IN_METHODS), name
        if re.match(r"bayesfac\.(labels\.)?models", name) and name != family:
            assert name.startswith(f"{family}._"), f"{name}: methods never import one another"


# ---------------------------------------------------------------------- methods

ORDER = ["Params", "Hyper", "init", "objective", "update", "model", "predict", "example"]
STATED = ["Params", "Hyper", "objective", "model", "example"]  # by methods that are made of parts


@pytest.fixture
def skeleton():
    """The skeleton's record; the registry is as it was afterwards."""
    spec = importlib.util.spec_from_file_location(SKELETON.stem, SKELETON)
    module = importlib.util.module_from_spec(spec)
    with patch.dict(REGISTRY), patch.dict(sys.modules, {SKELETON.stem: module}):
        spec.loader.exec_module(module)
        yield module.METHOD
    assert SKELETON.stem not in REGISTRY


@pytest.mark.parametrize("path", **by_path([*METHODS, SKELETON]))
def test_method_files_read_like_the_paper(path):
    body = tree(path).body
    names = [n.name for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    imports = [a for node in body if isinstance(node, ast.ImportFrom) for a in node.names]
    # methods of a family may share their Params; those that differ in their data only share functions too
    files = [path.parent / f"{a.name}.py" for a in imports if a.asname == "shared"]
    shared = {getattr(node, "name", "") for file in files for node in tree(file).body}
    shared |= {"Params"} & {a.name for a in imports}
    left_out = {"update"} - {*names} | shared
    last = ast.unparse(body[-1])
    if last.startswith("METHOD = register(composed("):
        assert [name for name in names if name in STATED] == STATED
    else:
        assert last.startswith("METHOD = register(Method("), "the record comes last"
        assert [name for name in names if name in ORDER] == [n for n in ORDER if n not in left_out]
    for name in names:
        if name.startswith("conditional"):
            assert names.index("objective") < names.index(name) < names.index("model"), name
    header = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert re.search(r"^ +paper +here +shape$", header, re.M), "no table: paper | here | shape"
    assert re.search(r"\b(1[89]|20)\d\d\b", header), "no year: which paper is it?"
    assert re.search(r"^ +J.* = ", header, re.M), "no objective in ASCII"


def test_every_method_is_registered_under_its_file_name():
    assert sorted(REGISTRY) == sorted(path.stem for path in METHODS)
    for path in METHODS:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        assert REGISTRY[path.stem] is module.METHOD
        assert module.METHOD.name == path.stem


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_no_setting_has_the_name_of_an_argument_of_fit(name):
    """`bf.fit(name, data, seed=3)` gives the seed to the engine: a setting of this name is out of reach."""
    assert not set(REGISTRY[name].Hyper._fields) & set(inspect.signature(bf.fit).parameters)


def test_every_citation_is_in_the_bibliography(skeleton):
    keys = re.findall(r"^@\w+\{([^,\s]+),", (PACKAGE / "references.bib").read_text("utf-8"), re.M)
    assert len(keys) == len(set(keys))
    for method in [*REGISTRY.values(), skeleton]:
        assert method.cite in keys, f"{method.name} cites {method.cite!r}"
    for name, part in (compose.PRIORS | compose.LAWS).items():
        assert part.cite in keys, f"{name} cites {part.cite!r}"


def test_the_skeleton_is_a_method_that_works(skeleton):
    """Copied under another name it fits, predicts and passes; here: it fits, and the data count."""
    data, hyper = skeleton.example(jax.random.key(0))
    fit = bf.fit(skeleton, data, progress=False, **hyper._asdict())
    assert fit.trace[-1] < fit.trace[0]
    assert fit.predict(data).mean.shape == (len(data),)


# ---------------------------------------------------------------------- what must not be there


@pytest.mark.parametrize("path", **by_path([*FILES, SKELETON]))
def test_nothing_is_unpickled(path):
    for name in imported(path):
        assert name.split(".")[0] not in {"pickle", "cloudpickle", "dill", "shelve"}, name
        assert name not in {"joblib.load", "joblib.dump"}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert getattr(node.value, "value", None) is False, f"line {node.value.lineno}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"read_pickle", "to_pickle"}, f"line {node.lineno}"
            owner = getattr(node.value, "id", None)
            assert (owner, node.attr) != ("joblib", "load"), f"line {node.lineno}"


# In pieces, so that this file does not hold what it forbids.
HOSTS = ["pypi" + ".org", "python" + "hosted", "npmjs" + ".com", "anaconda" + ".org"]
FOLDERS = ["wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers", "tm" + "p/w", "opt/" + "pypi"]
FORBIDDEN = re.compile(
    "|".join([*map(re.escape, HOSTS), rf"(?<![\w.~)/])/(?:{'|'.join(FOLDERS)})/"])
)


def test_no_registry_and_no_path_of_a_machine():
    found = []
    for name in git_files():
        raw = (ROOT / name).read_bytes()
        if b"\0" in raw[:8000]:
            continue
        for number, line in enumerate(raw.decode("utf-8").splitlines(), 1):
            if hit := FORBIDDEN.search(line):
                found.append(f"{name}:{number}: {hit.group()}")
    assert not found


@pytest.mark.parametrize("text", [f"https://{HOSTS[0]}/simple", f"cd /{FOLDERS[0]}/main"])
def test_the_forbidden_pattern_finds(text):
    assert FORBIDDEN.search(text)
    assert not FORBIDDEN.search(text.replace("/", "-").replace(".", "-"))


# ---------------------------------------------------------------------- packaging


@pytest.mark.slow
def test_the_wheel_holds_what_git_holds(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*build, "--outdir", str(tmp_path), str(ROOT)], check=True, cwd=tmp_path)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
    assert sorted(n for n in names if ".dist-info/" not in n) == git_files("bayesfac")
    assert [n for n in names if n.endswith("/licenses/LICENSE")]


@pytest.mark.skipif(os.name == "nt", reason="links need a setting of git on Windows")
@pytest.mark.skipif(
    (ROOT / "PKG-INFO").exists(), reason="a distribution of the source has no links"
)
def test_the_links_at_the_door():
    """`models/` has a link for each family of methods, also for those of the wing of labels."""
    assert (ROOT / "inference").resolve() == PACKAGE / "inference"
    linked = {path.resolve() for path in (ROOT / "models").iterdir() if path.is_symlink()}
    assert linked == {path.parent for path in METHODS}


@pytest.mark.parametrize("name", LIMITS)
def test_the_lists_of_long_tests_name_tests_that_exist(name):
    """A renamed test would silently become a quick one: `make long` writes the lists anew."""
    assert listed(name) <= listed("long")
    for node in sorted(listed(name)):
        path, _, name = node.partition("::")
        code = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        assert f"def {name.partition('[')[0]}(" in code, f"{node} is no test: run `make long`"


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert bf.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


# ---------------------------------------------------------------------- prose


def test_the_readme_lists_the_methods(monkeypatch):
    """README.md, its badge and docs/choosing.md follow from the records."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "tools")
    readme = importlib.import_module("readme")
    for path, text in readme.pages().items():
        assert path.read_text("utf-8") == text, f"{path.relative_to(ROOT)}: run `make readme`"
    table = README.split("<!-- methods:start -->\n")[1].split("<!-- methods:end -->")[0]
    shown = re.findall(r"\| `(\w+)` \|", table)
    assert len(shown) <= 10 and set(shown) <= set(REGISTRY)  # the others are behind a link
    short = README.replace("| `pmf` |", "| `pmf_of_old` |")
    assert readme.with_table(short) == README


def test_choosing_gets_a_row_for_a_new_method(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "tools")
    readme = importlib.import_module("readme")
    text = (ROOT / "docs" / "choosing.md").read_text("utf-8")
    (row,) = re.findall(r"^\| [^|]* \| `pmf` \|.*\n", text, re.M)
    mended = readme.with_rows(text.replace(row, row.replace("`pmf`", "`pmf_of_old`")))
    section = mended.split("## Ratings\n")[1].split("\n## ")[0]
    assert REGISTRY["pmf"].paper in section and "pmf_of_old" not in mended


def test_a_trait_that_nothing_asks_for_is_refused():
    with pytest.raises(
        UnknownName, match="Unknown trait of pmf 'no_gibs'; did you mean 'no_gibbs'"
    ):
        changed(REGISTRY["pmf"], traits={"no_gibs": "a slip"})


def test_the_bibliography_has_no_entry_to_fill_in():
    text = (PACKAGE / "references.bib").read_text("utf-8")
    assert "TO FILL IN" not in text, "fill in the entry that `bayesfac new-method` wrote"


PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", **by_path(PAGES))
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


def commands(page):
    """What a page tells to type: the shell lines and the code in backticks."""
    text = page.read_text("utf-8")
    return re.findall(r"^ {4}(\S.*)$", text, re.M) + re.findall(r"`([^`\n]+)`", text)


def exit_code(*words):
    """argparse leaves by SystemExit after --help; a command returns its code."""
    try:
        return cli.main(list(words))
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize("page", **by_path(PAGES))
def test_commands_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    for command in commands(page):
        words = command.split("#")[0].split()
        if words[:1] == ["make"]:
            named = [w for w in words[1:] if re.fullmatch("[a-z-]+", w)]
            assert set(named) <= set(targets), command
        if words[:1] == ["bayesfac"] and len(words) > 1 and words[1].isalpha():
            assert exit_code(words[1], "--help") == 0, command


def test_the_ten_lines_of_the_readme_use_names_that_exist():
    code = README.split("## Ten lines\n")[1].split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) == 10
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and (dotted := ast.unparse(node)).startswith("bf."):
            owner = bf
            for name in dotted.removeprefix("bf.").split("."):
                if not name.isidentifier():
                    break  # past a call: an attribute of its result
                owner = getattr(owner, name)
