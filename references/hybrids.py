"""Qwen3.5 in its published layouts: inside a vision model, by mlx-lm, and in GGUF. Also mixtures of experts by mlx-lm."""

import mlx.core as mx
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen3_5MoeForConditionalGeneration

import families
import huggingface
import mlx_affine
import predictions
import reference

# transformers stores the weights of these norms minus one, mlx-lm stores them unchanged.
SHIFTED = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "model.norm.weight",
    "q_norm.weight",
    "k_norm.weight",
)


def write_with_vision(fixture, directory):
    """Writes the checkpoint as published, experts in two tensors. Returns the model that transformers reads back."""
    dtype = huggingface.DTYPES[fixture.options["dtype"]]
    text = reference.random_model(huggingface.with_token_ids(fixture), fixture.seed).to(dtype)
    config = families.with_vision(fixture.config)
    config.dtype = dtype
    full_model = Qwen3_5MoeForConditionalGeneration._from_config(config, dtype=dtype)
    vision = {name: value for name, value in full_model.state_dict().items() if name.startswith("model.visual.")}
    tensors = {name: torch.zeros_like(value) for name, value in vision.items()}
    for name, value in text.state_dict().items():
        tensors[name.replace("model.", "model.language_model.", 1)] = value.contiguous()
    head = predictions.tensors(fixture.config, fixture.seed, dtype)
    tensors |= head or {"mtp.norm.weight": torch.zeros(fixture.config.hidden_size, dtype=dtype)}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [type(full_model).__name__]
    config.save_pretrained(directory)
    huggingface.finish(fixture, directory)
    return reference.load_directory(directory)


def write_mlx(fixture, directory):
    """Writes the checkpoint as mlx-lm converts it. Returns the transformers model of the dequantised weights."""
    options = fixture.options
    config = huggingface.with_token_ids(fixture)
    model = reference.random_model(config, fixture.seed)
    tensors, values, overrides = {}, {}, {}
    for name, parameter in reference.learned(model):
        parts = []
        for part, value in as_mlx(config, name, parameter.detach().numpy()):
            dtype = mx.float32 if name.endswith("A_log") else mlx_affine.DTYPES[options["dtype"]]
            original = mx.array(value).astype(dtype)
            module = part.removesuffix(".weight")
            unrouted = ("glm4_moe", "deepseek_v2", "deepseek_v3")
            plain = config.model_type in unrouted and module.endswith("mlp.gate")  # not a linear layer in mlx-lm
            if value.ndim == 1 or "conv1d" in name or plain:
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
    # mlx-lm reads this instead of layer_types; published configurations have both.
    interval = {"full_attention_interval": config.layer_types.index("full_attention") + 1}
    huggingface.edit_json(
        directory / "config.json", lambda value: value | settings | {"text_config": value["text_config"] | interval}
    )
    return reference.with_parameters(model, values)


def is_hybrid(config):
    """Whether the model is a Qwen3.5."""
    return config.model_type in ("qwen3_5_text", "qwen3_5_moe_text")


def as_mlx(config, name, value):
    """The mlx-lm tensors of one transformers tensor."""
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
    """The transformers tensor of its mlx-lm tensors."""
    if "conv1d" in name:
        return np.moveaxis(parts[0], 1, 2)
    value = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    return value - 1 if is_hybrid(config) and name.endswith(SHIFTED) else value


def add_gguf_settings(writer, config):
    """Adds the hybrid settings that llama.cpp needs."""
    interval = config.layer_types.index("full_attention") + 1
    writer.add_full_attention_interval(interval)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_num_value_heads * config.linear_value_head_dim)
    writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])
    if config.model_type == "qwen3_5_moe_text":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def add_gguf_prediction_layer(writer, config):
    """Adds some tensors of a multi-token prediction layer, which is counted as a block."""
    ones = np.ones(config.hidden_size, np.float32)
    for part in ("attn_norm", "nextn.enorm", "nextn.hnorm"):
        writer.add_tensor(f"blk.{config.num_hidden_layers}.{part}.weight", ones)


def as_gguf(config, name, value):
    """The lookup name of a transformers tensor, and its values in the layout of llama.cpp."""
    value = reorder_value_heads(config, name, value, value_head_order(config))
    if name.endswith("A_log"):
        return name, -np.exp(value)
    if "conv1d" in name:
        return name, value[:, 0]
    if name.endswith("shared_expert_gate.weight"):
        return name, value[0]
    return name.replace("dt_bias", "dt_proj.bias"), value + np.float32(is_shifted(name))


def from_gguf(config, name, value):
    """Undoes `as_gguf`."""
    if name.endswith("A_log"):
        value = np.log(-value)
    elif "conv1d" in name:
        value = value[:, None]
    elif name.endswith("shared_expert_gate.weight"):
        value = value[None]
    else:
        value = value - np.float32(is_shifted(name))
    return reorder_value_heads(config, name, value, np.argsort(value_head_order(config)))


def is_shifted(name):
    """Whether this is a norm whose weights transformers stores minus one."""
    return name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight")


def value_head_order(config):
    """Order of the value heads in GGUF: the first of each key head, then the second of each."""
    return np.arange(config.linear_num_value_heads).reshape(config.linear_num_key_heads, -1).T.ravel()


def reorder_value_heads(config, name, value, order):
    """Reorders the value heads of a tensor."""
    size = config.linear_value_head_dim
    keys = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    layouts = {"in_proj_qkv": (0, keys, size), "conv1d": (0, keys, size), "in_proj_z": (0, 0, size)}
    layouts |= {"out_proj": (1, 0, size)} | {part: (0, 0, 1) for part in ("in_proj_a", "in_proj_b", "A_log", "dt_bias")}
    found = [layout for part, layout in layouts.items() if "linear_attn" in name and part in name]
    if not found:
        return value
    axis, first, size = found[0]
    moved = first + (order[:, None] * size + np.arange(size)).ravel()
    return np.take(value, np.concatenate([np.arange(first), moved]), axis)
