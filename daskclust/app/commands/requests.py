"""The requests of the commands: their options as typed values, from a command line or from Python.

A command has one function that takes its request, such as ``fit(FitRequest(cube="scene.tif",
n_clusters=6, output="map.tif"))``, and returns the results as JSON values. The help of each command
describes its options.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

Names = tuple[str, ...]


class UsageError(ValueError):
    """Options that contradict each other; the command line also prints its usage."""


@dataclass(kw_only=True)
class Request:
    """Base of the requests."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """Return the request of a parsed command line."""
        return cls(**{option.name: getattr(options, option.name) for option in fields(cls)})

    def is_given(self, name: str) -> bool:
        """Return True if an option exists and differs from its default."""
        defaults = {option.name: option.default for option in fields(self)}
        return name in defaults and getattr(self, name) != defaults[name]


@dataclass(kw_only=True)
class ClusterOptions(Request):
    local: int | None = None
    scheduler: str | None = None
    scheduler_file: Path | None = None
    memory_limit: str | None = None


@dataclass(kw_only=True)
class CubeOptions(Request):
    cube: str | Names | None = None
    variable: str | None = None
    dims: Names | None = None
    nodata: float | str | None = "auto"
    mask: str | None = None
    bad_bands: tuple[int, ...] | str | None = None
    wavelengths: tuple[float, ...] | None = None
    incomplete: str = "mask"
    min_observed: float = 0.0
    chunks: tuple[int, int] | None = None
    #: True if the files of `cube` are tiles. The next options define their bands and common grid.
    mosaic: bool = False
    assets: Names | None = None
    crs: str | None = None
    resolution: tuple[float, float] | None = None
    region: tuple[float, ...] | None = None
    resampling: str | None = None
    overlap: str | None = None
    skip_damaged: bool = False


@dataclass(kw_only=True)
class TableOptions(Request):
    columns: Names | None = None
    keep: Names | None = None


@dataclass(kw_only=True)
class ClassOptions(Request):
    class_column: str | None = None
    resample_labels: bool = False
    unlabeled: tuple[int, ...] = (-1,)


@dataclass(kw_only=True)
class OutputOptions(Request):
    output: str | None = None
    report: str | None = None
    uncertainty: str | None = None
    score: str | None = None
    smooth: float | None = None
    min_pixels: int | None = None
    title: str | None = None
    output_column: str = "label"


@dataclass(kw_only=True)
class RunOptions(Request):
    config: Path | None = None
    dry_run: bool = False
    performance: str | None = None
    overwrite: bool = False


@dataclass(kw_only=True)
class FitRequest(
    CubeOptions, TableOptions, ClassOptions, OutputOptions, RunOptions, ClusterOptions
):
    """Options of ``daskclust fit``; `set` contains parameters of the estimator."""

    scale: str = "none"
    labels: str | None = None
    truth: str | None = None
    hold_out: float | None = None
    hold_out_by: str | None = None
    baseline: bool = False
    weights: str | None = None
    must_link: str | None = None
    cannot_link: str | None = None
    choose_by_pairs: bool | None = None
    label_column: str | None = None
    groups: str | None = None
    estimator: str = "kmeans"
    n_clusters: Any = None
    set: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()
    seed: int = 0
    model: str | None = None
    colors: str | None = None
    checkpoint: str | None = None


@dataclass(kw_only=True)
class PredictRequest(
    CubeOptions, TableOptions, ClassOptions, OutputOptions, RunOptions, ClusterOptions
):
    """Options of ``daskclust predict``."""

    model: str | None = None
    truth: str | None = None


@dataclass(kw_only=True)
class SuggestRequest(CubeOptions, ClassOptions, RunOptions, ClusterOptions):
    """Options of ``daskclust suggest``."""

    labels: str | None = None
    model: str | None = None
    exclude: str | None = None
    n: int = 20
    seed: int = 0
    output: str | None = None
    report: str | None = None
    title: str | None = None


@dataclass(kw_only=True)
class LabelRequest(CubeOptions, ClusterOptions):
    """Options of ``daskclust label``."""

    labels: str | None = None
    classes: Names = ()
    exclude: str | None = None
    seed: int = 0
    output: str | None = None
    model: str | None = None
    overwrite: bool = False
    port: int = 0
    no_browser: bool = False


@dataclass(kw_only=True)
class ExplainRequest(CubeOptions, TableOptions, ClusterOptions):
    """Options of ``daskclust explain``."""

    model: str
    output: str | None = None
    overwrite: bool = False


@dataclass(kw_only=True)
class CompareRequest(ClusterOptions):
    """Options of ``daskclust compare``."""

    first: str
    second: str
    match: str = "auto"
    resample: bool = False
    output: str | None = None
    report: str | None = None
    title: str | None = None
    overwrite: bool = False


@dataclass(kw_only=True)
class InspectRequest(CubeOptions):
    """Options of ``daskclust inspect``."""

    class_column: str | None = None
    scene: str | None = None
    sample: int = 16
    full: bool = False


@dataclass(kw_only=True)
class RenameRequest(Request):
    """Options of ``daskclust rename``."""

    model: str
    file: str


@dataclass(kw_only=True)
class DoctorRequest(CubeOptions, ClusterOptions):
    """Options of ``daskclust doctor``."""

    output: str | None = None


@dataclass(kw_only=True)
class DemoRequest(ClusterOptions):
    """Options of ``daskclust demo``."""

    output: str = "daskclust-demo"
    overwrite: bool = False
    size: Sequence[int] = field(default=(256, 256, 120))
    seed: int = 0
