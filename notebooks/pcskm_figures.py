"""The figures of the PCSKM paper, drawn from the results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from pcskm_results import Results
from pcskm_runs import INFORMATIVE, PLAIN, WEIGHTED

COLORS = {"LKM": "#999999", "SKM": "#e69f00", "PCKM": "#009e73", "MPCKM": "#d55e00"} | {
    "PCSKM": "#0072b2"
}
TITLES = {"both": "both kinds", "must": "must-links only", "cannot": "cannot-links only"}


def draw_performance(results: Results, scenarios: Iterable[tuple[str, str]]) -> Any:
    """Figure 1: F-score of the test folds against the number of constraints."""
    import matplotlib.pyplot as plt

    scenarios = list(scenarios)
    names = results.families()
    figure, axes = plt.subplots(
        len(scenarios),
        len(names),
        figsize=(3.1 * len(names), 2.3 * len(scenarios)),
        sharex=True,
        sharey="col",
        squeeze=False,
        layout="constrained",
    )
    for row, (init, kind) in zip(axes, scenarios, strict=True):
        for axis, name in zip(row, names, strict=True):
            for method, color in COLORS.items():
                cells = {v: results.family(method, name, init, kind, v) for v in results.levels}
                points = [(level, cell.mean) for level, cell in cells.items() if cell]
                if not points:
                    continue
                style = {"ls": "--"} if method in PLAIN else {"marker": "o", "ms": 3.5}
                width = 2.2 if method == "PCSKM" else 1.3
                axis.plot(*zip(*points, strict=True), color=color, lw=width, label=method, **style)
            axis.grid(alpha=0.3)
            # All ten would touch each other.
            axis.set_xticks(results.levels[:: max(1, len(results.levels) // 3)])
        row[0].set_ylabel(f"{init}, {TITLES[kind]}\nF-score", fontsize=8)
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name)
    for axis in axes[-1]:
        axis.set_xlabel("constraints, % of all pairs")
    lines = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
    figure.legend(
        lines.values(), lines.keys(), loc="outside upper center", ncol=len(lines), frameon=False
    )
    return figure


def draw_weights(results: Results, init: str = "dkm++") -> Any:
    """Figure 2: mean feature weights, for each number of constraints."""
    import matplotlib.pyplot as plt

    cells = {
        (method, name): [
            cell
            for level in (results.levels[:1] if method in PLAIN else results.levels)
            if (cell := results.cell(method, name, init, "both", level)) and cell.weights
        ]
        for method in WEIGHTED
        for name in INFORMATIVE
    }
    names = [name for name in INFORMATIVE if cells["PCSKM", name]]
    methods = [method for method in WEIGHTED if any(cells[method, name] for name in names)]
    figure, axes = plt.subplots(
        len(methods),
        len(names),
        figsize=(4.2 * len(names), 1.9 * len(methods)),
        squeeze=False,
        layout="constrained",
    )
    for row, method in zip(axes, methods, strict=True):
        for axis, name in zip(row, names, strict=True):
            here = cells[method, name]
            width = 0.8 / max(1, len(here))
            for at, cell in enumerate(here):
                weights = np.array(cell.weights)
                places = np.arange(1, len(weights) + 1) + (at - (len(here) - 1) / 2) * width
                shade = 0.4 + 0.6 * (at + 1) / len(here)
                # The scale of a metric has no meaning: shares of the largest weight.
                axis.bar(places, weights / weights.max(), width, color=COLORS[method], alpha=shade)
            p = len(cells["PCSKM", name][0].weights)
            axis.axvspan(INFORMATIVE[name] + 0.5, p + 0.5, color="0.9", zorder=0)
            axis.set_xlim(0.5, p + 0.5)
            axis.set_xticks(range(1, p + 1, 1 if p < 12 else 2))
        row[0].set_ylabel(f"{method}\nweight / largest")
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name)
    for axis in axes[-1]:
        axis.set_xlabel("feature (grey: known to be uninformative)")
    return figure


def draw_published(compared: list[dict[str, Any]]) -> Any:
    """Our F-scores against those of the published program, with two standard errors."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 4.6), layout="constrained")
    for method in dict.fromkeys(cell["method"] for cell in compared):
        cells = [cell for cell in compared if cell["method"] == method]
        axis.errorbar(
            [c["published"] for c in cells],
            [c["ours"] for c in cells],
            yerr=[2 * math.sqrt(2) * c["error"] for c in cells],
            fmt="o",
            ms=4,
            lw=0.7,
            color=COLORS.get(method, "#cc79a7"),
            label=method,
        )
    ends = axis.get_xlim()
    axis.plot(ends, ends, color="0.6", lw=1, zorder=0)
    axis.set(xlabel="published program", ylabel="daskclust, two standard errors", xlim=ends)
    axis.legend(frameon=False)
    axis.grid(alpha=0.3)
    return figure
