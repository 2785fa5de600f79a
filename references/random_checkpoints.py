"""Writes checkpoints of random shapes of each family in each format, with logits, in addition to the committed ones."""

import argparse
from pathlib import Path

import checkpoints
import drawing
import random_shapes
import shapes

PLAIN = ["bf16", "f16", "f32"]
MLX = ["mlx2", "mlx3", "mlx4", "mlx5", "mlx6", "mlx8", "mlx-mixed"]
BLOCKS = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
FORMATS = [*PLAIN, *MLX, *(f"gguf-{kind.lower()}" for kind in BLOCKS), "gguf-mixed"]
TOKENIZERS = {"qwen2": 331, "llama3": 347, "llama2": 397}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=1, help="checkpoints per family and format")
    parser.add_argument("--sample", type=int, help="write a random sample of this size")
    parser.add_argument("--only", default="", help="write only checkpoints whose name contains this")
    options = parser.parse_args()
    checkpoints.make_reproducible()
    names = [
        (family, form, f"{family}-{form}-{options.seed}-{number}")
        for number in range(options.each)
        for family in random_shapes.FAMILIES
        for form in FORMATS
    ]
    names = [row for row in names if options.only in row[2]]
    if options.sample is not None:
        order = drawing.generator(options.seed, "sample").permutation(len(names))
        names = [names[index] for index in sorted(order[: options.sample])]
    for family, form, name in names:
        try:
            checkpoints.write(random_fixture(family, form, name, options.seed), options.out)
        except ValueError as error:
            print(f"{name}: skipped: {error}")


def random_fixture(family, form, name, seed):
    """A fixture drawn from the seed and its name."""
    rng = drawing.generator(seed, name)
    pick = random_shapes.Choices(rng, None, 1).pick
    storage, unit, options = storage_of(form, pick)
    if storage in PLAIN and pick(False, True):
        options["shard"] = pick("100KB", "400KB")
    options |= {"published": pick(False, True), "template_file": pick(False, True)}
    draw_config, tokenizers = random_shapes.FAMILIES[family]
    config = draw_config(random_shapes.Choices(rng, storage, unit))
    if storage == "mlx" and (hasattr(config, "num_experts") or hasattr(config, "n_routed_experts")):
        storage = "hybrid-mlx"
    elif form == "mlx-mixed":
        options["modules"] = mixed_modules(config, pick)
    tokenizer = pick(*tokenizers)
    return shapes.Fixture(
        name,
        config,
        storage,
        seed,
        tokenizer,
        TOKENIZERS[tokenizer],
        batch=pick(1, 2, 3),
        length=pick(4, 17, 64, 65, 129, 150),
        options=options,
    )


def storage_of(form, pick):
    """Returns the storage, the multiple that row lengths must have, and the options of the writer."""
    if form == "mlx-mixed":
        return "mlx", 128, {"bits": pick(2, 4, 8), "group": 64, "dtype": pick("bf16", "f16")}
    if form.startswith("mlx"):
        group = pick(32, 64, 128)
        return "mlx", group, {"bits": int(form[3:]), "group": group, "dtype": pick("bf16", "f16", "f32")}
    if form == "gguf-mixed":
        kinds = {"token_embd.weight": "Q6_K", "output.weight": "Q6_K"}
        for layer in range(7):
            parts = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
            kinds |= {f"blk.{layer}.{part}.weight": pick(*BLOCKS) for part in parts}
        return "gguf", 256, {"kind": "Q4_K", "tensors": kinds}
    if form.startswith("gguf"):
        kind = form[5:].upper()
        return "gguf", {"16": 8, "_K": 256}.get(kind[-2:], 32), {"kind": kind}
    return form, 8, {}


def mixed_modules(config, pick):
    """Per-module quantisation settings, as the mixed recipes of mlx-lm write them."""
    modules = {"lm_head": pick(False, {"bits": 6, "group_size": 64})}
    for layer in range(config.num_hidden_layers):
        for part in ("self_attn.v_proj", "self_attn.qkv_proj", "mlp.down_proj"):
            own = {"bits": pick(2, 3, 5, 6, 8), "group_size": pick(32, 64, 128)}
            modules[f"model.layers.{layer}.{part}"] = pick(False, own, own)
    return modules


if __name__ == "__main__":
    main()
