"""Writes checkpoints other than the committed ones: random shapes of each architecture in each format, with logits."""

import argparse
import math
from pathlib import Path

import checkpoints
import drawing
import shapes

FORMATS = ["bf16", "f16", "f32", "mlx4", "mlx8", "q8_0", "q4_0", "gguf-f16"]
TOKENIZERS = {"qwen2": 331, "llama3": 347, "llama2": 397}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=1, help="checkpoints of each architecture and format")
    parser.add_argument("--only", default="", help="write only those whose name contains this")
    options = parser.parse_args()
    checkpoints.repeatable()
    for round_number in range(options.each):
        for architecture in ("qwen3", "llama"):
            for form in FORMATS:
                name = f"{architecture}-{form}-{options.seed}-{round_number}"
                if options.only in name:
                    checkpoints.write(random_fixture(architecture, form, name, options.seed), options.out)


def random_fixture(architecture, form, name, seed):
    """A fixture whose every choice is drawn from the seed and its name."""
    rng = drawing.generator(seed, name)

    def pick(*choices):
        return choices[rng.integers(len(choices))]

    def flip():
        return pick(False, True)

    storage, unit, options = storage_of(form, pick)
    if storage in ("bf16", "f16", "f32") and flip():
        options["shard"] = pick("100KB", "400KB")
    options |= {"published": flip(), "template_file": flip()}
    kv_heads = pick(1, 1, 2, 3, 4)
    head_dim = pick(32, 40, 48, 64, 80, 96, 128, 256)
    heads = kv_heads * pick(1, 2, 3, 5, 7)
    while heads * head_dim % unit:  # a projection's input must be whole groups
        heads, kv_heads = 2 * heads, 2 * kv_heads
    vocabulary = int(rng.integers(401, 700))
    sizes = {"layers": pick(1, 2, 3, 4), "heads": heads, "kv_heads": kv_heads, "vocabulary": vocabulary, "tied": flip()}
    intermediate = unit * int(rng.integers(1, 1 + 400 // unit))
    if architecture == "qwen3":
        hidden = unit * int(rng.integers(max(1, 48 // unit), 1 + 256 // unit))
        config = shapes.qwen3(
            hidden,
            intermediate,
            head_dim=head_dim,
            bias=storage != "gguf" and flip(),
            theta=pick(1e4, 1e6, 5e6),
            **sizes,
        )
        family = "qwen2"
    else:
        step = math.lcm(unit, heads)  # transformers wants hidden to be a multiple of heads
        hidden = step * max(1, int(rng.integers(64, 257)) // step)
        config = shapes.llama(
            hidden,
            intermediate,
            head_dim=head_dim,
            attention_bias=flip(),
            mlp_bias=flip(),
            rope=random_rope(storage, pick),
            eps=pick(1e-5, 1e-6),
            **sizes,
        )
        family = pick("llama3", "llama2")
    return shapes.Fixture(
        name,
        config,
        storage,
        seed,
        family,
        TOKENIZERS[family],
        batch=pick(1, 2, 3),
        length=pick(3, 4, 17, 64, 65, 129, 150),
        options=options,
    )


def storage_of(form, pick):
    """(storage, what row lengths must be a multiple of, options of the writer)."""
    if form.startswith("mlx"):
        group = pick(32, 64, 128)
        return "mlx", group, {"bits": int(form[3:]), "group": group, "dtype": pick("bf16", "f16", "f32")}
    if form in ("q8_0", "q4_0"):
        return "gguf", 32, {"kind": form.upper()}
    if form == "gguf-f16":
        return "gguf", 8, {"kind": "F16"}
    return form, 8, {}


def random_rope(storage, pick):
    """RoPE settings for Llama; GGUF has no linear scaling here."""
    theta = pick(1e4, 5e5)
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": pick(4.0, 8.0, 32.0),
        "low_freq_factor": 1.0,
        "high_freq_factor": pick(2.0, 4.0),
        "original_max_position_embeddings": pick(32, 64, 256, 8192),
    }
    plain = {"rope_type": "default", "rope_theta": theta}
    linear = {"rope_type": "linear", "rope_theta": theta, "factor": pick(2.0, 4.0)}
    return pick(plain, llama3, llama3) if storage == "gguf" else pick(plain, llama3, linear)


if __name__ == "__main__":
    main()
