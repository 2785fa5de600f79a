"""`mlx.core.metal` and `mlx.core.cuda` of a machine that has neither."""

from refrain.mlx import memory, streams

clear_cache = memory.clear_cache
get_active_memory = memory.get_active_memory
get_cache_memory = memory.get_cache_memory
get_peak_memory = memory.get_peak_memory
reset_peak_memory = memory.reset_peak_memory
set_cache_limit = memory.set_cache_limit
set_memory_limit = memory.set_memory_limit
set_wired_limit = memory.set_wired_limit
device_info = streams.device_info


def is_available() -> bool:
    """Whether there is Metal: no."""
    return False


def start_capture(path: str) -> None:
    """Raises RuntimeError: there is no Metal here."""
    raise RuntimeError("[metal::start_capture] No Metal back-end.")


def stop_capture() -> None:
    """Raises RuntimeError: there is no Metal here."""
    raise RuntimeError("[metal::stop_capture] No Metal back-end.")
