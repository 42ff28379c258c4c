"""How far one scheduler carries: a model of its costs, and hundreds of simulated workers.

``python tests/benchmarks/scaling.py`` fits the model of ``daskclust bench`` to passes on few
workers, and compares what it says of more with what they take.
"""

from __future__ import annotations

import argparse

from _timing import print_table
from distributed import Client, LocalCluster
from simulated import simulated

from daskclust.commands._cost_model import CostModel, Sample
from daskclust.commands._scaling import measure_overhead, measure_scaling, rows_for

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
    repeats: int = 5,
    states: tuple[int, ...] = STATES,
) -> list[tuple[Sample, CostModel]]:
    """Fit to few workers; measure many, and return these with the model."""
    with simulated() as cluster:
        samples: list[Sample] = []
        for count in few:
            workers = cluster.grow(count)
            samples += measure_overhead(cluster.client, [workers], states, repeats, print)
        found = []
        for count in many:
            workers = cluster.grow(count)
            again = measure_overhead(cluster.client, [workers], states, repeats, print)
            found += [(sample, CostModel.fit(samples)) for sample in again]
        for sample in samples:
            print(sample)
    return found


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
        for name in ("seconds", "client", "scheduler"):
            measured = getattr(sample, name if name == "seconds" else f"{name}_seconds")
            predicted = getattr(model, name).of(sample.groups, sample.state_bytes)
            shown.append(f"{1e3 * predicted:.0f} / {1e3 * measured:.0f}")
        table.append(shown)
    heads = ["workers", "state, bytes", "clock, ms", "client, ms", "scheduler, ms"]
    print_table([*heads[:2], *(f"{head} (predicted / measured)" for head in heads[2:])], table)


if __name__ == "__main__":
    main()
