"""`mlx.core.fast` against NumPy."""

import mlx.core as mx
import numpy as np
import pytest
import refrain.mlx

# Bounds of differences to f64, for values of about 1.
BOUNDS = {"float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}


def random(shape, seed, dtype="float32"):
    """Normal numbers as an array and as NumPy's, rounded to the dtype."""
    array = mx.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).astype(getattr(mx, dtype))
    return array, np.array(array.astype(mx.float32)).astype(np.float64)


def attended(q, k, v, scale, causal):
    """Attention in f64."""
    heads = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, heads, axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        first = k.shape[2] - q.shape[2]
        scores = np.where(np.tri(q.shape[2], k.shape[2], first, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "tokens", "slots", "dims"),
    [
        (1, 4, 2, 1, 1, (8, 8)),
        (1, 4, 2, 1, 37, (8, 8)),
        (2, 6, 2, 1, 256, (64, 64)),
        (1, 3, 3, 1, 512, (128, 64)),
        (2, 4, 1, 5, 300, (32, 32)),
        (1, 8, 2, 8, 8, (16, 2)),
        (1, 4, 2, 9, 40, (32, 32)),
        (2, 4, 2, 40, 256, (32, 16)),
        (1, 4, 2, 300, 300, (64, 64)),
        (1, 4, 1, 70, 577, (128, 128)),
        (2, 4, 2, 70, 70, (64, 64)),
        (1, 2, 1, 1, 19, (7, 5)),
        (1, 2, 2, 3, 19, (264, 8)),
    ],
)
def test_attention(batch, heads, kv_heads, tokens, slots, dims, dtype):
    q, exact_q = random((batch, heads, tokens, dims[0]), 1, dtype)
    k, exact_k = random((batch, kv_heads, slots, dims[0]), 2, dtype)
    v, exact_v = random((batch, kv_heads, slots, dims[1]), 3, dtype)
    for mask in (None, "causal"):
        found = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25, mask=mask)
        assert (found.shape, found.dtype) == ((batch, heads, tokens, dims[1]), getattr(mx, dtype))
        expected = attended(exact_q, exact_k, exact_v, 0.25, mask is not None)
        np.testing.assert_allclose(np.array(found.astype(mx.float32)), expected, atol=BOUNDS[dtype])


@pytest.mark.parametrize("tokens", [1, 3, 12])
def test_attention_over_the_beginning_of_a_cache(tokens):
    """Unused slots hold NaN and are not read."""
    for used in (tokens, 17, 29):
        q, exact_q = random((2, 4, tokens, 16), used)
        k, exact_k = random((2, 2, used, 16), used + 1)
        v, exact_v = random((2, 2, used, 16), used + 2)
        caches = [mx.concatenate([x, mx.full((2, 2, 256 - used, 16), mx.nan)], axis=2) for x in (k, v)]
        mx.eval(caches)
        keys, values = (cache[..., :used, :] for cache in caches)
        found = mx.fast.scaled_dot_product_attention(q, keys, values, scale=0.25, mask="causal")
        np.testing.assert_allclose(np.array(found), attended(exact_q, exact_k, exact_v, 0.25, True), atol=2e-5)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(("batch", "tokens", "slots"), [(1, 12, 40), (1, 40, 40), (1, 300, 512), (2, 12, 40), (1, 3, 8)])
def test_attention_over_what_a_cache_begins_with(batch, tokens, slots, dtype):
    q, exact_q = random((batch, 4, tokens, 16), 1, dtype)
    k, exact_k = random((batch, 2, tokens, 16), 2, dtype)
    v, exact_v = random((batch, 2, tokens, 16), 3, dtype)
    for first in (0, slots - tokens):
        caches = [mx.zeros((batch, 2, slots, 16), q.dtype) for _ in (k, v)]
        caches[0][..., first : first + tokens, :] = k
        caches[1][..., first : first + tokens, :] = v
        keys, values = (cache[..., :tokens, :] for cache in caches)
        found = mx.fast.scaled_dot_product_attention(q, keys, values, scale=0.25, mask="causal")
        # What was written behind the beginning is seen as far as the beginning reaches.
        seen = [np.zeros_like(exact_k), np.zeros_like(exact_v)]
        for cache, exact in zip(seen, (exact_k, exact_v)):
            cache[..., first:, :] = exact[..., : max(tokens - first, 0), :]
        expected = attended(exact_q, *seen, 0.25, True)
        np.testing.assert_allclose(np.array(found.astype(mx.float32)), expected, atol=BOUNDS[dtype])
        np.testing.assert_array_equal(np.array(caches[0].astype(mx.float32))[..., first : first + tokens, :], exact_k)


def test_filled_arrays_have_memory_of_their_shape():
    """Else each program that reads one would copy it first."""
    ones = mx.ones((64, 32))
    mx.eval(ones)
    steps = []
    for weight in (ones[0], mx.array(np.ones(32, np.float32))):
        mx.eval(weight)
        x = mx.array(np.ones((4, 32), np.float32))
        normed = mx.fast.rms_norm(x, weight, 1e-5)
        mx.eval(normed)
        steps.append(int(str(refrain.mlx.explain()).splitlines()[-1].split(" steps")[0].split()[-1]))
    assert steps[0] == steps[1]


def rotated(x, dims, traditional, frequencies, positions):
    """Rotary embeddings in f64 of x [B, .., T, D] at positions [B, T]."""
    positions = positions.reshape(positions.shape[0], *[1] * (x.ndim - 3), -1, 1)
    angles = positions * frequencies
    pairs = (slice(0, dims, 2), slice(1, dims, 2)) if traditional else (slice(0, dims // 2), slice(dims // 2, dims))
    a, b = (x[..., part] for part in pairs)
    result = x.copy()
    result[..., pairs[0]] = a * np.cos(angles) - b * np.sin(angles)
    result[..., pairs[1]] = a * np.sin(angles) + b * np.cos(angles)
    return result


@pytest.mark.parametrize("shape", [(1, 2, 1, 8), (2, 3, 5, 16), (2, 5, 16), (1, 1, 1, 6), (2, 2, 2, 3, 8)])
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.25, 0.3])
def test_rope(shape, traditional, scale):
    x, exact = random(shape, 4)
    batch, tokens, width = shape[0], shape[-2], shape[-1]
    offsets = [0, 41, mx.array(7), mx.array([3] * batch), mx.array([2.0])]
    for dims in (width, 4):
        frequencies = 100.0 ** (-np.arange(0, dims, 2) / dims)
        for offset in offsets:
            first = np.array(offset).astype(np.float64).reshape(-1, 1)
            positions = np.broadcast_to((first + np.arange(tokens)) * scale, (batch, tokens))
            expected = rotated(exact, dims, traditional, frequencies, positions)
            by_base = mx.fast.rope(x, dims, traditional=traditional, base=100.0, scale=scale, offset=offset)
            periods = mx.array((1 / frequencies).astype(np.float32))
            by_periods = mx.fast.rope(
                x, dims, traditional=traditional, base=None, scale=scale, offset=offset, freqs=periods
            )
            for found in (by_base, by_periods):
                np.testing.assert_allclose(np.array(found), expected, atol=3e-5)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_rms_norm(dtype):
    x, exact = random((3, 5, 64), 5, dtype)
    for weight_dtype in BOUNDS:
        weight, exact_weight = random((64,), 6, weight_dtype)
        found = mx.fast.rms_norm(x, weight, 1e-5)
        assert found.dtype == (x * weight).dtype
        expected = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5) * exact_weight
        np.testing.assert_allclose(np.array(found.astype(mx.float32)), expected, atol=2 * BOUNDS[dtype])


def test_scales_and_dequantized_matrices_are_floats():
    w, scales, biases = mx.quantize(mx.ones((8, 64)), bits=4)
    with pytest.raises(ValueError, match="floating"):
        mx.dequantize(w, scales, biases, bits=4, dtype=mx.int32)
    integers = mx.ones(scales.shape, dtype=mx.int32)
    with pytest.raises(ValueError, match="floating"):
        mx.quantized_matmul(mx.ones((2, 64)), w, integers, integers, bits=4)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_quantized_matmul(bits):
    weight, _ = random((32, 128), 7)
    planes = mx.quantize(weight, 32, bits)
    exact = np.array(mx.dequantize(*planes, 32, bits)).astype(np.float64)
    for shape in ((128,), (1, 128), (2, 3, 128), (1, 1, 128)):
        for dtype, bound in BOUNDS.items():
            x, exact_x = random(shape, 8, dtype)
            found = mx.quantized_matmul(x, *planes, group_size=32, bits=bits)
            assert (found.shape, found.dtype) == ((*shape[:-1], 32), mx.float32)
            halves = [plane.astype(x.dtype) for plane in planes[1:]]
            assert mx.quantized_matmul(x, planes[0], *halves, group_size=32, bits=bits).dtype == x.dtype
            np.testing.assert_allclose(np.array(found.astype(mx.float32)), exact_x @ exact.T, atol=20 * bound)


def stepped(q, k, v, gamma, beta, state, mask):
    """The gated delta rule in f64, step by step."""
    outputs = []
    q, k = (np.repeat(x, v.shape[2] // x.shape[2], 2) for x in (q, k))
    for t in range(q.shape[1]):
        decayed = state * gamma[:, t, :, None, None]
        error = v[:, t] - (decayed * k[:, t, :, None]).sum(-1)
        following = decayed + (error * beta[:, t, :, None])[..., None] * k[:, t, :, None]
        outputs.append((following * q[:, t, :, None]).sum(-1))
        state = np.where(mask[:, t, None, None, None], following, state)
    return np.stack(outputs, 1), state


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize(
    ("batch", "tokens", "heads", "dims"),
    [(1, 1, (1, 1), (32, 32)), (1, 5, (2, 4), (32, 16)), (3, 4, (1, 2), (64, 32)), (1, 70, (2, 2), (32, 32))],
)
def test_gated_delta_update(batch, tokens, heads, dims, is_masked, dtype):
    (key_heads, value_heads), (key_dim, value_dim) = heads, dims
    unit = key_dim**-0.5
    q, _ = random((batch, tokens, key_heads, key_dim), 1, dtype)
    k, _ = random((batch, tokens, key_heads, key_dim), 2, dtype)
    q, k = q * unit, k * unit
    v, exact_v = random((batch, tokens, value_heads, value_dim), 3, dtype)
    gates = [mx.sigmoid(random((batch, tokens, value_heads), seed)[0]) for seed in (4, 5)]
    state, exact_state = random((batch, value_heads, value_dim, key_dim), 6)
    mask = np.random.default_rng(7).uniform(size=(batch, tokens)) < 0.7 if is_masked else np.ones((batch, tokens), bool)
    exact = [np.array(x.astype(mx.float32)).astype(np.float64) for x in (q, k)]
    exact_gates = [np.array(x).astype(np.float64) for x in gates]
    expected, last = stepped(*exact, exact_v, *exact_gates, exact_state, mask)
    outputs, found = mx.fast.gated_delta_update(q, k, v, *gates, state, mx.array(mask) if is_masked else None)
    assert (outputs.dtype, found.dtype) == (q.dtype, mx.float32)
    difference = np.abs(np.array(outputs.astype(mx.float32)) - expected)[mask]
    assert difference.max() < 10 * BOUNDS[dtype]
    assert np.abs(np.array(found) - last).max() < 10 * BOUNDS["float32"]
    # The state that is given stays as it is.
    assert np.array_equal(np.array(state), exact_state.astype(np.float32))


def test_levels_of_quantisation_do_not_depend_on_when_the_weights_are_computed():
    key = mx.random.key(1)

    def quantised(first):
        weights = mx.random.normal((64, 128), key=key).astype(mx.float16)
        if first:
            mx.eval(weights)
        return mx.quantize(weights, group_size=32, bits=3)

    at_once, later = quantised(False), quantised(True)
    mx.eval(at_once)
    assert all(mx.array_equal(a, b) for a, b in zip(at_once, later))


def test_floats_of_4_bits_that_round_to_zero_have_no_sign():
    w = mx.array([[-0.01, -0.0, 0.01, 5.0] * 8])
    # By MLX 0.32.4.
    assert mx.quantize(w, mode="mxfp4")[0].tolist() == [[1610637312] * 4]
    assert mx.quantize(w, mode="nvfp4")[0].tolist() == [[1879076864] * 4]
    assert mx.quantize(-w, mode="mxfp4")[0].tolist() == [[3758153728] * 4]
