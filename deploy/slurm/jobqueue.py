"""A fit on workers that SLURM starts and stops as they are needed (dask-jobqueue's SLURMCluster).

    python jobqueue.py scene.zarr map.zarr --n-clusters 7 --walltime 01:00:00 --workers 2 16

Run it where a small process may live for as long as the fit takes: a login node that allows it, or
a job of one CPU. Workers come as jobs of their own and leave before their walltime ends; what a
worker held is computed again elsewhere. If this process ends, run the same command again: it goes
on from the checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cube")
    parser.add_argument("output")
    parser.add_argument("--n-clusters", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--queue")
    parser.add_argument("--walltime", default="01:00:00", metavar="HH:MM:SS", help="of a worker")
    parser.add_argument("--memory", default="4GB", help="of a worker")
    parser.add_argument("--workers", type=int, nargs=2, default=(2, 16), metavar=("MIN", "MAX"))
    parser.add_argument("--lifetime", default="50m", help="of a worker, below the walltime")
    parser.add_argument("--stagger", default="5m", help="so that not all workers leave at once")
    parser.add_argument("--scratch", default="/tmp", help="local folder of the workers")
    parser.add_argument("--interface", help="network interface, such as ib0")
    return parser.parse_args()


def main() -> None:
    """Fit KMeans to a cube and write its map."""
    options = read_arguments()
    # After the arguments: --help and wrong ones need none of these packages.
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise SystemExit(
            f"jobqueue.py needs dask-jobqueue ({error}). Use: pip install dask-jobqueue"
        ) from error
    from distributed import Client

    import daskclust

    with (
        SLURMCluster(
            queue=options.queue,
            cores=1,
            processes=1,
            memory=options.memory,
            walltime=options.walltime,
            interface=options.interface,
            local_directory=options.scratch,
            job_script_prologue=["export OMP_NUM_THREADS=1"],
            worker_extra_args=[
                "--lifetime",
                options.lifetime,
                "--lifetime-stagger",
                options.stagger,
            ],
        ) as cluster,
        Client(cluster),
    ):
        low, high = options.workers
        cluster.adapt(minimum_jobs=low, maximum_jobs=high)
        cube = daskclust.open_cube(options.cube)
        output = Path(options.output).absolute()
        checkpoint = output.with_name(f".{output.name}.checkpoint.npz")
        model = daskclust.KMeans(
            options.n_clusters,
            random_state=options.seed,
            tol=options.tol,
            max_iter=options.max_iter,
            checkpoint=checkpoint,
        )
        model.fit(cube.samples)
        cube.write_labels(model.labels_, output, n_clusters=options.n_clusters)
        checkpoint.unlink()
    print(f"Written {options.output}, {model.n_iter_} iterations")


if __name__ == "__main__":
    main()
