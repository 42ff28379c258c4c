"""Write the tables of measurements in the documentation from the stored results.

``python tests/benchmarks/page_tables.py`` replaces all lines between ``<!-- table: NAME -->`` and
``<!-- end -->`` in the pages.  With ``--check`` it changes no page, and fails if one would change.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[1] / "docs"
MARKED = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
#: Names of series in ``clouds.json``, and of what is hidden from them.
SERIES = {
    "Sentinel-2": "s2_ndvi_clouds_slovenia",
    "MODIS, 4 classes": "ts_samples_modis_ndvi",
    "MODIS, 2 classes": "ts_cerrado_2classes",
}
HIDDEN = {"dates": "dates at random", "mcar": "values at random", "nmar": "high values first"}
CLOUDY = {
    "k-means, means filled in": "k-means, mean",
    "nearest neighbor, means filled in": "1-NN, mean",
    "gradient boosting with NaN": "gradient boosting, NaN",
    '`LabelSpreading`, `views="auto"`': "label spreading, auto",
}
PHASES = ("start", "first level", "parts", "refinement", "last")
SCENES = {"salinas_a": "Salinas-A (fields)", "jasper_ridge": "Jasper Ridge (mixed)"}


def results(name: str) -> Any:
    """Return the stored results of a benchmark."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table."""
    lines: list[Any] = [list(head), *rows]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def spaced(value: float) -> str:
    """Return an integer as text, its thousands set apart by spaces."""
    return f"{value:,.0f}".replace(",", " ") if value >= 10_000 else f"{value:.0f}"


def mean_and_spread(values: tuple[float, float]) -> str:
    """Return a mean and a standard deviation as text."""
    return f"{values[0]:.3f} ± {values[1]:.3f}"


def asked() -> str:
    """Return the scores of asked and of random labels."""
    from asking import SETS, WORTH, means

    sets, rows = results("asking")["sets"], []
    for name in SETS:
        ways = sets[name]["asked"], sets[f"{name}, graph alone"]["asked"], sets[name]["random"]
        scores = [means(draws) for draws in ways]
        counts = [len(draws) for draws in ways]
        for n in (20, 50):
            cells = [scores[0][n], scores[1][n], scores[2][n], scores[2][int(WORTH * n)]]
            rows.append([name, n, *map(mean_and_spread, cells), f"{counts[0]}, {counts[2]}"])
    head = ["asked", "asked, graph alone", "random", "random, 1.5 times as many"]
    return table(["set", "labels", *head, "draws (asked, random)"], rows)


def changes() -> str:
    """Return what the model expected of the next batch of labels, and what came."""
    from asking import means

    # After the last batch there is no change.
    draws = [draw[:-1] for draw in results("asking")["sets"]["pendigits"]["asked"]]
    keys = {
        "changes expected": "expected_change",
        "changes seen": "change",
        "growth of accuracy expected": "expected_gain",
        "growth seen": "gain",
    }
    columns = [means(draws, key) for key in keys.values()]
    rows = [[n, *(f"{100 * column[n][0]:.1f} %" for column in columns)] for n in columns[0]]
    return table(["labels so far", *keys], rows)


def clouds() -> str:
    """Return the scores of series with hidden dates and values."""
    scores, hidden = defaultdict(list), defaultdict(set)
    for key, run in results("clouds").items():
        series, mechanism, share, method, _ = key.split(":")
        scores[series, mechanism, share, method].append(run["ari"])
        hidden[series].add((list(HIDDEN).index(mechanism) if mechanism in HIDDEN else -1,
                            mechanism, share))  # fmt: skip
    rows = []
    for title, series in SERIES.items():
        for _, mechanism, share in sorted(hidden[series]):
            told = {"clouds": "real clouds", "complete": "nothing hidden"}.get(mechanism)
            told = told or f"{100 * float(share):.0f} %, {HIDDEN[mechanism]}"
            means = [np.mean(scores[series, mechanism, share, of]) for of in CLOUDY.values()]
            rows.append([title, told, *best_in_bold(means, 3)])
    return table(["series", "hidden", *CLOUDY], rows)


def best_in_bold(values: list[Any], digits: int) -> list[str]:
    """Return numbers as text, the largest in bold; a missing number is an empty cell."""
    best = max((round(value, digits) for value in values if value is not None), default=None)
    texts = ["" if v is None else f"{round(v, digits) + 0.0:.{digits}f}" for v in values]
    pairs = zip(values, texts, strict=True)
    return [f"**{t}**" if t and round(value, digits) == best else t for value, t in pairs]


def embeddings_levels() -> str:
    """Return the time and inertia of one and of two levels of centers."""
    measured, rows = results("embeddings")["levels"]["results"], []
    refined = 'n_probe="all", refine=5'
    ways = {
        "KMeans": "`KMeans(2000)`",
        "HierarchicalKMeans": "`HierarchicalKMeans(2000)`",
        refined: f"`HierarchicalKMeans(2000, {refined})`",
        f"{refined}, 6 parents": "the same with 6 parents",
        f"{refined}, 22 parents": "the same with 22 parents",
    }
    for way, title in ways.items():
        cells = []
        for data in ("f", "made"):
            runs, one = measured[data][way], measured[data]["KMeans"]
            more = [100 * (a["inertia"] / b["inertia"] - 1) for a, b in zip(runs, one, strict=True)]
            cells.append(f"{np.median([run['processor'] for run in runs]):.1f} s")
            worst = f"{np.mean(more):+.1f} % ({max(more):.1f})"
            cells.append("" if way == "KMeans" else worst)
        rows.append([title, *cells])
    return table(["", "descriptions", "inertia", "made", "inertia"], rows)


def embeddings_many() -> str:
    """Return the processor seconds of the phases by the number of clusters."""
    rows = []
    for share in ("0.025", "0.05", "0.1", "0.4", "1"):
        run = results("embeddings")[f"g, share {share}"]["results"]
        spent = [sum(run["processor seconds of workers"][phase]) for phase in PHASES]
        peaks = [f"{run[key]:.0f}" if key in run else "" for key in ("worker MiB", "client MiB")]
        sizes = [spaced(run["n"]), spaced(run["k"])]
        rows.append([*sizes, *(f"{seconds:.1f}" for seconds in spent), *peaks])
    return table(["rows", "clusters", *PHASES, "worker, MiB at most", "client, MiB"], rows)


def embeddings_peers() -> str:
    """Return the time and inertia compared with other libraries."""
    from embeddings import until

    rows = []
    for title, name in (
        ("k = 256", "f, k = 256"),
        ("k = 2048", "f, k = 2048"),
        ("made, k = 1000", "e, k = 1000"),
    ):
        cell = results("embeddings")[name]["results"]
        (ours,) = cell["daskclust"]
        seconds = [f"{ours[key]:.1f}" for key in ("seconds", "processor")]
        rows.append([f"{title}: daskclust", *seconds, spaced(ours["inertia"]), ""])
        for peer in ("faiss", "SuperKMeans"):
            (theirs,) = cell[peer]
            seconds = [f"{theirs[key]:.1f}" for key in ("seconds", "processor")]
            share = until(ours["trace"], theirs["inertia"])[0] / theirs["seconds"]
            more = f"{100 * (theirs['inertia'] / ours['inertia'] - 1):+.1f} %"
            rows.append([peer, *seconds, more, f"{share:.2f}"])
    head = ["seconds", "processor seconds", "inertia"]
    return table(["", *head, "until, fraction of the other's seconds"], rows)


def pairs() -> str:
    """Return the gains by pairs, and with one wrong pair in ten."""
    gains = {
        (run["estimator"], run["pairs"], run["wrong"]): float(run["gain"])
        for run in results("pairs")["gains"]
    }
    names = list(dict.fromkeys(name for name, *_ in gains))
    rows = []
    for count in ("20", "100", "400"):
        keys = [[(name, count, wrong) for wrong in ("0.0", "0.1")] for name in names]
        rows.append([count, *(", ".join(f"{gains[k]:+.3f}" for k in ks if k in gains)
                              for ks in keys)])  # fmt: skip
    return table(["pairs", *(f"`{name}`" for name in names)], rows)


def trees_noise() -> str:
    """Return precision and recall of noise from prototypes, compared with a fit of all rows."""
    fits = defaultdict(list)
    for name, run in results("trees")["noise"].items():
        kind, p, _ = name.split(", ")
        less = np.subtract(run["noise"], run["all rows"])
        for key in ((int(p), f"{kind}, {p}"), (99, "all")):
            fits[key].append((run["index"], *less))
    rows = []
    for (_, title), found in sorted(fits.items()):
        values = np.array(found)
        means, worst = values.mean(axis=0), values.min(axis=0)
        cells = [f"{means[0]:.3f} ({worst[0]:.3f})"]
        cells += [f"{means[j]:+.3f} ({worst[j]:+.3f})" for j in (1, 2)]
        rows.append([title, len(found), *cells, (values[:, 1:] < -0.03).any(axis=1).sum()])
    head = ["planted, features", "fits", "index", "precision", "recall", "fits below"]
    return table(head, rows)


def trees_ward() -> str:
    """Return the scores of Ward's trees of all rows, of nearly all rows and of prototypes."""
    ways = {"all rows": "all rows", "but one in twenty": "all but one row in twenty",
            "prototypes": "2000 prototypes"}  # fmt: skip
    rows = []
    for name, found in sorted(results("trees")["ward"].items()):
        cells = []
        for way in ways:
            scores = found[way]
            bounds = f" ({min(scores):.3f} to {max(scores):.3f})" if len(scores) > 1 else ""
            cells.append(f"{np.mean(scores):.3f}{bounds}" if scores else "")
        rows.append([name, *cells])
    return table(["set", *ways.values()], rows)


def trees_sets() -> str:
    """Return the scores of trees on public sets."""
    rows = [
        [name, *values[:2], *(f"{value:.3f}" for value in values[2:])]
        for name, values in sorted(results("trees")["sets"].items())
    ]
    head = ["Ward of a sample", "Ward", "HDBSCAN of a sample", "HDBSCAN"]
    return table(["set", "rows", "classes", *head], rows)


def smoothing() -> str:
    """Return the change of the index by the strength of smoothing."""
    found = results("smoothing")
    strengths = found["strengths"]
    rows = []
    for key, indexes in found["indexes"].items():
        scene, labels = key.split(":")
        values = np.array(indexes)
        change = values[:, 1:] - values[:, :1]
        told = "1 %" if labels == "0.01" else f"{labels} a class"
        cells = [*change.mean(axis=0), change[:, strengths.index(0.5)].min()]
        texts = [f"{round(value, 3) + 0.0:+.3f}" for value in cells]
        rows.append([f"{SCENES[scene]}, {told}", f"{values[:, 0].mean():.3f}", *texts])
    return table(["scene, labels", "index without", *strengths, "worst at 0.5"], rows)


def fits() -> str:
    """Return the times of whole fits."""
    from suite import table_of

    return table_of(FOLDER / "suite" / "fits.json")


def iterations() -> str:
    """Return the times of single iterations."""
    from suite import table_of

    return table_of(FOLDER / "suite" / "iterations.json")


def suite_of_sets() -> str:
    """Return the index of each estimator on each set of the suite."""
    from comparison import table

    return table(results("comparison"))


TABLES: dict[str, Callable[[], str]] = {
    "asked labels": asked,
    "expected changes": changes,
    "clouds": clouds,
    "suite": suite_of_sets,
    "levels": embeddings_levels,
    "many clusters": embeddings_many,
    "other libraries": embeddings_peers,
    "gains by pairs": pairs,
    "noise": trees_noise,
    "Ward": trees_ward,
    "sets": trees_sets,
    "smoothing": smoothing,
    "fits": fits,
    "iterations": iterations,
}


def written(page: str) -> str:
    """Return the text of a page with its tables as the stored results give them."""

    def replaced(mark: re.Match[str]) -> str:
        if mark[2] in TABLES:
            return mark[1] + TABLES[mark[2]]() + mark[3]
        from when_labels_help import table_of

        return mark[1] + table_of(mark[2]) + mark[3]

    return MARKED.sub(replaced, page)


def main(arguments: list[str] | None = None) -> int:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change no page; fail if one differs")
    check = parser.parse_args(arguments).check
    stale = 0
    for path in sorted(DOCS.rglob("*.md")):
        if "_build" in path.parts or "<!-- table: " not in (text := path.read_text()):
            continue
        if (new := written(text)) != text:
            stale += 1
            print(f"{path}: {'differs from the results' if check else 'written'}")
            if not check:
                path.write_text(new)
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
