"""Arrays and language models on any Vulkan GPU.

`refrain.mlx` runs programs that are written for MLX.
"""

from refrain._core import __version__ as __version__
