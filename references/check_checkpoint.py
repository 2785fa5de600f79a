"""Compares `refrain logits` on a checkpoint with logits by transformers of the weights that `gguf`, `mlx` or
transformers read from its files. For checkpoints without stored logits, such as those that `refrain synth` writes."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM

import compare
import drawing
import gguf_file
import mlx_affine
import reference


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoints", nargs="+", type=Path, help="directories or .gguf files")
    parser.add_argument("--refrain", default="refrain", help="the refrain program (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="the device to compute on (default: %(default)s)")
    parser.add_argument("--bound", type=float, default=1e-4, help="maximum relative L2 error (default: %(default)g)")
    options = parser.parse_args()
    failed = False
    for checkpoint in options.checkpoints:
        model = read(checkpoint)
        ids = drawing.tokens(model.config.vocab_size, 2, 37, 1)
        with torch.no_grad():
            expected = model(torch.tensor(ids), use_cache=False).logits.numpy().astype(np.float64)
        tested = refrain_logits(options, checkpoint, ids)
        relative = compare.relative_l2(tested, expected)
        good = np.isfinite(expected).all() and relative <= options.bound
        failed |= not good
        print(f"{checkpoint}: relative L2 {relative:.2e}, standard deviation {expected.std():.2f}{'' if good else '  FAILED'}")
    sys.exit(failed)


def read(checkpoint):
    """The model in float32, as reference software reads it."""
    if checkpoint.suffix == ".gguf":
        return read_gguf(gguf.GGUFReader(checkpoint))
    settings = json.loads((checkpoint / "config.json").read_text("utf-8")).get("quantization")
    if settings is None:
        return reference.load_directory(checkpoint)
    config = AutoConfig.from_pretrained(checkpoint)
    config.quantization_config = None
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    return reference.with_parameters(model, affine_values(checkpoint, settings))


def read_gguf(reader):
    """The model of a GGUF file of Qwen3 or Llama."""
    field = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer")}
    architecture = field["general.architecture"]
    own = {name.removeprefix(f"{architecture}."): value for name, value in field.items()}
    stored = {tensor.name: tensor for tensor in reader.tensors}
    config = AutoConfig.for_model(
        architecture,
        hidden_size=own["embedding_length"],
        intermediate_size=own["feed_forward_length"],
        num_hidden_layers=own["block_count"],
        num_attention_heads=own["attention.head_count"],
        num_key_value_heads=own["attention.head_count_kv"],
        head_dim=own["attention.key_length"],
        rms_norm_eps=own["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": own["rope.freq_base"]},
        vocab_size=int(stored["token_embd.weight"].shape[1]),
        tie_word_embeddings="output.weight" not in stored,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    if (divisors := stored.get("rope_freqs.weight")) is not None:
        model.model.rotary_emb.inv_freq /= torch.from_numpy(divisors.data.copy())
    names = gguf.get_tensor_name_map(gguf_file.ARCHITECTURES[architecture], config.num_hidden_layers)
    values = {}
    for name, _ in model.named_parameters():
        tensor = stored[names.get_name(name, try_suffixes=(".weight", ".bias"))]
        rows = gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()
        values[name] = gguf_file.deinterleave(rows, gguf_file.interleaved_heads(config, name))
    return reference.with_parameters(model, values)


def affine_values(checkpoint, settings):
    """All parameters of a directory that MLX quantised, in float32."""
    tensors = {}
    for file in checkpoint.glob("*.safetensors"):
        tensors |= mx.load(str(file))
    values = {}
    for name, tensor in tensors.items():
        module = re.sub(r"\.(weight|scales|biases)$", "", name)
        if f"{module}.scales" not in tensors:
            values[name] = np.array(tensor.astype(mx.float32))
        elif name.endswith(".weight"):
            own = settings.get(module, settings)
            scales, biases = tensors[f"{module}.scales"], tensors[f"{module}.biases"]
            values[name] = mlx_affine.dequantise(tensor, scales, biases, own["group_size"], own["bits"])
    return values


def refrain_logits(options, checkpoint, ids):
    """Logits [batch, length, vocabulary] by Refrain."""
    with tempfile.TemporaryDirectory() as directory:
        tokens, out = Path(directory, "tokens.json"), Path(directory, "out.safetensors")
        tokens.write_text(json.dumps({"input_ids": ids}), "utf-8")
        command = [options.refrain, "--device", options.device, "--quiet", "logits", checkpoint]
        subprocess.run([*command, "--tokens", tokens, "--out", out], check=True)
        return load_file(out)["logits"].astype(np.float64)


if __name__ == "__main__":
    main()
