"""Installs `refrain.mlx` before the tests import `mlx.core`. REFRAIN_DEVICE chooses the device."""

import refrain.mlx

refrain.mlx.install()
