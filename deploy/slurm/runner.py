"""What every task of runner.sbatch runs: scheduler, client or worker, by its number."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cube")
    parser.add_argument("output")
    parser.add_argument("--n-clusters", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--max-iter", type=int, default=300)
    return parser.parse_args()


def worker_options() -> dict[str, object]:
    """Return what a worker takes of its task: its cores, and 90 % of its memory."""
    threads = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    memory = int(os.environ.get("SLURM_MEM_PER_CPU", "0")) * threads
    if not memory:
        # Such as "4(x3),2": by the node with the most tasks.
        per_node = os.environ.get("SLURM_TASKS_PER_NODE", "1").split(",")
        most = max(int(part.split("(")[0]) for part in per_node)
        memory = int(os.environ.get("SLURM_MEM_PER_NODE", "0")) // most
    return {
        "nthreads": threads,
        "memory_limit": f"{memory * 9 // 10}MB" if memory else "auto",
        "local_directory": os.environ.get("TMPDIR", "/tmp"),
        "dashboard": False,
    }


def main() -> None:
    """Join the cluster; in the task that is the client, fit and write the map."""
    options = read_arguments()
    # After the arguments: --help and wrong ones need none of these packages.
    try:
        from dask_jobqueue.slurm import SLURMRunner
    except ImportError as error:
        raise SystemExit(
            f"runner.py needs dask-jobqueue ({error}). Use: pip install dask-jobqueue"
        ) from error
    from distributed import Client

    run = Path(os.environ["DASKCLUST_RUN"])
    # A file for each job, and each time it is queued again.
    mark = f"{os.environ['SLURM_JOB_ID']}-{os.environ.get('SLURM_RESTART_COUNT', 0)}"
    file = run / f"scheduler-{mark}.json"
    scheduler: dict[str, object] = {"dashboard": False}
    if "DASKCLUST_HOST" in os.environ:
        scheduler["host"] = os.environ["DASKCLUST_HOST"]
    with (
        SLURMRunner(
            scheduler_file=str(file),
            scheduler_options=scheduler,
            worker_options=worker_options(),
        ) as runner,
        Client(runner) as client,
    ):
        import daskclust

        client.wait_for_workers(1)
        cube = daskclust.open_cube(options.cube)
        checkpoint = run / "checkpoint.npz"
        if checkpoint.exists():
            print(f"Going on from the checkpoint {str(checkpoint)!r}", flush=True)
        model = daskclust.KMeans(
            options.n_clusters,
            random_state=options.seed,
            tol=options.tol,
            max_iter=options.max_iter,
            checkpoint=checkpoint,
        )
        model.fit(cube.samples)
        cube.write_labels(
            model.labels_, options.output, n_clusters=options.n_clusters, overwrite=True
        )
        # What a chain, a resubmission or a person looks for: written last.
        when, asked = datetime.now().astimezone().isoformat(), os.environ["DASKCLUST_ASKED"]
        (run / "finished.new").write_text(f"{when}\n{asked}\n")
        (run / "finished.new").replace(run / "finished")
        checkpoint.unlink()
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
