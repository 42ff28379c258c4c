"""Reductions: the contract of a pass over blocks of rows, and passes that families share."""

from daskclust.core.reduction.assign import (
    ASSIGN,
    FARTHEST,
    CenterSets,
    Clusters,
    ClusterStatistics,
    FarthestRequest,
)
from daskclust.core.reduction.contract import Field, Merge, Partial, Reduction, RowBlock
from daskclust.core.reduction.label_tables import SPREAD, Spread, SpreadRequest, split_labels
from daskclust.core.reduction.seeding import (
    ATTRACTED,
    CANDIDATES,
    CARRY_BYTES,
    FARTHEST_FIRST,
    FARTHEST_FIRST_BYTES,
    Attraction,
    CandidateRound,
    FarthestFirst,
)
from daskclust.core.reduction.survey import (
    SURVEY,
    ClassStatistics,
    RowLabels,
    Survey,
    SurveyRequest,
)

__all__ = [
    "ASSIGN",
    "ATTRACTED",
    "CANDIDATES",
    "CARRY_BYTES",
    "FARTHEST",
    "FARTHEST_FIRST",
    "FARTHEST_FIRST_BYTES",
    "SPREAD",
    "SURVEY",
    "Attraction",
    "CandidateRound",
    "CenterSets",
    "ClassStatistics",
    "ClusterStatistics",
    "Clusters",
    "FarthestFirst",
    "FarthestRequest",
    "Field",
    "Merge",
    "Partial",
    "Reduction",
    "RowBlock",
    "RowLabels",
    "Spread",
    "SpreadRequest",
    "Survey",
    "SurveyRequest",
    "split_labels",
]
