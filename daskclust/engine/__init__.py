"""The only part of the package that runs Dask."""

from daskclust._progress import on_iteration, without_passes
from daskclust.engine.binding import (
    forecast,
    is_dask,
    number_type,
    open_blank,
    open_rows,
    unwrap,
)
from daskclust.engine.blocks import as_matrix, check_shape, working_dtype
from daskclust.engine.checkpoint import Checkpoint, Fingerprint, Fitted, check_checkpoint
from daskclust.engine.computing import (
    PART,
    Grouping,
    compute,
    decide_within_groups,
    group_rows,
    labeled_rows,
    make_rows,
    map_independent,
    map_rows,
    pair_rows,
    row_record,
)
from daskclust.engine.graphs import parts_read_again, read_again, seen_alike
from daskclust.engine.labels import (
    aligned_labels,
    as_label_vector,
    by_block,
    distinct,
    missing_labels,
    open_label_pairs,
    open_labeled_rows,
)
from daskclust.engine.lockstep import Job, run_together
from daskclust.engine.masks import mask_without
from daskclust.engine.rows import Carry, Rows
from daskclust.engine.tasks import await_workers
from daskclust.engine.threads import side_by_side
from daskclust.engine.workers import on_notice
