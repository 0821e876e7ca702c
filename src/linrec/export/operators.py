"""What torch has and ONNX has not, made of what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def cummax(x: Any, dim: int) -> tuple[Any, Any]:
    """The running maximum and where it stands: every pair along `dim` is compared.

    N numbers take [N, N] comparisons; the graphs have at most a chunk of them, or a softmax's
    matrix of the same size.
    """
    from onnxscript import opset18

    op: Any = opset18
    rank = len(x.shape)
    order = [axis for axis in range(rank) if axis != dim % rank] + [dim % rank]
    last = op.Transpose(x, perm=order)  # [..., N]
    length = op.Squeeze(op.Shape(last, start=rank - 1))
    place = op.Range(op.Constant(value_int=0), length, op.Constant(value_int=1))
    rows, columns = (op.Unsqueeze(place, op.Constant(value_ints=[axis])) for axis in (1, 0))
    past = op.GreaterOrEqual(rows, columns)  # [N, N]
    lowest = op.CastLike(op.Constant(value_float=torch.finfo(torch.float32).min), x)
    seen = op.Where(past, op.Unsqueeze(last, op.Constant(value_ints=[-2])), lowest)
    highest = op.ReduceMax(seen, op.Constant(value_ints=[-1]), keepdims=0)
    where = op.ArgMax(seen, axis=-1, keepdims=0)
    back = [order.index(axis) for axis in range(rank)]
    return op.Transpose(highest, perm=back), op.Transpose(where, perm=back)


def bucketize(x: Any, bounds: Any, out_int32: bool = False, right: bool = False) -> Any:
    """How many of the bounds, which are in order, are not above each number."""
    from onnxscript import opset18

    op: Any = opset18
    assert right
    assert not out_int32
    passed = op.GreaterOrEqual(op.Unsqueeze(x, op.Constant(value_ints=[-1])), bounds)
    counted = op.CastLike(passed, op.Constant(value_int=0))
    return op.ReduceSum(counted, op.Constant(value_ints=[-1]), keepdims=0)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.cummax.default: cummax,
    torch.ops.aten.bucketize.Tensor: bucketize,
}
