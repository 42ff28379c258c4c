"""Jobs: options from a TOML or YAML file and from flags, and the configuration that results.

A key of the file is a flag's name, with dashes or underscores, so that whatever
checks flags checks files.  Flags win.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from daskclust.commands.parser import did_you_mean
from daskclust.storage.urls import redact_all

__all__ = ["add_job_arguments", "effective", "with_file"]

#: Only one of these may be given: flags take the place of all that the file says.
_EXCLUSIVE = ("--local", "--scheduler", "--scheduler-file")
#: Not part of a job: how it is run and told about.
_NOT_CONFIGURATION = {"run", "parser", "arguments", "config", "json", "dry_run", "overwrite"}


def add_job_arguments(parser: argparse.ArgumentParser) -> Any:
    """Add ``--config``, ``--json``, ``--dry-run`` and ``--overwrite``; return their group."""
    group = parser.add_argument_group("run")
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="read options from a TOML or YAML file (keys are the names of flags); flags win",
    )
    group.add_argument(
        "--dry-run",
        action="store_true",
        help="print passes, tasks, bytes and memory; compute nothing",
    )
    group.add_argument("--json", action="store_true", help="print results as JSON")
    group.add_argument(
        "--overwrite", action="store_true", help="replace earlier outputs of this command"
    )
    return group


def with_file(
    parser: argparse.ArgumentParser, options: argparse.Namespace, argv: Sequence[str]
) -> argparse.Namespace:
    """Return the options with those of the job file under them; `argv` follows the command."""
    if options.config is None:
        return options
    try:
        job = _read(options.config)
    except (ValueError, yaml.YAMLError) as error:
        parser.error(f"{str(options.config)!r} cannot be read: {' '.join(str(error).split())}")
    flags, positional = _as_flags(parser, options.config, job, argv)
    given = [] if options.cube is not None else positional
    # Behind "=", so that values that begin with a dash are no flags.
    return parser.parse_args([*flags, *given, *argv], argparse.Namespace(**vars(options)))


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise ValueError("there is no such file")
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".toml":
        return tomllib.loads(text)
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise ValueError("its name must end in .toml, .yaml, .yml or .json")
    job = yaml.safe_load(text)
    if not isinstance(job, dict):
        raise ValueError("it holds no keys with values")
    return job


def _as_flags(
    parser: argparse.ArgumentParser, path: Path, job: Mapping[str, Any], argv: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Write a job as arguments: flags, and the positional one."""
    actions = {name: action for action in parser._actions for name in action.option_strings}
    chosen_here = any(word.split("=")[0] in _EXCLUSIVE for word in argv)
    flags: list[str] = []
    positional: list[str] = []
    for key, value in job.items():
        name = "--" + str(key).replace("_", "-")
        if name == "--cube":
            positional = [str(item) for item in (value if isinstance(value, list) else [value])]
            continue
        if name not in actions or name in ("--config", "--help"):
            hint = did_you_mean(name, [flag for flag in actions if flag.startswith("--")])
            parser.error(f"{str(path)!r} has the unknown key {key!r}.{hint.replace('--', '')}")
        if name in _EXCLUSIVE and chosen_here:
            continue
        if actions[name].nargs == 0:
            if not isinstance(value, bool):
                parser.error(f"{str(path)!r}: {key} is {value!r}; expected true or false")
            flags += [name] if value else []
        else:
            flags.append(f"{name}={_as_text(value)}")
    return flags, positional


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, list):
        simple = all(isinstance(item, str | int | float) for item in value)
        return ",".join(map(str, value)) if simple else json.dumps(value)
    return str(value)


def effective(
    options: argparse.Namespace, params: Mapping[str, Any], without: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the configuration that a job ran with, as JSON values without credentials.

    `params` are all parameters of the estimator; `without` are flags that `params` stands for.
    """
    skipped = _NOT_CONFIGURATION.union(without)
    found = {
        name: _plain(value)
        for name, value in sorted(vars(options).items())
        if name not in skipped and value is not None
    }
    # A checkpoint, if one was asked for, is an option.
    parameters = {name: _plain(value) for name, value in params.items() if name != "checkpoint"}
    plain: dict[str, Any] = redact_all({**found, "parameters": parameters})
    return plain


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
