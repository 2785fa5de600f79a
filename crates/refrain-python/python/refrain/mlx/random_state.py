"""The key of `mlx.core.random`: each thread has a list of one key, which every draw without a key replaces."""

import threading
import time

from refrain import _core


class _State(threading.local):
    def __init__(self) -> None:
        self.keys = [_core.random.key(time.time_ns() & 0xFFFF_FFFF_FFFF_FFFF)]


_state = _State()


def state() -> list:
    """The list that holds the key of the calling thread."""
    return _state.keys


def seed(seed: int) -> None:
    """Sets the key of the calling thread."""
    _state.keys[0] = _core.random.key(seed)


def next_key() -> "_core.array":
    """A key to draw with; the thread's key becomes another one."""
    pair = _core.random.split(_state.keys[0])
    _state.keys[0] = pair[0]
    return pair[1]
