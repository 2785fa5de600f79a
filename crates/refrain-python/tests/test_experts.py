"""Products with matrices that indices choose, against NumPy: the experts of a mixture as mlx-lm computes them."""

import mlx.core as mx
import numpy as np
import pytest
from refrain import _core

BOUNDS = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
MODES = [(64, 4, "affine"), (32, 8, "affine"), (32, 5, "affine"), (32, 4, "mxfp4")]


def random(shape, seed, dtype="float32"):
    numbers = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return mx.array(numbers).astype(getattr(mx, dtype))


def exact(array):
    return np.array(array.astype(mx.float32)).astype(np.float64)


class Matrices:
    """Quantised matrices of experts."""

    def __init__(self, shape, seed, mode, dtype="float32"):
        group_size, bits, name = mode
        self.settings = {"group_size": group_size, "bits": bits, "mode": name}
        self.planes = mx.quantize(random(shape, seed, dtype), **self.settings)
        wide = [plane.astype(mx.float32) if plane.dtype == getattr(mx, dtype) else plane for plane in self.planes]
        self.exact = exact(mx.dequantize(*wide, **self.settings))
        mx.eval(self.planes)

    def __call__(self, x, indices, sorted_indices=False):
        return mx.gather_qmm(
            x, *self.planes, rhs_indices=indices, transpose=True, sorted_indices=sorted_indices, **self.settings
        )


def close(found, expected, dtype):
    assert found.shape == expected.shape
    difference = np.abs(exact(found) - expected) / (1 + np.abs(expected))
    assert difference.max() < BOUNDS[dtype]


def drawn(shape, experts, seed):
    return np.random.default_rng(seed).integers(0, experts, shape)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("x", "indices"),
    [
        ((1, 1, 1, 128), (1, 8)),
        ((5, 1, 1, 128), (5, 3)),
        ((5, 3, 1, 128), (5, 3)),
        ((1, 9, 1, 1, 128), (1, 9, 2)),
        ((2, 7, 4, 1, 128), (2, 7, 4)),
        ((70, 1, 128), (70,)),
        ((2, 5, 128), (2,)),
    ],
)
def test_quantised_experts(x, indices, mode, dtype):
    matrices = Matrices((6, 24, 128), 1, mode, dtype)
    chosen = drawn(indices, 6, 2)
    x = random(x, 3, dtype)
    found = matrices(x, mx.array(chosen))
    assert found.dtype == x.dtype
    close(found, exact(x) @ matrices.exact[chosen].swapaxes(-1, -2), dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("x", "indices"), [((4, 1, 1, 96), (4, 3)), ((40, 1, 96), (40,)), ((1, 3, 2, 1, 96), (1, 3, 2))]
)
def test_dense_experts(x, indices, dtype):
    w = random((5, 17, 96), 1, dtype)
    chosen = drawn(indices, 5, 2)
    x = random(x, 3, dtype)
    expected = exact(x) @ exact(w)[chosen].swapaxes(-1, -2)
    for b in (w.swapaxes(-1, -2), mx.contiguous(w.swapaxes(-1, -2))):
        found = mx.gather_mm(x, b, rhs_indices=mx.array(chosen))
        assert found.dtype == x.dtype
        close(found, expected, dtype)


def silu(x):
    return x * mx.sigmoid(x)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("tokens", [1, 3, 20])
def test_a_mixture_of_experts(tokens, dtype):
    gate, up, down = (
        Matrices(shape, n, MODES[0], dtype) for n, shape in enumerate([(8, 64, 128), (8, 64, 128), (8, 128, 64)])
    )
    x = random((1, tokens, 128), 3, dtype) * 0.25
    chosen, scores = drawn((1, tokens, 4), 8, 4), random((1, tokens, 4), 5, dtype)
    wide, indices = mx.expand_dims(x, (-2, -3)), mx.array(chosen).astype(mx.uint32)
    inner = silu(gate(wide, indices)) * up(wide, indices)
    found = (down(inner, indices).squeeze(-2) * scores[..., None]).sum(axis=-2)
    each = exact(wide)
    gates, ups = (each @ m.exact[chosen].swapaxes(-1, -2) for m in (gate, up))
    outputs = gates / (1 + np.exp(-gates)) * ups @ down.exact[chosen].swapaxes(-1, -2)
    expected = (outputs.squeeze(-2) * exact(scores)[..., None]).sum(-2)
    bound = 30 * BOUNDS[dtype]
    assert np.abs(exact(found) - expected).max() < bound


def test_experts_are_not_copied():
    matrices = Matrices((64, 256, 256), 1, MODES[0], "bfloat16")
    x = random((64, 1, 1, 256), 2, "bfloat16")
    indices = mx.array(drawn((64, 8), 64, 3))
    mx.eval(x, indices)
    mx.clear_cache()
    active, peak = _core._memory()
    mx.eval(matrices(x, indices))
    # Dequantised, the matrices of all pairs have 134 MB.
    assert _core._memory()[1] - max(active, peak) < 16 << 20
