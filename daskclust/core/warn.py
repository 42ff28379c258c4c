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
_FILES = (__file__, (_SKLEARN and _SKLEARN.origin) or __file__)
_INSIDE = tuple(str(Path(file).parent) + os.sep for file in _FILES)


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
