"""Every figure in the text of a report, recomputed; none is left over."""

import itertools
import re
from html import unescape

import numpy as np
import pandas
import pytest
from sklearn.ensemble import RandomForestClassifier
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
from sklearn.neighbors import KNeighborsClassifier

import daskclust
from daskclust.app import cli
from daskclust.app.commands._fit_request import hold_out

FIGURE = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?%?(?![\w])")


def figures(html):
    text = re.sub(r"<svg.*?</svg>|<script.*?</script>|<style.*?</style>", "", html, flags=re.DOTALL)
    return FIGURE.findall(unescape(re.sub("<[^>]*>", " ", text)))


def sections(path):
    page = path.read_text(encoding="utf-8")
    parts = re.findall(r"<section[^>]*>.*?</section>", page, re.DOTALL)
    heads = [
        re.search("<h2>(.*?)</h2>", part) or re.search("<summary>(.*?)<", part) or [0, "Facts"]
        for part in parts
    ]
    return {head[1]: part for head, part in zip(heads, parts, strict=True)}


def wilson(share, n, z=1.959963984540054):
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - half, middle + half


def of_classes(known, labels, names):
    codes = np.unique(known)
    scores = [
        score(known, labels, labels=codes, average=None)
        for score in (recall_score, precision_score, f1_score)
    ]
    said = []
    for at, code in enumerate(codes):
        head = figures(str(names.get(code, code)))
        said += [*head, f"{(known == code).sum()}", f"{(labels == code).sum()}"]
        said += [f"{values[at]:.3f}" for values in scores]
    return said


def agreement(known, labels, names):
    n, codes, right = len(known), np.unique(known), known == labels
    said = [f"{n}"]
    for code in codes:
        own = labels[known == code]
        shares = [(own == other).mean() for other in codes]
        said += [*figures(str(code)), f"{len(own)}", *(f"{share:.0%}" for share in shares if share)]
    pairs = pair_confusion_matrix(known, labels)
    f_pairs = 2 * pairs[1, 1] / (2 * pairs[1, 1] + pairs[0, 1] + pairs[1, 0])
    low, high = wilson(right.mean(), n)
    said += [f"{adjusted_rand_score(known, labels):.4f}"]
    said += [f"{normalized_mutual_info_score(known, labels):.4f}"]
    said += [f"{f_pairs:.4f}", f"{right.mean():.4f}", "95", f"{low:.4f}", f"{high:.4f}"]
    return [*said, f"{cohen_kappa_score(known, labels):.4f}", *of_classes(known, labels, names)]


def check_profiles(found, X, labels, features, spot, nearest=None):
    """Check the two sections of profiles, of few rows: each value has a bin of its own."""
    numbers = found.pop("Each cluster in numbers")
    told = found.pop("Differences between the clusters")
    heads = ["5", "95"]
    for code in np.unique(labels):
        own = labels == code
        inside, rest = X[own], X[~own]
        areas = [roc_auc_score(own, X[:, j]) for j in range(X.shape[1])]
        apart = inside.mean(0) - rest.mean(0)
        apart /= np.sqrt((inside.var(0) + rest.var(0)) / 2)
        order = np.lexsort((-abs(apart), -abs(np.array(areas) - 0.5).round(6)))
        head = [*figures(str(code)), f"{own.sum()}", f"{own.mean():.1%}"]
        assert numbers[: len(head) + 2] == [*head, *heads]
        numbers = numbers[len(head) + 2 :]
        assert told[: len(head)] == head
        told = told[len(head) :]
        for j in order:
            q = np.quantile(inside[:, j], [0.05, 0.5, 0.95])
            mean, outside = inside[:, j].mean(), rest[:, j].mean()
            values = [mean, inside[:, j].std(), *q, outside, apart[j], areas[j]]
            line = [*figures(features[j]), *(f"{value:.4g}" for value in values), "0"]
            assert numbers[: len(line)] == line
            numbers = numbers[len(line) :]
            line = [*figures(features[j]), f"{mean:.4g}", f"{outside:.4g}", f"{areas[j]:.3f}"]
            assert told[: len(line)] == line
            told = told[len(line) :]
        if nearest is None:
            away = (((X - inside.mean(0)) / X.std(0)) ** 2).sum(1)
        else:
            away = nearest
        spots = [spot(int(row)) for row in np.argsort(np.where(own, away, np.inf))[:5]]
        spots = [f"{number}" for at in spots for number in np.atleast_1d(at)]
        assert told[: len(spots)] == spots
        told = told[len(spots) :]
    assert not told
    assert not numbers


def check_rules(part, table, labels):
    """Apply the rules as they are written, of clusters such as ``oak (2)``, and count the rows."""
    lines = re.findall("<tr>" + "<td.*?>(.*?)</td>" * 4, unescape(part))
    n_right = 0
    for name, rule, rows, precision in lines:
        inside = table.eval(re.sub(r"([^ ]+) < (\w+) <= ([^ ]+)", r"(\1 < \2) & (\2 <= \3)", rule))
        own = labels[inside] == name.split(" (")[0]
        assert [rows, precision] == [f"{inside.sum()}", f"{own.mean():.1%}"]
        n_right += own.sum()
    assert sorted({name.split(" (")[0] for name, *_ in lines}) == np.unique(labels).tolist()
    said = [text for line in lines for text in FIGURE.findall(" ; ".join(line))]
    assert figures(part) == [*said, f"{n_right / len(table):.1%}"]


@pytest.mark.filterwarnings("default:The accuracy is based on 4")
def test_all_figures_of_a_table(tmp_path, address, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    kind = np.array(["ash", "elm", "oak"])[np.arange(120) % 3]
    table = pandas.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    table += 2.0 * (np.arange(120) % 3)[:, None]
    table["place"] = np.arange(120) // 12
    table["kind"] = np.where(table.place < 5, kind, None)
    table["truth"] = np.where(table.place < 5, None, kind)
    table.to_csv("t.csv", index=False)
    words = ["--truth", "truth", "--json", "--scheduler", address]
    learn = "--estimator semisupervisedkmeans --n-clusters 3 --label-column kind --columns a,b"
    learn += " --groups place --hold-out 0.4 --baseline --output o --model m.zarr --report fit.html"
    assert cli.main(["fit", "t.csv", *learn.split(), *words]) == 0
    assert "The accuracy is based on 4 independent units" in capsys.readouterr().err
    assert cli.main(["predict", "t.csv", "--model", "m.zarr", "--report", "p.html", *words]) == 0
    model = daskclust.load("m.zarr")
    labels = pandas.read_parquet("o").label.to_numpy().astype(str)
    X, learned = table[["a", "b"]].to_numpy(), np.flatnonzero(table.place < 5)
    apart = hold_out(learned, kind[learned], table["place"][learned], 0.4, unit="places", seed=0)
    names = model.classes_[model.cluster_classes_]
    assert sorted(names) == ["ash", "elm", "oak"]
    rows, known = apart.y
    assert labels[rows].tolist() == known.tolist()
    gaps = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
    predicted = names[gaps.argmin(axis=1)]
    assert (predicted != labels).any()
    of_clusters = dict(zip(names, gaps.T, strict=True))
    inertia = sum(own[labels == name].sum() for name, own in of_clusters.items())
    score = adjusted_rand_score(kind[60:], labels[60:])
    seconds = sum(record["seconds"] for record in model.history_)
    for name, own in (("fit.html", labels), ("p.html", predicted)):
        away = np.array([of_clusters[label][row] for row, label in enumerate(own)])
        parts = sections(tmp_path / name)
        found = {title: figures(part) for title, part in parts.items()}
        facts = found.pop("Facts")
        assert facts[:2] == ["120", "2"]
        assert facts.pop() == f"{score:.3f}"
        if name == "fit.html":
            assert float(facts.pop(2)) == pytest.approx(inertia, rel=1e-3)
            assert facts[2:4] == [f"{model.n_iter_}", f"{model.history_[-1]['passes']}"]
            assert facts[4:] == [f"{seconds:.1f}"]
        else:
            assert not facts[2:]
        assert found.pop("Agreement with truth") == agreement(kind[60:], own[60:], {})
        check_profiles(found, X, own, ["a", "b"], lambda row: row, away)
        check_rules(parts["Rules"], table[["a", "b"]], own)
        del found["Rules"]
        held = found.pop("Accuracy on held-out labels", None)
        assert (held is None) == (name == "p.html")
        if held is not None:
            guess = labels[apart.rows]
            right = (guess == apart.labels).mean()
            said = [f"{apart.n_held_out}", "5", f"{len(guess)}", "95", "20", f"{right:.3f}"]
            # All draws of three of the four places, which are of one size.
            shares = (guess == apart.labels).reshape(4, 12).mean(axis=1)
            draws = [np.mean(some) for some in itertools.product(shares, repeat=3)]
            said += [f"{bound:.3f}" for bound in np.quantile(draws, [0.025, 0.975])]
            said += [f"{cohen_kappa_score(apart.labels, guess):.3f}"]
            x, z = X[rows], X[apart.rows]
            scaled = [(part - x.mean(0)) / x.std(0) for part in (x, z)]
            near = KNeighborsClassifier(1).fit(scaled[0], known).score(scaled[1], apart.labels)
            forest = RandomForestClassifier(100, random_state=0).fit(x, known)
            said += ["1", f"{near:.3f}", "100", f"{forest.score(z, apart.labels):.3f}"]
            assert held == said + of_classes(apart.labels, guess, {})
        left = {title for title, values in found.items() if values}
        assert left <= {"Configuration", "Table", "Versions"}
    # The page about the clusters alone, by their numbers.
    words = ["--output", "e.html", "--scheduler", address]
    assert cli.main(["explain", "m.zarr", "t.csv", *words]) == 0
    parts = sections(tmp_path / "e.html")
    found = {title: figures(part) for title, part in parts.items()}
    check_profiles(found, X, gaps.argmin(axis=1), ["a", "b"], lambda row: row, gaps.min(axis=1))
    check_rules(parts["Rules"], table[["a", "b"]], predicted)
    follow = found.pop("Rules")[-1]
    assert found.pop("Facts") == ["120", "3", "2", follow, "0"]
    assert not any(found.values())
