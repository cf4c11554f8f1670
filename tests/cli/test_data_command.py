"""`bayesfac data split` beside its input, and options of files beside a data set by name."""

import subprocess
import sys

import pandas as pd
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


def test_labels_that_no_folder_holds_are_refused_before_the_fit(capsys, tmp_path, monkeypatch):
    """In a process of its own, as the first reader: another one has told pyarrow what periods are."""
    pytest.importorskip("pyarrow", reason="parquet needs the extra bayesfac[datasets]")
    monkeypatch.chdir(tmp_path)
    months = pd.period_range("2020-01", periods=6, freq="M").repeat(2)
    table = pd.DataFrame({"user": months, "item": [1, 2] * 6, "rating": range(12)})
    table.to_parquet("r.parquet")
    command = [sys.executable, "-m", "bayesfac.cli", "fit", "pmf", "r.parquet", "--out", "fit"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (
        done.returncode == 2
        and "Expected user labels that are numbers, text or dates" in done.stderr
    )
    monkeypatch.setattr(bf, "fit", None)
    monkeypatch.setattr(bf, "auto", None)
    for words in (["fit", "pmf"], ["auto"]):
        assert "got Period('2020-01', 'M')" in refused(capsys, *words, "r.parquet", "--out", "fit")
    assert not (tmp_path / "fit").exists()
