"""Remove credentials from texts that are printed, logged or stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Repetitions in these patterns are bounded or cannot start inside themselves, so the search time
# grows linearly with the length of the text.
_HIDDEN = "***"
#: ``scheme://`` up to a space, a quote or a bracket that ends the URL in a sentence.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]{0,40}://)([^\s'\"<>]*)")
#: Values in a query or fragment: any of them may be a signature, also one without a name.
_VALUES = re.compile(r"([?&#;][^=?&#;\s'\"]*=)[^&#;\s'\"<>)]*")
_BARE = re.compile(r"([?#])(?!\*\*\*)[\w%+/.~\-]{12,}={0,2}(?=[#\s'\"<>),]|$)")
#: Options and headers, and queries without the start of their URL: ``secret=...``, ``'token':
#: b'...'``, ``auth=('name', '...')``, ``Authorization: Bearer ...``.  A value that starts with a
#: brace is not replaced; its content is searched.
_NAME = (
    r"(?is)((?:secret(?!ar)|passw(?:or)?d|passphrase|\bpwd|signature|token(?!i[sz]|s\b)|credential"
    r"|authorization|\bauth\b|(?:api|access|account|private|shared)[_\-]?key)"
    r"[\w.\-]{0,200}['\"]?\s{0,60}[=:]\s{0,60}"
)
_QUOTED = re.compile(_NAME + r"b?(['\"]))(?:(?!\2).){0,5000}\2")
_PAIR = re.compile(_NAME + r")\([^()]{0,1000}\)")
_NAMED = re.compile(
    _NAME + r"['\"]?)(?!\*\*\*|b['\"]|(?:None|True|False|null)\b)"
    r"(?:(?:bearer|basic|digest|negotiate|token)\s{1,60})?[^\s'\"&,;})({\[]+"
)
_QUERY = re.compile(r"(?i)([?&](?:sig|key|auth|sv|se|sp)=)(?!\*\*\*)[^\s'\"&]+")
#: User information of a URL without its scheme: ``user:secret@host``.
_USER = re.compile(r"(?<![^\s'\"(,/])[^\s/:@'\"(,]+:[^\s/@'\"]{1,1000}@")
_PORT = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::\d*)?")


def _without_secrets(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    # Protocols may be chained, as in simplecache::https://...
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        rest = f"{_HIDDEN}@{rest[authority.rindex('@') + 1 :]}"
    elif not _PORT.fullmatch(authority) and "@" in rest:
        # An unquoted secret contains a slash: user:sec/ret@host.
        rest = f"{_HIDDEN}@{rest[rest.rindex('@') + 1 :]}"
    # Bare signatures first, because the "=" at their end would make them the name of a value.
    rest = _BARE.sub(rf"\g<1>{_HIDDEN}", rest)
    return scheme + _VALUES.sub(rf"\g<1>{_HIDDEN}", rest)


def redact(text: object) -> str:
    r"""Return a text without user information, values of queries and named secrets.

    >>> redact("cannot read 'https://bob:hunter2@host/s.zarr?sig=SECRET'")
    "cannot read 'https://***@host/s.zarr?sig=***'"
    >>> redact("simplecache::s3://bucket/a.zarr and C:\\data at 10:30")
    'simplecache::s3://bucket/a.zarr and C:\\data at 10:30'
    """
    redacted = _URL.sub(_without_secrets, str(text))
    redacted = _USER.sub(f"{_HIDDEN}@", redacted)
    redacted = _QUOTED.sub(rf"\g<1>{_HIDDEN}\g<2>", redacted)
    redacted = _PAIR.sub(rf"\g<1>({_HIDDEN})", redacted)
    redacted = _NAMED.sub(rf"\g<1>{_HIDDEN}", redacted)
    return _QUERY.sub(rf"\g<1>{_HIDDEN}", redacted)


def redact_all(value: Any) -> Any:
    """Return JSON-like values with all strings redacted, including keys."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {
            redact(key) if isinstance(key, str) else key: redact_all(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_all(item) for item in value]
    return value
