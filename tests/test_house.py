"""The shape of the package: no circle of imports, no crowded folder; long methods are named."""

import warnings

from tests.tools import house


def package(folder, **files):
    """Write a small package; in a file's name, two underscores stand for a slash."""
    for name, text in files.items():
        file = folder / "toy" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "toy"


def test_no_circle_of_imports():
    assert house.circles() == [], "break each circle: see `python -m tests.tools.house`"


def test_no_crowded_folder():
    assert house.crowded() == {}, "divide each folder into rooms"


def test_little_is_repeated():
    assert house.repeated() < house.REPEATED, "share the steps that stand twice"


def test_few_places_ask_which_container_data_are():
    assert len(house.asking()) <= house.ASKING, "ask the container: see core/data/container.py"


def test_a_place_that_asks_is_found(tmp_path):
    asks = "isinstance(x, Ratings)\nx.kind in ('Views',)\ntype(x) is not Counts\nx.implicit\n"
    toy = package(tmp_path, a=asks, b="isinstance(x, dict)\ny.kind == 'sampler'\n")
    assert [line for _, line, _ in house.asking(toy)] == [1, 2, 3]


def test_a_repetition_is_found(tmp_path):
    same = "".join(f"x{k} = {k}\n" for k in range(6))
    toy = package(tmp_path, a=same, b=f"import a\n# other\n{same}y = 1\nz = 2\n")
    assert house.repeated(toy) == 12 / 14
    toy = package(tmp_path, b=same.replace("x3", "y3"))
    assert house.repeated(toy) == 0


def test_long_methods_are_named():
    for name, size in house.long_methods().items():
        told = f"soft limit: {name} and its private files have {size} lines, aim: 300"
        warnings.warn(told, stacklevel=1)


def test_a_circle_through_a_function_is_found(tmp_path):
    toy = package(
        tmp_path,
        a="from toy.room import b",
        room__b="def f():\n    import toy.c",
        c="from toy.a import name",
        d="from toy import a",
    )
    assert house.circles(toy) == [["toy.a", "toy.c", "toy.room.b"]]


def test_an_import_for_type_checkers_makes_a_circle_too(tmp_path):
    toy = package(tmp_path, a="import toy.b", b="if TYPE_CHECKING:\n    from toy.a import A")
    assert house.circles(toy) == [["toy.a", "toy.b"]]


def test_a_crowded_folder_is_found(tmp_path):
    toy = package(tmp_path, room____init__="", **{f"room__m{k}": "" for k in range(16)})
    assert house.crowded(toy) == {}
    toy = package(tmp_path, room__one_more="")
    assert house.crowded(toy) == {"toy/room": 17}


def test_methods_do_not_crowd_the_folder_of_their_family(tmp_path):
    toy = package(tmp_path, **{f"models__f__m{k}": "" for k in range(17)})
    assert house.crowded(toy) == {}
    toy = package(tmp_path, **{f"models__f___m{k}": "" for k in range(17)})
    assert house.crowded(toy) == {"toy/models/f": 17}


def test_a_long_method_is_found_unless_its_header_argues(tmp_path):
    line = "x = 1\n"
    files = {"models__f__long": 200 * line, "models__f___long_part": 101 * line}
    toy = package(tmp_path, models__f__short=300 * line, **files)
    assert house.long_methods(toy) == {"long": 301}
    files["models__f__long"] = f'"""Long.\n\nLength: two derivations.\n"""\n{200 * line}'
    assert house.long_methods(package(tmp_path, **files)) == {}
