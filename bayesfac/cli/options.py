"""The arguments of all commands, and their help. Imports only quick modules."""

import argparse
import difflib
from functools import partial
from typing import Any, NoReturn

from bayesfac.cli import arguments, commands, signatures, texts
from bayesfac.cli.doctor import doctor
from bayesfac.cli.new_method import ALONE, SKELETONS, new_method
from bayesfac.cli.warm import warm

DATA = "a file, or the name of a data set"
METHOD = "see bayesfac methods; or a file with a recipe of bf.factorization (.toml, .json)"
SAVED = "a saved fit of ratings"
ENGINES = f"{', '.join(signatures.ENGINES)} (default: the method's own solver)"
SAMPLERS = "gibbs, nuts, vb, svi or quick (default: gibbs if the method has a Gibbs sampler)"
FURTHER = "further settings of the engine, as in bf.SVI(guide='lowrank')"

FLAG, NUMBER = {"action": "store_true"}, {"type": int, "metavar": "N"}
ADDRESS = {"type": arguments.address, "metavar": "HOST:PORT"}
MATRIX = {"type": arguments.matrix, "action": "append", "metavar": "NAME=ROWS,COLUMNS,FILE"}
METHODS = {"type": arguments.names, "default": ("pmf", "bpmf"), "metavar": "A,B"}
MANY = {"nargs": "+", "action": "extend", "default": [], "metavar": "KEY=VALUE"}
WITH, SET = ({"type": arguments.setting, "dest": name, **MANY} for name in ("settings", "hyper"))
FAMILY = {"choices": (families := [*SKELETONS, *ALONE]), "default": families[0]}

# options that are no parameter of a function: how the value is written, and the help
OPTIONS: dict[str, tuple[str | dict[str, Any], str]] = {
    "coordinator": (ADDRESS, "on several machines: the address of process 0"),
    "engine": ("ENGINE", ""),
    "family": (FAMILY, "the kind of data (%(default)s)"),
    "fast": (FLAG, "take few draws; the results are not reliable"),
    "fraction": ({"type": float, "default": 0.1}, "share of the ratings in test.csv (%(default)s)"),
    "html": ("FILE", "also write an HTML report"),
    "item": ("NAME", "the column with the items"),
    "jobs": (NUMBER | {"default": 1}, "processes (%(default)s)"),
    "json": ("FILE", "also write the results to a JSON file"),
    "kind": ({"choices": ["ratings", "counts", "views"]}, "the kind of data (ratings)"),
    "large": (FLAG, "each process has only its share of DATA in memory: see below"),
    "markdown": (FLAG, "as a table for a README"),
    "matrix": (MATRIX, "for cmf: a further matrix, as tags=user,tag,tags.csv; may be repeated"),
    "methods": (METHODS, "methods whose programs are compiled for DATA (pmf,bpmf)"),
    "out": ("PATH", "write a .csv or .parquet file"),
    "process": (NUMBER, "on several machines: the number of this process, from 0"),
    "processes": (NUMBER, "number of processes; without the next two options all run here"),
    "rating": ("NAME", "the column with the ratings"),
    "set": (SET, "hyper-parameters of the method, as n_components=16"),
    "strict": (FLAG, "exit code 1 if a fit is not usable"),
    "test": ({"required": True, "metavar": "DATA"}, "held-out data"),
    "user": ("NAME", "the column with the users"),
    "with": (WITH, FURTHER),
}


class Usage(Exception):
    """A wrong command line."""


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, which `main` prints, and without reflowed help."""

    def __init__(self, **settings: Any) -> None:
        plain = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(**{**settings, **plain})
        # so that -v may stand before or after the command
        flag: Any = {"action": "store_true", "default": argparse.SUPPRESS}
        self.add_argument("-v", "--verbose", help="print more messages; show tracebacks", **flag)
        self.add_argument("-q", "--quiet", help="print results only", **flag)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options, and suggest the nearest known option."""
        known, extra = super().parse_known_args(args, namespace)
        if extra:
            name = extra[0].partition("=")[0]
            near = difflib.get_close_matches(name, self._option_string_actions, 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(extra)}{hint}")
        return known, extra

    def error(self, message: str) -> NoReturn:
        """Leave the printing to `main`."""
        raise Usage(f"{message} (see {self.prog} --help)")


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(prog="bayesfac", description=texts.ABOUT, epilog=texts.EXAMPLES)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    parser.set_defaults(verbose=False, quiet=False)
    several: Any = {"title": "commands", "metavar": "COMMAND", "required": True}
    top = parser.add_subparsers(**several)
    make = partial(_command, top)
    made = make("methods", commands.methods, "List the methods and their engines.")
    _add(made, "markdown")
    made = make("demo", commands.demo, texts.DEMO)
    _add(made, "fast", out="the HTML report (%(default)s)")
    made.set_defaults(out="report.html")
    signatures.add(made, commands.FIT, "engine init progress")
    _fit_options(make("fit", commands.fit, texts.FIT, texts.FIT_EXAMPLES, method=METHOD, data=DATA))
    made = make("auto", commands.auto, texts.AUTO, texts.AUTO_EXAMPLES, data=DATA)
    _add(made, "kind", "strict", out="a new folder (default auto)")
    signatures.add(made, commands.AUTO, "progress", folder={"flag": "--keep"})
    _table_options(made)
    run = "the folder of the run"
    made = make("worker", commands.worker, texts.WORKER, texts.WORKER_EXAMPLES, folder=run)
    _add(made, "jobs")
    _of_fits(make)
    made = make("sbc", commands.sbc, texts.SBC, texts.SBC_EXAMPLES, method=f"{METHOD}; or all")
    _add(made, "with", "set", "json", engine=SAMPLERS)
    signatures.add(made, commands.SBC, "engine data hyper progress")
    make("doctor", doctor, texts.DOCTOR)
    made = make("warm", warm, texts.WARM, texts.WARM_EXAMPLES)
    made.add_argument("data", nargs="?", metavar="DATA", help=DATA)
    _add(made, "methods")
    _table_options(made)
    data = top.add_parser("data", help="List, fetch or split data.", description="Data sets.")
    _data_commands(partial(_command, data.add_subparsers(**several)))
    name = "the name of the method and of its file"
    _add(make("new-method", new_method, texts.NEW_METHOD, name=name), "family")
    name = "gibbs, plsa, ...; all runs every benchmark, which takes hours"
    make("bench", commands.bench, texts.BENCH, name=name)
    return parser


def _command(
    top: Any, command: str, run: Any, text: str, examples: str | None = None, **places: str
) -> Parser:
    """A command with arguments at its places: {name: help}."""
    made: Parser = top.add_parser(command, help=run.__doc__, description=text, epilog=examples)
    made.set_defaults(run=run)
    made.register("type", None, arguments.filled)  # of arguments without another type
    for name, what in places.items():
        made.add_argument(name, metavar=name.upper(), help=what)
    return made


def _fit_options(parser: Parser) -> None:
    group = parser.add_argument_group("engine and settings")
    _add(group, engine=ENGINES)
    for name, (text, takers) in signatures.settings().items():
        flag, text = f"--{name.replace('_', '-')}", f"{text} ({', '.join(takers)})"
        group.add_argument(flag, type=int, metavar="N", help=text)
    _add(group, "with", "set")
    _table_options(parser)
    _add(parser, "matrix", "strict", out="a new folder (default METHOD-ENGINE)")
    init = {"metavar": "FOLDER", "help": "a saved fit to start from"}
    signatures.add(parser, commands.FIT, "engine progress", init=init)
    group = parser.add_argument_group(
        "several processes for one fit",
        "bpmf, pmf, ordinal_mf: gibbs; plsa, mvplsa: fixed-point; mmmf: lbfgs",
    )
    _add(group, "processes", "coordinator", "process", "large")


def _of_fits(make: Any) -> None:
    """Commands that read saved fits."""
    made = make("compare", commands.compare, texts.COMPARE, texts.COMPARE_EXAMPLES)
    made.add_argument(
        "fits", type=arguments.pair, nargs="+", metavar="NAME=FOLDER", help="saved fits"
    )
    _add(made, "test", "html", "strict")
    signatures.add(made, commands.COMPARE, train={"metavar": "DATA"})
    _table_options(made)
    pairs = "a file of pairs (user, item)"
    made = make("predict", commands.predict, texts.PREDICT, folder=SAVED, data=pairs)
    _add(made, "out", "user", "item")
    level: Any = {"type": float, "metavar": "X", "help": "the probability of the intervals (0.9)"}
    signatures.add(made, commands.FRAME, level=level)
    best = texts.RECOMMEND, texts.RECOMMEND_EXAMPLES
    made = make("recommend", commands.recommend, *best, folder=SAVED)
    _add(made, "out", "user", "item")
    users = {"nargs": "+", "metavar": "USER"}
    signatures.add(made, commands.BEST, "progress", users=users, exclude={"metavar": "DATA"})
    asked = {"data": "the training data", "who": "a user", "which": "an item"}
    made = make("explain", commands.explain, texts.EXPLAIN, folder=SAVED, **asked)
    _add(made, "out")
    _table_options(made)
    made = make("report", commands.report, texts.REPORT, folder="a saved fit")
    _add(made, "html", "strict")


def _data_commands(make: Any) -> None:
    text = "List data sets, their licences, and which are on this machine."
    make("list", commands.data_list, text)
    text = "Download a data set, unless it is on this machine, and check its sha256."
    made = make("fetch", commands.data_fetch, text, name="see bayesfac data list")
    signatures.add(made, "datasets/__init__.py:load", "download progress features")
    made = make("split", commands.data_split, texts.SPLIT, data=DATA)
    _add(made, "fraction", out="folder of the two files (default: here)")
    made.set_defaults(out=".")
    signatures.add(made, commands.SPLIT)
    _table_options(made)


def _table_options(parser: Parser) -> None:
    group = parser.add_argument_group("reading files")
    _add(group, "user", "item", "rating")
    text = "the columns with user, item, rating (or row, view, feature, value; or modes and value)"
    changes: Any = {"columns": {"metavar": "A,B,C", "help": text}}
    text = "the levels of the ratings: a number, FROM:TO, FROM:TO:STEP or a list (default: real values)"
    changes["levels"] = {"type": arguments.levels, "metavar": "1:5", "help": text}
    changes["separator"] = {"type": str, "metavar": "SIGN"}  # a blank is a sign too
    signatures.add(group, commands.READ, "kind ids", **changes)


def _add(parser: Any, *names: str, **texts: str) -> None:
    """Add options of the table; `texts` has the help of those whose help differs."""
    for name in [*names, *texts]:
        how, text = OPTIONS[name]
        how = {"metavar": how} if isinstance(how, str) else how
        parser.add_argument(f"--{name}", help=texts.get(name, text), **how)


class _Version(argparse.Action):
    """Print the version and stop."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from bayesfac import __version__

        print(f"bayesfac {__version__}")
        parser.exit()
