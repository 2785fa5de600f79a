"""Rows of values quantised by other software: the reference for the quantisers of `refrain convert`.

Run it in the environment of conversions.py: peers/bin/python references/quantisers.py
"""

import ctypes
import glob
import pathlib

import gguf
import llama_cpp
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Kind

ROWS, WIDTH = 8, 512
BLOCKS = (Kind.Q8_0, Kind.Q4_0, Kind.Q5_0, Kind.Q5_1)
K_QUANTS = (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K)
DTYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
OUT = pathlib.Path(__file__).parent.parent / "tests/fixtures/quantised/conversions.safetensors"


def values():
    """Typical values, and rows that are zero, constant, one-sided, tiny, or contain outliers."""
    values = np.random.default_rng(41).standard_normal((ROWS, WIDTH)).astype(np.float32) * np.float32(0.05)
    values[1] = 0
    values[2] = np.repeat(values[2, ::32], 32)
    values[3] = np.abs(values[3])
    values[4] = -np.abs(values[4]) - np.float32(0.1)
    values[5] *= np.float32(1e-6)
    values[6, ::97] *= np.float32(100)
    return values


def llama_cpp_error(kind, values):
    """Relative RMS error of the llama.cpp quantiser."""
    folder = pathlib.Path(llama_cpp.__file__).parent
    library = ctypes.CDLL(glob.glob(str(folder / "lib" / "libggml-base.so*"))[0])
    quantise = library.ggml_quantize_chunk
    quantise.restype = ctypes.c_size_t
    pointer = ctypes.c_void_p
    quantise.argtypes = [ctypes.c_int, pointer, pointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, pointer]
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.zeros((len(values), values.shape[1] // per_block * block_bytes), np.uint8)
    written = quantise(kind, values.ctypes.data, blocks.ctypes.data, 0, len(values), values.shape[1], None)
    if written != blocks.nbytes:
        raise ValueError(f"{kind.name}: {written} bytes instead of {blocks.nbytes}")
    result = gguf.quants.dequantize(blocks, kind)
    return float(np.linalg.norm(result - values) / np.linalg.norm(values))


def main():
    """Writes the fixture."""
    rows = values()
    tensors = {"values": mx.array(rows)}
    for kind in BLOCKS:
        tensors[kind.name.lower()] = mx.array(gguf.quants.quantize(rows, kind))
    for dtype, number in DTYPES.items():
        for bits in (4, 8):
            words, scales, biases = mx.quantize(mx.array(rows).astype(number), 64, bits)
            name = f"affine-{bits}-{dtype}"
            tensors |= {f"{name}.weight": words, f"{name}.scales": scales, f"{name}.biases": biases}
    # Stored in the file, since a test could not draw the same normal values itself.
    normal = np.random.default_rng(42).standard_normal((16, 1024)).astype(np.float16).astype(np.float32)
    tensors["normal"] = mx.array(normal).astype(mx.float16)
    for kind in K_QUANTS:
        tensors[f"{kind.name.lower()}.error"] = mx.array([llama_cpp_error(kind, normal)], mx.float32)
    mx.save_safetensors(str(OUT), tensors)
    OUT.chmod(0o644)
    for name in (f"{kind.name.lower()}.error" for kind in K_QUANTS):
        print(name, tensors[name].item())


if __name__ == "__main__":
    main()
