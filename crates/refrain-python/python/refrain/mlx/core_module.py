"""Makes the module that takes the place of `mlx.core`."""

import atexit
import ctypes
import math
import os
import types

from refrain import _core
from refrain.mlx import (
    compositions,
    convolutions,
    distributed,
    dtypes,
    files,
    fourier,
    interchange,
    kernels,
    linear_algebra,
    memory,
    metal,
    printing,
    random_state,
    streams,
    surface,
    transforms,
    vectorise,
)

# The version of MLX whose names and meaning the module has.
MLX_VERSION = "0.32.4"

DEVICE_VARIABLE = "REFRAIN_DEVICE"

# What makes a method of a built-in function. A Python function that calls it would take as long as the operation.
_bound = ctypes.pythonapi.PyInstanceMethod_New
_bound.argtypes, _bound.restype = [ctypes.py_object], ctypes.py_object


def _public(*modules: types.ModuleType) -> dict[str, object]:
    """The functions and classes that modules define, and the names that surface.py lists."""
    names = surface.TOP_LEVEL
    return {name: vars(module)[name] for module in modules for name in vars(module) if name in names}


def _submodule(name: str, content: dict[str, object]) -> types.ModuleType:
    made = types.ModuleType(f"mlx.core.{name}")
    for missing in surface.SUBMODULES[name]:
        setattr(made, missing, surface.unsupported(f"{name}.{missing}"))
    made.__dict__.update({key: value for key, value in content.items() if key in surface.SUBMODULES[name]})
    return made


def _random() -> types.ModuleType:
    content = vars(_core.random) | {"seed": random_state.seed}
    module = _submodule("random", content)

    def attribute(name: str) -> object:
        if name == "state":
            return random_state.state()
        raise AttributeError(f"module 'mlx.core.random' has no attribute {name!r}")

    module.__getattr__ = attribute
    return module


def _submodules() -> dict[str, types.ModuleType]:
    fast = vars(_core.fast) | vars(kernels)
    return {
        "cuda": _submodule("cuda", {"is_available": metal.is_available}),
        "distributed": _submodule("distributed", vars(distributed)),
        "fast": _submodule("fast", fast),
        "fft": _submodule("fft", vars(fourier)),
        "linalg": _submodule("linalg", vars(_core.linalg) | vars(linear_algebra)),
        "metal": _submodule("metal", vars(metal)),
        "random": _random(),
    }


def _method(function: object) -> object:
    """The function as a method. Unlike a Python function, a built-in one does not bind itself to an object."""
    return function if isinstance(function, types.FunctionType) else _bound(function)


def _complete_array(namespace: dict[str, object]) -> None:
    """Gives `array` the methods that are functions of the module, and those that Python has."""
    array = _core.array
    for name in surface.ARRAY_NAMES:
        if not hasattr(array, name) and name in namespace:
            setattr(array, name, _method(namespace[name]))
    array.__array__ = interchange.to_numpy
    array.__dlpack__ = interchange.to_dlpack
    array.__dlpack_device__ = interchange.dlpack_device
    array.__array_namespace__ = lambda self, *, api_version=None: namespace["__self__"]
    array.__div__ = array.__truediv__
    array.__rdiv__ = array.__rtruediv__
    array.real = property(lambda self: namespace["real"](self))
    array.imag = property(lambda self: namespace["imag"](self))


class ArrayLike:
    """Any Python object that has `__mlx_array__`."""

    def __init__(self, arg: object, /) -> None:
        self._array = arg.__mlx_array__()

    def __mlx_array__(self) -> "_core.array":
        return self._array


def _constants() -> dict[str, object]:
    return {
        "__version__": MLX_VERSION,
        "e": math.e,
        "euler_gamma": 0.57721566490153286060651209008240243,
        "inf": math.inf,
        "nan": math.nan,
        "newaxis": None,
        "pi": math.pi,
        "cpu": streams.cpu,
        "gpu": streams.gpu,
        "ArrayLike": ArrayLike,
        **{category.name: category for category in dtypes.DtypeCategory},
    }


def build(device: str | None = None) -> types.ModuleType:
    """Opens the device and makes the module."""
    _core._open_device(device or os.environ.get(DEVICE_VARIABLE) or "auto")
    os.register_at_fork(after_in_child=_core._refuse_after_fork)
    # A driver must not end while it computes.
    atexit.register(_core._finish)
    module = types.ModuleType("mlx.core", "MLX's arrays and functions, computed by Refrain.")
    namespace = module.__dict__
    for name in surface.TOP_LEVEL:
        namespace[name] = surface.unsupported(name)
    namespace.update(
        _public(
            compositions,
            convolutions,
            dtypes,
            files,
            interchange,
            kernels,
            memory,
            printing,
            streams,
            transforms,
            vectorise,
        )
    )
    namespace.update({name: value for name, value in vars(_core).items() if name in surface.TOP_LEVEL})
    namespace.update(_constants())
    namespace.update(_submodules())
    namespace["__self__"] = module
    namespace["__refrain__"] = True
    try:
        from mlx.__array_api_info import __array_namespace_info__
    except ImportError:
        pass
    else:
        namespace["__array_namespace_info__"] = __array_namespace_info__
    _complete_array(namespace)
    return module
