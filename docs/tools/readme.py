"""Update the methods in README.md, in its badge and in docs/choosing.md: `make readme`.

README.md gets the number of methods, ten of them by task, and the figures that `benchmarks/first_result.py`
and `benchmarks/new_films.py` measured. The badge gets the number. docs/choosing.md gets a row for each method
without a row; rows of methods that no longer exist are removed, and other rows are not changed.
"""

import json
import re
from pathlib import Path

from bayesfac import models  # noqa: F401  # registers every method
from bayesfac.core.method import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {  # family of methods -> its section in docs/choosing.md
    "ratings": "## Ratings",
    "counts": "## Seen, bought, played",
    "collective": "## Several matrices",
    "tensors": "## Tensors",
    "topics": "## Clusters and topics",
    "labels": "## Labels",
    "tasks": "## Tasks and views",
}


SHOWN = {  # task -> methods that README.md shows, ten in all
    "predict ratings, recommend": "pmf bpmf ordinal_mf mmmf",
    "find topics and clusters, in one view or several": "plsa mvplsa mggm",
    "predict several labels": "leml cplst",
    "several tasks, views and labels at once": "heres",
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
    """Put the number of methods, ten of them by task, and the measured result into README.md."""
    rows = ["| task | method | what |", "| --- | --- | --- |"]
    for task, names in SHOWN.items():
        for number, name in enumerate(names.split()):
            rows.append(f"| {'' if number else task} | `{name}` | {REGISTRY[name].paper} |")
    rows.append(f"\nAll {len(REGISTRY)} methods, by question: [how to choose](docs/choosing.md).")
    text = re.sub(r"!\[\d+ methods\]", f"![{len(REGISTRY)} methods]", text)
    text = re.sub(r"library of \d+ published", f"library of {len(REGISTRY)} published", text)
    text = between(between(text, "methods", "\n".join(rows)), "result", result())
    return between(text, "films", films())


def between(text: str, what: str, new: str) -> str:
    """Replace what stands between two marks."""
    before, rest = text.split(f"<!-- {what}:start -->\n")
    after = rest.split(f"<!-- {what}:end -->")[1]
    return f"{before}<!-- {what}:start -->\n{new}\n<!-- {what}:end -->{after}"


def result() -> str:
    """The figures of the last run of `benchmarks/first_result.py`, in a few sentences."""
    found = json.loads((ROOT / "benchmarks" / "results" / "first_result.json").read_text("utf-8"))
    point, draws = found["point"], found["Gibbs"]

    def error(value: float) -> str:
        return f"{value:.3f}".removeprefix("0")

    covers = "covers 90 %"
    surest = error(draws["RMSE of the surest tenth"])
    return (
        "An example is `bpmf` on MovieLens-100K, with a random tenth of the ratings held out\n"
        "([script](benchmarks/first_result.py)). The RMSE of the point estimate is\n"
        f"{error(point['RMSE'])} stars, and the RMSE of the posterior is {error(draws['RMSE'])}. For the\n"
        f"tenth of the predictions with the smallest standard deviation, it is {surest}. The 90 % intervals\n"
        f"of the posterior contain {draws[covers]:.1%} of the held-out ratings, and those of the point\n"
        f"estimate contain {point[covers]:.1%}."
    )


def films() -> str:
    """What the picture at the head of README shows, by the last run of `benchmarks/new_films.py`."""
    found = json.loads((ROOT / "benchmarks" / "results" / "new_films.json").read_text("utf-8"))
    seen = [*found]
    first, last = (
        [f"{found[n][fit]['covers 90 %']:.1%}".replace("%", " %") for fit in ("point", "posterior")]
        for n in (seen[0], seen[-1])
    )
    return (
        f"*What a point does not know: 200 films of MovieLens-100K of which `bpmf` has seen {seen[0]}\n"
        "ratings each, with 90 % intervals of the mean of all their other ratings. Those of the point,\n"
        f"which knows of noise alone, contain this mean for {first[0]} of the films, those of the\n"
        f"posterior for {first[1]}; with {seen[-1]} ratings seen, {last[0]} and {last[1]}\n"
        "([script](benchmarks/new_films.py)).*"
    )


def with_rows(text: str) -> str:
    """Add rows to docs/choosing.md for methods that have none, remove rows of unknown methods."""
    row = re.compile(r"^\|[^|]*\| `(\w+)`")
    kept = [
        line for line in text.splitlines() if not (m := row.match(line)) or m.group(1) in REGISTRY
    ]
    listed = {m.group(1) for line in kept if (m := row.match(line))}
    for name in sorted(set(REGISTRY) - listed):
        method = REGISTRY[name]
        heading = SECTIONS[method.module.split(".")[2]]
        at = kept.index(heading) + 1
        while not (kept[at].startswith("|") and not kept[at + 1].startswith("|")):
            at += 1
        kept.insert(at + 1, f"| {method.paper.replace('|', '/')} | `{name}` | see its page |")
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
