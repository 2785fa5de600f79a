"""Checks that other programs read the output of `refrain convert` and compute the same results.

Converts each checkpoint to each format. llama.cpp (GGUF files) or mlx-lm (directories) continues a prompt
greedily. Refrain gets the same tokens and must predict the same next token wherever the top two logits of the
other program differ by more than rounding can explain. The tokens of a few texts must be equal too. Exits with 1
otherwise.

    python3.11 -m venv peers && peers/bin/pip install -r references/conversions.txt
    peers/bin/python references/conversions.py target/release/refrain demo tests/fixtures/qwen2-bf16 ...
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

FORMATS = {
    "f16.gguf": "f16",
    "q8_0.gguf": "q8_0",
    "q4_0.gguf": "q4_0",
    "q4_k_m.gguf": "q4_k_m",
    "mlx4": "mlx4",
    "mlx8": "mlx8",
    "f16": "f16",
}
TEXTS = ["Hello, world! It's 12345 times\n\n\tas good.", " naïve café — 漢字 🙂", "def f(x):\n    return x**2"]
PROMPT = "Once upon a time, there was a little"
NEW_TOKENS = 100
# Assumed relative error of logits, which sets the gap below which the top token may differ. llama.cpp rounds the
# activations of quantised products to 8 bits.
LOGIT_ERROR, LOGIT_ERROR_8_BIT = 5e-3, 3e-2


def main():
    """Checks every checkpoint in every format and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("refrain", help="the refrain program")
    parser.add_argument("models", nargs="+", help="checkpoints to convert")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    arguments = parser.parse_args()
    failures = 0
    for model in arguments.models:
        for name in arguments.formats:
            with tempfile.TemporaryDirectory() as folder:
                failures += not check(arguments.refrain, model, name, pathlib.Path(folder))
    raise SystemExit(1 if failures else 0)


def check(refrain, model, name, folder):
    """Converts, compares and prints the result. Returns whether everything agreed."""
    path = folder / name
    label = f"{pathlib.Path(model).name:24} {name:12}"
    converted = run(refrain, "convert", model, path, "--format", FORMATS[name], "--json", check=False)
    if converted.returncode:
        print(label, "not converted:", converted.stderr.strip(), flush=True)
        return True
    try:
        peer = LlamaCpp(path) if path.suffix == ".gguf" else MlxLm(path)
    except Exception as error:
        print(label, "NOT LOADED:", str(error).strip().splitlines()[0], flush=True)
        return False
    same_tokens = all(peer.tokens(text) == tokenize(refrain, path, text) for text in TEXTS)
    tokens, expected = peer.generate(tokenize(refrain, path, PROMPT))
    ours = logits(refrain, path, tokens[:-1], folder)[-NEW_TOKENS:]
    error = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
    best = np.sort(expected, axis=1)[:, -2:]
    bound = LOGIT_ERROR_8_BIT if path.suffix == ".gguf" and name != "f16.gguf" else LOGIT_ERROR
    gap = np.maximum(0.05, 8 * bound * np.sqrt(np.mean(expected**2, axis=1)))
    clear = best[:, 1] - best[:, 0] > gap
    same = ours.argmax(axis=1) == expected.argmax(axis=1)
    wrong = int(np.sum(clear & ~same))
    print(
        label,
        f"greedy {int(same.sum())} of {NEW_TOKENS} equal, {wrong} of {int(clear.sum())} clear positions differ;",
        f"relative L2 {error:.1e}; tokens {'equal' if same_tokens else 'DIFFER'}",
        flush=True,
    )
    return wrong == 0 and same_tokens


def run(refrain, *arguments, check=True):
    """Runs the program on the CPU."""
    command = [refrain, *map(str, arguments), "--device", "cpu", "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, check=check)


def tokenize(refrain, path, text):
    """Refrain's tokens of a text."""
    return json.loads(run(refrain, "tokenize", path, text).stdout)


def logits(refrain, path, tokens, folder):
    """Refrain's logits after each token."""
    request, result = folder / "tokens.json", folder / "logits.safetensors"
    request.write_text(json.dumps({"input_ids": [tokens]}), "utf-8")
    run(refrain, "logits", path, "--tokens", request, "--out", result)
    data = result.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    return np.frombuffer(data[start:], np.float32).reshape(len(tokens), -1)


class LlamaCpp:
    """A GGUF file loaded by llama.cpp."""

    def __init__(self, path):
        import llama_cpp

        self.model = llama_cpp.Llama(str(path), n_ctx=512, logits_all=True, verbose=False, n_threads=2)
        self.add_bos = bool(llama_cpp.llama_vocab_get_add_bos(self.model._model.vocab))

    def tokens(self, text):
        return self.model.tokenize(text.encode(), add_bos=self.add_bos, special=True)

    def generate(self, prompt):
        """The prompt with NEW_TOKENS more tokens, and the logits each was chosen from."""
        tokens, rows = list(prompt), []
        self.model.reset()
        self.model.eval(tokens)
        for _ in range(NEW_TOKENS):
            rows.append(np.array(self.model.scores[self.model.n_tokens - 1]))
            tokens.append(int(rows[-1].argmax()))
            self.model.eval(tokens[-1:])
        return tokens, np.stack(rows)


class MlxLm:
    """A directory loaded by mlx-lm."""

    def __init__(self, path):
        import mlx.core as mx
        import mlx_lm

        self.model, self.tokenizer = mlx_lm.load(str(path))
        # The weights keep their values but are computed with in float32: bfloat16 alone moves logits by 2e-2.
        self.model.set_dtype(mx.float32)

    def tokens(self, text):
        return self.tokenizer.encode(text)

    def generate(self, prompt):
        """The prompt with NEW_TOKENS more tokens, and the logits each was chosen from."""
        import mlx.core as mx
        from mlx_lm.models.cache import make_prompt_cache

        tokens, rows, cache = list(prompt), [], make_prompt_cache(self.model)
        new = tokens
        for _ in range(NEW_TOKENS):
            rows.append(np.array(self.model(mx.array([new]), cache=cache)[0, -1].astype(mx.float32)))
            tokens.append(int(rows[-1].argmax()))
            new = tokens[-1:]
        return tokens, np.stack(rows)


if __name__ == "__main__":
    main()
