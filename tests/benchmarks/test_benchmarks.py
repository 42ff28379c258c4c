"""Benchmarks at toy size, so that they cannot rot, and at full size against their targets."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import cube
import lloyd
import memory
import numpy as np
import partial
import pytest
import reading
import scaling
import suite
import whole_fits
from _timing import PROBLEMS, TOY, run_alone


@pytest.mark.slow
def test_lloyd_compares_all_peers_at_toy_size(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dask_ml", reason="dask-ml is a peer of this benchmark")
    results = lloyd.compare({"a": TOY["a"]}, repeats=1)
    lloyd.report(results, TOY)
    assert set(results["a", "float32"]) == set(lloyd.PEERS)
    assert "| a (4e+03, 20, 10) float32 |" in capsys.readouterr().out


@pytest.mark.slow
def test_the_suite_at_toy_size(tmp_path: Path) -> None:
    suite.main(["--toy", "--output", str(tmp_path), "--seeds", "1", "--repeats", "1"])
    for part in suite.PARTS:
        assert (tmp_path / f"{part}.md").read_text().count("\n| ") >= len(TOY)


def test_missing_values_are_measured_at_toy_size() -> None:
    (pairs,) = partial.compare([partial.Cell(6, 5, 0.1, "float32")], n=3000, repeats=1).values()
    assert partial.ratio(pairs).processor > 0


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_whole_fits_reach_their_speed_at_equal_quality() -> None:
    peers = {peer: sys.executable for peer in ("daskclust", "scikit-learn")}
    table = whole_fits.summary(whole_fits.compare(PROBLEMS, peers))
    for name, target in whole_fits.TARGETS.items():
        assert table[name]["daskclust"]["inertia"] <= whole_fits.EQUAL
        assert table[name]["daskclust"]["speed"] >= target


@pytest.mark.slow
def test_costs_of_passes_are_predicted_at_toy_size() -> None:
    ((sample, model),) = scaling.compare((2, 4), (8,), 1, (400,), rounds=1)
    assert sample.groups == 8
    for predicted, measured in scaling.predictions(sample, model).values():
        assert predicted > 0
        assert measured > 0


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_the_overhead_of_512_workers_is_predicted() -> None:
    """From 16 to 128 workers: the clock, and the processors of client and scheduler.

    Not those of the workers: 512 of them share two cores, and so take more of each.
    """
    for sample, model in scaling.compare((16, 32, 64, 128), (512,)):
        pairs = scaling.predictions(sample, model)
        for name in ("clock", "client", "scheduler"):
            predicted, measured = pairs[name]
            assert abs(predicted - measured) <= scaling.TARGET * measured, name


@pytest.mark.benchmark
def test_two_workers_reach_what_two_cores_can() -> None:
    assert scaling.weak(rounds=8) >= scaling.TARGET_WEAK


@pytest.mark.slow
def test_memory_stays_under_the_limit_at_toy_size() -> None:
    found = memory.measure(n_mib=64, limit_mib=1024, chunk_mib=4)
    assert found["worker"] < found["limit"]
    assert found["client_growth"] < memory.TARGET_CLIENT


@pytest.mark.slow
def test_passes_over_stores_are_measured_at_toy_size(tmp_path: Path) -> None:
    for name, kind in reading.STORES.items():
        path = tmp_path / name
        times = reading.write_store(path, kind, 2**22, chunk_bytes=2**20)
        assert times > (3.0 if name == "int16, few spectra" else 0.9)
        # One pass an iteration, or it raises.
        (line,) = reading.lines_of(name, path, [3], ["threads"], 1, True)
        assert line[:3] == [name, "threads", "3"]
        parts = reading.pieces(path, 3, 4)
        assert set(parts) == set(reading.PIECES)
        assert 0.0 < reading.best_share(parts) < np.inf


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(reading.STORES))
@pytest.mark.parametrize("where", ["threads", "processes"])
def test_a_pass_is_as_fast_as_a_bare_sum(name: str, where: str, tmp_path: Path) -> None:
    reading.write_store(tmp_path / "rows", reading.STORES[name], 10**9)
    found = reading.compare(tmp_path / "rows", [6, 20], where, 3)
    for k in (6, 20):
        # Where chunks are decoded nearly for free, the arithmetic alone takes longer than a sum.
        possible = reading.best_share(reading.pieces(tmp_path / "rows", k))
        share = found["sum"].clock / found[f"k={k}"].clock
        assert share >= min(reading.TARGET, max(0.9 * possible, reading.FLOOR))


@pytest.mark.slow
@pytest.mark.parametrize("scene", list(cube.FORMATS))
def test_a_cube_from_file_to_report_at_toy_size(scene: str) -> None:
    if scene != "scene.zarr":
        pytest.importorskip("rioxarray", reason="needs the extra `raster`")
    found = cube.measure(side=320, block=112, scene=scene, iterations=2)
    assert found["worker"] < cube.LIMIT
    assert found["report"] < 5e6


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", list(cube.FORMATS))
def test_a_cube_ten_times_larger_than_the_workers(scene: str) -> None:
    if scene != "scene.zarr":
        pytest.importorskip("rioxarray", reason="needs the extra `raster`")
    found = cube.measure(side=10_000, block=256, scene=scene)
    assert found["worker"] < cube.LIMIT
    assert found["report"] < 5e6


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("p", partial.FEATURES)
def test_missing_values_cost_at_most_their_target(p: int) -> None:
    grid = itertools.product(partial.CLUSTERS, partial.SHARES, partial.DTYPES)
    results = partial.compare(partial.Cell(p, *values) for values in grid)
    for cell, pairs in results.items():
        assert partial.ratio(pairs).processor <= partial.TARGET, cell


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_lloyd_is_ahead_of_its_peers(name: str) -> None:
    cell = lloyd.compare({name: PROBLEMS[name]}, repeats=5)[name, "float32"]
    over_sklearn, over_dask_ml = lloyd.LEAST[name]
    assert cell["scikit-learn"] / cell["daskclust"] >= over_sklearn
    assert cell["dask-ml"] / cell["daskclust"] >= over_dask_ml


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_memory_of_a_fit_ten_times_larger_than_the_workers() -> None:
    # In a process of its own, whose growth is not hidden by what other tests needed.
    found = run_alone(memory.__file__, "--json", "--limit", "1024", "--factor", "10")
    assert found["worker"] < found["limit"]
    assert found["client_growth"] < memory.TARGET_CLIENT
