"""The contract of a pass over the data, for people who write their own estimators."""

from daskclust.core.reduction import *  # noqa: F403
from daskclust.core.reduction import __all__ as __all__
