"""Warnings that point at the user's line, however deep in the package they arise."""

from __future__ import annotations

import os
import sys
import warnings
from itertools import count
from pathlib import Path

import sklearn

#: Frames between a user's line and ours: the package's, and scikit-learn's mixins and pipelines.
_INSIDE = tuple(str(Path(file).parent) + os.sep for file in (__file__, sklearn.__file__))


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
