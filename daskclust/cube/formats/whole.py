"""Whether the file of an image is whole, told before a pixel is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

__all__ = ["check_whole"]

#: Blocks of a file whose place is looked at.
_BLOCKS_LOOKED_AT = 2000
#: Files of a mosaic that are opened; all of them must exist.
_SOURCES_OPENED = 64
#: Without these an ENVI header does not say how the pixels lie; GDAL would guess.
_ENVI_NEEDS = ("samples", "lines", "bands", "data type", "interleave")


def check_whole(file: Any, name: str) -> None:
    """Refuse a local file that ends before its pixels do, where its driver tells their places.

    At most some thousand entries of the file's table of blocks are looked at, and no pixel.
    """
    if not Path(name).is_file():
        return
    if file.driver == "VRT":
        _check_sources(Path(name))
        return
    size = Path(name).stat().st_size
    if file.driver in ("GTiff", "COG"):
        ends = _ends_of_blocks(file)
    elif file.driver == "ENVI":
        _check_envi_header([Path(part) for part in file.files])
        if file.tags(ns="ENVI").get("file_compression", "0") != "0":
            return
        pixels = file.count * file.height * file.width * np.dtype(file.dtypes[0]).itemsize
        ends = int(file.tags(ns="ENVI").get("header_offset", 0)) + pixels
    else:
        return
    if ends > size:
        raise OSError(
            f"{name!r} is cut off: it has {size} bytes, and pixels lie up to byte {ends}. Copy or "
            "download it again."
        )


def _ends_of_blocks(file: Any) -> int:
    """Return the byte behind the last block that a GeoTIFF states, of those that are looked at."""
    height, width = file.block_shapes[0]
    down, across = -(-file.height // height), -(-file.width // width)
    # Pixel by pixel, all bands lie in the same blocks.
    alone = file.tags(ns="IMAGE_STRUCTURE").get("INTERLEAVE") != "PIXEL"
    bands = file.count if alone else 1
    total = bands * down * across
    ends = 0
    for at in np.unique(np.linspace(0, total - 1, min(total, _BLOCKS_LOOKED_AT)).astype(np.int64)):
        band, place = divmod(int(at), down * across)
        y, x = divmod(place, across)
        found = [
            file.get_tag_item(f"BLOCK_{what}_{x}_{y}", "TIFF", bidx=band + 1)
            for what in ("OFFSET", "SIZE")
        ]
        if None not in found:  # a block without data is not stored
            ends = max(ends, sum(int(value) for value in found))
    return ends


def _check_envi_header(files: list[Path]) -> None:
    """Refuse a header that does not say how the pixels lie: values would be read as others."""
    for header in files:
        if header.suffix.lower() != ".hdr":
            continue
        text = header.read_text(encoding="utf-8", errors="replace")
        stated = {line.split("=")[0].strip().lower() for line in text.splitlines() if "=" in line}
        missing = [key for key in _ENVI_NEEDS if key not in stated]
        if missing or text.count("{") > text.count("}"):
            what = f"it lacks {', '.join(missing)}" if missing else "a brace is not closed"
            raise OSError(
                f"The ENVI header {str(header)!r} is not whole: {what}. Copy or download it again."
            )


def _check_sources(mosaic: Path) -> None:
    """Refuse a VRT whose files are not there, or not whole."""
    import rasterio

    sources: dict[Path, None] = {}
    try:
        tree = ElementTree.parse(mosaic)
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # an encoding, too
        # GDAL reads on where a parser stops.
        raise OSError(
            f"{str(mosaic)!r} is no whole XML file: {error}. Make the VRT again."
        ) from error
    for node in tree.iter("SourceFilename"):
        name = (node.text or "").strip()
        if not name or "://" in name or name.startswith("/vsi") or ":" in name[2:]:
            continue  # in an archive, on a server, or a part of a file
        here = node.get("relativeToVRT") == "1"
        sources[mosaic.parent / name if here else Path(name)] = None
    for source in sources:
        if not source.exists():
            raise FileNotFoundError(
                f"{str(mosaic)!r} is made of files of which {str(source)!r} is not there; expected "
                "all of them. Put it there, or make the VRT again."
            )
    for source in list(sources)[:_SOURCES_OPENED]:
        with rasterio.open(source) as file:
            check_whole(file, str(source))
