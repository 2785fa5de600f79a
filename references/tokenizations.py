"""Expected token ids, by transformers, of the texts in texts.py."""

import json
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerFast

import small_tokenizers
import texts

SMALL = {"small-qwen2": ("qwen2", 1009), "small-llama3": ("llama3", 997), "small-llama2": ("llama2", 641)}


def write_small(directory):
    """Trains the small tokenizers into directories of their own and tokenises with them."""
    for name, (family, size) in SMALL.items():
        small_tokenizers.save(small_tokenizers.train(family, size), family, directory / name)
        write_expected(directory / name, directory / name / "expected.json")


def write_fetched(fetched, directory):
    """Tokenises with the real tokenizers that fetch.sh has fetched."""
    sources = sorted(path for path in fetched.glob("*") if (path / "tokenizer.json").exists())
    if not sources:
        raise SystemExit("no tokenizer under target/tokenizers: run references/fetch.sh first")
    for source in sources:
        write_expected(source, directory / source.name / "expected.json")


def write_gguf(fixture, directory):
    """Tokenises with the tokenizer that the GGUF file of `fixture` holds, in its tokenizer.json form."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / fixture.name
        small_tokenizers.save(small_tokenizers.train(fixture.family, fixture.tokenizer_size), fixture.family, source)
        write_expected(source, directory / fixture.name / "tokenizations.json")


def write_expected(source, path):
    """Writes a JSON list with one object a text:

    ids: as a prompt (special tokens added, and found in the text).
    plain_ids: none added, and special tokens in the text taken as plain text.
    decoded: the text of `ids` without special tokens.

    All by PreTrainedTokenizerFast, which takes tokenizer.json as it stands: AutoTokenizer of transformers 5
    rebuilds some families from their vocabulary alone and then differs from what the checkpoint's file says.
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
    auto = AutoTokenizer.from_pretrained(source)
    cases, rebuilt = [], 0
    for text in texts.ALL:
        ids = tokenizer(text).input_ids
        plain = tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        decoded = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        cases.append({"text": text, "ids": ids, "plain_ids": plain, "decoded": decoded})
        rebuilt += auto(text).input_ids != ids
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f"[\n{lines}\n]\n", "utf-8")
    print(f"{source.name}: {len(cases)} texts, AutoTokenizer differs on {rebuilt}")
