"""Lazy arrays whose reads are tried again, and results that are waited for with patience.

What a fit computes goes by passes.  All else, such as labels, the blocks of a map and
counts of pixels, is a graph of Dask's; here it gets what passes have.
"""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da

from daskclust.engine.dask_surface import client_behind, compute_by, scheduler_of
from daskclust.engine.graphs import graph_behind
from daskclust.engine.tasks import gather_futures

__all__ = ["compute", "read_again"]


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


def read_again(X: Any) -> Any:
    """Return a lazy array whose reads are tried again, each by itself, where they fail.

    Values and names stay.  What is in memory, here or on a cluster, is returned as it is.

    Parameters
    ----------
    X : dask.array.Array
        Chunked along its first axis only.

    Notes
    -----
    Builds the graph: O(chunks) on the client, as computing does.  Not for Dask's arrays
    of expressions (``array.query-planning``), which take no graphs; of a Zarr store that
    :func:`daskclust.open_cube` has opened, they are tried again all the same.
    """
    if hasattr(X, "expr"):
        return X
    behind = graph_behind(X)
    if behind.futures is not None or not behind.inputs or behind.in_memory:
        return X
    graph = behind.whole()
    own = [(X.name, i, *(0,) * (X.ndim - 1)) for i in range(X.numblocks[0])]
    graph.update({mine: key for mine, key in zip(own, behind.keys, strict=True) if mine != key})
    return da.Array(graph, X.name, X.chunks, dtype=X.dtype, meta=X._meta)
