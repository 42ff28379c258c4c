"""A program: a local S3 server that can be configured to answer 503 at times.

``python _s3.py PORT``.  ``PUT /-/failures`` with a JSON object sets ``share`` (of the requests,
in an even pattern) and ``match`` (text that the path of a request must hold to fail);
``GET /-/failures`` says how many requests were answered, and how many of them by 503.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class Unreliable:
    """S3, but for the requests that fail."""

    def __init__(self) -> None:
        self._inner = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._share, self._match = 0.0, ""
        self._asked = self._failed = self._matched = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path == "/-/failures":
            return self._told(environ, start_response)
        with self._lock:
            self._asked += 1
            fails = False
            if self._share and self._match in path:
                self._matched += 1
                # Every tenth of them, say: a test that draws lots fails by chance.
                fails = int(self._matched * self._share) > int((self._matched - 1) * self._share)
            self._failed += fails
        if fails:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            environ["wsgi.input"].read(length)
            # An answer to HEAD has no body.
            body = b"" if environ["REQUEST_METHOD"] == "HEAD" else SLOW_DOWN
            start_response(
                "503 Slow Down",
                [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))],
            )
            return [body]
        return self._inner(environ, start_response)

    def _told(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with self._lock:
            if environ["REQUEST_METHOD"] == "PUT":
                body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                wanted = json.loads(body)
                self._share, self._match = float(wanted["share"]), wanted["match"]
                self._asked = self._failed = self._matched = 0
            answer = json.dumps({"asked": self._asked, "failed": self._failed}).encode()
        start_response(
            "200 OK",
            [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))],
        )
        return [answer]


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), Unreliable(), threaded=True)
