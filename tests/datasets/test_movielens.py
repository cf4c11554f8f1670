"""Features of MovieLens's users and films, from small files in the published layouts."""

import pytest

from bayesfac import datasets
from bayesfac.core.errors import BayesfacError
from bayesfac.datasets import readers

OLD = {
    "u.data": b"2\t1\t3\t881250949\n1\t2\t4\t891717742\n",
    "u.user": b"2|53|F|other|94043\n1|24|M|technician|85711\n",
    "u.item": b"1|Toy|01-Jan-1995||url|0|1\n2|Caf\xe9|||url|1|0\n",
    "u.genre": b"unknown|0\nAction|1\n\n",
}
NEW = {
    "ratings.dat": b"1::3::3::881250949\n",
    "users.dat": b"1::F::1::10::48067\n",
    "movies.dat": b"1::Toy (1995)::Animation|Comedy\n3::Caf\xe9::Comedy\n",
}


def test_published_files_become_tables_of_users_and_rated_films():
    tables = readers.tables(readers.described_100k(OLD), "movielens-100k")
    users, films = tables["user_features"], tables["item_features"]
    assert users.loc[1].to_dict() == {"male": True, "occupation": "technician", "age": 24.0}
    assert users.loc[2].to_dict() == {"male": False, "occupation": "other", "age": 53.0}
    assert films.to_dict("index")[1] == {"unknown": False, "Action": True}
    tables = readers.tables(readers.described_1m(NEW), "movielens-1m")
    assert tables["user_features"].loc[1].to_dict() == {
        "male": False,
        "occupation": "10",
        "age": "1",
    }
    assert tables["item_features"].to_dict("index") == {3: {"Animation": False, "Comedy": True}}


def test_a_copy_without_features_says_where_they_are():
    with pytest.raises(BayesfacError, match=r"without item_genres: the publisher's archive has"):
        readers.tables({}, "movielens-100k")
    with pytest.raises(ValueError, match="Expected features=True for movielens"):
        datasets.load("ratings", features=True)


def test_the_real_data_have_features(real_data):
    data = datasets.load("movielens-100k", folder=real_data, features=True)
    assert data.shape == (943, 1682) and len(data) == 100_000
    assert len(data.coords()["user_feature"]) == 23 and len(data.coords()["item_feature"]) == 19
