"""The extension module. What `refrain.mlx` uses of it is typed by the stubs of the package `mlx`."""

from collections.abc import Callable
from typing import Any

__version__: str

class _Server:
    """A model in an engine, and the server that requests reach it by."""

    def __init__(
        self,
        model: str,
        *,
        device: str,
        context: int | None,
        parallel: int | None,
        kv_type: str | None,
        host: str,
        port: int,
        socket: str | None,
        api_keys: list[str],
        progress: Callable[[int, int], None] | None,
    ) -> None: ...
    @property
    def address(self) -> str: ...
    def wait(self) -> None: ...
    def stop(self) -> None: ...

def __getattr__(name: str) -> Any: ...
