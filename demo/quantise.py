"""Affine quantisation in the format of MLX.

Each group of `group_size` weights of a row shares a scale s and a bias b. A weight is stored as an integer q of
`bits` bits with w ~ s * q + b. The integers are packed into u32 words, lowest bits first. Zero and the end of the
group's range with the larger magnitude are represented exactly, so s may be negative.
"""

import numpy as np


def bf16_round(values: np.ndarray) -> np.ndarray:
    """Rounds f32 values to the nearest bf16 (ties to even), still as f32."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    words = words + 0x7FFF + ((words >> 16) & 1)
    return (words & np.uint32(0xFFFF0000)).view(np.float32)


def quantise(weight: np.ndarray, group_size: int, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantises a matrix [rows, columns] to (words u32 [rows, columns * bits / 32], scales, biases).

    Scales and biases are [rows, columns / group_size], f32 values that bf16 represents exactly. `columns` must be a
    multiple of `group_size`, `bits` 4 or 8. As in MLX, the integers are computed with the scale before it is rounded
    to bf16.
    """
    rows, columns = weight.shape
    if columns % group_size or bits not in (4, 8):
        raise ValueError(f"cannot quantise {rows}x{columns} to {bits} bits in groups of {group_size}")
    groups = weight.astype(np.float32).reshape(rows, columns // group_size, group_size)
    largest = np.float32(2**bits - 1)
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    scale = np.maximum((high - low) / largest, np.float32(1e-7))
    low_is_larger = np.abs(low) > np.abs(high)
    scale = np.where(low_is_larger, scale, -scale)
    edge = np.where(low_is_larger, low, high)
    steps = np.rint(edge / scale)
    scale = np.where(steps != 0, edge / np.where(steps != 0, steps, 1), scale)
    bias = np.where(steps != 0, edge, np.float32(0))
    integers = np.clip(np.rint((groups - bias) / scale), 0, largest).astype(np.uint32)
    per_word = 32 // bits
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    words = (integers.reshape(rows, -1, per_word) << shifts).sum(-1, dtype=np.uint32)
    return words, bf16_round(scale[..., 0]), bf16_round(bias[..., 0])


def dequantise(words: np.ndarray, scales: np.ndarray, biases: np.ndarray, bits: int) -> np.ndarray:
    """Reverses `quantise`: returns the f32 matrix."""
    rows, groups = scales.shape
    shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    integers = (words[..., None] >> shifts) & np.uint32(2**bits - 1)
    integers = integers.reshape(rows, groups, -1).astype(np.float32)
    return (integers * scales[..., None] + biases[..., None]).reshape(rows, -1)
