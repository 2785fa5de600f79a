"""Categories and limits of dtypes."""

import enum

from refrain import _core


class DtypeCategory(enum.Enum):
    """A group of dtypes."""

    complexfloating = 0
    floating = 1
    inexact = 2
    signedinteger = 3
    unsignedinteger = 4
    integer = 5
    number = 6
    generic = 7


_ANCESTORS = {
    "generic": None,
    "number": "generic",
    "inexact": "number",
    "integer": "number",
    "floating": "inexact",
    "complexfloating": "inexact",
    "signedinteger": "integer",
    "unsignedinteger": "integer",
}

_CATEGORIES = {
    _core.bool_: "generic",
    _core.uint8: "unsignedinteger",
    _core.uint16: "unsignedinteger",
    _core.uint32: "unsignedinteger",
    _core.uint64: "unsignedinteger",
    _core.int8: "signedinteger",
    _core.int16: "signedinteger",
    _core.int32: "signedinteger",
    _core.int64: "signedinteger",
    _core.float16: "floating",
    _core.bfloat16: "floating",
    _core.float32: "floating",
    _core.float64: "floating",
    _core.complex64: "complexfloating",
}

# The kinds of the array API standard.
_KINDS = {
    "bool": ("bool_",),
    "signed integer": ("signedinteger",),
    "unsigned integer": ("unsignedinteger",),
    "integral": ("signedinteger", "unsignedinteger"),
    "real floating": ("floating",),
    "complex floating": ("complexfloating",),
    "numeric": ("signedinteger", "unsignedinteger", "floating", "complexfloating"),
}


def issubdtype(arg1: "_core.Dtype | DtypeCategory", arg2: "_core.Dtype | DtypeCategory") -> bool:
    """Whether the first is the second, or belongs to it."""
    if isinstance(arg2, _core.Dtype):
        return arg1 == arg2
    category = _CATEGORIES[arg1] if isinstance(arg1, _core.Dtype) else arg1.name
    while category is not None:
        if category == arg2.name:
            return True
        category = _ANCESTORS[category]
    return False


def isdtype(dtype: "_core.Dtype", kind: object) -> bool:
    """Whether a dtype is of a kind of the array API standard: a dtype, a name, or a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, _core.Dtype):
        return dtype == kind
    if kind not in _KINDS:
        raise ValueError(f"[isdtype] unknown kind {kind!r}")
    category = "bool_" if dtype == _core.bool_ else _CATEGORIES[dtype]
    return category in _KINDS[kind]


def _bits_of_float(dtype: "_core.Dtype") -> tuple[int, int]:
    """Bits of the exponent and of the fraction."""
    widths = {
        _core.float16: (5, 10),
        _core.bfloat16: (8, 7),
        _core.float32: (8, 23),
        _core.float64: (11, 52),
        _core.complex64: (8, 23),
    }
    if dtype not in widths:
        raise ValueError(f"[finfo] dtype {dtype!r} is not inexact.")
    return widths[dtype]


class finfo:
    """Limits of a floating-point dtype."""

    def __init__(self, arg: "_core.Dtype") -> None:
        exponent, fraction = _bits_of_float(arg)
        highest = 2 ** (exponent - 1) - 1
        self.dtype = _core.float32 if arg == _core.complex64 else arg
        self.bits = 8 * self.dtype.size
        self.max = (2.0 - 2.0**-fraction) * 2.0**highest
        self.min = -self.max
        self.eps = 2.0**-fraction
        self.smallest_normal = 2.0 ** (1 - highest)

    def __repr__(self) -> str:
        return f"finfo(min={self.min}, max={self.max}, dtype={self.dtype!r})"


class iinfo:
    """Limits of an integer dtype."""

    def __init__(self, arg: "_core.Dtype") -> None:
        if not issubdtype(arg, DtypeCategory.integer):
            raise ValueError(f"[iinfo] dtype {arg!r} is not an integer dtype.")
        self.dtype = arg
        self.bits = 8 * arg.size
        signed = issubdtype(arg, DtypeCategory.signedinteger)
        self.max = 2 ** (self.bits - signed) - 1
        self.min = -(2 ** (self.bits - 1)) if signed else 0

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype!r})"


def can_cast(from_: "_core.Dtype | _core.array", to: "_core.Dtype") -> bool:
    """Whether promotion would convert the first to the second."""
    dtype = from_.dtype if isinstance(from_, _core.array) else from_
    return _core._promote(dtype, to) == to


def result_type(*arrays_and_dtypes: object) -> "_core.Dtype":
    """The dtype that arrays and dtypes are promoted to."""
    if not arrays_and_dtypes:
        raise ValueError("[result_type] at least one array or dtype is needed")
    dtypes = [one.dtype if isinstance(one, _core.array) else one for one in arrays_and_dtypes]
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = _core._promote(result, dtype)
    return result
