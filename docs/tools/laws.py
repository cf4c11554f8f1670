"""Write the table of laws in docs/compose.md: which engines run a factorization with each law.

python docs/tools/laws.py
"""

from pathlib import Path

import bayesfac as bf
from bayesfac import compose

PAGE = Path(__file__).resolve().parents[1] / "compose.md"
BEGIN, END = "|---|---|---|---|\n", "\n\n"  # the rule below its head, and the empty line after it


def rows() -> str:
    """The rows of the table, made from the records."""
    lines = []
    for name, law in compose.LAWS.items():
        plain, beside = (
            ", ".join(bf.factorization(observed=law(), biases=biases).engines)
            for biases in (False, True)
        )
        same = "the same" if plain == beside else beside
        lines.append(f"| `bf.{name}()` | {law.about} | {plain} | {same} |")
    return "\n".join(lines)


def page() -> str:
    """The page with this table."""
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    return before + BEGIN + rows() + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(PAGE.name)
