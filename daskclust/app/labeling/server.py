"""HTTP server of the page: one state for all tabs, local connections only, a token in each path."""

from __future__ import annotations

import asyncio
import hmac
import json
import queue
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import responses
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler

from daskclust.app.labeling.files import AnswersFile, write_answers
from daskclust.app.labeling.learner import Learned, Learner
from daskclust.app.labeling.pictures import LAYERS, STRETCHES, TILE, Pictures
from daskclust.app.labeling.session import InvalidRequest, Session
from daskclust.core.array_types import Ints
from daskclust.core.storage.outputs import json_text
from daskclust.core.storage.redact import redact

#: Maximum number of labeled pixels of a polygon, and of its corners.
_MAX_PIXELS, _CORNERS = 100, 1000
#: Maximum seconds that a request waits for a new version, and maximum bytes of a request.
_MAX_WAIT, _MAX_BYTES = 20.0, 2**20
#: Files of the page, by their path in the URL.
_FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_HERE = {"127.0.0.1", "localhost", "::1"}


def pixels_inside(corners: Sequence[Sequence[float]], shape: tuple[int, int]) -> Ints:
    """Return pixels (m, 2) whose centers a polygon covers; at most 100, evenly spread.

    Corners are (row, column) in pixels; the center of the first one is at (0.5, 0.5).

    >>> pixels_inside([(0, 0), (0, 2), (1, 2), (1, 0)], (5, 5)).tolist()
    [[0, 0], [0, 1]]
    """
    path = np.asarray(corners, dtype=float)
    if path.ndim != 2 or path.shape[1] != 2 or not 3 <= len(path) <= _CORNERS:
        raise InvalidRequest(f"A polygon needs 3 to {_CORNERS} corners.")
    if not np.isfinite(path).all():
        raise InvalidRequest("A corner of the polygon is not a number.")
    path = np.clip(path, 0, shape)
    low, high = np.floor(path.min(axis=0)).astype(int), np.ceil(path.max(axis=0)).astype(int)
    step = max(1, int(np.sqrt(np.prod(np.maximum(high - low, 1), dtype=float) / 20_000)))
    rows, columns = np.mgrid[low[0] : high[0] : step, low[1] : high[1] : step].reshape(2, -1)
    y, x = rows + 0.5, columns + 0.5
    inside = np.zeros(len(rows), bool)
    for (y0, x0), (y1, x1) in zip(path, np.roll(path, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    pixels = np.stack([rows[inside], columns[inside]], axis=1).astype(np.int64)
    if len(pixels) <= _MAX_PIXELS:
        return pixels
    return pixels[np.linspace(0, len(pixels) - 1, _MAX_PIXELS).astype(int)]


class Page:
    """State that all tabs show, and their requests; :meth:`run` processes the requests.

    `save` fits a model, writes the outputs and returns their paths. `task` shows the name of the
    running task. `scene` is the name of the scene.
    """

    def __init__(
        self,
        session: Session,
        pictures: Pictures,
        file: AnswersFile,
        save: Callable[[], dict[str, str]],
        task: Callable[[str], Any],
        scene: str = "",
    ) -> None:
        self.session, self.pictures, self.file, self.scene = session, pictures, file, scene
        self._save, self._task = save, task
        self.learner: Learner | None = None
        self._learned = Learned(None)
        self._passed: list[tuple[int, int]] = []
        self._doing: list[str] = ["starting"]
        self._message = ""
        self._saved: dict[str, str] = {}
        self._scene_version = self._map_version = self.version = 0
        self._lock = threading.RLock()
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue()
        self._news: Callable[[], object] = lambda: None

    # Work of the main thread

    def run(self, prepare: Callable[[Page], Learner]) -> None:
        """Prepare, then process the requests one by one until a signal ends the server."""
        self.learner = prepare(self)
        self.learner.read([label.pixel for label in self.session.answers])
        self._learn()
        with self._lock:
            self._doing = []
        self._changed()
        while True:
            self._run_job(self._jobs.get())

    def _run_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # the page shows the error; labels are saved
            self._message = f"{type(error).__name__}: {redact(error)}"[:500]
        with self._lock:
            self._doing = self._doing[1:]
        self._changed()

    def _do(self, name: str, job: Callable[[], None]) -> None:
        with self._lock:
            self._doing.append(name)
            self._jobs.put(job)
        self._changed()

    @contextmanager
    def task(self, text: str) -> Iterator[None]:
        """Show the progress on the page and on the terminal."""
        with self._lock:
            self._doing = [text]
        self._changed()
        with self._task(text):
            yield

    def _learn(self) -> None:
        assert self.learner is not None
        with self._lock:
            names = self.session.names
            labeled = [(label.pixel, label.name or "") for label in self.session.labels]
            skipped_pixels = [label.pixel for label in self.session.skipped]
            passed = list(self._passed)
        learned = self.learner.learn(names, labeled, skipped_pixels, passed)
        with self._lock:
            self._learned = learned
            self._map_version += 1

    def show_scene(self) -> None:
        """Let tabs request the scene after its overview was read."""
        with self._lock:
            self._scene_version += 1
        self._changed()

    # Requests of browser tabs

    def act(self, request: dict[str, Any]) -> dict[str, Any]:
        """Process a request of a tab and return the state; raise InvalidRequest if invalid."""
        actions = {
            "label": self._label,
            "polygon": lambda request: self.session.assign(request["pixels"], _name(request)),
            "skip": lambda request: self.session.assign([self._asked(request)], None, asked=True),
            "another": self._another,
            "undo": lambda _: self.session.undo(),
            "add": lambda request: self.session.add(request.get("class")),
            "change": lambda request: self.session.change(
                request.get("class"), request.get("to"), request.get("color")
            ),
            "remove": lambda request: self.session.remove(request.get("class")),
            "look": self._choose_bands,
            "refit": lambda _: self._do("learning", self._learn),
            "save": self._request_save,
        }
        name = str(request.get("do"))
        action = actions.get(name)
        if action is None:
            raise InvalidRequest(f"The action {name[:40]!r} does not exist.")
        if self.learner is None and request["do"] not in ("add", "change", "remove"):
            raise InvalidRequest("The scene is still being read; wait until the page is ready.")
        # This is outside the lock, so that tabs can continue while pixels are read.
        request = {**request, "pixels": self._pixels_of(request)}
        with self._lock, self.session.restored_on_error():
            self._message = ""
            before = self.session.answers, self.session.classes
            action(request)
            if before != (self.session.answers, self.session.classes):
                grid = self.pictures.cube.pixel_grid
                write_answers(self.file, self.session.answers, grid, self.session.about)
                self._request_refit()
        self._changed()
        return self.state()

    def _request_refit(self) -> None:
        # The refit finds the next question; a question of the old model would be outdated.
        self._learned = replace(self._learned, question=None, predicted=None)
        if self.learner is not None and "learning" not in self._doing[1:]:
            self._do("learning", self._learn)

    def _asked(self, request: dict[str, Any]) -> tuple[int, int]:
        """Return the pixel of an answer; raise InvalidRequest if another tab has answered it."""
        pixel = _pixel(request)
        if pixel != self._learned.question:
            raise InvalidRequest("This question was answered already; here is the next one.")
        return pixel

    def _label(self, request: dict[str, Any]) -> None:
        pixel = self._asked(request) if request.get("asked") else _pixel(request)
        asked = pixel == self._learned.question
        predicted = self._learned.predicted if asked else None
        self.session.assign([pixel], _name(request), asked=asked, predicted=predicted)

    def _pixels_of(self, request: dict[str, Any]) -> list[tuple[int, int]]:
        if request["do"] == "label":
            pixels = [_pixel(request)]
        elif request["do"] == "polygon":
            try:
                covered = pixels_inside(request.get("corners") or [], self.session.shape)
            except (TypeError, ValueError) as error:
                raise InvalidRequest(str(error)) from error
            pixels = [(row, column) for row, column in covered.tolist()]
            if not pixels:
                raise InvalidRequest(
                    "The polygon must cover the center of at least one pixel. Draw a larger "
                    "polygon."
                )
        else:
            return []
        assert self.learner is not None
        height, width = self.session.shape
        inside = [(y, x) for y, x in pixels if 0 <= y < height and 0 <= x < width]
        values = self.learner.read(inside)
        valid = [pixel for pixel, value in zip(inside, values, strict=True) if value is not None]
        if not valid:
            raise InvalidRequest("No data here: the pixel is masked, or outside of the scene.")
        return valid

    def _another(self, request: dict[str, Any]) -> None:
        self._passed.append(self._asked(request))
        self._request_refit()

    def _choose_bands(self, request: dict[str, Any]) -> None:
        bands = request.get("bands") or self.pictures.bands
        stretch = str(request.get("stretch") or self.pictures.stretch)

        def choose() -> None:
            self.pictures.choose_bands(bands, stretch)
            self.show_scene()

        self._do("reading the bands", choose)

    def _request_save(self, _: dict[str, Any]) -> None:
        if not self.session.labels:
            raise InvalidRequest("A map needs labels. Label a pixel first.")

        def save() -> None:
            self._saved = {}
            self._saved = self._save()
            self._message = "saved: " + ", ".join(self._saved.values())

        self._do("saving", save)

    def _changed(self) -> None:
        with self._lock:
            self.version += 1
        self._news()

    def state(self) -> dict[str, Any]:
        with self._lock:
            session, learned, pictures = self.session, self._learned, self.pictures
            counts = Counter(label.name for label in session.labels)
            share = session.accuracy
            return {
                "version": self.version,
                "status": self._doing[0] if self._doing else "ready",
                "message": self._message,
                "question": None
                if learned.question is None
                else {"row": learned.question[0], "column": learned.question[1]},
                "classes": [
                    {**item._asdict(), "labels": counts[item.name]} for item in session.classes
                ],
                "labels": [
                    [item.row, item.column, session.names.index(item.name or "")]
                    for item in session.labels[-2000:]
                ],
                "n_labels": len(session.labels),
                "n_skipped": len(session.skipped),
                "can_undo": session.can_undo,
                "accuracy": None if share is None else share._asdict(),
                "change": learned.change,
                "sure": learned.sure,
                "enough": learned.is_enough,
                "has_map": learned.shares is not None,
                "shape": list(pictures.shape),
                "top": pictures.top,
                "tile": TILE,
                "look": self._scene_version,
                "map": self._map_version,
                "bands": list(pictures.bands),
                "band_names": pictures.band_names,
                "stretch": pictures.stretch,
                "stretches": list(STRETCHES),
                "file": str(self.file.location),
                "scene": self.scene,
                "saved": self._saved,
            }

    def tile(self, layer: str, level: int, down: int, across: int) -> bytes | None:
        """Return a tile as PNG, or None if the tile does not exist."""
        if not self.pictures.has(level, down, across) or not self._scene_version:
            return None
        if layer == "scene":
            return self.pictures.scene(level, down, across)
        with self._lock:
            learned = self._learned
            colors = {each.name: each.color for each in self.session.classes}
        if learned.shares is None:
            return None
        if layer == "uncertainty":
            return self.pictures.uncertainty(level, down, across, learned.shares)
        # The last fit may contain a class that was removed or renamed since.
        shown = [colors.get(name, "#000000") for name in learned.names]
        return self.pictures.map(level, down, across, learned.shares, shown)

    def spectrum(self, row: int, column: int) -> dict[str, Any]:
        """Return the values of a pixel, and the means of the classes."""
        if self.learner is None:
            return {"values": None, "classes": {}}
        learner, labels = self.learner, self.session.labels

        def mean(pixels: list[tuple[int, int]]) -> list[float] | None:
            present = [value for value in learner.read(pixels) if value is not None]
            return [round(float(v), 6) for v in np.mean(present, axis=0)] if present else None

        means = {
            name: mean([label.pixel for label in labels if label.name == name])
            for name in self.session.names
        }
        present_means = {name: values for name, values in means.items() if values is not None}
        return {"values": mean([(row, column)]), "classes": present_means}


def _pixel(request: dict[str, Any]) -> tuple[int, int]:
    row, column = request.get("row"), request.get("column")
    if not (type(row) is int and type(column) is int):
        raise InvalidRequest("The row and column of a pixel must be integers.")
    return row, column


def _name(request: dict[str, Any]) -> str:
    name = request.get("class")
    if not isinstance(name, str):
        raise InvalidRequest("Choose a class.")
    return name


class _Handler(RequestHandler):
    """Refuse requests that do not come from the page."""

    def initialize(self, page: Page, token: str, news: _News, pool: ThreadPoolExecutor) -> None:
        self.page, self.token, self.news, self.pool = page, token, news, pool

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Content-Security-Policy", _POLICY)
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")

    def prepare(self) -> None:
        """Check the host, the origin and the token, in this order.

        A page of another origin sends its origin. A page that has given this machine another name
        (DNS rebinding) sends a foreign host. Proxies and tunnels keep the host or add a header.
        """
        headers = self.request.headers
        host = headers.get("Host", "")
        proxied = "X-Forwarded-Host" in headers or "X-ProxyContextPath" in headers
        if not proxied and urlsplit(f"//{host}").hostname not in _HERE:
            raise HTTPError(403)
        origin = headers.get("Origin")
        own = {host, headers.get("X-Forwarded-Host", host)}
        if origin is not None and urlsplit(origin).netloc not in own:
            raise HTTPError(403)
        is_page = self.request.method == "GET" and self.path_kwargs.get("rest") == ""
        site = headers.get("Sec-Fetch-Site", "none")
        if not is_page and site not in ("same-origin", "none"):
            raise HTTPError(403)
        sent_token = str(self.path_kwargs.get("token", ""))
        if not hmac.compare_digest(sent_token.encode(), self.token.encode()):
            raise HTTPError(404)

    def write_error(self, status_code: int, **_: Any) -> None:
        self.finish(f"{status_code}: {responses.get(status_code, '')}\n")

    async def get(self, token: str, rest: str) -> None:
        response: Any = None
        first, *parts = rest.split("/")
        if rest in _FILES:
            name, kind = _FILES[rest]
            self.set_header("Content-Type", kind)
            response = files("daskclust.app.labeling").joinpath(name).read_bytes()
        elif rest == "state":
            await self.news.after(self._number("since", -1), self.page)
            response = self.page.state()
        elif rest == "spectrum":
            pixel = self._number("row"), self._number("column")
            if all(0 <= i < n for i, n in zip(pixel, self.page.session.shape, strict=True)):
                response = await self._run(self.page.spectrum, *pixel)
        elif first == "tile" and len(parts) == 4 and parts[0] in LAYERS:
            numbers = [int(part) if part.isdecimal() else -1 for part in parts[1:]]
            response = await self._run(self.page.tile, parts[0], *numbers)
            self.set_header("Content-Type", "image/png")
        if response is None:
            raise HTTPError(404)
        self.finish(response)

    async def post(self, token: str, rest: str) -> None:
        if rest != "act" or self.request.headers.get("Content-Type") != "application/json":
            raise HTTPError(404)
        try:
            action = json.loads(self.request.body)
        except ValueError as error:
            raise HTTPError(400) from error
        if not isinstance(action, dict):
            raise HTTPError(400)
        try:
            self.finish(await self._run(self.page.act, action))
        except Exception as error:  # errors of a cluster or a disk are shown on the page
            kind = "" if isinstance(error, InvalidRequest) else f"{type(error).__name__}: "
            self.set_status(409)
            self.finish({"refused": f"{kind}{redact(error)}"[:500], "state": self.page.state()})

    def write(self, chunk: Any) -> None:
        """Send values as JSON that browsers read."""
        if isinstance(chunk, dict):
            self.set_header("Content-Type", "application/json; charset=UTF-8")
            chunk = json_text(chunk)
        super().write(chunk)

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.pool, function, *args)

    def _number(self, name: str, default: int | None = None) -> int:
        text = self.get_query_argument(name, None if default is None else str(default))
        try:
            return int(text or "")
        except ValueError as error:
            raise HTTPError(400) from error

    def log_exception(self, *args: Any) -> None:
        """Log nothing: the page shows errors, and the command uses the terminal."""


class _News:
    """Wakes the tabs that wait for news."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def after(self, version: int, page: Page) -> None:
        """Wait until the page has another version, at most ``_MAX_WAIT`` seconds."""
        event = self._event
        if version == page.version:
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), _MAX_WAIT)


@contextmanager
def serve(page: Page, port: int = 0) -> Iterator[str]:
    """Serve a page on this machine in a new thread; yield its URL.  Port 0 means a free port."""
    token = secrets.token_urlsafe(24)
    listening = socket.create_server(("127.0.0.1", port))
    listening.setblocking(False)
    started = threading.Event()
    ended: list[Callable[[], Any]] = []

    async def main() -> None:
        news, end = _News(), asyncio.Event()
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(4, thread_name_prefix="daskclust-page")
        options = {"page": page, "token": token, "news": news, "pool": pool}
        routes = [(r"/(?P<token>[^/]*)/(?P<rest>.*)", _Handler, options)]
        application = Application(routes, log_function=lambda _: None)
        server = HTTPServer(application, max_body_size=_MAX_BYTES, max_buffer_size=_MAX_BYTES)
        server.add_socket(listening)
        page._news = lambda: loop.call_soon_threadsafe(news.wake)
        ended.append(lambda: loop.call_soon_threadsafe(end.set))
        started.set()
        await end.wait()
        page._news = lambda: None
        server.stop()
        await server.close_all_connections()
        pool.shutdown(wait=False, cancel_futures=True)

    run, name = asyncio.run, "daskclust-page"
    thread = threading.Thread(target=run, args=(main(),), name=name, daemon=True)
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/"
    finally:
        ended[0]()
        thread.join(2.0)
