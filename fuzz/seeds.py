"""Writes the seeds that are not files of tests/fixtures: small GGUF and safetensors files, by their own libraries.

Needs the environment of references/README.md.
"""

from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

SEEDS = Path(__file__).resolve().parent / "seeds"
VOCABULARIES = {
    "llama": {
        "tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab"],
        "types": [2, 3, 3, 6, 1, 1, 1, 1, 1],
        "scores": [0.0, 0.0, 0.0, 0.0, -4.0, -3.0, -3.0, -1.0, -2.0],
    },
    "gpt2": {"tokens": ["a", "b", "Ġ", "ab", "Ġab", "<|end|>"], "types": [1, 1, 1, 1, 1, 3], "merges": ["a b", "Ġ ab"]},
}


def write_gguf(path, model, kind):
    """One tiny Llama with a tokenizer and one tensor of each of two encodings."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(96)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_context_length(128)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model(model)
    vocabulary = VOCABULARIES[model]
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["types"])
    if model == "llama":
        writer.add_token_scores(vocabulary["scores"])
    else:
        writer.add_token_merges(vocabulary["merges"])
        writer.add_tokenizer_pre("qwen2")
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m.content | tojson }}{% endfor %}")
    writer.add_tensor("rope_freqs.weight", np.ones(16, np.float32))
    rows = gguf.quants.quantize(np.ones((2, 256), np.float32), kind)
    writer.add_tensor("blk.0.ffn_gate.weight", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    for folder in ("gguf", "safetensors"):
        (SEEDS / folder).mkdir(parents=True, exist_ok=True)
    write_gguf(SEEDS / "gguf" / "llama.gguf", "llama", gguf.GGMLQuantizationType.Q8_0)
    write_gguf(SEEDS / "gguf" / "gpt2.gguf", "gpt2", gguf.GGMLQuantizationType.Q4_0)
    tensors = {"a": np.ones((2, 3), np.float32), "b.weight": np.ones(4, np.float16), "c": np.ones((0, 2), np.uint32)}
    save_file(tensors, SEEDS / "safetensors" / "plain.safetensors", metadata={"format": "pt"})
    packed = {"a.weight": np.ones((2, 8), np.uint32), "a.scales": np.ones((2, 1), np.float16)}
    save_file(packed | {"a.biases": packed["a.scales"]}, SEEDS / "safetensors" / "mlx.safetensors")


if __name__ == "__main__":
    main()
