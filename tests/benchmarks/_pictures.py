"""Pictures of benchmarks: bars of ratios, and growth on logarithmic axes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: The same color for a program in all pictures; others take those that follow.
COLORS = {
    "daskclust": "C0",
    "scikit-learn": "C1",
    "scikit-learn-intelex": "C2",
    "faiss": "C3",
    "dask-ml": "C4",
    "limit of memory and BLAS": "0.6",
}


def pyplot_of_files() -> Any:
    """Return matplotlib.pyplot, which draws into files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _plain(axis: Any) -> None:
    """Label an axis by plain numbers: 0.5, 2, 20."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def draw_bars(
    cells: Mapping[str, Mapping[str, float]],
    path: Path,
    label: str,
    *,
    aims: Mapping[str, float] | None = None,
    pale: Collection[tuple[str, str]] = (),
    pale_label: str = "",
) -> None:
    """Draw ratios as bars from 1 on a logarithmic axis, their values beside them.

    Parameters
    ----------
    cells : mapping of str to mapping of str to float
        Ratios by group and series.
    path : Path
        Of the picture.
    label : str
        Of the axis.
    aims : mapping of str to float, optional
        What was aimed at, by group: a line across it.
    pale : collection of (group, series)
        Bars that do not count; ``pale_label`` says why.
    """
    pyplot = pyplot_of_files()
    names = list(dict.fromkeys(name for cell in cells.values() for name in cell))
    width = 0.8 / len(names)
    figure, axes = pyplot.subplots(figsize=(max(6.0, 1.9 * len(cells) + 1.0), 3.6))
    for at, name in enumerate(names):
        color = COLORS.get(name, f"C{at}")
        for place, (group, cell) in enumerate(cells.items()):
            # A time that is a difference of others may be noise.
            if not cell.get(name, 0.0) > 0.0:
                continue
            x, value = place + (at - (len(names) - 1) / 2) * width, cell[name]
            alpha = 0.35 if (group, name) in pale else 1.0
            axes.bar(x, value - 1.0, 0.95 * width, bottom=1.0, color=color, alpha=alpha)
            above = value >= 1.0
            axes.annotate(
                f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}",
                (x, value),
                (0, 2 if above else -2),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
                fontsize=7,
            )
        axes.bar([np.nan], [np.nan], color=color, label=name)
    for place, group in enumerate(cells):
        if aims and group in aims:
            axes.hlines(aims[group], place - 0.45, place + 0.45, "k", "--", linewidth=0.9)
    if pale:
        axes.bar([np.nan], [np.nan], color="0.4", alpha=0.35, label=pale_label)
    axes.axhline(1.0, color="0.3", linewidth=0.8)
    axes.set_yscale("log")
    axes.margins(y=0.12)
    _plain(axes.yaxis)
    axes.set_xticks(range(len(cells)), list(cells))
    axes.set_ylabel(label)
    handles, labels = axes.get_legend_handles_labels()
    if aims:
        handles += axes.plot([], [], "k--", linewidth=0.9)
        labels.append("aim of daskclust")
    axes.legend(
        handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)


@dataclass(frozen=True)
class Line:
    """Times of one series over a size that grows; the exponent is that of the fitted power."""

    name: str
    sizes: Sequence[float]
    times: Sequence[float]

    @property
    def power(self) -> tuple[float, float]:
        """Exponent and factor that fit the times best, in logarithms.

        NaN where a time is not positive: differences of times of tiny problems may be noise.
        """
        if min(self.times) <= 0:
            return np.nan, np.nan
        exponent, log_factor = np.polyfit(np.log(self.sizes), np.log(self.times), 1)
        return float(exponent), float(np.exp(log_factor))


def draw_growth(panels: Mapping[str, Sequence[Line]], path: Path, label: str) -> None:
    """Draw times over sizes, a panel for each size, with the fitted powers."""
    pyplot = pyplot_of_files()
    figure, found = pyplot.subplots(
        1, len(panels), figsize=(3.6 * len(panels), 4.2), sharey=True, squeeze=False
    )
    for axes, (size, lines) in zip(found[0], panels.items(), strict=True):
        for at, line in enumerate(lines):
            exponent, factor = line.power
            color = COLORS.get(line.name, f"C{at}")
            ends = np.array([min(line.sizes), max(line.sizes)], dtype=float)
            grown = f"{size}$^{{{exponent:.2f}}}$" if exponent == exponent else "noise"
            axes.plot(line.sizes, line.times, "o", color=color, markersize=4)
            axes.plot(
                ends,
                factor * ends**exponent,
                color=color,
                linewidth=1.2,
                label=f"{line.name}: {grown}",
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        sizes = lines[0].sizes
        axes.set_xticks(sizes, [f"{s:,.0f}" for s in sizes], fontsize=8, rotation=30)
        axes.minorticks_off()
        _plain(axes.yaxis)
        axes.set_xlabel(size)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    found[0][0].set_ylabel(label)
    figure.tight_layout()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)
