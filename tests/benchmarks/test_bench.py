"""How clusters scale, and what is forecast: the model by hand, the command on real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench
import pytest
from bench import CostModel, MadeRows, Sample, _as_text, centers_of, n_tasks, steps_to
from distributed import Client, LocalCluster

from daskclust.core.reduction import ASSIGN
from daskclust.core.storage.atomic_write import host


def test_tasks_of_a_pass_by_hand() -> None:
    assert [n_tasks(groups) for groups in (1, 8, 9, 65)] == [1, 8, 11, 65 + 9 + 2]
    assert steps_to(1) == [1]
    assert steps_to(6) == [1, 2, 4, 6]
    assert steps_to(8) == [1, 2, 4, 8]


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


def test_made_rows_are_passed_over_like_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal sums on one worker and on two, and as many groups as asked for."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        one, two = list(client.nthreads())
        state = centers_of(3, 4)
        apart = MadeRows(client, [one, two, one], 100, 4).reduce(ASSIGN, state)
        rows = MadeRows(client, [two] * 3, 100, 4)
        together = rows.reduce(ASSIGN, state)
        assert rows.n_rows == 300
        assert apart.counts.sum() == 300
        for mine, theirs in zip(apart, together, strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or mine.tolist() == theirs.tolist()
        seconds = rows.alone(ASSIGN, state, 2)
        assert [len(found) for found in seconds] == [2, 2, 2]
        # The model counts the tasks that a pass does submit.
        submitted: list[Any] = []
        submit = client.submit

        def counted(*args: Any, **kwargs: Any) -> Any:
            submitted.append(kwargs["key"])
            return submit(*args, **kwargs)

        monkeypatch.setattr(client, "submit", counted)
        for groups in (8, 20, 70):
            many = MadeRows(client, [one, two] * (groups // 2), 5, 4)
            submitted.clear()
            assert many.reduce(ASSIGN, state).counts.sum() == 5 * groups
            assert len(submitted) == n_tasks(groups)
        # The scheduler goes over its task groups with each task that arrives.
        known = [name for name in cluster.scheduler.task_groups if name.startswith("daskclust")]
        assert len(known) <= 5


def test_scaling_is_measured_told_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="tcp"
    ) as cluster:
        words = ["--scheduler", cluster.scheduler_address, "--passes", "1"]
        words += ["--features", "3", "--n-clusters", "2", "--seconds", "0.001"]
        picture = tmp_path / "scaling.svg"
        # What a writer that was killed has left goes with the next one.
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        left = tmp_path / f".scaling.svg.{host()}-{ended.pid}-0123abcd.partial"
        left.touch()
        assert bench.main([*words, "--rows", "1e11", "--json", "--picture", str(picture)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert not left.exists()
        assert picture.read_text().lstrip().startswith("<?xml")
        with pytest.raises(FileExistsError, match="exists already"):
            bench.main([*words, "--picture", str(picture)])
        with pytest.raises(ValueError, match="must end in"):
            bench.main([*words, "--picture", str(tmp_path / "x.txt")])
    text = "\n".join(_as_text(found))
    kinds = [(line["kind"], line["workers"]) for line in found["scaling"]]
    assert kinds == [("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)]
    weak, strong = found["scaling"][1], found["scaling"][3]
    assert weak["rows"] == 2 * found["rows_a_thread"]
    assert strong["rows"] == found["rows_a_thread"] // 2 * 2
    for line in found["scaling"]:
        assert line["share_of_possible"] == pytest.approx(line["efficiency"] / line["possible"])
        assert 0 <= line["scheduler_share"]
    assert {sample["groups"] for sample in found["overhead"]} == {8, 32, 128}
    # The workers are threads of this process, so that theirs is the time of the whole process.
    assert all(sample["worker_seconds"] > 0 for sample in found["overhead"])
    assert set(found["model"]) == {"seconds", "client", "scheduler", "workers"}
    assert found["forecast"]["rows"] == 1e11
    assert [one["cores"] for one in found["forecast"]["passes"]] == [2, 64, 256, 512, 1024, 4096]
    assert "efficiency of 0.9" in text
    assert "Processor time of a task: scheduler" in text
    assert "weak" in text
