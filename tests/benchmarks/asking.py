"""What asked labels are worth: ``suggest_labels`` against random labels on five sets.

``python tests/benchmarks/asking.py`` lets LabelSpreading ask for 20 labels, then for 15 twice,
and fits random labels of 20, 30, 50 and 75 rows, with defaults and ``--draws`` times with other
seeds.  It prints adjusted Rand indices (of the rows without a label) beside their targets, and
writes them to ``--output``, those of ``--classifier none`` as "graph alone".  All pixels of a
scene are data; a question about a pixel whose class is not known is answered by -1, and another
one is asked.  Beside each fit stands what the model expected the following batch to change and to
gain.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from _results import dumps
from _timing import print_table
from labels import Data
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust import LabelSpreading
from daskclust.exceptions import ConstraintWarning
from daskclust.selection import expected_gain, suggest_labels

SETS = ("salinas", "jasper", "pendigits", "landsat", "segment")
ASKED, RANDOM = (20, 35, 50), (20, 30, 50, 75)
#: Adjusted Rand index of so many asked labels.
TARGETS = {
    ("salinas", 20): 0.93,
    ("salinas", 50): 0.96,
    ("jasper", 20): 0.84,
    ("jasper", 50): 0.87,
    ("pendigits", 50): 0.89,
}
#: Random labels that are worth no more than one asked label.
WORTH = 1.5


def fitted(
    data: Data, rows: NDArray[np.int64], seed: int, classifier: str | None
) -> tuple[Any, dict[str, Any]]:
    """Fit, and judge on the rows without a label."""
    model = LabelSpreading(random_state=seed, classifier=classifier)
    model.fit(data.rows, (rows, data.y[rows]))
    test = np.setdiff1d(data.known, rows)
    found = np.asarray(model.predict(data.rows))
    return model, {
        "labels": len(rows),
        "classes": len(np.unique(data.y[rows])),
        "ari": float(adjusted_rand_score(data.y[test], found[test])),
        "accuracy": float((found[test] == data.y[test]).mean()),
        "found": found,
    }


def asked(data: Data, seed: int, classifier: str | None = "trees") -> list[dict[str, Any]]:
    """Ask until so many labels are there, fit, and go on."""
    listed = np.empty(0, np.int64)
    model, known, steps = None, None, []
    for target in ASKED:
        while (data.y[listed] >= 0).sum() < target:
            missing = int(target - (data.y[listed] >= 0).sum())
            if model is None and (data.y[listed] >= 0).any():
                # Before 20 labels, too, the classifier that is tried has its say.
                asking = LabelSpreading(random_state=seed, classifier=classifier)
                asking.fit(data.rows, known)
            else:
                asking = model
            more = suggest_labels(data.rows, missing, y=known, model=asking, random_state=seed)
            listed = np.concatenate([listed, more])
            known = listed, data.y[listed]
        rows = np.sort(listed[data.y[listed] >= 0])
        model, found = fitted(data, rows, seed, classifier)
        gain = expected_gain(data.rows, 15, y=known, model=model, random_state=seed)
        found |= {
            "questions": len(listed),
            "expected_change": float(gain.changed[-1]),
            "expected_gain": float(gain.gain[-1]),
            "expected_accuracy": gain.accuracy,
        }
        steps.append(found)
    for one, after in pairwise(steps):
        one["change"] = float((one["found"] != after["found"]).mean())
        one["gain"] = after["accuracy"] - one["accuracy"]
    return steps


def drawn(data: Data, seed: int, classifier: str | None = "trees") -> list[dict[str, Any]]:
    """Fit random labels."""
    order = np.random.default_rng(seed).permutation(data.known)
    return [fitted(data, np.sort(order[:count]), seed, classifier)[1] for count in RANDOM]


def measure(
    name: str, folder: Path, draws: int, classifier: str | None = "trees"
) -> dict[str, list[Any]]:
    """All draws of one set."""
    data = Data(name, folder)
    result: dict[str, list[Any]] = {"asked": [], "random": []}
    for seed in range(draws):
        for kind, function in (("asked", asked), ("random", drawn)):
            steps = function(data, seed, classifier)
            for step in steps:
                step.pop("found")
            result[kind].append(steps)
    return result


def means(draws: list[Any], key: str = "ari") -> dict[int, tuple[float, float]]:
    """Mean and standard deviation over the draws, by the number of labels."""
    counts = [step["labels"] for step in draws[0]]
    values = np.array([[step[key] for step in steps] for steps in draws])
    return dict(zip(counts, zip(values.mean(0), values.std(0), strict=True), strict=True))


def verdicts(name: str, result: dict[str, list[Any]]) -> list[list[str]]:
    """Lines of the table: set, labels, asked, random, random of 1.5 times as many, verdict."""
    of_asked, of_random = means(result["asked"]), means(result["random"])
    lines = []
    for count, (mean, spread) in of_asked.items():
        more = of_random.get(int(WORTH * count))
        plain = of_random.get(count)
        target = TARGETS.get((name, count))
        missed = (target is not None and mean < target) or (more is not None and mean < more[0])
        checked = target is not None or more is not None
        lines.append(
            [
                name,
                str(count),
                f"{mean:.3f} +- {spread:.3f}",
                "" if plain is None else f"{plain[0]:.3f} +- {plain[1]:.3f}",
                "" if more is None else f"{more[0]:.3f} +- {more[1]:.3f}",
                "" if target is None else f"{target:.2f}",
                ("MISSED" if missed else "reached") if checked else "",
            ]
        )
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--classifier", choices=("trees", "none"), default="trees")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("DASKCLUST_TEST_DATA", "shared"))
    )
    options = parser.parse_args()
    # Small groups without a label are no news here.
    warnings.simplefilter("ignore", ConstraintWarning)
    results = json.loads(options.output.read_text())["sets"] if options.output.exists() else {}
    lines = []
    for name in options.sets:
        classifier = None if options.classifier == "none" else options.classifier
        key = name if classifier else f"{name}, graph alone"
        results[key] = measure(name, options.data, options.draws, classifier)
        found = verdicts(name, results[key])
        head = ["set", "labels", "asked", "random", f"random x {WORTH}", "target", ""]
        print_table(head, found)
        lines += found
        text = dumps({"version": daskclust.__version__, "sets": results})
        options.output.write_text(text + "\n")
    missed = [line for line in lines if line[-1] == "MISSED"]
    print(f"daskclust {daskclust.__version__}: {len(missed)} of {len(lines)} lines missed")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
