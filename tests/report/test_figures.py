"""Every figure in the text of a report, recomputed; none is left over."""

import re
from html import unescape

import numpy as np
from sklearn.metrics import (
    adjusted_rand_score,
    cohen_kappa_score,
    f1_score,
    normalized_mutual_info_score,
    precision_score,
    recall_score,
    roc_auc_score,
)
from sklearn.metrics.cluster import pair_confusion_matrix

import daskclust
from daskclust.explain import profiles
from daskclust.report import write_report

NAMES = {3: "water", 5: "wheat", 8: "oats"}
FIGURE = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?%?(?![\w])")


def figures(html):
    text = re.sub(r"<svg.*?</svg>|<script.*?</script>|<style.*?</style>", "", html, flags=re.DOTALL)
    return FIGURE.findall(unescape(re.sub("<[^>]*>", " ", text)))


def wilson(share, n, z=1.959963984540054):
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - half, middle + half


def test_all_figures_of_a_scene(tmp_path):
    truth = np.repeat([3, 5, 8], 40).reshape(12, 10)
    image = np.random.default_rng(0).normal(truth[..., None] * 10.0, 0.1, (12, 10, 2))
    image[8] = image[4]
    image[0, 0] = np.nan
    cube = daskclust.open_cube(image, dims=("y", "x", "band"))
    few = np.full(truth.shape, -1)
    few[:, 3] = truth[:, 3]
    few[8, 3] = -1
    model = daskclust.SemiSupervisedKMeans(3, random_state=0)
    model.fit(cube.samples, cube.rows_of(few))
    margins = np.linspace(0, 1, 119)
    labels = np.array([3, 5, 8])[np.asarray(model.cluster_classes_)][np.asarray(model.labels_)]
    path = tmp_path / "report.html"
    write_report(
        path,
        cube=cube,
        model=model,
        truth=truth,
        class_names=NAMES,
        uncertainty=margins,
        title="Fields",
        profiles=profiles(None, cube, labels),
    )
    page = path.read_text(encoding="utf-8")
    sections = re.findall(r"<section[^>]*>.*?</section>", page, re.DOTALL)
    found = {
        (re.search("<h2>(.*?)</h2>", part) or re.search("<summary>(.*?)<", part) or [0, "Facts"])[
            1
        ]: figures(part)
        for part in sections
    }
    X, known = image.reshape(-1, 2)[1:], truth.ravel()[1:]
    codes, sizes = np.unique(labels, return_counts=True)
    right = labels == known
    pairs = pair_confusion_matrix(known, labels)
    score = adjusted_rand_score(known, labels)
    gaps = X - model.cluster_centers_[np.asarray(model.labels_)]
    seconds = sum(record["seconds"] for record in model.history_)

    assert found.pop("Facts") == [
        "119",
        f"{1 / 120:.1%}",
        "2",
        f"{(gaps**2).sum():.4g}",
        f"{model.n_iter_}",
        f"{model.history_[-1]['passes']}",
        f"{seconds:.1f}",
        f"{score:.3f}",
    ]
    said = []
    for code, size in zip(codes, sizes, strict=True):
        share = f"{size / 119:.1%}"
        said += [f"{code}", f"{size}", share, f"{margins[labels == code].mean():.2f}"]
    in_map = found.pop("Map")
    assert in_map[-12:] == said
    assert in_map[:-12] == [
        *("0", "1"),
        f"{np.median(margins):.2f}",
        f"{(margins < 0.1).mean():.1%}",
        "0.1",
        f"{right.sum()}",
        f"{right.mean():.1%}",
        f"{(~right).sum()}",
        f"{(~right).mean():.1%}",
        "119",
    ]
    table = np.array([[((known == a) & (labels == b)).sum() for b in codes] for a in codes])
    shares = table / table.sum(axis=1, keepdims=True)
    agreed = ["119"]
    for code, line, own in zip(codes, table, shares, strict=True):
        agreed += [f"{code}", f"{line.sum()}", *(f"{share:.0%}" for share in own if share)]
    f_pairs = 2 * pairs[1, 1] / (2 * pairs[1, 1] + pairs[0, 1] + pairs[1, 0])
    low, high = wilson(right.mean(), 119)
    agreed += [f"{score:.4f}", f"{normalized_mutual_info_score(known, labels):.4f}"]
    agreed += [f"{f_pairs:.4f}", f"{right.mean():.4f}", "95", f"{low:.4f}", f"{high:.4f}"]
    agreed += [f"{cohen_kappa_score(known, labels):.4f}"]
    of_class = [
        score(known, labels, labels=codes, average=None)
        for score in (recall_score, precision_score, f1_score)
    ]
    for at, code in enumerate(codes):
        agreed += [f"{code}", f"{(known == code).sum()}", f"{sizes[at]}"]
        agreed += [f"{values[at]:.3f}" for values in of_class]
    assert found.pop("Agreement with truth") == agreed
    wrong = ["3", "39", "0", "5", "40", "0", "8", "30", "10", "10", "109", "10"]
    assert found.pop("Errors of the map") == wrong
    numbers = found.pop("Each cluster in numbers")
    heads = ["5", "95"]
    for code in codes:
        own, rest = X[labels == code], X[labels != code]
        areas = [roc_auc_score(labels == code, X[:, j]) for j in range(2)]
        apart = (own.mean(0) - rest.mean(0)) / np.sqrt((own.var(0) + rest.var(0)) / 2)
        order = np.lexsort((-abs(apart), -abs(np.array(areas) - 0.5).round(6)))
        assert numbers[:2] == [f"{code}", f"{len(own)}"]
        assert numbers[2:5] == [f"{len(own) / 119:.1%}", *heads]
        numbers = numbers[5:]
        for j in order:
            q = np.quantile(own[:, j], [0.05, 0.5, 0.95])
            values = [own[:, j].mean(), own[:, j].std(), *q, rest[:, j].mean(), apart[j], areas[j]]
            assert numbers[:10] == [f"{j}", *(f"{value:.4g}" for value in values), "0"]
            numbers = numbers[10:]
    assert not numbers
    apart = found.pop("What sets the clusters apart")
    for code in codes:
        own = labels == code
        areas = [roc_auc_score(own, X[:, j]) for j in range(2)]
        lines = {
            str(j): [f"{X[own, j].mean():.4g}", f"{X[~own, j].mean():.4g}", f"{areas[j]:.3f}"]
            for j in range(2)
        }
        assert apart[:3] == [f"{code}", f"{own.sum()}", f"{own.mean():.1%}"]
        assert apart[4:7] == lines[apart[3]]
        assert apart[8:11] == lines[apart[7]]
        assert {apart[3], apart[7]} == {"0", "1"}
        centers = X[own].mean(0), X.std(0)
        order = np.argsort((((X - centers[0]) / centers[1]) ** 2).sum(1) * np.where(own, 1, np.inf))
        spots = [spot for row in order[:5] for spot in divmod(int(row) + 1, 10)]
        assert apart[11:21] == [f"{spot}" for spot in spots]
        apart = apart[21:]
    assert not apart
    # Pictures alone, and settings.
    left = {name for name, values in found.items() if values}
    assert left <= {"Configuration", "Cube", "Versions"}
