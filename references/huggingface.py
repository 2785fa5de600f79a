"""Writes checkpoints as a directory of config.json, safetensors and tokenizer files."""

import contextlib
import json

import torch

import predictions
import reference
import small_tokenizers

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def write(fixture, directory):
    """Writes the checkpoint with transformers. Returns the model that transformers reads back."""
    config = with_token_ids(fixture)
    dtype = DTYPES[fixture.storage]
    model = reference.random_model(config, fixture.seed).to(dtype)
    head = predictions.tensors(config, fixture.seed, dtype)
    state = model.state_dict() | head if head else None
    model.save_pretrained(directory, state_dict=state, max_shard_size=fixture.options.get("shard", "1GB"))
    finish(fixture, directory)
    return reference.load_directory(directory)


def with_token_ids(fixture):
    """The configuration of the fixture with the BOS and EOS ids of its tokenizer."""
    tokenizer = small_tokenizers.train(fixture.family, fixture.tokenizer_size)
    settings = small_tokenizers.SETTINGS[fixture.family]
    first, last = settings["bos_token"], settings["eos_token"]
    fixture.config.bos_token_id = None if first is None else tokenizer.token_to_id(first)
    fixture.config.eos_token_id = tokenizer.token_to_id(last)
    return fixture.config


def finish(fixture, directory):
    """Writes the tokenizer, the generation settings, and config.json in the requested style."""
    tokenizer = small_tokenizers.train(fixture.family, fixture.tokenizer_size)
    small_tokenizers.save(tokenizer, fixture.family, directory, fixture.options.get("template_file", False))
    if fixture.options.get("published"):
        edit_json(directory / "config.json", as_published)
    edit_json(directory / "generation_config.json", lambda _: generation(fixture, tokenizer), missing={})


def generation(fixture, tokenizer):
    """generation_config.json with several end tokens and sampling settings, as instruct models have it."""
    ids = [tokenizer.token_to_id(text) for text in small_tokenizers.ENDS[fixture.family]]
    return {
        "bos_token_id": fixture.config.bos_token_id,
        "do_sample": True,
        "eos_token_id": ids if len(ids) > 1 else ids[0],
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
    }


def as_published(config):
    """config.json in the format of transformers before version 5, which most published checkpoints use."""
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        local = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        if config["model_type"] == "gemma3_text":
            config["rope_local_base_freq"] = local
    config["rope_theta"] = rope.pop("rope_theta")
    for outside in ("partial_rotary_factor", "original_max_position_embeddings"):
        if config["model_type"] in ("phi3", "glm4_moe") and outside in rope:
            config[outside] = rope.pop(outside)
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.51.0"
    if config["model_type"] != "olmo3":
        config.pop("layer_types", None)
    return config


def edit_json(path, edit, missing=None):
    """Applies `edit` to the JSON in a file."""
    value = missing
    with contextlib.suppress(FileNotFoundError):
        value = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(edit(value), indent=2, sort_keys=True) + "\n", "utf-8")
