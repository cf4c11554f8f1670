"""The badges in README.md are files: what they say is compared with what is so."""

import re
import tomllib
from pathlib import Path

import pytest

from bayesfac.core.method import REGISTRY

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [re.fullmatch(r".*:: (3\.\d+)", line) for line in PROJECT["classifiers"]]
TRUE = {
    "python": " | ".join(found[1] for found in PYTHONS if found),
    "licence": PROJECT["license"],
    "methods": f"{len(REGISTRY)}, each written twice",
}


@pytest.mark.parametrize("name", TRUE)
def test_a_badge_is_true(name: str) -> None:
    badge = (ROOT / "docs" / "images" / f"badge-{name}.svg").read_text(encoding="utf-8")
    assert f">{TRUE[name]}</text>" in badge, "run `make readme` (methods), or mend the badge"
    assert f"docs/images/badge-{name}.svg" in (ROOT / "README.md").read_text(encoding="utf-8")
