"""Tensors in a shell: a file with a column for each mode."""

from argparse import Namespace

import pytest

import bayesfac as bf
from bayesfac.cli import main, tables

ROWS = [f"d{i};t{j};{k};{i * j - k},5" for i in range(3) for j in range(3) for k in range(2)]
OWN = ["--columns", "drug,target,assay,ic50", "--decimal", ","]


def fit(folder, *more):
    (folder / "cells.csv").write_text("\n".join(["drug;target;assay;ic50", *ROWS]))
    kept = ["--out", str(folder / "fit"), "--set", "n_components=1", "--quiet"]
    return main(["fit", "cp", str(folder / "cells.csv"), *kept, *more])


def test_a_file_of_cells_is_fitted(tmp_path):
    assert fit(tmp_path, *OWN) == 0
    found = bf.load(tmp_path / "fit")
    assert found.data.columns == ["drug", "target", "assay"]
    assert found.data.summary["cells"] == 18 and found.data.summary["highest"] == 4.5
    assert found.predict({"drug": ["d0"], "target": ["t1"], "assay": [1]}).flagged.tolist() == [
        False
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--user", "drug"], "Expected --columns A,B,C,VALUE for a tensor, got --user"),
        (["--levels", "5"], "got --levels"),
        (["--bad", "skip"], "without bad rows for a tensor"),
        (
            ["--columns", "drug,target,ic50", "--decimal", ","],
            "3 or more labels for each cell, got 2",
        ),
        (
            ["--columns", "drug,target,drug,ic50", "--decimal", ","],
            "different columns, got 'drug' twice",
        ),
        (["--columns", "drug,target,assay,ic50,ic50", "--decimal", ","], "got 'ic50' twice"),
    ],
)
def test_what_is_not_for_tensors_is_refused(tmp_path, capsys, more, said):
    assert fit(tmp_path, *more) != 0
    assert said in capsys.readouterr().err


def test_labels_are_read_as_they_are_written(tmp_path):
    path = tmp_path / "cells.csv"
    head, rest = "drug,target,week,value\n", "01,NA,1,1\n1,b,2,5\n02,NA,1,3.5\n2,b,2,"
    no = dict.fromkeys(["user", "item", "rating", "levels", "columns", "separator"])
    args = Namespace(**no, bad="error", duplicates="error", decimal=".")
    path.write_text(head + rest)
    with pytest.raises(ValueError, match="finite values"):
        tables.tensor(str(path), args)
    path.write_text(head + rest + "4\n")
    made = tables.tensor(str(path), args)
    assert list(made.axes["drug"]) == ["01", "02", "1", "2"]
    assert list(made.axes["target"]) == ["NA", "b"] and list(made.axes["week"]) == [1, 2]
    assert made.value.tolist() == [1, 5, 3.5, 4]
    path.write_text("drug,target,week,value\na , NA, 1,1\na,b ,2,5\n")
    blank = tables.tensor(str(path), args)
    assert [list(index) for index in blank.axes.values()] == [["a"], ["NA", "b"], [1, 2]]


def test_a_file_with_two_columns_of_one_name_is_refused(tmp_path, capsys):
    (tmp_path / "cells.csv").write_text("drug,target,drug,value\na,x,1,1\nb,x,2,5\n")
    assert main(["fit", "cp", str(tmp_path / "cells.csv"), "--out", str(tmp_path / "fit")]) != 0
    assert (
        "Expected different columns in" in (err := capsys.readouterr().err)
        and "'drug' twice" in err
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expected a table in cells.csv, got an empty file"),
        ("a,b,c,value\n", "Expected at least one row in cells.csv, got none"),
        (
            "a,b,c,value\n1,2,4,5\n1,2,3,nan\n",
            "cells.csv: Expected finite values, got nan in row 1",
        ),
        (
            "a,b,c,value\n1,2,4,5\n1,2,4,6\n",
            "cells.csv: Expected one value for each cell, got a second in row 1",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cells.csv").write_text(text)
    assert main(["fit", "cp", "cells.csv", "--out", "fit"]) == 2
    assert said in capsys.readouterr().err
