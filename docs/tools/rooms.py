"""Draw which rooms of the package import which, for docs/architecture.md.

`python docs/tools/rooms.py` writes docs/images/rooms.svg; `make docs` runs it first. A room is a folder or a
module at the top of the package.
"""

import ast
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bayesfac"
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
WIDE, HIGH, ACROSS, DOWN = 148, 44, 14, 44  # a box, and the gaps beside and below it


def imports() -> dict[str, set[str]]:
    """{room: the other rooms that its files import}, counting imports inside functions and for types."""
    edges: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if room.startswith("__"):
            continue
        mine = edges.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            home = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (f"{home}{alias.name}".split(".") for alias in node.names):
                if name[0] == "bayesfac" and len(name) > 1 and is_room(name[1]):
                    mine.add(name[1])
        mine.discard(room)
    return edges


def is_room(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def folders(room: str) -> list[str]:
    """The rooms inside a room."""
    return sorted(p.parent.name for p in (PACKAGE / room).glob("*/__init__.py"))


def levels(edges: dict[str, set[str]]) -> dict[str, int]:
    """{room: its row, from below}: a room stands above all rooms that it imports."""
    row: dict[str, int] = {}

    def place(room: str, above: tuple[str, ...] = ()) -> int:
        if room in above:
            raise ValueError(f"Expected no circle of imports, got {' -> '.join([*above, room])}")
        if room not in row:
            row[room] = max((1 + place(other, (*above, room)) for other in edges[room]), default=0)
        return row[room]

    for room in edges:
        place(room)
    return row


def shortest(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports that do not follow from a chain of other imports."""

    def reach(room: str) -> set[str]:
        return edges[room] | {far for near in edges[room] for far in reach(near)}

    return {
        room: {b for b in near if not any(b in reach(a) for a in near - {b})}
        for room, near in edges.items()
    }


def drawing() -> str:
    """SVG: boxes in rows, and arrows from a room to what it imports."""
    edges = imports()
    row = levels(edges)
    rows = [sorted(r for r in edges if row[r] == k) for k in range(max(row.values()), -1, -1)]
    width = max(map(len, rows)) * (WIDE + ACROSS) + ACROSS
    height = len(rows) * (HIGH + DOWN) - DOWN + 20
    place = {
        room: ((width - len(rooms) * (WIDE + ACROSS) + ACROSS) / 2 + k * (WIDE + ACROSS), y)
        for y, rooms in zip(range(10, height, HIGH + DOWN), rows, strict=True)
        for k, room in enumerate(rooms)
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="sans-serif" text-anchor="middle">',
        "<title>Which rooms of bayesfac import which</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="#7a8699"/></marker>',
    ]
    for room, others in sorted(shortest(edges).items()):
        for other in sorted(others):
            (x, y), (u, v) = place[room], place[other]
            x, y, u = x + WIDE / 2, y + HIGH, u + WIDE / 2
            parts.append(
                f'<path d="M{x:.0f} {y} C{x:.0f} {y + DOWN} {u:.0f} {v - DOWN} {u:.0f} {v}" '
                'fill="none" stroke="#7a8699" marker-end="url(#tip)"/>'
            )
    for room, (x, y) in place.items():
        inside, middle = escape(", ".join(folders(room))), x + WIDE / 2
        parts += [
            f'<rect x="{x:.0f}" y="{y}" width="{WIDE}" height="{HIGH}" rx="5" fill="#eef2f8" '
            'stroke="#4a5568"/>',
            f'<text x="{middle:.0f}" y="{y + (19 if inside else 27)}" font-size="14">{room}</text>',
            f'<text x="{middle:.0f}" y="{y + 35}" font-size="10" fill="#4a5568">{inside}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))
