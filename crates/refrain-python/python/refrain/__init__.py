"""Language models and arrays on any Vulkan GPU.

    import refrain

    model = refrain.load("Qwen/Qwen3-0.6B")
    print(model.chat("What is a tape recorder?"))

`load` opens a model, `serve` also serves it over HTTP. `refrain.mlx` runs programs that are written for MLX.
"""

import os
from pathlib import Path

from refrain._core import _keep_shaders
from refrain._core import __version__ as __version__
from refrain.model import Answer as Answer
from refrain.model import Error as Error
from refrain.model import Message as Message
from refrain.model import Model as Model
from refrain.model import Server as Server
from refrain.model import ToolCall as ToolCall
from refrain.model import load as load
from refrain.model import serve as serve


def _shader_directory() -> Path | None:
    """`refrain` in `$XDG_CACHE_HOME`, or in `~/.cache`, as the program `refrain` has it."""
    base = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(base, "refrain") if os.path.isabs(base) else None


if (_directory := _shader_directory()) is not None:
    _keep_shaders(_directory)
