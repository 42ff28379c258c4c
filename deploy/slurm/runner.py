"""What every task of runner.sbatch runs: scheduler, client or worker, by its number."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def main() -> None:
    """Join the cluster; in the task that is the client, fit and write the map."""
    from dask_jobqueue.slurm import SLURMRunner
    from distributed import Client

    parser = argparse.ArgumentParser()
    parser.add_argument("cube")
    parser.add_argument("output")
    parser.add_argument("--n-clusters", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    run = Path(os.environ["DASKCLUST_RUN"])
    # A file for each job, and each time it is queued again.
    mark = f"{os.environ['SLURM_JOB_ID']}-{os.environ.get('SLURM_RESTART_COUNT', 0)}"
    with SLURMRunner(scheduler_file=str(run / f"scheduler-{mark}.json")) as runner:
        with Client(runner) as client:
            import daskclust

            client.wait_for_workers(1)
            cube = daskclust.open_cube(options.cube)
            checkpoint = run / "checkpoint.npz"
            model = daskclust.KMeans(
                options.n_clusters, random_state=options.seed, checkpoint=checkpoint
            )
            model.fit(cube.samples)
            cube.write_labels(
                model.labels_, options.output, n_clusters=options.n_clusters, overwrite=True
            )
            checkpoint.unlink()


if __name__ == "__main__":
    main()
