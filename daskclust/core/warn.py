"""Warnings that refer to the user's line of code, not to a line of the package."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.util import find_spec
from itertools import count
from pathlib import Path

#: Folders whose frames are skipped: this package, and the mixins and pipelines of scikit-learn.
#: scikit-learn is located, not imported: workers do not need it, and the import is slow.
_SKLEARN = find_spec("sklearn")
_FOLDERS = [Path(__file__).parents[1]]
if _SKLEARN is not None and _SKLEARN.origin is not None:
    _FOLDERS.append(Path(_SKLEARN.origin).parent)
_INSIDE = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)


def warn(message: str, category: type[Warning]) -> None:
    """Warn with the user's line of code: the innermost frame outside the package.

    Python 3.12 has ``warnings.warn(..., skip_file_prefixes=...)`` for this.
    """
    for level in count(1):
        try:
            filename = sys._getframe(level).f_code.co_filename
        except ValueError:
            # Only frames of the package: it runs as a program.
            break
        if not filename.startswith(_INSIDE):
            break
    warnings.warn(message, category, stacklevel=level + 1)
