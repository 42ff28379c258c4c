"""The model of the costs of passes by hand, and measurements at toy size."""

from __future__ import annotations

import pytest
from distributed import Client, LocalCluster
from scaling import (
    CostModel,
    Sample,
    measure_overhead,
    measure_scaling,
    n_tasks,
    rows_for,
)


def made_up(groups: int, state_bytes: int) -> Sample:
    tasks = n_tasks(groups)
    return Sample(
        groups,
        state_bytes,
        seconds=0.01 + 0.002 * tasks + 1e-9 * tasks * state_bytes,
        client_seconds=0.0005 * tasks,
        scheduler_seconds=0.001 * tasks,
        worker_seconds=0.003 * tasks,
    )


def test_the_model_finds_what_samples_were_made_of() -> None:
    model = CostModel.fit([made_up(g, s) for g in (2, 8, 32) for s in (100, 10**6)])
    assert model.seconds.constant == pytest.approx(0.01, rel=1e-6)
    assert model.seconds.task == pytest.approx(0.002, rel=1e-6)
    assert model.seconds.byte == pytest.approx(1e-9, rel=1e-6)
    assert model.scheduler.byte == pytest.approx(0.0, abs=1e-12)
    assert model.workers.task == pytest.approx(0.003, rel=1e-6)
    expected = made_up(512, 5000)
    assert model.seconds.of(512, 5000) == pytest.approx(expected.seconds, rel=1e-6)
    # By hand: 1e9 rows on 512 cores of 1e6 rows a second each.
    found = model.forecast(rows=1e9, cores=512, rows_a_second=1e6, state_bytes=0)
    assert found["work_seconds"] == pytest.approx(1e9 / 512 / 1e6)
    assert found["overhead_seconds"] == pytest.approx(0.01 + 0.002 * 584)
    assert found["efficiency"] == pytest.approx(1.953125 / (1.953125 + 1.178))
    assert found["scheduler_share"] == pytest.approx(0.584 / (1.953125 + 1.178))
    most = model.most_cores(rows=1e9, rows_a_second=1e6, state_bytes=0)
    for cores, good in ((most, True), (most + 1, False)):
        share = model.forecast(rows=1e9, cores=cores, rows_a_second=1e6, state_bytes=0)[
            "efficiency"
        ]
        assert (share >= 0.9) == good


def test_a_cluster_is_measured_at_toy_size(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        threads = dict(client.nthreads())
        rows = rows_for(client, next(iter(threads)), 0, 3, 2, 0.001)
        found = measure_scaling(client, threads, rows, 3, 2, 1, print)
        (sample,) = measure_overhead(client, [list(threads)], (512,), 1, print)
    kinds = [(line["kind"], line["workers"]) for line in found]
    assert kinds == [("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)]
    assert found[1]["rows"] == 2 * rows
    assert found[3]["rows"] == rows // 2 * 2
    for line in found:
        assert line["share_of_possible"] == pytest.approx(line["efficiency"] / line["possible"])
    assert sample.groups == 2
    assert sample.worker_seconds > 0
