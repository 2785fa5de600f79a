"""Perplexities and KL divergences by transformers, over the same windows as `refrain eval`."""

import json

import mlx.core as mx
import numpy as np
import torch
from transformers import AutoConfig, AutoTokenizer

import mlx_affine
import reference

# Model, text, window length in tokens, stride in tokens, and the reference model.
CASES = (
    ("demo/model", "demo/story.txt", 192, 96, None),
    ("tests/fixtures/llama-bias-f16", "demo/story.txt", 96, 64, None),
    ("tests/fixtures/qwen3-bf16", "demo/story.txt", 64, 64, "tests/fixtures/qwen2-bf16"),
)


def write(root, path):
    """Writes a list of cases with their results."""
    cases = []
    for model, text, context, stride, against in CASES:
        tokenizer = AutoTokenizer.from_pretrained(root / model)
        ids = tokenizer((root / text).read_text("utf-8"))["input_ids"]
        bos = tokenizer.bos_token_id if ids[0] == tokenizer.bos_token_id else None
        rows = predictions(load(root / model), ids, context, stride, bos)
        nll = np.array([-row[token] for row, token in rows])
        case = {"model": model, "text": text, "context": context, "stride": stride, "tokens": len(nll)}
        case["nll"] = float(nll.mean())
        case["perplexity"] = float(np.exp(nll.mean()))
        case["standard_error"] = float(nll.std() / np.sqrt(len(nll) - 1) * np.exp(nll.mean()))
        if against:
            case |= {"against": against, **divergence(rows, predictions(load(root / against), ids, context, stride, bos))}
        cases.append(case)
    path.write_text(json.dumps(cases, indent=2) + "\n", "utf-8")


def load(directory):
    """Loads a checkpoint in float32, dequantising MLX formats."""
    config = AutoConfig.from_pretrained(directory)
    settings = getattr(config, "quantization", None)
    if settings is None:
        return reference.load_directory(directory)
    stored = mx.load(str(directory / "model.safetensors"))
    values = {}
    for name, tensor in stored.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if f"{module}.scales" in stored:
            scales, biases = stored[f"{module}.scales"], stored[f"{module}.biases"]
            values[name] = mlx_affine.dequantise(tensor, scales, biases, settings["group_size"], settings["bits"])
        else:
            values[name] = np.array(tensor.astype(mx.float32))
    return reference.with_parameters(reference.random_model(config, 0), values)


def predictions(model, ids, context, stride, bos):
    """Log-probabilities and target of each predicted token, once, in the first window that contains it."""
    rows, done, start = [], 0, 0
    while done < len(ids):
        window = list(ids[start : start + context])
        if bos is not None and start > 0:
            window[0] = bos
        with torch.no_grad():
            logits = model(torch.tensor([window]), use_cache=False).logits[0].double()
        probabilities = torch.log_softmax(logits, -1).numpy()
        first = max(done, start + 1) - start
        rows += [(probabilities[at - 1], window[at]) for at in range(first, len(window))]
        done, start = start + len(window), start + stride
    return rows


def divergence(rows, others):
    """KL divergence of the rows from those of the reference model."""
    kl = np.array([np.sum(np.exp(p) * (p - q)) for (q, _), (p, _) in zip(rows, others, strict=True)])
    same = [q.argmax() == p.argmax() for (q, _), (p, _) in zip(rows, others, strict=True)]
    return {"kl_mean": float(kl.mean()), "kl_max": float(kl.max()), "top1_agreement": float(np.mean(same))}
