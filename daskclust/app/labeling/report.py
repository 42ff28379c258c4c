"""A report of pixels to label: their numbers on the scene, and their spectra."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from daskclust.app.report.page import Column, Page, Report, photo_of, svg
from daskclust.core.storage.redact import redact

#: Pixels along the longer side of the picture.
_SIDE = 800


def write_questions_report(
    path: Any,
    *,
    cube: Any,
    questions: Any,
    gain: Any = None,
    title: str | None = None,
    overwrite: bool = False,
    job: str = "",
) -> Path:
    """Write a page with numbered pixels on the scene, their spectra and the expected gain.

    The picture takes another read of three bands; scenes above 512 MiB have no picture.
    """
    output = Report(path, overwrite=overwrite)
    output.check()
    n = len(questions.rows)
    page = Page(redact(title or f"{n} pixels to be labeled"))
    page.lead(f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. Number 1 should help most.")
    if gain is not None:
        page.facts(
            [
                (f"{gain.n_labels}", "labels so far"),
                (f"{gain.accuracy:.1%}", "accuracy that the model expects"),
                (f"{gain.changed[-1]:.1%}", f"of the pixels expected to change by {n} answers"),
            ]
        )
    page.figure("Where", _map(cube, questions))
    page.figure("Spectra", _spectra(cube, questions))
    positions = {name: getattr(questions, name) for name in ("lines", "columns", "x", "y")}
    columns = [
        Column({"lines": "row", "columns": "column"}.get(name, name), [f"{v:.10g}" for v in values])
        for name, values in positions.items()
    ]
    page.section("Pixels", "table", columns=[Column("number", range(1, n + 1)), *columns], left=0)
    if gain is not None:
        picture = svg(
            lambda ax: gain.plot(ax), (7.0, 3.4), name="Change of the labels with further answers"
        )
        page.figure(
            "Expected change by further answers",
            picture,
            caption="Estimated from the model's probabilities; the bands contain 80 % of the "
            "draws. If the curve is flat and near 0, more labels would change little.",
        )
    output.write(page.html(job))
    return Path(path)


def _map(cube: Any, questions: Any) -> Markup:
    height, width, _ = cube.shape
    step = -(-max(height, width) // _SIDE)
    photo = photo_of(cube, step, cube.valid[::step, ::step])

    def draw(ax: Any) -> None:
        if photo is not None:
            ax.imshow(photo, extent=(0, width, height, 0), interpolation="nearest")
        ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xlabel="column", ylabel="row")
        points = np.column_stack([questions.columns, questions.lines]) + 0.5
        for i, point in enumerate(points, start=1):
            ax.plot(*point, "o", ms=5, mfc="none", mec="white", mew=1.5)
            ax.annotate(
                str(i),
                tuple(point),
                xytext=(4, 4),
                textcoords="offset points",
                color="black",
                fontsize=8,
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8},
            )

    scale = 9.0 / max(height, width)
    size = (max(4.0, scale * width), max(3.0, scale * height))
    return svg(draw, size, name="Position of the pixels in the scene")


def _spectra(cube: Any, questions: Any) -> Markup:
    spectra = np.asarray(questions.spectra, dtype=np.float64)
    low, high = spectra.min(axis=1, keepdims=True), spectra.max(axis=1, keepdims=True)
    spread = np.where(high > low, high - low, 1.0)
    x = cube.bands if cube.wavelengths is None else cube.wavelengths
    n = len(spectra)

    def draw(ax: Any) -> None:
        for i, line in enumerate((spectra - low) / spread):
            ax.plot(x, line * 0.9 - i, lw=1.2)
        ax.set_yticks(-np.arange(n) + 0.4, [str(i + 1) for i in range(n)])
        ax.set_xlabel("band" if cube.wavelengths is None else "wavelength (nm)")
        ax.set_ylabel("number; each spectrum is scaled to its range")

    return svg(draw, (9.0, max(3.0, 0.45 * n)), name=f"Spectra of {n} pixels")
