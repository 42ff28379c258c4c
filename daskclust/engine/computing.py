"""Compute graphs outside of passes, with the same time-outs as passes.

A fit computes by passes.  All other results, such as labels, the blocks of a map and
counts of pixels, are plain Dask graphs; here they get the error handling of passes.
"""

from __future__ import annotations

from typing import Any

import dask

from daskclust.engine.dask_surface import client_behind, compute_by, scheduler_of
from daskclust.engine.tasks import gather_futures

__all__ = ["compute"]


def compute(what: str, *collections: Any) -> tuple[Any, ...]:
    """Compute collections on the user's scheduler, and give up where a cluster has no workers.

    `what` names the result in messages. No workers for ``daskclust.worker-timeout``, workers that
    die repeatedly and a scheduler that cannot be reached are a ClusterError.

    >>> import dask.array as da
    >>> total, = compute("the sum", da.ones(4, chunks=2).sum())
    >>> float(total)
    4.0
    """
    client = client_behind(scheduler_of(collections[0]))
    if client is None:
        return tuple(dask.compute(*collections))
    return compute_by(lambda futures: gather_futures(client, what, futures), client, collections)
