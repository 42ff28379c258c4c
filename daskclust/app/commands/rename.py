"""``daskclust rename``: rename or merge the classes of a saved model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from daskclust.app.commands._fit_request import digest
from daskclust.app.commands._outputs import job_of, pairs_of_lines
from daskclust.app.commands.console import print_results
from daskclust.app.commands.requests import RenameRequest
from daskclust.app.report.summary import legend_of
from daskclust.colors import Legend
from daskclust.core.persistence import mixin
from daskclust.core.storage.atomic_write import reserved
from daskclust.core.storage.outputs import JOB
from daskclust.core.storage.stores import local_path


def _run(options: argparse.Namespace) -> int:
    return print_results(options, rename(RenameRequest.of(options)), _as_text)


def rename(options: RenameRequest) -> dict[str, Any]:
    """Rename classes of a saved model, and return the classes."""
    import daskclust

    path = local_path(options.model)
    # Changes by another command between reading and writing would be lost.
    with reserved([] if path is None or not path.exists() else [path]):
        classes = _renamed(options, daskclust.load(options.model))
    return {"command": "rename", "classes": classes}


def _as_text(results: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for item in results["classes"]:
        was = ", ".join(item["was"])
        shown = item["name"] if was == item["name"] else f"{item['name']} (was {was})"
        lines.append(f"{'' if lines else 'Classes':<10}{item['code']:>3}  {shown}")
    return lines


def _renamed(options: RenameRequest, model: Any) -> list[dict[str, Any]]:
    from daskclust.core.persistence.models import fingerprint, save

    text = Path(options.file).read_text(encoding="utf-8-sig")
    before = legend_of(model)
    codes = {str(code): code for code in before.codes}
    codes |= {name: code for code, name in before.by_code.items()}
    pairs = pairs_of_lines(repr(options.file), text, ("old", "new"), codes)
    _rename(model, before, _by_code(options.file, before, codes, pairs))
    job = job_of(options.model)
    # A new mark, because the maps of the old model have other codes: a fit replaces the renamed
    # model only with --overwrite.
    mark = digest([job.get("mark"), sorted(pairs.items())])
    job |= {"mark": mark, "model_mark": fingerprint(model)}
    save(model, options.model, overwrite=True, attributes={JOB: job})
    merged_into = mixin.merged_classes_of(model)
    classes: list[dict[str, Any]] = []
    for code, name in legend_of(model).by_code.items():
        joined = [
            old for old, other in merged_into.items() if other == code and old in before.by_code
        ]
        was = [before.by_code[old] for old in (code, *joined)]
        classes.append({"code": code, "name": name, "was": was})
    return classes


def _by_code(
    path: str, legend: Legend, codes: dict[str, int], pairs: dict[str, str]
) -> dict[int, str]:
    wrong = [name for name in pairs if name not in codes]
    if wrong or not pairs:
        what = f"the names {', '.join(map(repr, wrong[:10]))}" if wrong else "an empty file"
        raise ValueError(
            f"{path!r} must contain lines old,new, got {what}. The old names are "
            f"{', '.join(legend.names[:20])}, or their codes."
        )
    if not all(pairs.values()):
        raise ValueError(f"{path!r} must not contain an empty new name.")
    new = {codes[name]: text for name, text in pairs.items()}
    noise = legend.by_code.get(-1 if legend.noise is None else legend.noise)
    if legend.noise in new or noise in new.values():
        raise ValueError(
            f"{path!r} must contain only classes, got {noise!r}, the name of noise. Remove it."
        )
    if len(new) < len(pairs):
        raise ValueError(
            f"{path!r} must have one line per class, got a class by its name and its code."
        )
    return new


def _rename(model: Any, legend: Legend, new: dict[int, str]) -> None:
    """Store new names in a model; classes with the same new name get the code of the first one."""
    groups: dict[str, list[int]] = {}
    for code, name in legend.by_code.items():
        groups.setdefault(new.get(code, name), []).append(code)
    merged_into = mixin.merged_classes_of(model)
    names, colors = mixin.class_names_of(model)
    for name, codes in groups.items():
        first = codes[0]
        joined = dict.fromkeys(codes[1:], first) if new.keys() & codes else {}
        merged_into = {
            code: joined.get(other, other) for code, other in merged_into.items()
        } | joined
        for code in codes:
            if code in new:
                names[first if code in joined else code] = name
    mixin.name_classes(model, names, colors)
    mixin.merge_classes(model, merged_into)
