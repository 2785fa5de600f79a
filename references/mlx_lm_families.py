"""Compares Refrain's `mlx.core` with MLX's CPU: small random checkpoints of mlx-lm's families, generated from by both.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2          in one environment
    python references/mlx_lm_families.py make DIR          there: checkpoints, tokens and log-probabilities by MLX
    python -m refrain.mlx references/mlx_lm_families.py check DIR

`check` feeds MLX's tokens and compares the greedy tokens where MLX's two best logits lie further apart than rounding
reaches, and log-probabilities. In half precision both differ from what the same weights give in float32; there Refrain
may be as far from it as MLX is, or within the bound.
"""

import argparse
import json
import shutil
import sys
import time
import traceback
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map, tree_map_with_path
from mlx_lm.generate import generate_step
from mlx_lm.models import cache
from mlx_lm.sample_utils import make_sampler
from mlx_lm.utils import load_model, quantize_model

VOCABULARY = 311
TOKENIZER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "qwen3-bf16"

DENSE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}

EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
}

DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 2,
}

QWEN3_5 = (
    DENSE
    | DELTA
    | {
        "rope_parameters": {
            "type": "default",
            "mrope_section": [2, 1, 1],
            "rope_theta": 100000,
            "partial_rotary_factor": 0.25,
        },
    }
)

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}

# Name: configuration, dtype, and the bits and group size of quantised checkpoints.
FAMILIES = {
    "qwen3-f32": (DENSE | {"model_type": "qwen3"}, "float32", None),
    "qwen3-bf16": (DENSE | {"model_type": "qwen3"}, "bfloat16", None),
    "qwen3-4bit": (DENSE | {"model_type": "qwen3"}, "float16", (4, 64)),
    "qwen3-8bit": (DENSE | {"model_type": "qwen3"}, "bfloat16", (8, 64)),
    "llama3": (DENSE | {"model_type": "llama", "rope_scaling": LLAMA3_ROPE}, "float16", None),
    "llama3-4bit": (DENSE | {"model_type": "llama", "rope_scaling": LLAMA3_ROPE}, "float32", (4, 32)),
    "gemma3": (
        DENSE
        | {
            "model_type": "gemma3_text",
            "query_pre_attn_scalar": 32,
            "sliding_window": 16,
            "sliding_window_pattern": 2,
        },
        "float32",
        None,
    ),
    "gemma4": (
        DENSE
        | {
            "model_type": "gemma4_text",
            "num_hidden_layers": 4,
            "global_head_dim": 64,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 32,
            "num_kv_shared_layers": 0,
            "num_key_value_heads": 1,
            "sliding_window": 16,
            "sliding_window_pattern": 2,
            "use_double_wide_mlp": False,
        },
        "float32",
        None,
    ),
    "qwen3-moe": (DENSE | EXPERTS | {"model_type": "qwen3_moe"}, "float32", None),
    "qwen3-moe-4bit": (DENSE | EXPERTS | {"model_type": "qwen3_moe"}, "float32", (4, 32)),
    "qwen3-next": (
        DENSE | EXPERTS | DELTA | {"model_type": "qwen3_next", "shared_expert_intermediate_size": 64},
        "float32",
        None,
    ),
    "qwen3.5": ({"model_type": "qwen3_5", "text_config": QWEN3_5 | {"model_type": "qwen3_5"}}, "float32", None),
    "qwen3.5-moe": (
        {
            "model_type": "qwen3_5_moe",
            "text_config": QWEN3_5 | EXPERTS | {"model_type": "qwen3_5_moe", "shared_expert_intermediate_size": 64},
        },
        "float32",
        None,
    ),
    "gpt-oss": (
        {
            "model_type": "gpt_oss",
            "num_hidden_layers": 2,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": VOCABULARY,
            "rms_norm_eps": 1e-5,
            "hidden_size": 64,
            "intermediate_size": 64,
            "head_dim": 32,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "sliding_window": 16,
            "rope_theta": 150000,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "original_max_position_embeddings": 4096,
            },
        },
        "float32",
        None,
    ),
    "lfm2": (
        {
            "model_type": "lfm2",
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "norm_eps": 1e-5,
            "conv_bias": False,
            "conv_L_cache": 3,
            "block_dim": 64,
            "block_ff_dim": 128,
            "block_multiple_of": 16,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": False,
            "rope_theta": 10000.0,
            "full_attn_idxs": [1],
        },
        "float32",
        None,
    ),
    "deepseek-v3": (
        {
            "model_type": "deepseek_v3",
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "intermediate_size": 128,
            "moe_intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "n_shared_experts": 1,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "routed_scaling_factor": 1.5,
            "kv_lora_rank": 32,
            "q_lora_rank": 48,
            "qk_rope_head_dim": 16,
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
            "first_k_dense_replace": 1,
            "max_position_embeddings": 4096,
            "rope_theta": 10000.0,
        },
        "float32",
        None,
    ),
}

# Name: length of the prompt, tokens to generate, and options of generate_step.
CASES = {
    "short": (9, 12, {}),
    "long": (250, 40, {"prefill_step_size": 512}),
    "chunks": (70, 8, {"prefill_step_size": 32}),
    "rotating": (40, 24, {"max_kv_size": 24}),
    "8-bit cache": (40, 12, {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}),
    "sampled": (9, 12, {"temp": 0.8, "top_p": 0.9, "top_k": 20}),
}

BOUNDS = {"float32": 5e-3, "float16": 2e-2, "bfloat16": 4e-2}


def draw(path, parameter, dtype):
    """A random parameter: norms near one, matrices of a size that keeps activations apart."""
    if not mx.issubdtype(parameter.dtype, mx.floating):
        return parameter
    noise = mx.random.normal(parameter.shape)
    if parameter.ndim >= 2:
        scale = (1.0 if "embed" in path else 2.0) * parameter.shape[-1] ** -0.5
        return (noise * scale).astype(dtype)
    if "norm" in path:
        return (1.0 + 0.1 * noise).astype(dtype)
    return (0.1 * noise).astype(dtype)


def make_checkpoint(name, folder):
    """Writes a random checkpoint of a family."""
    config, dtype, quantisation = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / file, folder / file)
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(sum(name.encode()))
    model, config = load_model_without_weights(folder, config)
    kind = getattr(mx, dtype)
    model.update(tree_map_with_path(lambda path, parameter: draw(path, parameter, kind), model.parameters()))
    if quantisation is not None:
        bits, group_size = quantisation
        model, config = quantize_model(model, config, group_size, bits)
    mx.eval(model.parameters())
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def load_model_without_weights(folder, config):
    """The model of a configuration, with the parameters that its constructor draws."""
    from mlx_lm.utils import _get_classes

    model_class, arguments = _get_classes(config=config)
    return model_class(arguments.from_dict(config)), dict(config)


def tokens_of(length):
    """A prompt of a length, the same everywhere."""
    return [(37 * at * at + 11 * at + 5) % (VOCABULARY - 16) for at in range(length)]


def run(model, case, forced=None):
    """Tokens and log-probabilities of a case; with `forced`, those tokens are fed whatever the model says."""
    length, count, options = CASES[case]
    options = dict(options)
    sampling = {key: options.pop(key) for key in ("temp", "top_p", "top_k") if key in options}
    mx.random.seed(7)
    sampler = make_sampler(**sampling) if sampling else None
    if forced is not None and not sampling:
        remaining = iter(forced)
        sampler = lambda logprobs: mx.array([next(remaining, 0)])  # noqa: E731
    prompt = mx.array(tokens_of(length))
    steps = generate_step(prompt, model, max_tokens=count, **({"sampler": sampler} if sampler else {}), **options)
    tokens, logprobs = [], []
    for token, row in steps:
        tokens.append(int(token))
        logprobs.append(row.astype(mx.float32).reshape(-1).tolist())
    return tokens, logprobs


def applies(name, case, model):
    """Whether a case can be run: some caches are neither cut nor quantised."""
    if case == "sampled" and FAMILIES[name][1] != "float32":
        # Rounding changes which tokens are drawn.
        return False
    if case == "8-bit cache":
        return all(type(one) is cache.KVCache for one in cache.make_prompt_cache(model)) and "deepseek" not in name
    return True


def widen(parameter):
    """The parameter in float32, if it is of half precision."""
    return parameter.astype(mx.float32) if parameter.dtype in (mx.float16, mx.bfloat16) else parameter


def make(folder, names):
    """Writes checkpoints and what MLX computes from them."""
    for name in names:
        target = folder / name
        make_checkpoint(name, target)
        model, _ = load_model(target)
        results = {}
        for case in CASES:
            if applies(name, case, model):
                tokens, logprobs = run(model, case)
                results[case] = {"tokens": tokens}
                widened, _ = load_model(target)
                widened.update(tree_map(widen, widened.parameters()))
                exact = logprobs if case == "sampled" else run(widened, case, forced=tokens)[1]
                rows = {"logprobs": mx.array(logprobs), "float32": mx.array(exact)}
                mx.save_safetensors(str(target / f"expected-{case.replace(' ', '-')}"), rows)
        (target / "expected.json").write_text(json.dumps({"mlx": mx.__version__, "cases": results}))
        print(f"{name}: {', '.join(results)}", flush=True)


def difference(ours, theirs):
    """The greatest difference of two tables of log-probabilities, without the hopeless tokens."""
    pairs = (pair for rows in zip(ours, theirs, strict=True) for pair in zip(*rows, strict=True))
    return max(abs(one - other) for one, other in pairs if other > -30)


def greedy(ours, theirs, bound):
    """How many tokens rounding cannot change, and how many of them differ."""
    wrong, clear = 0, 0
    for our_row, row in zip(ours, theirs, strict=True):
        size = (sum(value * value for value in row) / len(row)) ** 0.5
        best, second = sorted(row, reverse=True)[:2]
        if best - second > max(0.05, 8 * bound * size):
            clear += 1
            wrong += our_row.index(max(our_row)) != row.index(best)
    return clear, wrong


def check(folder, names, only):
    """Compares every checkpoint in a folder; returns how many cases failed."""
    failures = 0
    for name in names:
        target = folder / name
        if not target.exists():
            continue
        bound = BOUNDS[FAMILIES[name][1]]
        cases = json.loads((target / "expected.json").read_text())["cases"]
        try:
            model, _ = load_model(target)
        except Exception:
            print(f"FAIL {name}: cannot be loaded\n{traceback.format_exc()}", flush=True)
            failures += 1
            continue
        for case, content in cases.items():
            if only and case not in only:
                continue
            start = time.monotonic()
            path = target / f"expected-{case.replace(' ', '-')}.safetensors"
            expected = mx.load(str(path))
            theirs, exact = expected["logprobs"].tolist(), expected["float32"].tolist()
            try:
                tokens, logprobs = run(model, case, forced=content["tokens"])
            except Exception:
                print(f"FAIL {name}, {case}\n{traceback.format_exc()}", flush=True)
                failures += 1
                continue
            if case == "sampled":
                passed = tokens == content["tokens"]
                detail = (
                    f"{sum(a == b for a, b in zip(tokens, content['tokens'], strict=True))} of {len(tokens)} tokens"
                )
            else:
                allowed = max(bound, difference(theirs, exact))
                far = difference(logprobs, exact)
                clear, wrong = greedy(logprobs, theirs, bound)
                passed = far <= allowed and wrong == 0
                detail = (
                    f"log-probabilities within {far:.1e} ({allowed:.1e} allowed), {clear - wrong} of {clear} tokens"
                )
            failures += not passed
            seconds = time.monotonic() - start
            print(f"{'ok  ' if passed else 'FAIL'} {name}, {case}: {detail}, {seconds:.1f} s", flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["make", "check"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one; may be repeated")
    parser.add_argument("--case", action="append", choices=list(CASES), help="check only this one; may be repeated")
    options = parser.parse_args()
    names = options.family or list(FAMILIES)
    if options.action == "make":
        make(options.folder, names)
        return
    failures = check(options.folder, names, options.case)
    print(f"{failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
