"""Which process it is that cannot read or write: what errors of workers begin with."""

from __future__ import annotations

import os
import platform

from daskclust.exceptions import StoreError

__all__ = ["on_worker", "this_process", "unseen"]


def on_worker() -> bool:
    """Whether this is a task on a worker of a cluster."""
    return _address() is not None


def _address() -> str | None:
    try:
        from distributed import get_worker

        return str(get_worker().address)
    except (ImportError, ValueError):
        return None


def this_process() -> str:
    """Name this process, by its address if it is a worker."""
    place, address = f"process {os.getpid()} on {platform.node()}", _address()
    return place if address is None else f"worker {address} ({place})"


def unseen(
    what: str, *, who: str = "which the client opened", verb: str = "does not see"
) -> StoreError:
    """Return the error for something that this process should see, as `who` does, and does not.

    `verb` says what is wrong.

    >>> "does not see '/data/x.tif', which the client opened. Every" in str(unseen("'/data/x.tif'"))
    True
    """
    return StoreError(
        f"The {this_process()} {verb} {what}, {who}. Every worker must reach the same files or "
        "stores under the same path: use a shared file system or an object store, and check "
        "mounts and containers."
    )
