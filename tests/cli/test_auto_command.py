"""`bayesfac auto`: what it prints and saves, and what it refuses before any computation."""

import bayesfac as bf
from tests.cli.test_cli import refused, run


def test_auto_prints_the_table_and_saves_the_winner(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ratings = bf.datasets.make_ratings(30, 20, 2, density=0.5, seed=0)
    ratings.frame().to_csv("r.csv", index=False)
    words = ["auto", "r.csv", "--levels", "1:5", "--methods", "pmf,bmmmf", "--components", "2"]
    words += ["--keep", "tried", "--seconds", "1e6", "--out", "best"]
    code, out, _ = run(capsys, *words)
    assert code == 0 and len(list((tmp_path / "tried").iterdir())) == 1
    table, _, rest = out.partition("\n\n")
    _, rows = table.split(" seconds\n")  # the header's last column
    tried, notes = rows.splitlines()[:3], rows.splitlines()[3:]
    assert sorted(line.split()[0] for line in tried) == ["biases", "bmmmf", "pmf"]
    assert any(note.startswith("bmmmf: left out: Expected two levels") for note in notes)
    assert "chosen by bf.auto: pmf with n_components=2" in rest and "saved in best" in rest
    assert bf.load("best").tried["candidate"].iloc[-1] == "bmmmf"
    assert refused(capsys, *words).startswith("Expected a new folder as --out, got best")


def test_mistakes_of_auto(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("user,item,rating\n1,1,nan\n")
    assert "got 'x'" in refused(capsys, "auto", "r.csv", "--components", "x")
    assert "did you mean --seconds?" in refused(capsys, "auto", "r.csv", "--second", "3")
    assert "line 2" in refused(capsys, "auto", "r.csv")
    assert "did you mean 'pmf'" in refused(capsys, "auto", "ratings", "--methods", "pmff")
    assert "Expected seconds" in refused(capsys, "auto", "ratings", "--seconds", "-1")
