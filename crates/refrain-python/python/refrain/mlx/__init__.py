"""Runs programs that are written for MLX: takes the place of `mlx.core`.

>>> import refrain.mlx
>>> refrain.mlx.install()
>>> import mlx.core as mx

`mlx.nn`, `mlx.optimizers` and `mlx.utils` come from the published package `mlx`, which is not changed. From a shell,
`python -m refrain.mlx -m mlx_lm generate …` does both.
"""

import multiprocessing
import multiprocessing.spawn
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["explain", "install", "is_installed"]

CORE = "mlx.core"
SUBMODULES = ("cuda", "distributed", "fast", "fft", "linalg", "metal", "random")


class _Finder:
    """Finds `mlx.core` and its submodules before the published extension module is found."""

    def __init__(self, device: str | None) -> None:
        self.device = device

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of `mlx.core`; nothing for other modules."""
        if name != CORE and name.rpartition(".")[0] != CORE:
            return None
        return ModuleSpec(name, self, origin="refrain")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Makes `mlx.core` with its submodules, or returns the submodule."""
        from refrain.mlx import core_module

        core = sys.modules.get(CORE) or core_module.build(self.device)
        if spec.name == CORE:
            for submodule in SUBMODULES:
                sys.modules.setdefault(f"{CORE}.{submodule}", getattr(core, submodule))
            return core
        submodule = getattr(core, spec.name.rpartition(".")[2], None)
        if not isinstance(submodule, ModuleType):
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)
        return submodule

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do: `create_module` made the whole module."""


class _Installation:
    """Installs the module where it is unpickled."""

    def __init__(self, device: str | None) -> None:
        self.device = device

    def __reduce__(self) -> tuple[Callable[[str | None], None], tuple[str | None]]:
        return install, (self.device,)


def _install_in_children(device: str | None) -> None:
    """Lets processes that `multiprocessing` starts anew have the module, too: they read these data before all else."""
    of_process = multiprocessing.spawn.get_preparation_data
    multiprocessing.spawn.get_preparation_data = lambda name: of_process(name) | {"refrain": _Installation(device)}
    # A fork server would import the program, and with it the published mlx.core, before it reads them.
    multiprocessing.set_forkserver_preload([])


def is_installed() -> bool:
    """Whether `import mlx.core` gives this module."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def explain() -> str:
    """What the last evaluations did: which programs were lowered and why, and which updates copied an array."""
    from refrain import _core

    return _core._explain()


def install(device: str | None = None) -> None:
    """Makes `import mlx.core` give this module.

    `device` is "auto" (the best GPU, else the CPU), "gpu", "cpu", the index of a device or a part of its name. By
    default the environment variable REFRAIN_DEVICE decides; it is "auto" if unset.

    Raises RuntimeError where another `mlx.core` is imported already.
    """
    loaded = sys.modules.get(CORE)
    if loaded is not None and getattr(loaded, "__refrain__", False) is not True:
        raise RuntimeError(
            "another mlx.core is imported already: call refrain.mlx.install() before anything imports mlx, "
            "or run the program with `python -m refrain.mlx`"
        )
    if is_installed():
        if device is not None and loaded is not None:
            raise RuntimeError("mlx.core is in use already: choose the device at the first call of install()")
        return
    from refrain.mlx import replacements

    sys.meta_path[:0] = [_Finder(device), replacements.Finder()]
    _install_in_children(device)
    try:
        import mlx  # noqa: F401
    except ModuleNotFoundError:
        # Without the published package there is no mlx.nn, but mlx.core works.
        namespace = ModuleType("mlx")
        namespace.__path__ = []
        sys.modules["mlx"] = namespace
