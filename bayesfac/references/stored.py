"""Reference posteriors as files: one JSON each, with the data, the settings, the summaries and a checksum."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.core.data.container import KINDS
from bayesfac.core.data.counts import Counts
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.views import Views
from bayesfac.core.errors import CorruptFile, check_names
from bayesfac.core.files import atomic
from bayesfac.core.method import Method, lookup

FORMAT = "bayesfac reference 1"
FOLDER = Path(str(files("bayesfac").joinpath("references", "files")))
DIGITS = 8  # significant, of every stored summary


@dataclass(frozen=True, eq=False)
class Reference:
    """A posterior that is known: the data, the model, and summaries from two samplers.

    Attributes
    ----------
    name, about : str
        `about` says what the data are.
    method : str
    hyper : dict
        All hyper-parameters of the method: `bf.fit(r.method, r.data, engine, **r.hyper)` is this posterior.
    sites : dict
        The shape of every sample site.
    plain : dict
        The data as numbers and lists.
    samplers : tuple of dict
        What drew the posterior: engine, settings, seed, number of draws, largest R-hat, smallest ESS.
    z, level : float
        The largest |z| between the two samplers over all summaries, and what 1 % of correct pairs exceed
        (Bonferroni).
    summaries : DataFrame
        A row for each quantity: mean, sd, their Monte Carlo standard errors; R-hat and ESS of the worse
        sampler.
    """

    name: str
    about: str
    method: str
    hyper: Mapping[str, Any]
    sites: Mapping[str, tuple[int, ...]]
    plain: Mapping[str, Any] = field(repr=False)
    samplers: tuple[Mapping[str, Any], ...]
    z: float
    level: float
    summaries: pd.DataFrame = field(repr=False)

    @cached_property
    def data(self) -> Any:
        """The data in the container that the method takes: Ratings, Counts, Views or Tasks."""
        return container(self.plain)

    @property
    def record(self) -> Method:
        """The record of the method, with its objective, its model and its predictions."""
        return lookup(self.method)

    def settings(self) -> Any:
        """`hyper` as the method's own tuple."""
        return self.record.Hyper(**self.hyper)

    @property
    def model(self) -> Callable[[], None]:
        """The NumPyro model with its data: `numpyro.infer.NUTS(r.model)` runs it without arguments."""
        method, hyper = self.record, self.settings()
        data = method.ready(self.data, hyper)
        return lambda: method.model(data, hyper)

    def __repr__(self) -> str:
        both = " and ".join(s["engine"] for s in self.samplers)
        r_hat = max(s["r_hat"] for s in self.samplers)
        return (
            f"Reference({self.name}: {self.method} on {self.about}; {len(self.summaries)} quantities by "
            f"{both}, R-hat {r_hat:.4f}, largest |z| {self.z:.2f} of {self.level:.2f})"
        )


FIELDS = fields(Reference)


def names() -> list[str]:
    """The names of all references.

    >>> import bayesfac as bf
    >>> "pmf-rank-1" in bf.references.names()
    True
    """
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Reference:
    """Read a reference; a file that was changed is refused.

    Examples
    --------
    >>> import bayesfac as bf
    >>> r = bf.references.load("pmf-rank-1")
    >>> r.method, r.hyper["n_components"], r.data.n_users
    ('pmf', 1, 10)
    >>> float(r.summaries["r_hat"].max()) <= 1.001
    True
    """
    check_names("reference", (name,), names())
    return read(FOLDER / f"{name}.json")


def table() -> pd.DataFrame:
    """All references, a row each: method, data, number of quantities, samplers, largest R-hat and |z|."""
    rows = {}
    for r in map(load, names()):
        rows[r.name] = {
            "method": r.method,
            "data": r.about,
            "quantities": len(r.summaries),
            "samplers": " + ".join(s["engine"] for s in r.samplers),
            "draws": sum(s["draws"] for s in r.samplers),
            "least ESS": min(s["ess"] for s in r.samplers),
            "divergences": max(s.get("diverging", 0) for s in r.samplers),
            "R-hat": f"{max(s['r_hat'] for s in r.samplers):.5f}",
            "largest |z|": r.z,
            "level": r.level,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


# -- files ----------------------------------------------------------------------------------------
def write(reference: Reference, folder: Path = FOLDER) -> Path:
    """Write a reference as JSON with a checksum, whole or not at all."""
    columns = {name: rounded(reference.summaries[name]) for name in reference.summaries}
    named = {"data" if f.name == "plain" else f.name: getattr(reference, f.name) for f in FIELDS}
    named["summaries"] = {"quantity": list(reference.summaries.index), **columns}
    plain = json.loads(json.dumps({"format": FORMAT, **named}))
    target = folder / f"{reference.name}.json"
    with atomic(target) as part:
        part.write_text(json.dumps({**plain, "sha256": _seal(plain)}) + "\n", encoding="utf-8")
    return target


def read(path: Path) -> Reference:
    """The reference in a file that `write` made."""
    head = json.loads(path.read_text(encoding="utf-8"))
    if head.pop("sha256", None) != _seal(head) or head.pop("format") != FORMAT:
        raise CorruptFile(f"Expected {path} as it was written, got other text")
    head["hyper"] = {setting: _tupled(value) for setting, value in head["hyper"].items()}
    head["sites"] = {site: tuple(shape) for site, shape in head["sites"].items()}
    head["samplers"] = tuple(head["samplers"])
    index = head["summaries"].pop("quantity")
    head["summaries"] = pd.DataFrame(head["summaries"], index=index)
    return Reference(plain=head.pop("data"), **head)


def rounded(values: Any) -> list[float]:
    """Numbers with `DIGITS` significant digits.

    >>> rounded([1 / 3])
    [0.33333333]
    """
    return [float(f"{x:.{DIGITS}g}") for x in np.asarray(values, float)]


def _seal(head: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def container(plain: Mapping[str, Any]) -> Any:
    """The container of data that are written as lists; None in a table of labels is a missing cell."""
    kind = plain["container"]
    if kind == "Ratings":
        triplets = (np.asarray(plain[name]) for name in ("user", "item", "value"))
        return Ratings(*triplets, levels=plain.get("levels"))
    if kind == "Counts":
        return Counts(np.asarray(plain["table"], float))
    views = {name: np.asarray(table, float) for name, table in plain["views"].items()}
    if kind == "Views":
        return Views(views)
    return KINDS["Tasks"](views, np.asarray(plain["labels"], float), task=plain.get("task"))
