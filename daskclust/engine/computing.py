"""Results that are waited for with patience.

What a fit computes goes by passes.  All else, such as labels, the blocks of a map and
counts of pixels, is a graph of Dask's; here it gets what passes have.
"""

from __future__ import annotations

from typing import Any

import dask

from daskclust.engine.dask_surface import client_behind, compute_by, scheduler_of
from daskclust.engine.tasks import gather_futures

__all__ = ["compute"]


def compute(what: str, *collections: Any) -> tuple[Any, ...]:
    """Compute collections on the user's scheduler, and give up where a cluster has no workers.

    Parameters
    ----------
    what : str
        What that is, for messages.
    *collections : Dask collections

    Raises
    ------
    ClusterError
        Where there are no workers for ``daskclust.worker-timeout``, where workers die
        again and again, or where the scheduler is gone.

    Examples
    --------
    >>> import dask.array as da
    >>> total, = compute("the sum", da.ones(4, chunks=2).sum())
    >>> float(total)
    4.0
    """
    client = client_behind(scheduler_of(collections[0]))
    if client is None:
        return tuple(dask.compute(*collections))
    return compute_by(lambda futures: gather_futures(client, what, futures), client, collections)
