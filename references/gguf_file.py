"""Writes checkpoints as a GGUF file, in the conventions of the llama.cpp converter."""

import json
import math

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

import blocks
import gpt_oss
import huggingface
import hybrids
import reference
import small_tokenizers

FILE_TYPES = {kind: gguf.LlamaFileType[f"MOSTLY_{kind}"] for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0")} | {
    "Q5_1": gguf.LlamaFileType.MOSTLY_Q5_1,
    "Q2_K": gguf.LlamaFileType.MOSTLY_Q2_K,
    "Q3_K": gguf.LlamaFileType.MOSTLY_Q3_K_M,
    "Q4_K": gguf.LlamaFileType.MOSTLY_Q4_K_M,
    "Q5_K": gguf.LlamaFileType.MOSTLY_Q5_K_M,
    "Q6_K": gguf.LlamaFileType.MOSTLY_Q6_K,
}
ARCHITECTURES = {
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "olmo3": gguf.MODEL_ARCH.OLMO2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2,
    "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
    "cohere": gguf.MODEL_ARCH.COMMAND_R,
    "cohere2": gguf.MODEL_ARCH.COHERE2,
    "glm4_moe": gguf.MODEL_ARCH.GLM4_MOE,
    "qwen3_5_text": gguf.MODEL_ARCH.QWEN35,
    "qwen3_5_moe_text": gguf.MODEL_ARCH.QWEN35MOE,
}
PRE_TOKENIZERS = {"qwen2": "qwen2", "llama3": "llama-bpe"}


def write(fixture, directory):
    """Writes model.gguf and returns transformers' model of the dequantised weights."""
    config = huggingface.with_token_ids(fixture)
    model = reference.random_model(config, fixture.seed)
    writer = gguf.GGUFWriter(directory / "model.gguf", gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config.model_type]])
    add_settings(writer, fixture)
    add_tokenizer(writer, fixture)
    values = add_tensors(writer, fixture, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return reference.with_parameters(model, values)


def add_settings(writer, fixture):
    """Adds the hyperparameters under the prefix of the architecture."""
    config = fixture.config
    writer.add_type("model")
    writer.add_name(fixture.name)
    writer.add_file_type(FILE_TYPES[fixture.options["kind"]])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    predicting = fixture.options.get("predicting", 0)
    writer.add_block_count(config.num_hidden_layers + predicting)
    if predicting:
        writer.add_nextn_predict_layers(predicting)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    if config.model_type != "qwen3_5_moe_text":
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if config.model_type == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    elif config.model_type in ("cohere", "cohere2"):
        writer.add_layer_norm_eps(config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(global_rope(config)["rope_theta"])
    writer.add_key_length(head_size(config))
    writer.add_value_length(head_size(config))
    writer.add_vocab_size(config.vocab_size)
    if config.model_type in ("llama", "granite", "phi3", "glm4_moe", "cohere2") or hybrids.is_hybrid(config):
        writer.add_rope_dimension_count(rotated_size(config))
    if config.model_type in ("olmo3", "phi3", "gemma3_text", "gpt_oss", "cohere2") and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window_pattern(config.sliding_window_pattern)
        if config.final_logit_softcapping is not None:
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.model_type == "qwen3_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "gpt_oss":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if config.model_type == "glm4_moe":
        add_router(writer, config)
    if hybrids.is_hybrid(config):
        hybrids.add_gguf_settings(writer, config)
    if config.model_type == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if config.model_type in ("cohere", "cohere2"):
        writer.add_logit_scale(config.logit_scale)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    add_rope_scaling(writer, config)


def add_router(writer, config):
    """Adds the routing settings of experts."""
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)


def add_rope_scaling(writer, config):
    """Adds the RoPE scaling settings, except those stored as tensors."""
    rope = global_rope(config)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        factor = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(original)))


def global_rope(config):
    """RoPE settings of the layers without a sliding window."""
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def head_size(config):
    """Size of a head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def rotated_size(config):
    """Rotated size of a head."""
    return int(head_size(config) * global_rope(config).get("partial_rotary_factor", 1.0))


def add_tensors(writer, fixture, model):
    """Adds every tensor. Returns the float32 values that a reader decodes, in the layout of transformers."""
    config, values = fixture.config, {}
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], config.num_hidden_layers)
    if global_rope(config)["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    if global_rope(config)["rope_type"] == "longrope":
        for name in ("long", "short"):
            factors = np.array(global_rope(config)[f"{name}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{name}.weight", factors)
    if fixture.options.get("predicting"):
        hybrids.add_gguf_prediction_layer(writer, config)
    for name, parameter in reference.learned(model):
        heads = interleaved_heads(config, name)
        added = np.float32(1 if config.model_type == "gemma3_text" and "norm" in name else 0)
        parts = []
        for part, value in split_experts(config, name, parameter.detach().numpy()):
            if hybrids.is_hybrid(config):
                part, value = hybrids.as_gguf(config, part, value)
            part = part.replace("e_score_correction_bias", "e_score_correction.bias")
            stored_name = names.get_name(part, try_suffixes=(".weight", ".bias"))
            if not stored_name.endswith((".weight", ".bias", "ssm_a")):
                stored_name += ".weight"
            data = interleave(value + added, heads)
            kind = (
                Kind.F32
                if data.ndim == 1 or is_small(stored_name) or stored_name.endswith(".bias")
                else Kind[fixture.options.get("tensors", {}).get(stored_name, fixture.options["kind"])]
            )
            stored = quantise(data, kind)
            writer.add_tensor(stored_name, stored, raw_dtype=kind)
            parts.append(deinterleave(gguf.quants.dequantize(stored, kind) - added, heads))
            if hybrids.is_hybrid(config):
                parts[-1] = hybrids.from_gguf(config, name, parts[-1])
        if config.model_type == gpt_oss.MODEL_TYPE:
            values[name] = gpt_oss.merge(name, parts)
        else:
            values[name] = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    return values


def is_small(name):
    """Whether the tensor is never quantised although it is a matrix."""
    return "ffn_gate_inp" in name or "ssm_conv1d" in name or name.endswith("_norm.weight")


def split_experts(config, name, value):
    """Splits gate and up of all experts, which transformers keeps in one tensor."""
    if config.model_type == gpt_oss.MODEL_TYPE:
        return gpt_oss.split(name, value)
    if not name.endswith("experts.gate_up_proj"):
        return [(name, value)]
    stem = name.removesuffix("gate_up_proj")
    return list(zip([f"{stem}gate_proj", f"{stem}up_proj"], np.split(value, 2, axis=1), strict=True))


def quantise(data, kind):
    """Quantises the data. Kinds that the gguf package does not write get random blocks of the same shape."""
    if kind in blocks.K_FACTORS:
        rows = random_blocks(kind, data.reshape(-1, data.shape[-1]))
        return rows.reshape(*data.shape[:-1], rows.shape[-1])
    return gguf.quants.quantize(data, kind)


def random_blocks(kind, data):
    """Random K-quant blocks whose values have mean 0 and the standard deviation of `data`."""
    bits = int(kind.name[1])
    # The minimum is subtracted: set it to the middle of the quants times a factor.
    ones, middle = np.float16(1).view(np.uint16), np.float16((2**bits - 1) / 2).view(np.uint16)
    spread = gguf.quants.dequantize(blocks.k_blocks(kind, *data.shape, [ones, middle]), kind)
    scale = data.std() / spread.std()
    factors = [np.float16(scale * value).view(np.uint16) for value in (1, (2**bits - 1) / 2)]
    return blocks.k_blocks(kind, *data.shape, factors)


def interleaved_heads(config, name):
    """Number of heads of a tensor whose rows are reordered for interleaved RoPE, else None."""
    if config.model_type not in ("granite", "llama", "mistral", "smollm3"):
        return None
    if "q_proj" in name:
        return config.num_attention_heads
    return config.num_key_value_heads if "k_proj" in name else None


def interleave(rows, heads):
    """Moves each head's rows from two halves (0 1 2 | 3 4 5) to pairs (0 3 1 4 2 5)."""
    if heads is None:
        return rows
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def deinterleave(rows, heads):
    """Undoes `interleave`."""
    if heads is None:
        return rows
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def llama3_divisors(config):
    """Divisors of the head_dim / 2 RoPE frequencies under Llama 3 scaling (rope_freqs.weight)."""
    rope = config.rope_parameters
    context, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    size = head_size(config)
    for pair in range(size // 2):
        rotations = context * rope["rope_theta"] ** (-2 * pair / size) / (2 * math.pi)
        kept = min(max((rotations - low) / (high - low), 0), 1)
        divisors.append(1 / ((1 - kept) / factor + kept))
    return np.array(divisors, np.float32)


def add_tokenizer(writer, fixture):
    """Adds the tokenizer, padded with unused tokens to the vocabulary of the model."""
    settings = small_tokenizers.SETTINGS[fixture.family]
    if fixture.family == "llama2":
        tokenizer, pieces = small_tokenizers.train_sentencepiece(fixture.tokenizer_size)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_add_space_prefix(True)
        tokens, scores, types = (list(column) for column in zip(*pieces, strict=True))
    else:
        tokenizer = small_tokenizers.train(fixture.family, fixture.tokenizer_size)
        added = dict(small_tokenizers.ADDED[fixture.family])
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(PRE_TOKENIZERS[fixture.family])
        tokens, scores = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())], None
        types = [gguf.TokenType.NORMAL if text not in added else added_type(added[text]) for text in tokens]
        writer.add_token_merges(merges(tokenizer))
    missing = range(len(tokens), fixture.config.vocab_size)
    writer.add_token_list(tokens + [f"[PAD{index}]" for index in missing])
    if scores is not None:
        writer.add_token_scores(scores + [-1000.0] * len(missing))
    writer.add_token_types(types + [gguf.TokenType.UNUSED] * len(missing))
    if settings["bos_token"] is not None:
        writer.add_bos_token_id(fixture.config.bos_token_id)
    writer.add_eos_token_id(fixture.config.eos_token_id)
    if settings.get("unk_token"):
        writer.add_unk_token_id(tokenizer.token_to_id(settings["unk_token"]))
    if settings.get("pad_token"):
        writer.add_pad_token_id(tokenizer.token_to_id(settings["pad_token"]))
    writer.add_add_bos_token(settings["bos_token"] is not None)
    writer.add_chat_template(settings["chat_template"])


def added_type(special):
    """GGUF type of an added token."""
    return gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED


def merges(tokenizer):
    """The merges in order, in the GGUF notation: both parts with a space between them."""
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
