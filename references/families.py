"""Test-sized configurations of all families except Qwen 3 and Llama."""

from transformers import (
    Cohere2Config,
    CohereConfig,
    DeepseekV2Config,
    DeepseekV3Config,
    Gemma3Config,
    Gemma3TextConfig,
    Glm4MoeConfig,
    GptOssConfig,
    GraniteConfig,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    Phi3Config,
    Qwen2Config,
    Qwen3_5Config,
    Qwen3_5MoeConfig,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3MoeConfig,
    SmolLM3Config,
    Starcoder2Config,
)


def sizes(hidden, intermediate, layers, heads, kv_heads, vocabulary):
    """The settings that all families name alike."""
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        "pad_token_id": None,
    }


def rope(theta, **scaling):
    """RoPE settings: default unless `scaling` overrides them."""
    return {"rope_type": "default", "rope_theta": theta} | scaling


def two_ropes(local, whole):
    """RoPE settings of layers with and without a sliding window."""
    return {"sliding_attention": local, "full_attention": whole}


def qwen2(*shape, tied=False, window=None, first_windowed=0):
    """Biases on q, k and v only. Layers from `first_windowed` on have a sliding window of `window` tokens, if given."""
    windows = {}
    if window is not None:
        windows = {"use_sliding_window": True, "sliding_window": window, "max_window_layers": first_windowed}
    return Qwen2Config(**sizes(*shape), tie_word_embeddings=tied, rope_parameters=rope(1e6), **windows)


def mistral(*shape, head_dim, window):
    """A sliding window in every layer, unless it is None."""
    return MistralConfig(**sizes(*shape), head_dim=head_dim, sliding_window=window, rope_parameters=rope(10000.0))


def smollm3(*shape, no_rope_layer_interval=4):
    """Every `no_rope_layer_interval`th layer has no position encoding."""
    return SmolLM3Config(
        **sizes(*shape), no_rope_layer_interval=no_rope_layer_interval, rope_parameters=rope(2e6), bos_token_id=None
    )


def olmo2(*shape, bias=False):
    """Norms after the blocks, and over all heads of q and k together."""
    return Olmo2Config(**sizes(*shape), attention_bias=bias, rope_parameters=rope(5e5))


def olmo3(*shape, window):
    """OLMo 2 with a sliding window in three of four layers; the other layers use scaled RoPE."""
    ropes = two_ropes(rope(5e5), rope(5e5, rope_type="linear", factor=4.0))
    return Olmo3Config(**sizes(*shape), sliding_window=window, rope_parameters=ropes)


def phi3(*shape, window):
    """q, k and v in one tensor, gate and up in another."""
    return Phi3Config(**sizes(*shape), sliding_window=window, rope_parameters=rope(10000.0))


def gemma3(*shape, head_dim, window, pattern, scalar, cap=None):
    """Every `pattern`th layer has no sliding window. Both kinds of layers have their own RoPE."""
    return Gemma3TextConfig(
        **sizes(*shape),
        head_dim=head_dim,
        sliding_window=window,
        sliding_window_pattern=pattern,
        query_pre_attn_scalar=scalar,
        final_logit_softcapping=cap,
        rope_parameters=two_ropes(rope(10000.0), rope(1e6, rope_type="linear", factor=8.0)),
    )


def with_images(text):
    """A Gemma 3 with vision, around the text model `text`."""
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "image_size": 28,
        "patch_size": 14,
    }
    return Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)


def stretch(config, original, longest, part):
    """Gives a Phi-3 configuration LongRoPE from `original` to `longest` tokens on a fraction `part` of each head."""
    pairs = int(config.hidden_size // config.num_attention_heads * part) // 2
    config.max_position_embeddings, config.original_max_position_embeddings = longest, original
    config.rope_parameters = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": part,
        "short_factor": [round(1 + 0.05 * pair, 3) for pair in range(pairs)],
        "long_factor": [round(1.1**pair + pair, 3) for pair in range(pairs)],
        "original_max_position_embeddings": original,
    }


def qwen3_5_moe(*shape, experts, widths, **hybrid):
    """A mixture of experts in each layer.

    `experts`: total and used per token. `widths`: of a routed expert and of the shared expert.
    """
    return Qwen3_5MoeTextConfig(
        **hybrid_sizes(*shape, **hybrid),
        num_experts=experts[0],
        num_experts_per_tok=experts[1],
        moe_intermediate_size=widths[0],
        shared_expert_intermediate_size=widths[1],
    )


def qwen3_5(*shape, width, tied=False, **hybrid):
    """The dense variant; the feed-forward network is `width` wide."""
    return Qwen3_5TextConfig(**hybrid_sizes(*shape, **hybrid), intermediate_size=width, tie_word_embeddings=tied)


def hybrid_sizes(hidden, layers, heads, kv_heads, vocabulary, *, head_dim, linear, interval=4):
    """Gated delta nets, with gated attention in every `interval`th layer.

    `linear`: key heads, value heads, and their sizes.
    """
    pairs = head_dim // 8  # a quarter of a head is rotated
    section = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    parameters = rope(1e7, partial_rotary_factor=0.25, mrope_section=section, mrope_interleaved=True)
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        "full_attention_interval": interval,
        "linear_num_key_heads": linear[0],
        "linear_num_value_heads": linear[1],
        "linear_key_head_dim": linear[2],
        "linear_value_head_dim": linear[3],
        "rope_parameters": parameters,
    }


def qwen3_moe(*shape, head_dim, experts, width, renormalised=True, tied=False):
    """A Qwen 3 with a mixture of experts in each layer. `experts`: total and used per token; `width`: of each expert."""
    return Qwen3MoeConfig(
        **sizes(*shape),
        head_dim=head_dim,
        num_experts=experts[0],
        num_experts_per_tok=experts[1],
        moe_intermediate_size=width,
        norm_topk_prob=renormalised,
        decoder_sparse_step=1,
        tie_word_embeddings=tied,
        rope_parameters=rope(1e6),
    )


def granite(*shape, multipliers, tied=True, bias=False, mlp_bias=False):
    """A Llama with multipliers of the embedding, the attention scores, the residual branches, and a divisor of the logits."""
    embedding, attention, residual, logits = multipliers
    return GraniteConfig(
        **sizes(*shape),
        embedding_multiplier=embedding,
        attention_multiplier=attention,
        residual_multiplier=residual,
        logits_scaling=logits,
        attention_bias=bias,
        mlp_bias=mlp_bias,
        tie_word_embeddings=tied,
        rope_parameters=rope(1e4),
    )


def gpt_oss(*shape, head_dim, experts, window, original, tied=False):
    """Experts with biases, attention sinks, a sliding window in every other layer, and YaRN from `original` tokens."""
    yarn = {"factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    return GptOssConfig(
        **sizes(*shape),
        head_dim=head_dim,
        num_local_experts=experts[0],
        num_experts_per_tok=experts[1],
        sliding_window=window,
        tie_word_embeddings=tied,
        rope_parameters=rope(150000.0, rope_type="yarn", original_max_position_embeddings=original, **yarn),
    )


def starcoder2(*shape, tied=True, window=None, bias=True):
    """LayerNorms, biases almost everywhere, and a feed-forward network without a gate."""
    return Starcoder2Config(
        **sizes(*shape),
        use_bias=bias,
        sliding_window=window,
        tie_word_embeddings=tied,
        rope_parameters=rope(1e5),
    )


def glm4_moe(*shape, head_dim, experts, width, dense=1, groups=(1, 1), scale=1.0, normalised=False, part=0.5):
    """Mixture-of-experts layers after `dense` dense layers.

    `experts`: total and used per token. `width`: of each expert and of the shared one. `groups`: total and used per token.
    `part`: fraction of each head that is rotated.
    """
    return Glm4MoeConfig(
        **sizes(*shape),
        head_dim=head_dim,
        n_routed_experts=experts[0],
        num_experts_per_tok=experts[1],
        moe_intermediate_size=width,
        n_shared_experts=1,
        first_k_dense_replace=dense,
        n_group=groups[0],
        topk_group=groups[1],
        routed_scaling_factor=scale,
        use_qk_norm=normalised,
        attention_bias=True,
        num_mtp_layers=0,
        rope_parameters=rope(1e6, partial_rotary_factor=part),
    )


def latent(*shape, head, ranks, experts, width, shared, dense, groups, scale, yarn):
    """Settings that both versions of DeepSeek share.

    `head`: sizes of the non-rotated and the rotated part of a key, and of a value. `ranks`: of queries (or None) and of keys
    and values. `width`: of an expert. `shared`: width of the shared expert in experts. `yarn`: factor, `mscale` and
    `mscale_all_dim`, or None.
    """
    rotation = rope(10000.0)
    if yarn is not None:
        factor, own, of_all = yarn
        rotation = rope(10000.0, rope_type="yarn", factor=factor, mscale=own, mscale_all_dim=of_all, **LATENT_YARN)
    return {
        **sizes(*shape),
        "qk_nope_head_dim": head[0],
        "qk_rope_head_dim": head[1],
        "v_head_dim": head[2],
        "q_lora_rank": ranks[0],
        "kv_lora_rank": ranks[1],
        "n_routed_experts": experts[0],
        "num_experts_per_tok": experts[1],
        "moe_intermediate_size": width,
        "n_shared_experts": shared,
        "first_k_dense_replace": dense,
        "n_group": groups[0],
        "topk_group": groups[1],
        "routed_scaling_factor": scale,
        "rope_parameters": rotation,
    }


LATENT_YARN = {"beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 16}


def deepseek_v2(*shape, head, ranks, experts, width, shared=2, dense=1, groups=None, scale=1.0, yarn=None):
    """Experts routed by softmax, within the best groups if `groups` is given."""
    method = "greedy" if groups is None else "group_limited_greedy"
    both = {"ranks": ranks, "experts": experts, "width": width, "shared": shared, "dense": dense, "scale": scale}
    return DeepseekV2Config(**latent(*shape, head=head, groups=groups or (1, 1), yarn=yarn, **both), topk_method=method)


def deepseek_v3(*shape, head, ranks, experts, width, shared=1, dense=1, groups=(1, 1), scale=2.5, yarn=None):
    """Experts routed by sigmoid scores with correction biases."""
    both = {"ranks": ranks, "experts": experts, "width": width, "shared": shared, "dense": dense, "scale": scale}
    return DeepseekV3Config(**latent(*shape, head=head, groups=groups, yarn=yarn, **both), num_mtp_layers=0)


def predicting(config):
    """Gives a configuration a layer that predicts further tokens."""
    if hasattr(config, "num_mtp_layers"):
        config.num_mtp_layers = 1
    else:
        config.mtp_num_hidden_layers, config.mtp_use_dedicated_embeddings = 1, False


def cohere(*shape, logits, normalised=False, tied=True):
    """Parallel attention and feed-forward blocks after LayerNorms without biases, interleaved RoPE, scaled logits."""
    return CohereConfig(
        **sizes(*shape),
        logit_scale=logits,
        use_qk_norm=normalised,
        tie_word_embeddings=tied,
        rope_parameters=rope(5e5),
    )


def cohere2(*shape, logits, window, tied=True):
    """Command R with sliding windows in three of four layers, and no position encoding in the fourth."""
    return Cohere2Config(
        **sizes(*shape), logit_scale=logits, sliding_window=window, tie_word_embeddings=tied, rope_parameters=rope(5e4)
    )


def with_vision(text):
    """The configuration of a vision model with the text model `text` and a minimal vision tower."""
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 16,
        "out_hidden_size": text.hidden_size,
        "patch_size": 4,
        "in_channels": 1,
        "num_position_embeddings": 4,
    }
    whole = Qwen3_5Config if text.model_type == "qwen3_5_text" else Qwen3_5MoeConfig
    return whole(text_config=text.to_dict(), vision_config=vision)
