"""Ctrl-C while the command line is still being imported: one line, no traceback."""

import os
import signal
import sys
from types import FrameType

#: The end of ``sys.argv[0]`` while the package of a command is imported.
_PROGRAMS = ("-m", "daskclust", "daskclust.exe")


def answer_at_once() -> None:
    """Let Ctrl-C end the command line quietly, until it handles signals itself.

    Elsewhere nothing is changed: programs that import the package, its workers, threads, and
    commands that a shell started in the background.
    """
    if os.path.basename(sys.argv[0] if sys.argv else "") not in _PROGRAMS:
        return
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        return
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    try:
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # not the main thread
        return


def _end(signum: int, frame: FrameType | None) -> None:
    # Nothing was begun that would need cleaning up.
    os.write(2, b"daskclust: interrupted\n")
    os._exit(130)
