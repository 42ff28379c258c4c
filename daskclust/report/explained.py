"""One HTML file about what each cluster is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from daskclust._version import __version__
from daskclust.report.page import Page, escape, svg

#: Features that are told of each cluster, and clusters that have a table of their own.
_FEATURES, _CLUSTERS = 8, 60


def explained_page(title: str, profiles: Any, rules: Any, mark: str = "") -> str:
    """Return a page about profiles and rules, with the mark of its job."""
    page = Page(title)
    page.lead(f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by daskclust {__version__}.")
    worst = float(np.nan_to_num(profiles.auc_errors).max(initial=0.0))
    page.facts(
        [
            (f"{profiles.sizes.sum():,.0f}", "rows"),
            (f"{len(profiles.labels)}", "clusters"),
            (f"{len(profiles.features)}", "features"),
            *([] if rules is None else [(f"{rules.fidelity:.1%}", "of the rows follow the rules")]),
            (f"{worst:.1g}" if worst else "0", "error of the AUC at most"),
        ]
    )
    add_profiles(page, profiles, rules)
    return page.html(mark)


def add_profiles(
    page: Page, profiles: Any, rules: Any = None, colors: Sequence[str] | None = None
) -> None:
    """Add what sets each cluster apart: in a line, as a picture, as rules, and in numbers."""
    table = f'<div class="wide">{profiles._repr_html_()}</div>'
    page.section("What sets the clusters apart", table)
    k, shown = len(profiles.labels), min(len(profiles.features), 40)
    is_spectrum = profiles.wavelengths is not None
    size = (11.0, 4.4) if is_spectrum else (min(2.5 + 0.8 * k, 14.0), 1.4 + 0.3 * shown)
    what = "Spectra" if is_spectrum else "Differences from the rest"
    picture = svg(lambda ax: profiles.plot(ax, colors), size, name=f"{what} of {k} clusters")
    page.section(f"{what} of the clusters", f'<figure class="wide">{picture}</figure>')
    if rules is not None:
        page.section("Rules", f'<div class="wide">{rules._repr_html_()}</div>')
    page.section(
        "Each cluster in numbers",
        "".join(
            f"<details><summary>Cluster {escape(profiles.names[at])}</summary>"
            f"{_table(profiles, at, label)}</details>"
            for at, label in enumerate(profiles.labels[:_CLUSTERS].tolist())
        ),
    )


def _table(profiles: Any, at: int, label: int) -> str:
    """Write the features that set a cluster apart, with all that is known of them."""
    heads = ("mean", "std", "5 %", "median", "95 %", "rest", "difference", "AUC", "missing")
    rows = []
    for name in profiles.distinguishing(label, _FEATURES):
        j = profiles.features.index(name)
        quantiles = profiles.quantiles[at, j]
        values = (
            profiles.means[at, j],
            profiles.deviations[at, j],
            quantiles[0],
            quantiles[2],
            quantiles[4],
            profiles.rest_means[at, j],
            profiles.differences[at, j],
            profiles.aucs[at, j],
            profiles.missing[at, j],
        )
        cells = "".join(
            f'<td class="n">{"" if np.isnan(value) else format(value, ".4g")}</td>'
            for value in values
        )
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    titles = "".join(f'<th scope="col" class="n">{head}</th>' for head in heads)
    return (
        f"<p>{profiles.sizes[at]:,.0f} rows, {profiles.shares[at]:.1%} of all.</p>"
        f'<div class="wide"><table><thead><tr><th scope="col">feature</th>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
