"""Large tables of ratings: in memory, and in a file that each process reads in blocks. BPMF by Gibbs.

In memory: made-up ratings with the shape of a known table of films (at 112 million: 480,189 users x 17,770
items; at other sizes equally dense), users and items as unequal as there, in any order: two arrays of int32
and one of float32. Each library and each size has a process of its own, so that its peak is its own.

read         seconds of `bf.Ratings`; of SMURFF, those of the sparse matrix that it takes
to sweep 1   seconds from there to the end of the first sweep, with all compilation
sweep        seconds of wall clock and of CPU a sweep: the median over sweeps after the first ones
peaks        the largest memory in GiB of the process when the ratings are read, and at the end

In a file: made-up ratings (200 a user on average, five times as many users as items) are written row group
by row group. Then `bf.datasets.read_large` and `bf.Gibbs(shares=True)` run in 1 and 2 processes of one core
each.

read         seconds to read the file, twice as it is done
sweep        seconds of wall clock a sweep: the median over blocks of sweeps after the first ones
peak         the largest memory of a process, in MiB, and what of it the same run takes on few ratings
             (Python, JAX and its compiler); the rest is beside
bound        1.5 times the arrays of the share of a process and both tables of factors, in MiB

SMURFF, where it is installed, gets the same ratings as a sparse matrix, whose making is not counted, and as
many threads as there are processes.
"""

import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from common import (
    Sweeps,
    arguments,
    hold_cores,
    in_process,
    in_processes,
    installed,
    one_of,
    report,
    surroundings,
    table,
)

FIRST = 4  # sweeps before the clock starts
FEW = 20_000  # ratings, of which the memory is that of the program
GROUP = 2**20  # rows of a group of the file
ALPHA = 2.0  # SMURFF's precision of the noise
MB = 2**20
# freed arrays go back to the system at once; and all runs compile, which takes memory too
PLAIN = {"MALLOC_MMAP_THRESHOLD_": str(MB), "JAX_ENABLE_COMPILATION_CACHE": "false"}
Numbers = dict[str, Any]


def made(cells: int, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Pieces of a table of ratings: users rate 50 to 350 items, and their first ratings come first."""
    rng = np.random.default_rng(seed)
    users, items = max(20, cells // 200), max(401, cells // 1000)
    count = rng.permutation(50 + np.arange(users) * 300 // users)
    count[: cells - count.sum()] += 1
    begin, stride = rng.integers(items, size=(2, users))
    u, v = rng.normal(0, 0.6, (users, 4)), rng.normal(0, 0.6, (items, 4))
    while np.gcd(stride, items).max() > 1:  # then the items of a user are distinct
        stride = np.where(np.gcd(stride, items) > 1, (stride + 1) % items, stride)
    for number in range(count.max()):
        user = rng.permutation(np.flatnonzero(count > number))
        item = (begin[user] + number * stride[user]) % items
        value = 3.5 + np.sum(u[user] * v[item], 1) + rng.normal(0, 0.8, len(user))
        yield {"user": user, "item": item, "rating": np.clip(np.round(2 * value) / 2, 0.5, 5)}


def write(path: Path, cells: int) -> None:
    """The ratings as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def group(pieces: list[dict[str, np.ndarray]]) -> Any:
        return pa.table({name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]})

    writer, waiting = None, list[dict[str, np.ndarray]]()
    for piece in made(cells):
        waiting.append(piece)
        if writer is None:
            writer = pq.ParquetWriter(path, group(waiting).schema)
        if sum(len(one["user"]) for one in waiting) >= GROUP:
            writer.write_table(group(waiting))
            waiting.clear()
    assert writer is not None
    if waiting:
        writer.write_table(group(waiting))
    writer.close()


def arrays(cells: int, folder: Path, seed: int = 0) -> Path:
    """A file of users, items and values of about so many ratings, in any order."""
    rng, size = np.random.default_rng(seed), (cells / 112e6) ** 0.5
    users, items = max(40, round(480_189 * size)), max(20, round(17_770 * size))
    active = np.cumsum(rng.lognormal(0, 1, users))
    wanted = (np.arange(items) + 20.0) ** -0.9
    wanted = np.minimum(cells * wanted / wanted.sum(), 0.4 * users)
    wanted *= cells / wanted.sum()
    mine, taste = rng.normal(0, 0.5, (2, users)), rng.normal(0, 0.5, (2, items))
    found = []
    for item, number in enumerate(rng.permutation(wanted)):
        drawn = np.searchsorted(active, rng.random(round(1.3 * number) + 1) * active[-1])
        user = rng.permutation(np.unique(drawn))[: round(number) + 1].astype(np.int32)
        value = 3.6 + taste[:, item] @ mine[:, user] + rng.normal(0, 0.9, len(user))
        found.append((user, np.full(len(user), item, np.int32), value.round().clip(1, 5)))
    order = rng.permutation(sum(len(user) for user, *_ in found))
    path = folder / f"{cells}.npz"
    kinds = zip(("user", "item", "value"), (np.int32, np.int32, np.float32), strict=True)
    whole = {
        n: np.concatenate([f[k] for f in found], dtype=t)[order] for k, (n, t) in enumerate(kinds)
    }
    np.savez(path, **whole)
    return path


def in_memory(task: Numbers) -> Numbers:
    """bayesfac on arrays in memory."""
    hold_cores(task["threads"])
    import bayesfac as bf
    from bayesfac.inference import gibbs

    with np.load(task["arrays"]) as file:
        given = [file[name] for name in ("user", "item", "value")]
    clock = Sweeps()
    data = bf.Ratings(*given)
    clock.update(1)
    read, busy, top, size = np.diff(clock.times)[0], np.diff(clock.busy)[0], peak(), data.size
    del given
    clock = Sweeps()
    with patch.object(gibbs, "bar", lambda *_: clock):
        bf.fit(
            "bpmf", data, bf.Gibbs(FIRST + task["sweeps"], 1, 1), n_components=task["components"]
        )
    told = {"size": size, "shape": data.shape, "read": float(read), "read, CPU": float(busy)}
    told |= {"peak, read": top, "first": clock.times[1] - clock.times[0], "peak": peak()}
    return told | {"sweep": clock.each(FIRST), "sweep, CPU": clock.each(FIRST, clock.busy)}


def smurffs_in_memory(task: Numbers) -> Numbers:
    """SMURFF on the same arrays."""
    import scipy.sparse as sp

    hold_cores(task["threads"])
    with np.load(task["arrays"]) as file:
        user, item, value = (file[name] for name in ("user", "item", "value"))
    begun = time.perf_counter()
    train = sp.csr_matrix((value.astype(np.float64) - value.mean(dtype=np.float64), (user, item)))
    read, top, size = time.perf_counter() - begun, peak(), len(value)
    del user, item, value
    told = {"size": size, "shape": train.shape, "read": read, "peak, read": top}
    return told | smurff_sweeps(train, task["threads"], task) | {"peak": peak()}


def table_of(sizes: list[float], task: Numbers) -> tuple[list[Numbers], str]:
    """What the libraries say of tables in memory, and the table of it."""
    found, rows = [], []
    libraries = {"bayesfac": "in memory"} | ({"SMURFF": "smurff"} if installed("smurff") else {})
    for cells in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = arrays(int(cells), Path(folder))
            for name, part in libraries.items():
                given = task | {"arrays": str(path), "part": part}
                told = in_process(__file__, given, task["threads"], **PLAIN)
                found.append({"library": name} | told)
    for told in found:
        row = {"library": told["library"], "ratings": f"{told['size']:,}"}
        row |= {"users x items": "{:,} x {:,}".format(*told["shape"])}
        seconds = "read", "read, CPU", "first", "sweep", "sweep, CPU"
        row |= {f"{n}, s": f"{told[n]:.2f}" if n in told else "" for n in seconds}
        row |= {f"{n}, GiB": f"{told[n] / 1024:.2f}" for n in ("peak, read", "peak")}
        rows.append(row)
    return found, table(rows)


def run(task: Numbers) -> Numbers:
    """The part of one process."""
    with one_of(task):
        import jax

        import bayesfac as bf
        from bayesfac.inference import gibbs

        begun, clock = time.perf_counter(), Sweeps()
        data = bf.datasets.read_large(task["path"])
        read = time.perf_counter() - begun
        arrays = {id(x.base): x.nbytes for x in jax.tree.leaves(data.host.here)}
        engine = bf.Gibbs(FIRST + task["sweeps"], 1, 1, shares=True)
        with patch.object(gibbs, "bar", lambda *_: clock):
            bf.fit("bpmf", data, engine, n_components=task["components"])
    factors = sum(data.shape) * task["components"] * 4
    return {
        "read": read,
        "sweep": clock.each(FIRST),
        "peak": peak(),
        "share": sum(arrays.values()) / MB,
        "factors": factors / MB,
    }


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def smurffs(task: Numbers) -> Numbers:
    """SMURFF on the same ratings."""
    import pyarrow.parquet as pq
    import scipy.sparse as sp

    hold_cores(task["count"])
    cells = pq.read_table(task["path"])
    user, item, value = (cells[name].to_numpy() for name in ("user", "item", "rating"))
    train = sp.csr_matrix((value - value.mean(), (user, item)))
    del cells, user, item, value
    return smurff_sweeps(train, task["count"], task) | {"peak": peak()}


def smurff_sweeps(train: Any, threads: int, task: Numbers) -> Numbers:
    """Seconds of SMURFF to the end of its first sweep and for a sweep."""
    import smurff

    seconds, begun, first = [], time.perf_counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        session = smurff.TrainSession(
            ["normal", "normal"], task["components"], threads, FIRST + task["sweeps"], 1, 0,
            verbose=0, save_freq=0, save_name=f"{folder}/draws.hdf5",
        )  # fmt: skip
        session.setTrain(train, smurff.FixedNoise(ALPHA))
        session.init()
        for _ in range(FIRST + task["sweeps"]):
            super(smurff.TrainSession, session).step()
            first = first or time.perf_counter() - begun
            seconds.append(session.getStatus().elapsed_iter)
    return {"first": first, "sweep": float(np.median(seconds[FIRST:]))}


def rows_of(path: Path, few: Path, count: int, task: Numbers) -> tuple[Numbers, list[Numbers]]:
    """A row of the table for so many processes, and what each of them said."""
    told = in_processes(__file__, count, task | {"path": str(path)}, **PLAIN)
    small = in_processes(__file__, count, task | {"path": str(few)}, **PLAIN)
    own, top = max(one["peak"] for one in small), max(one["peak"] for one in told)
    share, factors = (max(one[name] for one in told) for name in ("share", "factors"))
    row = {
        "processes": count,
        "read, s": f"{told[0]['read']:.0f}",
        "sweep, s": f"{told[0]['sweep']:.2f}",
        "peak": f"{top:.0f}",
        "on few": f"{own:.0f}",
        "rest": f"{top - own:.0f}",
        "bound": f"{1.5 * (share + factors):.0f}",
        "share": f"{share:.0f}",
        "factors": f"{factors:.0f}",
    }
    return row, [told, small]


def main() -> None:
    parser = arguments(__doc__ or "")
    add = parser.add_argument
    add("--parts", nargs="+", default=["memory", "file"], choices=["memory", "file"])
    add("--tables", type=float, nargs="+", default=[1e6, 1e7, 112e6], metavar="N", help="in memory")
    add("--cells", type=float, default=20e6, metavar="N", help="ratings in the file (%(default)g)")
    add("--components", type=int, default=32, metavar="K", help="(%(default)s)")
    add("--sweeps", type=int, default=12, metavar="N", help="of each run (%(default)s)")
    add("--processes", type=int, nargs="+", default=[1, 2], metavar="N")
    args = parser.parse_args()
    if args.worker:
        task = json.loads(args.worker)
        kinds = {"in memory": in_memory, "smurff": smurffs_in_memory, "smurff, file": smurffs}
        print(json.dumps(kinds.get(task.get("part"), run)(task)))
        return
    where = surroundings("smurff", "pyarrow")
    task: Numbers = {"components": args.components, "sweeps": args.sweeps, "threads": args.threads}
    if args.quick:
        args.cells, args.tables = FEW, [FEW]
        task |= {"components": 3, "sweeps": 6}
    record: Numbers = {"where": where, "cells": int(args.cells), "task": task}
    texts = []
    if "memory" in args.parts:
        record["tables"], text = table_of(args.tables, task)
        texts.append(f"In memory\n\n{text}")
    if "file" in args.parts:
        record["found"], text = of_file(args, task)
        texts.append(f"{int(args.cells):,} ratings\n\n{text}")
    report("large", args, record, "\n\n".join(texts))


def of_file(args: Any, task: Numbers) -> tuple[list[Any], str]:
    """What the libraries say of ratings in a file, and the table of it."""
    found: list[Any] = []
    rows: list[Numbers] = []
    with tempfile.TemporaryDirectory() as folder:
        path, few = Path(folder) / "ratings.parquet", Path(folder) / "few.parquet"
        write(path, int(args.cells))
        write(few, FEW)
        for count in args.processes:
            row, told = rows_of(path, few, count, task)
            rows.append({"library": "bayesfac"} | row)
            found.append(told)
        for count in args.processes if installed("smurff") else []:
            given = task | {"path": str(path), "count": count, "part": "smurff, file"}
            other = in_process(__file__, given, count)
            rows.append(
                {
                    "library": "SMURFF",
                    "processes": f"{count} threads",
                    "sweep, s": f"{other['sweep']:.2f}",
                    "peak": f"{other['peak']:.0f}",
                }
            )
            found.append(other)
    return found, table(rows)


if __name__ == "__main__":
    main()
