"""Features of MovieLens's users and films: their published files, and tables for `Ratings`."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.errors import BayesfacError
from bayesfac.datasets.readers import Arrays, ratings

NEEDED = ("item_genres", "genre_names", "user_is_male", "user_occupation")


def described_100k(members: Mapping[str, bytes]) -> Arrays:
    """u.data, u.user (id|age|sex|occupation|zip), u.item (id|title|...|19 flags), u.genre (name|number)."""
    data, users, items, genres = members.values()
    arrays = ratings({"u.data": data})
    user, item = (_by_id(_table(text, "|")) for text in (users, items))
    names = _table(genres, "|")[0].astype(str).to_numpy()
    occupation, code = np.unique(user[3].to_numpy(str), return_inverse=True)
    arrays["item_genres"] = item.iloc[:, -len(names) :].to_numpy(np.uint8)
    arrays |= {"genre_names": names, "user_age": user[1].to_numpy(np.uint8)}
    arrays |= {"user_is_male": (user[2] == "M").to_numpy()}
    return arrays | {"user_occupation": code.astype(np.uint8), "occupation_names": occupation}


def described_1m(members: Mapping[str, bytes]) -> Arrays:
    """ratings.dat, users.dat (id::sex::ages::occupation::zip) and movies.dat (id::title::genre|genre)."""
    data, users, films = members.values()
    arrays = ratings({"ratings.dat": data})
    user = _by_id(_table(users, "::"))
    film = _table(films, "::")
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


def _by_id(table: pd.DataFrame) -> pd.DataFrame:
    return table.iloc[np.argsort(table[0].to_numpy())]


def _table(text: bytes, separator: str) -> pd.DataFrame:
    one = (
        text.decode("latin-1").replace("::", "\x1f")
        if separator == "::"
        else text.decode("latin-1")
    )
    sep = "\x1f" if separator == "::" else separator
    return pd.read_csv(io.StringIO(one), sep=sep, header=None, quoting=3)
