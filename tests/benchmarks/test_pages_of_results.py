"""What pages of the documentation tell of measurements is what lies in the files of results."""

from __future__ import annotations

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

from daskclust import HDBSCAN

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source release has no docs")
FIGURE = re.compile(r"-?\d+(?:\.(\d+))?")
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
PHASES = ("start", "first level", "parts", "refinement", "last")


def results(name: str) -> Any:
    """What a benchmark keeps beside itself."""
    return json.loads((ROOT / "tests" / "benchmarks" / f"{name}.json").read_text())


def page(name: str) -> str:
    """Text of a page, broken by nothing but paragraphs."""
    text = (ROOT / name).read_text().replace("\N{MINUS SIGN}", "-").replace("**", "")
    return re.sub(r"(?<=\d) (?=\d{3}\b)", "", text)


def rows(name: str) -> Iterator[list[str]]:
    """Cells of all lines of all tables of a page."""
    for line in page(name).splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip()[1:-1].split("|")]


def check(text: str, values: Sequence[float]) -> None:
    """The numbers in a text are these, as far as they are told: half a unit of the last digit."""
    found = list(FIGURE.finditer(text))
    assert len(found) == len(values), (text, values)
    for figure, value in zip(found, values, strict=True):
        unit = 10.0 ** -len(figure[1] or "")
        assert abs(float(figure[0]) - value) <= unit / 2 + 1e-9, (text, values)


def test_asked_and_random_labels() -> None:
    sets = results("asking")["sets"]
    found = [row for row in rows("docs/asking.md") if "+-" in row[2]]
    assert len(found) == 2 * len([name for name in sets if "," not in name])
    for name, count, *cells, _ in found:
        n, both = int(count), sets[name.lower()]
        random = means(both["random"])
        alone = means(sets[f"{name.lower()}, graph alone"]["asked"])
        told = (means(both["asked"])[n], alone[n], random[n], random[int(WORTH * n)])
        for cell, values in zip(cells, told, strict=True):
            check(cell, values)


def test_changes_that_were_foretold() -> None:
    digits = results("asking")["sets"]["pendigits"]["asked"][:]
    keys = ("expected_change", "change", "expected_gain", "gain")
    found = [row for row in rows("docs/asking.md") if len(row) == 5 and row[0] in ("20", "35")]
    assert len(found) == 2
    for count, *cells in found:
        # After the last batch nobody looked at what changed.
        but_last = [draw[:-1] for draw in digits]
        for cell, key in zip(cells, keys, strict=True):
            check(cell, [100 * means(but_last, key)[int(count)][0]])
    said = re.search(r"estimated an accuracy of (.*?); it was (.*?)\.\s", page("docs/asking.md"))
    assert said is not None
    for text, key in zip(said.groups(), ("expected_accuracy", "accuracy"), strict=True):
        check(text, [mean for mean, _ in means(digits, key).values()])


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
            check(" ".join(cells), [ours["seconds"], ours["processor"], ours["inertia"]])
        elif (peer := name.split(" ")[0]) in ("faiss", "SuperKMeans"):
            (theirs,) = cell[peer]
            more = 100 * (theirs["inertia"] / ours["inertia"] - 1)
            share = until(ours["trace"], theirs["inertia"])[0] / theirs["seconds"]
            aim = 1 / TARGETS[letter, peer]
            check(" ".join(cells), [theirs["seconds"], theirs["processor"], more, share, aim])
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
    found = [row for row in rows("docs/how-to/embeddings.md") if len(row) == 9 and row[0].isdigit()]
    assert [int(row[0]) for row in found] == list(shares)
    for n, k, *cells in found:
        run = measured[f"g, share {shares[int(n)]}"]["results"]
        spent = [sum(run["processor seconds of workers"][phase]) for phase in PHASES]
        peaks = [run[f"{who} MiB"] for who in ("worker", "client") if f"{who} MiB" in run]
        check(" ".join([n, k, *cells]), [run["n"], run["k"], *spent, *peaks])
    said = re.search(r"5000 clusters take (.*?)\. ", page("docs/how-to/embeddings.md"), re.DOTALL)
    assert said is not None
    runs = [measured[f"g, share 0.05{rest}"]["results"] for rest in (", 1 workers", "")]
    told = [(run["seconds"], run["seconds of phases"]["parts"]) for run in runs]
    check(said[1], np.ravel(told).tolist())


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
            check(" ".join([count, *cells, below]), [*told, (found[:, 1:] < -0.03).any(1).sum()])
    assert seen == len(fits)


def test_cuts_of_trees() -> None:
    measured = results("trees")["ward"]
    for name, *cells in rows("docs/which-estimator.md"):
        if name in measured and len(cells) == 3:
            for cell, values in zip(cells, measured.pop(name).values(), strict=True):
                check(cell, [of(values) for of in (np.mean, min, max)[: len(values)]])
    assert not measured


def check_sentences(name: str, told: dict[str, Sequence[float]]) -> None:
    """Of a page: patterns with a group for each part with figures, and the values of these."""
    for pattern, values in told.items():
        said = re.search(pattern, page(name), re.DOTALL)
        assert said is not None, pattern
        check(" ".join(said.groups()), values)


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
    auc = [labels[name]["AUC, 1 %"]["mean"] for name in ("salinas", "jasper")]
    check_sentences("docs/how-to/uncertainty.md", {r"ROC curve is (.*?) \(": auc})
    wine = r"spreading reaches ([\d.]+), k-means\s+without labels ([\d.]+)\."
    letter = r"reaches ([\d.]+) with 1 % of labels, on UCI letter the best ([\d.]+)"
    check_sentences("docs/gallery.md", {wine: [labels["wine"]["1 %"]["mean"], plain]})
    check_sentences("docs/gallery.md", {letter: [0.4, best["letter"]]})
    assert max(best["forest"], best["vehicle"]) < 0.4


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
            check(" ".join(cells).replace("+", ""), [float(value) for value in values])
            told += 1
    assert told == len(found["indexes"])
