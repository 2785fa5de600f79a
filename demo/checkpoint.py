"""Reads and writes the model: the shipped quantised folder, and training checkpoints."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file as load_torch_file
from safetensors.torch import save_file
from torch import nn

from mtp_head import MtpHead
from quantise import dequantise, quantise
from qwen3 import Config, Qwen3
from train_tokenizer import TURN_END, END_OF_TEXT

GROUP_SIZE = 64
BITS = 8
HEAD_PREFIX = "mtp."


def quantised_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of an MLX checkpoint: matrices quantised, norms in bf16."""
    tensors = {}
    for name, parameter in model.state_dict().items():
        weight = parameter.detach().float().cpu()
        if weight.dim() == 1:
            tensors[name] = weight.bfloat16()
            continue
        words, scales, biases = quantise(weight.bfloat16().float().numpy(), GROUP_SIZE, BITS)
        stem = name.removesuffix(".weight")
        tensors[name] = torch.from_numpy(words)
        tensors[stem + ".scales"] = torch.from_numpy(scales).bfloat16()
        tensors[stem + ".biases"] = torch.from_numpy(biases).bfloat16()
    return tensors


def dequantised(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The f32 parameters of a quantised checkpoint."""
    weights = {}
    for name, tensor in tensors.items():
        stem = name.removesuffix(".weight")
        if tensor.dtype == torch.uint32:
            scales, biases = (tensors[f"{stem}.{part}"].float().numpy() for part in ("scales", "biases"))
            weights[name] = torch.from_numpy(dequantise(tensor.numpy(), scales, biases, BITS))
        elif name.endswith(".weight"):
            weights[name] = tensor.float()
    return weights


def export(model: Qwen3, folder: Path, special: dict[str, int]) -> Qwen3:
    """Writes the shipped files except those of the tokenizer. Returns the quantised model.

    `special` maps the special tokens to their ids.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = quantised_tensors(model)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})
    config = {
        **model.config.hugging_face(),
        "eos_token_id": special[TURN_END],
        "pad_token_id": special[END_OF_TEXT],
        "quantization": {"group_size": GROUP_SIZE, "bits": BITS},
    }
    generation = {
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.9,
        "eos_token_id": [special[TURN_END], special[END_OF_TEXT]],
        "pad_token_id": special[END_OF_TEXT],
    }
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    shipped = Qwen3(model.config)
    shipped.load_state_dict(dequantised(tensors))
    return shipped.eval()


def load(folder: Path) -> Qwen3:
    """Loads a folder written by `export`, dequantised to f32."""
    config = Config.of(json.loads((folder / "config.json").read_text()))
    model = Qwen3(config)
    model.load_state_dict(dequantised(load_torch_file(folder / "model.safetensors")))
    return model.eval()


def export_head(head: MtpHead, file: Path) -> MtpHead:
    """Writes the tensors of a head under their names in a checkpoint. Returns the quantised head."""
    file.parent.mkdir(parents=True, exist_ok=True)
    tensors = quantised_tensors(head)
    save_file({HEAD_PREFIX + name: tensor for name, tensor in tensors.items()}, file, metadata={"format": "mlx"})
    return load_head(file, head.config)


def load_head(file: Path, config: Config) -> MtpHead:
    """Loads a file written by `export_head`, dequantised to f32. `config` is that of its model."""
    head = MtpHead(config)
    tensors = {name.removeprefix(HEAD_PREFIX): tensor for name, tensor in load_torch_file(file).items()}
    head.load_state_dict(dequantised(tensors))
    return head.eval()


def save_training(model: Qwen3, file: Path) -> None:
    """Writes the parameters in f16, to resume training later."""
    save_file({name: tensor.half().cpu().contiguous() for name, tensor in model.state_dict().items()}, file)


def load_training(model: Qwen3, file: Path) -> None:
    """Loads a file written by `save_training` into a model of the same size."""
    model.load_state_dict({name: tensor.float() for name, tensor in load_torch_file(file).items()})
