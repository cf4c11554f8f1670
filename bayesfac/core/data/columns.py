"""Find the columns of a table: by their usual names, or by names from the caller; otherwise an error."""

import re
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from bayesfac.core.errors import DataWarning

RATINGS = ("user", "item", "rating")
VIEWS = ("row", "view", "feature", "value")
Columns = Sequence[Hashable] | Mapping[str, Hashable]

# Names without "id" or "name" at the end, in the singular, without spaces and signs.
NAMES = {
    "user": "user u customer client reader viewer reviewer rater person member buyer account listener who",
    "item": "item i movie film product book song track artist album game article good joke anime",
    "rating": "rating score star value grade mark vote point preference rate",
    "time": "timestamp time date datetime when day ts created createdat ratedat unixtime",
    "row": "row document doc sample",
    "view": "view source",
    "feature": "feature word term",
    "value": "value count weight",
}
ROLES = {role: frozenset(names.split()) for role, names in NAMES.items()}


def is_role(name: Any, role: str) -> bool:
    """Whether `name` is a usual name for a column of that role.

    Examples
    --------
    >>> is_role("customer_id", "user"), is_role("movieId", "item"), is_role("sterne", "rating")
    (True, True, False)
    """
    if not isinstance(name, str):
        return False
    bare = re.sub(r"[\W_]", "", name.lower())
    whole = bare.removesuffix("id").removesuffix("name")
    return bool({bare, whole, whole.removesuffix("s")} & ROLES[role])


def with_index(data: Any) -> Any:
    """A table or a Series with an index of several levels, such as (user, item), with these as columns.

    >>> cells = pd.MultiIndex.from_tuples([("ann", "x")], names=["user", "item"])
    >>> with_index(pd.Series([4], cells)).columns.tolist()
    ['user', 'item', 'rating']
    """
    if not isinstance(getattr(data, "index", None), pd.MultiIndex):
        return data
    if isinstance(data, pd.Series):
        data = data.to_frame("rating" if data.name is None else data.name)
    elif is_wide(data):
        return data
    new = [level for level, name in enumerate(data.index.names) if name not in data.columns]
    return data.reset_index(new) if new else data


def find(seen: Sequence[Hashable], wanted: tuple[str, ...]) -> list[Hashable] | None:
    """The columns with the usual names of `wanted`, in that order; None unless each is there once."""
    chosen: list[Hashable] = []
    for role in wanted:
        exact: list[Hashable] = [name for name in seen if isinstance(name, str) and name == role]
        matches = exact or [name for name in seen if is_role(name, role)]
        if len(matches) != 1:
            return None
        chosen += matches
    return chosen


def choose(
    seen: Sequence[Hashable], wanted: tuple[str, ...], columns: Columns | None, where: str = ""
) -> list[Hashable]:
    """The columns of `wanted`, as `columns` says or by their usual names; anything else is refused."""
    if columns is not None:
        return _as_named(list(seen), wanted, columns, where)
    chosen = find(seen, wanted)
    if chosen is None:
        raise ValueError(_unknown(list(seen), wanted, where))
    if wanted == VIEWS and (times := [name for name in seen if is_role(name, "time")]):
        what = f"The time is ignored{where}: column {_some(times)}"
        warnings.warn(what, DataWarning, stacklevel=2)
    return chosen


def with_time(
    seen: Sequence[Hashable], columns: Columns | None
) -> tuple[Columns | None, Hashable | None]:
    """`columns` without the time, and the column with the times of the ratings, or None.

    Examples
    --------
    >>> with_time(["uid", "iid", "score", "timestamp"], None)
    (None, 'timestamp')
    >>> with_time(["u", "i", "r", "t"], ["u", "i", "r", "t"])
    (['u', 'i', 'r'], 't')
    """
    if isinstance(columns, Mapping) and "time" in columns:
        rest: Any = {role: name for role, name in columns.items() if role != "time"} or None
        time = columns["time"]
    elif isinstance(columns, Sequence) and not isinstance(columns, str) and len(columns) == 4:
        rest, time = columns[:3], columns[3]
    else:
        taken = columns.values() if isinstance(columns, Mapping) else columns or ()
        times = [name for name in seen if is_role(name, "time") and name not in taken]
        if len(times) > 1 and columns is None:
            what = f"as several columns may have it: {_some(times)}. columns={{'time': NAME}} chooses one"
            warnings.warn(f"The time of the ratings is ignored, {what}", DataWarning, stacklevel=3)
        return columns, times[0] if len(times) == 1 else None
    if time not in seen:
        raise ValueError(f"Expected a column {time!r}, got {_some(list(seen))}")
    return rest, time


def is_wide(frame: pd.DataFrame) -> bool:
    """Whether a table has users as rows and items as columns, and says so by its index or column labels."""
    if is_role(frame.columns.name, "item") or is_role(frame.columns.name, "user"):
        return not any(is_role(name, "user") for name in frame.columns)  # else users in a column
    if any(is_role(name, role) for name in frame.columns for role in (*RATINGS, "time")):
        return False
    unnamed_text = frame.index.name is None and frame.index.inferred_type == "string"
    return is_role(frame.index.name, "user") or unnamed_text


def wide_or_long(frame: pd.DataFrame) -> str:
    """The message for a table that may be long or wide: what was seen, and the call for each."""
    return (
        f"{_unknown(list(frame.columns), RATINGS, '')}. If the index has the users and every column is "
        "an item: bf.Ratings(frame.rename_axis(index='user', columns='item'))"
    )


def _as_named(
    seen: list[Hashable], wanted: tuple[str, ...], columns: Columns, where: str
) -> list[Hashable]:
    if isinstance(columns, Mapping):
        if extra := set(columns) - set(wanted):
            raise ValueError(f"Expected columns for some of {wanted}, got {sorted(extra)}")
        rest = [name for name in seen if name not in columns.values()]
        found = [[columns[role]] if role in columns else find(rest, (role,)) for role in wanted]
        if None in found:
            raise ValueError(_unknown(seen, wanted, where))
        names = [one for chosen in found for one in chosen or ()]
    else:
        names = list(columns)
    if isinstance(columns, str) or len(names) != len(wanted):
        raise ValueError(f"Expected {len(wanted)} columns {wanted}, got {columns!r}")
    for name in names:
        if name not in seen:
            raise ValueError(f"Expected a column {name!r}{where}, got {_some(seen)}")
        if names.count(name) > 1 or seen.count(name) > 1:
            raise ValueError(f"Expected different columns{where}, got {name!r} twice")
    return names


def _unknown(seen: list[Hashable], wanted: tuple[str, ...], where: str) -> str:
    call = ", ".join(f"{role.upper()!r}" for role in wanted)
    shell = " ".join(f"--{role} NAME" for role in wanted)
    if wanted == VIEWS:
        shell = "--columns ROW,VIEW,FEATURE,VALUE"
    return (
        f"Expected columns {', '.join(wanted)} (or their usual names, each once){where}, "
        f"got {_some(seen)}. Say which is which: columns=[{call}] with your names, in the shell {shell}"
    )


def _some(names: list[Hashable], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{names[:most]}{more}"
