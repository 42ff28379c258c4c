"""The kernels of this process: the emitted ones, or the plain ones where those are chosen."""

from __future__ import annotations

from typing import Any

from daskclust.kernels.compiling import PLAIN

if PLAIN:
    from daskclust.kernels.nearest import _plain as _rows
    from daskclust.kernels.nearest import _plain as _sweeps
else:
    from daskclust.kernels.nearest import _row_loops as _rows  # type: ignore[no-redef]
    from daskclust.kernels.nearest import _tiles as _sweeps  # type: ignore[no-redef]

#: Points of a tile of :data:`cost_of_tile`.
WIDTH: int = _rows.WIDTH
add_moments: Any = _rows.add_moments
cost_of_tile: Any = _rows.cost_of_tile
row_distance: Any = _rows.row_distance
sweeper: Any = _sweeps.sweeper

#: In the place of the gaps of a tile, for distances over what rows observe.
OBSERVED = (True,)
