"""`bayesfac new-method` in a copy of the checkout: the files, their tests, and what it refuses."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bayesfac.cli import new_method
from tests.tools import house

ROOT = Path(__file__).resolve().parents[2]
NEEDED = "bayesfac tests docs notebooks benchmarks paper pyproject.toml README.md".split()


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the command and the tests of a method need."""
    for name in NEEDED:
        place = tmp_path / "copy" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place)
    return tmp_path / "copy"


def run(checkout, *words):
    """(exit code, standard output, standard error) of a command in the copy."""
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "new_method"))
    env = {**os.environ, "PYTHONPATH": str(checkout), "JAX_COMPILATION_CACHE_DIR": cache}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def content(checkout):
    """The bytes of every file, without those that Python and pytest make."""
    files = (f for f in checkout.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    return {f.relative_to(checkout).as_posix(): f.read_bytes() for f in files}


def test_three_files_are_written_and_no_other(checkout):
    before = content(checkout)
    code, out, err = run(
        checkout, "bayesfac.cli", "new-method", "demo_method", "--family", "topics"
    )
    assert (code, err) == (0, "")
    after = content(checkout)
    changed = [path for path, text in after.items() if before.get(path) != text]
    assert sorted(changed) == [
        "bayesfac/models/topics/demo_method.py",
        "bayesfac/references.bib",
        "tests/models/topics/test_demo_method.py",
    ]
    assert all(f"wrote {path}\n" in out for path in changed)
    bibliography = after["bayesfac/references.bib"]
    assert bibliography.startswith(before["bayesfac/references.bib"])
    assert b"\n@article{demo_method,\n" in bibliography
    again = run(checkout, "bayesfac.cli", "new-method", "demo_method")
    assert again[0] == 2 and len(again[2].splitlines()) == 1
    assert content(checkout) == after


@pytest.mark.slow
@pytest.mark.parametrize("family", new_method.SKELETONS)
def test_all_tests_of_a_method_pass(checkout, family):
    """Its own, and those that every method goes through, the slow ones too."""
    assert run(checkout, "bayesfac.cli", "new-method", "demo_method", "--family", family)[0] == 0
    some = ["-k", "demo_method or registered or method_files", "-q", "-p", "no:cacheprovider"]
    code, out, _ = run(checkout, "pytest", "tests", *some)
    assert code == 0, out
    assert "failed" not in out and "passed" in out


@pytest.mark.parametrize("family", new_method.SKELETONS)
def test_its_folder_has_room_for_many(checkout, family):
    """More methods than a folder may have other files, as the ratings have; their private files count."""
    package = checkout / "bayesfac"
    # a folder without it is what Python left of an older version
    (folder,) = (p.parent for p in package.rglob(f"models/{family}/__init__.py"))
    for number in range(house.CROWDED + 1):
        for path, text in new_method.laid_out(checkout, f"demo_{number}", family).items():
            (checkout / path).write_text(text)
    assert house.crowded(package) == {}
    for number in range(house.CROWDED + 1):
        (folder / f"_demo_{number}.py").write_text("")
    assert list(house.crowded(package)) == [folder.relative_to(checkout).as_posix()]


@pytest.mark.slow
def test_lint_passes_with_one_more_method_of_each_family(checkout):
    for family in new_method.SKELETONS:
        words = ("new-method", f"demo_{family}", "--family", family)
        assert run(checkout, "bayesfac.cli", *words)[0] == 0
    for check in (("tests.tools.house",), ("mypy",), ("ruff", "check", "bayesfac")):
        code, out, err = run(checkout, *check)
        assert code == 0, out + err


@pytest.mark.parametrize("family", new_method.ALONE)
def test_a_family_without_a_skeleton_says_what_to_copy(family):
    with pytest.raises(ValueError, match=f"got {family}: begin with a copy of bayesfac") as refused:
        new_method.laid_out(ROOT, "demo_method", family)
    (path,) = [word for word in str(refused.value).split() if word.startswith("bayesfac/models")]
    assert (ROOT / path.rstrip(",")).is_file()


def test_every_family_has_a_skeleton_or_a_reason():
    folders = {path.parent.name for path in house.methods()}
    assert folders == {*new_method.SKELETONS, *new_method.ALONE}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pmf", "Expected the name of a new method, got 'pmf': see bayesfac/models/ratings/pmf.py"),
        ("hofmann1999plsa", "got 'hofmann1999plsa': see bayesfac/references.bib"),
        ("class", "Expected NAME to be a Python identifier in lower case"),
        ("two words", "got 'two words'"),
        ("Demo", "got 'Demo'"),
        ("_private", "got '_private'"),
    ],
)
def test_a_name_that_cannot_be_is_refused(name, told):
    with pytest.raises((ValueError, FileExistsError)) as refused:
        new_method.laid_out(ROOT, name, "ratings")
    assert told in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_an_installed_package_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="works in a source checkout of bayesfac only"):
        new_method.laid_out(tmp_path, "demo_method", "ratings")


def test_nothing_is_written_where_one_file_cannot_be(checkout):
    """The folder of the tests is a file: the method and the bibliography stay as they were."""
    shutil.rmtree(checkout / "tests" / "models" / "ratings")
    (checkout / "tests" / "models" / "ratings").write_text("in the way")
    before = content(checkout)
    code, _, err = run(checkout, "bayesfac.cli", "new-method", "demo_method")
    assert code == 2 and len(err.splitlines()) == 1
    assert content(checkout) == before
