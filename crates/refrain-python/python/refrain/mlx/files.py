"""Files of arrays: safetensors, npy and npz."""

import ast
import io
import json
import struct
import zipfile
from pathlib import Path

from refrain import _core

_NPY_MAGIC = b"\x93NUMPY"

_NPY_TYPES = {
    "|b1": _core.bool_,
    "|u1": _core.uint8,
    "<u2": _core.uint16,
    "<u4": _core.uint32,
    "<u8": _core.uint64,
    "|i1": _core.int8,
    "<i2": _core.int16,
    "<i4": _core.int32,
    "<i8": _core.int64,
    "<f2": _core.float16,
    "<f4": _core.float32,
    "<f8": _core.float64,
    "<c8": _core.complex64,
    # NumPy has no bfloat16: MLX writes its items as two bytes without a meaning.
    "<V2": _core.bfloat16,
}

_SAFETENSORS_TYPES = {
    "BOOL": _core.bool_,
    "U8": _core.uint8,
    "U16": _core.uint16,
    "U32": _core.uint32,
    "U64": _core.uint64,
    "I8": _core.int8,
    "I16": _core.int16,
    "I32": _core.int32,
    "I64": _core.int64,
    "F16": _core.float16,
    "BF16": _core.bfloat16,
    "F32": _core.float32,
    "F64": _core.float64,
    "C64": _core.complex64,
    # Eight-bit floats are loaded as bytes, as MLX does.
    "F8_E4M3": _core.uint8,
}


def _npy(array: "_core.array") -> bytes:
    name = next(name for name, dtype in _NPY_TYPES.items() if dtype == array.dtype)
    header = f"{{'descr': '{name}', 'fortran_order': False, 'shape': {tuple(array.shape)}, }}"
    padding = -(len(_NPY_MAGIC) + 4 + len(header) + 1) % 64
    text = (header + " " * padding + "\n").encode()
    return _NPY_MAGIC + bytes([1, 0]) + struct.pack("<H", len(text)) + text + bytes(array)


def _array_of_npy(content: bytes) -> "_core.array":
    if content[:6] != _NPY_MAGIC:
        raise ValueError("[load_npy] Invalid header: not an npy file")
    long = content[6] > 1
    start = 12 if long else 10
    length = struct.unpack_from("<I" if long else "<H", content, 8)[0]
    header = ast.literal_eval(content[start : start + length].decode("latin1"))
    name, shape = header["descr"], tuple(header["shape"])
    is_swapped = isinstance(name, str) and name.startswith(">")
    if is_swapped:
        name = "<" + name[1:]
    if name not in _NPY_TYPES:
        raise ValueError(f"[load_npy] there is no dtype for items {header['descr']!r}")
    elements = content[start + length :]
    if is_swapped:
        elements = _swapped(elements, int(name[2:]))
    if header["fortran_order"]:
        return _core._array_from_bytes(elements, _NPY_TYPES[name], shape[::-1]).transpose()
    return _core._array_from_bytes(elements, _NPY_TYPES[name], shape)


def _swapped(content: bytes, size: int) -> bytes:
    """Numbers of `size` bytes in the other order of bytes."""
    swapped = bytearray(len(content))
    for at in range(size):
        swapped[at::size] = content[size - 1 - at :: size]
    return bytes(swapped)


def _write(file: object, content: bytes, suffix: str) -> None:
    if hasattr(file, "write"):
        file.write(content)
        return
    path = str(file)
    Path(path if path.endswith(suffix) else path + suffix).write_bytes(content)


def save(file: object, arr: "_core.array") -> None:
    """Writes an array to an npy file."""
    _write(file, _npy(arr), ".npy")


def _save_npz(file: object, args: tuple, kwargs: dict, compression: int) -> None:
    arrays = {f"arr_{at}": array for at, array in enumerate(args)} | kwargs
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", _npy(array))
    _write(file, content.getvalue(), ".npz")


def savez(file: object, *args: "_core.array", **kwargs: "_core.array") -> None:
    """Writes arrays to an npz file."""
    _save_npz(file, args, kwargs, zipfile.ZIP_STORED)


def savez_compressed(file: object, *args: "_core.array", **kwargs: "_core.array") -> None:
    """Writes arrays to a compressed npz file."""
    _save_npz(file, args, kwargs, zipfile.ZIP_DEFLATED)


def save_safetensors(file: object, arrays: dict, metadata: dict[str, str] | None = None) -> None:
    """Writes named arrays to a safetensors file."""
    metadata = {"format": "mlx"} if metadata is None else metadata
    if not hasattr(file, "write"):
        path = str(file)
        path = path if path.endswith(".safetensors") else path + ".safetensors"
        _core._save_safetensors(path, arrays, metadata)
        return
    names = {dtype: name for name, dtype in reversed(_SAFETENSORS_TYPES.items())}
    header: dict = {"__metadata__": metadata}
    contents, offset = [], 0
    for name, array in arrays.items():
        content = bytes(array)
        bounds = [offset, offset + len(content)]
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": bounds}
        contents.append(content)
        offset += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text + b"".join(contents))


def save_gguf(file: object, arrays: dict, metadata: dict | None = None) -> None:
    """Raises NotImplementedError."""
    raise NotImplementedError("[save_gguf] GGUF files are not written by Refrain's mlx.core yet")


def _load_safetensors(content: bytes) -> tuple[dict, dict]:
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    data = content[8 + length :]
    arrays = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        dtype = _SAFETENSORS_TYPES[entry["dtype"]]
        arrays[name] = _core._array_from_bytes(data[start:stop], dtype, entry["shape"])
    return arrays, metadata


def _format_of(file: object) -> str:
    return str(getattr(file, "name", file)).rpartition(".")[2]


def load(file: object, /, format: str | None = None, return_metadata: bool = False, *, stream: object = None) -> object:
    """The arrays of a safetensors, npy or npz file."""
    format = format or _format_of(file)
    is_open = hasattr(file, "read")
    if not is_open and not Path(file).exists():
        raise RuntimeError(f"[load_{format}] Failed to open file {file}")
    if return_metadata and format not in ("safetensors", "gguf"):
        raise ValueError(f"[load] metadata is not supported for format {format}")
    if format == "safetensors":
        loaded = _load_safetensors(file.read()) if is_open else _core._load_safetensors(Path(file))
        return loaded if return_metadata else loaded[0]
    if format == "npy":
        return _array_of_npy(file.read() if is_open else Path(file).read_bytes())
    if format == "npz":
        with zipfile.ZipFile(file) as archive:
            return {name.removesuffix(".npy"): _array_of_npy(archive.read(name)) for name in archive.namelist()}
    if format == "gguf":
        raise NotImplementedError("[load_gguf] GGUF files are not read by Refrain's mlx.core yet: use `refrain` itself")
    raise ValueError(f"[load] Unknown file format {format}")
