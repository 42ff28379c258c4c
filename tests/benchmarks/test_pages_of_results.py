"""What pages of the documentation tell of measurements is what lies in the files of results."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import WORTH, means
from embeddings import TARGETS, WAYS, until
from suite import on_page
from whole_fits import summary

from daskclust import HDBSCAN

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source release has no docs")
#: A number that is no part of a name or a version, such as `x2`, `1-NN` or `0.2.0`.
FIGURE = re.compile(
    r"(?<![\w.])-?(?:(?:\d{1,3}(?: \d{3})+|\d+)?\.\d+|\d{1,3}(?: \d{3})+(?!\.)|\d+)(?:e\d+)?"
    r"(?!\.?\d|-[A-Za-z])"
)
#: Rows of the page about missing values, and what the results call them.
SERIES = {
    "Sentinel-2": "s2_ndvi_clouds_slovenia",
    "MODIS, 4 classes": "ts_samples_modis_ndvi",
    "MODIS, 2 classes": "ts_cerrado_2classes",
}
GAPS = {"dates at random": "dates", "values at random": "mcar", "high values first": "nmar"}
CLOUDY = ("k-means, mean", "1-NN, mean", "gradient boosting, NaN", "label spreading, auto")
#: What results of labels hold beside scores.
OF_NO_SCORE = re.compile("AUC|at most|weight|of it|calibration|without")
RIVALS = ("SVM", "forest", "LDA")
PHASES = ("start", "first level", "parts", "refinement", "last")


def results(name: str) -> Any:
    """What a benchmark keeps beside itself."""
    return json.loads((ROOT / "tests" / "benchmarks" / f"{name}.json").read_text())


class Part(str):
    """A piece of a page that knows where it lies there."""

    page: str
    start: int

    @classmethod
    def of(cls, name: str, text: str, start: int) -> Part:
        part = cls(text.strip())
        part.page, part.start = name, start + len(text) - len(text.lstrip())
        return part


#: Scores of the commit before there was a classifier, and of a later version than the others'.
BEFORE, AGAIN = "before the classifier, ", "measured again, "


def page(name: str) -> str:
    """Text of a page, each letter where it is in the file."""
    return (ROOT / name).read_text().replace("\N{MINUS SIGN}", "-").replace("**", "  ")


def rows(name: str) -> Iterator[list[Part]]:
    """Cells of all lines of all tables of a page."""
    text = page(name)
    for line in re.finditer(r"^ *\|(?= )(.*)\|$", text, re.MULTILINE):
        cells = re.finditer(r"[^|]+", line[1])
        yield [Part.of(name, cell[0], line.start(1) + cell.start()) for cell in cells]


#: Where the figures lie that were compared.
BACKED: set[tuple[str, int]] = set()


def number(text: str) -> float:
    """Value of a figure."""
    return float(text.replace(" ", ""))


def check(told: Part | Sequence[Part], values: Sequence[float]) -> None:
    """The numbers in a text are these, as far as they are told: half a unit of the last digit."""
    parts = [told] if isinstance(told, Part) else told
    found = [(part, figure) for part in parts for figure in FIGURE.finditer(part)]
    assert len(found) == len(values), (parts, values)
    for (part, figure), value in zip(found, values, strict=True):
        unit = 10.0 ** -len(figure[0].partition(".")[2])
        assert abs(number(figure[0]) - value) <= unit / 2 + 1e-9, (parts, values)
        BACKED.add((part.page, part.start + figure.start()))


def check_sentences(name: str, told: dict[str, Sequence[float]]) -> None:
    """Of a page: patterns with a group for each part with figures, and the values of these."""
    for pattern, values in told.items():
        said = re.search(pattern, page(name), re.DOTALL)
        assert said is not None, pattern
        groups = enumerate(said.groups(), 1)
        check([Part.of(name, text, said.start(at)) for at, text in groups], values)


def test_tables_of_the_suite() -> None:
    told = (ROOT / "docs" / "benchmarks.md").read_text()
    assert told.count("<!-- table: ") == 2
    assert on_page(told, ROOT / "tests" / "benchmarks" / "suite") == told
    fits = summary(results("suite/fits")["results"])
    speeds = [cell["daskclust"]["speed"] for cell in fits.values()]
    said = {r"scikit-learn takes ([\d.]+) to (\d+) times as long": [min(speeds), max(speeds)]}
    check_sentences("README.md", said)


def test_asked_and_random_labels() -> None:
    sets = results("asking")["sets"]
    found = [row for row in rows("docs/asking.md") if "+-" in row[2]]
    assert len(found) == 2 * len([name for name in sets if "," not in name])
    for name, count, *cells, draws in found:
        n, both = int(count), sets[name.lower()]
        check(count, [n])
        graph = sets[f"{name.lower()}, graph alone"]["asked"]
        check(draws, sorted({len(both["asked"]), len(both["random"]), len(graph)}))
        random = means(both["random"])
        alone = means(graph)
        told = (means(both["asked"])[n], alone[n], random[n], random[int(WORTH * n)])
        for cell, values in zip(cells, told, strict=True):
            check(cell, values)


def test_changes_that_were_foretold() -> None:
    digits = results("asking")["sets"]["pendigits"]["asked"][:]
    keys = ("expected_change", "change", "expected_gain", "gain")
    found = [row for row in rows("docs/asking.md") if len(row) == 5 and row[0] in ("20", "35")]
    assert len(found) == 2
    for count, *cells in found:
        check(count, [int(count)])
        # After the last batch nobody looked at what changed.
        but_last = [draw[:-1] for draw in digits]
        for cell, key in zip(cells, keys, strict=True):
            check(cell, [100 * means(but_last, key)[int(count)][0]])
    expected, seen = (
        [mean for mean, _ in means(digits, key).values()]
        for key in ("expected_accuracy", "accuracy")
    )
    said = {r"estimated an accuracy of (.*?); it was (.*?)\.\s": [*expected, *seen]}
    check_sentences("docs/asking.md", said)


def clouds(of: Callable[[list[float]], np.floating] = np.mean) -> dict[tuple[str, str], float]:
    """Mean index, or another figure of the draws, by case and method."""
    draws = defaultdict(list)
    for key, run in results("clouds").items():
        case, method, _ = key.rsplit(":", 2)
        draws[case, method].append(run["ari"])
    return {key: float(of(values)) for key, values in draws.items()}


def test_series_under_clouds() -> None:
    measured = clouds()
    found = [row for row in rows("docs/missing-values.md") if row[0] in SERIES]
    assert len(found) == 18
    for name, hidden, *cells in found:
        case = f"{SERIES[name]}:"
        if "%" in hidden:
            share, how = hidden.split(" %, ")
            check(hidden, [int(share)])
            case += f"{GAPS[how]}:{int(share) / 100:.1f}"
        else:
            case += "clouds:0.0" if hidden == "real clouds" else "complete:0.0"
        for cell, method in zip(cells, CLOUDY, strict=True):
            check(cell, [measured[case, method]])
        # "`LabelSpreading` has the highest score in each line."
        assert max(cells, key=float) == cells[-1]
    spread = max(
        value
        for (case, method), value in clouds(np.std).items()
        if case.startswith(SERIES["MODIS, 2 classes"]) and method == CLOUDY[-1]
    )
    partial = measured["ts_samples_modis_ndvi:dates:0.4", "k-means, partial"]
    check_sentences(
        "docs/missing-values.md",
        {r'l"`\) has ([\d.]+) on': [partial], r"label spreading is up to ([\d.]+)\.": [spread]},
    )


def test_embeddings_beside_others() -> None:
    measured, ours, letter, seen = results("embeddings"), [], "", 0
    for name, *cells in rows("docs/how-to/embeddings.md"):
        if title := re.fullmatch(r"(made, )?k = (\d+): daskclust", name):
            letter = "e" if title[1] else "f"
            cell = measured[f"{letter}, k = {title[2]}"]["results"]
            (ours,) = cell["daskclust"]
            check(cells, [ours["seconds"], ours["processor"], ours["inertia"]])
        elif (peer := name.split(" ")[0]) in ("faiss", "SuperKMeans"):
            (theirs,) = cell[peer]
            more = 100 * (theirs["inertia"] / ours["inertia"] - 1)
            share = until(ours["trace"], theirs["inertia"])[0] / theirs["seconds"]
            aim = 1 / TARGETS[letter, peer]
            check(cells, [theirs["seconds"], theirs["processor"], more, share, aim])
            seen += 1
    assert seen == 6


def test_levels_of_embeddings() -> None:
    measured = results("embeddings")["levels"]["results"]
    found = [row for row in rows("docs/how-to/embeddings.md") if row[1].endswith(" s")]
    for (_, *cells), way in zip(found, list(WAYS)[:5], strict=True):
        for at, name in ((0, "f"), (2, "made")):
            runs, one = measured[name][way], measured[name]["KMeans"]
            check(cells[at], [np.median([run["processor"] for run in runs])])
            more = [100 * (r["inertia"] / o["inertia"] - 1) for r, o in zip(runs, one, strict=True)]
            check(cells[at + 1], [] if way == "KMeans" else [np.mean(more), max(more)])


def test_phases_of_many_clusters() -> None:
    measured = results("embeddings")
    shares = {50_000: "0.025", 100_000: "0.05", 200_000: "0.1", 800_000: "0.4", 2_000_000: "1"}
    found = [
        row for row in rows("docs/how-to/embeddings.md") if len(row) == 9 and row[0][0].isdigit()
    ]
    assert [number(row[0]) for row in found] == list(shares)
    for n, k, *cells in found:
        run = measured[f"g, share {shares[int(number(n))]}"]["results"]
        spent = [sum(run["processor seconds of workers"][phase]) for phase in PHASES]
        peaks = [run[f"{who} MiB"] for who in ("worker", "client") if f"{who} MiB" in run]
        check([n, k, *cells], [run["n"], run["k"], *spent, *peaks])
    runs = [measured[f"g, share 0.05{rest}"]["results"] for rest in (", 1 workers", "")]
    told = [(run["seconds"], run["seconds of phases"]["parts"]) for run in runs]
    tenth, whole = (measured[f"g, share {share}"]["results"] for share in ("0.1", "1"))
    spent = [
        [sum(r["processor seconds of workers"][p]) for p in PHASES[2:]] for r in (tenth, whole)
    ]
    longer = np.divide(*reversed(spent))
    said = {
        r"5000 clusters take (.*?)\. ": np.ravel(told).tolist(),
        r"last pass take (.*?) times": [longer.min(), longer.max()],
        r"`n sqrt\(k\)`, (\d+) times": [(whole["n"] / tenth["n"]) ** 1.5],
    }
    check_sentences("docs/how-to/embeddings.md", said)


def test_noise_of_the_default() -> None:
    fits, seen = defaultdict(list), 0
    for name, run in results("trees")["noise"].items():
        assert run["prototypes"] == HDBSCAN().n_prototypes
        kind, p, _ = name.split(", ")
        less = np.subtract(run["noise"], run["all rows"])
        for key in (f"{kind}, {p}", "all"):
            fits[key].append((run["index"], *less))
    for name, count, *cells, below in rows("docs/which-estimator.md"):
        if name in fits:
            seen += 1
            found = np.array(fits[name])
            told = [len(found)]
            for values in found.T:
                told += [values.mean(), values.min()]
            check([count, *cells, below], [*told, (found[:, 1:] < -0.03).any(1).sum()])
    assert seen == len(fits)


def test_noise_of_refits() -> None:
    sets, found = results("trees")["refits"], defaultdict(list)
    for name, run in sets.items():
        whole = results("trees")["noise"][name.replace(",", ", 2,")]["all rows"]
        for way, fits in run.items():
            found[way].append(np.subtract(fits, whole))
    less = np.concatenate(found["but one in a hundred"] + found["but one in twenty"])
    worst = np.min(found["but one in a hundred"], axis=(0, 1))[0]
    assert [len(fits) for fits in found["prototypes"]] == [5, 5]
    said = {
        r"mean of five seeds, are (.*?) there, (.*?) on uneven": [
            *found["prototypes"][0].mean(axis=0),
            *found["prototypes"][1].mean(axis=0),
        ],
        r"of (\d+) fits without one row .*? sets, (\d+) are more": [
            len(less),
            (less < -0.03).any(1).sum(),
        ],
        r"the worst loses (\S+) of precision": [-worst],
    }
    assert len(sets) == 5
    check_sentences("docs/which-estimator.md", said)


def test_cuts_of_trees() -> None:
    measured = results("trees")["ward"]
    for name, *cells in rows("docs/which-estimator.md"):
        if name in measured and len(cells) == 3:
            for cell, values in zip(cells, measured.pop(name).values(), strict=True):
                check(cell, [of(values) for of in (np.mean, min, max)[: len(values)]])
    assert not measured


def test_gains_by_pairs() -> None:
    gains = {
        (run["estimator"], run["pairs"], run["wrong"]): float(run["gain"])
        for run in results("pairs")["gains"]
    }
    head, *lines = [row for row in rows("docs/which-estimator.md") if len(row) == 5][:4]
    names = [cell.strip("`") for cell in head[1:]]
    assert head[0] == "pairs"
    assert [line[0] for line in lines] == ["20", "100", "400"]
    for count, *cells in lines:
        for name, cell in zip(names, cells, strict=True):
            keys = [(name, count, wrong) for wrong in ("0.0", "0.1")]
            check(cell, [gains.pop(key) for key in keys if key in gains])
    assert not gains


def test_sentences_about_labels() -> None:
    labels = results("labels")["results"]
    (plain,) = {
        record["ari"]
        for record in results("when_labels_help")["results"]
        if (record["set"], record["method"], record["bands"]) == ("wine", "k-means", "as they are")
    }
    best = {
        name: max(
            score["mean"]
            for key, score in labels[name].items()
            if re.search(r"(^|, )1 %$", key) and not OF_NO_SCORE.match(key)
        )
        for name in ("forest", "vehicle", "letter")
    }
    wine = r"spreading reaches ([\d.]+), k-means\s+without labels ([\d.]+)\."
    letter = r"reaches ([\d.]+) with 1 % of labels, on UCI letter the best ([\d.]+)"
    check_sentences("docs/gallery.md", {wine: [labels["wine"]["1 %"]["mean"], plain]})
    check_sentences("docs/gallery.md", {letter: [0.4, best["letter"]]})
    assert max(best["forest"], best["vehicle"]) < 0.4


def test_sentences_about_labels_beside_others() -> None:
    labels = results("labels")["results"]

    def mean(of: str, key: str) -> float:
        return labels[of][key]["mean"]

    found = [mean("salinas", key) for key in ("1 %", "1-NN, 1 %", "k-means")]
    told = {
        r"an adjusted Rand index of ([\d.]+)\s.*?classifier ([\d.]+), .*?labels ([\d.]+) \(": found
    }
    check_sentences("README.md", told)
    behind, beside, earlier = defaultdict(float), 0.0, [0.0]
    for name, scores in labels.items():
        for key in [key.removeprefix("graph alone, ") for key in scores if "graph alone" in key]:
            if "draws" not in name:
                less = mean(name, f"graph alone, {key}") - mean(name, key)
                behind[name, key] = round(less, 4)
                best = [mean(name, of) for of in (f"{r}, {key}" for r in RIVALS) if of in scores]
                beside = max(beside, max(best) - mean(name, key))
                if (before := f"{BEFORE}{key}") in scores:
                    earlier.append(mean(name, before) - mean(name, key))
    again = [
        abs(score["mean"] - mean(name, key.removeprefix(AGAIN)))
        for name, scores in labels.items()
        for key, score in scores.items()
        if key.startswith(AGAIN)
    ]
    most = behind.pop(("ionosphere", "5 a class"))
    limits = [mean("salinas", key) for key in ("at most, 1 %", "1 %")]
    drawn = [mean("salinas", f"{of}1 % of each class") for of in ("", "SVM, ")]
    ways = ("1 % of each class", "1 %")
    two = [mean(name, f"{BEFORE}{way}") for way in ways for name in ("salinas", "jasper")]
    costs = [labels[f"Salinas-A repeated, classifier={of}, seconds"] for of in ("trees", "none")]
    large = labels["fits, n=1000000, p=50, 8 chunks, two threads, seconds"]
    check_sentences(
        "docs/when-labels-help.md",
        {
            r"graph alone by ([\d.]+).*?at most ([\d.]+),.*?at most ([\d.]+)": [
                most,
                max(behind.values()),
                beside,
            ],
            r"is behind it by at most ([\d.]+) .*?at most ([\d.]+)\.": sorted(earlier)[:-3:-1],
            r"draws of (\d+) of them, differs by ([\d.]+) at": [len(again), max(again)],
            r"scenes had ([\d.]+) and ([\d.]+) by.*?class, ([\d.]+) and ([\d.]+) by plain": two,
            r"five can be\s([\d.]+).*?it is ([\d.]+)\.": limits,
            r"each class have ([\d.]+), an SVM ([\d.]+)\.": drawn,
            r"repeated to ([\d ]+) pixels": [costs[0]["pixels"]],
            r"took\s([\d.]+) s .*? and ([\d.]+) s without, a prediction ([\d.]+) and ([\d.]+) s": [
                cost[key] for key in ("fit", "prediction") for cost in costs
            ],
            r"labels: (\d+) seconds for a whole fit, where\s`KMeans\(400\)` takes (\d+)": [
                large[of] for of in ("LabelSpreading", "KMeans(400)")
            ],
        },
    )


def test_scores_of_sets() -> None:
    measured = results("trees")["sets"]
    for name, *cells in rows("docs/which-estimator.md"):
        if name in measured and len(cells) == 6:
            check(cells, measured.pop(name))
    assert not measured


def test_estimate_of_scaling() -> None:
    """Of the formula on that page and its assumptions."""
    efficiency = {}
    for row in rows("docs/scaling.md"):
        cores, left = int(row[0]) if row[0].isdigit() else 0, 0.0
        if cores:
            tasks, left = cores, cores
            while left > 1:
                left = -(-left // 8)
                tasks += left
            work, scheduler, reading = 1e11 / cores / 4e6, 0.003 * tasks, 1e13 / cores / 1e8
            efficiency[cores] = work + scheduler
            check(row[1:], [work, scheduler, work / (work + scheduler), reading])
    minutes = 50 * efficiency[512] / 60
    check_sentences("docs/scaling.md", {r"50 passes takes (\d+) minutes on": [minutes]})


def test_sentences_about_embeddings() -> None:
    measured, passes, above = results("embeddings"), {}, {}
    for name in ("f, k = 256", "f, k = 2048", "e, k = 1000", "e, k = 500"):
        cell = measured[f"starts, {name}, share {0.2 if '500' in name else 1}"]["results"]
        ours = np.array(cell["sampled"]["inertia"])
        for way, runs in cell.items():
            passes[name, way] = np.median(runs["start"]) / np.median(runs["pass"])
            above[name, way] = 100 * (np.mean(runs["inertia"]) / ours.mean() - 1)
            if (name, way) == ("f, k = 256", "k-means||"):
                below = 100 * (1 - ours / np.array(runs["inertia"]))
    levels = []
    for k in ("500, 6", "1000, 8", "4000, 16"):
        cell = measured["levels, f, by k"]["results"][f"{k} parents"]
        (two,), (one,) = cell["HierarchicalKMeans"], cell["KMeans"]
        more = 100 * (two["inertia over one level's"] - 1)
        levels += [two["processor"] / one["processor"], more]
    sampled = [passes[name, "sampled"] for name in ("f, k = 256", "f, k = 2048", "e, k = 1000")]
    made = "e, k = 500"
    check_sentences(
        "docs/how-to/embeddings.md",
        {
            r"It took (.*?) passes of.*?(, [\d.]+) at.*?( [\d.]+) of": sampled,
            r"end ([\d.]+ ± [\d.]+) %.*?start took ([\d.]+) passes": [
                below.mean(),
                below.std(ddof=1) / len(below) ** 0.5,
                passes["f, k = 256", "k-means||"],
            ],
            r"it took ([\d.]+) passes; fits.*?\((\d+) p.*?end ([\d.]+) %.*?rows ([\d.]+) %": [
                *(passes[made, way] for way in ("sampled", "k-means||")),
                *(above[made, way] for way in ("k-means||", "random")),
            ],
            r"k = 500 \((.*?) %\), (.*?)\s+times at 1000 \((.*?) %\), (.*?) t.*?00 \((.*?) %": (
                levels[1:]
            ),
        },
    )


def test_smoothing() -> None:
    names = {"Salinas-A": "salinas_a", "Jasper Ridge": "jasper_ridge", "1 %": 0.01, "5 a class": 5}
    told, found = 0, results("smoothing")
    assert found["strengths"][1] == 0.5
    for first, *cells in rows("docs/how-to/uncertainty.md"):
        scene, _, labels = first.partition(", ")
        name = names.get(scene.partition(" (")[0])
        if labels in names and name:
            indexes = np.array(found["indexes"][f"{name}:{names[labels]}"])
            change = indexes[:, 1:] - indexes[:, :1]
            values = [indexes[:, 0].mean(), *change.mean(axis=0), change[:, 1].min()]
            check(cells, [float(value) for value in values])
            told += 1
    assert told == len(found["indexes"])


#: What is no text of ours: heads of pages, code and what it prints (which runs), formulas, targets
#: of links, and tables that are written from results.
HIDDEN = re.compile(
    r"\A---\n.*?^---$|^```.*?^```$|<!-- (?:table|scores|beside).*?<!-- end -->|<!--.*?-->"
    r"|\$\$.*?\$\$|\$[^$\n]+\$|`(?:[^`\n]|\n(?!\n))*`|\]\([^)\n]*\)",
    re.MULTILINE | re.DOTALL,
)
#: What makes a number of a sentence a figure, beside decimals: a deviation, a unit.
UNIT = re.compile(r"x\b| ?(?:%|±|[nm]?s\b|[kMGT]i?B\b|k?m\b|(?:minute|hour|second|time|byte)s?\b)")
ELSEWHERE = "tests/docs/test_other_figures.py::"
PAGES = [
    "README.md",
    *(
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("docs/**/*.md"))
        if "_build" not in path.parts and "generated" not in path.parts
    ),
]
#: Figures that no results back: what they are instead (or which test has them), by page and the
#: text around them.
OTHERS = {
    f"{ELSEWHERE}test_kmeans_of_jasper_ridge": [
        ("docs/gallery.md", r"k-means reaches.*?whitened\"")
    ],
    f"{ELSEWHERE}test_pages_tell_the_same": [("docs/gallery.md", r"an accuracy of [^\n]*")],
    f"{ELSEWHERE}test_keys_and_defaults_of_the_configuration": [
        ("docs/reference/configuration.md", r"\n\| `[a-z-]+` \| [^|]* \|")
    ],
    f"{ELSEWHERE}test_passes_are_those_of_the_table": [
        (
            "docs/which-estimator.md",
            r"\n\| (?:`(?:\w*KMeans|LabelS\w+|Agg\w+|H?DBSCAN)`(?:, )?)+ \| [^|]* \|",
        )
    ],
    "tests/cluster/test_dpmeans.py::test_passes_over_the_data": [
        ("docs/which-estimator.md", r"`DPMeans` \| 2 \+")
    ],
    "tests/prototypes/test_spectral_clustering.py::test_passes_are_few_and_counted": [
        ("docs/which-estimator.md", "3 or 4")
    ],
    "what was labeled, hidden or kept apart, not what was found": [
        ("README.md", "the classes of 1 %"),
        ("docs/gallery.md", "1 % of (the|them|labels)|wine, 1 %"),
        ("docs/how-to/embeddings.md", "workers of 1.5 GB"),
        ("docs/missing-values.md", "Sentinel-2 1 %|classes with 40 %"),
        (
            "docs/when-labels-help.md",
            "10?( |\\n)%,? ?(\\*?of|a|and|the|`wine|\\. \\*S)|\\n1 % of|n = 1e[68]",
        ),
        ("docs/which-estimator.md", "of 1e6 rows|is 1 % of|pairs of which 10 % are wrong"),
    ],
    "numbers of equations, and marks of formulas": [
        ("docs/explanation/departures.md", "Eq. 15|Algorithm 3|Definition 2.2|15 bisections"),
        ("docs/explanation/memory.md", "2 b \\+|8 q²"),
    ],
    "constants, defaults and limits of the code, and advice": [
        ("README.md", "Python 3.11"),
        ("docs/installation.md", "Python 3.11"),
        ("docs/tutorials/first-map.md", "Python 3.11"),
        ("docs/asking.md", "contain 80 %"),
        ("docs/benchmarks.md", "at most 0.1 % higher"),
        ("docs/deployment.md", "about 90 % of"),
        (
            "docs/explanation/algorithms.md",
            "256 MiB|2.5 per cluster|are 0.1 of|below 0.001|The strength t is 0, 0.1",
        ),
        ("docs/explanation/departures.md", "`: 1[; ]|at most 10 000|below 1e-3|than 0.001"),
        ("docs/explanation/memory.md", "12 bytes|20 bytes|65 536 rows"),
        ("docs/how-to/choosing.md", "With 20 pairs its standard error is about 0.1,"),
        ("docs/how-to/explain.md", "0.5 says nothing"),
        ("docs/how-to/memory.md", "10 to 200 MB|\\(0.3\\)"),
        ("docs/how-to/progress.md", "since 30 s"),
        ("docs/how-to/scenes.md", "10 m and 20 m|10 to 200 MB"),
        ("docs/how-to/tables.md", "up to 32 MiB|a column with 99 %"),
        ("docs/how-to/uncertainty.md", "0.5 is chance"),
        ("docs/how-to/workers.md", "within 15 s|at 90 %"),
        ("docs/reference/configuration.md", "up to 30 s"),
        ("docs/tutorials/table.md", "With 1.8, features"),
        ("docs/when-labels-help.md", "differences of 0.02 .*? differences of 0.1"),
        ("docs/which-estimator.md", "ones get 0|0.03 (below|of)|born at 1.08|before 1.3"),
    ],
    "numbers of publications": [
        ("docs/missing-values.md", "arXiv 2410.00546"),
        ("docs/related.md", "version 0.7.0, 2026"),
    ],
    "a plan on paper, computed there": [
        ("docs/when-labels-help.md", r"A plan on paper.*?(?=\*Measured)"),
        ("docs/which-estimator.md", "8 MB for|16 bytes each"),
        (
            "docs/scaling.md",
            r"16 kB for|An estimate for 1e11|Assumed: .*?3 ms a task|10 TB as.*?a core|80 kB",
        ),
    ],
}


def blank(found: re.Match[str]) -> str:
    """As many blanks, and the same lines."""
    return re.sub(r"[^\n]", " ", found[0])


def figures(name: str) -> Iterator[tuple[int, str]]:
    """Where a page has figures, and the lines; heads and first cells of tables are names."""
    text = HIDDEN.sub(blank, page(name))
    text = re.sub(r"^ *\|.*\n *\|-.*$", blank, text, flags=re.MULTILINE)
    for line in re.finditer(r"^( *\|[^|]*\|)?(.+)$", text, re.MULTILINE):
        for found in FIGURE.finditer(line[2]):
            in_table = line[1] or "." in found[0] or "e" in found[0]
            if in_table or UNIT.match(line[2], found.end()):
                yield line.start(2) + found.start(), line[0]


@functools.cache
def backed() -> set[tuple[str, int]]:
    """Compare all pages with all results, and say where figures were found to be those."""
    for name, compare in globals().items():
        if name.startswith("test_") and not inspect.signature(compare).parameters:
            compare()
    for reason, found in OTHERS.items():
        if reason.startswith("tests/"):
            file, _, test = reason.partition("::")
            assert f"def {test}(" in (ROOT / file).read_text(), reason
        for name, pattern in found:
            said = list(re.finditer(pattern, page(name), re.DOTALL))
            assert said, (name, pattern)
            BACKED.update((name, at) for one in said for at in range(*one.span()))
    return BACKED


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_is_backed(name: str) -> None:
    """By results that are stored, by another test, or by a reason in a list."""
    text, left = page(name), [at for at in figures(name) if (name, at[0]) not in backed()]
    assert not [(match[0], line) for at, line in left if (match := FIGURE.match(text, at))]
