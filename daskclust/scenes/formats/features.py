"""Description of a vector file: classes, areas, and overlap with a scene."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats
from daskclust.core.storage.redact import redact
from daskclust.scenes._georeference import PixelGrid
from daskclust.scenes.coordinate_systems import known_system, system_name, to_degrees
from daskclust.scenes.formats.format_detection import needs_extra
from daskclust.scenes.formats.vector import (
    class_column_of,
    on_grid,
    outline,
    read_classes,
    read_features,
)


def describe_features(
    path: str | os.PathLike[str],
    *,
    class_column: str | None = None,
    scene: PixelGrid | None = None,
) -> dict[str, Any]:
    """Describe a vector file as JSON values.

    `classes` is None if the column of the classes is not known. `scene` counts the features
    inside, partly inside and outside a scene.
    """
    with needs_extra(f"{os.fspath(path)!r}"):
        import shapely
    crs, shapes, columns = read_features(path)
    shown = repr(redact(path))
    has_shape = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
    kinds = Counter(str(kind) for kind in shapely.get_type_id(shapes[has_shape]).tolist())
    areas = _areas(shapes, crs)
    column: str | None
    try:
        column = class_column_of(list(columns), class_column, shown)
    except ValueError:  # several may be meant
        texts = [name for name, values in columns.items() if values.dtype.kind in "OU"]
        column = texts[0] if len(texts) == 1 else None
    facts: dict[str, Any] = {
        "kind": "vector file",
        "features": len(shapes),
        "geometries": {
            str(shapely.GeometryType(int(kind)).name).lower(): count
            for kind, count in kinds.items()
        },
        "without_geometry": int((~has_shape).sum()),
        "columns": list(columns),
        "class_column": column,
        "classes": None if column is None else _classes(columns[column], areas, shown),
        "square_meters": None if areas is None else math.fsum(areas),
        "crs": None if crs is None else system_name(crs),
        "bounds": shapely.total_bounds(shapes[has_shape]).tolist() if has_shape.any() else None,
        "scene": None,
    }
    if scene is not None:
        if crs is None or scene.crs is None:
            which_data = shown if crs is None else "the scene"
            raise ValueError(
                f"{which_data} states no coordinate system, so the overlap is not known. Assign "
                "one, for example with ogr2ogr -a_srs, or write_crs() of rioxarray."
            )
        edge, moved = outline(scene), on_grid(shapes[has_shape], crs, scene.crs, shown)
        inside, touched = shapely.covers(edge, moved), shapely.intersects(edge, moved)
        facts["scene"] = {
            "inside": int(inside.sum()),
            "partly": int((touched & ~inside).sum()),
            "outside": int((~touched).sum()),
        }
    return facts


def _classes(values: NDArray[Any], areas: Floats | None, shown: str) -> list[dict[str, Any]]:
    classes = read_classes(values, shown)
    names = classes.names or {}
    return [
        {
            "name": str(names.get(code, code)),
            "features": int((classes.codes == code).sum()),
            "square_meters": None if areas is None else math.fsum(areas[classes.codes == code]),
        }
        for code in np.unique(classes.codes[classes.codes >= 0]).tolist()
    ]


def _areas(shapes: Any, crs: str | None) -> Floats | None:
    """Return square meters on the ellipsoid, 0 of points; None without a coordinate system."""
    if crs is None:
        return None
    import shapely

    system = known_system(crs)
    ellipsoid = None if system is None or system.geodetic_crs is None else system.get_geod()
    if ellipsoid is None:
        return None
    to_lon_lat = to_degrees(crs).transform
    moved = shapely.transform(shapes, lambda xy: np.stack(to_lon_lat(*xy.T), axis=1))
    # Rings may have either direction.
    normalized = shapely.normalize(moved)
    return np.array(
        [
            0.0 if shape is None else abs(ellipsoid.geometry_area_perimeter(shape)[0])
            for shape in normalized
        ]
    )
