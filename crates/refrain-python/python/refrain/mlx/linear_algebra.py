"""`mlx.core.linalg`: norms and cross products."""

import math
from collections.abc import Sequence

from refrain import _core


def _vector_norm(a: "_core.array", order: float, axis: object, keepdims: bool) -> "_core.array":
    if order == 0:
        return _core.sum(_core.not_equal(a, 0).astype(a.dtype), axis, keepdims)
    if order == 1:
        return _core.sum(_core.abs(a), axis, keepdims)
    if order == 2:
        return _core.sqrt(_core.sum(_core.square(a), axis, keepdims))
    if order == math.inf:
        return _core.max(_core.abs(a), axis, keepdims)
    if order == -math.inf:
        return _core.min(_core.abs(a), axis, keepdims)
    return _core.power(_core.sum(_core.power(_core.abs(a), order), axis, keepdims), 1.0 / order)


def _matrix_norm(a: "_core.array", order: object, axis: Sequence[int], keepdims: bool) -> "_core.array":
    row, column = axis
    if order in ("f", "fro"):
        return _core.sqrt(_core.sum(_core.square(_core.abs(a)), axis, keepdims))
    if order in (1, -1, math.inf, -math.inf):
        summed, searched = (row, column) if abs(order) == 1 else (column, row)
        sums = _core.sum(_core.abs(a), summed, True)
        search = _core.max if order > 0 else _core.min
        found = search(sums, searched, True)
        return found if keepdims else _core.squeeze(found, list(axis))
    if order in (2, -2, "nuc"):
        raise NotImplementedError("[linalg.norm] norms of singular values are not supported by Refrain yet")
    raise ValueError(f"[linalg.norm] Invalid ord value '{order}' for matrix norm.")


def norm(
    a: "_core.array",
    /,
    ord: int | float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    stream: object = None,
) -> "_core.array":
    """The norm of vectors or matrices."""
    if not _is_inexact(a):
        a = a.astype(_core.float32)
    if ord is None:
        return _core.sqrt(_core.sum(_core.square(_core.abs(a)), axis, keepdims))
    axes = list(range(a.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"[linalg.norm] Invalid ord value '{ord}' for vector norm.")
        return _vector_norm(a, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(a, ord, axes, keepdims)
    raise ValueError("[linalg.norm] Received too many axes for norm.")


def _is_inexact(a: "_core.array") -> bool:
    return a.dtype in (_core.float16, _core.bfloat16, _core.float32, _core.float64, _core.complex64)


def cross(a: "_core.array", b: "_core.array", axis: int = -1, *, stream: object = None) -> "_core.array":
    """The cross products of vectors of 3 elements; of 2, the third element is zero."""

    def parts(vector: "_core.array") -> list:
        length = vector.shape[axis]
        if length not in (2, 3):
            raise ValueError("[linalg.cross] The specified axis must have size 2 or 3.")
        found = _core.split(vector, length, axis)
        return found if length == 3 else [*found, _core.zeros_like(found[0])]

    (a0, a1, a2), (b0, b1, b2) = parts(a), parts(b)
    third = a0 * b1 - a1 * b0
    if a.shape[axis] == 2 and b.shape[axis] == 2:
        return _core.squeeze(third, axis)
    return _core.concatenate([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, third], axis)
