"""Sections of reports: agreement, errors, contradicting pairs, profiles and changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from daskclust.app.report.page import Page, escape, map_png, svg
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
            scores[f"95 % interval as of {of}, from"], scores["to"] = found["accuracy_interval"]
        if found["kappa"] is not None:
            scores["Cohen's kappa"] = found["kappa"]
    rows = _figures((name, f"{value:.4f}") for name, value in scores.items())
    tables = (
        f'<div class="agreement"><div class="wide">{_confusion(found, legend, things)}</div>'
        f"<table>{rows}</table></div>{_by_class(found, things)}"
    )
    if found.get("used_by_fit"):
        share = found.get("accuracy", found.get("best_matching_accuracy"))
        agree = "" if share is None else f"It agrees with {share:.1%} of them. "
        tables = (
            f"<p>The fit learned from {found['pixels']:,} labels. {agree}How well the map fits "
            f"them says nothing about its other {things}. Give labels that the fit does not see "
            "as <code>--truth</code>, or keep some apart by <code>--hold-out</code>.</p>"
            f"<details><summary>Agreement with these labels</summary>{tables}</details>"
        )
    page.section(f"Agreement with {key}", tables)


def add_errors(page: Page, found: Mapping[str, Any], legend: Legend, layer: Array) -> None:
    """Add a picture of the errors by their known class, with the counts of each.

    `layer` is -1 where nothing is compared, 0 where the map is right, else 1 + the place of the
    known class among ``found["classes"]``.
    """
    counts, matched = np.asarray(found["counts"]), np.asarray(found["matched"])
    named, by_code = legend.by_code, legend.color_by_code
    colors, lines = [_RIGHT], []
    right = np.where(matched >= 0, counts[np.arange(len(counts)), matched], 0)
    others = label_colors(len(counts))
    for at, name in enumerate(found.get("class_names") or found["classes"]):
        wrong, own = counts[at].copy(), int(matched[at])
        colors.append(by_code.get(found["clusters"][own], others[at]) if own >= 0 else others[at])
        wrong[[own] if own >= 0 else []] = 0
        code, most = found["clusters"][wrong.argmax()], int(wrong.max())
        lines.append((colors[-1], name, right[at], wrong.sum(), named.get(code, str(code)), most))
    n_right, n_wrong = int(right.sum()), int(counts.sum() - right.sum())
    rows = "".join(
        f'<tr><th scope="row"><i class="chip" style="background:{color}"></i>{escape(name)}</th>'
        f'<td class="n">{own:,}</td><td class="n">{wrong:,}</td>'
        f"<td>{escape(f'{mostly}, {most:,}') if most else ''}</td></tr>"
        for color, name, own, wrong, mostly, most in [
            *lines,
            (_RIGHT, "right, of any class", n_right, n_wrong, "", 0),
        ]
    )
    thin = -(-max(layer.shape) // _SIDE)
    what = f"Map of errors: {n_right:,} pixels right, {n_wrong:,} wrong"
    page.section(
        "Errors of the map",
        f'<div class="three"><figure class="viewer"><img alt="{escape(what)}" '
        f'src="{map_png(layer[::thin, ::thin], colors)}"><figcaption>Gray: right. Colors: wrong, '
        "in the color of the known class. Dark: nothing known.</figcaption></figure>"
        '<div class="wide"><table><thead><tr><th scope="col">known class</th>'
        '<th scope="col" class="n">right</th><th scope="col" class="n">wrong</th>'
        f'<th scope="col">mostly found as</th></tr></thead><tbody>{rows}</tbody></table></div>'
        "</div>",
    )


def add_held_out(page: Page, found: Mapping[str, Any]) -> None:
    """Add the accuracy on labels that the fit has not seen, beside that of other methods."""
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

    alone, n_held = ", ".join(found["not_held_out"]), found["groups_held_out"]
    few = f" With fewer than {FEW_UNITS} it is rough." if n_held < FEW_UNITS else ""
    page.section(
        "Accuracy on labels kept apart",
        f"<p>{n_held:,} of {found['groups']:,} {escape(found['unit'])} with {found['rows']:,} "
        "labels, which the fit has not seen. The 95 % interval is that of a bootstrap over these "
        f"{escape(found['unit'])}, as labels of one of them are alike.{few}"
        f"{escape(f' Not judged, of one group only: {alone}.' if alone else '')}</p>"
        f'<div class="agreement"><table>{_figures(rows)}</table>{_by_class(found, "labels")}</div>',
    )


def _figures(rows: Iterable[tuple[str, str]]) -> str:
    line = '<tr><th scope="row">{}</th><td class="n">{}</td></tr>'
    return "".join(line.format(*map(escape, row)) for row in rows)


def _numbers(texts: Iterable[object]) -> str:
    return "".join(f'<td class="n">{text}</td>' for text in texts)


def _heads(texts: Iterable[str]) -> str:
    """Write heads of columns of numbers."""
    return "".join(f'<th scope="col" class="n">{text}</th>' for text in texts)


def _by_class(found: Mapping[str, Any], things: str) -> str:
    items = found.get("by_class")
    if not items:
        return ""
    heads = ("known", "found", "producer's accuracy", "user's accuracy", "F1")
    rows = "".join(
        f'<tr><th scope="row">{escape(item["class"])}</th>'
        + _numbers(f"{item[key]:,}" for key in ("truth", "labels"))
        + _numbers(
            "" if item[key] is None else f"{item[key]:.3f}" for key in ("producers", "users", "f1")
        )
        + "</tr>"
        for item in items
    )
    return (
        f'<div class="wide"><table><caption>Accuracy by class: of the {things} known as a class, '
        "the share found as it (producer's); of those found, the share known as it "
        "(user's)</caption>"
        f'<thead><tr><th scope="col">class</th>{_heads(heads)}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _confusion(found: Mapping[str, Any], legend: Legend, things: str) -> str:
    counts = np.asarray(found["counts"])
    classes = found.get("class_names") or found["classes"]
    # On the diagonal what is the same class, or is matched with it.
    matched = [at for at in found["matched"] if at >= 0]
    order = [*matched, *sorted(set(range(counts.shape[1])) - set(matched))]
    named, colors = legend.by_code, legend.color_by_code
    codes = [found["clusters"][at] for at in order]
    return share_table(
        counts[:, order],
        classes,
        [(named.get(code, str(code)), colors.get(code, "none")) for code in codes],
        caption=f"Share of each known class in each cluster, over {found['pixels']:,} {things}",
        corner="known class",
        things=things,
    )


def share_table(
    counts: Ints,
    rows: Sequence[Any],
    columns: Sequence[tuple[str, str]],
    *,
    caption: str,
    corner: str,
    things: str = "pixels",
) -> str:
    """Write the share of each row that each column has, darker where it is larger."""
    heads = "".join(
        f'<th scope="col"><i class="chip" style="background:{color}"></i>'
        # Names may break at their underscores: they head narrow columns.
        f"{escape(name).replace('_', '_<wbr>')}</th>"
        for name, color in columns
    )
    lines = []
    for name, line in zip(rows, counts, strict=True):
        total = int(line.sum())
        cells = "".join(
            f'<td class="n share" style="--share:{count / max(1, total):.3f}" '
            f'title="{count:,} {things}">{escape(_percent(count / max(1, total)))}</td>'
            for count in line.tolist()
        )
        lines.append(
            f'<tr><th scope="row">{escape(name)}</th><td class="n">{total:,}</td>{cells}</tr>'
        )
    return (
        f'<table><caption>{escape(caption)}</caption><thead><tr><th scope="col">{escape(corner)}'
        f'</th><th scope="col" class="n">{things}</th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _percent(share: float) -> str:
    """Return a share for a cell: nothing at all, less than a hundredth, or percent.

    >>> _percent(0.0), _percent(0.004), _percent(0.5)
    ('', '<1%', '50%')
    """
    return f"{share:.0%}" if share >= 0.005 else "<1%" if share else ""


def mostly_of(agreement: Mapping[str, Mapping[str, Any]] | None) -> dict[int, str]:
    """Say for each cluster which known class most of its known pixels have.

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
    rows = "".join(
        f"<tr>{_numbers((pair.i, pair.j))}<td>{escape(pair.kind)}</td>"
        f"<td>{'violated' if pair.violated else ''}</td></tr>"
        for pair in pairs[:_LISTED]
    )
    page.section(
        "Pairs that contradict the clusters",
        '<table><tr><th class="n">row</th><th class="n">row</th><th>kind</th><th></th></tr>'
        f"{rows}</table>{_more(len(pairs) - _LISTED)}",
    )


#: Features that are told of each cluster, and clusters that are shown in full: the largest.
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
    """Add what sets each cluster apart: in a line, as a picture, as rules, and in numbers.

    `rules` may be the reason why there are none.
    """
    order = np.arange(len(profiles.sizes))
    if len(order) > _FEW:
        order = np.argsort(-profiles.sizes, kind="stable")
    largest, small = profiles.of(order[:_CLUSTERS]), profiles.of(order[_CLUSTERS:])
    advice = singles_advice(profiles.sizes)
    said = f"<p><strong>Advice:</strong> {escape(advice)}</p>" if advice else ""
    heading = "Clusters" if profiles.are_vectors else "What sets the clusters apart"
    page.section(heading, f'{said}<div class="wide">{largest._repr_html_()}</div>{_folded(small)}')
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
    said = f"<figcaption>The {shown} features that tell most; {left:,} more are not drawn."
    said = f"{said}</figcaption>" if left and not is_spectrum else ""
    whose = "largest clusters" if left_out else "clusters"
    page.section(f"{what} of the {whose}", f'<figure class="wide">{picture}{said}</figure>')
    if rules is not None:
        told = f"<p>{escape(rules)}</p>" if isinstance(rules, str) else rules._repr_html_()
        page.section("Rules", f'<div class="wide">{told}</div>')
    numbers = "".join(
        f"<details><summary>{escape(_titled(profiles.names[at]))}</summary>"
        f"{_table(profiles, at, label)}</details>"
        for at, label in enumerate(profiles.labels.tolist())
    )
    page.section("Each cluster in numbers", numbers + _more(left_out))


def _folded(profiles: Any) -> str:
    """Return small clusters as a table that opens on demand."""
    k = len(profiles.labels)
    if not k:
        return ""
    single = int((profiles.sizes == 1).sum())
    lines = "".join(
        f"<tr><td>{escape(name)}</td>{_numbers([f'{size:,.0f}'])}"
        f"<td>{escape(profiles.spot(at, 0) if profiles.nearest_rows[at, 0] >= 0 else '')}</td></tr>"
        for at, (name, size) in enumerate(zip(profiles.names, profiles.sizes, strict=True))
    )
    things = _things(profiles)
    return (
        f"<details><summary>{k:,} smaller clusters with {profiles.sizes.sum():,.0f} {things} "
        f"({profiles.shares.sum():.1%}); {single:,} of them have one</summary>"
        f'<div class="wide"><table><thead><tr><th>cluster</th>{_heads([things])}'
        f"<th>nearest</th></tr></thead><tbody>{lines}</tbody></table></div></details>"
    )


def _titled(name: str) -> str:
    return f"Cluster {name}" if name.isdecimal() else name


def _things(profiles: Any) -> str:
    return "rows" if profiles.pixels is None else "pixels"


def _more(left: int) -> str:
    return f"<p>and {left:,} more</p>" if left > 0 else ""


def _table(profiles: Any, at: int, label: int) -> str:
    """Write the features that set a cluster apart, with all that is known of them."""
    heads = ("mean", "std", "5 %", "median", "95 %", "rest", "difference", "AUC", "missing")
    rows, p = [], len(profiles.features)
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
        cells = _numbers("" if np.isnan(value) else f"{value:.4g}" for value in values)
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return (
        f"<p>{profiles.sizes[at]:,.0f} {_things(profiles)}, {profiles.shares[at]:.1%} of all"
        f"{f'; the {len(rows)} features of {p:,} that tell most' if len(rows) < p else ''}.</p>"
        f'<div class="wide"><table><thead><tr><th scope="col">feature</th>{_heads(heads)}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


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
    new = codes, [changed.colors[code] for code in codes]
    figures = (
        _figure("First map", small[0], legend.codes, legend.colors),
        _figure("Second map, in the colors of the first", small[1], legend.codes, legend.colors),
        _figure("What changed, in the color of the new class", small[2], *new),
    )
    page.section("Maps", f'<div class="three">{"".join(figures)}</div>')
    alone = changes.only_old or changes.only_new
    page.section(
        "Areas of pixels in both maps" if alone else "Areas",
        f'<div class="wide">{_areas(changes)}</div>',
    )
    if moves:
        page.section("Transitions", f'<div class="wide">{_moves(changes, moves)}</div>')
    heads = list(zip(legend.names, legend.colors, strict=True))
    page.section(
        "From class to class",
        '<div class="agreement"><div class="wide">'
        + share_table(
            pixels,
            legend.names,
            heads,
            caption="Of each class of the first map (down), the share that has each class of the "
            "second (across)",
            corner="first map",
        )
        + "</div></div>",
    )
    return page.html(mark)


def _figure(heading: str, values: Any, codes: Any, colors: Any) -> str:
    picture, said = map_png(np.asarray(values), colors, codes), escape(heading)
    return (
        f'<figure class="viewer"><img src="{picture}" alt="{said}">'
        f"<figcaption>{said}</figcaption></figure>"
    )


def _units(changes: Any) -> tuple[Any, str]:
    part, unit = area_unit(changes.square_meters)
    return (changes.square_meters / part, unit) if unit else (changes.pixels, "pixels")


def _areas(changes: Any) -> str:
    (sizes, unit), legend = _units(changes), changes.legend
    renamed = any(changes.new_names.get(code, n) != n for code, n in legend.by_code.items())
    rows = "".join(
        f'<tr><th scope="row"><i class="chip" style="background:{color}"></i>{escape(name)}</th>'
        + (f"<td>{escape(changes.new_names.get(code, ''))}</td>" if renamed else "")
        + _numbers((f"{a:,.5g}", f"{b:,.5g}", f"{b - a:+,.4g}" if a != b else "0"))
        + _numbers([f"{k / a:.1%}" if a else ""])
        + "</tr>"
        for code, name, color, a, b, k in zip(
            *(legend.codes, legend.names, legend.colors),
            *(part.tolist() for part in (sizes.sum(axis=1), sizes.sum(axis=0), np.diag(sizes))),
            strict=True,
        )
    )
    heads = (f"first ({unit})", f"second ({unit})", "change", "kept")
    return (
        '<table><thead><tr><th scope="col">class</th>'
        + ('<th scope="col">called in the second map</th>' if renamed else "")
        + f"{_heads(heads)}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _moves(changes: Any, moves: list[tuple[int, int]]) -> str:
    sizes, unit = _units(changes)
    names, colors = changes.legend.names, changes.legend.colors
    total = sizes.sum()
    rows = "".join(
        f'<tr><th scope="row">{escape(names[a])}</th><td><i class="chip" style="background:'
        f'{colors[b]}"></i>{escape(names[b])}</td><td class="n">{changes.pixels[a, b]:,}</td>'
        + ("" if unit == "pixels" else f'<td class="n">{sizes[a, b]:,.4g}</td>')
        + f'<td class="n">{sizes[a, b] / total:.2%}</td></tr>'
        for a, b in moves[:_MOVES]
    )
    heads = dict.fromkeys(("pixels", unit, "share"))
    return (
        '<table><thead><tr><th scope="col">from</th><th scope="col">to</th>'
        f"{_heads(heads)}</tr></thead><tbody>{rows}</tbody></table>{_more(len(moves) - _MOVES)}"
    )
