"""Devices and streams of `mlx.core`.

One device computes everything in the order in which it is asked. Devices and streams are names over it: programs may
make, pass and compare them, and a stream that belongs to a thread refuses to be used by another one.
"""

import enum
import functools
import threading

from refrain import _core


class DeviceType(enum.Enum):
    """A kind of device."""

    cpu = 0
    gpu = 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Device):
            return self is other.type
        return self is other

    def __hash__(self) -> int:
        return hash(self.name)

    def _use(self) -> None:
        _device(self)


class Device:
    """A device to run operations on."""

    __slots__ = ("index", "type")

    def __init__(self, type: DeviceType, index: int = 0) -> None:
        self.type = type
        self.index = index

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DeviceType):
            return self.type is other
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"Device({self.type.name}, {self.index})"

    def _use(self) -> None:
        _device(self)


class Stream:
    """A stream for running operations on a given device."""

    __slots__ = ("_thread", "device", "index")

    def __init__(self, device: Device, index: int, thread: int | None) -> None:
        self.device = device
        self.index = index
        self._thread = thread

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.index) == (other.device, other.index)

    def __hash__(self) -> int:
        return hash((self.device, self.index))

    def __repr__(self) -> str:
        return f"Stream({self.device!r}, {self.index})"

    def _use(self) -> "Stream":
        if self._thread is not None and self._thread != threading.get_ident():
            raise RuntimeError(f"There is no {self!r} in current thread.")
        return self


class ThreadLocalStream:
    """A stream that is another one in each thread."""

    __slots__ = ("_streams", "device", "index")

    def __init__(self, device: Device, index: int) -> None:
        self.device = device
        self.index = index
        self._streams = threading.local()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreadLocalStream) and self.index == other.index

    def __hash__(self) -> int:
        return hash(self.index)

    def __repr__(self) -> str:
        return f"ThreadLocalStream({self.device!r}, {self.index})"

    def _use(self) -> Stream:
        stream = getattr(self._streams, "stream", None)
        if stream is None:
            stream = self._streams.stream = new_stream(self.device)
        return stream


StreamOrDevice = Stream | ThreadLocalStream | Device | DeviceType

cpu = DeviceType.cpu
gpu = DeviceType.gpu

_lock = threading.Lock()
_next_index = 2


class _Defaults(threading.local):
    """The default device and streams of a thread."""

    def __init__(self) -> None:
        self.device: Device | None = None
        self.streams: dict[DeviceType, Stream] = {}


_defaults = _Defaults()
_process_default: Device | None = None


def _new_index() -> int:
    global _next_index
    with _lock:
        _next_index += 1
        return _next_index - 1


@functools.cache
def _computing() -> Device:
    """The device that computes, which is chosen before there is any array."""
    return Device(cpu if _core._device()[1] else gpu)


def _device(device: Device | DeviceType) -> Device:
    found = Device(device) if isinstance(device, DeviceType) else device
    if not isinstance(found, Device):
        raise TypeError(f"expected a device, not {type(device).__name__}")
    if not is_available(found):
        raise ValueError(f"[device] {found!r} is not available: the device that computes is {_core._device()[0]}.")
    return found


def is_available(device: Device | DeviceType) -> bool:
    """Whether operations can run on the device."""
    found = Device(device) if isinstance(device, DeviceType) else device
    return found.type is cpu or _computing().type is gpu


def device_count(device_type: DeviceType) -> int:
    """How many devices of a kind there are to choose from."""
    return int(is_available(device_type))


def device_info(d: Device | DeviceType | None = None) -> dict[str, str | int]:
    """Name and memory of the device that computes."""
    name, is_cpu = _core._device()
    if d is not None:
        _device(d)
    return {"device_name": name, "architecture": "cpu" if is_cpu else "vulkan"}


def default_device() -> Device:
    """The device that operations run on by default."""
    if _defaults.device is not None:
        return _defaults.device
    if _process_default is not None:
        return _process_default
    return _computing()


def set_default_device(device: Device | DeviceType) -> None:
    """Sets the default device."""
    global _process_default
    _process_default = _device(device)
    _defaults.device = None


def default_stream(device: Device | DeviceType) -> Stream:
    """The stream that operations on the device run on by default."""
    found = _device(device)
    stream = _defaults.streams.get(found.type)
    if stream is None:
        stream = _defaults.streams[found.type] = Stream(found, found.type.value, None)
    return stream


def set_default_stream(stream: Stream | ThreadLocalStream) -> None:
    """Sets the default stream of the stream's device in this thread."""
    _defaults.streams[stream.device.type] = stream._use()


def new_stream(device: Device | DeviceType) -> Stream:
    """A new stream, which belongs to the calling thread."""
    return Stream(_device(device), _new_index(), threading.get_ident())


def new_thread_unsafe_stream(device: Device | DeviceType) -> Stream:
    """A new stream that any thread may use."""
    return Stream(_device(device), _new_index(), None)


def new_thread_local_stream(device: Device | DeviceType) -> ThreadLocalStream:
    """A stream that is another one in each thread."""
    return ThreadLocalStream(_device(device), _new_index())


def clear_streams() -> None:
    """Forgets the streams of the calling thread."""
    _defaults.streams.clear()


class StreamContext:
    """A `with` block in which a stream or a device is the default."""

    def __init__(self, s: StreamOrDevice) -> None:
        self._stream = s

    def __enter__(self) -> None:
        chosen = self._stream
        self._saved = (_defaults.device, dict(_defaults.streams))
        if isinstance(chosen, Device | DeviceType):
            _defaults.device = _device(chosen)
        else:
            set_default_stream(chosen)
            _defaults.device = chosen.device

    def __exit__(self, exc_type: object = None, exc_value: object = None, traceback: object = None) -> None:
        _defaults.device, _defaults.streams = self._saved


def stream(s: StreamOrDevice) -> StreamContext:
    """A `with` block in which a stream or a device is the default."""
    return StreamContext(s)


def synchronize(stream: StreamOrDevice | None = None) -> None:
    """Waits for everything that was started."""
    if stream is not None:
        stream._use()
    _core._synchronize()
