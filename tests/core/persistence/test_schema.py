"""Entries of saved models: tuples of values, and optional dataclasses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust.core.persistence.schema import Array, Fields, Number, OneOf, Several
from daskclust.exceptions import ModelFormatError


@dataclass(frozen=True)
class Part:
    values: np.ndarray
    count: int


ENTRY = Several(OneOf({Part: Fields({"values": Array("k p"), "count": Number(int)})}))


def test_items_have_their_own_sizes_and_share_those_of_the_model() -> None:
    parts = (Part(np.ones((2, 3)), 5), Part(np.zeros((4, 3)), 6))
    meta, arrays = ENTRY.store("parts", parts)
    assert sorted(arrays) == ["parts.0.values", "parts.1.values"]
    restored = ENTRY.restore("parts", meta, dict(arrays), {"p": 3})
    assert [part.count for part in restored] == [5, 6]
    for part, other in zip(parts, restored, strict=True):
        assert_array_equal(part.values, other.values)
    with pytest.raises(ModelFormatError, match=r"parts\.0\.values must have shape"):
        ENTRY.restore("parts", meta, dict(arrays), {"p": 4})


@pytest.mark.parametrize("meta", [None, [], {"kind": "Part"}])
def test_a_tuple_without_items_is_refused(meta: object) -> None:
    with pytest.raises(ModelFormatError, match="parts must be a list with items"):
        ENTRY.restore("parts", meta, {}, {})


def test_only_an_optional_dataclass_may_be_none() -> None:
    fields = {Part: Fields({"values": Array("k p"), "count": Number(int)})}
    optional = OneOf(fields, optional=True)
    assert optional.store("part", None) == (None, {})
    assert optional.restore("part", None, {}, {}) is None
    with pytest.raises(ModelFormatError, match="part must be one of"):
        OneOf(fields).restore("part", None, {}, {})
