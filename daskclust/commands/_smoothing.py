"""Smooth maps on the command line: ``--smooth`` and ``--min-pixels``."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_smoothing_arguments", "check_smoothing", "smooth_labels"]


def add_smoothing_arguments(parser: Any) -> None:
    """Add ``--smooth`` and ``--min-pixels`` to a parser or a group of one."""
    parser.add_argument(
        "--smooth",
        nargs="?",
        const=0.5,
        type=float,
        metavar="STRENGTH",
        help="smooth the label map where neighboring spectra are alike (without a number: 0.5)",
    )
    parser.add_argument(
        "--min-pixels",
        type=int,
        metavar="N",
        help="regions of fewer pixels become their largest neighbor in the label map",
    )


def check_smoothing(options: argparse.Namespace, model: Any) -> None:
    """End the program where the map cannot be smoothed as asked."""
    if options.smooth is not None and not 0 <= options.smooth < float("inf"):
        options.parser.error(f"--smooth {options.smooth}; expected a finite number from 0 on")
    if options.min_pixels is not None and options.min_pixels < 0:
        options.parser.error(f"--min-pixels {options.min_pixels}; expected an integer from 0 on")
    if options.smooth and not hasattr(model, "predict_proba"):
        options.parser.error(
            f"{type(model).__name__} has no probabilities, so no --smooth; --min-pixels needs none"
        )


def smooth_labels(options: argparse.Namespace, cube: Any, model: Any, labels: Any) -> Any:
    """Return the labels of the map, smoothed as asked; lazy."""
    if not options.smooth and not options.min_pixels:
        return labels
    proba = model.predict_proba(cube) if options.smooth else None
    return cube.smooth(
        labels, proba, strength=options.smooth or 0.0, min_pixels=options.min_pixels or 0
    )
