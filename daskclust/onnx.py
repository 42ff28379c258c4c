"""Export of ``predict`` to ONNX, for programs without Python or Dask."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskclust.config import check_choice
from daskclust.core.estimator.base import center_space, label_function
from daskclust.core.estimator.transforms import UnitSphere, Whitened
from daskclust.core.estimator.validation import is_partial

__all__ = ["to_onnx"]

#: Versions of the operators and of the file format, low enough for older runtimes.
_OPSET, _IR_VERSION = 18, 9


def to_onnx(model: Any, *, dtype: Literal["float32", "float64"] = "float32") -> Any:
    """Return ``predict`` of a model with centers as an ONNX model.

    The graph is one matrix product and an ``ArgMin``.  Feature weights and metrics are part of the
    matrix.

    Parameters
    ----------
    model : estimator
        A fitted KMeans, SemiSupervisedKMeans, SparseKMeans, DPMeans, or constrained k-means
        (PCKMeans, PCSKMeans, MPCKMeans, COPKMeans).
    dtype : {"float32", "float64"}, default="float32"
        Type of the input and of the computation.

    Returns
    -------
    onnx.ModelProto
        Input ``X`` (n, p): complete rows, as an array for ``predict``.  They must be scaled if
        the model was fitted to scaled rows.  Output ``label`` (n,), int64.

    Raises
    ------
    ImportError
        If ``onnx`` is not installed.
    TypeError
        For estimators whose ``predict`` is not the nearest center.
    ValueError
        For models with ``missing="partial"``, and centers that `dtype` cannot represent.
    NotFittedError
        If the model is not fitted.

    Notes
    -----
    Labels equal those of ``predict``, except for rows whose distances to two centers differ by
    less than the rounding error of `dtype`.  The graph does not check its input: rows with NaN
    get any label.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> from daskclust.onnx import to_onnx
    >>> X = np.array([[0.0], [1.0], [9.0]])
    >>> graph = to_onnx(daskclust.KMeans(2, random_state=0).fit(X))  # doctest: +SKIP
    >>> open("model.onnx", "wb").write(graph.SerializeToString())  # doctest: +SKIP
    """
    check_choice(dtype, "dtype", ("float32", "float64"))
    check_is_fitted(model)
    space = center_space(model)
    if space is None or label_function(model, np.dtype(dtype)) is None:
        raise TypeError(
            "model must be an estimator that assigns rows to the nearest center (KMeans, "
            "SemiSupervisedKMeans, SparseKMeans, DPMeans, PCKMeans, PCSKMeans, MPCKMeans, "
            f"COPKMeans), got {type(model).__name__}. Use predict in Python for this model."
        )
    if is_partial(model):
        raise ValueError(
            'model must be fitted with missing="error", because the graph does not support missing '
            'values, got missing="partial".'
        )
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError as error:
        raise ImportError("onnx is not installed. Use: pip install 'daskclust[onnx]'") from error

    shift, matrix, offset = _scores(space.centers, space.metric, space.feature_weights)
    kind = TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE
    values = {"shift": shift, "matrix": matrix, "offset": offset}
    largest = [np.abs(each).max() for each in values.values()]
    limits = np.finfo(dtype)
    # Too small products of different centers would be rounded to 0.
    if max(largest) > limits.max or (matrix.any() and min(largest[1:]) < limits.tiny):
        raise ValueError(
            f"Centers must have values and squares that {dtype} can represent. Rescale the rows."
        )
    constants = [numpy_helper.from_array(each.astype(dtype), name) for name, each in values.items()]
    nodes = [
        helper.make_node("Sub", ["X", "shift"], ["moved"]),
        helper.make_node("MatMul", ["moved", "matrix"], ["products"]),
    ]
    terms = "offset"
    if isinstance(space.metric, UnitSphere):
        # Scores of rows of unit length, multiplied by the length of the row.
        constants.append(numpy_helper.from_array(np.array([1]), "axes"))
        nodes.append(helper.make_node("ReduceL2", ["X", "axes"], ["length"]))
        nodes.append(helper.make_node("Mul", ["length", "offset"], ["terms"]))
        terms = "terms"
    nodes.append(helper.make_node("Add", ["products", terms], ["scores"]))
    nodes.append(helper.make_node("ArgMin", ["scores"], ["label"], axis=1, keepdims=0))
    graph = helper.make_graph(
        nodes,
        type(model).__name__,
        [helper.make_tensor_value_info("X", kind, ["n", len(shift)])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, ["n"])],
        constants,
    )
    exported = helper.make_model(
        graph,
        producer_name="daskclust",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    checker.check_model(exported)
    return exported


def _scores(centers: Any, metric: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return shift, matrix and offset; ``(x - shift) @ matrix + offset`` ranks like distances."""
    weights = np.ones(centers.shape[1]) if weights is None else weights
    if isinstance(metric, UnitSphere):
        # Directions are not shifted.
        return np.zeros(centers.shape[1]), -2.0 * centers.T, (centers**2).sum(axis=1)
    forward = metric.forward if isinstance(metric, Whitened) else None
    shift = metric.mean if forward is not None else centers.mean(axis=0)
    moved = centers if forward is not None else centers - shift
    matrix = -2.0 * (weights * moved).T
    offset = (weights * moved**2).sum(axis=1)
    return shift, matrix if forward is None else forward @ matrix, offset
