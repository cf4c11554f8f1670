"""`bayesfac data split` beside its input, and options of files beside a data set by name."""

import pytest

import bayesfac as bf
from tests.cli.test_cli import refused, run


def test_split_does_not_replace_its_input(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bf.datasets.make_ratings(20, 15, 2, seed=0).frame().to_csv("train.csv", index=False)
    before = (tmp_path / "train.csv").read_bytes()
    message = refused(capsys, "data", "split", "train.csv", "--out", str(tmp_path))
    assert message.startswith("Expected another folder as --out, got the one of train.csv")
    assert (tmp_path / "train.csv").read_bytes() == before and not (tmp_path / "test.csv").exists()
    (tmp_path / "parts").mkdir()
    for _ in range(2):  # the same command may run again
        assert run(capsys, "data", "split", "train.csv", "--out", "parts")[0] == 0


@pytest.mark.parametrize("option", ["--bad skip", "--decimal ,", "--duplicates mean"])
def test_options_of_files_are_refused_for_data_by_name(capsys, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    message = refused(capsys, "fit", "bpmf", "ratings", *option.split())
    name = option.split()[0]
    assert message.startswith(f"Expected a file for {name}, got the data set 'ratings'")


def test_options_of_files_are_refused_where_recommend_reads_none(capsys):
    message = refused(capsys, "recommend", "draws", "--user", "who")
    assert message.startswith("Expected --exclude FILE beside --user, got none")
