"""Credentials never leave the process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import daskclust
from daskclust.app import cli
from daskclust.app.labeling.files import QuestionsFile
from daskclust.core.storage.redact import redact, redact_all
from daskclust.exceptions import CheckpointError
from daskclust.scenes.formats.geotiff import GeoTiff

SECRETS = ("hunter2", "SECRET", "KEY/WITH", "SIGNED", "TOKEN1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://bob:hunter2@host/s.zarr?sig=SECRET", "https://***@host/s.zarr?sig=***"),
        ("s3://AK:KEY/WITH+slash@bucket/x", "s3://***@bucket/x"),
        ("s3://AK:hunter2@bucket/a@b/c", "s3://***@bucket/a@b/c"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
        ("ftp://u:p:hunter2@h:21/x", "ftp://***@h:21/x"),
        ("http://[::1]:8080/a", "http://[::1]:8080/a"),
        ("https://h/x?X-Amz-Signature=SIGNED&b=SECRET#t=SECRET", None),
        ("simplecache::https://u:hunter2@h/x", "simplecache::https://***@h/x"),
        ("<FsspecStore(HTTPFileSystem, https://u:hunter2@h/x)>", None),
        ("404, message='no', url=URL('https://h/x?token=TOKEN1')", None),
        ("{'secret': 'hunter2', 'anon': False}", None),
        ("storage_options aws_secret_access_key=SECRET", None),
        ("<FsspecStore(Async, /bob:hunter2@host/x)>", "<FsspecStore(Async, /***@host/x)>"),
        ("cut off: h/x?sig=SECRET", None),
        ("account_key=SECRET, account_name=a", "account_key=***, account_name=a"),
        ("AccountName=a;AccountKey=SECRET==;EndpointSuffix=b", None),
        ("Authorization: Bearer SECRET", "Authorization: ***"),
        ("{'Authorization': 'Bearer SECRET and more'}", "{'Authorization': '***'}"),
        ("'auth': ('bob', 'hunter2')", "'auth': (***)"),
        ("auth=BasicAuth(login='bob', password='hunter2')", None),
        (
            "{'token': {'client_id': 'me', 'private_key': 'SECRET'}}",
            "{'token': {'client_id': 'me', 'private_key': '***'}}",
        ),
        ("private_key: SECRET, passphrase=SECRET; pwd=hunter2", None),
        ("{'session_token': b'SECRET'}", "{'session_token': b'***'}"),
        ("password='two words hunter2', x=1", "password='***', x=1"),
        ("https://h/x.zarr?SIGNED-SIGNED-SIGNED", "https://h/x.zarr?***"),
        ("https://h/x.zarr#SIGNED/SIGNED+SIGNED", "https://h/x.zarr#***"),
        ("https://h/x.zarr?SIGNED-SIGNED-SIGNED==", "https://h/x.zarr?***"),
        ("https://h/x.zarr?a_rather_long_name=SIGNED", "https://h/x.zarr?a_rather_long_name=***"),
        ("/vsicurl?header.Authorization=Bearer%20SECRET&url=http://h/x", None),
        ("https://h/x.nc#bytes", "https://h/x.nc#bytes"),
        (
            "the secretary: Bob; tokens: 3; tokenize=True; author: A",
            "the secretary: Bob; tokens: 3; tokenize=True; author: A",
        ),
        ("anon=True, token=None, signature=False", "anon=True, token=None, signature=False"),
        ("C:\\data at 10:30, k-means||: 3 passes", "C:\\data at 10:30, k-means||: 3 passes"),
        ("/home/a@b/scene.zarr::cube", "/home/a@b/scene.zarr::cube"),
    ],
)
def test_what_is_hidden_and_what_stays(text: str, expected: str | None) -> None:
    found = redact(text)
    assert not [secret for secret in SECRETS if secret in found]
    assert redact(found) == found
    if expected is not None:
        assert found == expected


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "part",
    [
        "x",
        "secret",
        "secret ",
        "secret='",
        'secret=b"a',
        "auth=(",
        "auth=",
        "#a",
        "http://h/?",
        "?",
        "&a",
        "a:(",
        "a://",
        " ",
    ],
)
def test_long_texts_take_no_longer_than_they_are(part: str) -> None:
    """Such as what is found in a damaged file: 100 kB of one letter took minutes."""
    text = part * (10**5 // len(part)) + "://u:hunter2@h"
    assert "hunter2" not in redact(text)


def test_values_inside_values() -> None:
    found = redact_all({"a": ["s3://k:hunter2@b", {"s3://k:hunter2@b": 1.5}], "b": None})
    assert found == {"a": ["s3://***@b", {"s3://***@b": 1.5}], "b": None}


@pytest.mark.system
def test_nothing_that_is_written_or_printed_holds_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A file system in memory uses any text of a URL as a path.
    url = "memory://bob:hunter2@host/scene.zarr?sig=SECRET"
    group = zarr.create_group(url, overwrite=True)
    values = np.random.default_rng(0).normal(size=(8, 8, 3)).astype("f4")
    array = group.create_array("cube", data=values, dimension_names=("y", "x", "band"))
    assert array.shape == (8, 8, 3)
    words = ["--n-clusters", "2", "--local", "1", "--dry-run", "--json"]
    assert cli.main(["fit", url, *words]) == 0
    cube = daskclust.open_cube(url)
    model = daskclust.KMeans(2, random_state=0).fit(cube.samples)
    job = {"cube": url, "scheduler": "tls://u:hunter2@h:1"}
    cube.write_labels(model.labels_, "l.zarr", attributes={"daskclust_job": job})
    from daskclust.app.report import write_report
    from daskclust.core.persistence.models import save

    save(model, "m.zarr", attributes={"daskclust_job": job})
    write_report("r.html", cube=cube, model=model, configuration=job, title=f"Of {url}")
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        content = file.read_bytes()
        assert b"hunter2" not in content, file
        assert b"SECRET" not in content, file
    assert b"bob" not in (tmp_path / "r.html").read_bytes()
    # Errors of the library, and of the libraries that it uses.
    asked = ["--n-clusters", "2", "--report", "never.html"]
    for words in (
        ["fit", "memory://bob:hunter2@nowhere/x?sig=SECRET"],
        ["fit", "coop://bob:hunter2@nowhere/x?sig=SECRET"],
        ["fit", "http://bob:hunter2@127.0.0.1:9/x?sig=SECRET"],
        ["inspect", "http://bob:hunter2@127.0.0.1:9/x?sig=SECRET"],
        ["fit", url, "--labels", "memory://bob:hunter2@x/y?sig=SECRET"],
        ["predict", url, "--model", "memory://a:hunter2@x/y?sig=SECRET", "--output", "p.zarr"],
        ["fit", url, "--output", url],
    ):
        words = [*words, *asked] if words[0] == "fit" else words
        with dask.config.set({"daskclust.read-backoff": "1ms"}):  # tried as often, without pauses
            assert cli.main(words) == 1, words
    captured = capsys.readouterr()
    assert "***" in captured.err
    for stream in captured:
        assert "hunter2" not in stream
        assert "SECRET" not in stream
    assert "Traceback" not in captured.err
    assert repr(cube._source).count("hunter2") == 0
    with pytest.raises(FileNotFoundError) as caught:
        daskclust.open_cube("memory://bob:hunter2@nowhere/x")
    assert "hunter2" not in str(caught.value)
    assert json.loads(json.dumps(job)) == job  # the caller's own stays as it is


SECRET = "bob:hunter2@127.0.0.1:9/scene{}?sig=hunter2"


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda: daskclust.KMeans(2, checkpoint=f"s3://{SECRET}").fit(np.eye(3)), CheckpointError),
        (lambda: daskclust.open_cube([f"http://{SECRET}".format(".tif")] * 2), OSError),
        (lambda: daskclust.open_cube([f"http://{SECRET}".format(".zarr")]), ValueError),
        (lambda: daskclust.open_cube(f"memory://{SECRET}".format(".nc")), FileNotFoundError),
        (lambda: GeoTiff(f"s3://{SECRET}".format(".tif"), "x").check(), ValueError),
        (lambda: QuestionsFile(f"s3://{SECRET}").check(), ValueError),
    ],
)
def test_errors_in_python_hold_none(work: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        work()
    assert "hunter2" not in str(caught.value)
    assert "***" in str(caught.value)
