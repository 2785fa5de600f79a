"""Writes one checkpoint of any storage format, with tokens and reference logits."""

import json
import shutil

import torch
import transformers
from safetensors.numpy import save_file

import drawing
import gguf_file
import gpt_oss
import huggingface
import hybrids
import mlx_affine
import predictions
import reference

WRITERS = {
    "bf16": huggingface.write,
    "f16": huggingface.write,
    "f32": huggingface.write,
    "mlx": mlx_affine.write,
    "gguf": gguf_file.write,
    "vision": hybrids.write_with_vision,
    "hybrid-mlx": hybrids.write_mlx,
    "mxfp4": gpt_oss.write_mxfp4,
    "mlx-mxfp4": gpt_oss.write_mlx,
}


def write(fixture, parent):
    """Writes the checkpoint, tokens.json and logits.safetensors into `parent`/NAME, replacing an existing directory."""
    directory = parent / fixture.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    model = WRITERS[fixture.storage](fixture, directory)
    ids = drawing.tokens(fixture.config.get_text_config().vocab_size, fixture.batch, fixture.length, fixture.seed)
    logits = reference.logits(model, ids)
    (directory / "tokens.json").write_text(json.dumps({"input_ids": ids}) + "\n", "utf-8")
    save_file({"logits": logits}, directory / "logits.safetensors")
    if predictions.is_predicting(fixture.config):
        predictions.write(model, directory, ids)
    for file in directory.iterdir():
        file.chmod(0o644)
    size = sum(file.stat().st_size for file in directory.iterdir())
    print(f"{fixture.name}: {size / 1000:.0f} kB, logits {list(logits.shape)} of standard deviation {logits.std():.2f}")


def make_reproducible():
    """Uses one thread and no progress bars, so that two runs write the same bytes."""
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
