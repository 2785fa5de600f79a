#!/usr/bin/env python3
"""Writes a tokenizer for a checkpoint of random weights, so that it can be served: every id is one word.

    refrain convert --format mlx4 synthetic:qwen3-8b:bf16 DIR && python3 bench/tokenizer.py DIR
"""

import json
import pathlib
import sys

directory = pathlib.Path(sys.argv[1])
config = json.loads((directory / "config.json").read_text())
count = config.get("text_config", config)["vocab_size"]
words = {f"w{number}": number for number in range(count)}
(directory / "tokenizer.json").write_text(
    json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
        }
    )
)
(directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
