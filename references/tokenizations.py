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
        write_expected(load(directory / name), directory / name / "expected.json")


def write_fetched(fetched, directory):
    """Tokenises with the real tokenizers that fetch.sh has fetched."""
    sources = sorted(path for path in fetched.glob("*") if (path / "tokenizer.json").exists())
    if not sources:
        raise SystemExit("no tokenizer under target/tokenizers: run references/fetch.sh first")
    for source in sources:
        write_expected(load(source), directory / source.name / "expected.json")


def write_gguf(fixture, directory):
    """Tokenises with the tokenizer that the GGUF file of `fixture` holds, its tokenizer.json form taken as it stands.

    That is SentencePiece's and llama.cpp's way: a space is put first even where the text begins with one.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / fixture.name
        small_tokenizers.save(small_tokenizers.train(fixture.family, fixture.tokenizer_size), fixture.family, source)
        write_expected(PreTrainedTokenizerFast.from_pretrained(source), directory / fixture.name / "tokenizations.json")


def load(source):
    """The tokenizer as transformers gives it for the directory `source`.

    AutoTokenizer of transformers 5 rebuilds what surrounds the vocabulary from the class that
    tokenizer_config.json names. Some byte-level tokenizers name Llama's class, which is SentencePiece's, and
    come out broken unless a config.json says better: those are read as tokenizer.json has them.
    """
    settings = json.loads((source / "tokenizer_config.json").read_text("utf-8"))
    model = json.loads((source / "tokenizer.json").read_text("utf-8"))["model"]
    misnamed = settings["tokenizer_class"].startswith("Llama") and not model["byte_fallback"]
    return (PreTrainedTokenizerFast if misnamed else AutoTokenizer).from_pretrained(source)


def write_expected(tokenizer, path):
    """Writes a JSON list with one object a text:

    ids: as a prompt (special tokens added, and found in the text).
    plain_ids: none added, and special tokens in the text taken as plain text.
    decoded: the text of `ids` without special tokens.
    """
    cases = []
    for text in texts.ALL:
        ids = tokenizer(text).input_ids
        plain = tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        decoded = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        cases.append({"text": text, "ids": ids, "plain_ids": plain, "decoded": decoded})
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f"[\n{lines}\n]\n", "utf-8")
    print(f"{path.parent.name}: {len(cases)} texts by {type(tokenizer).__name__}")
