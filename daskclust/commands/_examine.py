"""Asking the processes of a cluster about themselves, and about what they see and can write."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from daskclust.commands._diagnosis import spoilers
from daskclust.commands._surroundings import (
    look_around,
    look_around_worker,
    shares_folder,
    shares_url,
)
from daskclust.commands.console import Progress
from daskclust.storage.files import remove, write_whole
from daskclust.storage.stores import local_path

__all__ = ["ask_workers", "look_before_fit", "who_cannot_write"]

#: Seconds that a fit waits for answers about its cluster.
_PATIENCE = 15.0
#: Problems that a fit names.
_NAMED = 4


def ask_workers(client: Any) -> dict[str, dict[str, Any]]:
    """Return what each worker says of itself and the scheduler knows of it, by address."""
    asked = time.time()
    around = client.run(look_around_worker, on_error="ignore")
    answered = time.time()
    found = {}
    for address, info in client.scheduler_info(n_workers=-1)["workers"].items():
        if address not in around:  # it has come, or gone, meanwhile
            continue
        clock = around[address]["clock"]
        found[address] = {
            **around[address],
            "threads": info["nthreads"],
            "memory_limit": info["memory_limit"],
            "memory_used": info["metrics"]["memory"],
            # The worker answered at some time between.
            "clock_skew": max(asked - clock, clock - answered, 0.0),
        }
    return found


def look_before_fit(client: Any, progress: Progress) -> None:
    """Say what would spoil a fit on a cluster; never keep it from starting.

    Costs a short call of each worker, all at once.  What is answered late, as by workers that
    still import, is said then.
    """
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            scheduler = client.run_on_scheduler(look_around)
            answer.set_result(spoilers(look_around(), scheduler, ask_workers(client)))
        except BaseException as error:
            answer.set_exception(error)

    # In a thread: a worker that is stopped answers when it goes on, and a fit can wait for that.
    threading.Thread(target=ask, name="daskclust-look", daemon=True).start()
    late = False
    try:
        answer.result(_PATIENCE)
    except TimeoutError:
        late = True
        progress.say(
            f"The cluster did not answer for {_PATIENCE:.0f} s; what is wrong with it is said when "
            "it does."
        )
    except Exception:  # said below
        pass
    answer.add_done_callback(partial(_say_problems, progress, late))


def _say_problems(progress: Progress, late: bool, answer: Future[list[str]]) -> None:
    error = answer.exception()
    if error is not None:
        # Late, it is most likely that the command is done.
        if not late:
            progress.say(
                f"warning: the cluster was not examined ({type(error).__name__}); "
                "daskclust doctor tells more."
            )
        return
    problems = answer.result()
    for problem in problems[:_NAMED]:
        progress.say(f"warning: {problem}")
    if len(problems) > _NAMED:
        progress.say(f"warning: {len(problems) - _NAMED} more; daskclust doctor names them.")


def who_cannot_write(client: Any, output: str | None) -> dict[str, str | None]:
    """Ask every worker to write beside an output, and to remove it again."""
    if output is None:
        return {}
    name = f".daskclust-doctor-{uuid.uuid4().hex[:12]}"
    answers: dict[str, str | None]
    path = local_path(output)
    if path is None:
        token = f"{output.rstrip('/').rpartition('/')[0]}/{name}"
        write_whole(token, b"daskclust", check=lambda: None)
        try:
            answers = client.run(partial(shares_url, token))
        finally:
            remove(token)
        return answers
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(
            f"The folder {str(folder)!r} of --output does not exist; create it, where all workers "
            "see it."
        )
    local_token = Path(folder) / name
    try:
        local_token.touch()
        answers = client.run(shares_folder, str(folder), name)
    finally:
        local_token.unlink(missing_ok=True)
    return answers
