"""Write tests/tools/long.txt and tests/tools/longest.txt, the tests that `make test` leaves out.

    python -m tests.tools.long_tests build/tests.xml

`make test-long` runs the tests in long.txt, and `make test-all` also those in longest.txt. A test is in a
list if its own call took longer than the limit of the list in the run that wrote this JUnit file. Times of
fixtures do not count, because the next test that needs the fixture would pay for it. Tests of files in
ALWAYS are not in longest.txt, so that every change meets them. The limits are those of a slow machine with
two cores on which nothing was compiled before.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

LIMITS = {"long": 2.0, "longest": 3.5}  # seconds
ALWAYS = (
    "tests/test_contract.py", "tests/test_docs.py", "tests/core/kernels/test_bridge.py",
    "tests/inference/test_geweke.py", "tests/inference/test_kills.py", "tests/inference/test_resume.py",
    "tests/inference/test_moves.py",
)  # fmt: skip
QUICK = "tests/test_mistakes.py::test_a_minute_of_mistakes"  # takes a minute, and belongs to `make test`


def place(name: str) -> Path:
    """The file of a list."""
    return Path(__file__).with_name(f"{name}.txt")


def listed(name: str) -> set[str]:
    """The node ids in a list."""
    lines = place(name).read_text(encoding="utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


def over(seconds: dict[str, float], name: str) -> list[str]:
    """The tests that took longer than the limit of a list."""
    found = sorted(test for test, each in seconds.items() if each > LIMITS[name] and test != QUICK)
    return [test for test in found if name == "long" or not test.startswith(ALWAYS)]


def timed(junit: str) -> dict[str, float]:
    """The seconds of the tests in a JUnit file."""
    return {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(
            case.get("time", 0)
        )
        for case in ElementTree.parse(junit).iter("testcase")
    }


def write(seconds: dict[str, float], name: str) -> None:
    """Write a list."""
    head = f"# Tests of more than {LIMITS[name]:g} s, left out of `make test`. Written by `make long`.\n"
    place(name).write_text(head + "\n".join(over(seconds, name)) + "\n", encoding="utf-8")
    print(f"{place(name)}: {len(listed(name))} tests")


if __name__ == "__main__":
    for which in LIMITS:
        write(timed(sys.argv[1]), which)
