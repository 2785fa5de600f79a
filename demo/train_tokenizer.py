"""Trains the byte-level BPE tokenizer of the demo model on a sample of the corpus.

    python3 demo/train_tokenizer.py        writes demo/model/tokenizer*.json and the chat template

Text is split as in Qwen: words with their leading space, single digits. The result depends only on the corpus
scripts. A model needs the tokenizer it was trained with, so retrain the model after running this.
"""

import argparse
import itertools
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from corpus import END_OF_TEXT, TURN_END, TURN_START, documents

VOCABULARY = 2048
CONTEXT = 1024
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def train(sampled_documents: int) -> Tokenizer:
    """Trains a tokenizer of exactly VOCABULARY tokens. The special tokens are 0, 1 and 2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True, normalized=False) for text in (END_OF_TEXT, TURN_START, TURN_END)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    stream = itertools.islice(documents(seed=0), sampled_documents)
    marks = (END_OF_TEXT, TURN_START, TURN_END)
    texts = (_without(marks, "".join(text for text, _ in segments)) for segments in stream)
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the corpus gave only {tokenizer.get_vocab_size()} tokens: sample more documents")
    return tokenizer


def _without(marks: tuple[str, ...], text: str) -> str:
    """`text` without special tokens, so that no part of them becomes a merge."""
    for mark in marks:
        text = text.replace(mark, "\n")
    return text


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000, help="number of documents to train on")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "model")
    arguments = parser.parse_args()
    write(train(arguments.documents), arguments.out)


if __name__ == "__main__":
    main()
