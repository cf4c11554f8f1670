"""Options from signatures: the name, default, kind and help of each parameter of a function of the library.

Files are parsed and not imported, so that help is quick.
"""

import argparse
import ast
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bayesfac.cli import arguments

# the beginning of a type in a docstring -> how its text is read
KINDS: dict[str, dict[str, Any]] = {
    "int": {"type": int, "metavar": "N"},
    "float": {"type": float, "metavar": "X"},
    "bool": {"action": "store_true"},
    "str": {"type": str, "metavar": "TEXT"},
    "path": {"metavar": "FOLDER"},
    "sequence of int": {"type": arguments.sizes, "metavar": "K,L"},
    "sequence": {"type": arguments.names, "metavar": "A,B"},
}
PACKAGE = Path(__file__).parents[1]
IMPORTED = r"from bayesfac\.(\S+) import (\w+) as \2\n"
# {engine: the place of its class}
ENGINES = {
    re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower(): f"{home.replace('.', '/')}.py:{name}"
    for home, name in re.findall(IMPORTED, (PACKAGE / "inference/__init__.py").read_text("utf-8"))
}


class Parameter(NamedTuple):
    """What a signature and its docstring say of a parameter."""

    default: Any
    kind: str  # as the docstring has it
    text: str  # the first sentence

    def option(self) -> dict[str, Any]:
        """The arguments of `add_argument`."""
        usual = "" if self.default in (None, False) else f" ({self.default})"
        said = {"default": self.default, "help": f"{self.text}{usual}"}
        if words := re.findall('"(.+?)"', self.kind):
            return {"choices": words, **said}
        fit = [kind for kind in KINDS if self.kind.startswith(kind)]
        return {**KINDS[max(fit, key=len, default="str")], **said}


def add(parser: Any, place: str, without: str = "", **changes: dict[str, Any]) -> None:
    """Add the parameters of a function that have defaults as options, but those in `without`.

    `changes` has what an option has otherwise, by the name of its parameter."""
    for name, parameter in parameters(place).items():
        if name not in without.split():
            how = parameter.option() | {"dest": name} | changes.get(name, {})
            parser.add_argument(how.pop("flag", f"--{name.replace('_', '-')}"), **how)


def asked(args: argparse.Namespace, place: str) -> dict[str, Any]:
    """The values of the options of a function; those without a value are left out."""
    values = {name: getattr(args, name, None) for name in parameters(place)}
    return {name: value for name, value in values.items() if value is not None}


@cache
def settings() -> dict[str, tuple[str, list[str]]]:
    """The settings of engines that are whole numbers, each with its help and the engines that have it."""
    found: dict[str, tuple[str, list[str]]] = {}
    for engine, place in ENGINES.items():
        for name, parameter in parameters(place).items():
            if parameter.kind.startswith("int"):
                found.setdefault(name, (parameter.text, []))[1].append(engine)
    return found


def engine(args: argparse.Namespace, default: str) -> Any:
    """The engine of --engine (or `default`) with its settings; unknown settings are refused."""
    from bayesfac import inference
    from bayesfac.core.errors import check_names

    kinds = {name: place.partition(":")[2] for name, place in ENGINES.items()}
    if args.engine:
        check_names("engine", (args.engine.lower(),), kinds)
    kind = getattr(inference, kinds[args.engine.lower()] if args.engine else default)
    given = {name: getattr(args, name) for name in settings() if getattr(args, name) is not None}
    further = dict(args.settings)
    if both := given.keys() & further:
        name = min(both)
        raise ValueError(f"Expected --{name.replace('_', '-')} or --with {name}=..., got both")
    if args.processes or args.large:  # `processes.check` allows these for Gibbs and FixedPoint
        further["shares"] = True
    return kind(**given, **further)


@cache
def parameters(place: str) -> dict[str, Parameter]:
    """The parameters with defaults of FILE:NAME, a function or a dataclass."""
    file, _, name = place.partition(":")
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    defined = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    node: Any = next(one for one in defined if one.name == name)
    if isinstance(node, ast.ClassDef):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        found = [(one.target.id, one.value) for one in fields if isinstance(one.target, ast.Name)]
    else:
        by_place = node.args.args[::-1], node.args.defaults[::-1]
        found = [(arg.arg, value) for arg, value in zip(*by_place, strict=False)][::-1]
        by_name = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        found += [(arg.arg, value) for arg, value in by_name if value is not None]
    said = _said(ast.get_docstring(node) or "")
    return {
        name: Parameter(
            value.value if isinstance(value, ast.Constant) else None, *said.get(name, ("", ""))
        )
        for name, value in found
    }


def _said(text: str) -> dict[str, tuple[str, str]]:
    """{parameter: its kind and the first sentence about it}, from a numpy-style docstring."""
    part = re.split(
        r"^(?:Returns|Examples)\n", text.partition("Parameters\n----------\n")[2], flags=re.M
    )
    found: dict[str, tuple[str, str]] = {}
    for head, body in re.findall(r"^(\S.*)\n((?:[ \n].*\n?)*)", part[0] + "\n", re.M):
        names, _, kind = head.partition(" : ")
        line = " ".join(body.split()).replace("`", "").replace("%", "%%")
        sentence = re.split(r"\.(?: |$)", line[:1].lower() + line[1:], maxsplit=1)[0]
        found |= dict.fromkeys(names.split(", "), (kind, sentence))
    return found
