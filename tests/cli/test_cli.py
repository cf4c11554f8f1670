"""The command: what it prints where, its exit codes, and one clear line for every mistake."""

import io
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac import datasets
from bayesfac.cli import arguments, commands, main, options, outputs, texts
from bayesfac.core.method import REGISTRY

COMMANDS = [
    [],
    ["methods"],
    ["demo"],
    ["fit"],
    ["auto"],
    ["compare"],
    ["report"],
    ["predict"],
    ["recommend"],
    ["sbc"],
    ["data"],
    ["data", "list"],
    ["data", "fetch"],
    ["data", "split"],
    ["bench"],
    ["new-method"],
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *argv):
    """(exit code, standard output, standard error) of a command in this process."""
    code = main([str(word) for word in argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(capsys, *argv):
    """The one line that a bad command answers with."""
    code, _, err = run(capsys, *argv)
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("bayesfac: error: ")
    assert "Traceback" not in err
    return line.removeprefix("bayesfac: error: ")


# -- help and the outside -------------------------------------------------------------------------
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: bayesfac")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", [name for name in vars(texts) if name.endswith("EXAMPLES")])
def test_the_examples_in_the_help_can_be_parsed(name):
    text = getattr(texts, name)
    lines = [re.split(" {2,}", line.strip())[0].split() for line in text.splitlines()]
    examples = [words[1:] for words in lines if words[:1] == ["bayesfac"]]
    assert examples, "no line of the help begins with the command"
    for words in examples:
        assert options.build_parser().parse_args(words).run


def test_help_and_mistakes_load_nothing_heavy():
    """Without JAX, NumPy and pandas help takes 0.1 s; with JAX a second."""
    heavy = "{'jax', 'numpy', 'pandas'} & set(sys.modules)"
    code = f"import sys; from bayesfac.cli import main; c = main(['fitt']); print(c, {heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 set()"
    assert len(done.stderr.splitlines()) == 1


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"bayesfac {bf.__version__}\n"


def test_a_process_of_its_own(tmp_path):
    """Exit code, streams and a reader that goes away, seen from outside."""
    command = [sys.executable, "-m", "bayesfac.cli"]
    bad = subprocess.run([*command, "report", "none"], cwd=tmp_path, capture_output=True, text=True)
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert len(bad.stderr.splitlines()) == 1
    piped = subprocess.Popen([*command, "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    piped.stdout.close()
    assert piped.stderr.read() == b""
    piped.stderr.close()
    assert piped.wait() == 0


# -- methods, data, bench -------------------------------------------------------------------------
def test_methods_as_text_and_as_markdown(capsys):
    code, out, _ = run(capsys, "methods")
    assert code == 0
    assert all(name in out for name in REGISTRY)
    code, out, _ = run(capsys, "methods", "--markdown")
    lines = out.splitlines()
    assert lines[1].startswith("| --- |")
    assert [line.split("`")[1] for line in lines[2:]] == list(bf.methods().index)
    assert len({line.count(" | ") for line in lines}) == 1


def test_a_bar_in_a_cell_does_not_break_the_markdown():
    table = pd.DataFrame({"what": ["p(x|y)"]}, index=pd.Index(["m"], name="method"))
    assert outputs.markdown(table).splitlines()[2] == r"| `m` | p(x\|y) |"


def test_data_list_and_fetch(capsys):
    code, out, _ = run(capsys, "data", "list")
    assert code == 0
    assert all(name in out for name in datasets.list().index)
    assert run(capsys, "data", "fetch", "digits")[1] == "digits is made here and needs no file\n"


def test_data_split_writes_a_partition(capsys, here):
    code, out, _ = run(capsys, "data", "split", "ratings", "--fraction", "0.25", "--out", "parts")
    assert code == 0
    assert "train.csv: 6750 ratings" in out
    parts = pd.concat([pd.read_csv(here / "parts" / f"{name}.csv") for name in ("train", "test")])
    whole = datasets.load("ratings").frame()
    assert set(map(tuple, parts.to_numpy())) == set(map(tuple, whole.to_numpy()))
    assert len(parts) == len(whole)


def test_columns_and_decimal_commas_by_option(capsys, here):
    rows = [f"{note};k{i};x{i % 3}" for i, note in enumerate(["4,5", "3,0"] * 5)]
    (here / "own.csv").write_text("\n".join(["note;kunde;ware", *rows]))
    own = ["--user", "kunde", "--item", "ware", "--rating", "note", "--decimal", ","]
    assert run(capsys, "data", "split", "own.csv", "--fraction", "0.2", *own)[0] == 0
    parts = pd.concat([pd.read_csv(here / f"{name}.csv") for name in ("train", "test")])
    assert set(parts["user"]) == {f"k{i}" for i in range(10)}
    assert set(parts["rating"]) == {4.5, 3.0}


def test_levels_in_steps_are_the_decimals_that_a_file_writes():
    """As binary numbers three steps of 0.1 are not 0.3, and a rating of 0.3 was refused."""
    tenths = tuple(float(f"0.{digit}") for digit in range(10))
    assert arguments.levels("0:0.9:0.1") == tenths
    assert arguments.levels("0.5:5:0.5") == tuple(i / 2 for i in range(1, 11))
    assert arguments.levels("-1:1") == (-1.0, 0.0, 1.0)


def test_levels_of_a_data_set_are_those_that_were_asked_for():
    args = options.build_parser().parse_args(["fit", "bpmf", "ratings", "--levels", "0:5", "-q"])
    found = commands._data(args.data, "ratings", args)
    assert found.levels == (0, 1, 2, 3, 4, 5) and found.name == "ratings"
    pd.testing.assert_frame_equal(found.frame(), datasets.load("ratings").frame())


def test_bench_runs_the_script_of_a_checkout(capsys, here, monkeypatch):
    (here / "benchmarks").mkdir()
    (here / "benchmarks" / "quick.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(commands, "__file__", str(here / "bayesfac" / "cli" / "commands.py"))
    assert run(capsys, "bench", "quick")[0] == 3
    assert "did you mean 'quick'" in refused(capsys, "bench", "quik")
    (here / "benchmarks" / "quick.py").unlink()
    assert "Expected a source checkout" in refused(capsys, "bench", "all")
    assert "required: NAME" in refused(capsys, "bench")


# -- fit, compare, report -------------------------------------------------------------------------
@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two small fits on text and number ids, and their held-out ratings, made by the command."""
    folder = tmp_path_factory.mktemp("saved")
    ratings = datasets.make_ratings(30, 20, rank=2, density=0.5, seed=0, noise=0.4)
    frame = ratings.frame().assign(user=[f"u{code}" for code in ratings.user])
    frame.loc[frame["user"] == "u3", "user"] = "NA"
    frame[::5].to_csv(folder / "test.csv", index=False)
    frame[np.arange(len(frame)) % 5 > 0].to_csv(folder / "train.csv", index=False)
    common = ["fit", "pmf", str(folder / "train.csv"), "--levels", "1:5", "-q"]
    small = ["--set", "n_components=2", "--seed", "1"]
    assert main([*common, *small, "--out", str(folder / "point")]) == 0
    gibbs = ["--engine", "gibbs", "--warmup", "20", "--draws", "20", "--chains", "2"]
    assert main([*common, *small, *gibbs, "--out", str(folder / "draws")]) == 0
    return folder


def test_fit_saves_what_the_library_would_have_fitted(saved):
    train = datasets.read(saved / "train.csv", levels=5)
    assert "NA" in train.users
    direct = bf.fit("pmf", train, n_components=2, seed=1, progress=False)
    loaded = bf.load(saved / "point")
    np.testing.assert_allclose(loaded.params.U, direct.params.U, rtol=1e-4, atol=1e-5)
    drawn = bf.load(saved / "draws")
    assert drawn.engine == bf.Gibbs(warmup=20, draws=20, chains=2)
    assert drawn.hyper.n_components == 2


def test_fit_says_how_it_went(capsys, here):
    argv = ["fit", "pmf", "ratings", "--set", "n_components=2", "--max-iter", "2"]
    code, out, err = run(capsys, *argv)
    assert code == 0
    assert out.startswith("Ratings(300 users")
    assert "saved in pmf-fixedpoint" in out
    assert err.startswith("bayesfac: warning: pmf did not converge")
    code, _, _ = run(capsys, *argv, "--strict", "--out", "again")
    assert code == 1
    assert (here / "again").is_dir(), "a fit that fails its diagnostics is kept all the same"


def test_compare_reads_ids_as_the_fits_have_them(capsys, saved, here):
    fits = [f"point={saved / 'point'}", f"draws={saved / 'draws'}"]
    code, out, _ = run(capsys, "compare", *fits, "--test", saved / "test.csv", "--html", "c.html")
    assert code == 0
    assert "point" in out
    assert "RMSE" in out
    check_page(here / "c.html", ["point", "draws"])
    only = here / "numbers.csv"
    only.write_text("user,item,rating\n1,2,3\n")
    assert main(["compare", *fits, "--test", str(only)]) == 0, "unknown users are not an error"
    capsys.readouterr()
    only.write_text("user,item,rating\nu1,x,3\n")
    assert "whole number as item in" in refused(capsys, "compare", *fits, "--test", only)


def test_compare_scores_recommendations_with_the_training_data(capsys, saved, here):
    argv = ["compare", f"point={saved}/point", "--test", saved / "test.csv"]
    code, out, _ = run(capsys, *argv, "--train", saved / "train.csv")
    assert code == 0
    assert "popularity" in out and "NDCG@10" in out


def test_predict_and_recommend_write_what_the_library_says(capsys, saved, here):
    pairs = datasets.read_pairs(saved / "test.csv")
    code, out, err = run(capsys, "predict", saved / "draws", saved / "test.csv", "-q")
    assert (code, err) == (0, "")
    direct = bf.load(saved / "draws").predict(pairs).frame()
    (here / "said.csv").write_text(out)
    np.testing.assert_allclose(pd.read_csv(here / "said.csv")["lower"], direct["lower"], rtol=1e-5)
    top = ["recommend", saved / "draws", "--users", "u1", "NA", "--n", "3"]
    code, out, err = run(capsys, *top, "--exclude", saved / "train.csv", "--out", "top.parquet")
    assert (code, out) == (0, "6 rows in top.parquet\n")
    assert "share of the draws" in err
    train = datasets.read(saved / "train.csv", levels=5)
    direct = bf.load(saved / "draws").recommend(["u1", "NA"], 3, exclude=train)
    pd.testing.assert_frame_equal(pd.read_parquet("top.parquet"), direct, check_dtype=False)
    pairs = train.frame()[["item", "user"]].rename(columns={"item": "film"})
    pairs.to_csv("pairs.csv", index=False)
    code, out, _ = run(capsys, *top, "--exclude", "pairs.csv", "--item", "film")
    assert code == 0
    np.testing.assert_allclose(pd.read_csv(io.StringIO(out))["mean"], direct["mean"], rtol=1e-5)


def test_report_and_its_verdict(capsys, saved, here):
    code, out, _ = run(capsys, "report", saved / "draws", "--html", "r.html", "--strict")
    assert code == 1, "40 draws are not enough"
    assert "pmf by Gibbs" in out
    check_page(here / "r.html", ["pmf"])
    assert run(capsys, "report", saved / "point", "--strict")[0] == 0


def check_page(path, words):
    text = path.read_text(encoding="utf-8")
    HTMLParser().feed(text)
    assert "<html" in text
    assert all(word in text for word in words)


@pytest.mark.slow
def test_the_demo_writes_its_page(capsys, here):
    code, out, err = run(capsys, "demo", "--fast", "--out", "page.html")
    assert code == 0
    assert all(line.startswith("bayesfac: warning: ") for line in err.splitlines())
    assert "report: page.html" in out
    check_page(here / "page.html", ["point", "Quick", "Gibbs"])


def test_the_demo_fits_all_and_compares_them(capsys, here, monkeypatch):
    """The same without the work: what is asked of the library, in which order."""
    calls = []

    def fit(method, data, engine=None, **options):
        calls.append((method, len(data), engine, options.get("init")))
        return SimpleNamespace(diagnostics=lambda: "a verdict")

    def compare(fits, test):
        calls.append((*fits, len(test)))
        return SimpleNamespace(to_html=lambda path: (here / path).write_text("<html>"))

    monkeypatch.setattr(bf, "fit", fit)
    monkeypatch.setattr(bf, "compare", compare)
    assert run(capsys, "demo", "--fast")[0] == 0
    point, quick, draws, compared = calls
    assert point[:3] == ("bpmf", 4001, None)
    assert quick[2] == bf.Quick() and quick[3] is None
    assert draws[2] == bf.Gibbs(warmup=100, draws=100, chains=4)
    assert draws[3] is not None, "the draws start from the point"
    assert compared == ("point", "Quick", "Gibbs", 1000)
    assert (here / "report.html").is_file()


# -- mistakes -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("fitt", "invalid choice: 'fitt'"),
        ("fit", "required: METHOD, DATA"),
        (
            "fit bpmf ratings --engin gibbs",
            "--engin gibbs; did you mean --engine? (see bayesfac fit --help",
        ),
        ("fit bpmf ratings --rank=3", "unrecognized arguments: --rank=3 (see bayesfac fit"),
        ("--versoin methods", "did you mean --version?"),
        ("fit bpmff ratings", "did you mean 'bpmf'"),
        ("fit bpmf ratings --engine gibs", "did you mean 'gibbs'"),
        ("fit bpmf ratings --set n_component=3", "did you mean 'n_components'"),
        ("fit bpmf ratings --engine svi --with guid=flow", "did you mean 'guide'"),
        ("fit bpmf ratings --engine svi --with guide=flo", "Expected guide to be one of"),
        (
            "fit pmf ratings --max-iter 5 --with max_iter=7",
            "--max-iter or --with max_iter=..., got both",
        ),
        ("fit bpmf ratings --engine svi --chains 2", "setting of SVI 'chains'"),
        ("fit bpmf ratings --draws many", "--draws: invalid int value: 'many'"),
        ("fit bpmf ratings --set n_components", "Expected NAME=VALUE, got 'n_components'"),
        ("fit bpmf ratings --set n_components=0", "n_components between 1 and"),
        ("fit bpmf ratings --seed -1", "Expected a seed"),
        ("fit bpmf rating", "did you mean 'ratings'"),
        ("fit bpmf none.csv", "none.csv, which does not exist"),
        ("fit bpmf digits", "Expected ratings, got the data set 'digits'"),
        ("fit plsa ratings", "Expected views, got the data set 'ratings'"),
        ("fit leml good.csv", "got one of rows with labels, which the command does not read"),
        ("fit bpmf bad.csv", "got 'four' in line 3"),
        ("fit bpmf good.csv --levels 1:3", "got 4 in line 2"),
        (
            "fit bpmf good.csv --levels one",
            "--levels: Expected 5, 1:5, 0.5:5:0.5 or 0.5,1,2, got 'one'",
        ),
        ("fit bpmf good.csv --levels 5:1", "or 0.5,1,2, got '5:1'"),
        ("fit bpmf good.csv --levels 1:4.6", "or 0.5,1,2, got '1:4.6'"),
        ("fit bpmf good.csv --levels 1:5:1:5", "or 0.5,1,2, got '1:5:1:5'"),
        ("fit bpmf ratings --levels 1:4", "Expected one of the levels (1.0, 2.0, 3.0, 4.0), got 5"),
        ("fit plsa digits --levels 1:5", "Expected --levels for ratings, got it for views"),
        ("fit wrmf good.csv --levels 1:5", "Expected --levels for ratings, got it for counts"),
        ("fit bpmf good.csv --levels 0", "or 0.5,1,2, got '0'"),
        ("fit bpmf good.csv --columns who,item,rating", "a column 'who'"),
        ("fit bpmf good.csv --columns user,item", "Expected 3 columns"),
        ("fit bpmf ratings --columns a,b,c", "Expected a file for --columns"),
        ("fit bpmf ratings --item a", "Expected a file for --item"),
        ("fit bpmf own.csv", "got ['kunde', 'film', 'note']. Say which is which"),
        ("fit bpmf own.csv --user kunde", "--user NAME --item NAME --rating NAME"),
        ("fit bpmf own.csv --user who --rating note", "a column 'who' in own.csv"),
        ("fit bpmf good.csv --columns user,item,rating --user x", "Expected --columns or --user"),
        ("fit bpmf empty.csv", "Expected a table in empty.csv, got an empty file"),
        ("fit bpmf ratings --out good.csv", "a new folder as --out, got good.csv"),
        ("compare a --test good.csv", "Expected NAME=VALUE, got 'a'"),
        ("compare a=x", "required: --test"),
        ("compare a=x a=y --test good.csv", "another NAME for each fit, got a=x a=y"),
        ("compare a=none --test good.csv", "none"),
        ("report none", "none"),
        ("report .", "Expected a folder written by Fit.save"),
        ("report none --html no/where/r.html", "a writable folder for no/where/r.html"),
        ("demo --out no/where/r.html", "a writable folder for no/where/r.html"),
        ("demo --out .", "Expected the name of a file to write, got the folder ."),
        ("predict none good.csv --out p.csv.gz", "a .csv or .parquet file as --out, got p.csv.gz"),
        ("recommend none --out best.xlsx", "a .csv or .parquet file as --out, got best.xlsx"),
        ("data fetch movielens", "did you mean 'movielens-1"),
        ("data split ratings --fraction 2", "fraction between 0 and 1, got 2.0"),
        ("data split good.csv --out good.csv", "Expected a folder as --out, got the file good.csv"),
        (
            "fit bpmf ratings --engine vb --with widen=no",
            "VB(widen=...) as True or False, got 'no'",
        ),
        ("fit pmf ratings --with tol=small", "FixedPoint(tol=...) in [0, 1), got 'small'"),
        ("data split digits", "Expected ratings, got the data set 'digits'"),
    ],
)
def test_every_mistake_is_one_line(capsys, here, typed, said):
    (here / "good.csv").write_text("user,item,rating\na,x,4\nb,x,2\nb,y,1\n")
    (here / "own.csv").write_text("kunde,film,note\na,x,4\n")
    (here / "empty.csv").write_text("")
    (here / "bad.csv").write_text("user,item,rating\na,x,4\nb,x,four\n")
    assert said in refused(capsys, *typed.split())


@pytest.mark.parametrize("typed", ["fit pmf ratings", "data split ratings", "demo", "predict a b"])
def test_a_name_that_is_empty_is_refused(capsys, here, typed):
    assert "argument --out: Expected a name, got ''" in refused(capsys, *typed.split(), "--out", "")
    assert "argument --out: Expected a name, got ''" in refused(capsys, *typed.split(), "--out=")
    assert not list(here.iterdir())


def test_verbose_shows_where_it_came_from(capsys):
    code, _, err = run(capsys, "-v", "report", "none")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("bayesfac: error: ")


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_unforeseen_error_names_its_kind(capsys, monkeypatch, place):
    def broken():
        raise RuntimeError("a surprise\nin two lines")

    monkeypatch.setattr(bf, "methods", broken)
    assert refused(capsys, "methods") == "RuntimeError: a surprise in two lines (-v shows where)"
    words = ["-v", "methods"] if place == "before" else ["methods", "-v"]
    assert "Traceback" in run(capsys, *words)[2]


def test_an_interrupt_has_its_own_code(capsys, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(bf, "methods", stop)
    assert run(capsys, "methods") == (130, "", "bayesfac: interrupted\n")
