"""The tables of measurements in the documentation are those of the stored results."""

from __future__ import annotations

import page_tables
import pytest


@pytest.mark.skipif(not page_tables.DOCS.is_dir(), reason="a source release has no docs")
def test_tables_are_written_from_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert page_tables.main(["--check"]) == 0, capsys.readouterr().out


def test_a_wrong_number_is_replaced() -> None:
    page = "<!-- table: gains by pairs -->\n| pairs |\n<!-- end -->\n"
    new = page_tables.written(page)
    assert new.count("\n") == 7
    assert page_tables.written(new.replace("0.0", "0.9")) == new
