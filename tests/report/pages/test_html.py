"""The page is well formed, self-contained, escaped, small, and says what the numbers say."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from bayesfac.core.data.cards import describe
from bayesfac.report.compare import compare
from bayesfac.report.diagnostics.diagnose import diagnostics
from bayesfac.report.pages.html import comparison_page, fit_html, fit_page, score_rows, to_html
from bayesfac.report.plots.held_out_plots import held_out
from tests.report import fakes

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Checker(HTMLParser):
    """Fails on anything that does not nest, and keeps what the tests ask for."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def parsed(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open
    return checker


@pytest.fixture(scope="module")
def written(hostile, tmp_path_factory):
    path = hostile.to_html(tmp_path_factory.mktemp("report") / "report.html")
    return path, path.read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_in_order(written) -> None:
    path, text = written
    checker = parsed(text)
    assert text.startswith("<!DOCTYPE html>") and checker.all("html") == [{"lang": "en"}]
    ids = [attrs["id"] for _, attrs in checker.tags if "id" in attrs]
    links = [attrs["href"] for attrs in checker.all("a")]
    assert links == [f"#{anchor}" for anchor in ids] and len(set(ids)) == len(ids) == 7
    levels = [int(tag[1]) for tag, _ in checker.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1 and max(np.diff(levels)) <= 1
    assert path.stat().st_size < 5e6 and list(path.parent.iterdir()) == [path]


def test_what_users_typed_is_text_and_nothing_else(written) -> None:
    checker = parsed(written[1])
    assert not checker.all("script")
    said = "".join(checker.text)
    assert fakes.NAMES["point"] in said and fakes.NAMES["NUTS"] in said
    assert "<img src=x onerror=alert(1)>" in said and "</main><script>x</script>" in said
    handlers = [name for _, attrs in checker.tags for name in attrs if name.startswith("on")]
    assert not handlers


def test_the_page_asks_for_nothing_from_outside(written) -> None:
    text = written[1]
    checker = parsed(text)
    policies = [
        m["content"]
        for m in checker.all("meta")
        if m.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1 and policies[0].startswith("default-src 'none'; img-src data:;")
    assert all(image["src"].startswith("data:image/png;base64,") for image in checker.all("img"))
    for tag in ("link", "script", "iframe", "object", "form"):
        assert not checker.all(tag)
    shell = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert (
        "http:" not in shell
        and "https:" not in shell
        and "url(" not in shell
        and "@import" not in shell
    )


def test_everyone_can_read_it(written) -> None:
    checker = parsed(written[1])
    assert len(checker.all("img")) >= 11
    for image in checker.all("img"):
        assert len(image["alt"]) > 40 and image["width"].isdigit() and image["height"].isdigit()
    assert all(head.get("scope") in ("row", "col") for head in checker.all("th"))
    assert len(checker.all("caption")) == len(checker.all("table"))
    assert "prefers-color-scheme: dark" in written[1] and "@media print" in written[1]
    assert any(m.get("name") == "viewport" for m in checker.all("meta"))


def test_the_page_says_what_the_table_says(hostile, written) -> None:
    said = " ".join("".join(parsed(written[1]).text).split())
    for value in hostile.table["RMSE"]:
        assert f"{value:.4f}" in said
    for found in hostile.diagnoses.values():
        assert found.verdict in said
    assert "seed" in said and "2026-11-21 06:01 UTC" in said and "n_components=2" in said
    assert "★" in said and "max_tree_depth=10" in said


def test_ratings_on_levels_have_their_own_scores_and_picture() -> None:
    train, test = fakes.level_sets()
    fits = {"point": fakes.point_ratings(), "Gibbs": fakes.sampled_ratings()}
    fits = {name: replace(fit, data=describe(train)) for name, fit in fits.items()}
    fits["stages"] = fakes.sampled_stages()
    comparison = compare(fits, test)
    rows = {row["name"]: row for row in score_rows(comparison)}
    assert {"MAE of level", "NMAE", "zero-one", "ordinal log score", "RPS"} <= set(rows)
    assert not {"log score", "CRPS", "MAE"} & set(rows)  # a density is no mass
    assert all(row["hint"] for name, row in rows.items() if name not in ("n", "verdict", "ratings"))
    checker = parsed(comparison_page(comparison))
    said = "".join(checker.text)
    assert "Reliability of levels" in said and "ordinal log score" in said
    assert any("Reliability of levels" in image["alt"] for image in checker.all("img"))
    assert (
        len(
            [
                p
                for p in held_out(comparison.fits, comparison.scores)
                if p.title == "Reliability of levels"
            ]
        )
        == 1
    )


def test_minus_infinity_is_shown_and_a_view_called_covers_is_no_coverage() -> None:
    comparison = compare({"EM": fakes.point_views()}, fakes.views_set())
    scores = comparison.scores["EM"]
    never = np.where(np.arange(len(scores)) == 0, -np.inf, scores.log_p)
    covers = replace(scores, log_p=never, view=np.where(scores.view == "pix", "covers", "fou"))
    rows = {row["name"]: row for row in score_rows(replace(comparison, scores={"EM": covers}))}
    assert rows["log score"]["cells"][0]["text"] == "-∞"
    assert rows["perplexity"]["cells"][0]["text"] == "∞"
    assert rows["perplexity covers"]["hint"] == ""


def test_counts_have_a_page_too(tmp_path) -> None:
    fits = {"EM": fakes.point_views(), "Gibbs": fakes.sampled_views()}
    checker = parsed(comparison_page(compare(fits, fakes.views_set())))
    said = "".join(checker.text)
    assert "perplexity pix" in said and "tokens" in said and "share of topic.fou" in said
    glossary = said.rpartition("Words")[2]
    assert "log score" in glossary and "ESS bulk" in glossary
    assert not any(word in glossary for word in ("RMSE", "NMAE", "CRPS", "NDCG@10", "PIT"))


def test_shares_as_good_as_0_are_shown_as_such(hostile) -> None:
    made = replace(hostile)
    made.__dict__["believed"] = pd.DataFrame(
        {"best": [1.0, 2e-7], "stacking weight": [1.0, 1.7e-6]}, ["a", "b"]
    )
    for shown in (repr(made), comparison_page(made)):
        assert "e-06" not in shown and "e-07" not in shown and "0.000" in shown


@pytest.mark.parametrize(
    "fit",
    [
        fakes.point_ratings(),
        fakes.sampled_ratings(),
        fakes.sampled_ratings(chains=1, engine=fakes.SVI()),
    ],
    ids=["point", "Gibbs", "SVI"],
)
def test_one_fit_has_a_page(fit, tmp_path) -> None:
    path = to_html(fit, tmp_path / "fit.html")
    checker = parsed(path.read_text(encoding="utf-8"))
    assert len(checker.all("a")) == 5 and checker.all("img")
    assert diagnostics(fit).verdict in "".join(checker.text)


def test_notebook_pieces_are_small_and_well_formed(hostile) -> None:
    name, fit = list(hostile.fits.items())[1]
    pieces = [fit_html(fit), fit_html(fakes.point_ratings()), fit_html(fakes.sampled_views())]
    for piece in [*pieces, hostile._repr_html_(), hostile.diagnoses[name]._repr_html_()]:
        checker = parsed(piece)
        assert not checker.all("script") and not checker.all("img") and len(piece) < 20_000
    assert "4 chains of 100 draws" in fit_html(fit)


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch, hostile) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("bayesfac.core.files.os.replace", _full)
    with pytest.raises(OSError, match="disk"):
        to_html(fakes.point_ratings(), path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def _full(*_: object) -> None:
    raise OSError("No space left on disk")


@pytest.mark.parametrize(("chains", "draws"), [(1, 1), (2, 5), (1, 30)])
def test_very_few_draws_still_make_a_page(chains, draws) -> None:
    engine = fakes.NUTS(chains=chains, draws=draws)
    fits = {"point": fakes.point_ratings(), "few": fakes.sampled_ratings(chains, draws, engine)}
    text = comparison_page(compare(fits, fakes.ratings_sets()[1].take([0, 1])))
    assert "Not usable yet." in text and parsed(text).all("img")


def test_a_fit_without_its_history_still_makes_a_page() -> None:
    fit = replace(fakes.sampled_ratings(), stats={}, info={})
    assert "Settings and versions" in fit_page(fit)
    assert "NaN or infinite" in fit_page(fakes.point_ratings(trace=np.array([np.nan, np.inf])))
