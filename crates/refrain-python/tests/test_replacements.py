"""Functions of mlx-lm and mlx.nn that are replaced by faster ones."""

import copy
import importlib
import sys

import mlx.core as mx
import pytest
from refrain.mlx import replacements

LAYERS = """
import mlx.core as mx

class Module(dict):
    def __getattr__(self, key):
        {getattr}

class QuantizedLinear(Module):
    def __call__(self, x):
        product = mx.quantized_matmul(
            x, self.get("weight"), self.get("scales"), self.get("biases"), True, self.{group_size}, self.bits, self.mode
        )
        return product + self["bias"] if "bias" in self else product
"""
GETATTR = """if (value := self.get(key)) is not None:
            return value
        super(Module, self).__getattribute__(key)"""


def imported(name, text, folder, monkeypatch):
    """The module `name` with this text, in place of an installed one."""
    packages = name.split(".")[:-1]
    package = folder
    for part in packages:
        package /= part
        package.mkdir()
        (package / "__init__.py").touch()
    (package / f"{name.split('.')[-1]}.py").write_text(text)
    # `mlx.core` stays what it is.
    def own():
        return [part for part in sys.modules if part.split(".")[:2] == packages[:2] or part == packages[0] != "mlx"]

    for part in own():
        monkeypatch.delitem(sys.modules, part)
    if packages[0] == "mlx":
        monkeypatch.setattr(sys.modules["mlx"], "__path__", [str(folder / "mlx")])
    monkeypatch.syspath_prepend(folder)
    try:
        return importlib.import_module(name)
    finally:
        for part in own():
            del sys.modules[part]


@pytest.mark.parametrize(
    ("parameters", "is_replaced"), [("q, k, v, g, beta, state=None, mask=None", True), ("q, k, v", False)]
)
def test_only_a_function_with_the_same_parameters_is_replaced(tmp_path, monkeypatch, parameters, is_replaced):
    text = f"def gated_delta_ops({parameters}): ...\nkept = 1\n"
    module = imported("mlx_lm.models.gated_delta", text, tmp_path, monkeypatch)
    assert module.kept == 1
    assert (module.gated_delta_ops is mx.fast.gated_delta_update) == is_replaced


def test_other_modules_are_found_as_ever():
    assert replacements.Finder().find_spec("mlx_lm.models.qwen3") is None


def layer_of(module, has_bias):
    layer = module.QuantizedLinear()
    weight = mx.random.normal((32, 64), key=mx.random.key(1))
    layer["weight"], layer["scales"], layer["biases"] = mx.quantize(weight, group_size=32, bits=4)
    if has_bias:
        layer["bias"] = mx.arange(32).astype(mx.float32)
    layer.group_size, layer.bits, layer.mode = 32, 4, "affine"
    layer.width = layer.group_size
    return layer


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_quantised_layer_computes_what_its_python_does(tmp_path, monkeypatch, has_bias):
    text = LAYERS.format(getattr=GETATTR, group_size="group_size")
    module = imported("mlx.nn.layers.quantized", text, tmp_path, monkeypatch)
    assert is_replaced(module.QuantizedLinear.__call__)
    layer = layer_of(module, has_bias)
    x = mx.random.normal((3, 64), key=mx.random.key(2))
    expected = mx.quantized_matmul(x, layer["weight"], layer["scales"], layer["biases"], group_size=32, bits=4)
    expected = expected + layer["bias"] if has_bias else expected
    assert mx.array_equal(layer(x), expected)
    del layer["scales"]
    with pytest.raises(KeyError, match="scales"):
        layer(x)


def test_a_quantised_layer_with_other_code_stays(tmp_path, monkeypatch):
    text = LAYERS.format(getattr=GETATTR, group_size="width")
    module = imported("mlx.nn.layers.quantized", text, tmp_path, monkeypatch)
    assert module.QuantizedLinear.__call__.__qualname__ == "QuantizedLinear.__call__"
    assert layer_of(module, False)(mx.ones((1, 64))).shape == (1, 32)


def check_attributes(module):
    assert module.part == 1
    for name in ("missing", "__deepcopy__"):
        assert not hasattr(module, name)
        with pytest.raises(AttributeError, match=f"'{type(module).__name__}' object has no attribute '{name}'"):
            getattr(module, name)
    with pytest.raises(KeyError):
        module["missing"]
    assert module.get("missing") is None
    assert copy.deepcopy(module) == module


def test_attributes_of_modules_are_their_items(tmp_path, monkeypatch):
    base = imported("mlx.nn.layers.base", LAYERS.format(getattr=GETATTR, group_size="bits"), tmp_path, monkeypatch)
    assert base.Module.__getattr__ is dict.__getitem__
    check_attributes(base.Module(part=1))


def test_a_module_with_other_code_keeps_its_attributes(tmp_path, monkeypatch):
    text = LAYERS.format(getattr="return self.pop(key)", group_size="bits")
    base = imported("mlx.nn.layers.base", text, tmp_path, monkeypatch)
    assert base.Module.__getattr__ is not dict.__getitem__


def is_replaced(function):
    return function.__module__ == replacements.__name__


def test_published_layers_are_replaced():
    """ci/python runs this and what follows again where the published packages are installed."""
    nn = pytest.importorskip("mlx.nn")
    assert nn.Module.__getattr__ is dict.__getitem__
    assert is_replaced(nn.QuantizedLinear.__call__)
    module = nn.Module()
    module["part"] = 1
    check_attributes(module)
    linear = nn.Linear(64, 32)
    layer = nn.QuantizedLinear.from_linear(linear, group_size=32, bits=8)
    x = mx.random.normal((2, 64))
    assert mx.allclose(layer(x), linear(x), atol=0.02)


@pytest.mark.parametrize(
    ("bits", "group_size", "mode"),
    [*((bits, 64, "affine") for bits in (2, 3, 4, 5, 6, 8)), (4, 32, "affine"), (4, 32, "mxfp4"), (8, 32, "mxfp8")],
)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_published_embeddings_compute_what_their_python_does(bits, group_size, mode, dtype):
    nn = pytest.importorskip("mlx.nn")
    assert is_replaced(nn.QuantizedEmbedding.__call__)
    layer = nn.QuantizedEmbedding(40, 128, group_size, bits, mode)
    if mode == "affine":
        layer.scales, layer.biases = layer.scales.astype(dtype), layer.biases.astype(dtype)
    for tokens in (mx.array([[3, 39, 0], [7, 7, 1]]), mx.array([[-1], [-40]]), mx.array([5], mx.uint32)):
        biases = layer["biases"][tokens] if layer.get("biases") is not None else None
        rows = layer["weight"][tokens], layer["scales"][tokens], biases
        expected = mx.dequantize(*rows, group_size=group_size, bits=bits, mode=mode)
        found = layer(tokens)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        # bf16 is rounded once, not after the product and after the sum.
        atol = 1e-6 if found.dtype == mx.float32 else 0.01
        assert mx.allclose(found.astype(mx.float32), expected.astype(mx.float32), rtol=0, atol=atol)
    with pytest.raises(ValueError, match="integral"):
        layer(mx.array([0.5]))
    with pytest.raises(ValueError, match="two dimensions"):
        layer(mx.array(0))


def test_published_norms_compute_what_their_python_does():
    nn = pytest.importorskip("mlx.nn")
    assert is_replaced(nn.RMSNorm.__call__)
    x = mx.random.normal((2, 8))
    norm = nn.RMSNorm(8, eps=0.5)
    norm.weight = mx.arange(8).astype(mx.float32)
    assert mx.array_equal(norm(x), mx.fast.rms_norm(x, mx.arange(8).astype(mx.float32), 0.5))
    with pytest.raises(ValueError, match="same size"):
        norm(x[:, :4])
    del norm["weight"]
    with pytest.raises(KeyError, match="weight"):
        norm(x)


@pytest.mark.parametrize("offset", [0, 5, [2, 7]])
def test_published_rotations_compute_what_their_python_does(offset):
    nn = pytest.importorskip("mlx.nn")
    assert is_replaced(nn.RoPE.__call__)
    x = mx.random.normal((2, 3, 4, 16))
    offset = mx.array(offset) if isinstance(offset, list) else offset
    rope = nn.RoPE(8, traditional=True, base=100.0, scale=0.5)
    expected = mx.fast.rope(x, 8, traditional=True, base=100.0, scale=0.5, offset=offset)
    assert mx.array_equal(rope(x, offset=offset), expected)
    if isinstance(offset, int):
        assert mx.array_equal(rope(x, offset), expected)


@pytest.mark.parametrize("has_bias", [True, False])
def test_published_experts_compute_what_their_python_does(has_bias):
    layers = pytest.importorskip("mlx_lm.models.switch_layers")
    assert is_replaced(layers.QuantizedSwitchLinear.__call__)
    layer = layers.QuantizedSwitchLinear(64, 32, 4, bias=has_bias, group_size=32, bits=4)
    if has_bias:
        layer.bias = mx.random.normal((4, 32))
    x, indices = mx.random.normal((2, 1, 1, 64)), mx.array([[3, 0], [1, 1]])
    parts = layer["weight"], layer["scales"], layer["biases"]
    expected = mx.gather_qmm(x, *parts, rhs_indices=indices, group_size=32, bits=4)
    if has_bias:
        expected = expected + mx.expand_dims(layer["bias"][indices], -2)
    assert mx.array_equal(layer(x, indices, sorted_indices=False), expected)


# Full after the third, and at first.
@pytest.mark.parametrize("parts", [(3, 250, 3, 5, 1), (256, 5, 1)])
def test_published_caches_hold_what_their_python_does(parts):
    cache_module = pytest.importorskip("mlx_lm.models.cache")
    assert is_replaced(cache_module.KVCache.update_and_fetch)
    cache = cache_module.KVCache()
    all_keys, all_values = [], []
    for tokens in parts:
        keys = mx.random.normal((1, 2, tokens, 4))
        values = mx.random.normal((1, 2, tokens, 6))
        all_keys.append(keys)
        all_values.append(values)
        fetched = cache.update_and_fetch(keys, values)
        assert cache.offset == sum(part.shape[2] for part in all_keys)
        for found, parts in zip(fetched, (all_keys, all_values), strict=True):
            assert mx.array_equal(found, mx.concatenate(parts, axis=2))
        assert (fetched[0] is cache.keys) == (cache.offset == 256)
    held = cache.keys
    with pytest.raises(ValueError, match="broadcast"):
        cache.update_and_fetch(mx.zeros((1, 3, 1, 4)), mx.zeros((1, 2, 1, 6)))
    assert cache.offset == 262 and mx.array_equal(held, cache.keys)


def test_a_subclass_of_a_published_cache_fetches_as_it_does():
    cache_module = pytest.importorskip("mlx_lm.models.cache")

    class Last(cache_module.KVCache):
        def keys_and_values(self):
            return self.keys[..., self.offset - 1 : self.offset, :], None

    cache = Last()
    for number in range(2):
        keys, values = cache.update_and_fetch(mx.full((1, 1, 2, 4), number), mx.zeros((1, 1, 2, 4)))
        assert values is None
        assert keys.tolist() == [[[[number] * 4]]]
