"""The only part of the package that runs Dask."""

from daskclust.engine.blocks import as_matrix, check_shape
from daskclust.engine.checkpoint import Checkpoint, Fingerprint, check_checkpoint
from daskclust.engine.computing import compute
from daskclust.engine.driver import Fitted, Step, iterate, on_iteration, showing_progress
from daskclust.engine.graphs import parts_read_again, read_again
from daskclust.engine.independent import map_independent
from daskclust.engine.labels import as_label_vector, open_label_pairs, open_labeled_rows
from daskclust.engine.lazy import labeled_rows, map_rows, pair_rows
from daskclust.engine.lockstep import Job, run_together
from daskclust.engine.progress import on_notice
from daskclust.engine.rows import Rows, is_dask, open_blank, open_rows, unwrap
from daskclust.engine.threads import side_by_side

__all__ = [
    "Checkpoint",
    "Fingerprint",
    "Fitted",
    "Job",
    "Rows",
    "Step",
    "as_label_vector",
    "as_matrix",
    "check_checkpoint",
    "check_shape",
    "compute",
    "is_dask",
    "iterate",
    "labeled_rows",
    "map_independent",
    "map_rows",
    "on_iteration",
    "on_notice",
    "open_blank",
    "open_label_pairs",
    "open_labeled_rows",
    "open_rows",
    "pair_rows",
    "parts_read_again",
    "read_again",
    "run_together",
    "showing_progress",
    "side_by_side",
    "unwrap",
]
