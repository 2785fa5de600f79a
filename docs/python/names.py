"""Writes names.md: which of mlx.core's public names Refrain has.

python -m refrain.mlx docs/python/names.py > docs/python/names.md
"""

import types

import mlx.core as mx
from refrain.mlx import surface

# What is there, but not all of it.
PARTLY = {
    "compile": "runs its function once for each kind of argument; with `inputs` or `outputs`, each time",
    "vmap": "calls its function for each element",
    "checkpoint": "returns its function",
    "custom_function": "runs its function; keeps no derivatives",
    "float64": "a name; arrays raise",
    "complex64": "a name; arrays raise",
    "int64": "values within 32 bits",
    "uint64": "values within 32 bits",
    "load": "safetensors, npy, npz; GGUF raises",
    "pad": "modes constant and edge",
    "einsum": "no ellipsis, no letter twice in an operand",
    "real": "no complex arrays",
    "imag": "no complex arrays",
    "conj": "no complex arrays",
    "conjugate": "no complex arrays",
    "clear_cache": "frees what is kept for programs that repeat",
    "reset_peak_memory": "no effect",
    "set_memory_limit": "remembered only",
    "set_cache_limit": "remembered only",
    "set_wired_limit": "remembered only",
    "asarray": "always copies",
    "from_dlpack": "copies",
    "linalg.norm": "no norms of singular values",
    "fast.metal_kernel": "made, raises when called",
    "array.__dlpack__": "a copy in host memory",
    "array.__array__": "a copy",
    "array.__complex__": "no complex arrays",
    "array.real": "no complex arrays",
    "array.imag": "no complex arrays",
    "array.conj": "no complex arrays",
}

# Names that are there to raise, as on a machine without Metal, CUDA or other processes.
RAISE = {
    "fast.cuda_kernel": "RuntimeError, as MLX does without CUDA",
    "fast.precompiled_cuda_kernel": "RuntimeError, as MLX does without CUDA",
    "metal.start_capture": "RuntimeError, as MLX does without Metal",
    "metal.stop_capture": "RuntimeError, as MLX does without Metal",
    "distributed.send": "ValueError, as MLX does in a group of one",
    "distributed.recv": "ValueError, as MLX does in a group of one",
    "distributed.recv_like": "ValueError, as MLX does in a group of one",
    "FunctionExporter": "NotImplementedError",
    "save_gguf": "NotImplementedError",
}


def state(name: str, found: object) -> tuple[str, str]:
    """Whether a name is there, and a remark."""
    if getattr(found, "is_missing", False):
        return "raises", "NotImplementedError"
    if name in RAISE:
        return "raises", RAISE[name]
    return ("partly", PARTLY[name]) if name in PARTLY else ("there", "")


def rows() -> list[tuple[str, str, str]]:
    """Every name with its state."""
    result = [(name, *state(name, getattr(mx, name))) for name in sorted(surface.TOP_LEVEL)]
    for submodule, names in surface.SUBMODULES.items():
        module: types.ModuleType = getattr(mx, submodule)
        result += [(f"{submodule}.{name}", *state(f"{submodule}.{name}", getattr(module, name))) for name in names]
    for name in surface.ARRAY_NAMES:
        found = getattr(mx.array, name, None)
        missing = ("raises", "AttributeError") if found is None else state(f"array.{name}", found)
        result.append((f"array.{name}", *missing))
    return result


def main() -> None:
    """Prints the page."""
    table = rows()
    counts = {kind: sum(row[1] == kind for row in table) for kind in ("there", "partly", "raises")}
    print("# Names of mlx.core\n")
    print("Made by [names.py](names.py); do not edit.\n")
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"Of the {len(table)} public names of mlx.core {mx.__version__}: {summary}.\n")
    print("| name | state | remark |\n|---|---|---|")
    for name, kind, remark in table:
        print(f"| `{name}` | {kind} | {remark} |")


main()
