"""Every method as it comes, beside what a user would try first: ratings, labels and clusters in turn.

python benchmarks/defaults.py               all of them
python benchmarks/defaults.py ratings       one kind; what follows goes to benchmarks/default_ratings.py

Each kind is a script of its own, `default_KIND.py`, with its own options, results and table.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = [path.stem.removeprefix("default_") for path in sorted(HERE.glob("default_*.py"))]


def main() -> None:
    given = sys.argv[1:]
    if {"-h", "--help"} & set(given[:1]):
        print(f"{__doc__}\nKinds: {', '.join(KINDS)}")
        return
    kinds = [given.pop(0)] if given[:1] and given[0] in KINDS else KINDS
    for kind in kinds:
        print(f"## {kind}\n", flush=True)
        script = str(HERE / f"default_{kind}.py")
        done = subprocess.run([sys.executable, script, *given], check=False)
        if done.returncode:
            sys.exit(done.returncode)
        print(flush=True)


if __name__ == "__main__":
    main()
