"""The only part of the package that runs Dask."""

from daskclust.core.engine.blocks import as_matrix, check_shape, working_dtype
from daskclust.core.engine.checkpoint import Checkpoint, Fingerprint, Fitted, check_checkpoint
from daskclust.core.engine.graph_partition import parts_read_again, read_again, seen_alike
from daskclust.core.engine.label_alignment import (
    aligned_labels,
    as_label_vector,
    by_block,
    distinct,
    missing_labels,
    open_label_pairs,
    open_labeled_rows,
)
from daskclust.core.engine.masks import mask_without
from daskclust.core.engine.opening import (
    forecast,
    is_dask,
    number_type,
    open_blank,
    open_rows,
    unwrap,
)
from daskclust.core.engine.parallel import (
    PART,
    Derived,
    Grouping,
    compute,
    decide_within_groups,
    group_rows,
    keep_on_workers,
    labeled_rows,
    make_rows,
    map_independent,
    map_rows,
    pair_rows,
    row_record,
    start_on_workers,
)
from daskclust.core.engine.resilient_tasks import await_workers
from daskclust.core.engine.rows import Carry, Rows
from daskclust.core.engine.shared_passes import Job, run_together
from daskclust.core.engine.threads import side_by_side
from daskclust.core.engine.wait_for_workers import on_notice
from daskclust.core.progress import on_iteration, without_passes
