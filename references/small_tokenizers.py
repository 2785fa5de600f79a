"""Small tokenizers of the families that published checkpoints use, trained on `corpus.txt`."""

import io
import json
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = Path(__file__).with_name("corpus.txt")

# Pre-tokenisation of both families: Qwen2 splits off single digits, Llama 3 up to three.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# (text, whether it is special) in id order, after the learned vocabulary.
ADDED = {
    "qwen2": [
        ("<|endoftext|>", True),
        ("<|im_start|>", True),
        ("<|im_end|>", True),
        ("<tool_call>", False),
        ("</tool_call>", False),
        ("<think>", False),
        ("</think>", False),
    ],
    "llama3": [
        ("<|begin_of_text|>", True),
        ("<|end_of_text|>", True),
        ("<|start_header_id|>", True),
        ("<|end_header_id|>", True),
        ("<|eot_id|>", True),
    ],
}

# Tokens that end an answer, the default one first.
ENDS = {
    "qwen2": ["<|im_end|>", "<|endoftext|>"],
    "llama3": ["<|eot_id|>", "<|end_of_text|>"],
    "llama2": ["</s>"],
}

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'Functions:' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

HEADERS = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

BRACKETS = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %} [INST] {{ message.content | trim }} [/INST]
    {%- elif message.role == 'assistant' %} {{ message.content | trim }}{{ eos_token }}
    {%- else %}{{ raise_exception('only the roles user and assistant are known here') }}
    {%- endif %}
{%- endfor %}
"""

SETTINGS = {
    "qwen2": {
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None,
        "chat_template": CHATML,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    },
    "llama3": {
        "bos_token": "<|begin_of_text|>",
        "chat_template": HEADERS,
        "eos_token": "<|eot_id|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    },
    "llama2": {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<s>",
        "chat_template": BRACKETS,
        "eos_token": "</s>",
        "legacy": True,
        "pad_token": None,
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
    },
}


def train(family, size):
    """A tokenizer of `family` (qwen2, llama3 or llama2) with exactly `size` ids."""
    tokenizer = train_sentencepiece(size)[0] if family == "llama2" else train_byte_level(family, size)
    if tokenizer.get_vocab_size() != size:
        raise ValueError(f"{family}: {tokenizer.get_vocab_size()} ids instead of {size}")
    return tokenizer


def train_byte_level(family, size):
    """Byte-level BPE as in Qwen 2 to 3 (NFC, single digits) or Llama 3 (groups of digits, whole words first)."""
    llama = family == "llama3"
    tokenizer = Tokenizer(models.BPE(ignore_merges=llama))
    if not llama:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT % ("{1,3}" if llama else "")), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = ADDED[family]
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(added), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS.read_text("utf-8").splitlines(keepends=True), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=special) for text, special in added])
    byte_level = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    if llama:
        first = ADDED[family][0][0]
        template = processors.TemplateProcessing(
            single=f"{first} $A",
            pair=f"{first} $A {first}:1 $B:1",
            special_tokens=[(first, tokenizer.token_to_id(first))],
        )
        tokenizer.post_processor = processors.Sequence([byte_level, template])
    else:
        tokenizer.post_processor = byte_level
    return tokenizer


def train_sentencepiece(size):
    """SentencePiece BPE with byte fallback as in Llama 2: (tokenizer, [(piece, score, type)] by id).

    Training uses only Latin script, so that other scripts fall back to bytes.
    Types as in SentencePiece and GGUF: 1 normal, 2 unknown, 3 control, 6 byte.
    """
    latin = [line for line in CORPUS.read_text("utf-8").splitlines() if max(line, default=" ") < "\u0250"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(latin),
        model_writer=model,
        vocab_size=size,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=0.995,
        split_digits=True,
        num_threads=1,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
        allow_whitespace_only_pieces=True,
    )
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    pieces = [(piece.piece, piece.score, piece.type) for piece in proto.pieces]
    vocabulary = {piece: index for index, (piece, _, _) in enumerate(pieces)}
    merges = []
    for piece, score, kind in pieces:
        if kind == 1:
            splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
            merges += [
                (-score, vocabulary[a], vocabulary[b], a, b) for a, b in splits if a in vocabulary and b in vocabulary
            ]
    merges.sort()
    tokenizer = Tokenizer(
        models.BPE(vocabulary, [(a, b) for *_, a, b in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in ("<unk>", "<s>", "</s>")]
    )
    return tokenizer, pieces


def save(tokenizer, family, directory, template_file=False):
    """Writes tokenizer.json and tokenizer_config.json, and optionally the chat template as a separate file."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    settings = {"clean_up_tokenization_spaces": False, "model_max_length": 4096, **SETTINGS[family]}
    if template_file:
        (directory / "chat_template.jinja").write_text(settings.pop("chat_template"), "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")
