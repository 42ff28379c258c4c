"""Stored results as JSON with few lines: what fits on one line stays on it."""

from __future__ import annotations

import json
from typing import Any

#: Maximum number of characters of a dictionary or list on one line.
WIDTH = 100


def dumps(value: Any, indent: int = 0) -> str:
    """Return JSON in which small containers, and lists of numbers, take one line."""
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(text) + indent <= WIDTH:
        return text
    inner, space = indent + 1, " " * indent
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(k, ensure_ascii=False)}: {dumps(v, inner)}" for k, v in value.items()
        ]
        return f",\n{space} ".join(parts).join((f"{{\n{space} ", f"\n{space}}}"))
    if "{" not in text:  # lists of numbers
        return text
    parts = [dumps(part, inner) for part in value]
    return f",\n{space} ".join(parts).join((f"[\n{space} ", f"\n{space}]"))
