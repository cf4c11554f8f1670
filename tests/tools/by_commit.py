"""A choice that the commit makes: another commit tries others."""

import random
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def shuffled(names):
    """The names in an order that the commit decides."""
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout or "no git"
    return random.Random(commit).sample(names, len(names))
