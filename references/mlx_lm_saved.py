"""Checks that Refrain reads what mlx-lm saves: converts checkpoints of every family, and compares logits.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2
    python references/mlx_lm_saved.py target/saved --refrain target/release/refrain
    python references/mlx_lm_saved.py target/saved --fixtures      writes those of tests/fixtures that mlx-lm saves

The originals are those of tests/fixtures that mlx-lm can read, and some of mlx_lm_families.py. `mlx_lm.convert` writes
each in several formats; mlx-lm computes the logits with all floats widened to float32, as Refrain computes. It must
compute the same logits, and generate the same tokens where the two best logits lie further apart than rounding reaches.
"""

import argparse
import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm_families
import numpy as np
from mlx.utils import tree_map
from mlx_lm import convert
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import dequantize_model, load_model

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"

# Name: arguments of `mlx_lm.convert`.
FORMATS = {
    "bf16": {"dtype": "bfloat16"},
    "f16": {"dtype": "float16"},
    "affine4": {"quantize": True, "q_bits": 4, "q_group_size": 32},
    "affine8": {"quantize": True, "q_bits": 8, "q_group_size": 32, "dtype": "float16"},
    "mixed": {"quantize": True, "q_group_size": 32, "quant_predicate": "mixed_3_6"},
    "mxfp4": {"quantize": True, "q_mode": "mxfp4"},
    "mxfp8": {"quantize": True, "q_mode": "mxfp8"},
    "nvfp4": {"quantize": True, "q_mode": "nvfp4"},
    "plain": {"dequantize": True},
}

# Checkpoints of tests/fixtures that this script writes: original and format.
SAVED = {
    "deepseek-v3-mlx4-group32": ("made-deepseek-v3", "affine4"),
    "qwen3-mlx-mxfp8": ("qwen3-bf16", "mxfp8"),
    "qwen3-mlx-nvfp4": ("qwen3-bf16", "nvfp4"),
}

# Rounding moves float32 logits by less.
BOUND = 1e-3

# mlx-lm rounds the factor of Gemma's embeddings to bfloat16: sqrt(48) here.
ROUNDED = {"gemma3-bf16": 1e-2}

# mlx-lm ignores the windows of these families, so they are compared without.
WINDOWLESS = ("qwen2", "mistral", "phi3", "starcoder2")

# mlx-lm cannot read DeepSeek-V2 without.
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7, "mscale_all_dim": 0.7}

# The families of mlx_lm_families.py that Refrain's own engine has.
SUPPORTED = re.compile(r"llama3|gemma3$|qwen3-moe|qwen3\.5|gpt-oss|deepseek")
TOKENS = 8


def complete(config):
    """Writes rotary settings as before transformers 5, and adds keys that mlx-lm requires."""
    text = config.get("text_config", config)
    kind = text["model_type"]
    if "num_local_experts" in text:
        text.setdefault("num_experts", text["num_local_experts"])
    if kind.startswith("qwen3_5"):
        text.setdefault("full_attention_interval", text["layer_types"].index("full_attention") + 1)
        return config
    if kind in WINDOWLESS:
        text |= {"sliding_window": None, "use_sliding_window": False}
        text.pop("layer_types", None)
    rope = text.pop("rope_parameters", None)
    if rope is not None:
        if "full_attention" in rope:
            if kind.startswith("gemma3"):
                text["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
        text["rope_theta"] = rope.pop("rope_theta")
        text["rope_scaling"] = rope if rope["rope_type"] != "default" else None
        for key in ("partial_rotary_factor", "original_max_position_embeddings"):
            if key in rope:
                text.setdefault(key, rope[key])
    scaling = text.get("rope_scaling")
    if scaling and kind == "phi3":
        scaling["type"] = scaling["rope_type"]
    if not scaling and kind == "deepseek_v2":
        text["rope_scaling"] = YARN
    if kind.startswith("gemma3"):
        config["vocab_size"] = text["vocab_size"]
    leave_out_what_mlx_lm_ignores(text)
    return config


def leave_out_what_mlx_lm_ignores(text):
    """Removes settings that transformers follows and mlx-lm does not."""
    text.pop("final_logit_softcapping", None)
    scaling = text.get("rope_scaling") or {}
    for key in ("truncate", "attention_factor"):
        scaling.pop(key, None)
    if scaling.get("rope_type") == "dynamic":
        text |= {"rope_scaling": None, "max_position_embeddings": 4096}
    if "short_factor" in scaling:
        scaling["short_factor"] = scaling["long_factor"]


def prepare(source, folder):
    """Copies a checkpoint as published: Qwen3.5 inside the multimodal model."""
    if folder.exists():
        return folder
    config = complete(json.loads((source / "config.json").read_text()))
    shutil.copytree(source, folder)
    if config["model_type"] == "cohere2":
        # mlx-lm always takes the embedding for the head.
        weights = mx.load(str(source / "model.safetensors"))
        weights.pop("lm_head.weight", None)
        mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
        config["tie_word_embeddings"] = True
    if config["model_type"] in ("qwen3_5_text", "qwen3_5_moe_text"):
        config = {"model_type": config["model_type"].removesuffix("_text"), "text_config": config}
        weights = mx.load(str(source / "model.safetensors"))
        weights = {key.replace("model.", "model.language_model.", 1): value for key, value in weights.items()}
        mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


def originals(folder, names):
    """The checkpoints to convert: name and directory."""
    for source in sorted(FIXTURES.iterdir()):
        if source.name in SAVED:
            continue
        if (source / "config.json").exists() and (not names or source.name in names):
            yield source.name, prepare(source, folder / f"original-{source.name}")
    for name in mlx_lm_families.FAMILIES:
        made = folder / f"original-made-{name}"
        if SUPPORTED.match(name) and (not names or f"made-{name}" in names):
            if not made.exists():
                mlx_lm_families.make_checkpoint(name, made)
                shutil.copy(mlx_lm_families.TOKENIZER / "generation_config.json", made)
                row = mlx_lm_families.tokens_of(23)
                (made / "tokens.json").write_text(json.dumps({"input_ids": [row]}))
            yield f"made-{name}", made


def widened(path):
    """The model that mlx-lm loads, computing in float32."""
    model, config = load_model(path)
    widen(model)
    if config.get("quantization", {}).get("mode", "affine") != "affine":
        # Embeddings of these modes are bfloat16 whatever their scales are.
        model = dequantize_model(model)
        widen(model)
    return model


def widen(model):
    """Converts all floats of a model to float32."""
    wide = (mx.float16, mx.bfloat16)
    model.update(tree_map(lambda array: array.astype(mx.float32) if array.dtype in wide else array, model.parameters()))


def expected(model, rows):
    """mlx-lm's logits of rows of tokens, and the tokens that it generates behind the first."""
    logits = np.array(model(mx.array(rows)).astype(mx.float32))
    tokens, kept, cache, new = [], [], make_prompt_cache(model), rows[0]
    for _ in range(TOKENS):
        last = np.array(model(mx.array([new]), cache=cache)[0, -1].astype(mx.float32))
        kept.append(last)
        tokens.append(int(last.argmax()))
        new = tokens[-1:]
    return logits, tokens, np.stack(kept)


def computed(refrain, path, rows, out):
    """Refrain's logits of rows of tokens."""
    (out / "tokens.json").write_text(json.dumps({"input_ids": rows}))
    target = out / "ours.safetensors"
    command = [refrain, "logits", path, "--tokens", out / "tokens.json", "--out", target, "--device", "cpu"]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise ValueError(run.stderr.strip() or f"exit status {run.returncode}")
    return np.array(mx.load(str(target))["logits"])


def write_fixture(path, fixture):
    """Copies a checkpoint that mlx-lm saved to the fixtures, with mlx-lm's logits."""
    shutil.copytree(path, fixture, ignore=shutil.ignore_patterns("check", "README.md"), dirs_exist_ok=True)
    rows = json.loads((path / "tokens.json").read_text())["input_ids"]
    logits, _, _ = expected(widened(path), rows)
    mx.save_safetensors(str(fixture / "logits.safetensors"), {"logits": mx.array(logits)})


def compare(refrain, path, bound):
    """Compares a checkpoint that mlx-lm saved; returns whether it passed, and what is to be said."""
    model = widened(path)
    rows = json.loads((path / "tokens.json").read_text())["input_ids"]
    theirs, tokens, kept = expected(model, rows)
    try:
        ours = computed(refrain, path, rows, path / "check")
        whole = [rows[0] + tokens[:-1]]
        ours_kept = computed(refrain, path, whole, path / "check")[0, len(rows[0]) - 1 :]
    except ValueError as error:
        return False, str(error)
    relative = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    best = np.sort(kept, axis=-1)[:, -2:]
    clear = best[:, 1] - best[:, 0] > 8 * bound * np.sqrt(np.mean(kept**2))
    wrong = int((clear & (ours_kept.argmax(-1) != kept.argmax(-1))).sum())
    return relative <= bound and wrong == 0, f"relative L2 {relative:.1e}, {wrong} of {int(clear.sum())} tokens differ"


def convert_one(name, source, kind, folder):
    """Lets mlx-lm convert an original to a format; the new checkpoint, or None if mlx-lm cannot."""
    path = folder / f"{name}-{kind}"
    if path.exists():
        return path
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            convert(str(source), str(path), **FORMATS[kind])
    except Exception as error:  # What mlx-lm cannot convert need not be read.
        shutil.rmtree(path, ignore_errors=True)
        print(f"---- {name}, {kind}: mlx-lm: {error!r}"[:300], flush=True)
        return None
    shutil.copy(source / "tokens.json", path / "tokens.json")
    (path / "check").mkdir()
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the checkpoints are written")
    parser.add_argument("--refrain", type=Path, help="the program; without it, checkpoints are only written")
    parser.add_argument("--fixtures", action="store_true", help="write the fixtures that mlx-lm saves")
    parser.add_argument("--original", action="append", help="only this fixture; may be repeated")
    parser.add_argument("--format", action="append", choices=list(FORMATS), help="only this one; may be repeated")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.fixtures:
        for fixture, (name, kind) in SAVED.items():
            for _, source in originals(options.folder, [name]):
                write_fixture(convert_one(name, source, kind, options.folder), FIXTURES / fixture)
        return
    failures = 0
    for name, source in originals(options.folder, options.original):
        quantised = "quantization" in json.loads((source / "config.json").read_text())
        for kind in options.format or FORMATS:
            if quantised != (kind == "plain"):
                continue
            path = convert_one(name, source, kind, options.folder)
            if path is not None and options.refrain is not None:
                passed, detail = compare(options.refrain, path, ROUNDED.get(name, BOUND))
                failures += not passed
                print(f"{'ok  ' if passed else 'FAIL'} {name}, {kind}: {detail}", flush=True)
    print(f"{failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
