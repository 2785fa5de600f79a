"""gpt-oss in the layouts of its publisher and of mlx-lm: experts in MXFP4, gate and up rows interleaved or separate."""

import gguf
import mlx.core as mx
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import save_file

import huggingface
import mlx_affine
import reference

MODEL_TYPE = "gpt_oss"
# Modules that stay unquantised when experts are quantised.
UNQUANTISED = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def is_expert_matrix(name):
    """Whether transformers stores the parameter column-major."""
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def rows(name, value):
    """Transposes expert matrices to [experts, outputs, inputs]."""
    return np.ascontiguousarray(np.swapaxes(value, 1, 2)) if is_expert_matrix(name) else value


def split(name, value):
    """Splits gate and up (other parameters stay whole). Names end with `.bias` and `.weight`."""
    stem, _, part = name.rpartition(".experts.")
    if not stem:
        return [(name, value)]
    kind = "bias" if part.endswith("_bias") else "weight"
    part, value = part.removesuffix("_bias"), rows(name, value)
    if part == "down_proj":
        return [(f"{stem}.experts.down_proj.{kind}", value)]
    both = zip(("gate_proj", "up_proj"), (value[:, ::2], value[:, 1::2]), strict=True)
    return [(f"{stem}.experts.{own}.{kind}", np.ascontiguousarray(half)) for own, half in both]


def merge(name, parts):
    """Undoes `split`."""
    value = parts[0]
    if len(parts) == 2:
        value = np.stack(parts, axis=2).reshape(value.shape[0], -1, *value.shape[2:])
    return rows(name, value)


def write_mxfp4(fixture, directory):
    """Writes the checkpoint as published. Returns the transformers model of the dequantised weights."""
    config = huggingface.with_token_ids(fixture)
    model = reference.random_model(config, fixture.seed)
    tensors, values = {}, {}
    for name, parameter in model.named_parameters():
        value = rows(name, parameter.detach().numpy())
        if not is_expert_matrix(name):
            tensors[name] = torch.from_numpy(value).to(torch.bfloat16)
            values[name] = tensors[name].float().numpy()
            continue
        blocks = gguf.quants.quantize(value, Kind.MXFP4)
        values[name] = rows(name, gguf.quants.dequantize(blocks, Kind.MXFP4))
        blocks = blocks.reshape(*value.shape[:-1], -1, 17)
        # GGUF packs values n and n + 16 in a byte, the published format adjacent values.
        codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], axis=-1)
        tensors[f"{name}_blocks"] = torch.from_numpy(codes[..., ::2] | codes[..., 1::2] << 4)
        tensors[f"{name}_scales"] = torch.from_numpy(np.ascontiguousarray(blocks[..., 0]))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config.dtype = torch.bfloat16
    config.architectures = [type(model).__name__]
    config.save_pretrained(directory)
    huggingface.finish(fixture, directory)
    settings = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": UNQUANTISED}}
    huggingface.edit_json(directory / "config.json", lambda value: value | settings)
    return reference.with_parameters(model, values)


def write_mlx(fixture, directory):
    """Writes the checkpoint as mlx-lm does, experts in MXFP4. Returns the transformers model of its weights."""
    options = fixture.options
    config = huggingface.with_token_ids(fixture)
    model = reference.random_model(config, fixture.seed)
    tensors, values, others = {}, {}, {}
    for name, parameter in model.named_parameters():
        parts = []
        for part, value in split(name, parameter.detach().numpy()):
            original = mx.array(value).astype(mlx_affine.DTYPES[options["dtype"]])
            module = part.removesuffix(".weight")
            if value.ndim == 1 or part.endswith(".bias"):
                tensors[part] = original
                parts.append(np.array(original.astype(mx.float32)))
            elif ".experts." in part:
                words, scales = mx.quantize(original, 32, 4, mode="mxfp4")
                tensors |= {part: words, f"{module}.scales": scales}
                parts.append(np.array(mx.dequantize(words, scales, None, 32, 4, mode="mxfp4").astype(mx.float32)))
            else:
                bits, group = options["bits"], options["group"]
                others[module] = {"group_size": group, "bits": bits, "mode": "affine"}
                words, scales, biases = mx.quantize(original, group, bits)
                tensors |= {part: words, f"{module}.scales": scales, f"{module}.biases": biases}
                parts.append(mlx_affine.dequantise(words, scales, biases, group, bits))
        values[name] = merge(name, parts)
    mx.save_safetensors(str(directory / "model.safetensors"), tensors, metadata={"format": "mlx"})
    mlx_affine.write_index(tensors, directory)
    config.architectures = [type(model).__name__]
    config.save_pretrained(directory)
    huggingface.finish(fixture, directory)
    settings = {"group_size": 32, "bits": 4, "mode": "mxfp4", **others}
    settings = {"quantization": settings, "quantization_config": settings}
    huggingface.edit_json(directory / "config.json", lambda value: value | settings)
    return reference.with_parameters(model, values)
