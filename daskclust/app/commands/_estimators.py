"""Estimators on the command line, and their parameters with ``--set NAME=VALUE``."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from sklearn.utils import get_tags

from daskclust.app.commands._arguments import OTHER_WORDS, PARAMETER_FLAGS
from daskclust.app.commands.console import Parser, did_you_mean
from daskclust.app.commands.requests import FitRequest, UsageError
from daskclust.core.estimator.parameters import describe
from daskclust.core.persistence.models import registry

#: Numbers of clusters, which are required.
_COUNTS = ("n_clusters", "n_components")
#: Required parameters without a default, and the end of the message if they are missing.
_NEEDED = {
    "n_clusters": "the number of clusters: --n-clusters K, usually the number of classes of the "
    "labels",
    "n_components": "the number of components: --n-clusters K",
    "delta": "the cost of a cluster, --set delta=VALUE, or an approximate number of clusters, "
    "--set n_clusters_hint=K",
}


def help_page(word: str) -> str | None:
    """Return the help page of the estimator with a name, or None."""
    kind = _by_word().get(word)
    return None if kind is None else page_of(word, kind, registry())


def _by_word() -> dict[str, type]:
    classes = registry()
    words = {name.lower(): kind for name, kind in classes.items()}
    return words | {word: classes[name] for word, name in OTHER_WORDS.items()}


def settings_of(options: FitRequest) -> dict[str, Any]:
    """Return the parameters of ``--set``; the last value of a name counts."""
    return dict(options.set)


def make_estimator(options: FitRequest) -> Any:
    """Return the estimator that the options describe."""
    kind: Any = _by_word()[options.estimator]
    params = kind().get_params(deep=False)
    settings = settings_of(options)
    foreign = sorted(settings.keys() - params.keys())
    if foreign:
        name = foreign[0]
        owners = [
            other
            for other, kind_of_other in registry().items()
            if name in kind_of_other().get_params(deep=False)
        ]
        names = sorted(params.keys() - PARAMETER_FLAGS.keys())
        of_others = f" {', '.join(owners)} {'has' if len(owners) == 1 else 'have'} {name}."
        raise UsageError(
            f"{kind.__name__} has no parameter {name!r}; it has {', '.join(names)}."
            f"{of_others if owners else ''}{did_you_mean(name, names)}"
        )
    if not isinstance(settings.get("init", ""), str):
        raise UsageError(f"init must be the name of an initialization, got {settings['init']!r}")
    if options.n_clusters is not None:
        count = next((name for name in _COUNTS if name in params), None)
        if count is None:
            raise UsageError(f"{kind.__name__} has no number of clusters: omit --n-clusters")
        settings[str(count)] = options.n_clusters
    if "random_state" in params:
        settings["random_state"] = options.seed
    model = kind(**settings)
    try:
        model._check_parameters()
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    for name, remedy in _NEEDED.items():
        is_optional = name == "delta" and "n_clusters_hint" in settings
        is_optional |= name == "n_clusters" and settings.get("distance_threshold") is not None
        # A number whose default is None is optional.  delta has no default.
        is_needed = name in params and (name == "delta" or params[name] is not None)
        if is_needed and name not in settings and not is_optional:
            raise UsageError(f"{kind.__name__} requires {remedy}")
    if needs_labels(model) and options.labels is None and options.label_column is None:
        raise UsageError(
            f"{kind.__name__} requires labels: use --labels (for a table: --label-column), or an "
            f"estimator that does not require labels"
        )
    return model


def check_count(params: Mapping[str, Any], limit: int, unit: str) -> None:
    """Raise an error for more clusters than rows, before values are read."""
    for name in _COUNTS:
        count = params.get(name)
        if isinstance(count, int) and count > limit:
            raise ValueError(
                f"--n-clusters must be at most {limit}, the number of {unit}, got {count}. Lower "
                f"--n-clusters."
            )


def needs_labels(model: Any) -> bool:
    """Return True if ``fit`` requires partial labels."""
    return bool(get_tags(model).target_tags.required)


def takes_labels(model: Any) -> bool:
    parameters = inspect.signature(model.fit).parameters
    optional = "must_link" in parameters or getattr(model, "_uses_labels", False)
    # A choice among estimators has no tags.
    return optional or needs_labels(model)


_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"(\w+(?:, \w+)*) ?:.*")
#: The description is in the docstring of another class.
_ELSEWHERE = re.compile(r"As in :class:`(?:daskclust\.)?(\w+)`\.")


def parameters_of(kind: type, others: Mapping[str, type]) -> dict[str, str]:
    """Return the descriptions of the parameters in the docstring of a class.

    `others` are the classes to which "As in :class:`Name`" refers.

    >>> import daskclust
    >>> parameters_of(daskclust.KMeans, {})["max_iter"]
    'Maximum number of iterations.'
    """
    texts: dict[str, str] = {}
    for names, body in _entries(kind):
        reference = _ELSEWHERE.fullmatch(body)
        other = None if reference is None else others.get(reference[1])
        elsewhere = {} if other in (None, kind) else parameters_of(other, others)
        texts |= {name: elsewhere.get(name, _plain(body)) for name in names}
    return texts


def _entries(kind: type) -> list[tuple[list[str], str]]:
    section = _SECTION.search(inspect.getdoc(kind) or "")
    entries: list[tuple[list[str], list[str]]] = []
    for line in (section[1] if section else "").splitlines():
        entry = None if line.startswith(" ") else _ENTRY.fullmatch(line)
        if entry is not None:
            entries.append((entry[1].split(", "), []))
        elif entries:
            entries[-1][1].append(line.strip())
    texts = [" ".join(filter(None, body)) for _, body in entries]
    for i in reversed(range(len(texts) - 1)):
        # Consecutive entries share the text below the last of them.
        texts[i] = texts[i] or texts[i + 1]
    return [(names, text) for (names, _), text in zip(entries, texts, strict=True)]


def _plain(text: str) -> str:
    """Return reStructuredText as plain text.

    >>> _plain("As ``init`` of :class:`daskclust.KMeans` [1]_ says.")
    'As init of KMeans says.'
    """
    text = re.sub(r":\w+:`(?:[\w.]*\.)?(\w+)`", r"\1", text)
    text = re.sub(r" ?\[\d+\]_", "", text)
    return " ".join(text.replace("``", "").split())


def page_of(word: str, kind: Any, others: Mapping[str, type]) -> str:
    """Return the help page of an estimator: its description and parameters.

    `word` is its name on the command line, `others` all estimators by the name of their class.
    """
    summary = (inspect.getdoc(kind) or "").partition("\n\n")[0]
    parser = Parser(
        prog="daskclust fit",
        usage=f"%(prog)s CUBE --estimator {word} [--set NAME=VALUE ...] [other options]",
        description=f"{kind.__name__}: {_plain(summary)}",
        epilog="Values are numbers, words or JSON. --seed fixes all random draws. All other "
        "options: daskclust fit --help",
        add_help=False,
        formatter_class=partial(argparse.HelpFormatter, max_help_position=8),
    )
    group = parser.add_argument_group(f"parameters of {kind.__name__}, by --set NAME=VALUE")
    described = parameters_of(kind, others)
    defaults = kind().get_params(deep=False)
    # In the order of the docstring, the important ones first.
    for name in sorted(defaults, key=list(inspect.signature(kind).parameters).index):
        if name in ("random_state", "checkpoint"):
            continue
        needed = name in _COUNTS and defaults[name] is not None
        default = "none, required" if needed else defaults[name]
        values = describe(kind._parameter_constraints[name], typed=True)
        about = f"{described[name]} ({values}; default: {default})".replace("%", "%%")
        shown = "--n-clusters K" if name in _COUNTS else f"{name}=VALUE"
        group.add_argument(name, metavar=shown, help=about)
    return parser.format_help()
