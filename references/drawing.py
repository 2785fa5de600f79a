"""Random parameters and tokens that depend only on the seed and the name, not on the order of the calls."""

import zlib

import numpy as np


def generator(seed, name):
    """Returns the random generator of a (seed, name) pair."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def parameter(name, shape, seed, tied):
    """Draws the parameter `name` as a float32 array.

    The gains keep logits at a standard deviation near 1 and attention neither flat nor one-hot. Rows differ in size, so
    that a scale taken from the wrong row is detected.
    """
    rng = generator(seed, name)
    noise = rng.standard_normal(shape)
    if name.endswith(("experts.gate_up_proj_bias", "experts.down_proj_bias")):
        return (0.2 * noise).astype(np.float32)
    if name.endswith("sinks"):
        return (1.5 * noise).astype(np.float32)
    if len(shape) == 1:
        if name.endswith("bias"):
            return (0.2 * noise).astype(np.float32)
        if name.endswith("A_log"):  # half-life of states: a few to a few dozen tokens
            return (noise - 2).astype(np.float32)
        return np.clip(1 + 0.3 * noise, 0.3, 2).astype(np.float32)
    if len(shape) > 2 and "layers" not in name:  # vision tower
        return (0.02 * noise).astype(np.float32)
    width = shape[-1]
    if "embed_tokens" in name:
        return (noise * (width**-0.5 if tied else 0.5)).astype(np.float32)
    gain = 1.0
    if "q_proj" in name or "k_proj" in name:
        gain = 1.2
    elif any(part in name for part in ("o_proj", "out_proj", "down_proj")):
        gain = 0.7
    rows = np.exp(0.3 * rng.standard_normal((*shape[:-1], 1)))
    if "lm_head" in name:
        rows = 1.0
    return (noise * rows * gain * width**-0.5).astype(np.float32)


def tokens(vocabulary, batch, length, seed):
    """Random token ids [batch, length] that contain the first and the last id of the vocabulary."""
    ids = generator(seed, "tokens").integers(0, vocabulary, (batch, length))
    ids[0, 1] = 0
    ids[-1, 2] = vocabulary - 1
    return ids.tolist()
