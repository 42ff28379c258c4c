"""Files at URLs: which of them a pattern means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from daskclust.core.storage.files import matching


class Hosted(LocalFileSystem):
    """Files of a host that is not part of their names, as in FTP, SFTP and HDFS."""

    protocol = "hosted"

    def __init__(self, host: str = "", **options: Any) -> None:
        if host != "me:secret@host":
            raise ConnectionError(f"no such host: {host!r}")
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        _, scheme, rest = path.rpartition("hosted://")
        return "/" + rest.partition("/")[2] if scheme else super()._strip_protocol(path)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return {"host": path.removeprefix("hosted://").partition("/")[0]}

    def unstrip_protocol(self, name: str) -> str:
        return f"hosted://{name}"


class Listed(AsyncFileSystem):
    """An object store with a listing of its own, which knows no ``on_error``."""

    protocol = "listed"
    async_impl = True

    async def _find(self, path: str, **options: Any) -> list[str]:
        raise AssertionError("asked as if it walked through folders")


@pytest.fixture(autouse=True)
def known() -> None:
    for kind in (Hosted, Listed):
        fsspec.register_implementation(kind.protocol, kind, clobber=True)


def test_hosts_and_users_stay(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
    url = f"hosted://me:secret@host{tmp_path}"
    found = matching(f"{url}/*.csv")
    assert found == [f"{url}/a.csv", f"{url}/b.csv"]
    for file in found:
        with fsspec.open(file, "rt") as opened:
            assert opened.read() == "x\n1\n"
    with pytest.raises(FileNotFoundError, match=r"'hosted://\*\*\*@host/.*no\*'"):
        matching(f"{url}/no*")


@pytest.mark.parametrize("place", ["a.csv", "a*.csv", "memory://a.csv", "listed://bucket/a*.csv"])
def test_other_places_are_one(place: str) -> None:
    assert matching(place) == [place]
