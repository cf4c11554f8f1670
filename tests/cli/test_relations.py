"""Several matrices in a shell: ratings, and a file for each matrix beside them."""

import pytest

import bayesfac as bf
from bayesfac.cli import main

RATINGS = ["user,item,rating", *(f"u{i},i{j},{i * j % 5}" for i in range(4) for j in range(4))]
TAGS = ["tag,user,mark", *(f"t{j},u{i},{i - j}" for i in range(6) for j in range(2))]


def fit(folder, method, *more):
    (folder / "ratings.csv").write_text("\n".join(RATINGS))
    (folder / "tags.csv").write_text("\n".join(TAGS))
    kept = ["--out", str(folder / "fit"), "--set", "n_components=1", "--quiet"]
    return main(["fit", method, str(folder / "ratings.csv"), *kept, *more])


def test_files_of_several_matrices_are_fitted(tmp_path):
    assert fit(tmp_path, "cmf", "--matrix", f"tags=user,tag,{tmp_path / 'tags.csv'}") == 0
    found = bf.load(tmp_path / "fit")
    assert found.data.summary["cells of tags"] == 12 and len(found.data.coords["user"]) == 6
    assert found.predict({"user": ["u5"], "item": ["i1"]}).flagged.tolist() == [False]


@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ("bpmf", ["--matrix", "tags=user,tag,tags.csv"], "several matrices for --matrix, got bpmf"),
        ("cmf", ["--matrix", "tags=user,tag,no.csv"], "a CSV file of the matrix 'tags', got 'no.csv'"),
        ("cmf", ["--matrix", "tags=user"], "Expected NAME=ROWS,COLUMNS,FILE, got 'tags=user'"),
        ("cmf", ["--matrix", "tags"], "Expected NAME=ROWS,COLUMNS,FILE, got 'tags'"),
        ("cmf", ["--matrix", "tags=user,tag,"], "Expected NAME=ROWS,COLUMNS,FILE, got 'tags=user,tag,'"),
    ],
)  # fmt: skip
def test_wrong_matrices_are_refused(tmp_path, capsys, method, more, said):
    assert fit(tmp_path, method, *more) != 0
    assert said in capsys.readouterr().err
