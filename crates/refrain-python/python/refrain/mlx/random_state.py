"""The key of `mlx.core.random`: each thread has a list of one key, which every draw without a key replaces."""

import threading
import time

from refrain import _core

_state = threading.local()


def state() -> list:
    """The list that holds the key of the calling thread; of the time until a seed is set."""
    keys = getattr(_state, "keys", None)
    if keys is None:
        keys = _state.keys = [_core.random.key(time.time_ns())]
    return keys


def seed(seed: int) -> None:
    """Sets the key of the calling thread."""
    state()[0] = _core.random.key(seed)


def next_key() -> "_core.array":
    """A key to draw with; the thread's key becomes another one."""
    keys = state()
    pair = _core.random.split(keys[0])
    keys[0] = pair[0]
    return pair[1]
