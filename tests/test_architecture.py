"""The page on architecture names the rooms that exist, and its drawing follows from the code."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "tools"))
import rooms  # noqa: E402

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_page_names_every_room_and_no_other():
    inner = {room: rooms.folders(room) for room in rooms.imports()}
    expected = {
        f"{room}/" if (rooms.PACKAGE / room).is_dir() else f"{room}.py"
        for room in inner
        if not inner[room] or len([*(rooms.PACKAGE / room).glob("*.py")]) > 1  # files of its own
    } | {f"{room}/{folder}/" for room, folders in inner.items() for folder in folders}
    assert set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.M)) == expected


def test_files_that_the_page_names_exist():
    for name in re.findall(r"`([\w/]+/[\w.]+\.py)`", PAGE):
        assert (ROOT / name).is_file() or (rooms.PACKAGE / name).is_file(), name


def test_the_drawing_is_that_of_the_code():
    assert rooms.PICTURE.read_text("utf-8") == rooms.drawing(), "run `python docs/tools/rooms.py`"


def test_a_circle_has_no_drawing():
    with pytest.raises(ValueError, match="a -> b -> a"):
        rooms.levels({"a": {"b"}, "b": {"a"}})


def test_arrows_that_follow_from_others_are_left_out():
    edges = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert rooms.shortest(edges) == {"a": {"b"}, "b": {"c"}, "c": set()}
