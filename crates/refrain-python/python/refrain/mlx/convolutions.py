"""Convolutions of any number of axes: inputs `[N, …, C]`, weights `[O, …, C / groups]`."""

from collections.abc import Sequence

from refrain import _core

Extents = int | Sequence[int]


def _each(value: Extents, axes: int, name: str) -> list[int]:
    """One number for every axis."""
    if isinstance(value, int):
        return [value] * axes
    values = list(value)
    if len(values) == 1:
        return values * axes
    if len(values) != axes:
        raise ValueError(f"[conv] Invalid {name} for {axes} spatial dimensions: {values}")
    return values


def _axis(a: "_core.array", axis: int, part: slice) -> "_core.array":
    return a[(slice(None),) * axis + (part,)]


def _dilated(a: "_core.array", axis: int, step: int) -> "_core.array":
    """The array with step - 1 zeros between neighbours along an axis."""
    if step == 1:
        return a
    parts = [_core.expand_dims(a, axis + 1)]
    parts += [_core.zeros_like(parts[0])] * (step - 1)
    joined = _core.flatten(_core.concatenate(parts, axis + 1), axis, axis + 1)
    return _axis(joined, axis, slice(0, (a.shape[axis] - 1) * step + 1))


def _cut(a: "_core.array", axis: int, before: int, after: int) -> "_core.array":
    """The array without elements at the ends of an axis: negative padding."""
    return _axis(a, axis, slice(max(-before, 0), a.shape[axis] - max(-after, 0)))


def conv_general(
    input: "_core.array",
    weight: "_core.array",
    /,
    stride: Extents = 1,
    padding: Extents | tuple[Sequence[int], Sequence[int]] = 0,
    kernel_dilation: Extents = 1,
    input_dilation: Extents = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    stream: object = None,
) -> "_core.array":
    """A convolution with every option: dilated inputs, other padding at each end, turned weights."""
    axes = input.ndim - 2
    if axes < 1:
        raise ValueError(f"[conv] Invalid input array with {input.ndim} dimensions: at least 3 are expected.")
    if isinstance(padding, tuple) and len(padding) == 2 and not isinstance(padding[0], int):
        before, after = (_each(one, axes, "padding") for one in padding)
    else:
        before = after = _each(padding, axes, "padding")
    for at, step in enumerate(_each(input_dilation, axes, "input dilation")):
        input = _cut(_dilated(input, at + 1, step), at + 1, before[at], after[at])
    if flip:
        weight = _core.flip(weight, list(range(1, axes + 1)))
    pairs = [(max(low, 0), max(high, 0)) for low, high in zip(before, after, strict=True)]
    strides, dilations = _each(stride, axes, "stride"), _each(kernel_dilation, axes, "kernel dilation")
    return _core._convolve(input, weight, strides, pairs, dilations, groups)


def _check(name: str, input: "_core.array", axes: int) -> None:
    if input.ndim != axes + 2:
        raise ValueError(f"[{name}] Invalid input array with {input.ndim} dimensions: {axes + 2} are expected.")


def _forward(name: str, axes: int):
    def convolution(
        input: "_core.array",
        weight: "_core.array",
        /,
        stride: Extents = 1,
        padding: Extents = 0,
        dilation: Extents = 1,
        groups: int = 1,
        *,
        stream: object = None,
    ) -> "_core.array":
        _check(name, input, axes)
        return conv_general(input, weight, stride, padding, dilation, 1, groups)

    convolution.__name__ = name
    convolution.__doc__ = f"A convolution along {axes} axes."
    return convolution


def _transposed(name: str, axes: int):
    def convolution(
        input: "_core.array",
        weight: "_core.array",
        /,
        stride: Extents = 1,
        padding: Extents = 0,
        dilation: Extents = 1,
        output_padding: Extents = 0,
        groups: int = 1,
        *,
        stream: object = None,
    ) -> "_core.array":
        _check(name, input, axes)
        dilations, further = _each(dilation, axes, "dilation"), _each(output_padding, axes, "output padding")
        before, after = [], []
        for at, width in enumerate(_each(padding, axes, "padding")):
            reach = dilations[at] * (weight.shape[at + 1] - 1)
            before.append(reach - width)
            after.append(reach - width + further[at])
        return conv_general(input, weight, 1, (before, after), dilations, stride, groups, True)

    convolution.__name__ = name
    convolution.__doc__ = f"The transpose of a convolution along {axes} axes."
    return convolution


conv2d = _forward("conv2d", 2)
conv3d = _forward("conv3d", 3)
conv_transpose1d = _transposed("conv_transpose1d", 1)
conv_transpose2d = _transposed("conv_transpose2d", 2)
conv_transpose3d = _transposed("conv_transpose3d", 3)


def convolve(a: "_core.array", v: "_core.array", /, mode: str = "full", *, stream: object = None) -> "_core.array":
    """The discrete convolution of two vectors."""
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError("[convolve] Inputs must be 1D.")
    if a.size == 0 or v.size == 0:
        raise ValueError("[convolve] Inputs cannot be empty.")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"[convolve] Invalid mode '{mode}'.")
    long, short = (a, v) if a.size >= v.size else (v, a)
    widths = {
        "full": (short.size - 1, short.size - 1),
        "same": (short.size // 2, short.size - 1 - short.size // 2),
        "valid": (0, 0),
    }
    before, after = widths[mode]
    found = conv_general(long.reshape(1, -1, 1), short.reshape(1, -1, 1), 1, ([before], [after]), flip=True)
    return found.reshape(-1)
