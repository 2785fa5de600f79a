"""Hidden states after the final norm, by transformers: the source of embeddings."""

import json

import torch
from safetensors.numpy import save_file

import reference

# Checkpoints that differ in final norm, scaling and layer type.
CHECKPOINTS = ("qwen3-bf16", "llama-f32", "gemma3-bf16", "granite-bf16", "cohere-bf16", "qwen3.5-bf16")


def write(fixtures, path):
    """Writes a tensor [T, hidden] per checkpoint, for the first row of its tokens."""
    states = {}
    for name in CHECKPOINTS:
        ids = json.loads((fixtures / name / "tokens.json").read_text("utf-8"))["input_ids"][:1]
        model = reference.load_directory(fixtures / name)
        with torch.no_grad():
            states[name] = model.base_model(torch.tensor(ids), use_cache=False).last_hidden_state[0].numpy()
    save_file(states, path)
    path.chmod(0o644)
