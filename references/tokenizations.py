"""Expected token ids of the texts in texts.py, by transformers."""

import json
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerFast

import small_tokenizers
import texts

SMALL = {"small-qwen2": ("qwen2", 1009), "small-llama3": ("llama3", 997), "small-llama2": ("llama2", 641)}


def write_small(directory):
    """Trains the small tokenizers, each into its directory, and tokenises with them."""
    for name, (family, size) in SMALL.items():
        small_tokenizers.save(small_tokenizers.train(family, size), family, directory / name)
        write_expected(load(directory / name), directory / name / "expected.json")


def write_fetched(fetched, directory):
    """Tokenises with the real tokenizers fetched by fetch.sh."""
    sources = sorted(path for path in fetched.glob("*") if (path / "tokenizer.json").exists())
    if not sources:
        raise SystemExit("no tokenizer under target/tokenizers: run references/fetch.sh first")
    for source in sources:
        write_expected(load(source), directory / source.name / "expected.json")


def write_gguf(fixture, directory):
    """Tokenises with the tokenizer of the GGUF file of `fixture`, read from its tokenizer.json form.

    This matches SentencePiece and llama.cpp: a space is prepended even if the text begins with one.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / fixture.name
        small_tokenizers.save(small_tokenizers.train(fixture.family, fixture.tokenizer_size), fixture.family, source)
        write_expected(PreTrainedTokenizerFast.from_pretrained(source), directory / fixture.name / "tokenizations.json")


def load(source):
    """Loads the tokenizer in the directory `source` with transformers.

    AutoTokenizer of transformers 5 rebuilds everything around the vocabulary from the class that tokenizer_config.json
    names. Some byte-level tokenizers name the SentencePiece class of Llama and break, unless a config.json corrects it.
    Those are read from tokenizer.json.
    """
    settings = json.loads((source / "tokenizer_config.json").read_text("utf-8"))
    model = json.loads((source / "tokenizer.json").read_text("utf-8"))["model"]
    misnamed = settings["tokenizer_class"].startswith("Llama") and not model["byte_fallback"]
    return (PreTrainedTokenizerFast if misnamed else AutoTokenizer).from_pretrained(source)


def write_expected(tokenizer, path):
    """Writes a JSON list with one object per text:

    ids: as a prompt (special tokens added, and parsed in the text).
    plain_ids: no special tokens added; those in the text are treated as plain text.
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
