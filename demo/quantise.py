"""Affine quantisation in MLX's format.

Each run of `group_size` weights of a row shares a scale s and a bias b; a weight
is stored as the integer q of `bits` bits for which w ~ s * q + b. The integers
are packed into u32 words, lowest bits first. One end of a group's range (the one
larger in magnitude) and zero are met exactly; so s may be negative.
"""

import numpy as np


def bf16_round(values: np.ndarray) -> np.ndarray:
    """f32 values rounded to the nearest bf16 (ties to even), still f32."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    words = words + 0x7FFF + ((words >> 16) & 1)
    return (words & np.uint32(0xFFFF0000)).view(np.float32)


def quantise(weight: np.ndarray, group_size: int, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix [rows, columns] as (words u32 [rows, columns * bits / 32], scales, biases).

    Scales and biases are [rows, columns / group_size], f32 values that bf16 holds
    exactly. `columns` must be a multiple of `group_size`, `bits` 4 or 8. As MLX
    does, the integers are chosen with the scale before its rounding to bf16.
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
    """The f32 matrix that `quantise` stored."""
    rows, groups = scales.shape
    shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    integers = (words[..., None] >> shifts) & np.uint32(2**bits - 1)
    integers = integers.reshape(rows, groups, -1).astype(np.float32)
    return (integers * scales[..., None] + biases[..., None]).reshape(rows, -1)
