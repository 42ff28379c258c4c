"""Sections of reports: agreement, errors, contradicting pairs, profiles and changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from daskclust.app.report.page import Column, Page, map_png, svg
from daskclust.app.report.summary import area_unit, singles_advice
from daskclust.colors import Legend
from daskclust.core.array_types import Array, Ints
from daskclust.core.engine import compute
from daskclust.plotting import label_colors

#: Color of right pixels in a picture of errors, and the longer side of the picture in pixels.
_RIGHT, _SIDE = "#d4dade", 1000
#: Maximum number of violated pairs that are listed.
_LISTED = 20


def add_agreement(
    page: Page, key: str, agreement: Mapping[str, Any], legend: Legend, things: str
) -> None:
    """Add scores, and the distribution of each known class over the clusters.

    `things` is the word for rows: "pixels" or "rows".
    """
    scores = {
        "Adjusted Rand index": agreement["ari"],
        "Normalized mutual information": agreement["nmi"],
        "Pairwise F-score": agreement["pairwise_f"],
    }
    by = agreement["compared_by"]
    if by == "matching":
        scores["Best matching of clusters to classes"] = agreement["best_matching_accuracy"]
    elif by is not None:
        scores[f"Accuracy, classes compared by {by}"] = agreement["accuracy"]
        if not agreement.get("used_by_fit"):
            n_units = agreement["independent_units"]
            units = f"{n_units} polygons" if n_units else f"independent {things}"
            scores[f"95 % interval for {units}, from"], scores["to"] = agreement[
                "accuracy_interval"
            ]
        if agreement["kappa"] is not None:
            scores["Cohen's kappa"] = agreement["kappa"]
    page.section(
        f"Agreement with {key}",
        "agreement",
        shares=_confusion(agreement, legend, things),
        scores=_scores((name, f"{value:.4f}") for name, value in scores.items()),
        by_class=_by_class(agreement),
        things=things,
        used_by_fit=agreement.get("used_by_fit"),
        pixels=agreement["pixels"],
        share=agreement.get("accuracy", agreement.get("best_matching_accuracy")),
    )


def add_errors(page: Page, agreement: Mapping[str, Any], legend: Legend, layer: Array) -> None:
    """Add a picture and the numbers of errors per known class.

    `layer` is -1 for pixels that are not compared, 0 for right pixels, and 1 + the position of the
    known class in ``agreement["classes"]`` for wrong pixels.
    """
    counts, matched = np.asarray(agreement["counts"]), np.asarray(agreement["matched"])
    named, by_code = legend.by_code, legend.color_by_code
    colors: list[str] = [_RIGHT]
    lines: list[tuple[Any, ...]] = []
    right = np.where(matched >= 0, counts[np.arange(len(counts)), matched], 0)
    others = label_colors(len(counts))
    for i, name in enumerate(agreement.get("class_names") or agreement["classes"]):
        wrong, match = counts[i].copy(), int(matched[i])
        colors.append(
            by_code.get(agreement["clusters"][match], others[i]) if match >= 0 else others[i]
        )
        wrong[[match] if match >= 0 else []] = 0
        code, most = agreement["clusters"][wrong.argmax()], int(wrong.max())
        lines.append((colors[-1], name, right[i], wrong.sum(), named.get(code, str(code)), most))
    n_right, n_wrong = int(right.sum()), int(counts.sum() - right.sum())
    lines.append((_RIGHT, "right, of any class", n_right, n_wrong, "", 0))
    chips, names, own_counts, wrong_counts, other, sizes = zip(*lines, strict=True)
    thin = -(-max(layer.shape) // _SIDE)
    page.section(
        "Errors of the map",
        "errors",
        right=n_right,
        wrong=n_wrong,
        picture=map_png(layer[::thin, ::thin], colors),
        columns=[
            Column("known class", names, "head", chips),
            Column("right", [f"{count:,}" for count in own_counts]),
            Column("wrong", [f"{count:,}" for count in wrong_counts]),
            Column(
                "mostly found as",
                [f"{name}, {n:,}" if n else "" for name, n in zip(other, sizes, strict=True)],
                "text",
            ),
        ],
    )


def add_held_out(page: Page, held_out: Mapping[str, Any]) -> None:
    """Add the accuracy on held-out labels, and the accuracy of other methods."""
    if "accuracy" in held_out:
        low, high = held_out["accuracy_interval"]
        rows = [("This fit", f"{held_out['accuracy']:.3f} ({low:.3f} to {high:.3f})")]
        if held_out["kappa"] is not None:
            rows.append(("Cohen's kappa", f"{held_out['kappa']:.3f}"))
    else:
        value = held_out["best_matching_accuracy"]
        rows = [("Best matching of clusters to classes", f"{value:.3f}")]
    rows += [
        (name[:1].upper() + name[1:], f"{value:.3f}")
        for name, value in held_out.get("baselines", {}).items()
        if not name.startswith("rows")
    ]
    from daskclust.metrics import FEW_UNITS

    page.section(
        "Accuracy on held-out labels",
        "held_out",
        held_out=held_out,
        few_units=FEW_UNITS,
        scores=_scores(rows),
        by_class=_by_class(held_out),
        things="labels",
    )


def _scores(rows: Iterable[tuple[str, str]]) -> list[Column]:
    names, values = zip(*rows, strict=True)
    return [Column("", names, "head"), Column("", values)]


def _by_class(agreement: Mapping[str, Any]) -> list[Column]:
    items = agreement.get("by_class") or []
    counts = {"known": "truth", "found": "labels"}
    shares = {"producer's accuracy": "producers", "user's accuracy": "users", "F1": "f1"}
    columns = [
        Column("class", [item["class"] for item in items], "head"),
        *(Column(head, [f"{item[key]:,}" for item in items]) for head, key in counts.items()),
        *(
            Column(head, ["" if item[key] is None else f"{item[key]:.3f}" for item in items])
            for head, key in shares.items()
        ),
    ]
    return columns if items else []


def _confusion(agreement: Mapping[str, Any], legend: Legend, things: str) -> dict[str, Any]:
    counts = np.asarray(agreement["counts"])
    classes = agreement.get("class_names") or agreement["classes"]
    # The diagonal contains equal or matched classes.
    matched = [i for i in agreement["matched"] if i >= 0]
    order = [*matched, *sorted(set(range(counts.shape[1])) - set(matched))]
    named, colors = legend.by_code, legend.color_by_code
    codes = [agreement["clusters"][i] for i in order]
    return shares_of(
        counts[:, order],
        classes,
        [(named.get(code, str(code)), colors.get(code, "none")) for code in codes],
        caption=f"Share of each known class in each cluster, over {agreement['pixels']:,} {things}",
        corner="known class",
        things=things,
    )


def shares_of(
    counts: Ints,
    rows: Sequence[Any],
    columns: Sequence[tuple[str, str]],
    *,
    caption: str,
    corner: str,
    things: str = "pixels",
) -> dict[str, Any]:
    """Return values of the macro ``share_table``: the share of each row that each column has."""
    lines = []
    for name, line in zip(rows, counts.tolist(), strict=True):
        shares = [count / max(1, sum(line)) for count in line]
        cells = [(share, n, _percent(share)) for share, n in zip(shares, line, strict=True)]
        lines.append((name, sum(line), cells))
    return {
        "rows": lines,
        "columns": columns,
        "caption": caption,
        "corner": corner,
        "things": things,
    }


def _percent(share: float) -> str:
    """Return the text of a share in a cell: empty, less than one percent, or percent.

    >>> _percent(0.0), _percent(0.004), _percent(0.5)
    ('', '<1%', '50%')
    """
    return f"{share:.0%}" if share >= 0.005 else "<1%" if share else ""


def mostly_of(agreement: Mapping[str, Mapping[str, Any]] | None) -> dict[int, str]:
    """Return the most frequent known class of each cluster, with its share.

    `agreement` has the keys ``truth`` or ``labels``; the first key is used.

    >>> mostly_of({"truth": {"classes": [1, 2], "clusters": [0], "counts": [[1], [3]],
    ...                      "class_names": ["water", "wheat"]}})
    {0: '75% wheat'}
    """
    if not agreement:
        return {}
    first = next(iter(agreement.values()))
    names, counts = first.get("class_names") or first["classes"], np.asarray(first["counts"])
    return {
        code: f"{own.max() / own.sum():.0%} {names[own.argmax()]}"
        for code, own in zip(first["clusters"], counts.T, strict=True)
    }


def add_contradicting_pairs(page: Page, model: Any) -> None:
    pairs = getattr(model, "contradicting_pairs_", None)
    if pairs is None or not len(pairs):
        return
    listed = pairs[:_LISTED]
    page.section(
        "Pairs that contradict the clusters",
        "table",
        columns=[
            Column("row", [pair.i for pair in listed]),
            Column("row", [pair.j for pair in listed]),
            Column("kind", [pair.kind for pair in listed], "text"),
            Column("", ["violated" if pair.violated else "" for pair in listed], "text"),
        ],
        left=len(pairs) - _LISTED,
    )


#: Maximum number of features per cluster, and of the largest clusters, that are shown in full.
_FEATURES, _CLUSTERS = 8, 60
#: Maximum number of clusters that are sorted by number, as in the legend; more are sorted by size.
_FEW = 20


def explained_page(title: str, profiles: Any, rules: Any) -> str:
    page = Page(title)
    page.written("")
    things = _things(profiles)
    facts = [
        (f"{profiles.sizes.sum():,.0f}", things),
        (f"{profiles.n_clusters}", "clusters"),
        (f"{len(profiles.features)}", "features"),
    ]
    if not isinstance(rules, str):
        facts.append((f"{rules.fidelity:.1%}", f"of the {things} follow the rules"))
    page.facts([*facts, (profiles.worst_auc_error, "error of the AUC at most")])
    add_profiles(page, profiles, rules)
    return page.html()


def add_profiles(
    page: Page, profiles: Any, rules: Any = None, colors: Sequence[str] | None = None
) -> None:
    """Add a description of each cluster: one line, a picture, rules and statistics.

    `rules` may be the reason for the absence of rules.
    """
    order = np.arange(len(profiles.sizes))
    if len(order) > _FEW:
        order = np.argsort(-profiles.sizes, kind="stable")
    largest, small = profiles.of(order[:_CLUSTERS]), profiles.of(order[_CLUSTERS:])
    page.section(
        "Clusters" if profiles.are_vectors else "Differences between the clusters",
        "clusters",
        advice=singles_advice(profiles.sizes),
        largest=Markup(largest._repr_html_()),
        small=_small_clusters(small),
        things=_things(profiles),
    )
    if profiles.are_vectors:
        return
    if colors is not None:
        colors = [colors[i] for i in order[:_CLUSTERS]]
    left_out = len(small.labels)
    if not isinstance(rules, str) and rules is not None and left_out:
        rules = rules.of(set(largest.names))
    profiles = largest
    k, shown = len(profiles.labels), min(len(profiles.features), 40)
    is_spectrum = profiles.are_spectra
    size = (11.0, 4.4) if is_spectrum else (min(2.5 + 0.8 * k, 14.0), 1.4 + 0.3 * shown)
    what = "Spectra" if is_spectrum else "Differences from the rest"
    of = f"the {k} largest clusters" if left_out else f"{k} clusters"
    picture = svg(lambda ax: profiles.plot(ax, colors), size, name=f"{what} of {of}")
    left = len(profiles.features) - shown
    caption = f"The {shown} most distinguishing features; {left:,} more are not drawn."
    which = "largest clusters" if left_out else "clusters"
    page.figure(
        f"{what} of the {which}",
        picture,
        wide=True,
        caption=caption if left and not is_spectrum else "",
    )
    if rules is not None:
        is_reason = isinstance(rules, str)
        page.section("Rules", "rules", rules=rules if is_reason else Markup(rules._repr_html_()))
    page.section(
        "Each cluster in numbers",
        "cluster_numbers",
        clusters=[_numbers_of(profiles, i) for i in range(k)],
        things=_things(profiles),
        n_features=len(profiles.features),
        left=left_out,
    )


def _small_clusters(profiles: Any) -> dict[str, Any] | None:
    if not len(profiles.labels):
        return None
    nearest = [
        profiles.spot(i, 0) if row >= 0 else ""
        for i, row in enumerate(profiles.nearest_rows[:, 0].tolist())
    ]
    return {
        "n": len(profiles.labels),
        "size": profiles.sizes.sum(),
        "share": profiles.shares.sum(),
        "single": int((profiles.sizes == 1).sum()),
        "columns": [
            Column("cluster", profiles.names, "text"),
            Column(_things(profiles), [f"{size:,.0f}" for size in profiles.sizes]),
            Column("nearest", nearest, "text"),
        ],
    }


def _titled(name: str) -> str:
    return f"Cluster {name}" if name.isdecimal() else name


def _things(profiles: Any) -> str:
    return "rows" if profiles.pixels is None else "pixels"


def _numbers_of(profiles: Any, i: int) -> dict[str, Any]:
    """Return the distinguishing features of a cluster, with their statistics."""
    names = profiles.distinguishing(profiles.labels[i], _FEATURES)
    columns = [profiles.features.index(name) for name in names]
    quantiles = profiles.quantiles[i]
    values = {
        "mean": profiles.means[i],
        "std": profiles.deviations[i],
        "5 %": quantiles[:, 0],
        "median": quantiles[:, 2],
        "95 %": quantiles[:, 4],
        "rest": profiles.rest_means[i],
        "difference": profiles.differences[i],
        "AUC": profiles.aucs[i],
        "missing": profiles.missing[i],
    }
    return {
        "title": _titled(profiles.names[i]),
        "size": profiles.sizes[i],
        "share": profiles.shares[i],
        "n_features": len(names),
        "columns": [
            Column("feature", names, "head"),
            *(
                Column(
                    head, ["" if np.isnan(statistic[j]) else f"{statistic[j]:.4g}" for j in columns]
                )
                for head, statistic in values.items()
            ),
        ],
    }


#: Pixels along the longer side of a picture, and maximum number of transitions that are listed.
_MAP_SIDE, _TRANSITIONS = 700, 30
_CRITERIA = {
    "name": "Classes with the same name are equal",
    "code": "Classes with the same code are equal",
    "overlap": "Classes are matched one to one by their common pixels",
}


def changed_page(title: str, old: Any, changes: Any, mark: str = "") -> str:
    """Return a page about the changes, with the mark of its job."""
    legend, pixels = changes.legend, changes.pixels
    page = Page(title)
    page.written(f"{_CRITERIA[changes.compared_by]}. ")
    page.facts(
        [
            (f"{changes.unchanged:.1%}", "of the pixels kept their class"),
            (f"{pixels.sum():,}", "pixels in both maps"),
            (f"{changes.only_old:,}", "in the first only"),
            (f"{changes.only_new:,}", "in the second only"),
        ]
    )
    changed_pairs = changes.transitions()
    changed = changes.changed
    step = max(1, -(-max(old.shape) // _MAP_SIDE))
    maps = (old, changes.matched, changed)
    small = compute(
        "pictures of the maps", *(label_map.values[::step, ::step] for label_map in maps)
    )
    codes = sorted(changed.colors)
    pictures = {
        "First map": (small[0], legend.colors, legend.codes),
        "Second map, in the colors of the first": (small[1], legend.colors, legend.codes),
        "Changes, in the color of the new class": (
            small[2],
            [changed.colors[code] for code in codes],
            codes,
        ),
    }
    page.section(
        "Maps",
        "maps",
        maps=[
            (name, map_png(np.asarray(image), *colors_and_codes))
            for name, (image, *colors_and_codes) in pictures.items()
        ],
    )
    are_partial = changes.only_old or changes.only_new
    heading = "Areas of pixels in both maps" if are_partial else "Areas"
    page.section(heading, "table", columns=_areas(changes), left=0)
    if changed_pairs:
        left = len(changed_pairs) - _TRANSITIONS
        page.section(
            "Transitions", "table", columns=_moves(changes, changed_pairs[:_TRANSITIONS]), left=left
        )
    page.section(
        "From class to class",
        "shares",
        shares=shares_of(
            pixels,
            legend.names,
            list(zip(legend.names, legend.colors, strict=True)),
            caption="Share of each class of the first map (rows) that has each class of the second "
            "map (columns)",
            corner="first map",
        ),
    )
    return page.html(mark)


def _units(changes: Any) -> tuple[Any, str]:
    unit_size, unit = area_unit(changes.square_meters)
    return (changes.square_meters / unit_size, unit) if unit else (changes.pixels, "pixels")


def _areas(changes: Any) -> list[Column]:
    (sizes, unit), legend = _units(changes), changes.legend
    first, second, unchanged = (
        values.tolist() for values in (sizes.sum(axis=1), sizes.sum(axis=0), np.diag(sizes))
    )
    columns = [Column("class", legend.names, "head", legend.colors)]
    if any(changes.new_names.get(code, n) != n for code, n in legend.by_code.items()):
        names = [changes.new_names.get(code, "") for code in legend.codes]
        columns.append(Column("called in the second map", names, "text"))
    pairs = list(zip(first, second, strict=True))
    return [
        *columns,
        Column(f"first ({unit})", [f"{a:,.5g}" for a in first]),
        Column(f"second ({unit})", [f"{b:,.5g}" for b in second]),
        Column("change", [f"{b - a:+,.4g}" if a != b else "0" for a, b in pairs]),
        Column(
            "kept",
            [f"{same / a:.1%}" if a else "" for same, a in zip(unchanged, first, strict=True)],
        ),
    ]


def _moves(changes: Any, transitions: Sequence[tuple[int, int]]) -> list[Column]:
    sizes, unit = _units(changes)
    names, colors = changes.legend.names, changes.legend.colors
    columns = [
        Column("from", [names[a] for a, _ in transitions], "head"),
        Column(
            "to", [names[b] for _, b in transitions], "text", [colors[b] for _, b in transitions]
        ),
        Column("pixels", [f"{changes.pixels[transition]:,}" for transition in transitions]),
    ]
    if unit != "pixels":
        columns.append(Column(unit, [f"{sizes[transition]:,.4g}" for transition in transitions]))
    return [
        *columns,
        Column("share", [f"{sizes[transition] / sizes.sum():.2%}" for transition in transitions]),
    ]
