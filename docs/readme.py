"""Update the methods in README.md, in its badge and in docs/choosing.md: `make readme`.

README.md gets the table of `bf.methods()` and the number of methods, the badge gets the number, and
docs/choosing.md gets a row for each method without a row. Rows of methods that no longer exist are removed;
other rows are not changed.
"""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from bayesfac import (
    cli,
    models,  # noqa: F401  # registers every method
)
from bayesfac.core.method import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {  # family of methods -> its section in docs/choosing.md
    "ratings": "## Ratings",
    "topics": "## Clusters and topics",
    "labels": "## Labels",
    "tasks": "## Tasks and views",
}


def pages() -> dict[Path, str]:
    """Map each file to the text that it must have."""
    readme = ROOT / "README.md"
    badge = ROOT / "docs" / "images" / "badge-methods.svg"
    choosing = ROOT / "docs" / "choosing.md"
    return {
        readme: with_table(readme.read_text(encoding="utf-8")),
        badge: re.sub(r"\d+, each", f"{len(REGISTRY)}, each", badge.read_text(encoding="utf-8")),
        choosing: with_rows(choosing.read_text(encoding="utf-8")),
    }


def with_table(text: str) -> str:
    """Put the number and the table of methods into README.md."""
    before, rest = text.split("<!-- methods:start -->\n")
    after = rest.split("<!-- methods:end -->")[1]
    before = re.sub(r"!\[\d+ methods\]", f"![{len(REGISTRY)} methods]", before)
    with redirect_stdout(StringIO()) as table:
        cli.main(["methods", "--markdown"])
    return f"{before}<!-- methods:start -->\n{table.getvalue()}<!-- methods:end -->{after}"


def with_rows(text: str) -> str:
    """Add rows to docs/choosing.md for methods that have none, remove rows of unknown methods."""
    row = re.compile(r"^\|[^|]*\| `(\w+)`")
    kept = [
        line for line in text.splitlines() if not (m := row.match(line)) or m.group(1) in REGISTRY
    ]
    listed = {m.group(1) for line in kept if (m := row.match(line))}
    for name in sorted(set(REGISTRY) - listed):
        method = REGISTRY[name]
        heading = SECTIONS[method.init.__module__.split(".")[2]]
        at = kept.index(heading) + 1
        while not (kept[at].startswith("|") and not kept[at + 1].startswith("|")):
            at += 1
        kept.insert(at + 1, f"| {method.paper.replace('|', '/')} | `{name}` | see its page |")
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
