"""Draws in memory, or written to disk one by one, so that a long run never has all of them in memory."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from bayesfac.core.errors import CorruptFile
from bayesfac.core.files import GOES_ON, ask_space, atomic, clear_unfinished, named_if_full


class StoredDraws(Mapping[str, np.ndarray]):
    """{site: (chain, draw, ...)}, one NPY file per site, opened at each access and read lazily."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()  # the process may change its folder later

    def path(self, site: str) -> Path:
        return self.folder / f"{site}.npy"

    def __getitem__(self, site: str) -> np.ndarray:
        if not self.path(site).exists():
            raise KeyError(site)
        stored = np.load(self.path(site), mmap_mode="r", allow_pickle=False)
        # half precision is for storage: sums in it would be wrong, so the whole site is read
        return stored.astype(np.float32) if stored.dtype == np.float16 else stored

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self.folder.glob("*.npy")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Thinned(Mapping[str, np.ndarray]):
    """Every n-th draw of each chain. Files are opened again at each access, because pages of an open memory
    map count as memory of this process."""

    def __init__(self, draws: Mapping[str, np.ndarray], step: int) -> None:
        self.draws, self.step = draws, step

    def __getitem__(self, site: str) -> np.ndarray:
        return self.draws[site][:, :: self.step]

    def __iter__(self) -> Iterator[str]:
        return iter(self.draws)

    def __len__(self) -> int:
        return len(self.draws)


def _opened(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise CorruptFile(f"Expected draws in {path}, got {error}") from error


def _header(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> int:
    """The offset of the numbers in a file, which must hold draws of this type and shape."""
    stored = _opened(path)
    if stored.dtype != dtype or stored.shape != shape:
        raise CorruptFile(
            f"Expected {dtype} draws of shape {shape} in {path}, got {stored.dtype} {stored.shape}"
        )
    return path.stat().st_size - stored.nbytes


class Writer:
    """Store draws of one chain at a time, in any order, in memory or on disk. If it is `idle`, another
    process stores them. One draw of all chains has `one` bytes: the disk must have room for all of them."""

    def __init__(
        self, folder: str | None, shape: tuple[int, int], idle: bool = False, one: int = 0
    ) -> None:
        self.folder = None if folder is None else Path(folder) / "draws"
        self.shape, self.idle = shape, idle
        self.memory: dict[str, np.ndarray] = {}
        self.offset: dict[str, int] = {}
        if self.folder is not None:
            clear_unfinished(self.folder, ".npy")
        if self.folder is not None and not idle:
            # a resumed run has written some: blocks of 512 bytes, as the rest of each file is a hole
            blocks = [getattr(path.stat(), "st_blocks", 0) for path in self.folder.glob("*.npy")]
            ask_space(self.folder, one * shape[1] - 512 * sum(blocks), GOES_ON)

    def write(self, chain: int, first: int, values: Mapping[str, np.ndarray]) -> None:
        """Store {site: (draws, ...)} of a chain, from draw `first` on."""
        for site, value in values.items() if not self.idle else ():
            array = np.asarray(value)
            if self.folder is None:
                if site not in self.memory:
                    self.memory[site] = np.empty((*self.shape, *array.shape[1:]), array.dtype)
                self.memory[site][chain, first : first + len(array)] = array
            else:
                with named_if_full(StoredDraws(self.folder).path(site), GOES_ON):
                    self._to_disk(self.folder, site, chain * self.shape[1] + first, array)

    def _to_disk(self, folder: Path, site: str, position: int, array: np.ndarray) -> None:
        # plain writes, not a writable map: mapped pages would count as this process's memory
        path = StoredDraws(folder).path(site)
        one = array.dtype.itemsize * int(np.prod(array.shape[1:]))
        if site not in self.offset:
            full = (*self.shape, *array.shape[1:])
            if not path.exists():
                with atomic(path) as part:
                    np.lib.format.open_memmap(part, "w+", array.dtype, full).flush()
            self.offset[site] = _header(path, array.dtype, full)
        with open(path, "rb+") as file:
            file.seek(self.offset[site] + position * one)
            file.write(np.ascontiguousarray(array).tobytes())

    def check(self, sites: Iterable[str]) -> None:
        """Before a run is resumed: check that the files of its draws exist and are whole."""
        if self.folder is None:
            return
        for site in sites:
            path = StoredDraws(self.folder).path(site)
            stored = _opened(path)
            if stored.shape[:2] != self.shape:
                raise CorruptFile(
                    f"Expected {self.shape[0]} chains of {self.shape[1]} draws in {path}, "
                    f"got shape {stored.shape}"
                )

    def view(self, chains: int, draws: int) -> Mapping[str, np.ndarray]:
        """{site: (chain, draw, ...)} of the first draws of the first chains."""
        stored = self.memory if self.folder is None else StoredDraws(self.folder)
        if (chains, draws) == self.shape:
            return stored
        return {site: stored[site][:chains, :draws] for site in stored}
