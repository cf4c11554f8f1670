"""The search of `bf.auto`, with candidates whose scores are made up: order, sizes, the clock, the folder."""

import math
import warnings

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, CorruptFile
from bayesfac.inference.result import bar
from bayesfac.labels.evaluation.trials import Trial, write
from bayesfac.search import automatic as search
from bayesfac.search.automatic import candidates
from bayesfac.search.automatic.candidates import Candidate, Tried

RATINGS = bf.datasets.make_ratings(40, 30, 2, density=0.5, seed=0)
BEST = {"pmf": 20, "mmmf": 3}  # the best number of components of each made-up method


@pytest.fixture
def ran(monkeypatch):
    """The candidates that were run; each scores by its distance from the best size of its method."""
    calls = []

    def run(one, parts, weights, seed, path):
        calls.append((one.method, one.settings.get("n_components")))
        if one.method not in BEST:
            return one, Tried(one.name, refused="Expected something else")
        size = one.settings.get("n_components", 10)
        level = 0.0 if one.method == "pmf" else -0.1
        log = np.full(len(weights.group), level - abs(math.log(size / BEST[one.method])))
        log += 1e-3 * np.random.default_rng(size).standard_normal(len(log))
        found = candidates.LogScores(log, 1.0)
        result = candidates.scored(one.name, found, weights, size=size, seconds=5.0)
        if path is not None:
            write(path, Trial("data", one.name, 0, path), candidates._as_json(result))
        return one, result

    monkeypatch.setattr(search, "run", run)
    return calls


@pytest.fixture
def shown():
    return bar(False, 1, "auto")


def begun(ran, shown, end=math.inf, folder=None, grow=True, names=("pmf", "urp", "mmmf")):
    """A search that has been run."""
    found = search.Search(RATINGS, 0, folder, 1, end)
    found.run([[Candidate(name, {}) for name in names]], grow, shown)
    return found


def test_sizes_climb_to_the_best_of_the_leading_methods(ran, shown):
    found = begun(ran, shown)
    assert ran[:3] == [("pmf", None), ("urp", None), ("mmmf", None)]
    assert ran[3:] == [
        ("pmf", 7), ("pmf", 15), ("mmmf", 7), ("mmmf", 15),  # neighbours of 10
        ("pmf", 20), ("mmmf", 5),
        ("pmf", 30), ("mmmf", 3),
        ("mmmf", 2),
    ]  # fmt: skip
    assert found.best() == Candidate("pmf", {"n_components": 20})
    assert found.table()["candidate"].iloc[-1] == "urp"
    assert found.table()["notes"].iloc[-1] == "left out: Expected something else"


def test_sizes_that_are_given_are_the_only_ones(ran, shown):
    assert len(begun(ran, shown, grow=False).tried) == 3
    assert len(ran) == 3


def test_the_clock_ends_the_list_and_keeps_time_for_the_last_fit(ran, shown, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(search.time, "perf_counter", lambda: float(next(clock)))
    found = begun(ran, shown, end=5.5, names=("pmf", "mmmf", "urp"))
    # the first method runs in any case; after it 0 + 5 seconds are left for one more, 1 + 5 are not
    assert ran == [("pmf", None), ("mmmf", None)]
    assert "no time was left" in found.report()


def test_a_killed_search_goes_on_in_its_folder(ran, shown, tmp_path, monkeypatch):
    whole = begun(ran, shown)
    ran.clear()
    honest = search.run

    def killed(*args):
        if len(ran) == 4:
            raise SystemExit
        return honest(*args)

    monkeypatch.setattr(search, "run", killed)
    with pytest.raises(SystemExit):
        begun(ran, shown, folder=tmp_path)
    monkeypatch.setattr(search, "run", honest)
    before = [one for one in ran if one[0] in BEST]
    ran.clear()
    again = begun(ran, shown, folder=tmp_path)
    assert before and not set(before) & set(ran), "a finished candidate was run again"
    assert list(again.tried) == list(whole.tried)
    assert again.table().equals(whole.table()) and again.report() == whole.report()


def test_other_data_have_other_files(ran, shown, tmp_path):
    begun(ran, shown, folder=tmp_path, grow=False)
    number = len(list(tmp_path.iterdir()))
    found = search.Search(RATINGS, 1, tmp_path, 1, math.inf)
    found.run([[Candidate("pmf", {})]], False, shown)
    assert len(list(tmp_path.iterdir())) == number + 1
    for file in tmp_path.iterdir():
        file.write_text("{}")
    with pytest.raises(CorruptFile, match="bf.auto"):
        begun(ran, shown, folder=tmp_path)


def test_an_interrupt_ends_the_list(ran, shown, monkeypatch):
    honest = search.run

    def run(one, *rest):
        if one.method == "mmmf":
            raise KeyboardInterrupt
        return honest(one, *rest)

    monkeypatch.setattr(search, "run", run)
    found = begun(ran, shown, names=("pmf", "mmmf"))
    assert found.best().method == "pmf" and "it was interrupted" in found.report()
    with pytest.raises(KeyboardInterrupt):
        begun(ran, shown, names=("mmmf", "pmf"))


def test_the_error_of_a_difference_is_over_users(ran, shown):
    found = begun(ran, shown, grow=False, names=("pmf", "mmmf"))
    first, second = (result for _, result in found.tried.values())
    gap, error = found.behind(second)
    test = found.parts[1]
    n, users = len(test), np.asarray(test.frame()["user"])
    group = found.weights.group
    for g in np.unique(group):
        assert len(set(users[group == g])) == 1
    difference = first.sums - second.sums
    assert np.isclose(gap, difference.sum() / n)
    residual = difference - gap * np.bincount(group, minlength=len(difference))
    assert np.isclose(error, np.sqrt((residual**2).sum()) / n)
    assert found.behind(first) == (0.0, 0.0)


def test_the_report_names_what_is_as_good(ran, shown, monkeypatch):
    monkeypatch.setitem(BEST, "mmmf", 10)
    found = begun(ran, shown, grow=False, names=("mmmf", "pmf"))
    near = found.tried[repr(Candidate("mmmf", {}))][1]
    assert "within one standard error" not in found.report()
    noisy = near.sums + np.where(np.arange(len(near.sums)) % 2, 40.0, -40.0)
    monkeypatch.setitem(
        found.tried,
        repr(Candidate("mmmf", {})),
        (
            Candidate("mmmf", {}),
            Tried("mmmf", 10, found.ranked()[0][1].score - 0.01, 1.0, 1.0, noisy),
        ),
    )
    assert "1 more are within one standard error" in found.report()


def test_results_survive_their_file(tmp_path):
    one = Tried("pmf", 3, -math.inf, math.nan, 2.0, np.array([-1.5, -math.inf]), ("a note",))
    path = tmp_path / "x.json"
    write(path, Trial("data", "pmf", 0, path), candidates._as_json(one))
    again = candidates.from_json(search.read(path))
    assert (again.name, again.size, again.score, again.notes) == ("pmf", 3, -math.inf, ("a note",))
    assert math.isnan(again.measure) and again.sums.tolist() == [-1.5, -math.inf]


def test_no_method_for_the_data_is_an_error(ran, shown):
    found = begun(ran, shown, names=("urp",))
    with pytest.raises(BayesfacError, match="got none: urp: Expected something else"):
        found.best()


@pytest.mark.slow  # two processes start, and compile for themselves
def test_processes_do_not_change_the_table():
    how = {"methods": ["pmf", "mmmf"], "components": [1, 2], "seconds": math.inf, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (bf.auto(RATINGS, jobs=jobs, **how) for jobs in (1, 2))
    numbers = ["candidate", "components", "log score", "behind", "standard error", "RMSE"]
    assert one.tried[numbers].equals(two.tried[numbers])
