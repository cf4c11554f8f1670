"""Tensors in a shell: a file with a column for each mode."""

import pytest

import bayesfac as bf
from bayesfac.cli import main

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
    ],
)
def test_what_is_not_for_tensors_is_refused(tmp_path, capsys, more, said):
    assert fit(tmp_path, *more) != 0
    assert said in capsys.readouterr().err
