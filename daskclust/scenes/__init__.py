"""Image cubes as rows for clustering, and label maps back.

A cube (y, x, band) becomes a table with one row per valid pixel.  Rows are
numbered block by block, and inside a block line by line; nothing is shuffled, so
that a row block is one read of the store and a label block one write.
"""

from daskclust.scenes._cube import Cube
from daskclust.scenes._opening import open_cube
from daskclust.scenes._writing import write_together
from daskclust.scenes.areas import AreaTable, ClassArea
from daskclust.scenes.label_map import LabelMap, area_table, open_label_map
from daskclust.scenes.mosaic import open_mosaic

__all__ = [
    "AreaTable",
    "ClassArea",
    "Cube",
    "LabelMap",
    "area_table",
    "open_cube",
    "open_label_map",
    "open_mosaic",
    "write_together",
]
