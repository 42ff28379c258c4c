"""Passes of an ensemble of mixtures: products with its features' Gram matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.kernels.mixtures.posteriors import add_gram, features
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock

__all__ = ["GRAM", "GRAM_KEPT", "GramRequest"]


@dataclass(frozen=True)
class GramRequest:
    """Ask for the Gram matrix of the posteriors under an ensemble, times a basis.

    Parameters
    ----------
    mixtures : Mixtures
        All members, D components.
    shift : ndarray of shape (p,), float64
        A point amid the data.
    basis : ndarray of shape (D, l), float64, optional
        The matrix itself is meant where there is none.
    dtype : numpy.dtype
        float32 or float64, in which posteriors are kept and multiplied.
    """

    mixtures: Mixtures
    shift: Floats
    basis: Floats | None
    dtype: Any


def _fields(state: GramRequest) -> Mapping[str, Field]:
    d = len(state.mixtures.weights)
    return {"sums": Field((2, d, d if state.basis is None else state.basis.shape[1]))}


def _block(rows: RowBlock, state: GramRequest, carry: Array | None) -> tuple[Partial, Array]:
    kept = features(rows.x, state.mixtures, state.shift, state.dtype) if carry is None else carry
    return _sums(rows, state, kept), kept


def _sums(rows: RowBlock, state: GramRequest, kept: Array | None) -> Partial:
    return {
        "sums": add_gram(
            rows.x,
            state.mixtures,
            state.shift,
            state.basis,
            weight=rows.weight,
            segments=rows.segments(),
            dtype=state.dtype,
            kept=kept,
        )
    }


def _recomputed(rows: RowBlock, state: GramRequest) -> Partial:
    return _sums(rows, state, None)


def _finalize(partial: Partial, state: GramRequest) -> Floats:
    return np.asarray(partial["sums"][0])


#: Gram matrix of the posteriors, times a basis; nothing is kept between passes.
GRAM = Reduction("gram", _fields, _recomputed, _finalize)
#: The same, with each block's posteriors kept from pass to pass.
GRAM_KEPT = Reduction("gram-kept", _fields, _block, _finalize, carries=True)
