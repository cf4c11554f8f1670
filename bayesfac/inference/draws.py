"""Where draws go: into memory, or to disk as they come, so that a long run never holds them all."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np


class StoredDraws(Mapping[str, np.ndarray]):
    """{site: (chain, draw, ...)} in one NPY file a site; opened anew at each access, read lazily."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, site: str) -> Path:
        return self.folder / f"{site}.npy"

    def __getitem__(self, site: str) -> np.ndarray:
        if not self.path(site).exists():
            raise KeyError(site)
        return np.load(self.path(site), mmap_mode="r", allow_pickle=False)

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self.folder.glob("*.npy")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Writer:
    """Takes one draw at a time, in any order; `view()` is what there is."""

    def __init__(self, folder: str | None, shape: tuple[int, int]) -> None:
        self.folder = None if folder is None else Path(folder) / "draws"
        self.shape = shape
        self.memory: dict[str, np.ndarray] = {}
        self.offset: dict[str, int] = {}

    def write(self, chain: int, draw: int, values: Mapping[str, np.ndarray]) -> None:
        for site, value in values.items():
            array = np.asarray(value)
            if self.folder is None:
                if site not in self.memory:
                    self.memory[site] = np.empty((*self.shape, *array.shape), array.dtype)
                self.memory[site][chain, draw] = array
            else:
                self._to_disk(self.folder, site, chain * self.shape[1] + draw, array)

    def _to_disk(self, folder: Path, site: str, position: int, array: np.ndarray) -> None:
        # plain writes, not a writable map: mapped pages would count as this process's memory
        path = StoredDraws(folder).path(site)
        if site not in self.offset:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                full = (*self.shape, *array.shape)
                np.lib.format.open_memmap(path, "w+", array.dtype, full).flush()
            self.offset[site] = path.stat().st_size - self.shape[0] * self.shape[1] * array.nbytes
        with open(path, "rb+") as file:
            file.seek(self.offset[site] + position * array.nbytes)
            file.write(np.ascontiguousarray(array).tobytes())

    def view(self) -> Mapping[str, np.ndarray]:
        """All draws."""
        return self.memory if self.folder is None else StoredDraws(self.folder)
