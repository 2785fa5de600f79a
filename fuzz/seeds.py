"""Writes the fuzzing seeds that are not in tests/fixtures: small files of each format, written by its own library.

Needs the environment of references/README.md.
"""

import struct
from pathlib import Path

import gguf
import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

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
    """Writes a tiny Llama with a tokenizer and one tensor in each of two encodings."""
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


def small_tokenizers():
    """A tokenizer of each model type, with a variety of other components."""
    post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    letters = {"<s>": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4, "▁": 5, "<0xC3>": 6}

    byte_level = tokenizers.Tokenizer(models.BPE(letters, [("a", "b")], ignore_merges=True))
    byte_level.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\s+(?!\S)|\w+"), "isolated")
    byte_level.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    byte_level.post_processor = post_processor
    byte_level.decoder = decoders.ByteLevel()

    pieces = tokenizers.Tokenizer(models.BPE(letters, [("a", "b")], unk_token="<s>", fuse_unk=True, byte_fallback=True))
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    pieces.decoder = decoders.Sequence(steps)
    pieces.post_processor = processors.Sequence([processors.ByteLevel(), post_processor])

    unigram = tokenizers.Tokenizer(models.Unigram([("<s>", 0.0), ("a", -1.0), ("▁b", -2.0)], 0, False))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", True)
    unigram.decoder = decoders.Metaspace()

    word_piece = tokenizers.Tokenizer(models.WordPiece({"<s>": 0, "a": 1, "##b": 2}, unk_token="<s>"))
    word_piece.normalizer = normalizers.BertNormalizer()
    word_piece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    word_piece.decoder = decoders.WordPiece()
    growing = tokenizers.Tokenizer(models.BPE(letters, [("a", "b")]))
    growing.normalizer = normalizers.Sequence([normalizers.Replace("a", "aa"), normalizers.Replace(Regex("b*"), "bb")] * 2)
    growing.decoder = decoders.Sequence([decoders.Replace("a", "aa")] * 3)
    return {"growing": growing, "byte_level": byte_level, "pieces": pieces, "unigram": unigram, "word_piece": word_piece}


def write_tokenizers():
    """Writes each tokenizer with a configuration and a text, separated by NUL bytes."""
    configuration = '{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "added_tokens_decoder": {"9": {"content": "<x>"}}}'
    for name, tokenizer in small_tokenizers().items():
        tokenizer.add_tokens([AddedToken("<x>", lstrip=True, normalized=False, special=True)])
        parts = [tokenizer.to_str(), configuration, "ab  b <x> 12345 é\n"]
        (SEEDS / "tokenizer" / name).write_text("\0".join(parts), "utf-8")


# Templates that test the resource limits; each is followed by a conversation.
TEMPLATES = {
    "doubling": "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "lists": "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l * 9 %}{% endfor %}",
    "widths": "{{ '%*d|%.9f' % (99999, 1, 2.5) }}{{ '{:>{}}'.format('a', 9999) }}{{ 'x'.center(99) | indent(99) }}",
    "cycle": "{% set n = namespace() %}{% set n.a = [n, {'n': n}] %}{{ n }}{{ n == n.a }}",
    "macros": "{% macro m(a, b=1) %}{{ m(a, *varargs, **kwargs) }}{{ caller() }}{% endmacro %}{% call m(1) %}x{% endcall %}",
    "recursion": "{% for a in [[1, [2]]] recursive %}{{ loop(a) }}{{ loop.changed(loop) }}{% endfor %}",
    "filters": "{{ messages | map(attribute='role') | map('map', 'upper') | groupby(0) | tojson(indent=9) }}",
    "methods": "{{ 'Σß½'.title().swapcase().casefold().zfill(9).expandtabs(9).split('s', 1) | sort | batch(2, 0) }}",
    "chains": "{{ 1 + 1 - 1 * 1 // 1 % 1 ** 1 ~ -+1 is odd or not not 1 in [1] if 1 else 2 if 2 | d(3) }}",
}


def write_templates():
    for name, source in TEMPLATES.items():
        conversation = '[{"role": "user", "content": "hi"}]'
        (SEEDS / "template" / name).write_text(f"{source}\0{conversation}", "utf-8")


def write_state(path, tokens, planes):
    """Writes a state file without its checksum, which the target adds. Planes are (code, row, bytes)."""
    content = struct.pack("<8sII16sQ", b"refrain\0", 1, 0, bytes(range(16)), len(tokens))
    content += struct.pack(f"<{len(tokens)}II", *tokens, len(planes))
    for code, row, data in planes:
        content += struct.pack(f"<II{len(row)}QQ", code, len(row), *row, len(data)) + data
    path.write_bytes(content)


def main():
    for folder in ("gguf", "safetensors", "state", "template", "tokenizer"):
        (SEEDS / folder).mkdir(parents=True, exist_ok=True)
    write_gguf(SEEDS / "gguf" / "llama.gguf", "llama", gguf.GGMLQuantizationType.Q8_0)
    write_tokenizers()
    write_templates()
    write_state(SEEDS / "state" / "empty", [], [])
    write_state(SEEDS / "state" / "hybrid", [1, 2, 70000], [(1, [2, 4], bytes(48)), (0, [], b"abcd"), (2, [3], bytes(18))])
    write_gguf(SEEDS / "gguf" / "gpt2.gguf", "gpt2", gguf.GGMLQuantizationType.Q4_0)
    tensors = {"a": np.ones((2, 3), np.float32), "b.weight": np.ones(4, np.float16), "c": np.ones((0, 2), np.uint32)}
    save_file(tensors, SEEDS / "safetensors" / "plain.safetensors", metadata={"format": "pt"})
    packed = {"a.weight": np.ones((2, 8), np.uint32), "a.scales": np.ones((2, 1), np.float16)}
    save_file(packed | {"a.biases": packed["a.scales"]}, SEEDS / "safetensors" / "mlx.safetensors")


if __name__ == "__main__":
    main()
