"""Recommendations in a comparison: scored like `recommend`, beside popularity."""

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.report.ranking import ranking


@pytest.fixture(scope="module")
def parts():
    return bf.split.holdout(bf.datasets.make_uneven_ratings(40, 30, seed=2), 0.3, seed=0)


@pytest.fixture(scope="module")
def point(parts):
    return bf.fit("pmf", parts[0], n_components=2, progress=False)


def test_scores_are_those_of_recommend(parts, point):
    train, test = parts
    found = ranking({"point": point}, test, train)
    table = point.recommend(None, 10, exclude=train)
    liked = test.frame().query(f"rating > {train.mean}").groupby("user")["item"].agg(set)
    lists = [table[table["user"] == user]["item"].tolist() for user in liked.index]
    assert found.table.loc["point", "NDCG@10"] == pytest.approx(
        bf.metrics.ndcg(lists, liked).mean()
    )
    assert found.table.loc["point", "recall@10"] == pytest.approx(
        bf.metrics.recall(lists, liked).mean()
    )
    assert found.users == len(liked)


def test_popularity_recommends_the_most_rated(parts, point):
    train, test = parts
    found = ranking({"point": point}, test, train)
    order = bf.metrics.popularity(train).index
    rated = train.frame().groupby("user")["item"].agg(set)
    liked = test.frame().query(f"rating > {train.mean}").groupby("user")["item"].agg(set)
    lists = [[i for i in order if i not in rated.get(user, ())][:10] for user in liked.index]
    assert found.table.loc["popularity", "MAP@10"] == pytest.approx(
        bf.metrics.average_precision(lists, liked).mean(),
        abs=0.02,  # items of equal counts
    )


@pytest.mark.filterwarnings("ignore:2 of 113 held-out:bayesfac.core.errors.DataWarning")
def test_compare_shows_recommendations_when_it_knows_the_training_data(parts, point, tmp_path):
    train, test = parts
    both = bf.compare({"point": point}, test, train=train)
    assert "popularity" in repr(both)
    assert "above" in both.ranking.about
    page = both.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'id="ranking"' in page and "NDCG@10" in page
    with pytest.raises(TypeError, match="as Ratings, got Views for a test on Ratings"):
        bf.compare({"point": point}, test, train=bf.Views({"words": np.ones((3, 4))}))
    without = bf.compare({"point": point}, test)
    assert without.ranking is None
    assert 'id="ranking"' not in without.to_html(tmp_path / "s.html").read_text(encoding="utf-8")


def test_other_training_data_are_refused(parts, point):
    train, test = parts
    with pytest.raises(ValueError, match="has no user 'nobody'"):
        ranking(
            {"point": point}, bf.Ratings(["nobody"], [0], [9.0]), bf.Ratings(["nobody"], [0], [3.0])
        )
    with pytest.raises(ValueError, match="above the training mean"):
        low = test.take(test.value < train.mean)
        ranking({"point": point}, low, train)
    with pytest.raises(TypeError, match="Expected Ratings as train="):
        ranking({"point": point}, test, np.zeros(3))
