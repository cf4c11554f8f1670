"""The arguments of all commands, and their help. Imports only quick modules."""

import argparse
import difflib
from collections.abc import Callable
from typing import Any, NoReturn

from bayesfac.cli import arguments, commands
from bayesfac.cli.new_method import SKELETONS, new_method

ABOUT = """\
Matrix factorizations as point estimates (the paper's solver) and as posteriors (NumPyro).
Fit both on the same data, and compare their errors and their uncertainty."""

EXAMPLES = """\
examples:
  bayesfac demo                                    compare a point and a posterior
  bayesfac methods                                 list methods and their engines
  bayesfac data split movielens-100k --out ml      write train.csv and test.csv
  bayesfac fit bpmf ml/train.csv --levels 1:5 --out point
  bayesfac fit bpmf ml/train.csv --levels 1:5 --engine gibbs --out draws
  bayesfac compare point=point Gibbs=draws --test ml/test.csv --html report.html
  bayesfac predict draws ml/test.csv --out predictions.csv
  bayesfac recommend draws --users 1 2 --exclude ml/train.csv
  bayesfac sbc bpmf --engine gibbs                 check the sampler by simulation

Each command has its own --help. Results go to standard output, progress and errors to standard
error. Exit codes: 0 done; 1 diagnostics failed (--strict, sbc); 2 bad usage or input.
Data sets are kept in the folder BAYESFAC_DATA, else in the cache folder of your system."""

DATA_HELP = """\
DATA is a file or the name of a data set (bayesfac data list).
  .csv .tsv .txt   one rating per line: user,item,rating; comma, semicolon, tab or "::"; also .dat,
                   .csv.gz and .zip. A header may have usual names (userId, movie, stars); for
                   other names pass --user, --item, --rating. Without a header the first three
                   columns are read. "NA" is an id.
  .parquet         the same columns (needs pyarrow: pip install 'bayesfac[datasets]')
  .npz             arrays user, item, rating; or one matrix (NaN is missing; a scipy sparse
                   matrix from save_npz: stored entries are observed)
  For methods on views: .npz with view_NAME matrices or one matrix, or a long table
  row,view,feature,value."""

DEMO = """\
Load the data set uneven-ratings (made-up users, most of whom rated only a few items), hold out a
fifth, fit BPMF as a point and as draws (Gibbs), and write one page that compares both. Needs no
network; takes about a minute."""

FIT = f"""\
Fit METHOD to DATA, print its diagnostics, and save the fit as a folder.

{DATA_HELP}"""

FIT_EXAMPLES = """\
examples:
  bayesfac fit pmf ratings.csv --set n_components=16
  bayesfac fit bpmf movielens-100k --engine gibbs --warmup 200 --draws 400 --chains 2
  bayesfac fit bpmf stars.csv --columns who,film,stars --levels 1:5
  bayesfac fit pmf ratings.parquet --engine svi --steps 5000 --with guide=lowrank
  bayesfac fit mvplsa digits --set n_components=10 n_topics=15 --out runs/digits

The message about an unknown method, engine or setting suggests the nearest name."""

COMPARE = f"""\
Score saved fits on the same held-out DATA: errors, log score, CRPS, coverage of intervals. With
--levels also by level: wrong levels, ordinal log score, RPS.

{DATA_HELP}"""

COMPARE_EXAMPLES = """\
example:
  bayesfac compare point=runs/point Gibbs=runs/gibbs --test test.csv --html report.html"""

PREDICT = """\
Predict the rating of each pair (user, item) of DATA with a saved fit: mean, standard deviation, an
interval, and whether the user or item is new (flagged: predicted from the prior). DATA is a text or
.parquet file with columns user and item; a column of ratings is not needed and not read. Without
--out the table goes to standard output as CSV."""

RECOMMEND = """\
Print the best items of each user with a saved fit of ratings, and the probability that each is
among the user's N best. A fit does not keep its data: name the training data with --exclude, or
items that a user has rated are recommended again."""

RECOMMEND_EXAMPLES = """\
examples:
  bayesfac recommend runs/gibbs --users ann bob --exclude train.csv
  bayesfac recommend runs/gibbs --n 20 --by lower --exclude train.csv --out top.csv"""

REPORT = """\
Diagnose one saved fit (R-hat and ESS of identified quantities, a verdict in words); with --html
also write an HTML report."""

SBC = """\
Simulation-based calibration: draw parameters and data from METHOD's joint, run the engine on each
data set, and rank the true value of every identified quantity among its draws. The ranks of a
correct sampler are uniform; exit code 1 if they are not. The data have the size of the method's
small example."""

SBC_EXAMPLES = """\
examples:
  bayesfac sbc bpmf
  bayesfac sbc gibbs_mmmf --set cost=0.1           a weaker loss, closer to a likelihood
  bayesfac sbc pmf --engine svi --with guide=multivariate --json pmf.json
  bayesfac sbc all --engine nuts --replications 200

If the model of a method does not generate data, the command prints why, with exit code 0."""

NEW_METHOD = """\
Write bayesfac/models/FAMILY/NAME.py, a small method that runs, an entry in references.bib, and a
test of one sweep and one claim. Works in a source checkout only."""

SPLIT = f"""\
Hold out a random share of some ratings, into OUT/train.csv and OUT/test.csv.

{DATA_HELP}"""


class Usage(Exception):
    """A wrong command line."""


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, which `main` prints, and without reflowed help."""

    def __init__(self, **settings: Any) -> None:
        plain = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(**{**settings, **plain})
        unset = argparse.SUPPRESS  # so that -v may stand before or after the command
        self.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            default=unset,
            help="print more messages; show tracebacks",
        )
        self.add_argument(
            "-q", "--quiet", action="store_true", default=unset, help="print results only"
        )

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
    parser = Parser(prog="bayesfac", description=ABOUT, epilog=EXAMPLES)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    parser.set_defaults(verbose=False, quiet=False)
    add = parser.add_subparsers(title="commands", metavar="COMMAND", required=True).add_parser
    methods = _command(add, "methods", commands.methods, "List the methods and their engines.")
    methods.add_argument("--markdown", action="store_true", help="as a table for a README")
    _demo_options(_command(add, "demo", commands.demo, DEMO))
    _fit_options(_command(add, "fit", commands.fit, FIT, FIT_EXAMPLES))
    _compare_options(_command(add, "compare", commands.compare, COMPARE, COMPARE_EXAMPLES))
    _predict_options(_command(add, "predict", commands.predict, PREDICT))
    recommend = _command(add, "recommend", commands.recommend, RECOMMEND, RECOMMEND_EXAMPLES)
    _recommend_options(recommend)
    _report_options(_command(add, "report", commands.report, REPORT))
    _sbc_options(_command(add, "sbc", commands.sbc, SBC, SBC_EXAMPLES))
    _data_options(add("data", help="List, fetch or split data.", description="Data sets."))
    new = _command(add, "new-method", new_method, NEW_METHOD)
    new.add_argument("name", metavar="NAME", help="the name of the method and of its file")
    new.add_argument(
        "--family", choices=SKELETONS, default="ratings", help="the kind of data (%(default)s)"
    )
    bench = _command(add, "bench", commands.bench, "Run benchmarks/NAME.py of a checkout, or all.")
    bench.add_argument("name", metavar="NAME", help="gibbs, plsa, ...; all runs all, for hours")
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
    return made


def _demo_options(parser: Parser) -> None:
    parser.add_argument(
        "--out", default="report.html", metavar="FILE", help="the HTML report (%(default)s)"
    )
    parser.add_argument(
        "--fast", action="store_true", help="few draws: too few for reliable results"
    )
    _seed(parser)


def _fit_options(parser: Parser) -> None:
    parser.add_argument("method", metavar="METHOD", help="see bayesfac methods")
    parser.add_argument("data", metavar="DATA", help="a file, or the name of a data set")
    _engine_options(parser)
    _table_options(parser)
    parser.add_argument("--out", metavar="FOLDER", help="a new folder (default METHOD-ENGINE)")
    _seed(parser)
    _strict(parser)


def _engine_options(parser: Parser) -> None:
    group = parser.add_argument_group("engine and settings")
    group.add_argument(
        "--engine",
        metavar="ENGINE",
        help="gibbs, nuts, svi, fixed-point, lbfgs or map (default: the method's own solver)",
    )
    for name, text in [
        ("draws", "draws kept per chain (gibbs, nuts, svi)"),
        ("warmup", "discarded draws at the start of each chain (gibbs, nuts)"),
        ("chains", "independent chains (gibbs, nuts)"),
        ("steps", "optimiser steps (svi, map)"),
        ("max-iter", "largest number of sweeps or iterations (fixed-point, lbfgs)"),
    ]:
        group.add_argument(f"--{name}", type=int, metavar="N", help=text)
    further = "further settings of the engine, as in bf.SVI(guide='lowrank')"
    _settings(group, "--with", "engine_settings", further)
    _hyper(group)


def _compare_options(parser: Parser) -> None:
    parser.add_argument(
        "fits",
        type=arguments.pair,
        nargs="+",
        metavar="NAME=FOLDER",
        help="saved fits",
    )
    parser.add_argument("--test", required=True, metavar="DATA", help="held-out data")
    parser.add_argument("--train", metavar="DATA", help="training data: also score recommendations")
    parser.add_argument("--html", metavar="FILE", help="also write an HTML report")
    _table_options(parser)
    _strict(parser)


def _predict_options(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a saved fit of ratings")
    parser.add_argument("data", metavar="DATA", help="a file of pairs (user, item)")
    parser.add_argument("--level", type=float, default=0.9, help="of the intervals (%(default)s)")
    _out(parser)
    for role in ("user", "item"):
        parser.add_argument(f"--{role}", metavar="NAME", help=f"the column with the {role}s")


def _recommend_options(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a saved fit of ratings")
    parser.add_argument("--users", nargs="+", metavar="USER", help="whom (default: all users)")
    parser.add_argument("--n", type=int, default=10, help="items for each user (%(default)s)")
    parser.add_argument(
        "--by",
        choices=["mean", "lower", "draw"],
        default="mean",
        help="rank by the mean, the lower end of the interval, or one draw (%(default)s)",
    )
    parser.add_argument("--exclude", metavar="DATA", help="pairs to leave out: the training data")
    _out(parser)
    _table_options(parser)
    _seed(parser)


def _out(parser: Parser) -> None:
    parser.add_argument("--out", metavar="FILE", help="write a .csv or .parquet file")


def _report_options(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a saved fit")
    parser.add_argument("--html", metavar="FILE", help="also write an HTML report")
    _strict(parser)


def _sbc_options(parser: Parser) -> None:
    parser.add_argument("method", metavar="METHOD", help="see bayesfac methods; or all")
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help="gibbs, nuts or svi (default: gibbs if the method has a Gibbs sampler)",
    )
    parser.add_argument(
        "--replications", type=int, default=500, metavar="N", help="data sets (%(default)s)"
    )
    further = "draws, warmup, thin, and settings of the engine, as in bf.sbc"
    _settings(parser, "--with", "settings", further)
    _hyper(parser)
    parser.add_argument("--json", metavar="FILE", help="also write the results to a JSON file")
    _seed(parser)


def _data_options(parser: Parser) -> None:
    add = parser.add_subparsers(title="commands", metavar="COMMAND", required=True).add_parser
    _command(
        add,
        "list",
        commands.data_list,
        "List data sets, their licences, and which are on this machine.",
    )
    fetch = _command(
        add, "fetch", commands.data_fetch, "Fetch a data set, unless it is there; check its sha256."
    )
    fetch.add_argument("name", metavar="NAME", help="see bayesfac data list")
    fetch.add_argument("--folder", help="where to keep it (default: BAYESFAC_DATA, or the cache)")
    split = _command(add, "split", commands.data_split, SPLIT)
    split.add_argument("data", metavar="DATA", help="a file, or the name of a data set")
    split.add_argument(
        "--out", default=".", metavar="FOLDER", help="folder of the two files (default: here)"
    )
    split.add_argument(
        "--fraction", type=float, default=0.1, help="share of the test part (%(default)s)"
    )
    split.add_argument(
        "--by",
        choices=["random", "time"],
        default="random",
        help="hold out random or latest ratings",
    )
    _table_options(split)
    _seed(split)


def _table_options(parser: Parser) -> None:
    group = parser.add_argument_group("reading files")
    group.add_argument(
        "--columns",
        type=arguments.names,
        metavar="A,B,C",
        help="the columns with user, item, rating (or row, view, feature, value)",
    )
    for role in ("user", "item", "rating"):
        group.add_argument(f"--{role}", metavar="NAME", help=f"the column with the {role}s")
    group.add_argument(
        "--decimal", choices=[".", ","], default=".", help="the decimal sign of a text file (.)"
    )
    group.add_argument(
        "--levels",
        type=arguments.levels,
        metavar="1:5",
        help="the ordinal scale: how many, FROM:TO, FROM:TO:STEP or a list (default: real values)",
    )
    group.add_argument(
        "--bad",
        choices=["error", "skip"],
        default="error",
        help="rows without a label or a number: refuse them, or leave them out and say which (error)",
    )
    group.add_argument(
        "--duplicates",
        choices=["error", "mean"],
        default="error",
        help="a second rating of one item by one user: refuse it, or take the mean or nearest level (error)",
    )


def _hyper(parser: Any) -> None:
    _settings(parser, "--set", "hyper", "hyper-parameters of the method, as n_components=16")


def _settings(parser: Any, flag: str, dest: str, text: str) -> None:
    parser.add_argument(
        flag,
        dest=dest,
        type=arguments.setting,
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help=text,
    )


def _seed(parser: Parser) -> None:
    parser.add_argument(
        "--seed", type=int, default=0, help="the same seed gives the same result (0)"
    )


def _strict(parser: Parser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a fit is not usable")


class _Version(argparse.Action):
    """Print the version and stop."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from bayesfac import __version__

        print(f"bayesfac {__version__}")
        parser.exit()
