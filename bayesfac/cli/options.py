"""The arguments of all commands, and their help. Imports only quick modules."""

import argparse
import difflib
from collections.abc import Callable
from typing import Any, NoReturn

from bayesfac.cli import arguments, commands, texts
from bayesfac.cli.new_method import ALONE, SKELETONS, new_method

DATA = "a file, or the name of a data set"
HYPER = ("--set", "hyper", "hyper-parameters of the method, as n_components=16")
TABLE = ("FILE", "write a .csv or .parquet file")


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
    add = parser.add_subparsers(title="commands", metavar="COMMAND", required=True).add_parser
    methods = _command(add, "methods", commands.methods, "List the methods and their engines.")
    _flag(methods, "--markdown", "as a table for a README")
    _demo_options(_command(add, "demo", commands.demo, texts.DEMO))
    _fit_options(_command(add, "fit", commands.fit, texts.FIT, texts.FIT_EXAMPLES))
    _auto_options(_command(add, "auto", commands.auto, texts.AUTO, texts.AUTO_EXAMPLES))
    worker = _command(add, "worker", commands.worker, texts.WORKER, texts.WORKER_EXAMPLES)
    worker.add_argument("folder", metavar="FOLDER", help="the folder of the run")
    _jobs(worker)
    several = texts.COMPARE, texts.COMPARE_EXAMPLES
    _compare_options(_command(add, "compare", commands.compare, *several))
    _predict_options(_command(add, "predict", commands.predict, texts.PREDICT))
    best = texts.RECOMMEND, texts.RECOMMEND_EXAMPLES
    _recommend_options(_command(add, "recommend", commands.recommend, *best))
    _report_options(_command(add, "report", commands.report, texts.REPORT))
    _sbc_options(_command(add, "sbc", commands.sbc, texts.SBC, texts.SBC_EXAMPLES))
    _data_options(add("data", help="List, fetch or split data.", description="Data sets."))
    new = _command(add, "new-method", new_method, texts.NEW_METHOD)
    new.add_argument("name", metavar="NAME", help="the name of the method and of its file")
    _choice(new, "--family", [*SKELETONS, *ALONE], "the kind of data (%(default)s)")
    bench = _command(
        add,
        "bench",
        commands.bench,
        "Run the benchmark benchmarks/NAME.py of a source checkout, or all of them.",
    )
    bench.add_argument(
        "name", metavar="NAME", help="gibbs, plsa, ...; all runs every benchmark, which takes hours"
    )
    return parser


def _command(
    add: Callable[..., Parser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    examples: str | None = None,
) -> Parser:
    made = add(name, help=run.__doc__, description=text, epilog=examples)
    made.set_defaults(run=run)
    made.register("type", None, arguments.filled)  # of arguments without another type
    return made


def _demo_options(parser: Parser) -> None:
    _out(parser, "FILE", "the HTML report (%(default)s)", default="report.html")
    _flag(parser, "--fast", "take few draws; the results are not reliable")
    _seed(parser)


def _fit_options(parser: Parser) -> None:
    parser.add_argument("method", metavar="METHOD", help="see bayesfac methods")
    parser.add_argument("data", metavar="DATA", help=DATA)
    _engine_options(parser)
    _table_options(parser)
    text = "for cmf: a further matrix, as tags=user,tag,tags.csv; may be repeated"
    shape: Any = {"metavar": "NAME=ROWS,COLUMNS,FILE", "help": text}
    parser.add_argument("--matrix", type=arguments.matrix, action="append", **shape)
    parser.add_argument("--init", metavar="FOLDER", help="a saved fit to start from")
    _out(parser, "FOLDER", "a new folder (default METHOD-ENGINE)")
    _process_options(parser)
    _seed(parser)
    _strict(parser)


def _process_options(parser: Parser) -> None:
    group = parser.add_argument_group(
        "several processes for one fit",
        "bpmf, pmf, ordinal_mf: gibbs; plsa, mvplsa: fixed-point; mmmf: lbfgs",
    )
    add = group.add_argument
    text = "number of processes; without the next two options all run here"
    add("--processes", type=int, metavar="N", help=text)
    text = "on several machines: the address of process 0"
    add("--coordinator", type=arguments.address, metavar="HOST:PORT", help=text)
    text = "on several machines: the number of this process, from 0"
    add("--process", type=int, metavar="I", help=text)
    _flag(group, "--large", "each process has only its share of DATA in memory: see below")


def _auto_options(parser: Parser) -> None:
    add = parser.add_argument
    add("data", metavar="DATA", help=DATA)
    add(
        "--kind",
        choices=["ratings", "counts", "views"],
        help="the kind of data in the file (ratings)",
    )
    text = "seconds for trying methods (%(default)g)"
    add("--seconds", type=float, default=120.0, metavar="S", help=text)
    add(
        "--keep",
        metavar="FOLDER",
        help="save finished candidates there, and read those already there",
    )
    add("--methods", type=arguments.names, metavar="A,B", help="methods to try (default: all)")
    add("--components", type=arguments.sizes, metavar="K,L", help="numbers of components to try")
    _jobs(parser)
    _table_options(parser)
    _out(parser, "FOLDER", "a new folder (default auto)")
    _seed(parser)
    _strict(parser)


def _engine_options(parser: Parser) -> None:
    group = parser.add_argument_group("engine and settings")
    known = (
        "gibbs, quick, vb, nuts, svi, fixed-point, lbfgs or map (default: the method's own solver)"
    )
    group.add_argument("--engine", metavar="ENGINE", help=known)
    for name, text in [
        ("draws", "draws saved per chain (gibbs, quick, vb, nuts, svi)"),
        ("warmup", "discarded draws at the start of each chain (gibbs, vb, nuts)"),
        ("chains", "independent chains (gibbs, quick, nuts; vb: of its warm-up)"),
        ("steps", "optimiser steps (svi, map)"),
        (
            "max-iter",
            "largest number of sweeps (fixed-point, which evaluates the objective after three; vb) or "
            "iterations (lbfgs)",
        ),
    ]:
        group.add_argument(f"--{name}", type=int, metavar="N", help=text)
    further = "further settings of the engine, as in bf.SVI(guide='lowrank')"
    _settings(group, "--with", "engine_settings", further)
    _settings(group, *HYPER)


def _compare_options(parser: Parser) -> None:
    named: Any = {"metavar": "NAME=FOLDER", "help": "saved fits"}
    parser.add_argument("fits", type=arguments.pair, nargs="+", **named)
    parser.add_argument("--test", required=True, metavar="DATA", help="held-out data")
    parser.add_argument("--train", metavar="DATA", help="training data: also score recommendations")
    text = "how the held-out data were made, for the report"
    parser.add_argument("--about", metavar="TEXT", help=text)
    _html(parser)
    _table_options(parser)
    _strict(parser)


def _predict_options(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a saved fit of ratings")
    parser.add_argument("data", metavar="DATA", help="a file of pairs (user, item)")
    _level(parser, "probability of the intervals (%(default)s)")
    _out(parser, *TABLE)
    _roles(parser, "user", "item")


def _recommend_options(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a saved fit of ratings")
    parser.add_argument(
        "--users", nargs="+", metavar="USER", help="users to recommend to (default: all)"
    )
    parser.add_argument("--n", type=int, default=10, help="items for each user (%(default)s)")
    ways = "rank by the mean, the lower end of the interval, one draw, or in_top (%(default)s)"
    _choice(parser, "--by", ["mean", "lower", "draw", "in_top"], ways)
    _level(parser, "probability of the interval of --by lower (%(default)s)")
    parser.add_argument("--exclude", metavar="DATA", help="pairs to leave out: the training data")
    _out(parser, *TABLE)
    _roles(parser, "user", "item")
    _seed(parser)


def _report_options(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a saved fit")
    _html(parser)
    _strict(parser)


def _sbc_options(parser: Parser) -> None:
    add = parser.add_argument
    add("method", metavar="METHOD", help="see bayesfac methods; or all")
    known = "gibbs, nuts, vb, svi or quick (default: gibbs if the method has a Gibbs sampler)"
    add("--engine", metavar="ENGINE", help=known)
    add(
        "--replications",
        type=int,
        default=500,
        metavar="N",
        help="number of simulated data sets (%(default)s)",
    )
    further = "draws, warmup, thin, and settings of the engine, as in bf.sbc"
    _settings(parser, "--with", "settings", further)
    _settings(parser, *HYPER)
    add("--json", metavar="FILE", help="also write the results to a JSON file")
    _seed(parser)


def _data_options(parser: Parser) -> None:
    add = parser.add_subparsers(title="commands", metavar="COMMAND", required=True).add_parser
    text = "List data sets, their licences, and which are on this machine."
    _command(add, "list", commands.data_list, text)
    text = "Download a data set, unless it is on this machine, and check its sha256."
    fetch = _command(add, "fetch", commands.data_fetch, text)
    fetch.add_argument("name", metavar="NAME", help="see bayesfac data list")
    fetch.add_argument("--folder", help="where to store it (default: BAYESFAC_DATA, or the cache)")
    split = _command(add, "split", commands.data_split, texts.SPLIT)
    split.add_argument("data", metavar="DATA", help=DATA)
    _out(split, "FOLDER", "folder of the two files (default: here)", default=".")
    text = "share of the ratings in test.csv (%(default)s)"
    split.add_argument("--fraction", type=float, default=0.1, help=text)
    _choice(split, "--by", ["random", "time"], "hold out random ratings, or the latest ones")
    _table_options(split)
    _seed(split)


def _table_options(parser: Parser) -> None:
    group = parser.add_argument_group("reading files")
    text = "the columns with user, item, rating (or row, view, feature, value; or modes and value)"
    group.add_argument("--columns", type=arguments.names, metavar="A,B,C", help=text)
    _roles(group, "user", "item", "rating")
    text = "what separates the columns of a text file, such as '|', or ' ' for blanks (default: as found)"
    group.add_argument("--separator", metavar="SIGN", help=text, type=str)
    _choice(group, "--decimal", [".", ","], "the decimal sign of a text file (.)")
    text = "the levels of the ratings: a number, FROM:TO, FROM:TO:STEP or a list (default: real values)"
    group.add_argument("--levels", type=arguments.levels, metavar="1:5", help=text)
    text = "rows without a label or a number: raise an error, or skip them with a warning (error)"
    _choice(group, "--bad", ["error", "skip"], text)
    text = "two ratings of an item by one user: raise an error, or take the mean or nearest level (error)"
    _choice(group, "--duplicates", ["error", "mean"], text)


# -- options of several commands ----------------------------------------------------------------
def _settings(parser: Any, flag: str, dest: str, text: str) -> None:
    many: Any = {"nargs": "+", "action": "extend", "default": [], "metavar": "KEY=VALUE"}
    parser.add_argument(flag, dest=dest, type=arguments.setting, help=text, **many)


def _choice(parser: Any, flag: str, choices: list[str], text: str) -> None:
    """An option with a choice of words; the default is the first."""
    parser.add_argument(flag, choices=choices, default=choices[0], help=text)


def _flag(parser: Any, flag: str, text: str) -> None:
    parser.add_argument(flag, action="store_true", help=text)


def _roles(parser: Any, *roles: str) -> None:
    for role in roles:
        parser.add_argument(f"--{role}", metavar="NAME", help=f"the column with the {role}s")


def _out(parser: Parser, kind: str, text: str, default: str | None = None) -> None:
    parser.add_argument("--out", default=default, metavar=kind, help=text)


def _html(parser: Parser) -> None:
    parser.add_argument("--html", metavar="FILE", help="also write an HTML report")


def _jobs(parser: Parser) -> None:
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (%(default)s)")


def _level(parser: Parser, text: str) -> None:
    parser.add_argument("--level", type=float, default=0.9, help=text)


def _seed(parser: Parser) -> None:
    text = "the same seed gives the same result (0)"
    parser.add_argument("--seed", type=int, default=0, help=text)


def _strict(parser: Parser) -> None:
    _flag(parser, "--strict", "exit code 1 if a fit is not usable")


class _Version(argparse.Action):
    """Print the version and stop."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from bayesfac import __version__

        print(f"bayesfac {__version__}")
        parser.exit()
