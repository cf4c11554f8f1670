"""The functions behind the commands; each takes parsed arguments and returns an exit code."""

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesfac.cli import arguments, outputs, processes, signatures, tables

if TYPE_CHECKING:
    import pandas as pd

    from bayesfac.core.data.ratings import Ratings
    from bayesfac.core.data.tensor import Tensor
    from bayesfac.core.data.views import Views
    from bayesfac.fits.fit import Fit

DONE, FAILED, INTERRUPTED = 0, 1, 130

# the functions whose parameters are options
FIT = "api.py:fit"
AUTO = "search/automatic/__init__.py:auto"
COMPARE = "report/compare.py:compare"
FRAME = "inference/predictions/predict.py:frame"
BEST = "fits/recommending.py:recommend"
SBC = "simulation/__init__.py:sbc"
SPLIT = "split.py:holdout"
READ, LARGE = "datasets/files.py:read", "datasets/large.py:read_large"


def methods(args: argparse.Namespace) -> int:
    """List the methods."""
    import bayesfac as bf

    table = bf.methods()
    print(outputs.markdown(table) if args.markdown else repr(table))
    return DONE


def demo(args: argparse.Namespace) -> int:
    """Compute a point estimate and a posterior, and write an HTML report."""
    import bayesfac as bf

    outputs.writable(args.out)
    ratings = bf.datasets.load("uneven-ratings")
    hidden = _of_new_items(ratings, 40, 3, args.seed)
    train, test = ratings.take(~hidden), ratings.take(hidden)
    about = "40 new items, of which the fits have seen three ratings each"
    warmup, sweeps = (100, 100) if args.fast else (300, 700)
    engine = bf.Gibbs(warmup=warmup, draws=sweeps, chains=4)
    common: dict[str, Any] = {"seed": args.seed, "progress": not args.quiet, "n_components": 4}
    outputs.tell(args, f"{train}\nfitting bpmf as a point (FixedPoint)")
    point = bf.fit("bpmf", train, **common)
    outputs.tell(args, f"fitting bpmf as draws of a short run ({bf.Quick()})")
    quick = bf.fit("bpmf", train, bf.Quick(), **common)
    outputs.tell(args, f"fitting bpmf as draws ({engine})")
    draws = bf.fit("bpmf", train, engine, init=point, **common)
    comparison = bf.compare({"point": point, "Quick": quick, "Gibbs": draws}, test, about)
    comparison.to_html(args.out)
    print(f"\n{about}\n{comparison}\n\n{draws.diagnostics()}\n\nreport: {args.out}")
    return DONE


def _of_new_items(ratings: Any, items: int, seen: int, seed: int) -> Any:
    """Whether a rating is one of some random items', of each of which so many random ratings stay."""
    import numpy as np

    rng = np.random.default_rng(seed)
    new = rng.choice(ratings.n_items, items, replace=False)
    mixed = rng.permutation(len(ratings))
    order = mixed[np.argsort(ratings.item[mixed], kind="stable")]  # by item, random within
    first = np.searchsorted(ratings.item[order], ratings.item)
    place = np.argsort(order) - first
    return np.isin(ratings.item, new) & (place >= seen)


def fit(args: argparse.Namespace) -> int:
    """Fit a method and save it."""
    processes.check(args)
    if args.processes and args.coordinator is None:
        return processes.start(args.line, args.processes)
    with processes.joined(args) as first:
        args.quiet = args.quiet or not first
        out, result = _fitted(args)
    if not first:
        return DONE
    diagnostics = result.diagnostics()
    print(f"{result}\n{diagnostics}")
    outputs.save(result, out)
    return _after(result, args, diagnostics)


def _fitted(args: argparse.Namespace) -> "tuple[Path, Fit]":
    """The fit that the options ask for, and the folder to save it in."""
    import bayesfac as bf
    from bayesfac import models  # noqa: F401  # registers every method
    from bayesfac.core.method import lookup
    from bayesfac.fits import saving

    method = lookup(args.method)
    if args.matrix and method.data.__name__ != "Relations":
        raise ValueError(f"Expected a method of several matrices for --matrix, got {method.name}")
    engine = signatures.engine(args, method.default_engine)
    out = outputs.new_folder(args.out or f"{method.name}-{type(engine).__name__.lower()}")
    data: Any
    if args.large:
        options = signatures.asked(args, LARGE) | {"columns": _columns(args)}
        data = bf.datasets.read_large(args.data, **options)
    else:
        data = read_data(args.data, method.data.__name__.lower(), args)
    saving.check_labels(data)
    outputs.tell(args, f"{data}")
    init = bf.load(args.init) if args.init else None
    options = {"seed": args.seed, "init": init, "progress": not args.quiet}
    return out, bf.fit(method, data, engine, **options, **dict(args.hyper))


def auto(args: argparse.Namespace) -> int:
    """Choose a method by held-out data, fit it and save it."""
    import bayesfac as bf
    from bayesfac.datasets.registry import RECORDS
    from bayesfac.fits import saving

    out = outputs.new_folder(args.out or "auto")
    made = RECORDS[args.data].kind if args.data in RECORDS else "ratings"
    data = read_data(args.data, args.kind or made, args)
    saving.check_labels(data)
    outputs.tell(args, f"{data}")
    result = bf.auto(data, **signatures.asked(args, AUTO), progress=not args.quiet)
    diagnostics = result.diagnostics()
    tried = result.tried
    assert tried is not None  # bf.auto has filled it in
    print(tried.drop(columns="notes").to_string(index=False, float_format=lambda x: f"{x:.4f}"))
    for row in tried[tried["notes"] != ""].itertuples():
        print(f"{row.candidate}: {row.notes}")
    print(f"\n{result}\n{diagnostics}")
    outputs.save(result, out)
    return _after(result, args, diagnostics)


def worker(args: argparse.Namespace) -> int:
    """Run a part of a cross-validation that several machines compute together."""
    work = import_module("bayesfac.labels.evaluation.shared_runs").work
    ran, every = work(Path(args.folder), args.jobs, lambda text: outputs.tell(args, text))
    print(f"{every} cells are finished; {ran} of them were not finished when this worker started")
    return DONE


def compare(args: argparse.Namespace) -> int:
    """Compare saved fits on held-out data."""
    import bayesfac as bf

    outputs.writable(args.html)
    named = dict(args.fits)
    if len(named) < len(args.fits):
        raise ValueError(
            f"Expected another NAME for each fit, got {' '.join(map('='.join, args.fits))}"
        )
    fits = {name: bf.load(folder) for name, folder in named.items()}
    card = next(iter(fits.values())).data
    args.levels = args.levels or card.levels
    counts = next(iter(fits.values())).method.data.implicit
    kind, ids = "counts" if counts else card.kind.lower(), _id_types(card.coords)
    test = read_data(args.test, kind, args, ids)
    train = read_data(args.train, kind, args, ids) if args.train else None
    comparison = bf.compare(fits, test, **signatures.asked(args, COMPARE) | {"train": train})
    print(comparison)
    outputs.to_html(comparison, args.html)
    return _verdict(args, *(one.diagnostics() for one in fits.values()))


def predict(args: argparse.Namespace) -> int:
    """Predict the ratings of pairs with a saved fit."""
    import bayesfac as bf
    from bayesfac.datasets import read_pairs

    outputs.table_file(args.out)
    loaded = bf.load(args.folder)
    if not loaded.data.form.by_pair:
        raise TypeError(f"Expected a fit of ratings, got a fit of {loaded.data.kind.lower()}")
    prediction = loaded.predict(read_pairs(args.data, _named(args, "user", "item")))
    outputs.write(prediction.frame(**signatures.asked(args, FRAME)), args.out)
    outputs.tell(args, f"{prediction}", sys.stderr)
    return DONE


def recommend(args: argparse.Namespace) -> int:
    """Recommend items with a saved fit."""
    import bayesfac as bf

    roles = _named(args, "user", "item")
    if roles and not args.exclude:
        raise ValueError(f"Expected --exclude FILE beside --{next(iter(roles))}, got none")
    outputs.table_file(args.out)
    loaded = bf.load(args.folder)
    exclude = tables.pairs(args.exclude, roles) if args.exclude else None
    table = loaded.recommend(**signatures.asked(args, BEST) | {"exclude": exclude})
    outputs.write(table, args.out)
    outputs.tell(args, f"in_top: {table.attrs['in_top']}", sys.stderr)
    return DONE


def explain(args: argparse.Namespace) -> int:
    """Say what each rating of a user adds to a prediction of a saved fit."""
    import bayesfac as bf

    outputs.table_file(args.out)
    loaded = bf.load(args.folder)
    card = loaded.data
    args.levels = args.levels or card.levels
    data = read_data(args.data, card.kind.lower(), args, _id_types(card.coords))
    table = loaded.explain(data, args.who, args.which)
    outputs.write(table, args.out)
    outputs.tell(args, f"prediction: {table.attrs['prediction']:.4g}", sys.stderr)
    return DONE


def report(args: argparse.Namespace) -> int:
    """Diagnose a saved fit."""
    import bayesfac as bf

    outputs.writable(args.html)
    loaded = bf.load(args.folder)
    diagnostics = loaded.diagnostics()
    print(f"{loaded}\n{diagnostics}")
    outputs.to_html(loaded, args.html)
    return _verdict(args, diagnostics)


def sbc(args: argparse.Namespace) -> int:
    """Check an engine by simulation from the model of a method."""
    import json

    import bayesfac as bf
    from bayesfac import models  # noqa: F401  # registers every method
    from bayesfac.core.files import atomic
    from bayesfac.core.method import REGISTRY, lookup

    outputs.writable(args.json)
    chosen = list(REGISTRY.values()) if args.method == "all" else [lookup(args.method)]
    found = []
    for method in chosen:
        engine = arguments.sampler(args.engine, method.engines)
        if args.method == "all" and engine not in method.engines:
            why = f"skipped, because the method has no conditionals for {engine}\n"
            outputs.tell(args, f"{method.name}: {why}")
            continue
        options = signatures.asked(args, SBC) | dict(args.settings)
        options |= {"engine": engine, "hyper": dict(args.hyper), "progress": not args.quiet}
        found.append(bf.sbc(method, **options))
        print(f"{found[-1]}\n", flush=True)
    if args.json:
        with atomic(Path(args.json)) as path:
            text = json.dumps([one.record() for one in found], indent=1)
            path.write_text(text + "\n", encoding="utf-8")
        print(f"figures: {args.json}")
    return FAILED if any(one.ok is False for one in found) else DONE


def data_list(args: argparse.Namespace) -> int:
    """List the data sets."""
    from bayesfac import datasets

    table = datasets.list()
    table["at hand"] = table["at hand"].map({True: "yes", False: "no"})
    print(table[["kind", "at hand", "size", "licence"]].to_string())
    return DONE


def data_fetch(args: argparse.Namespace) -> int:
    """Fetch a data set into the data folder."""
    from bayesfac import datasets
    from bayesfac.datasets import fetch

    record = datasets.about(args.name)
    if not record.file:
        print(f"{record.name} is generated by the library and needs no file")
        return DONE
    found = datasets.load(record.name, folder=args.folder, progress=not args.quiet)
    kept = next(place for place in fetch.folders(args.folder) if fetch.holds(place, record))
    print(f"{found}\nin {kept}\nlicence: {record.licence}\ncite: {record.citation}")
    return DONE


def data_split(args: argparse.Namespace) -> int:
    """Divide ratings into train.csv and test.csv."""
    from bayesfac import split
    from bayesfac.core.files import atomic

    targets = [Path(args.out) / f"{name}.csv" for name in ("train", "test")]
    for target in targets:
        if target.exists() and Path(args.data).exists() and target.samefile(args.data):
            raise FileExistsError(f"Expected another folder as --out, got the one of {args.data}")
    if (out := Path(args.out)).exists() and not out.is_dir():
        raise NotADirectoryError(f"Expected a folder as --out, got the file {out}")
    ratings = read_data(args.data, "ratings", args)
    parts = split.holdout(ratings, args.fraction, **signatures.asked(args, SPLIT))
    for target, part in zip(targets, parts, strict=True):
        with atomic(target) as path:
            part.frame().to_csv(path, index=False)
        print(f"{target}: {len(part)} ratings")
    return DONE


def bench(args: argparse.Namespace) -> int:
    """Run the benchmarks of a checkout."""
    from bayesfac.core.errors import check_names

    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    known = sorted(path.stem for path in folder.glob("*.py"))
    if not known:
        raise FileNotFoundError(
            f"Expected a source checkout with benchmarks/*.py, got {folder.parent} without"
        )
    check_names("benchmark", (args.name,), [*known, "all"])
    chosen = known if args.name == "all" else [args.name]
    scripts = [[sys.executable, str(folder / f"{name}.py")] for name in chosen]
    return max(subprocess.run(script, check=False).returncode for script in scripts)  # noqa: S603


# -- arguments ----------------------------------------------------------------------------------
def read_data(
    name: str, kind: str, args: argparse.Namespace, ids: dict[str, type] | None = None
) -> "Ratings | Tensor | Views":
    """Load the data set with that name, or read the file."""
    from bayesfac import datasets
    from bayesfac.core.data.ratings import Ratings
    from bayesfac.core.errors import unknown
    from bayesfac.datasets.registry import RECORDS

    tables.check_kind(kind, args)
    if kind == "counts":  # a table of pairs with counts is read like one of ratings
        from bayesfac.core.data.counts import Counts

        return Counts(read_data(name, "ratings", args, ids)).named(name)
    if kind == "tensor":
        return tables.tensor(name, args)
    if kind == "relations":
        return tables.relations(read_data(name, "ratings", args, ids), args)
    if name in RECORDS:
        if RECORDS[name].kind != kind:
            raise TypeError(
                f"Expected {kind}, got the data set {name!r}, which is {RECORDS[name].kind}"
            )
        usual = dict.fromkeys(("user", "item", "rating")) | {
            name: parameter.default for name, parameter in signatures.parameters(READ).items()
        }
        for option in usual.keys() - {"kind", "ids", "levels"}:
            if getattr(args, option) != usual[option]:
                raise ValueError(f"Expected a file for --{option}, got the data set {name!r}")
        found = datasets.load(name, progress=not args.quiet)
        return Ratings(found, levels=args.levels).named(name) if args.levels else found
    if not Path(name).exists() and not Path(name).suffix:
        raise FileNotFoundError(f"{unknown('data set', name, RECORDS)}, and there is no such file")
    options = signatures.asked(args, READ) | {"kind": kind, "columns": _columns(args), "ids": ids}
    return datasets.read(name, **options)


def _columns(args: argparse.Namespace) -> Any:
    """The columns of --columns, or those of --user, --item and --rating."""
    roles = _named(args, "user", "item", "rating")
    if roles and args.columns:
        raise ValueError(f"Expected --columns or --{next(iter(roles))}, got both")
    return args.columns or roles


def _named(args: argparse.Namespace, *options: str) -> dict[str, Any]:
    return {name: getattr(args, name) for name in options if getattr(args, name) is not None}


def _id_types(coords: "dict[str, pd.Index]") -> dict[str, type]:
    """{column of a file: int or str}, by the types of the labels of a fit."""
    types: dict[str, type] = {}
    for axis, labels in coords.items():
        if (column := axis.partition(".")[0]) not in ("user", "item", "row", "feature"):
            continue  # an axis of another matrix
        number = labels.dtype.kind in "iu" and types.get(column) is not str
        types[column] = int if number else str
    return types


def _after(result: "Fit", args: argparse.Namespace, diagnostics: Any) -> int:
    """The exit code of a command that has saved its fit: that of an interrupt if the fit is partial."""
    if not result.partial:
        return _verdict(args, diagnostics)
    print(
        f"bayesfac: interrupted: the saved fit is partial, exit code {INTERRUPTED}", file=sys.stderr
    )
    return INTERRUPTED


def _verdict(args: argparse.Namespace, *diagnostics: Any) -> int:
    return FAILED if args.strict and not all(one.ok for one in diagnostics) else DONE
