"""How far one scheduler carries: a model of its costs, and hundreds of simulated workers.

``python tests/benchmarks/scaling.py`` fits the model of ``bench.py`` to passes on few
workers, and compares what it says of more with what they take.  Simulated workers share the cores
with scheduler and client, which those of a cluster do not; their processor time is told apart.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from _timing import middle, print_table
from bench import (
    CostModel,
    Sample,
    measure_overhead,
    measure_scaling,
    rows_for,
)
from distributed import Client, LocalCluster
from simulated import simulated

#: By how much a prediction may be wrong.
TARGET = 0.3
STATES = (400, 40_000)
#: Of what two cores can show, two workers must show so much.
TARGET_WEAK = 0.9


def weak(rounds: int, seconds: float = 1.0, p: int = 32, k: int = 16) -> float:
    """Return the weak scaling to two worker processes, as a share of what the cores can do."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        threads = dict(client.nthreads())
        rows = rows_for(client, next(iter(threads)), 0, p, k, seconds)
        table = measure_scaling(client, threads, rows, p, k, rounds, print)
    (two,) = (line for line in table if line["kind"] == "weak" and line["workers"] == 2)
    return float(two["share_of_possible"])


def compare(
    few: tuple[int, ...],
    many: tuple[int, ...],
    repeats: int = 1,
    states: tuple[int, ...] = STATES,
    rounds: int = 3,
) -> list[tuple[Sample, CostModel]]:
    """Fit to few workers; measure many, and return these with the model.

    Few and many are clusters of their own, which take turns: what else the machine does slows
    both.  The scheduler of the few never has more.
    """
    found: dict[tuple[int, int], list[Sample]] = {}
    with simulated() as small, simulated() as large:
        workers = {small: small.grow(max(few)), large: large.grow(max(many))}
        for _ in range(rounds):
            # Short passes are measured more often: they vary more.
            for cluster, counts in ((small, few), (large, many), (small, few)):
                places = [workers[cluster][:count] for count in counts]
                for sample in measure_overhead(cluster.client, places, states, repeats, print):
                    found.setdefault((sample.groups, sample.state_bytes), []).append(sample)
    samples = [in_the_middle(same) for same in found.values()]
    for sample in samples:
        print(sample)
    model = CostModel.fit([sample for sample in samples if sample.groups in few])
    return [(sample, model) for sample in samples if sample.groups in many]


def in_the_middle(samples: list[Sample]) -> Sample:
    """Return the medians: short passes find a quiet moment more often than long ones."""
    names = ("seconds", "client_seconds", "scheduler_seconds", "worker_seconds")
    times = {name: middle([getattr(sample, name) for sample in samples]) for name in names}
    return replace(samples[0], **times)


def predictions(sample: Sample, model: CostModel) -> dict[str, tuple[float, float]]:
    """Return predicted and measured seconds: of the clock, and of processors."""
    measured = {
        "clock": (model.seconds, sample.seconds),
        "scheduler": (model.scheduler, sample.scheduler_seconds),
        "client": (model.client, sample.client_seconds),
        "workers": (model.workers, sample.worker_seconds),
    }
    size = sample.groups, sample.state_bytes
    return {name: (cost.of(*size), seconds) for name, (cost, seconds) in measured.items()}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", default="16,32,64,128")
    parser.add_argument("--many", default="512")
    options = parser.parse_args()
    few, many = (tuple(int(n) for n in text.split(",")) for text in (options.few, options.many))
    table = []
    for sample, model in compare(few, many):
        shown = [str(sample.groups), str(sample.state_bytes)]
        pairs = predictions(sample, model)
        shown += [f"{1e3 * said:.0f} / {1e3 * measured:.0f}" for said, measured in pairs.values()]
        table.append(shown)
    heads = [f"{name}, ms (predicted / measured)" for name in pairs]
    print_table(["workers", "state, bytes", *heads], table)


if __name__ == "__main__":
    main()
