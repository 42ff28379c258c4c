"""Tables (Parquet, CSV, arrays) as rows for clustering, and labels written next to the rows."""

from daskclust.tables._arrays import holds_vectors
from daskclust.tables._table import Table, open_table
from daskclust.tables._writing import LabelsFolder, written_labels

__all__ = ["LabelsFolder", "Table", "holds_vectors", "open_table", "written_labels"]
