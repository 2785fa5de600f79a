"""Functions of `mlx.core` that are composed of others."""

import math
from collections.abc import Sequence

from refrain import _core

array = _core.array


def positive(a: "_core.array", /, *, stream: object = None) -> "_core.array":
    """The same elements."""
    return a


def divmod(a: object, b: object, stream: object = None) -> tuple:
    """The quotient, rounded down, and the remainder."""
    return _core.floor_divide(a, b), _core.remainder(a, b)


def logical_xor(a: object, b: object, /, *, stream: object = None) -> "_core.array":
    """Whether exactly one element is not zero."""
    return _core.not_equal(_core.not_equal(a, 0), _core.not_equal(b, 0))


def matrix_transpose(a: "_core.array", /, *, stream: object = None) -> "_core.array":
    """The array with its last two axes swapped."""
    if a.ndim < 2:
        raise ValueError("[matrix_transpose] Array must have at least 2 dimensions.")
    return _core.swapaxes(a, -1, -2)


def real(a: "_core.array", /, *, stream: object = None) -> "_core.array":
    """The real parts: the array itself, as there are no complex ones."""
    return a


def imag(a: "_core.array", /, *, stream: object = None) -> "_core.array":
    """The imaginary parts: zeros, as there are no complex arrays."""
    return _core.zeros_like(a)


def conj(a: "_core.array", /, *, stream: object = None) -> "_core.array":
    """The conjugates: the array itself, as there are no complex ones."""
    return a


conjugate = conj


def unstack(x: "_core.array", /, *, axis: int = 0, stream: object = None) -> tuple:
    """The parts of an array along an axis, without the axis."""
    if not -x.ndim <= axis < x.ndim:
        raise _core._AxisError(f"[unstack] Invalid axis {axis} for array with {x.ndim} dimensions.")
    return tuple(_core.squeeze(part, axis) for part in _core.split(x, x.shape[axis], axis)) if x.shape[axis] else ()


def minmax(a: "_core.array", /, axis: object = None, keepdims: bool = False, *, stream: object = None) -> tuple:
    """The least and the greatest elements along axes, or of all."""
    return _core.min(a, axis, keepdims), _core.max(a, axis, keepdims)


def count_nonzero(
    a: "_core.array", /, *, axis: object = None, keepdims: bool = False, stream: object = None
) -> "_core.array":
    """How many elements along axes, or of all, are not zero."""
    return _core.sum(_core.not_equal(a, 0).astype(_core.int32), axis, keepdims)


def empty(shape: int | Sequence[int], dtype: "_core.Dtype | None" = None, *, stream: object = None) -> "_core.array":
    """An array whose elements are of no interest: zeros."""
    return _core.zeros(shape, dtype)


def empty_like(a: "_core.array", /, dtype: "_core.Dtype | None" = None, *, stream: object = None) -> "_core.array":
    """An array like another one whose elements are of no interest: zeros."""
    return _core.zeros_like(a, dtype)


def _window(m: int, weights: Sequence[float]) -> "_core.array":
    if m < 1:
        return _core.zeros((0,), _core.float32)
    if m == 1:
        return _core.ones((1,), _core.float32)
    angle = 2 * math.pi / (m - 1)
    return _core.array(
        [sum(weight * math.cos(k * angle * n) for k, weight in enumerate(weights)) for n in range(m)],
        _core.float32,
    )


def hanning(M: int, *, stream: object = None) -> "_core.array":
    """The Hanning window of M points."""
    return _window(M, (0.5, -0.5))


def hamming(M: int, *, stream: object = None) -> "_core.array":
    """The Hamming window of M points."""
    return _window(M, (0.54, -0.46))


def blackman(M: int, *, stream: object = None) -> "_core.array":
    """The Blackman window of M points."""
    return _window(M, (0.42, -0.5, 0.08))


def bartlett(M: int, *, stream: object = None) -> "_core.array":
    """The Bartlett window of M points."""
    if M < 2:
        return _window(M, ())
    return _core.array([1 - abs(2 * n / (M - 1) - 1) for n in range(M)], _core.float32)


def vecdot(a: "_core.array", b: "_core.array", /, *, axis: int = -1, stream: object = None) -> "_core.array":
    """The dot products along an axis."""
    return _core.sum(_core.multiply(a, b), axis)


def _at_least(rank: int, arys: tuple, expand) -> object:
    expanded = [expand(one if isinstance(one, array) else array(one)) for one in arys]
    return expanded[0] if len(expanded) == 1 else expanded


def atleast_1d(*arys: "_core.array", stream: object = None) -> object:
    """The arrays with at least one dimension."""
    return _at_least(1, arys, lambda a: a.reshape(1) if a.ndim == 0 else a)


def atleast_2d(*arys: "_core.array", stream: object = None) -> object:
    """The arrays with at least two dimensions."""
    return _at_least(2, arys, lambda a: a.reshape(1, -1) if a.ndim < 2 else a)


def atleast_3d(*arys: "_core.array", stream: object = None) -> object:
    """The arrays with at least three dimensions."""

    def expand(a: "_core.array") -> "_core.array":
        if a.ndim < 2:
            return a.reshape(1, -1, 1)
        return _core.expand_dims(a, 2) if a.ndim == 2 else a

    return _at_least(3, arys, expand)


def diff(a: "_core.array", /, n: int = 1, axis: int = -1, *, stream: object = None) -> "_core.array":
    """The n-th differences of neighbours along an axis."""
    if n < 0:
        raise ValueError("[diff] n must not be negative")
    for _ in range(n):
        length = a.shape[axis]
        indices = _core.arange(length)
        later, earlier = _core.take(a, indices[1:], axis), _core.take(a, indices[:-1], axis)
        a = _core.not_equal(later, earlier) if a.dtype == _core.bool_ else _core.subtract(later, earlier)
    return a
