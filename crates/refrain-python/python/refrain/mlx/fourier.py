"""`mlx.core.fft`: frequencies and shifts. The transforms are not there yet."""

from collections.abc import Sequence

from refrain import _core


def fftfreq(n: int, d: float = 1.0, stream: object = None) -> "_core.array":
    """The frequencies of a transform of n points."""
    half = (n + 1) // 2
    return _core.array([k / (n * d) for k in [*range(half), *range(half - n, 0)]], _core.float32)


def rfftfreq(n: int, d: float = 1.0, stream: object = None) -> "_core.array":
    """The frequencies of a transform of n real points."""
    return _core.array([k / (n * d) for k in range(n // 2 + 1)], _core.float32)


def _shift(a: "_core.array", axes: int | Sequence[int] | None, halves) -> "_core.array":
    chosen = list(range(a.ndim)) if axes is None else [axes] if isinstance(axes, int) else list(axes)
    return _core.roll(a, [halves(a.shape[axis]) for axis in chosen], chosen)


def fftshift(a: "_core.array", axes: int | Sequence[int] | None = None, stream: object = None) -> "_core.array":
    """The array with frequency zero in the middle."""
    return _shift(a, axes, lambda length: length // 2)


def ifftshift(a: "_core.array", axes: int | Sequence[int] | None = None, stream: object = None) -> "_core.array":
    """The array with frequency zero at the start."""
    return _shift(a, axes, lambda length: -(length // 2))
