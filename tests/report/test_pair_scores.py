"""Held-out pairs of counts in a comparison: their ranks beside those of popular items."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.cli import main
from bayesfac.core.errors import DataWarning
from bayesfac.inference.predictions.held_out import rank_loss
from bayesfac.report import pair_scores
from bayesfac.report.diagnostics.uses import monte_carlo_error
from bayesfac.report.plots.held_out_plots import first_places

GAIN = "gain of rank"
fast = partial(bf.fit, n_components=2, progress=False)
wrmf = partial(fast, "wrmf", scale_user=1.0, scale_item=1.0, noise=0.3)
hpf = partial(fast, "hpf", shape_user=0.3, shape_item=0.3)


@pytest.fixture(scope="module")
def parts():
    """Counts of two groups of users, each of which takes its own half of the items."""
    rng = np.random.default_rng(0)
    own = (np.arange(40)[:, None] % 2) == (np.arange(24) % 2)
    return bf.split.holdout(bf.Counts(rng.poisson(np.where(own, 0.9, 0.05))), 0.2, seed=0)


@pytest.fixture(scope="module")
def fits(parts):
    return {"wrmf": wrmf(parts[0]), "hpf": hpf(parts[0])}


def test_gains_are_those_of_the_choice_by_ranks_and_methods_beat_popularity(parts, fits):
    train, test = parts
    found = bf.compare(fits, test, train=train)
    for name, fit in fits.items():
        loss = rank_loss(fit.method, fit.params, train, test, fit.hyper, {})
        assert found.table.loc[name, GAIN] == pytest.approx(1 - loss, rel=1e-5)
    assert found.table.index.tolist() == ["wrmf", "hpf", "popularity"]
    assert found.table.loc["popularity", "verdict"] == "baseline"
    assert set(found.table["n"]) == {len(test)}
    assert found.starred[GAIN] in (["wrmf"], ["hpf"], ["wrmf", "hpf"])  # never popularity
    assert found.differences.loc[("popularity", GAIN), "difference"] > 0  # of losses
    assert f"{found.best[GAIN]} has the highest held-out gain of rank" in repr(found)
    assert f"popularity against wrmf: {GAIN} -" in repr(found)


def test_ranks_of_popularity_are_those_of_a_hand_calculation(parts, fits):
    train, test = parts
    found = bf.compare(fits, test, train=train).outside["popularity"]
    counts, taken = np.bincount(train.item, minlength=train.n_items), set()
    taken |= set(zip(train.user.tolist(), train.item.tolist(), strict=True))
    for u, i, rank in zip(test.user, test.item, found.rank, strict=True):
        others = [counts[j] for j in range(train.n_items) if (u, j) not in taken]
        ends = np.sum(others > counts[i]) + 1, np.sum(others >= counts[i])
        assert rank == pytest.approx(np.mean(ends))


def test_blocks_of_users_and_pairs_change_nothing(parts, fits, monkeypatch):
    train, test = parts
    whole = pair_scores.score_pairs(fits["hpf"], test, train)
    monkeypatch.setattr(pair_scores, "CELLS", 100)  # 4 users, 4 pairs
    np.testing.assert_allclose(
        pair_scores.score_pairs(fits["hpf"], test, train).gain, whole.gain, rtol=1e-9
    )


def test_without_training_pairs_their_items_are_ranked_too_and_it_is_said(parts, fits):
    train, test = parts
    with pytest.warns(DataWarning, match="Items that users have in training are ranked too"):
        found = bf.compare(fits, test.frame())  # a table is read as counts
    assert "train= leaves them out" in repr(found)
    known = bf.compare(fits, test, train=train)
    assert (found.table[GAIN] < known.table[GAIN]).all()
    assert found.ranking is None


def test_unknown_users_and_items_are_counted_and_have_the_middle_rank(parts, fits):
    train, test = parts
    frame = test.frame()
    new = pd.DataFrame({"user": [0, 999], "item": [999, 0], frame.columns[2]: [1.0, 2.0]})
    with pytest.warns(
        DataWarning, match=rf"^2 of {len(test) + 2} held-out pairs have a user or an"
    ):
        found = bf.compare(fits, pd.concat([frame, new]), train=train)
    for each in (*found.scores.values(), *found.outside.values()):
        assert each.unseen.sum() == 2
        np.testing.assert_allclose(each.rank[each.unseen], (train.n_items + 1) / 2)


def test_the_report_has_ranks_and_recommendations(parts, fits, tmp_path):
    train, test = parts
    found = bf.compare(fits, test, train=train)
    page = found.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "gain of rank" in page and "1 / log2(1 + rank)" in page and "NDCG@10" in page
    assert "which are the relevant ones" in page and "pairs" in page
    table = fits["hpf"].recommend(None, 10, exclude=train)
    wanted = test.frame().groupby("user")["item"].agg(set)
    lists = [table[table["user"] == user]["item"].tolist() for user in wanted.index]
    expected = bf.metrics.ndcg(lists, wanted).mean()
    assert found.ranking.table.loc["hpf", "NDCG@10"] == pytest.approx(expected)
    share = (found.scores["hpf"].rank <= 10).mean()
    assert f"hpf {share:.0%}" in first_places(found.scores).finding.text


def test_draws_have_a_monte_carlo_error_and_a_report(parts, tmp_path):
    train, test = parts
    fit = hpf(train, bf.Gibbs(warmup=20, draws=16, chains=2))
    scores = pair_scores.score_pairs(fit, test, train)
    mean = fit.everywhere().mean.copy()
    mean[train.user, train.item] = -np.inf
    rank = [(mean[u] > mean[u, i]).sum() + 1 for u, i in zip(test.user, test.item, strict=True)]
    np.testing.assert_allclose(scores.rank, rank, atol=1e-9)
    assert scores.parts.shape == (8, len(test)) and np.ptp(scores.parts.mean(1)) > 0
    assert 0 < monte_carlo_error(scores, GAIN) < 0.1
    found = bf.compare({"Gibbs": fit}, test, train=train)
    assert "Held-out gain of rank: Monte Carlo error" in repr(found.diagnoses["Gibbs"])
    page = found.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Pairs by rank" in page


def test_wrong_input_says_what_is_expected(parts, fits):
    train, test = parts
    with pytest.raises(TypeError, match=r"got Ratings as test= for wrmf, a method of Counts"):
        bf.compare(fits, bf.Ratings(test.frame()))
    with pytest.raises(ValueError, match=r"not in train=, got \(\d+, \d+\) in both"):
        bf.compare(fits, test, train=bf.Counts(pd.concat([train.frame(), test.frame()])))
    with pytest.raises(ValueError, match="another name than 'popularity'"):
        bf.compare({"popularity": fits["hpf"]}, test, train=train)
    with pytest.raises(TypeError, match="Expected fits only for a test on counts"):
        bf.compare({**fits, "zero": np.zeros(len(test))}, test, train=train)


def test_the_shell_compares_fits_to_counts(parts, fits, tmp_path, capsys):
    for name, part in zip(("train.csv", "test.csv"), parts, strict=True):
        part.frame().to_csv(tmp_path / name, index=False)
    fits["hpf"].save(tmp_path / "hpf")
    files = ["--test", str(tmp_path / "test.csv"), "--train", str(tmp_path / "train.csv")]
    assert main(["compare", f"hpf={tmp_path / 'hpf'}", *files]) == 0
    assert "hpf has the highest held-out gain of rank" in capsys.readouterr().out
