"""Tiles of a scene and its map, which are computed when a browser requests them."""

from __future__ import annotations

import math
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.colors import drawn, rgb_bands
from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.semisupervised.active_learning import Cells
from daskclust.semisupervised.near_nodes import near_weights
from daskclust.semisupervised.predict import margins

#: Layers of the page, from below.
LAYERS = ("scene", "map", "uncertainty")
#: Side of a tile in pixels, and maximum sides of the coarsest level and of the level that is read
#: only once.
TILE, OVERVIEW, READ = 256, 1024, 3072
#: Approximate number of pixels that are read at once.
_PIXELS_AT_ONCE = 2**20
#: Number of nearest cells whose classes a pixel gets.
_NEAR = 3
#: Maximum number of tiles in memory: several screens, about 100 MB.
_MAX_TILES = 128
#: Percentages of the values that are clipped at both ends, by the name of the stretch.
STRETCHES = {"2-98 %": 2.0, "0.5-99.5 %": 0.5, "10-90 %": 10.0, "all": 0.0}


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image (height, width, 3 or 4) as a PNG file; the fourth channel is the opacity."""
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 3)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@dataclass(frozen=True)
class _Bands:
    """A picklable function that returns three bands of pixels."""

    bands: tuple[int, ...]

    def __call__(self, x: Array) -> NDArray[np.float32]:
        return np.ascontiguousarray(x[:, list(self.bands)], np.float32)


#: The nearest cells of a pixel, and their weights in 255ths.
_CELLS = np.dtype([("cells", np.int16, _NEAR), ("weights", np.uint8, _NEAR)])


@dataclass(frozen=True)
class _Nearest:
    """A picklable function that returns the nearest cells of pixels."""

    space: Callable[[Array], Floats]
    nodes: Floats

    def __call__(self, x: Array) -> Array:
        nearest = np.zeros(len(x), _CELLS)
        count = min(_NEAR + 1, len(self.nodes))
        if len(x) and count > 1:
            cells, distances = nearest_several(self.space(x), self.nodes, count)
            nearest["cells"][:, : count - 1] = cells[:, :-1]
            nearest["weights"][:, : count - 1] = np.rint(255 * near_weights(distances))
        elif len(x):
            nearest["weights"][:, 0] = 255
        return nearest


class Pictures:
    """Tiles of a cube at steps of 1, 2, 4, ... pixels.

    `mapped` is the cube without the pixels whose classes are not shown; by default, the cube.
    """

    def __init__(self, cube: Any, mapped: Any = None) -> None:
        self.cube, self._mapped = cube, cube if mapped is None else mapped
        self.shape = height, width = int(cube.shape[0]), int(cube.shape[1])
        #: The coarsest level, and the level that is read only once: every 2^level-th pixel.
        self.top, self._read_once = (
            max(0, math.ceil(math.log2(max(height, width) / side))) for side in (OVERVIEW, READ)
        )
        n_bands = int(cube.shape[2])
        chosen = rgb_bands(n_bands, cube.wavelengths) if n_bands > 2 else [0, 0, 0]
        self.bands = tuple(int(band) for band in chosen)
        self.stretch = next(iter(STRETCHES))
        self._nearest: _Nearest | None = None
        self._lock = threading.Lock()
        self._tiles: OrderedDict[Any, tuple[Bools, Array]] = OrderedDict()
        self._overviews: dict[Any, tuple[Bools, Array]] = {}

    @property
    def band_names(self) -> list[str]:
        """Wavelengths of the bands, or their names, or numbers as stored."""
        if self.cube.wavelengths is not None:
            return [f"{length:.4g} nm" for length in self.cube.wavelengths.tolist()]
        return self.cube.band_names or [f"band {band}" for band in self.cube.bands.tolist()]

    def choose_bands(self, bands: Sequence[int], stretch: str) -> None:
        """Choose three bands and a stretch; new bands require a pass over the scene."""
        chosen = tuple(int(band) for band in bands)
        if len(chosen) != 3 or not all(0 <= band < self.cube.shape[2] for band in chosen):
            raise ValueError(f"bands must be three of {self.cube.shape[2]}, got {list(chosen)!r}.")
        if stretch not in STRETCHES:
            raise ValueError(f"stretch must be in {list(STRETCHES)}, got {stretch!r}.")
        self._overview(_Bands(chosen))
        with self._lock:
            self.bands, self.stretch = chosen, stretch
            needed = {"cells", _Bands(chosen)}
            self._overviews = {k: self._overviews[k] for k in self._overviews if k in needed}

    def classify(self, cells: Cells) -> None:
        self._nearest = _Nearest(cells.space, cells.nodes)
        self._overview(self._nearest)

    def _overview(self, make: Any) -> tuple[Bools, Array]:
        key = make if isinstance(make, _Bands) else "cells"
        if key not in self._overviews:
            height, width = self.shape
            whole = slice(0, height), slice(0, width)
            self._overviews[key] = self._read(*whole, self._read_once, make)
        return self._overviews[key]

    def _coarser(self, level: int, make: Any) -> tuple[Bools, Array]:
        step = 2 ** (level - self._read_once)
        valid, values = self._overview(make)
        return valid[::step, ::step], values[::step, ::step]

    def _read(self, rows: slice, columns: slice, level: int, make: Any) -> tuple[Bools, Array]:
        """Return validity and values of `make` for every 2^level-th pixel of a window."""
        step = 2**level
        lines = np.arange(rows.start, rows.stop, step)
        across = np.arange(columns.start, columns.stop, step)
        # Pixel numbers are sent to the workers: complete lines of blocks, about a million pixels.
        block = self.cube.blocks.block[0]
        n_lines = block * max(1, _PIXELS_AT_ONCE * step // (block * len(across)))
        ends = np.arange(rows.start // n_lines + 1, -(-rows.stop // n_lines)) * n_lines
        read = [
            self._take(lines_at_once[:, None] * self.shape[1] + across, make)
            for lines_at_once in np.split(lines, np.searchsorted(lines, ends))
            if len(lines_at_once)
        ]
        valid, values = zip(*read, strict=True)
        return np.concatenate(valid), np.concatenate(values)

    def _take(self, pixels: NDArray[np.intp], make: Any) -> tuple[Bools, Array]:
        cube = self._mapped if make is self._nearest else self.cube
        is_valid, values = cube.take_pixels(pixels.ravel(), make)
        valid = np.zeros(pixels.size, bool)
        valid[is_valid] = True
        out = np.zeros((pixels.size, *values.shape[1:]), values.dtype)
        out[is_valid] = values
        return valid.reshape(pixels.shape), out.reshape(*pixels.shape, *values.shape[1:])

    def has(self, level: int, down: int, across: int) -> bool:
        if not 0 <= level <= self.top:
            return False
        height, width = self.shape
        step = TILE * 2**level
        return 0 <= down * step < height and 0 <= across * step < width

    def _tile(self, level: int, down: int, across: int, make: Any) -> tuple[Bools, Any]:
        if level >= self._read_once:
            valid, values = self._coarser(level, make)
            window = np.s_[down * TILE : (down + 1) * TILE, across * TILE : (across + 1) * TILE]
            return valid[window], values[window]
        key = make if isinstance(make, _Bands) else "cells", level, down, across
        with self._lock:
            if key in self._tiles:
                self._tiles.move_to_end(key)
                return self._tiles[key]
        step = TILE * 2**level
        rows = slice(down * step, min((down + 1) * step, self.shape[0]))
        columns = slice(across * step, min((across + 1) * step, self.shape[1]))
        tile = self._read(rows, columns, level, make)
        with self._lock:
            self._tiles[key] = tile
            while len(self._tiles) > _MAX_TILES:
                self._tiles.popitem(last=False)
        return tile

    def scene(self, level: int, down: int, across: int) -> bytes:
        bands, clipped = _Bands(self.bands), STRETCHES[self.stretch]
        is_valid, overview = self._coarser(self.top, bands)
        valid, values = self._tile(level, down, across, bands)
        out = np.zeros((*valid.shape, 3), np.uint8)
        if is_valid.any():
            low, high = np.percentile(overview[is_valid], [clipped, 100 - clipped], axis=0)
            scaled = (values - low) / np.where(high > low, high - low, 1.0)
            out[:] = np.rint(255 * np.clip(scaled, 0, 1))
        out[~valid] = drawn(np.array(-1), ())[1]
        return png(out)

    def _posterior(
        self, level: int, down: int, across: int, shares: Floats
    ) -> tuple[Bools, Floats]:
        valid, near = self._tile(level, down, across, self._nearest)
        weights = near["weights"] / 255.0
        return valid, np.einsum("yxm,yxmc->yxc", weights, shares[near["cells"]])

    def map(
        self, level: int, down: int, across: int, shares: Floats, colors: Sequence[str]
    ) -> bytes:
        """Return a tile of the classes; `shares` (cells, classes) are their probabilities."""
        valid, posterior = self._posterior(level, down, across, shares)
        indices, table = drawn(np.where(valid, posterior.argmax(axis=2), -1), colors)
        return png(np.dstack([table[indices], np.where(valid, 255, 0).astype(np.uint8)]))

    def uncertainty(self, level: int, down: int, across: int, shares: Floats) -> bytes:
        """Return a white tile, which is more opaque where the class is less certain."""
        valid, posterior = self._posterior(level, down, across, shares)
        out = np.full((*valid.shape, 4), 255, np.uint8)
        opacity = np.where(valid, 1.0 - margins(posterior), 0.0)
        out[:, :, 3] = np.rint(255 * np.clip(opacity, 0, 1))
        return png(out)
