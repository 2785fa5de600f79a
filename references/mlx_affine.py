"""Writes checkpoints in the affine quantisation of MLX: x = scale * q + bias over groups of a row."""

import json

import mlx.core as mx
import numpy as np

import huggingface
import reference

DTYPES = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}


def write(fixture, directory):
    """Writes the checkpoint as mlx-lm does. Returns the transformers model of the dequantised weights."""
    options = fixture.options
    config = huggingface.with_token_ids(fixture)
    model = reference.random_model(config, fixture.seed)
    tensors, values = {}, {}
    for name, parameter in model.named_parameters():
        original = mx.array(parameter.detach().numpy()).astype(DTYPES[options["dtype"]])
        module = name.removesuffix(".weight")
        settings = options.get("modules", {}).get(module, {})
        if original.ndim == 1 or settings is False:
            tensors[name] = original
            values[name] = np.array(original.astype(mx.float32))
            continue
        bits, group = settings.get("bits", options["bits"]), settings.get("group_size", options["group"])
        words, scales, biases = mx.quantize(original, group, bits)
        tensors |= {name: words, f"{module}.scales": scales, f"{module}.biases": biases}
        values[name] = dequantise(words, scales, biases, group, bits)
    mx.save_safetensors(str(directory / "model.safetensors"), tensors, metadata={"format": "mlx"})
    write_index(tensors, directory)
    config.dtype = huggingface.DTYPES[options["dtype"]]
    config.architectures = [type(model).__name__]
    config.save_pretrained(directory)
    huggingface.finish(fixture, directory)
    huggingface.edit_json(directory / "config.json", lambda value: value | quantisation(options))
    return reference.with_parameters(model, values)


def dequantise(words, scales, biases, group, bits):
    """The weights in float32. Scales and biases are widened first, so that no product is rounded to 16 bits."""
    return np.array(mx.dequantize(words, scales.astype(mx.float32), biases.astype(mx.float32), group, bits))


def quantisation(options):
    """The two equal entries of config.json with the quantisation settings."""
    settings = {"group_size": options["group"], "bits": options["bits"], "mode": "affine", **options.get("modules", {})}
    return {"quantization": settings, "quantization_config": settings}


def write_index(tensors, directory):
    """Writes the index that mlx-lm writes even for a single file."""
    index = {
        "metadata": {"total_size": sum(value.nbytes for value in tensors.values())},
        "weight_map": {name: "model.safetensors" for name in sorted(tensors)},
    }
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", "utf-8")
