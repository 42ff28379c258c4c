"""Estimators on the command line: every parameter of every estimator is a flag."""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from daskclust.commands.console import seed
from daskclust.commands.parser import Parser, did_you_mean, one_of

__all__ = [
    "add_estimator_arguments",
    "check_count",
    "flags_of",
    "make_estimator",
    "takes_labels",
]

#: Parameters that have a flag of another name.
_RENAMED = {"random_state": "seed"}
#: Further names of estimators.
_OTHER_WORDS = {
    "hierarchical-kmeans": "HierarchicalKMeans",
    "label-spreading": "LabelSpreading",
    "spectral": "SpectralClustering",
    "ward": "AgglomerativeClustering",
}
_ABSENT: Any = argparse.SUPPRESS
#: Parameters without a useful default, and what to say where they are missing.
_NEEDED = {
    "n_clusters": "the number of clusters: --n-clusters K, with labels usually their classes",
    "n_components": "the number of components: --n-components K",
    "delta": "the price of a cluster, --delta, or about how many you want, --n-clusters-hint K",
}


def add_estimator_arguments(parser: Parser) -> None:
    """Add ``--estimator``, and a flag for each parameter that some estimator has.

    The help names the estimators; with ``--estimator NAME`` it tells the parameters of one.
    """
    from daskclust.persistence.models import registry

    classes = registry()
    words = _by_word(classes)
    group = parser.add_argument_group(
        "estimator",
        textwrap.fill(
            f"Names: {', '.join(_preferred(classes))}. What one is, its parameters, each a flag, "
            "and their defaults: daskclust fit --estimator NAME --help",
            76,
        ),
    )
    group.add_argument(
        "--estimator",
        type=lambda text: one_of(*sorted(words))(text.lower()),
        default="kmeans",
        metavar="NAME",
        help="(default: kmeans)",
    )
    shown = {"n_clusters": ("K", "number of clusters; needed by all that have such a parameter")}
    for param in sorted({param for kind in classes.values() for param in kind().get_params(False)}):
        if param in (*_RENAMED, "checkpoint"):
            continue
        metavar, meaning = shown.get(param, ("VALUE", argparse.SUPPRESS))
        group.add_argument(
            "--" + param.replace("_", "-"),
            type=_value,
            default=_ABSENT,
            metavar=metavar,
            help=meaning,
        )
    group.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="fixes the result (default: 0)"
    )
    parser.help_for = _help_for


def _help_for(arguments: Sequence[str]) -> str | None:
    """Return the page about the estimator that the arguments name, if they do."""
    from daskclust.commands._estimator_help import page_of
    from daskclust.persistence.models import registry

    finder = Parser(add_help=False)
    finder.add_argument("--estimator")
    named = argparse.ArgumentParser.parse_known_args(finder, arguments)[0].estimator
    classes = registry()
    words = _by_word(classes)
    if named is None or named.lower() not in words:
        return None
    return page_of(named.lower(), words[named.lower()], classes)


def _by_word(classes: Mapping[str, type]) -> dict[str, type]:
    """Estimators by the words that name them: their class, and some that are easier to read."""
    words = {name.lower(): kind for name, kind in classes.items()}
    for word, name in _OTHER_WORDS.items():
        words[word] = classes[name]
    return words


def _preferred(classes: Mapping[str, type]) -> list[str]:
    """Return one word for each estimator."""
    easier = {name: word for word, name in _OTHER_WORDS.items()}
    return sorted(easier.get(name, name.lower()) for name in classes)


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
        options.parser.error(_foreign(kind, foreign[0], params))
    if not isinstance(given.get("init", ""), str):
        options.parser.error(f"init={given['init']!r} is no start; --init takes a name")
    if "random_state" in params:
        given["random_state"] = options.seed
    model = kind(**given)
    check = getattr(model, "_check_parameters", None)
    if check is not None:
        try:
            check()
        except (TypeError, ValueError) as error:
            options.parser.error(str(error))
    for name, why in _NEEDED.items():
        alone = name == "delta" and "n_clusters_hint" in given
        alone |= name == "n_clusters" and given.get("distance_threshold") is not None
        if name in params and name not in given and not alone:
            options.parser.error(f"{kind.__name__} needs {why}")
    if needs_labels(model) and options.labels is None and options.label_column is None:
        options.parser.error(
            f"{kind.__name__} learns from labels: give some with --labels (of a table: "
            "--label-column), or take an estimator that needs none"
        )
    return model


def check_count(params: Mapping[str, Any], most: int, unit: str) -> None:
    """Refuse more clusters than there can be rows, before anything is read.

    Parameters
    ----------
    params : mapping
        Of the estimator.
    most : int
        Rows at most.
    unit : str
        What a row is: ``"pixels"``, ``"rows"``.
    """
    for name in ("n_clusters", "n_components"):
        count = params.get(name)
        if isinstance(count, int) and count > most:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{flag} is {count}, and there are {most} {unit} at most; expected no more."
            )


def _foreign(kind: type, name: str, params: Mapping[str, Any]) -> str:
    """Say that an estimator lacks a parameter, which one was meant, and who has it."""
    from daskclust.persistence.models import registry

    owners = [
        other for other, found in registry().items() if name in found().get_params(deep=False)
    ]
    flags = [_RENAMED.get(param, param).replace("_", "-") for param in sorted(params)]
    word = name.replace("_", "-")
    return (
        f"{kind.__name__} has no parameter {word!r}; it has {', '.join(flags)}. "
        f"{', '.join(owners)} {'has' if len(owners) == 1 else 'have'} {word}."
        + did_you_mean(word, flags)
    )


def needs_labels(model: Any) -> bool:
    """Whether ``fit`` cannot do without partial labels."""
    parameters = inspect.signature(model.fit).parameters
    return "y" in parameters and parameters["y"].default is inspect.Parameter.empty


def takes_labels(model: Any) -> bool:
    """Whether ``fit`` uses partial labels."""
    parameters = inspect.signature(model.fit).parameters
    optional = "must_link" in parameters or getattr(model, "_uses_labels", False)
    return needs_labels(model) or optional
