"""Quantised blocks with the float32 values that the reference libraries of the formats decode from them."""

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Kind
from safetensors.numpy import save_file

import drawing
import mlx_affine

ROWS, WIDTH = 12, 384
KINDS = (Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1)
# Kinds that the gguf package reads but does not write, with the offsets of the float16 factors in their blocks.
K_FACTORS = {Kind.Q2_K: (80, 82), Kind.Q3_K: (108,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,)}
BOOK_FACTORS = {Kind.IQ4_NL: (0,), Kind.IQ4_XS: (0,)}
AFFINE_GROUPS = ((32, "f16"), (64, "bf16"), (128, "f32"), (64, "f16"))
# Scales as float16 bits: zero, minus zero, smallest and largest subnormal, smallest normal, one, minus one, largest.
F16_EDGES = [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF]
# Exponents: the smallest, subnormal and normal scales, typical ones, and those of the largest finite values.
E8M0_EDGES = [0, 1, 2, 90, 119, 127, 128, 251]
AFFINE_EDGES = {
    "f16": [0.0, -0.0, 6e-8, 6.1e-5, -6.1e-5, 1.0, -200.0, 250.0],
    "bf16": [0.0, -0.0, 1e-38, -1e-30, 1.0, -1.0, -1e30, 1e30],
    "f32": [0.0, -0.0, 1e-38, -1e-30, 1 / 3, -1.0, -1e30, 1e30],
}


def write(directory):
    """Writes one safetensors file for each format."""
    directory.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        blocks = gguf_blocks(kind)
        values = gguf.quants.dequantize(blocks, kind)
        save(directory / f"{kind.name.lower()}.safetensors", {"blocks": blocks, "values": values})
    for kind in K_FACTORS | BOOK_FACTORS:
        blocks = k_blocks(kind, 3, 1024, [*F16_EDGES, 0x2A66, 0xA1F3, 0x1C05])
        values = gguf.quants.dequantize(blocks, kind)
        save(directory / f"{kind.name.lower()}.safetensors", {"blocks": blocks, "values": values})
    blocks = mxfp4_blocks()
    values = gguf.quants.dequantize(blocks, Kind.MXFP4)
    tensors = {"blocks": blocks, "values": values, "original": typical_values("MXFP4")}
    save(directory / "mxfp4.safetensors", tensors)
    path = directory / "mxfp4-mlx.safetensors"
    mx.save_safetensors(str(path), mxfp4_planes())
    path.chmod(0o644)
    for bits in (2, 3, 4, 5, 6, 8):
        for group, dtype in AFFINE_GROUPS[: 4 if bits in (4, 8) else 3]:
            path = directory / f"affine-{bits}-group{group}-{dtype}.safetensors"
            mx.save_safetensors(str(path), affine(bits, group, dtype))
            path.chmod(0o644)


def k_blocks(kind, rows, width, factors):
    """Random blocks [rows, bytes] whose float16 factors cycle through `factors`.

    Each block starts with the next factor, or with the first one if there are only two.
    """
    per_block, size = gguf.GGML_QUANT_SIZES[kind]
    offsets = (K_FACTORS | BOOK_FACTORS)[kind]
    blocks = drawing.generator(34, kind.name).integers(0, 256, (rows * width // per_block, size), np.uint8)
    for number, block in enumerate(blocks):
        start = number if len(factors) > 2 else 0
        for index, offset in enumerate(offsets):
            factor = np.uint16(factors[(start + index) % len(factors)])
            block[offset : offset + 2] = np.frombuffer(factor.tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def save(path, tensors):
    """Writes a safetensors file that is readable by everyone."""
    save_file(tensors, path)
    path.chmod(0o644)


def typical_values(name):
    """Values distributed like weights, with one row of zeros and one row with constant groups."""
    values = drawing.generator(31, name).standard_normal((ROWS, WIDTH)).astype(np.float32)
    values[1] = 0
    values[2] = np.repeat(values[2, ::32], 32)
    return values * np.float32(0.05)


def gguf_blocks(kind):
    """Blocks [rows, bytes]: quantised typical values, then random quants with scales at the edges."""
    blocks = gguf.quants.quantize(typical_values(kind.name), kind)
    quants = drawing.generator(32, kind.name).integers(0, 256, (len(F16_EDGES), blocks.shape[1]), np.uint8)
    size = gguf.GGML_QUANT_SIZES[kind][1]
    for row, scale in enumerate(F16_EDGES):
        stored = quants[row].reshape(-1, size)
        stored[:, :2] = np.frombuffer(np.uint16(scale).tobytes(), np.uint8)
        if kind in (Kind.Q4_1, Kind.Q5_1):
            stored[:, 2:4] = np.frombuffer(np.uint16(F16_EDGES[-1 - row]).tobytes(), np.uint8)
    return np.concatenate([blocks, quants])


def mxfp4_blocks():
    """Blocks [rows, bytes]: quantised typical values, then random codes with exponents at the edges."""
    blocks = gguf.quants.quantize(typical_values("MXFP4"), Kind.MXFP4)
    numbers = drawing.generator(35, "MXFP4").integers(0, 256, (len(E8M0_EDGES), blocks.shape[1]), np.uint8)
    for row, exponent in enumerate(E8M0_EDGES):
        numbers[row].reshape(-1, 17)[:, 0] = exponent
    return np.concatenate([blocks, numbers])


def mxfp4_planes():
    """Tensors weight, scales and values in MLX's mode mxfp4: quantised typical values, then edge cases."""
    words, scales = mx.quantize(mx.array(typical_values("mxfp4 mlx")), 32, 4, mode="mxfp4")
    random = drawing.generator(35, "mxfp4 mlx").integers(0, 1 << 32, (len(E8M0_EDGES), words.shape[1]), np.uint32)
    words = mx.concatenate([words, mx.array(random)])
    scales = mx.concatenate([scales, columns(E8M0_EDGES, scales)])
    values = mx.dequantize(words, scales, None, 32, 4, mode="mxfp4", dtype=mx.float32)
    return {"weight": words, "scales": scales, "values": values}


def affine(bits, group, dtype):
    """Tensors weight, scales, biases and values: quantised typical values, then edge cases as scales and biases."""
    name = f"{bits} {group} {dtype}"
    words, scales, biases = mx.quantize(mx.array(typical_values(name)).astype(mlx_affine.DTYPES[dtype]), group, bits)
    edges = AFFINE_EDGES[dtype]
    random = drawing.generator(33, name).integers(0, 1 << 32, (len(edges), words.shape[1]), np.uint32)
    words = mx.concatenate([words, mx.array(random)])
    scales = mx.concatenate([scales, columns(edges, scales)])
    biases = mx.concatenate([biases, columns(edges[::-1], biases)])
    values = mlx_affine.dequantise(words, scales, biases, group, bits)
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: a value is not finite")
    return {"weight": words, "scales": scales, "biases": biases, "values": mx.array(values)}


def columns(values, like):
    """An array of the width and dtype of `like` whose row i repeats values[i]."""
    return mx.broadcast_to(mx.array(values)[:, None], (len(values), like.shape[1])).astype(like.dtype)
