"""Which pixels of a cube are rows, and passes over its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Self

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats
from daskclust._warnings import warn
from daskclust.cube import _blocks
from daskclust.cube._description import StoredCube
from daskclust.cube._georeference import Georeference
from daskclust.cube._labels import align, with_room
from daskclust.cube._pixels import whitened
from daskclust.cube._reading import CubeSource
from daskclust.cube._scaling import Scaling
from daskclust.cube._survey import Surveyed, sample_dtype, take_survey
from daskclust.cube.bands import as_ranges
from daskclust.cube.layout import BlockGrid, unflatten
from daskclust.engine import compute, read_again
from daskclust.exceptions import DaskclustWarning
from daskclust.storage.seen import as_dask
from daskclust.storage.stores import stamp, stamp_files

__all__ = ["PixelRows", "Scale"]

#: How samples are scaled: by name, or as another cube's.
Scale = Literal["none", "standard", "unit", "whitened"] | Scaling


class PixelRows:
    """An opened cube as a table with one row per valid pixel; :class:`Cube` is the whole."""

    def __init__(
        self,
        source: CubeSource,
        *,
        pixels: da.Array | None,
        excluded: da.Array | None,
        scale: Scale,
        wavelengths: Floats | None,
        place: Georeference,
        attributes: Mapping[str, Any],
        dimension_names: tuple[str, str],
        dtype: np.dtype[Any] | None = None,
        bands_are_fixed: bool = False,
        files: Sequence[Path] = (),
    ) -> None:
        self._source = source
        self._grid = source.grid
        self._pixels = None if pixels is None else read_again(pixels)
        self._excluded = None if excluded is None else read_again(excluded)
        self._scale: Scale = scale
        self._stamp: str | None = None
        self._place = place
        self.wavelengths = wavelengths
        self.dimension_names = dimension_names
        self._dtype = sample_dtype(source.dtype) if dtype is None else dtype
        self._bands_are_fixed = bands_are_fixed
        self._files = tuple(files)
        self.chunks = source.grid.chunks
        self.attributes: dict[str, Any] = dict(attributes)
        self.nodata = source.nodata

    def __repr__(self) -> str:
        y, x, p = self.shape
        down, across = self._grid.numblocks
        return f"<Cube {y} x {x} pixels, {p} bands, {down} x {across} blocks>"

    # How it is stored and where it lies

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, bands kept)."""
        return (*self._grid.shape, self._source.n_bands)

    @property
    def bands(self) -> NDArray[np.intp]:
        """Numbers of the bands kept."""
        kept = self._source.bands
        return np.arange(self._source.n_stored) if kept is None else kept

    @property
    def values(self) -> dict[str, Any]:
        """`scale_factor` and `add_offset`, if any, that convert stored numbers to samples."""
        return self._source.meaning.described()

    @property
    def blocks(self) -> BlockGrid:
        """The spatial blocks: their number, sizes and positions, in the order of the rows."""
        return self._grid

    @property
    def georeference(self) -> Georeference:
        """Coordinate system and position, as stored."""
        return self._place

    @property
    def stored(self) -> StoredCube:
        """How the values are stored."""
        source = self._source
        values = self._pixels if source.array is None else as_dask(source.array)
        assert values is not None
        return StoredCube(
            array=None if source.array is None else source.array.array,
            order=source.order,
            shape=(*self._grid.shape, source.n_stored),
            dtype=source.dtype,
            values=values,
            may_be_masked=not source.is_complete or self._excluded is not None,
        )

    def stored_bands(self, bands: Sequence[int]) -> da.Array:
        """Return bands as stored, by their stored numbers: lazy, (y, x, len(bands))."""
        if self._source.array is None:
            assert self._pixels is not None
            images = [unflatten(self._pixels[:, int(band)], self._grid) for band in bands]
        else:
            whole = as_dask(self._source.array).transpose(self._source.order)
            images = [whole[:, :, int(band)] for band in bands]
        meaning = self._source.meaning
        stacked = da.stack(images, axis=2)
        if meaning.dtype is None:
            return stacked
        return da.map_blocks(
            meaning.view, stacked, dtype=meaning.dtype, meta=np.empty((0, 0, 0), meaning.dtype)
        )

    def count_valid(self, blocks: Sequence[int]) -> int:
        """Count the valid pixels of some blocks, which are read; bands empty there are left out."""
        return self.look_at(blocks)[0]

    def look_at(self, blocks: Sequence[int]) -> tuple[int, NDArray[np.intp]]:
        """Count the valid pixels of some blocks, and name the bands without data in any of them.

        Parameters
        ----------
        blocks : sequence of int
            Their numbers; they are read, unless nothing stored can mean "no data".

        Returns
        -------
        valid : int
        empty : ndarray of int
            Stored numbers of the bands kept that hold no data there; `valid` does without them.
        """
        p = self._source.n_bands
        surveys = self._per_block(
            _blocks.block_survey,
            sizes=(1,) * self._grid.count,
            width=2 + p,
            dtype=np.float64,
            token="daskclust-count",
            moments=False,
        )
        some = surveys.blocks[[int(number) for number in blocks]]
        (found,) = compute("the count of pixels", some)
        keep = self._source.keep_incomplete
        (merged,) = _blocks.merge_surveys(found, n_bands=p, keep_incomplete=keep)
        return int(merged[0]), self.bands[merged[2 : 2 + p] == 0]

    # What is in the blocks

    @cached_property
    def _survey(self) -> Surveyed:
        """Valid pixels per block, the scaling, and bands without data; at most one pass."""
        # What is read from here on has to be what is written about in the end.
        self._stamp = self._stamp_now()
        if self._scale == "whitened":
            counted = self._counted("none")
            scaling = whitened(self, sum(counted.counts), counted.scaling)
            return replace(counted, scaling=scaling)
        return self._counted(self._scale)

    def _counted(self, scale: Scale) -> Surveyed:
        """Count valid pixels per block, and find a scaling without neighbors; at most one pass."""
        if scale != "standard" and self._source.is_complete and self._excluded is None:
            scaling = scale if isinstance(scale, Scaling) else Scaling(scale, self._dtype)
            return Surveyed(self._grid.pixels, scaling, np.empty(0, np.intp))
        found = take_survey(self._per_block, self._source, scale, self._dtype)
        if len(found.empty):
            self._leave_out(found.empty)
        return found

    def _leave_out(self, empty: NDArray[np.intp]) -> None:
        """Go on without bands that hold no data."""
        numbers = self.bands[empty]
        text = as_ranges(numbers)
        if self._bands_are_fixed:
            raise ValueError(
                f"Bands {text} hold no data in any pixel, but bands= asks for them; expected "
                "data in every band that a model was fitted to. Fit the model without them."
            )
        warn(
            f"Bands {text} hold no data in any pixel and are left out: "
            f"{self.shape[2] - len(empty)} of {self._source.n_stored} bands are used. Name them "
            "in bad_bands (--bad-bands) to do without this warning.",
            DaskclustWarning,
        )
        self._source = replace(self._source, bands=np.delete(self.bands, empty))
        if self.wavelengths is not None:
            self.wavelengths = np.delete(self.wavelengths, empty)

    @property
    def sample_scaling(self) -> Scaling:
        """How valid pixels become `samples`."""
        return self._survey.scaling

    def scaled_as(self, scaling: Scaling) -> Self:
        """Return the same cube with the samples of another one's scaling.

        Parameters
        ----------
        scaling : Scaling
            The scaling of a cube with as many bands, as a fitted model stores it.

        Raises
        ------
        ValueError
            The number of bands differs.
        """
        counted = self._survey
        needs = {"standard": ("mean", "std"), "whitened": ("matrix",), "none": (), "unit": ()}
        if any(getattr(scaling, name) is None for name in needs[scaling.kind]):
            raise ValueError(f"The scaling {scaling.kind!r} lacks one of {needs[scaling.kind]}.")
        for values in (scaling.mean, scaling.matrix):
            if values is not None and len(values) != self._source.n_bands:
                raise ValueError(
                    f"The cube has {self._source.n_bands} bands; the model was fitted on one of "
                    f"{len(values)}. Keep the same bands."
                )
        other = copy(self)
        other.__dict__.pop("samples", None)
        other._scale = replace(scaling, dtype=self._dtype)
        # What was counted stays as it is: no pass is made again.
        other.__dict__["_survey"] = replace(counted, scaling=other._scale)
        return other

    def _stamp_now(self) -> str | None:
        if self._source.array is None:
            return stamp_files(self._files) if self._files else None
        return stamp(self._source.array.array)

    @property
    def block_counts(self) -> tuple[int, ...]:
        """Valid pixels of each block, in the order of the rows."""
        return self._survey.counts

    @property
    def n_valid(self) -> int:
        """Number of valid pixels, the rows of `samples`."""
        return sum(self.block_counts)

    @property
    def n_masked(self) -> int:
        """Number of pixels that are not valid, for any reason."""
        return self.shape[0] * self.shape[1] - self.n_valid

    @property
    def scaling(self) -> tuple[Floats, Floats] | None:
        """Mean and standard deviation that ``scale="standard"`` uses; None for other scales.

        Pass it as `scale` when you open another cube for prediction, so that both cubes
        are scaled alike.
        """
        found = self._survey.scaling
        if found.mean is None or found.std is None:
            return None
        return found.mean, found.std

    @cached_property
    def samples(self) -> da.Array:
        """Valid pixels as rows: lazy, (n_valid, bands), one row block per spatial block.

        float32 for float32 and for integers of up to 16 bits, else float64.
        """
        counts, scaling = self._survey.counts, self._survey.scaling
        return self._per_block(
            _blocks.block_samples,
            sizes=counts,
            width=self._source.n_bands,
            dtype=scaling.dtype,
            token="daskclust-samples",
            scaling=scaling,
        )

    @cached_property
    def valid(self) -> da.Array:
        """Which pixels are rows of `samples`: lazy, (y, x), bool."""
        flat = self._per_block(
            _blocks.block_valid, sizes=self._grid.pixels, dtype=bool, token="daskclust-valid"
        )
        return unflatten(flat, self._grid)

    def _per_block(
        self,
        function: Callable[..., Any],
        *labels: da.Array,
        sizes: Sequence[float],
        dtype: Any,
        token: str,
        width: int | None = None,
        **options: Any,
    ) -> da.Array:
        """Run ``function(ids, *labels, [excluded])`` on every block; `sizes` rows come out."""
        pairs: list[Any] = [da.from_array(np.arange(self._grid.count), chunks=1), "i"]
        if self._pixels is not None:
            pairs += [self._pixels, "ib"]
            function = partial(_blocks.with_held, function=function)
        for array in (*labels, *([] if self._excluded is None else [self._excluded])):
            pairs += [array, "i"]
        out = "i" if width is None else "ip"
        # Not aligned: block i of every array belongs together though lengths differ.
        return da.blockwise(
            function,
            out,
            *pairs,
            new_axes=None if width is None else {"p": width},
            adjust_chunks={"i": tuple(sizes)},
            align_arrays=False,
            # Blocks hold all bands: put together, they would be copied.
            concatenate=False,
            dtype=dtype,
            meta=np.empty((0,) * len(out), dtype=dtype),
            token=token,
            source=self._source,
            **options,
        )

    # Values of rows, block by block

    def _align(self, labels: Any) -> da.Array:
        return align(labels, self.block_counts)

    def _image(self, labels: Any, fill_value: float) -> da.Array:
        """Put one value per row back onto the image; lazy, (y, x)."""
        aligned = with_room(self._align(labels), fill_value)
        flat = self._per_block(
            _blocks.expand_block,
            aligned,
            sizes=self._grid.pixels,
            dtype=aligned.dtype,
            token="daskclust-map",
            fill_value=fill_value,
        )
        return unflatten(flat, self._grid)

    def _check_unchanged(self) -> None:
        """Raise where the cube is no longer what its labels were made of."""
        if self._stamp != self._stamp_now():
            raise ValueError(
                "The store of the cube was written to since it was read first, so labels may "
                "belong to other values; expected a store that stays as it is. Nothing was "
                "written. Open the cube again, fit again, and write then."
            )
