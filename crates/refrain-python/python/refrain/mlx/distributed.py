"""`mlx.core.distributed` of a group of one process."""

from refrain import _core


class Group:
    """The processes that compute together: this one."""

    def rank(self) -> int:
        """The index of this process."""
        return 0

    def size(self) -> int:
        """The number of processes."""
        return 1

    def split(self, color: int, key: int = -1) -> "Group":
        """Raises ValueError: one process cannot be split."""
        raise ValueError("[split] Cannot split the singleton communicator.")


_world = Group()


def is_available(backend: str = "any") -> bool:
    """Whether several processes can compute together: no."""
    return False


def init(strict: bool = False, backend: str = "any", *, all_gather_factory: object = None) -> Group:
    """The group of this process; RuntimeError where a greater one is asked for strictly."""
    if strict:
        raise RuntimeError("[distributed] Couldn't initialize any distributed backend: there is none here.")
    return _world


def _same(x: "_core.array", *, group: Group | None = None, stream: object = None) -> "_core.array":
    """The array itself: nobody else contributes."""
    return x if isinstance(x, _core.array) else _core.array(x)


all_sum = all_gather = all_max = all_min = sum_scatter = _same


def _alone(name: str):
    def refuse(*args: object, **kwargs: object) -> None:
        raise ValueError(f"[{name}] Cannot communicate in a group of one process.")

    return refuse


send = _alone("send")
recv = _alone("recv")
recv_like = _alone("recv_like")
