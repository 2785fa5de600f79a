"""Replaces a function of mlx-lm that loops over tokens in Python by one of `mlx.core` that computes the same."""

import inspect
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from refrain import _core

# Module: its function, the names of that function's parameters, and the function of `refrain._core.fast`.
REPLACED = {
    "mlx_lm.models.gated_delta": (
        "gated_delta_ops",
        ("q", "k", "v", "g", "beta", "state", "mask"),
        "gated_delta_update",
    ),
}


class Finder:
    """Finds the modules of mlx-lm in which a function is replaced."""

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
            replace(module, *REPLACED[name])

        spec.loader.exec_module = exec_module
        return spec


def replace(module: ModuleType, name: str, parameters: tuple[str, ...], replacement: str) -> None:
    """Replaces a function, if it has these parameters: another version may mean something else."""
    function = getattr(module, name, None)
    if callable(function) and tuple(inspect.signature(function).parameters) == parameters:
        setattr(module, name, getattr(_core.fast, replacement))
