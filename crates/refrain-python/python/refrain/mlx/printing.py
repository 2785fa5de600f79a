"""How arrays print."""

import array
import reprlib

from refrain import _core

EDGE = 3

_repr_of_numbers = reprlib.Repr.repr_array


def _repr_array(self: reprlib.Repr, x: object, level: int) -> str:
    """What `reprlib` calls for objects of a class with the name `array`: Python's own, and ours."""
    return _repr_of_numbers(self, x, level) if isinstance(x, array.array) else self.repr_instance(x, level)


reprlib.Repr.repr_array = _repr_array


class PrintOptions:
    """How numbers print: `precision` digits after the point, or -1 for six significant ones."""

    def __init__(self, precision: int = -1) -> None:
        self.precision = precision


class _PrintOptionsContext:
    """A `with` block in which other options hold."""

    def __init__(self, options: PrintOptions) -> None:
        self._options = options

    def __enter__(self) -> "_PrintOptionsContext":
        self._saved = _options.precision
        _options.precision = self._options.precision
        return self

    def __exit__(self, *args: object) -> None:
        _options.precision = self._saved


_options = PrintOptions()


def set_printoptions(precision: int = -1) -> None:
    """Sets how numbers print."""
    _options.precision = precision


def get_printoptions() -> PrintOptions:
    """How numbers print."""
    return PrintOptions(_options.precision)


def printoptions(precision: int = -1) -> _PrintOptionsContext:
    """A `with` block in which numbers print with another precision."""
    return _PrintOptionsContext(PrintOptions(precision))


def _number(element: object) -> str:
    if isinstance(element, float):
        return f"{element:.6g}" if _options.precision < 0 else f"{element:.{_options.precision}f}"
    if isinstance(element, complex):
        sign = "" if element.imag < 0 else "+"
        return f"{_number(element.real)}{sign}{_number(element.imag)}j"
    return str(element)


def _rows(content: object, depth: int, rank: int) -> str:
    if not isinstance(content, list):
        return _number(content)
    is_last = depth == rank - 1
    prefix = "" if is_last else " " * (7 + depth)
    items = [_rows(item, depth + 1, rank) for item in content]
    if len(items) > 2 * EDGE:
        items[EDGE:-EDGE] = ["..."]
    separator = ", " if is_last else ",\n" + prefix
    return "[" + separator.join(items) + "]"


def _shortened(array: "_core.array") -> "_core.array":
    """The array without the elements that do not print, but with one in the place of the dots."""
    for axis, length in enumerate(array.shape):
        if length > 2 * EDGE + 1:
            indices = _core.array([*range(EDGE + 1), *range(length - EDGE, length)])
            array = _core.take(array, indices, axis)
    return array


def representation(array: "_core.array") -> str:
    """The array as text, long axes shortened."""
    content = _shortened(array).tolist()
    return f"array({_rows(content, 0, array.ndim)}, dtype={repr(array.dtype).removeprefix('mlx.core.')})"
