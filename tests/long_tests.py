"""Write tests/long.txt, the tests that `make test` leaves to `make test-long`.

    python -m tests.long_tests build/tests.xml

A test belongs there if its own call took longer than LIMIT seconds in the run that wrote this JUnit file.
Times of fixtures do not count, because the next test that needs the fixture would pay for it.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

LIMIT = 2.5
LIST = Path(__file__).with_name("long.txt")
HEAD = f"# Tests of more than {LIMIT:g} s, left to `make test-long`. Written by `make long`.\n"


def listed() -> set[str]:
    """The node ids in tests/long.txt."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


def long_in(junit: str) -> list[str]:
    """The node ids of the tests in a JUnit file whose call took longer than LIMIT."""
    cases = ElementTree.parse(junit).iter("testcase")
    return sorted(
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in cases
        if float(case.get("time", 0)) > LIMIT
    )


if __name__ == "__main__":
    LIST.write_text(HEAD + "\n".join(long_in(sys.argv[1])) + "\n", encoding="utf-8")
    print(f"{LIST}: {len(listed())} tests")
