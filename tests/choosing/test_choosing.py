"""Settings that the user leaves open: chosen by held-out ratings, shown, and reproduced by `fit.hyper`."""

import numpy as np
import pytest

import bayesfac as bf
from bayesfac import choosing
from bayesfac.choosing import LEAST, choose, climb
from bayesfac.core.math import edge
from bayesfac.core.method import REGISTRY, settle
from bayesfac.parts.estimate import noise_choices
from bayesfac.parts.observed.margins import HALF
from tests.tools.records import changed

FALLING = "; the last candidate, and the score was still falling: try a larger penalty"
SHORT = bf.LBFGS(max_iter=60, tol=1e-3)


@pytest.fixture(scope="module")
def ratings() -> bf.Ratings:
    """Products of two components beside nothing else: no penalty at all, or a huge one, loses."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    seen = rng.random(x.shape) < 0.3
    return bf.Ratings(np.where(seen, 1.0 + np.searchsorted([-1, 1], x), np.nan), levels=3)


@pytest.mark.parametrize("lowest", range(7))
def test_the_climb_finds_the_lowest_of_falling_and_rising_scores(lowest):
    asked = []

    def score(number, further):
        assert further == (number > 3)  # goes on from the fit before only towards stronger settings
        asked.append(number)
        return (number - lowest) ** 2

    assert climb(7, score) == lowest
    assert len(asked) == len(set(asked)) <= 3 + abs(lowest - 3)


def test_the_climb_crosses_settings_so_strong_that_they_score_alike():
    """From the middle on no factors are left; a search that ends at equal scores would stay there."""
    scores = [0.9, 0.3, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert climb(7, lambda number, further: scores[number]) == 1
    assert climb(7, lambda number, further: [0.9, 0.95, 0.98, 1.0, 0.8, 0.7, 0.9][number]) == 5
    # one cell of 500 tells two of them apart
    scores = [0.9, 0.3, 0.415, 0.411, 0.415, 0.415, 0.415]
    assert climb(7, lambda number, further: scores[number]) == 3
    assert climb(7, lambda number, further: scores[number], 3 / 500) == 1
    scores[4] = 0.409
    assert climb(7, lambda number, further: scores[number], 3 / 500) == 1


def test_the_chosen_penalty_is_shown_and_reproduces_the_fit(ratings):
    fit = bf.fit("mmmf", ratings, SHORT, n_components=2, progress=False)
    assert fit.hyper.penalty != HALF * edge(ratings)
    assert f"chosen: penalty={fit.hyper.penalty:.4g}" in fit.notes[0]
    assert fit.notes[0] in repr(fit)
    assert any(fit.notes[0] in str(finding.text) for finding in fit.diagnostics().findings)
    again = bf.fit("mmmf", ratings, SHORT, progress=False, **fit.hyper._asdict())
    assert not any(note.startswith("chosen") for note in again.notes)
    np.testing.assert_array_equal(again.params.U, fit.params.U)


def test_a_given_penalty_few_ratings_and_other_callers_choose_nothing(ratings):
    mmmf = REGISTRY["mmmf"]
    given = choose(mmmf, ratings, {"n_components": 2, "penalty": 3.0}, 0)
    assert given.hyper == {"n_components": 2, "penalty": 3.0} and not given.how
    few = ratings.take(np.arange(LEAST - 1))
    assert choose(mmmf, few, {"n_components": 2}, 0).hyper == {"n_components": 2}
    assert settle(mmmf, ratings, {}).penalty == HALF * edge(ratings)


def test_default_numbers_are_reduced_to_what_small_data_allow():
    few = bf.Ratings(np.random.default_rng(0).random((5, 3)))
    fit = bf.fit("pmf", few, progress=False)
    assert fit.hyper.n_components == 3
    assert "chosen: n_components=3, the largest value that the data allow" in fit.notes
    with pytest.raises(ValueError, match="n_components between 1 and 3"):
        bf.fit("pmf", few, n_components=4, progress=False)
    assert not bf.fit("pmf", few, n_components=2, noise=0.2, progress=False).notes


def test_tables_with_fewer_items_than_the_default_components_have_candidates():
    few = bf.Ratings(np.random.default_rng(0).integers(1, 6, (120, 5)), levels=5)
    for method in REGISTRY.values():
        other_data = method.name == "bmmmf" or method.choose.candidates is noise_choices
        if method.choose.candidates is not None and method.data is bf.Ratings and not other_data:
            assert method.choose.candidates(few, method.Hyper(), {}), method.name
    fit = bf.fit("pmf", few, progress=False)
    assert fit.hyper.n_components == 5 and fit.notes[0].startswith("chosen: ")


@pytest.mark.parametrize("lowest", [-4, -3, -1, 0, 6, 8, 9, 11])
def test_the_climb_goes_on_beyond_the_ends_of_a_list(lowest):
    scores = {number: (number - lowest) ** 2 for number in range(-3, 10)}
    assert climb(7, lambda number, further: scores[number], beyond=3) == min(max(lowest, -3), 9)
    assert climb(7, lambda number, further: scores[number]) == min(max(lowest, 0), 6)


def test_beyond_its_ends_the_climb_does_not_follow_rounding():
    """Inside the list the smallest gain counts; outside of it, settings that score alike end the search."""
    asked = []
    climb(7, lambda number, further: asked.append(number) or 1 - 1e-3 * number, 2e-3, 3)
    assert max(asked) == 7


@pytest.mark.parametrize(
    ("penalties", "chosen", "said"),
    [
        ([0.2, 0.4, 0.8], 1.6, FALLING),
        ([0.2, 0.3, 0.5], 0.5, FALLING),
        ([1.0, 1.5, 2.25, 3.375, 5.0625], 8.0, "; the search went on beyond the last candidate"),
        ([1e3, 2e3, 3e3], 3e3, "; the last candidate, no better than the one next to it"),
        ([20.0, 40.0, 80.0, 160.0], 8.0, "; the search went on beyond the first candidate"),
        ([1.0, 6.0, 30.0], 8.0, ""),
        ([2.0, 4.0, 8.0], 8.0, "; beyond the last candidate the score was worse"),
    ],
)
def test_a_choice_at_the_end_of_its_candidates_goes_on_or_says_so(
    ratings, penalties, chosen, said, monkeypatch
):
    """A list in which each candidate is the one before times a factor is made longer."""

    class Made(choosing.Search):
        def score(self, number, further):
            self.scores[number] = min(20, np.log(self.candidate(number)["penalty"] / 8) ** 2)
            return self.scores[number]

    monkeypatch.setattr(choosing, "Search", Made)
    listed = [{"penalty": penalty} for penalty in penalties]
    mmmf = changed(REGISTRY["mmmf"], candidates=lambda *given: [] if given[2] else listed)
    found = choose(mmmf, ratings, {"n_components": 2}, 0)
    assert found.how[0].endswith("short fits" + said)
    assert found.values["penalty"] == pytest.approx(chosen, rel=0.3)


@pytest.mark.parametrize("name", ["urp", "pmf", "pmmmf"])
def test_lists_of_candidates_share_programs_and_choose_as_each_alone(ratings, name, monkeypatch):
    """Two lists, one after the other: each would compile its own programs for what the other one varies."""
    searches = []

    class Kept(choosing.Search):
        def __init__(self, *given):
            super().__init__(*given)
            searches.append(self)

    monkeypatch.setattr(choosing, "Search", Kept)
    choosing.swept.clear_cache()
    method, size = REGISTRY[name], {"n_components": 2}
    found = choose(method, ratings, size, 0).values
    assert len(searches) == 2
    assert len(searches[0].programs) + choosing.swept._cache_size() == 1

    monkeypatch.setattr(choosing, "varied", lambda *_: set())
    alone = choose(method, ratings, size, 0).values
    assert len(searches[2].programs) + choosing.swept._cache_size() > 1
    assert found.keys() == alone.keys()
    for setting, value in found.items():
        assert value == pytest.approx(alone[setting], rel=1e-5)
