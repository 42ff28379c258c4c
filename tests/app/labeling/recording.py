"""Record the page while it is used, as a small animated picture: ``docs/_static/label-page.gif``.

``python tests/app/labeling/recording.py FOLDER`` with the folder of ``hsi_salinas_a.npz``.
Needs Chromium and Pillow.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
from browser import Browser
from PIL import Image
from test_page_in_a_browser import READY, answer, running

SIZE = (960, 680)
#: Answers, and those after which a picture is taken; milliseconds of one, and of the last.
ANSWERS, SHORT, LONG = 24, 450, 3000
NAMES = {1: "broccoli", 10: "corn", 11: "lettuce 4", 12: "lettuce 5", 13: "lettuce 6"}
NAMES[14] = "lettuce 7"
TARGET = Path(__file__).parents[3] / "docs" / "_static" / "label-page.gif"


def record(data: Path) -> None:
    """Answer questions about Salinas-A, and write what a window shows."""
    with np.load(data / "hsi_salinas_a.npz") as arrays:
        image, truth = arrays["cube"].astype(np.float32), arrays["gt"]
    named = np.vectorize(lambda code: NAMES.get(code, "0"), otypes=[object])(truth)
    frames: list[Image.Image] = []
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "scene.npy"), image)
        arguments = ("scene.npy", "--dims", "y,x,band", "--local", "1")
        classes = ("--classes", ",".join(NAMES.values()))
        with running(Path(folder), *arguments, *classes) as (url, _), Browser(*SIZE) as browser:
            shot = Path(folder, "shot.png")

            def keep() -> None:
                browser.press("0")  # the whole scene
                browser.run("new Promise(done => setTimeout(done, 400))")
                browser.picture(shot)
                frames.append(Image.open(io.BytesIO(shot.read_bytes())).convert("RGB"))

            browser.open(url)
            browser.wait(READY, 300)
            keep()
            for count in range(1, ANSWERS + 1):
                answer(browser, named, count)
                # From the scene alone to the map.
                keep()
            browser.run("document.querySelector('#opacity').value = 90")
            browser.run("document.querySelector('#opacity').dispatchEvent(new Event('input'))")
            keep()
    # One palette for all: colors do not flicker, and what stays is not stored again.
    some = frames[:: len(frames) // 3]
    width, height = frames[0].size
    sheet = Image.new("RGB", (width, height * len(some)))
    for at, frame in enumerate(some):
        sheet.paste(frame, (0, height * at))
    palette = sheet.quantize(160, dither=Image.Dither.NONE)
    first, *rest = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames)
    times = [LONG // 2, *[SHORT] * (len(rest) - 1), LONG]
    first.save(TARGET, save_all=True, append_images=rest, duration=times, loop=0, optimize=True)
    print(f"{TARGET}: {len(frames)} pictures, {TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
