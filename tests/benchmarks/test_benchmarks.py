"""Benchmarks at toy size, so that they cannot rot, and at full size against their targets."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import cube
import dpmeans
import embeddings
import failing_reads
import inertia
import lloyd
import memory
import mixtures
import numpy as np
import overhead
import pairwise_seeding
import partial
import pckid
import pcskm
import pytest
import reading
import scaling
import seeding
import selection
import suite
import whole_fits
from _pictures import Line, draw_growth
from _timing import PROBLEMS, TOY, Problem, run_alone

from daskclust.cluster.lloyd import LloydProblem


@pytest.mark.slow
def test_lloyd_compares_all_peers_at_toy_size(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dask_ml", reason="dask-ml is a peer of this benchmark")
    results = lloyd.compare({"a": TOY["a"]}, repeats=1)
    lloyd.report(results, TOY)
    assert set(results["a", "float32"]) == set(lloyd.PEERS)
    assert "| a (4e+03, 20, 10) float32 |" in capsys.readouterr().out


def test_inertia_over_seeds_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(4000, 4, 5)
    rows = whole_fits.overlapping(problem)
    results = {peer: inertia.measure(peer, rows, problem.k, range(3)) for peer in inertia.PEERS}
    table = inertia.summary({"a": results})
    inertia.report(table)
    assert table["a"]["inertia"] == pytest.approx(1.0, abs=0.02)
    assert 0.0 <= table["a"]["error"] < 0.02
    assert min(results["daskclust"]["clock"]) > 0.0
    # Known numbers: 1 % more, and twice as fast.
    ours = {"inertia": [101.0, 101.0], "clock": [0.5], "processor": [1.0]}
    theirs = {"inertia": [99.0, 101.0], "clock": [1.0], "processor": [1.0]}
    table = inertia.summary({"b": {"daskclust": ours, "scikit-learn": theirs}})
    inertia.report(table)
    assert "| b | +1.00 ± 1.00 % | 500.0, 1000.0 (2.00x) |" in capsys.readouterr().out


def test_lloyd_fits_how_time_grows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Times that are known: n p, and the root of k.
    monkeypatch.setattr(
        lloyd,
        "compare",
        lambda problems, dtypes, repeats, peers: {
            (name, dtypes[0]): {"daskclust": p.n * p.p * p.k**0.5} for name, p in problems.items()
        },
    )
    found = lloyd.growth(lloyd.MIDDLE, lloyd.FACTORS, ("daskclust",), "float32", 1)
    lloyd.report_growth(found)
    slopes = [found[size][0].power[0] for size in ("n", "p", "k")]
    assert slopes == pytest.approx([1.0, 1.0, 0.5])
    assert "0.50" in capsys.readouterr().out
    # Noise has no exponent.
    noise = Line("noise", [1, 2, 4], [1.0, -0.1, 2.0])
    assert np.isnan(noise.power[0])
    draw_growth({**found, "k": [*found["k"], noise]}, tmp_path / "growth.png", "ms")
    assert (tmp_path / "growth.png").stat().st_size > 1000


@pytest.mark.slow
def test_bounds_are_compared_at_toy_size(capsys: pytest.CaptureFixture[str]) -> None:
    results = lloyd.compare_fits({"d": TOY["d"]}, ("float32",), ("lloyd", "bounds"), 1)
    lloyd.report_fits(results, TOY)
    cell = results["d", "float32"]
    assert cell["lloyd"]["inertia"] == cell["bounds"]["inertia"]
    assert "| d (4e+03, 16, 20) float32 |" in capsys.readouterr().out


@pytest.mark.slow
def test_the_suite_is_measured_written_and_goes_on_at_toy_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["--toy", "--output", str(tmp_path), "--problems", "a", "--seeds", "1"]
    command += ["--peers", "daskclust,scikit-learn"]
    suite.main([*command, "--parts", "fits"])
    assert "| a (4e+03, 20, 10) |" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "fits.json").read_text())
    assert numbers["versions"]["scikit-learn"]
    assert set(numbers["results"]["a"]) == {"daskclust", "scikit-learn"}
    assert (tmp_path / "fits.png").stat().st_size > 1000
    # What is there is not measured again.
    for name in suite.PARTS.keys() - {"constrained"}:
        (tmp_path / f"{name}.md").write_text(f"Table of {name}.")
        (tmp_path / f"{name}.json").write_text(json.dumps(numbers))
    # Of stored results there may be the numbers alone.
    (tmp_path / "fits.md").unlink()
    suite.main(command)
    page = (tmp_path / "suite.md").read_text()
    assert "Table of growth." in page
    assert "| a (4e+03, 20, 10) |" in page
    assert "MATLAB program 15.4 s" in page
    # Nor beside what another machine has measured.
    with pytest.raises(SystemExit, match=r"holds measurements of .*'toy'.* Name another folder"):
        suite.main(["--output", str(tmp_path)])


def test_embeddings_are_compared_by_the_time_to_the_same_inertia(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = embeddings.measure("daskclust", "e", 20, 0, 0.005)
    assert record["trace"][-1] == tuple(record[key] for key in ("seconds", "processor", "inertia"))
    # Known numbers: 4 s to an inertia of 9 or less, where the peer took 8; of processors 7 and 16.
    ours = {"seconds": 5.0, "processor": 9.0, "inertia": 8.0}
    ours["trace"] = [(3.0, 5.0, 10.0), (4.0, 7.0, 9.0), (5.0, 9.0, 8.0)]
    theirs = {"seconds": 8.0, "processor": 16.0, "inertia": 9.0}
    never = {"seconds": 1.0, "processor": 2.0, "inertia": 7.0}
    cell = {"daskclust": [ours], "faiss": [theirs], "SuperKMeans": [never]}
    embeddings.report({"f, k = 256": cell})
    table = capsys.readouterr().out
    assert (
        "| f, k = 256 | faiss | 8.00 | 16.00 | +12.50 % | 4.00, 2.0x | 7.00, 2.3x | 2.5x |" in table
    )
    assert "| inf, 0.0x | inf, 0.0x | 1.3x |" in table


def test_starts_and_levels_are_told_in_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Put back in the end.
    for name in ("begin", "_assign"):
        monkeypatch.setattr(LloydProblem, name, getattr(LloydProblem, name))
    found = embeddings.start("f", "sampled", 20, 0.02, 2)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(found, 2)
    known = {"start": [2.0, 4.0], "pass": [1.0, 1.0], "fit": [9.0, 9.0], "inertia": [9.0, 11.0]}
    embeddings.report_starts({"f, k = 20": {"sampled": known, "random": known}})
    assert "| f, k = 20 | random | 3.00 | 3.0 | 9.0 | +0.00 ± 10.00 % |" in capsys.readouterr().out
    known = {
        "n": 9, "k": 3, "seconds of phases": {"parts": 2.0}, "client MiB": 7, "worker MiB": 5.0,
        "processor seconds of workers": {"parts": [1.0, 1.5]},
    }  # fmt: skip
    embeddings.report_hierarchical(known)
    table = capsys.readouterr().out
    assert "| parts | 2.0 | 1.0, 1.5 |" in table
    assert "| MiB at most: client, a worker | 7 | 5 |" in table


@pytest.mark.slow
def test_all_parts_of_the_suite_at_toy_size(tmp_path: Path) -> None:
    suite.main(["--toy", "--output", str(tmp_path), "--seeds", "1", "--repeats", "1"])
    page = (tmp_path / "suite.md").read_text()
    assert page.count("## ") == len(suite.PARTS)
    assert page.count(".png)") == len(list(tmp_path.glob("*.png"))) == len(suite.PARTS) - 3


def test_a_slow_peer_is_measured_with_few_seeds_and_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = {"scikit-learn": (4.0, 2.0), "daskclust": (2.0, 2.0), "dask-ml": (80.0, 2.1)}
    asked = []

    def run(*arguments: str, limit: float | None, **_: Any) -> dict[str, float]:
        peer, *_sizes, seed = json.loads(arguments[-1])
        asked.append((peer, seed))
        if peer == "faiss":
            raise TimeoutExpired(peer, limit or 0.0)
        seconds, inertia = known[peer]
        return {"seconds": seconds + 4.0 * (seed == 0), "iterations": 3, "inertia": inertia}

    monkeypatch.setattr(whole_fits, "run_alone", run)
    peers = {peer: sys.executable for peer in (*known, "faiss")}
    table = whole_fits.summary(whole_fits.compare({"a": TOY["a"]}, peers, seeds=3, limit=100.0))
    assert [seed for peer, seed in asked if peer == "daskclust"] == [0, 1, 2]
    assert [seed for peer, seed in asked if peer in ("dask-ml", "faiss")] == [0, 0]
    # Over the same seed, the first.
    assert table["a"]["dask-ml"]["speed"] == pytest.approx(8.0 / 84.0)
    whole_fits.report(table, TOY)
    line = capsys.readouterr().out.splitlines()[-1]
    assert "| 84.00 s (3) 0.10x of 1 seed, +5.00 % | ended after 100 s | 2.6x |" in line
    whole_fits.draw(table, tmp_path / "fits.png", TOY)
    assert (tmp_path / "fits.png").stat().st_size > 1000


def test_inertia_of_a_benchmark_by_hand() -> None:
    rows = np.array([[0.0], [1.0], [5.0]], dtype=np.float32)
    assert whole_fits.inertia(rows, np.array([[0.5], [3.0]])) == pytest.approx(0.25 + 0.25 + 4.0)


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_whole_fits_reach_their_speed_at_equal_quality() -> None:
    peers = {peer: sys.executable for peer in ("daskclust", "scikit-learn")}
    table = whole_fits.summary(whole_fits.compare(PROBLEMS, peers))
    for name, target in whole_fits.TARGETS.items():
        assert table[name]["daskclust"]["inertia"] <= whole_fits.EQUAL
        assert table[name]["daskclust"]["speed"] >= target


def test_failing_reads_are_compared_at_toy_size(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reads http by it: pip install 'fsspec[http]'")
    # Both fits of each pair are checked to be the same there.
    failing_reads.report(failing_reads.compare(n_chunks=10, rows=500, repeats=1))
    assert capsys.readouterr().out.count("| streamed |") == 2


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_reads_of_which_some_fail_cost_little() -> None:
    pytest.importorskip("aiohttp", reason="fsspec reads http by it: pip install 'fsspec[http]'")
    for row in failing_reads.compare(n_chunks=50, rows=40_000, repeats=3).values():
        assert row["ratio"] <= failing_reads.TARGET


@pytest.mark.slow
def test_overhead_is_measured_on_a_cluster_at_toy_size() -> None:
    assert set(overhead.compare((4, 8), repeats=2)) == {4, 8}


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


def test_pcskm_is_measured_at_toy_size() -> None:
    assert pcskm.small(n=200, n_pairs=100, repeats=1) > 0
    ours, plain = pcskm.large(Problem(5000, 10, 4), n_pairs=100, passes=3)
    assert ours > 0
    assert plain > 0


def test_starts_from_pairs_are_compared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairwise_seeding, "AMOUNTS", ((0.3, 0.0), (1.0, 0.1)))
    pairwise_seeding.main(["--repetitions", "1", "--data", "iris, k=3"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(r"| auto | neighborhoods | dkm++ | k-means\|\| |")
    assert [line.split(" | ")[1] for line in lines[2:]] == ["0.3", "1, 10% wrong"]


def test_seeding_is_measured_at_toy_size() -> None:
    found = seeding.measure(Problem(9000, 10, 12), 1.0, repeats=1)
    assert found["passes, plain"] == found["passes, labeled"] == 7
    assert min(found.values()) > 0


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
    assert found["share"] >= cube.TARGET_SPEED[scene]
    assert found["report"] < 5e6


def test_dpmeans_is_measured_at_toy_size() -> None:
    found = dpmeans.compare(n=5000, repeats=1)
    assert 45 <= found["n_clusters"] <= 50
    assert set(found["seconds"]) == {"DPMeans", "KMeans"}


@pytest.mark.slow
def test_reads_of_a_grid_are_counted_at_toy_size() -> None:
    found = selection.measure(n_mib=4, chunk_mib=1, n_grid=3, k=2)
    assert found["reads_alone"] == found["passes_alone"]
    assert found["reads"] <= selection.TARGET_RATIO * found["reads_alone"]


def test_mixtures_are_compared_at_toy_size() -> None:
    for cell in mixtures.CELLS:
        assert mixtures.measure(cell, mixtures.TOY, short=1, long=3) != 0.0
    cell = ("daskclust", "full", 0.2)
    assert mixtures.measure(cell, mixtures.TOY, patterns=3, short=1, long=3) != 0.0
    times = dict.fromkeys(mixtures.CELLS, 2.0)
    assert mixtures.ratios(times) == dict.fromkeys(mixtures.TARGETS, 1.0)


def test_missing_values_are_measured_at_toy_size(capsys: pytest.CaptureFixture[str]) -> None:
    cell = partial.Cell(6, 5, 0.1, "float32")
    results = partial.compare([cell], n=3000, repeats=1)
    partial.report(results)
    assert "| 6 | 5 | 0.1 | float32 |" in capsys.readouterr().out
    with_gaps, complete = partial.Span(3.0, 8.0), partial.Span(2.0, 4.0)
    assert partial.ratio([(with_gaps, complete)]) == (1.5, 2.0)


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("p", partial.FEATURES)
def test_missing_values_cost_at_most_their_target(p: int) -> None:
    grid = itertools.product(partial.CLUSTERS, partial.SHARES, partial.DTYPES)
    results = partial.compare(partial.Cell(p, *values) for values in grid)
    for cell, pairs in results.items():
        assert partial.ratio(pairs).processor <= partial.TARGET, cell


def test_pckid_is_measured_at_toy_size() -> None:
    found = pckid.measure(2000, ensemble=4, n_init=3)
    assert found["seconds"] > found["spectrum"] > 0
    assert found["gib"] > 0
    rows = np.concatenate([pckid.incomplete_rows(s, pckid.CHUNK) for s in (0, pckid.CHUNK)])
    np.testing.assert_array_equal(pckid.lazy_rows(2 * pckid.CHUNK).compute(), rows)
    assert pckid.growth([found, {"n": 4000, "seconds": 3 * found["seconds"]}]) == [
        pytest.approx(1.5)
    ]


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_mixtures_reach_their_targets() -> None:
    for name, ratio in mixtures.ratios(mixtures.compare()).items():
        assert ratio <= mixtures.TARGETS[name], name


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_pckid_reaches_its_targets_up_to_a_million_rows() -> None:
    found = pckid.compare((10_000, 100_000, 1_000_000))
    for result in found:
        seconds, gib = pckid.TARGETS.get(result["n"], (np.inf, np.inf))
        assert result["seconds"] < seconds
        assert result["gib"] < gib
    assert max(pckid.growth(found)) < pckid.TARGET_GROWTH


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_lloyd_is_ahead_of_its_peers(name: str) -> None:
    cell = lloyd.compare({name: PROBLEMS[name]}, repeats=5)[name, "float32"]
    over_sklearn, over_dask_ml = lloyd.LEAST[name]
    assert cell["scikit-learn"] / cell["daskclust"] >= over_sklearn
    assert cell["dask-ml"] / cell["daskclust"] >= over_dask_ml


@pytest.mark.benchmark
@pytest.mark.timeout(600)
def test_null_iteration_reaches_its_target() -> None:
    found = overhead.compare((512, 4096))
    assert max(found.values()) < overhead.TARGET


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_pcskm_reaches_its_targets() -> None:
    assert pcskm.small() < pcskm.TARGET_SMALL
    ours, plain = pcskm.large()
    assert ours / plain <= pcskm.TARGET_RATIO


@pytest.mark.benchmark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("separation", [1.0, 8.0], ids=["overlapping", "far apart"])
def test_seeding_reaches_its_targets(separation: float) -> None:
    found = seeding.measure(seeding.PROBLEM, separation)
    assert found["plain"] / found["iteration"] <= seeding.TARGET
    assert found["labeled"] / found["plain"] <= seeding.TARGET_RATIO


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_memory_of_a_fit_ten_times_larger_than_the_workers() -> None:
    # In a process of its own, whose growth is not hidden by what other tests needed.
    found = run_alone(memory.__file__, "--json", "--limit", "1024", "--factor", "10")
    assert found["worker"] < found["limit"]
    assert found["client_growth"] < memory.TARGET_CLIENT


@pytest.mark.benchmark
@pytest.mark.timeout(600)
def test_dpmeans_reaches_its_target() -> None:
    found = dpmeans.compare()
    assert 45 <= found["n_clusters"] <= 55
    assert found["seconds"]["DPMeans"] <= dpmeans.TARGET_RATIO * found["seconds"]["KMeans"]


@pytest.mark.benchmark
@pytest.mark.timeout(1200)
def test_a_grid_reads_data_larger_than_memory_as_often_as_one_fit() -> None:
    found = selection.measure()
    assert found["data"] > found["memory"]
    assert found["reads"] <= selection.TARGET_RATIO * found["reads_alone"]
