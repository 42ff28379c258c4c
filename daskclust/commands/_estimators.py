"""Estimators on the command line: every parameter of every estimator is a flag."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["add_estimator_arguments", "flags_of", "make_estimator", "takes_labels"]

#: Parameters that have a flag of another name.
_RENAMED = {"random_state": "seed"}
#: Further names of estimators.
_OTHER_WORDS = {"label-spreading": "LabelSpreading", "spectral": "SpectralClustering"}
_ABSENT: Any = argparse.SUPPRESS


def add_estimator_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--estimator``, and a flag for each parameter that some estimator has."""
    from daskclust.persistence.models import registry

    classes = registry()
    defaults: dict[str, dict[str, Any]] = {}
    for name, kind in classes.items():
        for param, value in kind().get_params(deep=False).items():
            defaults.setdefault(param, {})[name] = value
    parser.add_argument(
        "--estimator",
        type=str.lower,
        default="kmeans",
        choices=sorted(_by_word(classes)),
        metavar="NAME",
        help=f"one of {', '.join(sorted(_by_word(classes)))} (default: kmeans)",
    )
    parser.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="fixes the result (default: 0)"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="file or folder for the state of every iteration; the same command continues there "
        "(default: a hidden file beside the first output, removed at the end)",
    )
    group = parser.add_argument_group(
        "parameters of the estimators", "As documented for the classes; numbers, words or JSON."
    )
    for param in sorted(defaults):
        if param in (*_RENAMED, "checkpoint"):
            continue
        group.add_argument(
            "--" + param.replace("_", "-"),
            type=_value,
            default=_ABSENT,
            metavar="VALUE",
            help=_defaults(defaults[param], len(classes)).replace("%", "%%"),
        )


def _by_word(classes: Mapping[str, type]) -> dict[str, type]:
    """Estimators by the words that name them: their class, and some that are easier to read."""
    words = {name.lower(): kind for name, kind in classes.items()}
    for word, name in _OTHER_WORDS.items():
        words[word] = classes[name]
    return words


def _defaults(of_class: dict[str, Any], n_classes: int) -> str:
    """Tell the defaults of a parameter, and whose they are.

    Examples
    --------
    >>> _defaults({"A": 1, "B": 2, "C": 1}, 3)
    'default: 1 (A, C), 2 (B)'
    >>> _defaults({"A": 1, "B": 1}, 2)
    'default: 1'
    """
    owners: dict[str, list[str]] = {}
    for name, value in of_class.items():
        owners.setdefault(str(value), []).append(name)
    if len(owners) == 1 and len(of_class) == n_classes:
        return f"default: {next(iter(owners))}"
    return "default: " + ", ".join(
        f"{value} ({', '.join(names)})" for value, names in owners.items()
    )


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _value(text: str) -> Any:
    """Read a number, true, false, none, JSON list or word.

    Examples
    --------
    >>> [_value(text) for text in ("7", "1e-4", "none", "[[1, 2]]", "k-means++")]
    [7, 0.0001, None, [[1, 2]], 'k-means++']
    """
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float, json.loads):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def flags_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters that were given, by name."""
    from daskclust.persistence.models import registry

    known = {param for kind in registry().values() for param in kind().get_params(deep=False)}
    return {name: value for name, value in vars(options).items() if name in known}


def make_estimator(options: argparse.Namespace) -> Any:
    """Make the estimator that the options describe; wrong usage ends the program."""
    from daskclust.persistence.models import registry

    kind: Any = _by_word(registry())[options.estimator]
    params = kind().get_params(deep=False)
    given = {k: v for k, v in flags_of(options).items() if k != "checkpoint"}
    foreign = sorted(given.keys() - params.keys())
    if foreign:
        options.parser.error(
            f"{kind.__name__} has no parameter {foreign[0].replace('_', '-')!r}; it has "
            f"{', '.join(sorted(name.replace('_', '-') for name in params))}"
        )
    if "random_state" in params:
        given["random_state"] = options.seed
    model = kind(**given)
    check = getattr(model, "_check_parameters", None)
    if check is not None:
        try:
            check()
        except (TypeError, ValueError) as error:
            options.parser.error(str(error))
    return model


def takes_labels(model: Any) -> bool:
    """Whether ``fit`` uses partial labels."""
    parameters = inspect.signature(model.fit).parameters
    required = "y" in parameters and parameters["y"].default is inspect.Parameter.empty
    return required or "must_link" in parameters or getattr(model, "_uses_labels", False)
