"""Replaces what Python computes slowly in mlx-lm and `mlx.nn` by functions of this package that compute the same."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType

from refrain import _core


@dataclass(frozen=True)
class Replacement:
    """A function and what replaces it. A function that looks different belongs to another version, and stays."""

    place: str
    """Its name in the module: FUNCTION or CLASS.METHOD."""
    parameters: tuple[str, ...]
    names: frozenset[str] | None
    """The names of what its code uses; not compared if None."""
    by: Callable[[object], Callable[..., object]]
    """Makes the replacement. Gets the module or class that has the function."""


class MissingAttribute(AttributeError, KeyError):
    """A module of `mlx.nn` has no attribute, and so no key, of this name."""


def _attribute(module_class: type) -> Callable[..., object]:
    """Attributes of modules are items of a dictionary. Python looks them up a thousand times for a token."""

    def missing(self: object, key: str) -> None:
        raise MissingAttribute(f"'{type(self).__name__}' object has no attribute '{key}'")

    module_class.__missing__ = missing
    return dict.__getitem__


def _layer(compute: Callable[..., object]) -> Callable[[type], Callable[..., object]]:
    """The `__call__` of a layer that `compute` computes."""

    def replacement(_: type) -> Callable[..., object]:
        def __call__(self: object, x: object) -> object:
            return compute(self, x)

        return __call__

    return replacement


def _quantized_switch_linear(layer_class: type) -> Callable[..., object]:
    call, compute = layer_class.__call__, _core._quantized_switch_linear

    def __call__(self: object, x: object, indices: object, sorted_indices: bool = False) -> object:
        product = compute(self, x, indices)
        return call(self, x, indices, sorted_indices) if product is None else product

    return __call__


def _rope(_: type) -> Callable[..., object]:
    compute = _core._rope

    def __call__(self: object, x: object, offset: object = 0) -> object:
        return compute(self, x, offset)

    return __call__


def _update_and_fetch(cache_class: type) -> Callable[..., object]:
    grow_and_fetch, update = cache_class.update_and_fetch, _core._update_and_fetch

    def update_and_fetch(self: object, keys: object, values: object) -> object:
        # A subclass may fetch in another way.
        fetched = update(self, keys, values) if type(self) is cache_class else None
        return fetched or grow_and_fetch(self, keys, values)

    return update_and_fetch


REPLACED = {
    # It loops over tokens.
    "mlx_lm.models.gated_delta": [
        Replacement(
            "gated_delta_ops",
            ("q", "k", "v", "g", "beta", "state", "mask"),
            None,
            lambda _: _core.fast.gated_delta_update,
        )
    ],
    "mlx.nn.layers.base": [
        Replacement(
            "Module.__getattr__", ("self", "key"), frozenset({"get", "super", "Module", "__getattribute__"}), _attribute
        )
    ],
    "mlx.nn.layers.quantized": [
        Replacement(
            "QuantizedLinear.__call__",
            ("self", "x"),
            frozenset({"mx", "quantized_matmul", "get", "group_size", "bits", "mode"}),
            _layer(_core._quantized_linear),
        ),
        Replacement(
            "QuantizedEmbedding.__call__",
            ("self", "x"),
            frozenset({"mx", "dequantize", "get", "group_size", "bits", "mode"}),
            _layer(_core._quantized_embedding),
        ),
    ],
    "mlx.nn.layers.normalization": [
        Replacement(
            "RMSNorm.__call__", ("self", "x"), frozenset({"mx", "fast", "rms_norm", "eps"}), _layer(_core._rms_norm)
        )
    ],
    "mlx.nn.layers.positional_encoding": [
        Replacement(
            "RoPE.__call__",
            ("self", "x", "offset"),
            frozenset({"mx", "fast", "rope", "dims", "traditional", "base", "scale"}),
            _rope,
        )
    ],
    "mlx_lm.models.switch_layers": [
        Replacement(
            "QuantizedSwitchLinear.__call__",
            ("self", "x", "indices", "sorted_indices"),
            frozenset({"mx", "gather_qmm", "get", "group_size", "bits", "mode", "global_scale", "expand_dims"}),
            _quantized_switch_linear,
        )
    ],
    "mlx_lm.models.cache": [
        Replacement(
            "KVCache.update_and_fetch",
            ("self", "keys", "values"),
            frozenset(
                {"offset", "keys", "values", "shape", "step", "mx", "zeros", "dtype", "concatenate", "keys_and_values"}
            ),
            _update_and_fetch,
        )
    ],
}
"""The functions to replace, by module."""


class Finder:
    """Finds the modules in which a function is replaced."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The module's own spec, whose loader replaces the function; nothing for other modules."""
        if name not in REPLACED:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for replacement in REPLACED[name]:
                replace(module, replacement)

        spec.loader.exec_module = exec_module
        return spec


def replace(module: ModuleType, replacement: Replacement) -> None:
    """Replaces a function, if it is the one that is expected."""
    parent, _, name = replacement.place.rpartition(".")
    owner = getattr(module, parent, None) if parent else module
    function = getattr(owner, name, None)
    if not isinstance(function, FunctionType):
        return
    same_parameters = tuple(inspect.signature(function).parameters) == replacement.parameters
    if same_parameters and replacement.names in (None, frozenset(function.__code__.co_names)):
        setattr(owner, name, replacement.by(owner))
