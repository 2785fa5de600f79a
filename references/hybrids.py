"""Mixtures of experts in the layouts that are published: Qwen3.5-MoE inside a model that also sees, and by mlx-lm."""

import mlx.core as mx
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen3_5MoeForConditionalGeneration

import families
import huggingface
import mlx_affine
import reference

# Gains of these are stored less one by transformers, and whole by mlx-lm.
SHIFTED = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "model.norm.weight",
    "q_norm.weight",
    "k_norm.weight",
)


def write_with_vision(fixture, directory):
    """Writes the checkpoint as published, experts in two tensors, and returns what transformers reads back."""
    dtype = huggingface.DTYPES[fixture.options["dtype"]]
    text = reference.random_model(huggingface.with_token_ids(fixture), fixture.seed).to(dtype)
    config = families.with_vision(fixture.config)
    config.dtype = dtype
    whole = Qwen3_5MoeForConditionalGeneration._from_config(config, dtype=dtype)
    eyes = {name: value for name, value in whole.state_dict().items() if name.startswith("model.visual.")}
    tensors = {name: torch.zeros_like(value) for name, value in eyes.items()}
    for name, value in text.state_dict().items():
        tensors[name.replace("model.", "model.language_model.", 1)] = value.contiguous()
    tensors["mtp.norm.weight"] = torch.zeros(fixture.config.hidden_size, dtype=dtype)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [type(whole).__name__]
    config.save_pretrained(directory)
    huggingface.finish(fixture, directory)
    return reference.load_directory(directory)


def write_mlx(fixture, directory):
    """Writes the checkpoint as mlx-lm converts it and returns transformers' model of the dequantised weights."""
    options = fixture.options
    config = huggingface.with_token_ids(fixture)
    model = reference.random_model(config, fixture.seed)
    tensors, values, overrides = {}, {}, {}
    for name, parameter in model.named_parameters():
        parts = []
        for part, value in as_mlx(config, name, parameter.detach().numpy()):
            dtype = mx.float32 if name.endswith("A_log") else mlx_affine.DTYPES[options["dtype"]]
            original = mx.array(value).astype(dtype)
            module = part.removesuffix(".weight")
            if value.ndim == 1 or "conv1d" in name:
                tensors[part] = original
                parts.append(np.array(original.astype(mx.float32)))
                continue
            bits, group = options["bits"], options["group"]
            if module.endswith(("mlp.gate", "shared_expert_gate")):
                bits, group = 8, 64
                overrides[module] = {"group_size": group, "bits": bits}
            words, scales, biases = mx.quantize(original, group, bits)
            tensors |= {part: words, f"{module}.scales": scales, f"{module}.biases": biases}
            parts.append(mlx_affine.dequantise(words, scales, biases, group, bits))
        values[name] = as_transformers(config, name, parts)
    mx.save_safetensors(str(directory / "model.safetensors"), tensors, metadata={"format": "mlx"})
    mlx_affine.write_index(tensors, directory)
    hybrid = is_hybrid(config)
    if not hybrid:
        config.architectures = [type(model).__name__]
    (families.with_vision(config) if hybrid else config).save_pretrained(directory)
    huggingface.finish(fixture, directory)
    settings = mlx_affine.quantisation(options | {"modules": overrides})
    if not hybrid:
        huggingface.edit_json(directory / "config.json", lambda value: value | settings)
        return reference.with_parameters(model, values)
    # mlx-lm goes by this and not by layer_types; published configurations have both.
    interval = {"full_attention_interval": config.layer_types.index("full_attention") + 1}
    huggingface.edit_json(
        directory / "config.json", lambda value: value | settings | {"text_config": value["text_config"] | interval}
    )
    return reference.with_parameters(model, values)


def is_hybrid(config):
    """Whether the model is a Qwen3.5."""
    return config.model_type in ("qwen3_5_text", "qwen3_5_moe_text")


def as_mlx(config, name, value):
    """The tensors that mlx-lm keeps for one of transformers'."""
    own = f"language_model.{name}" if is_hybrid(config) else name
    if name.endswith("experts.gate_up_proj"):
        gate, up = np.split(value, 2, axis=1)
        stem = own.replace("experts.gate_up_proj", "switch_mlp")
        return [(f"{stem}.gate_proj.weight", gate), (f"{stem}.up_proj.weight", up)]
    if name.endswith("experts.down_proj"):
        return [(own.replace("experts.down_proj", "switch_mlp.down_proj") + ".weight", value)]
    if "conv1d" in name:
        return [(own, np.moveaxis(value, 2, 1))]
    return [(own, value + 1 if is_hybrid(config) and name.endswith(SHIFTED) else value)]


def as_transformers(config, name, parts):
    """One of transformers' tensors from those that mlx-lm keeps for it."""
    if "conv1d" in name:
        return np.moveaxis(parts[0], 1, 2)
    value = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    return value - 1 if is_hybrid(config) and name.endswith(SHIFTED) else value
