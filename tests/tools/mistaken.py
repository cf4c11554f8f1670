"""Mistakes that are planted in the source, each with the quick test that has to see it.

    python -m tests.tools.mistaken                    # all, as a table: mistake, test, seconds, caught
    python -m tests.tools.mistaken swell Jacobian     # those whose names or files contain every word

The tables are in tests/mistakes/*.toml. A mistake is a passage of one file of the package (`right`, which
must stand there exactly once), what stands there instead (`wrong`), and a test of `make test` that must then
fail (`test`; several, separated by spaces, must fail together, as one run of pytest). Every mistake runs in
a process of its own, which begins with the third-party packages imported.
"""

import importlib.abc
import importlib.util
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120  # seconds of a processor: 60 alone, and up to twice as many beside other work
WAIT = 5 * LIMIT  # seconds on a busy machine, and for a mistake that makes a test wait for ever
PRELOADED = ["pytest", "jax", "numpyro", "numba", "pandas", "scipy.stats", "xarray", "sklearn.base"]
FAILED = 1  # pytest's exit code when tests ran and some failed


@dataclass(frozen=True)
class Mistake:
    """A passage of a file, what stands there instead, and the test that must see it."""

    what: str
    file: str
    right: str
    wrong: str
    test: str

    def planted(self) -> str:
        """The source of the file with the mistake in it."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        count = source.count(self.right)
        assert count == 1, f"{self.what}: expected the passage once in {self.file}, got {count}"
        assert self.right != self.wrong, f"{self.what}: the mistake changes nothing"
        return source.replace(self.right, self.wrong)

    @property
    def module(self) -> str:
        """The name under which Python imports the file."""
        return ".".join(Path(self.file).with_suffix("").parts).removesuffix(".__init__")


def mistakes(tables: str = "*.toml") -> list[Mistake]:
    """All mistakes, in the order of the tables."""
    found = []
    for path in sorted((ROOT / "tests" / "mistakes").glob(tables)):
        with path.open("rb") as table:
            found += [Mistake(**entry) for entry in tomllib.load(table)["mistake"]]
    return found


class Planter(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Import one module from other source; all other modules as usual."""

    def __init__(self, mistake: Mistake) -> None:
        self.module, self.path = mistake.module, str(ROOT / mistake.file)
        self.source = mistake.planted().encode()

    def find_spec(self, name, path=None, target=None):
        if name != self.module:
            return None
        package = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=self, submodule_search_locations=package
        )

    def get_filename(self, name):
        return self.path

    def get_data(self, path):
        return self.source

    def path_stats(self, path):
        raise OSError("a module with a mistake has no byte code on disk")


def caught(mistake: Mistake) -> tuple[bool, float, str]:
    """Whether the test fails with the mistake in place, after how many seconds, and what pytest printed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        log.touch()
        process = context.Process(target=_run, args=(mistake, log))
        process.start()
        process.join(WAIT)
        if process.is_alive():
            process.kill()
            process.join()
        said = log.read_text(encoding="utf-8", errors="replace")[-4000:]
    return process.exitcode == FAILED, time.perf_counter() - begun, said


def _run(mistake: Mistake, log: Path) -> None:
    """In the new process: plant the mistake, run its test, exit with pytest's code."""
    import pytest

    with log.open("w", encoding="utf-8") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(ROOT)
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
    if (
        "/kernels/" in mistake.file
    ):  # else Numba would read right kernels, and keep wrong ones for others
        os.environ["BAYESFAC_CACHE"] = "off"
    assert not [name for name in sys.modules if name.split(".")[0] == "bayesfac"]
    sys.meta_path.insert(0, Planter(mistake))
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", str(WAIT)]
    code = pytest.main([*mistake.test.split(), *options])
    sys.stdout.flush()
    os._exit(int(code))


def main(words: list[str]) -> int:
    """Print a table of the mistakes that contain these words; 1 if a test did not see one of them."""
    missed = 0
    chosen = [m for m in mistakes() if all(word in f"{m.what} {m.file}" for word in words)]
    for mistake in chosen:
        found, seconds, said = caught(mistake)
        missed += not found
        print(
            f"{'caught' if found else 'MISSED'} {seconds:5.1f} s  {mistake.what}  [{mistake.test}]",
            flush=True,
        )
        if not found:
            print(said)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
