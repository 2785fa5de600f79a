"""Language models and arrays on any Vulkan GPU.

    import refrain

    model = refrain.load("Qwen/Qwen3-0.6B")
    print(model.chat("What is a tape recorder?"))

`load` opens a model, `serve` also serves it over HTTP. `refrain.mlx` runs programs that are written for MLX.
"""

from refrain._core import __version__ as __version__
from refrain.model import Answer as Answer
from refrain.model import Error as Error
from refrain.model import Message as Message
from refrain.model import Model as Model
from refrain.model import Server as Server
from refrain.model import ToolCall as ToolCall
from refrain.model import load as load
from refrain.model import serve as serve
