"""Memory of `mlx.core`. Limits are remembered and returned; the driver decides what can be allocated."""

from refrain import _core


class _Limits:
    memory = 0
    cache = 0
    wired = 0


def get_active_memory() -> int:
    """Bytes in use."""
    return _core._memory()[0]


def get_cache_memory() -> int:
    """Bytes kept for later use. They are counted with those in use, so these are none."""
    return 0


def get_peak_memory() -> int:
    """The most bytes that were in use."""
    return _core._memory()[1]


def reset_peak_memory() -> None:
    """Has no effect: the most bytes that were in use are counted since the device was opened."""


def clear_cache() -> None:
    """Frees memory that is kept for programs that run again and again."""
    _core._clear_cache()


def get_array_buffer_size(*args: object) -> int:
    """Bytes of the arrays in nested lists, tuples and dicts."""
    total = 0
    for argument in args:
        if isinstance(argument, _core.array):
            total += argument.nbytes
        elif isinstance(argument, dict):
            total += get_array_buffer_size(*argument.values())
        elif isinstance(argument, list | tuple):
            total += get_array_buffer_size(*argument)
    return total


def set_memory_limit(limit: int) -> int:
    """Sets the limit of memory; returns the one before."""
    before, _Limits.memory = _Limits.memory, limit
    return before


def get_memory_limit() -> int:
    """The limit of memory."""
    return _Limits.memory


def set_cache_limit(limit: int) -> int:
    """Sets the limit of memory kept for later use; returns the one before."""
    before, _Limits.cache = _Limits.cache, limit
    return before


def set_wired_limit(limit: int) -> int:
    """Sets the limit of memory that stays resident; returns the one before."""
    before, _Limits.wired = _Limits.wired, limit
    return before
