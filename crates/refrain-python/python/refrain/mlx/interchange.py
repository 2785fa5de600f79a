"""Arrays as NumPy arrays and through DLPack."""

from refrain import _core

# DLPack's device type and index of host memory.
HOST = (1, 0)


def to_numpy(array: "_core.array", dtype: object = None, copy: bool | None = None) -> object:
    """The elements as a NumPy array of its own memory."""
    import numpy

    if copy is False:
        raise ValueError("[array] the elements are in the device's memory: they must be copied")
    if array.dtype == _core.bfloat16:
        # NumPy has no bfloat16; ml_dtypes adds it where it is installed.
        try:
            import ml_dtypes
        except ModuleNotFoundError as error:
            message = "NumPy has no bfloat16: convert the array with astype(mx.float32), or install ml_dtypes"
            raise RuntimeError(message) from error
        elements = numpy.frombuffer(bytearray(bytes(array)), ml_dtypes.bfloat16)
    else:
        name = repr(array.dtype).removeprefix("mlx.core.").removesuffix("_")
        elements = numpy.frombuffer(bytearray(bytes(array)), name)
    elements = elements.reshape(array.shape)
    return elements if dtype is None else elements.astype(dtype)


def to_dlpack(
    array: "_core.array",
    *,
    stream: object = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> object:
    """A DLPack capsule of a copy in host memory."""
    if dl_device is not None and tuple(dl_device) != HOST:
        raise BufferError("[__dlpack__] arrays are given in host memory only")
    if copy is False:
        raise BufferError("[__dlpack__] the elements are in the device's memory: they must be copied")
    return _core._to_dlpack(array)


def dlpack_device(array: "_core.array") -> tuple[int, int]:
    """Where DLPack gives the elements: in host memory."""
    return HOST


def from_dlpack(x: object, /, *, copy: bool | None = None) -> "_core.array":
    """An array with the elements of an object that has DLPack's methods."""
    if isinstance(x, _core.array):
        return x
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"[from_dlpack] {type(x).__name__} has no method __dlpack__")
    if copy is False:
        raise ValueError("[from_dlpack] the elements must be copied: pass copy=None or copy=True")
    return _core._from_dlpack(x.__dlpack__())
