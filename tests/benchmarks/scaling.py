"""How far one scheduler carries: a model of its costs, and hundreds of simulated workers.

``python tests/benchmarks/scaling.py`` fits the model of ``daskclust bench`` to passes on few
workers, and compares what it says of more with what they take.  Simulated workers share the cores
with scheduler and client, which those of a cluster do not: their part is told apart.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
from _timing import middle, print_table
from distributed import Client, LocalCluster
from simulated import simulated

from daskclust.commands._cost_model import CostModel, Sample, n_tasks
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


@dataclass(frozen=True)
class Simulation:
    """What a pass takes where all workers share the cores of one machine.

    Attributes
    ----------
    passes : CostModel
        What the command fits.
    growth : float
        Of the workers' time of the processor, as a power of the number of tasks.  Above one: the
        more of them share a few cores, the less of each finds its memory in the caches.
    workers : dict of int to float
        By the size of the state: that time for one task.
    busy : float
        Cores that are busy at once.
    """

    passes: CostModel
    growth: float
    workers: dict[int, float]
    busy: float

    @classmethod
    def fit(cls, samples: list[Sample]) -> Simulation:
        """Fit to passes on few workers."""
        states = sorted({sample.state_bytes for sample in samples})
        sizes = np.log([n_tasks(sample.groups) for sample in samples])
        which = [[sample.state_bytes == state for state in states] for sample in samples]
        found = np.linalg.lstsq(
            np.column_stack([sizes, np.array(which, dtype=float)]),
            np.log([max(sample.worker_seconds, 1e-6) for sample in samples]),
            rcond=None,
        )[0]
        workers = dict(zip(states, np.exp(found[1:]).tolist(), strict=True))
        busy = [
            (sample.client_seconds + sample.scheduler_seconds + sample.worker_seconds)
            / sample.seconds
            for sample in samples
        ]
        return cls(CostModel.fit(samples), float(found[0]), workers, middle(busy))

    def predict(self, groups: int, state_bytes: int) -> dict[str, float]:
        """Return the seconds of a pass: of processors, and of the clock."""
        client = self.passes.client.of(groups, state_bytes)
        scheduler = self.passes.scheduler.of(groups, state_bytes)
        workers = self.workers[state_bytes] * n_tasks(groups) ** self.growth
        return {
            "client": client,
            "scheduler": scheduler,
            "workers": workers,
            "clock": (client + scheduler + workers) / self.busy,
        }


def compare(
    few: tuple[int, ...],
    many: tuple[int, ...],
    repeats: int = 1,
    states: tuple[int, ...] = STATES,
    rounds: int = 3,
) -> list[tuple[Sample, Simulation]]:
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
    model = Simulation.fit([sample for sample in samples if sample.groups in few])
    return [(sample, model) for sample in samples if sample.groups in many]


def in_the_middle(samples: list[Sample]) -> Sample:
    """Return the medians: short passes find a quiet moment more often than long ones."""
    times = {
        name: middle([getattr(sample, name) for sample in samples])
        for name in ("seconds", "client_seconds", "scheduler_seconds", "worker_seconds")
    }
    return replace(samples[0], **times)


def predictions(sample: Sample, model: Simulation) -> dict[str, tuple[float, float]]:
    """Return predicted and measured seconds: of processors, and of the clock."""
    predicted = model.predict(sample.groups, sample.state_bytes)
    measured = {
        "client": sample.client_seconds,
        "scheduler": sample.scheduler_seconds,
        "workers": sample.worker_seconds,
        "clock": sample.seconds,
    }
    return {name: (predicted[name], seconds) for name, seconds in measured.items()}


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
    print(
        f"{model.busy:.2f} cores busy; the workers' time as tasks to the power {model.growth:.2f}"
    )


if __name__ == "__main__":
    main()
