"""Warnings that point at the user's line, however deep in the package they arise."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.util import find_spec
from itertools import count
from pathlib import Path

#: Frames between a user's line and ours: the package's, and scikit-learn's mixins and pipelines.
#: It is found, not imported: workers have no use for it, and a third of their start would be it.
_SKLEARN = find_spec("sklearn")
_FOLDERS = [Path(__file__).parents[1]]
if _SKLEARN is not None and _SKLEARN.origin is not None:
    _FOLDERS.append(Path(_SKLEARN.origin).parent)
_INSIDE = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)


def warn(message: str, category: type[Warning]) -> None:
    """Warn as if from the user's line: the innermost frame outside the package.

    Python 3.12 has ``warnings.warn(..., skip_file_prefixes=...)`` for this.
    """
    for level in count(1):
        try:
            filename = sys._getframe(level).f_code.co_filename
        except ValueError:
            # Nothing but the package: run as a program.
            break
        if not filename.startswith(_INSIDE):
            break
    warnings.warn(message, category, stacklevel=level + 1)
