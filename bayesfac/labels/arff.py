"""ARFF files with several labels -> Tasks: Mulan's, with their XML of labels, and MEKA's."""

import gzip
import math
import os
import re
import reprlib
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.labels.data.tasks import LABELS, Tasks

VIEW = "features"
NO_YES = (("0", "1"), ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"))
GAP = "\0"  # replaces quoted parts, so that all remaining commas and braces belong to the format
QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\"""")
ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
OPTION = re.compile(r"(?:^|[\s:])-C\s+(-?\d{1,9})(?!\S)")  # MEKA's number of labels
ENDING = re.compile(r"(\.arff)?(\.gz)?$", re.IGNORECASE)
PARTS = re.compile(r"([-_](train|test|sparse))+$", re.IGNORECASE)
ALONE = "nothing after the values (weights of rows are not used)"


class Line(NamedTuple):
    """A line without its comment; its quoted parts are stored apart."""

    at: str
    text: str
    quoted: list[str]


class Attribute(NamedTuple):
    """A column of the file: "number", "no or yes", "levels" (read as 1, 2, ...), "string" or "date"."""

    name: str
    at: str
    kind: str
    levels: tuple[str, ...]
    read: Callable[[str], float]


def read_arff(
    path: str | os.PathLike[str],
    labels: str | os.PathLike[str] | int | Iterable[str] | None = None,
    *,
    drop: str | Iterable[str] = (),
    encoding: str = "utf-8",
) -> Tasks:
    r"""Read a multi-label data set in Weka's format: one task with one view, "features".

    Parameters
    ----------
    path : path
        An ARFF file, dense or sparse; .gz is unpacked.
    labels : path, int or list of str, optional
        The attributes that are labels: the path of Mulan's XML, a number, or names. A number n means the
        first n attributes of the file or, if n < 0, the last ones (dropped ones are counted). By default the
        XML in the folder (emotions.xml for emotions-train.arff, or a single XML), else "-C n" of MEKA in the
        relation's name.
    drop : sequence of str
        Attributes to leave out. Texts and dates must be left out, and identifiers should be.
    encoding : str
        Encoding of the text, one that extends ASCII.

    Returns
    -------
    Tasks
        Rows are numbered; columns have the names and the order of the file. A nominal feature becomes one
        column "name=level" of 0 and 1 per level; with levels no and yes ({0,1}, {NO,YES}, {n,y},
        {false,true}, {f,t}, in either order) it becomes one column, 1 for yes. A label must have levels no
        and yes, or be a number 0 or 1. Missing features are an error; a missing label (`?`) becomes NaN.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "songs.arff"
    >>> _ = path.write_text('''@relation 'songs: -C -2'
    ... @attribute tempo numeric
    ... @attribute key {major, minor}
    ... @attribute calm {0,1}
    ... @attribute 'very sad' {0,1}
    ... @data
    ... 120, minor, 0, 1
    ... {0 60, 2 1}  % a sparse row leaves out zeros and first levels
    ... ''')
    >>> data = read_arff(path)
    >>> data
    Tasks(2 rows in 1 task, features: 3 features; 2 labels of 2 rows)
    >>> list(data.features["features"]), list(data.labels)
    (['tempo', 'key=major', 'key=minor'], ['calm', 'very sad'])
    >>> data["features"].toarray().tolist(), data["labels"].toarray().tolist()
    ([[120.0, 0.0, 1.0], [60.0, 1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]])
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file, got {path}, which does not exist")
    with closing(_lines(path, encoding)) as lines:
        relation, attributes = _header(lines, path.name)
        chosen = _labels(_stated(relation, path) if labels is None else labels, attributes, path)
        kept = _kept(attributes, drop, chosen, path.name)
        cells, places = _rows(lines, attributes, path.name)
    inputs, outputs = np.flatnonzero(kept & ~chosen), np.flatnonzero(kept & chosen)
    table, features = _columns(cells[:, inputs], [attributes[j] for j in inputs], places, "feature")
    known, names = _columns(cells[:, outputs], [attributes[j] for j in outputs], places, "label")
    if not features.is_unique:
        again = features[features.duplicated()][0]
        raise ValueError(f"Expected distinct features in {path.name}, got {again!r} twice")
    data = Tasks({VIEW: table}, known)
    data.host = replace(data.host, features={VIEW: features, LABELS: names})
    return data


def _wrong(what: str, at: str, got: Any) -> ValueError:
    got = got.replace(GAP, "'...'") if isinstance(got, str) else got
    return ValueError(f"Expected {what} in {at}, got {reprlib.repr(got)}")


# -- lines and cells ------------------------------------------------------------------------------
def _lines(path: Path, encoding: str) -> Generator[Line]:
    """Every line that is not blank."""
    opened: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                line = _line(raw, encoding, f"line {number} of {path.name}")
                if line.text:
                    yield line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"Expected a gzip archive in {path.name}: {error}") from error


def _line(raw: bytes, encoding: str, at: str) -> Line:
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")  # a byte order mark
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x}"
        raise _wrong(f"{encoding} text (or another `encoding`)", at, byte) from error
    if GAP in text:
        raise _wrong("text", at, "byte 0x00")
    parts = [part[1:-1] for part in QUOTED.findall(text)]
    quoted = [re.sub(r"\\(.)", lambda m: ESCAPED.get(m[1], m[1]), part) for part in parts]
    bare = QUOTED.sub(GAP, text).partition("%")[0].strip()
    if "'" in bare or '"' in bare:
        raise _wrong("quotes in pairs", at, text.strip())
    return Line(at, bare, quoted)


def _cells(text: str, line: Line) -> list[str]:
    """The values between commas or, in a line without commas, between blanks."""
    parts = text.split(",") if "," in text else text.split()
    return _filled([part.strip() for part in parts], line)


def _filled(parts: list[str], line: Line) -> list[str]:
    """The parts with quoted texts put back in their places."""
    quoted = iter(line.quoted)
    filled = [next(quoted) if part == GAP else part for part in parts] if line.quoted else parts
    if odd := [part for part in filled if GAP in part]:
        raise _wrong("quotes around whole values", line.at, odd[0])
    return filled


# -- header ---------------------------------------------------------------------------------------
def _header(lines: Iterator[Line], name: str) -> tuple[str, list[Attribute]]:
    """The relation's name and the attributes; afterwards `lines` continues with the data."""
    relation, known = "", dict[str, Attribute]()
    for line in lines:
        word, rest = (*line.text.split(maxsplit=1), "")[:2]
        if word.lower() == "@relation":
            (relation,) = _filled([rest], line)
        elif word.lower() == "@attribute":
            new = _attribute(rest, line)
            if new.name in known:
                raise _wrong("a new name after @attribute", line.at, new.name)
            known[new.name] = new
        elif line.text.lower() != "@data":
            raise _wrong("@relation, @attribute or @data", line.at, line.text)
        elif not known:
            raise _wrong("an @attribute before @data", line.at, "@data")
        else:
            return relation, list(known.values())
    raise ValueError(f"Expected @data in {name}, got none")


def _attribute(text: str, line: Line) -> Attribute:
    match = re.fullmatch(rf"({GAP}|[^\s{{}},{GAP}]+)\s*(.*)", text)
    if match is None:
        raise _wrong("a name after @attribute", line.at, text)
    name, kind = match.groups()
    name = line.quoted.pop(0) if name == GAP else name
    if kind.lower() in ("numeric", "real", "integer"):
        return Attribute(name, line.at, "number", (), _number)
    if unread := re.match(r"(string|date)(?!\S)", kind.lower()):
        return Attribute(name, line.at, unread[1], (), lambda _: 0.0)
    if not (kind.startswith("{") and kind.endswith("}")):
        what = f"numeric, real, integer, string, date or {{LEVELS}} as type of attribute {name!r}"
        raise _wrong(what, line.at, kind)
    levels = _cells(kind[1:-1], line)
    if not levels or len(set(levels)) < len(levels) or {"", "?"} & set(levels):
        raise _wrong(f"distinct levels, not ? or empty, for attribute {name!r}", line.at, kind)
    pair = tuple(sorted(level.lower() for level in levels))
    value = {level: i + 1.0 for i, level in enumerate(levels)}
    if pair in NO_YES:
        value = {level: float(pair.index(level.lower())) for level in levels}
    column = "no or yes" if pair in NO_YES else "levels"
    return Attribute(name, line.at, column, tuple(levels), (value | {"?": math.nan}).__getitem__)


def _number(text: str) -> float:
    """Like `float`, but infinity and 1_000 are errors and "?" is NaN."""
    if text == "?":
        return math.nan
    number = float(text)
    if not math.isfinite(number) or "_" in text:
        raise ValueError(text)
    return number


# -- which attributes -----------------------------------------------------------------------------
def _stated(relation: str, path: Path) -> Path | int:
    """The XML of labels in the folder, or the number of labels in the relation's name."""
    stem = ENDING.sub("", path.name, count=1)
    named = sorted({f"{stem}.xml", f"{PARTS.sub('', stem)}.xml"}, key=len, reverse=True)
    same = [path.with_name(name) for name in named if path.with_name(name).is_file()]
    beside = list(path.parent.glob("*.xml"))
    if same or len(beside) == 1:
        return (same or beside)[0]
    if option := OPTION.search(relation):
        return int(option[1])
    raise ValueError(
        f"Expected to find the labels of {path.name}: looked for {' and '.join(named)}, for a single "
        f".xml in the folder (there are {len(beside)}) and for '-C n' in the relation {relation!r}"
    )


def _labels(labels: Any, attributes: list[Attribute], path: Path) -> np.ndarray:
    """Which of the attributes are labels."""
    names, source = [attribute.name for attribute in attributes], "`labels`"
    if isinstance(labels, int | np.integer) and not isinstance(labels, bool):
        count, n = int(labels), len(names)
        if not 0 < abs(count) < n:
            what = f"from 1 to {n - 1} labels of {path.name}, or as many with a minus"
            raise ValueError(f"Expected {what}, got {count}")
        return np.arange(n) < count if count > 0 else np.arange(n) >= n + count
    if isinstance(labels, str | os.PathLike):
        source, labels = Path(labels).name, _named(Path(labels))
    if not isinstance(labels, Iterable):
        raise TypeError(f"Expected labels as a path, a number or a list of names, got {labels!r}")
    others = set(names)
    for label in labels:
        if label not in others:
            raise ValueError(f"Expected attributes of {path.name} once in {source}, got {label!r}")
        others.remove(label)
    return np.array([name not in others for name in names])


def _named(path: Path) -> list[str]:
    """The labels in Mulan's XML, of every depth. A document type is refused, as it may define entities."""
    names = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        word = tag.rpartition(" ")[2]
        if word == "label" and "name" in attributes:
            names.append(attributes["name"])
        elif word != "labels":
            at = f"line {parser.CurrentLineNumber} of {path.name}"
            raise _wrong('<labels> or <label name="...">', at, f"<{word}>")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = lambda *_: start("!DOCTYPE", {})
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise ValueError(f"Expected XML in {path.name}: {error}") from error
    return names


def _kept(
    attributes: list[Attribute], drop: str | Iterable[str], chosen: np.ndarray, name: str
) -> np.ndarray:
    """Which attributes are used (not in `drop`); an error if one cannot be used."""
    dropped, every = [drop] if isinstance(drop, str) else list(drop), {a.name for a in attributes}
    if unknown := [one for one in dropped if one not in every]:
        raise ValueError(f"Expected attributes of {name} in `drop`, got {unknown[0]!r}")
    kept = np.array([attribute.name not in dropped for attribute in attributes])
    for what, used in (("feature", kept & ~chosen), ("label", kept & chosen)):
        if not used.any():
            raise ValueError(f"Expected at least one {what} in {name}, got none")
    for attribute, here, label in zip(attributes, kept, chosen, strict=True):
        if here and attribute.kind in ("string", "date"):
            what = f"numbers or levels of attribute {attribute.name!r} (or it in `drop`)"
            raise _wrong(what, attribute.at, attribute.kind)
        if here and label and attribute.kind == "levels":
            what = f"two levels as {{0,1}} of label {attribute.name!r}"
            raise _wrong(what, attribute.at, f"{{{','.join(attribute.levels)}}}")
    return kept


# -- rows and columns -----------------------------------------------------------------------------
def _rows(
    lines: Iterator[Line], attributes: list[Attribute], name: str
) -> tuple[sp.csr_matrix, list[str]]:
    """Values rows x attributes, and the line of every row."""
    # a sparse row omits zeros, and first levels of nominal attributes, whose value need not be 0
    first = {j: a.levels[0] for j, a in enumerate(attributes) if a.levels and a.read(a.levels[0])}
    columns, values, places = [], [], []
    for line in lines:
        sparse = line.text.startswith("{")
        cells = first | _sparse(line, attributes) if sparse else _dense(line, attributes)
        read = np.array([_value(attributes[j], text, line.at) for j, text in cells.items()])
        stored = np.flatnonzero(read)
        columns.append(np.fromiter(cells, np.int64, len(cells))[stored])
        values.append(read[stored])
        places.append(line.at)
    if not places:
        raise ValueError(f"Expected at least one row after @data in {name}, got none")
    start = np.cumsum([0, *map(len, columns)])
    parts = (np.concatenate(values), np.concatenate(columns), start)
    return sp.csr_matrix(parts, shape=(len(places), len(attributes))), places


def _dense(line: Line, attributes: list[Attribute]) -> dict[int, str]:
    if "{" in line.text:
        raise _wrong(ALONE, line.at, line.text[line.text.index("{") :])
    cells = _cells(line.text, line)
    if len(cells) != len(attributes):
        raise _wrong(f"{len(attributes)} values", line.at, len(cells))
    return dict(enumerate(cells))


def _sparse(line: Line, attributes: list[Attribute]) -> dict[int, str]:
    body, brace, rest = line.text[1:].partition("}")
    if rest or not brace:
        raise _wrong(ALONE if brace else "a closing brace", line.at, rest or line.text)
    cells: dict[int, str] = {}
    last = len(attributes) - 1
    for cell in body.split(",") if body.strip() else []:
        index, text = (*cell.split(maxsplit=1), "", "")[:2]
        j = int(index) if text and index.isdecimal() and len(index) < 10 else -1
        if not 0 <= j <= last:
            raise _wrong(f"an index from 0 to {last} and a value", line.at, cell.strip())
        if j in cells:
            raise _wrong(f"one value for attribute {attributes[j].name!r}", line.at, body)
        cells[j] = text.rstrip()
    return dict(zip(cells, _filled(list(cells.values()), line), strict=True))


def _value(attribute: Attribute, text: str, at: str) -> float:
    try:
        return attribute.read(text)
    except (KeyError, ValueError) as error:
        levels = ", ".join(attribute.levels[:5]) + ", ..." * (len(attribute.levels) > 5)
        what = f"one of {levels}" if levels else "a number"
        raise _wrong(f"{what} for attribute {attribute.name!r}", at, text) from error


def _columns(
    cells: sp.csr_matrix, attributes: list[Attribute], places: list[str], what: str
) -> tuple[sp.csr_matrix, pd.Index]:
    """Attributes as columns of numbers: one per attribute, or one per level."""
    table = cells.tocoo()  # row by row
    row, column, value = table.row, table.col, table.data
    good = ~reading.beyond(value) if what == "feature" else (value == 1) | np.isnan(value)
    if not good.all():
        i = int(np.argmin(good))
        wanted = "a finite value" if what == "feature" else "0 or 1"
        got = "?" if np.isnan(value[i]) else float(value[i])
        raise _wrong(f"{wanted} for {what} {attributes[column[i]].name!r}", places[row[i]], got)
    spread = [attribute.levels if attribute.kind == "levels" else () for attribute in attributes]
    names = [
        f"{attribute.name}={level}" if levels else attribute.name
        for attribute, levels in zip(attributes, spread, strict=True)
        for level in levels or [""]
    ]
    width = np.array([len(levels) for levels in spread])
    start = np.cumsum([0, *np.maximum(width, 1)])
    wide = width[column] > 0
    at = start[column] + np.where(wide, value - 1, 0).astype(int)
    entries = (np.where(wide, 1, value), (row, at))
    return sp.csr_matrix(entries, shape=(len(places), len(names))), pd.Index(names)
