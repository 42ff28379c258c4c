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

#: Color of the pixels that are right in a picture of errors, and its longer side.
_RIGHT, _SIDE = "#d4dade", 1000
#: Violated pairs that are listed.
_LISTED = 20


def add_agreement(
    page: Page, key: str, found: Mapping[str, Any], legend: Legend, things: str
) -> None:
    """Add scores, and how the `things` (pixels, rows) of each known class fall into clusters."""
    scores = {
        "Adjusted Rand index": found["ari"],
        "Normalized mutual information": found["nmi"],
        "Pairwise F-score": found["pairwise_f"],
    }
    by = found["compared_by"]
    if by == "matching":
        scores["Best matching of clusters to classes"] = found["best_matching_accuracy"]
    elif by is not None:
        scores[f"Accuracy, classes compared by {by}"] = found["accuracy"]
        if not found.get("used_by_fit"):
            n_units = found["independent_units"]
            of = f"{n_units} polygons" if n_units else f"independent {things}"
            scores[f"95 % interval for {of}, from"], scores["to"] = found["accuracy_interval"]
        if found["kappa"] is not None:
            scores["Cohen's kappa"] = found["kappa"]
    page.section(
        f"Agreement with {key}",
        "agreement",
        shares=_confusion(found, legend, things),
        scores=_scores((name, f"{value:.4f}") for name, value in scores.items()),
        by_class=_by_class(found),
        things=things,
        used_by_fit=found.get("used_by_fit"),
        pixels=found["pixels"],
        share=found.get("accuracy", found.get("best_matching_accuracy")),
    )


def add_errors(page: Page, found: Mapping[str, Any], legend: Legend, layer: Array) -> None:
    """Add a picture of the errors by their known class, with the counts of each.

    `layer` is -1 where nothing is compared, 0 where the map is right, else 1 + the place of the
    known class among ``found["classes"]``.
    """
    counts, matched = np.asarray(found["counts"]), np.asarray(found["matched"])
    named, by_code = legend.by_code, legend.color_by_code
    colors: list[str] = [_RIGHT]
    lines: list[tuple[Any, ...]] = []
    right = np.where(matched >= 0, counts[np.arange(len(counts)), matched], 0)
    others = label_colors(len(counts))
    for at, name in enumerate(found.get("class_names") or found["classes"]):
        wrong, own = counts[at].copy(), int(matched[at])
        colors.append(by_code.get(found["clusters"][own], others[at]) if own >= 0 else others[at])
        wrong[[own] if own >= 0 else []] = 0
        code, most = found["clusters"][wrong.argmax()], int(wrong.max())
        lines.append((colors[-1], name, right[at], wrong.sum(), named.get(code, str(code)), most))
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


def add_held_out(page: Page, found: Mapping[str, Any]) -> None:
    """Add the accuracy on held-out labels, and the accuracy of other methods."""
    if "accuracy" in found:
        low, high = found["accuracy_interval"]
        rows = [("This fit", f"{found['accuracy']:.3f} ({low:.3f} to {high:.3f})")]
        if found["kappa"] is not None:
            rows.append(("Cohen's kappa", f"{found['kappa']:.3f}"))
    else:
        value = found["best_matching_accuracy"]
        rows = [("Best matching of clusters to classes", f"{value:.3f}")]
    rows += [
        (name[:1].upper() + name[1:], f"{value:.3f}")
        for name, value in found.get("baselines", {}).items()
        if not name.startswith("rows")
    ]
    from daskclust.metrics import FEW_UNITS

    page.section(
        "Accuracy on held-out labels",
        "held_out",
        found=found,
        few_units=FEW_UNITS,
        scores=_scores(rows),
        by_class=_by_class(found),
        things="labels",
    )


def _scores(rows: Iterable[tuple[str, str]]) -> list[Column]:
    names, values = zip(*rows, strict=True)
    return [Column("", names, "head"), Column("", values)]


def _by_class(found: Mapping[str, Any]) -> list[Column]:
    items = found.get("by_class") or []
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


def _confusion(found: Mapping[str, Any], legend: Legend, things: str) -> dict[str, Any]:
    counts = np.asarray(found["counts"])
    classes = found.get("class_names") or found["classes"]
    # On the diagonal what is the same class, or is matched with it.
    matched = [at for at in found["matched"] if at >= 0]
    order = [*matched, *sorted(set(range(counts.shape[1])) - set(matched))]
    named, colors = legend.by_code, legend.color_by_code
    codes = [found["clusters"][at] for at in order]
    return shares_of(
        counts[:, order],
        classes,
        [(named.get(code, str(code)), colors.get(code, "none")) for code in codes],
        caption=f"Share of each known class in each cluster, over {found['pixels']:,} {things}",
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
    """Return a share for a cell: nothing at all, less than a hundredth, or percent.

    >>> _percent(0.0), _percent(0.004), _percent(0.5)
    ('', '<1%', '50%')
    """
    return f"{share:.0%}" if share >= 0.005 else "<1%" if share else ""


def mostly_of(agreement: Mapping[str, Mapping[str, Any]] | None) -> dict[int, str]:
    """Return the most frequent known class of each cluster, with its share.

    `agreement` is by ``truth`` or ``labels``, of which the first is taken.

    >>> mostly_of({"truth": {"classes": [1, 2], "clusters": [0], "counts": [[1], [3]],
    ...                      "class_names": ["water", "wheat"]}})
    {0: '75% wheat'}
    """
    if not agreement:
        return {}
    found = next(iter(agreement.values()))
    names, counts = found.get("class_names") or found["classes"], np.asarray(found["counts"])
    return {
        code: f"{own.max() / own.sum():.0%} {names[own.argmax()]}"
        for code, own in zip(found["clusters"], counts.T, strict=True)
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


#: Numbers of features per cluster, and of clusters (the largest) that are shown in full.
_FEATURES, _CLUSTERS = 8, 60
#: Clusters up to which they are in the order of their numbers, as in the legend; else by size.
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
        colors = [colors[at] for at in order[:_CLUSTERS]]
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
    whose = "largest clusters" if left_out else "clusters"
    page.figure(
        f"{what} of the {whose}",
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
        clusters=[_numbers_of(profiles, at) for at in range(k)],
        things=_things(profiles),
        n_features=len(profiles.features),
        left=left_out,
    )


def _small_clusters(profiles: Any) -> dict[str, Any] | None:
    if not len(profiles.labels):
        return None
    nearest = [
        profiles.spot(at, 0) if row >= 0 else ""
        for at, row in enumerate(profiles.nearest_rows[:, 0].tolist())
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


def _numbers_of(profiles: Any, at: int) -> dict[str, Any]:
    """Return the distinguishing features of a cluster, with their statistics."""
    names = profiles.distinguishing(profiles.labels[at], _FEATURES)
    places = [profiles.features.index(name) for name in names]
    quantiles = profiles.quantiles[at]
    values = {
        "mean": profiles.means[at],
        "std": profiles.deviations[at],
        "5 %": quantiles[:, 0],
        "median": quantiles[:, 2],
        "95 %": quantiles[:, 4],
        "rest": profiles.rest_means[at],
        "difference": profiles.differences[at],
        "AUC": profiles.aucs[at],
        "missing": profiles.missing[at],
    }
    return {
        "title": _titled(profiles.names[at]),
        "size": profiles.sizes[at],
        "share": profiles.shares[at],
        "n_features": len(names),
        "columns": [
            Column("feature", names, "head"),
            *(
                Column(head, ["" if np.isnan(found[j]) else f"{found[j]:.4g}" for j in places])
                for head, found in values.items()
            ),
        ],
    }


#: Pixels along the longer side of a picture, and transitions that are listed.
_MAP_SIDE, _MOVES = 700, 30
_WAYS = {
    "name": "Classes of one name are the same",
    "code": "Classes of one code are the same",
    "overlap": "Classes that share most pixels, one to one, are the same",
}


def changed_page(title: str, old: Any, changes: Any, mark: str = "") -> str:
    """Return a page about the changes, with the mark of its job."""
    legend, pixels = changes.legend, changes.pixels
    page = Page(title)
    page.written(f"{_WAYS[changes.compared_by]}. ")
    page.facts(
        [
            (f"{changes.unchanged:.1%}", "of the pixels kept their class"),
            (f"{pixels.sum():,}", "pixels in both maps"),
            (f"{changes.only_old:,}", "in the first only"),
            (f"{changes.only_new:,}", "in the second only"),
        ]
    )
    moves = changes.transitions()
    changed = changes.changed
    step = max(1, -(-max(old.shape) // _MAP_SIDE))
    maps = (old, changes.matched, changed)
    small = compute("pictures of the maps", *(each.values[::step, ::step] for each in maps))
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
        maps=[(name, map_png(np.asarray(image), *how)) for name, (image, *how) in pictures.items()],
    )
    alone = changes.only_old or changes.only_new
    heading = "Areas of pixels in both maps" if alone else "Areas"
    page.section(heading, "table", columns=_areas(changes), left=0)
    if moves:
        left = len(moves) - _MOVES
        page.section("Transitions", "table", columns=_moves(changes, moves[:_MOVES]), left=left)
    page.section(
        "From class to class",
        "shares",
        shares=shares_of(
            pixels,
            legend.names,
            list(zip(legend.names, legend.colors, strict=True)),
            caption="Of each class of the first map (down), the share that has each class of the "
            "second (across)",
            corner="first map",
        ),
    )
    return page.html(mark)


def _units(changes: Any) -> tuple[Any, str]:
    part, unit = area_unit(changes.square_meters)
    return (changes.square_meters / part, unit) if unit else (changes.pixels, "pixels")


def _areas(changes: Any) -> list[Column]:
    (sizes, unit), legend = _units(changes), changes.legend
    first, second, kept = (
        part.tolist() for part in (sizes.sum(axis=1), sizes.sum(axis=0), np.diag(sizes))
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
        Column("kept", [f"{k / a:.1%}" if a else "" for k, a in zip(kept, first, strict=True)]),
    ]


def _moves(changes: Any, moves: Sequence[tuple[int, int]]) -> list[Column]:
    sizes, unit = _units(changes)
    names, colors = changes.legend.names, changes.legend.colors
    columns = [
        Column("from", [names[a] for a, _ in moves], "head"),
        Column("to", [names[b] for _, b in moves], "text", [colors[b] for _, b in moves]),
        Column("pixels", [f"{changes.pixels[move]:,}" for move in moves]),
    ]
    if unit != "pixels":
        columns.append(Column(unit, [f"{sizes[move]:,.4g}" for move in moves]))
    return [*columns, Column("share", [f"{sizes[move] / sizes.sum():.2%}" for move in moves])]
