"""Two real scenes of a region, with polygons of land use."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).parent / "slovenia"


class SlovenianScenes(NamedTuple):
    """Files of :func:`load_slovenia`.

    Attributes
    ----------
    scene, second : Path
        GeoTIFF files with ten NDVI images of 100 x 101 pixels of 10 m.  The images of `scene` are
        from 2015 and 2016, the images of `second` from 2017.
    fields : Path
        GeoJSON file with 100 polygons; the property ``class`` is built, forest, grassland or
        shrubland.
    licence : Path
        Text file with the MIT licence and the attribution of the data.
    """

    scene: Path
    second: Path
    fields: Path
    licence: Path


def load_slovenia(folder: Any = None) -> SlovenianScenes:
    """Return two small Sentinel-2 scenes of a region in Slovenia, with polygons of land use.

    Parameters
    ----------
    folder : str or path, default=None
        Folder for copies, created if necessary.  None returns the files of the package.

    Returns
    -------
    SlovenianScenes
        Paths of the four files, 0.4 MB.

    Raises
    ------
    FileExistsError
        If the folder contains a different file with one of the names.

    Notes
    -----
    The NDVI images of both scenes are from similar days of the year, without clouds, in the order
    of the months.  Images and land use are from eo-learn's example (MIT), and contain modified
    Copernicus Sentinel data of 2015 to 2017.

    Examples
    --------
    >>> import daskclust
    >>> daskclust.datasets.load_slovenia().scene.name
    'scene.tif'
    """
    names = ("scene.tif", "second.tif", "fields.geojson", "LICENCE.txt")
    if folder is None:
        return SlovenianScenes(*(_FOLDER / name for name in names))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = target / name
        if path.exists() and path.read_bytes() != (_FOLDER / name).read_bytes():
            raise FileExistsError(
                f"folder must not contain other files with these names, got {str(path)!r}. Use an "
                "empty folder."
            )
    for name in names:
        shutil.copyfile(_FOLDER / name, target / name)
    return SlovenianScenes(*(target / name for name in names))
