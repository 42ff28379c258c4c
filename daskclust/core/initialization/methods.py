"""Names of the initializations, and the passes and rows that each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from daskclust.core.estimator.validation import NamedInit
from daskclust.core.initialization.deterministic import DENSITY_INITS, density_picks, row_budget

#: Initializations without random numbers (except for a sample of the rows, if there are too many).
DETERMINISTIC_INITS = ("maximin", *DENSITY_INITS)
#: Initializations that draw rows, in contrast to arrays and callables.
STRING_INITS: tuple[str, ...] = get_args(NamedInit)


def n_survey_picks(init: Any, n_clusters: int, n_rows: float = np.nan) -> int:
    """Return the number of rows that the first pass draws for each restart."""
    if not isinstance(init, str) or init == "maximin":
        return 0
    if init in DENSITY_INITS:
        return density_picks(n_clusters, n_rows)
    return n_clusters if init == "random" else 1


def passes_of_initialization(params: Mapping[str, Any]) -> int | None:
    """Return the maximum number of passes of an initialization, or None if it is unknown."""
    init = params.get("init", params.get("init_params"))
    if not isinstance(init, str):
        return 0
    k = params.get("n_clusters", params.get("n_components", 1))
    # The rounds, and the two passes of the sample.
    rounds = int(params.get("init_rounds", 5)) + 2
    grown = ("k-means||", "kmeans", "auto", "ss-k-means||")
    passes_of = dict.fromkeys(grown, rounds) | dict.fromkeys(DENSITY_INITS, 1)
    passes_of |= {"k-means++": k + 1, "ss-k-means++": k, "neighborhoods": k, "maximin": k}
    passes_of |= {"random": 0, "seeded-random": 0}
    nested_passes = 2 if params.get("algorithm") == "nested" and init not in grown else 0
    return passes_of[init] + nested_passes if init in passes_of else None


def note_compared_rows(history: list[dict[str, Any]], init: Any, n_rows: int, k: int) -> None:
    """Add the number of rows that the initialization compared to the first record."""
    if history and isinstance(init, str) and init in DENSITY_INITS:
        history[0]["init_rows"] = min(n_rows, row_budget(k))
