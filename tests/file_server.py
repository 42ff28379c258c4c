"""A file server that answers ranges, as object stores do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["served"]

_SERVER = r"""
import http.server, itertools, os, re, sys, urllib.parse

every, requests = int(sys.argv[2]), itertools.count(1)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        name = urllib.parse.unquote(self.path).split("?")[0].lstrip("/")
        path = os.path.join(sys.argv[1], name)
        if every and "/c/" in name and next(requests) % every == 0:
            self.send_error(503)
            return
        if not os.path.isfile(path):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with open(path, "rb") as file:
            content = file.read()
        first, last = 0, len(content) - 1
        wanted = re.match(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        self.send_response(206 if wanted else 200)
        if wanted and wanted[1]:
            first, last = int(wanted[1]), min(int(wanted[2] or last), last)
        elif wanted:
            first = max(0, len(content) - int(wanted[2]))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if with_body:
            self.wfile.write(content[first : last + 1])

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def served(folder: Path, failing: int = 0) -> Iterator[str]:
    """Serve the files of a folder, and yield its URL.

    One request for a chunk of Zarr in `failing` is answered by 503, none by default.

    By a process of its own: GDAL holds the interpreter's lock while it waits for an answer.
    """
    words = [sys.executable, "-c", _SERVER, str(folder), str(failing)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()
