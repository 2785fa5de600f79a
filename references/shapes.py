"""The committed checkpoints, one entry each, with shapes that cover different edge cases."""

from dataclasses import dataclass, field

from transformers import LlamaConfig, Qwen3Config

import families

LLAMA3_ROPE = {
    # Small enough that a head of 32 has frequencies in all three bands: unchanged, blended and divided.
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@dataclass
class Fixture:
    """One checkpoint. `storage`: a key of checkpoints.WRITERS; `options`: those of the writer."""

    name: str
    config: object
    storage: str
    seed: int
    family: str  # of its tokenizer: qwen2, llama3 or llama2
    tokenizer_size: int
    batch: int = 2
    length: int = 37
    options: dict = field(default_factory=dict)


def qwen3(hidden, intermediate, layers, heads, kv_heads, head_dim, vocabulary, tied=False, bias=False, theta=1e6):
    """A Qwen3 configuration."""
    return Qwen3Config(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        attention_bias=bias,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )


def llama(
    hidden,
    intermediate,
    layers,
    heads,
    kv_heads,
    vocabulary,
    head_dim=None,
    tied=False,
    attention_bias=False,
    mlp_bias=False,
    rope=None,
    eps=1e-5,
):
    """A Llama configuration; without `head_dim` a head is hidden / heads wide."""
    return LlamaConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        attention_bias=attention_bias,
        mlp_bias=mlp_bias,
        max_position_embeddings=4096,
        rms_norm_eps=eps,
        rope_parameters=dict(rope or {"rope_type": "default", "rope_theta": 10000.0}),
        **({} if head_dim is None else {"head_dim": head_dim}),
    )


def fixtures():
    """All committed checkpoints."""
    return [
        *plain(),
        *mlx(),
        *gguf(),
        *other_families(),
        *mlx_of_other_families(),
        *long_contexts(),
        *with_images(),
        *hybrids(),
        *predicting(),
        *mixtures(),
        *granite(),
        *starcoder2(),
        *gpt_oss(),
        *cohere(),
        *glm4_moe(),
        *deepseek(),
    ]


def plain():
    """Safetensors as written by transformers."""
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
    return [
        Fixture("qwen3-bf16", qwen3(96, 160, 2, 6, 2, 32, 311, tied=True), "bf16", 1, "qwen2", 311),
        Fixture(
            "llama-f32",
            llama(60, 96, 2, 5, 1, 337, head_dim=32, rope=LLAMA3_ROPE),
            "f32",
            2,
            "llama3",
            331,
            options={"published": True},
        ),
        Fixture(
            "qwen3-f16-sharded",
            qwen3(64, 224, 3, 3, 3, 64, 337),
            "f16",
            3,
            "qwen2",
            331,
            options={"shard": "300KB", "published": True},
        ),
        Fixture(
            "llama-bias-f16",
            llama(96, 160, 2, 3, 3, 401, attention_bias=True, mlp_bias=True, rope=linear),
            "f16",
            4,
            "llama2",
            397,
        ),
        Fixture(
            "llama-bf16-sharded",
            llama(72, 96, 3, 9, 3, 349, head_dim=40, tied=True, rope=LLAMA3_ROPE),
            "bf16",
            5,
            "llama3",
            347,
            options={"shard": "200KB", "published": True, "template_file": True},
        ),
        Fixture("qwen3-wide-head-bf16", qwen3(48, 32, 2, 2, 1, 256, 313, bias=True), "bf16", 6, "qwen2", 311),
        # Longer than one cache page and one prefill chunk.
        Fixture(
            "qwen3-long-bf16",
            qwen3(64, 96, 2, 5, 1, 64, 317, tied=True, theta=10000.0),
            "bf16",
            7,
            "qwen2",
            311,
            1,
            301,
        ),
    ]


def mlx():
    """MLX affine quantisation: every group size and both widths, scales in each dtype."""
    return [
        Fixture(
            "qwen3-mlx4",
            qwen3(128, 192, 2, 6, 2, 32, 311, tied=True),
            "mlx",
            11,
            "qwen2",
            311,
            options={"bits": 4, "group": 64, "dtype": "bf16"},
        ),
        Fixture(
            "qwen3-mlx8-group32",
            qwen3(96, 160, 2, 5, 1, 64, 347),
            "mlx",
            12,
            "qwen2",
            331,
            options={"bits": 8, "group": 32, "dtype": "f16"},
        ),
        Fixture(
            "llama-mlx4-group128",
            llama(128, 384, 2, 4, 2, 397, head_dim=64, rope=LLAMA3_ROPE),
            "mlx",
            13,
            "llama3",
            331,
            options={"bits": 4, "group": 128, "dtype": "f16", "published": True},
        ),
        Fixture(
            "llama-mlx-mixed",
            llama(128, 192, 2, 4, 1, 401, attention_bias=True),
            "mlx",
            14,
            "llama2",
            397,
            options={
                "bits": 8,
                "group": 64,
                "dtype": "f32",
                "modules": {
                    "lm_head": False,
                    "model.layers.0.mlp.down_proj": {"bits": 4, "group_size": 32},
                    "model.layers.1.self_attn.v_proj": {"bits": 4, "group_size": 128},
                },
            },
        ),
    ]


def gguf():
    """GGUF as written by the llama.cpp converter."""
    return [
        Fixture(
            "qwen3-gguf-q8_0", qwen3(96, 160, 2, 6, 2, 32, 311), "gguf", 21, "qwen2", 311, options={"kind": "Q8_0"}
        ),
        Fixture(
            "qwen3-gguf-q4_0",
            qwen3(64, 224, 2, 5, 1, 64, 337, tied=True),
            "gguf",
            22,
            "qwen2",
            331,
            options={"kind": "Q4_0", "tensors": {"token_embd.weight": "Q8_0"}},
        ),
        Fixture(
            "llama-gguf-f16",
            llama(64, 96, 2, 2, 2, 401, attention_bias=True, mlp_bias=True),
            "gguf",
            23,
            "llama2",
            397,
            options={"kind": "F16"},
        ),
        Fixture(
            "llama-gguf-q4_0",
            llama(160, 224, 2, 5, 1, 389, rope=LLAMA3_ROPE),
            "gguf",
            24,
            "llama3",
            331,
            options={"kind": "Q4_0"},
        ),
        Fixture(
            "llama-gguf-q8_0",
            llama(96, 160, 3, 6, 2, 349, head_dim=32, tied=True, rope=LLAMA3_ROPE),
            "gguf",
            25,
            "llama3",
            347,
            options={"kind": "Q8_0"},
        ),
        # The mixture of Q4_K_M, and every other kind once.
        Fixture(
            "llama-gguf-mixed",
            llama(256, 256, 2, 4, 1, 349, head_dim=64),
            "gguf",
            26,
            "llama3",
            347,
            options={
                "kind": "Q4_K",
                "tensors": {
                    "token_embd.weight": "Q6_K",
                    "output.weight": "Q6_K",
                    "blk.0.attn_v.weight": "Q6_K",
                    "blk.0.attn_k.weight": "Q5_K",
                    "blk.0.ffn_down.weight": "Q5_K",
                    "blk.0.ffn_up.weight": "Q3_K",
                    "blk.1.attn_q.weight": "Q5_0",
                    "blk.1.attn_k.weight": "Q4_1",
                    "blk.1.attn_v.weight": "Q5_1",
                    "blk.1.attn_output.weight": "Q2_K",
                    "blk.1.ffn_up.weight": "Q3_K",
                },
            },
        ),
    ]


def other_families():
    """Families other than Qwen 3 and Llama; sequences are longer than any window."""
    qwen2 = families.qwen2(96, 64, 2, 3, 1, 311, tied=True)
    qwen2_window = families.qwen2(64, 80, 3, 2, 2, 317, window=9, first_windowed=1)
    mistral = families.mistral(56, 64, 2, 4, 2, 401, head_dim=32, window=11)
    smollm3 = families.smollm3(64, 80, 4, 2, 1, 331, no_rope_layer_interval=3)
    olmo2 = families.olmo2(64, 112, 2, 2, 1, 313, bias=True)
    olmo3 = families.olmo3(64, 64, 4, 2, 1, 313, window=7)
    phi3 = families.phi3(64, 80, 2, 2, 1, 401, window=13)
    gemma3 = families.gemma3(48, 64, 4, 2, 1, 337, head_dim=48, window=8, pattern=3, scalar=24, cap=3.0)
    return [
        Fixture("qwen2-bf16", qwen2, "bf16", 31, "qwen2", 311),
        Fixture("qwen2-window-f16", qwen2_window, "f16", 32, "qwen2", 311),
        Fixture("mistral-bf16", mistral, "bf16", 33, "llama2", 397, options={"published": True}),
        Fixture("smollm3-bf16", smollm3, "bf16", 34, "llama3", 331),
        Fixture("olmo2-bf16", olmo2, "bf16", 35, "qwen2", 311),
        Fixture("olmo3-bf16", olmo3, "bf16", 36, "qwen2", 311),
        Fixture("phi3-bf16", phi3, "bf16", 37, "llama2", 397),
        Fixture("gemma3-bf16", gemma3, "bf16", 38, "qwen2", 331),
        *other_families_in_gguf(),
    ]


def other_families_in_gguf():
    """Other families in GGUF, as written by the llama.cpp converter."""
    qwen2 = families.qwen2(64, 96, 2, 2, 1, 311)
    smollm3 = families.smollm3(64, 96, 4, 2, 1, 331)
    olmo3 = families.olmo3(64, 64, 5, 2, 1, 313, window=7)
    phi3 = families.phi3(64, 96, 2, 2, 1, 337, window=13)
    gemma3 = families.gemma3(64, 96, 3, 2, 1, 337, head_dim=48, window=8, pattern=2, scalar=48, cap=3.0)
    q8_0 = {"kind": "Q8_0"}
    return [
        Fixture("qwen2-gguf-q8_0", qwen2, "gguf", 41, "qwen2", 311, options=q8_0),
        Fixture("smollm3-gguf-q8_0", smollm3, "gguf", 42, "llama3", 331, options=q8_0),
        Fixture("olmo3-gguf-q8_0", olmo3, "gguf", 43, "qwen2", 311, options=q8_0),
        Fixture("phi3-gguf-q8_0", phi3, "gguf", 44, "qwen2", 331, options=q8_0),
        Fixture("gemma3-gguf-q8_0", gemma3, "gguf", 45, "qwen2", 331, options=q8_0),
    ]


def mlx_of_other_families():
    """Bit widths and group sizes that the Qwen 3 and Llama checkpoints do not cover, one family each."""
    qwen2 = families.qwen2(64, 96, 2, 2, 1, 311, tied=True)
    mistral = families.mistral(64, 96, 2, 2, 1, 401, head_dim=48, window=11)
    smollm3 = families.smollm3(128, 64, 2, 2, 1, 331, no_rope_layer_interval=2)
    olmo2 = families.olmo2(128, 128, 2, 2, 1, 313)
    phi3 = families.phi3(64, 128, 2, 2, 1, 401, window=13)
    gemma3 = families.gemma3(64, 64, 3, 2, 1, 337, head_dim=32, window=8, pattern=3, scalar=24)

    def fixture(name, config, seed, family, size, bits, group, dtype, **modules):
        options = {"bits": bits, "group": group, "dtype": dtype, "modules": modules}
        return Fixture(name, config, "mlx", seed, family, size, 1, options=options)

    return [
        fixture("qwen2-mlx2-group32", qwen2, 51, "qwen2", 311, 2, 32, "f16"),
        fixture("mistral-mlx3-group32", mistral, 52, "llama2", 397, 3, 32, "bf16"),
        fixture(
            "smollm3-mlx-mixed",
            smollm3,
            53,
            "llama3",
            331,
            3,
            64,
            "bf16",
            **{
                "model.layers.0.self_attn.v_proj": {"bits": 6, "group_size": 128},
                "model.layers.0.mlp.down_proj": {"bits": 6, "group_size": 32},
                "model.layers.1.self_attn.v_proj": {"bits": 5, "group_size": 32},
                "model.layers.1.mlp.down_proj": False,
            },
        ),
        fixture("olmo2-mlx6-group128", olmo2, 54, "qwen2", 311, 6, 128, "f32"),
        fixture("phi3-mlx5", phi3, 55, "llama2", 397, 5, 64, "bf16"),
        fixture("gemma3-mlx4-group32", gemma3, 56, "qwen2", 331, 4, 32, "bf16"),
    ]


def long_contexts():
    """RoPE scaled for long contexts, in sequences longer than the original context."""
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    qwen2 = families.qwen2(64, 64, 2, 2, 1, 311, tied=True)
    qwen2.rope_parameters = dict(yarn)
    yarned = qwen3(64, 64, 2, 2, 1, 64, 311, tied=True)
    yarned.rope_parameters = dict(yarn)
    olmo3 = families.olmo3(64, 64, 4, 2, 1, 313, window=7)
    olmo3.rope_parameters = families.two_ropes(families.rope(5e5), yarn | {"rope_theta": 5e5, "attention_factor": 1.2})
    dynamic = llama(64, 64, 2, 2, 1, 349, tied=True)
    dynamic.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    dynamic.max_position_embeddings = 24
    short, long = families.phi3(64, 64, 2, 2, 1, 401, window=None), families.phi3(64, 64, 2, 2, 1, 401, window=None)
    families.stretch(short, original=48, longest=512, part=0.75)
    families.stretch(long, original=24, longest=512, part=1.0)
    published = {"published": True}
    return [
        Fixture("qwen2-yarn-bf16", qwen2, "bf16", 61, "qwen2", 311, 1, options=published),
        Fixture("olmo3-yarn-bf16", olmo3, "bf16", 62, "qwen2", 311, 1, options=published),
        Fixture("llama-dynamic-bf16", dynamic, "bf16", 63, "llama3", 347, 1),
        Fixture("phi3-longrope-short-bf16", short, "bf16", 64, "llama2", 397, 1, options=published),
        Fixture("phi3-longrope-bf16", long, "bf16", 65, "llama2", 397, 1),
        Fixture("qwen3-yarn-gguf-q8_0", yarned, "gguf", 66, "qwen2", 311, 1, options={"kind": "Q8_0"}),
        Fixture("phi3-longrope-gguf-q8_0", long, "gguf", 67, "llama2", 397, 1, options={"kind": "Q8_0"}),
    ]


def with_images():
    """A vision model of which only the text model is read."""
    gemma3 = families.gemma3(64, 64, 3, 2, 1, 337, head_dim=32, window=8, pattern=3, scalar=24)
    return [Fixture("gemma3-images-bf16", families.with_images(gemma3), "bf16", 71, "qwen2", 331, 1)]


def hybrids():
    """Gated delta nets and gated attention with mixtures of experts; sequences long enough for states to decay.

    Seeds are chosen such that no router score is within 0.001 of the next one, which rounding might swap.
    """
    hybrid = families.qwen3_5_moe
    bf16 = hybrid(32, 4, 2, 1, 307, head_dim=64, linear=(2, 4, 24, 16), experts=(5, 2), widths=(16, 24))
    vision = hybrid(32, 3, 3, 1, 313, head_dim=32, linear=(1, 3, 16, 24), experts=(5, 3), widths=(16, 32), interval=3)
    f32 = hybrid(24, 3, 2, 2, 311, head_dim=32, linear=(2, 2, 8, 20), experts=(7, 1), widths=(8, 24), interval=2)
    mlx4 = hybrid(64, 2, 4, 2, 317, head_dim=32, linear=(2, 4, 32, 32), experts=(4, 2), widths=(64, 64), interval=2)
    mlx8 = hybrid(64, 2, 2, 1, 331, head_dim=32, linear=(2, 2, 32, 32), experts=(4, 2), widths=(32, 64), interval=2)
    dense = families.qwen3_5(32, 3, 2, 1, 313, head_dim=32, linear=(2, 4, 16, 24), width=48, interval=3, tied=True)
    dense_mlx = families.qwen3_5(64, 2, 2, 1, 317, head_dim=32, linear=(1, 2, 32, 32), width=64, interval=2)
    # In the dense model, columns of value heads are whole quantisation blocks; in the other they are not.
    dense_gguf = families.qwen3_5(32, 3, 2, 1, 307, head_dim=32, linear=(2, 4, 16, 32), width=32, interval=3, tied=True)
    gguf = hybrid(32, 2, 2, 1, 307, head_dim=32, linear=(2, 6, 24, 16), experts=(4, 2), widths=(32, 32), interval=2)
    mlx4_options = {"bits": 4, "group": 64, "dtype": "bf16"}
    mlx8_options = {"bits": 8, "group": 32, "dtype": "f16"}
    return [
        Fixture("qwen3.5-moe-bf16", bf16, "bf16", 96, "qwen2", 307, 1, 47),
        Fixture("qwen3.5-moe-vision-f16", vision, "vision", 82, "qwen2", 311, 2, 41, options={"dtype": "f16"}),
        Fixture("qwen3.5-moe-f32", f32, "f32", 88, "qwen2", 311, 1, 101),
        Fixture("qwen3.5-moe-mlx4", mlx4, "hybrid-mlx", 84, "qwen2", 311, 1, 43, options=mlx4_options),
        Fixture("qwen3.5-bf16", dense, "bf16", 86, "qwen2", 311, 1, 43),
        Fixture("qwen3.5-mlx4", dense_mlx, "hybrid-mlx", 87, "qwen2", 311, 1, 41, options=mlx4_options),
        Fixture(
            "qwen3.5-gguf-q8_0", dense_gguf, "gguf", 89, "qwen2", 307, 1, 23, options={"kind": "Q8_0", "predicting": 1}
        ),
        Fixture("qwen3.5-moe-gguf-q8_0", gguf, "gguf", 194, "qwen2", 307, 1, 23, options={"kind": "Q8_0"}),
        Fixture("qwen3.5-moe-mlx8-group32", mlx8, "hybrid-mlx", 85, "qwen2", 331, 1, 43, options=mlx8_options),
    ]


def predicting():
    """Layers that predict further tokens; seeds chosen such that no drafted token has a close rival."""
    moe = families.qwen3_5_moe(32, 4, 4, 2, 307, head_dim=32, linear=(2, 4, 24, 16), experts=(5, 2), widths=(16, 24))
    dense = families.qwen3_5(32, 4, 2, 1, 313, head_dim=32, linear=(2, 4, 16, 24), width=48, tied=True)
    glm4 = families.glm4_moe(32, 48, 2, 2, 1, 311, head_dim=32, experts=(6, 2), width=16, scale=1.7, normalised=True)
    experts = {"experts": (8, 3), "width": 16, "groups": (4, 2), "scale": 1.7}
    v3 = families.deepseek_v3(32, 48, 2, 2, 2, 311, head=(24, 16, 32), ranks=(24, 16), yarn=(4.0, 1.0, 0.7), **experts)
    for config in (moe, dense, glm4, v3):
        families.predicting(config)
    return [
        Fixture("qwen3.5-moe-mtp-bf16", moe, "vision", 179, "qwen2", 307, 1, 31, options={"dtype": "bf16"}),
        Fixture("qwen3.5-mtp-f16", dense, "f16", 183, "qwen2", 311, 1, 29),
        Fixture("glm4-moe-mtp-bf16", glm4, "bf16", 201, "qwen2", 311, 1, 29, options={"published": True}),
        Fixture("deepseek-v3-mtp-f16", v3, "f16", 247, "qwen2", 311, 1, 23, options={"published": True}),
    ]


def mixtures():
    """Qwen 3 with mixtures of experts; seeds chosen as for the hybrids."""
    moe = families.qwen3_moe
    bf16 = moe(48, 64, 2, 4, 2, 307, head_dim=32, experts=(6, 2), width=24)
    f32 = moe(32, 64, 2, 2, 1, 313, head_dim=32, experts=(5, 3), width=40, renormalised=False, tied=True)
    mlx = moe(64, 64, 2, 2, 1, 311, head_dim=32, experts=(4, 2), width=64)
    gguf = moe(64, 64, 2, 2, 1, 317, head_dim=32, experts=(5, 2), width=32)
    mlx_options = {"bits": 4, "group": 64, "dtype": "bf16"}
    return [
        Fixture("qwen3-moe-bf16", bf16, "bf16", 91, "qwen2", 307, 1, 43, options={"published": True}),
        Fixture("qwen3-moe-f32", f32, "f32", 92, "qwen2", 311, 1, 41),
        Fixture("qwen3-moe-mlx4", mlx, "hybrid-mlx", 93, "qwen2", 311, 1, 43, options=mlx_options),
        Fixture("qwen3-moe-gguf-q8_0", gguf, "gguf", 94, "qwen2", 311, 1, 43, options={"kind": "Q8_0"}),
    ]


def granite():
    """Granite."""
    bf16 = families.granite(96, 96, 2, 3, 1, 401, multipliers=(12.0, 0.11, 0.22, 2.5))
    gguf = families.granite(64, 96, 2, 2, 1, 397, multipliers=(6.0, 0.2, 0.3, 0.7), tied=False)
    mlx = families.granite(64, 64, 2, 2, 2, 401, multipliers=(10.0, 0.15, 0.5, 1.5), mlp_bias=True)
    mlx_options = {"bits": 6, "group": 32, "dtype": "f16"}
    return [
        Fixture("granite-bf16", bf16, "bf16", 101, "llama2", 397, 1, options={"published": True}),
        Fixture("granite-gguf-q8_0", gguf, "gguf", 102, "llama2", 397, 1, options={"kind": "Q8_0"}),
        Fixture("granite-mlx6-group32", mlx, "mlx", 103, "llama2", 397, 1, options=mlx_options),
    ]


def starcoder2():
    """StarCoder2."""
    bf16 = families.starcoder2(64, 96, 2, 2, 1, 401, window=9)
    gguf = families.starcoder2(64, 128, 2, 2, 2, 397, tied=False)
    return [
        Fixture("starcoder2-bf16", bf16, "bf16", 111, "qwen2", 311, 1),
        Fixture("starcoder2-gguf-q8_0", gguf, "gguf", 112, "qwen2", 311, 1, options={"kind": "Q8_0"}),
    ]


def gpt_oss():
    """gpt-oss."""
    bf16 = families.gpt_oss(48, 24, 3, 3, 1, 313, head_dim=32, experts=(5, 2), window=7, original=32, tied=True)
    published = families.gpt_oss(64, 32, 2, 4, 2, 317, head_dim=32, experts=(4, 3), window=5, original=16)
    mlx = families.gpt_oss(64, 96, 2, 4, 2, 311, head_dim=40, experts=(3, 2), window=9, original=64, tied=True)
    gguf = families.gpt_oss(96, 64, 2, 4, 1, 313, head_dim=32, experts=(5, 2), window=11, original=16, tied=True)
    kinds = {f"blk.{layer}.ffn_{part}_exps.weight": "MXFP4" for layer in range(2) for part in ("gate", "up", "down")}
    mlx_options = {"bits": 8, "group": 32, "dtype": "bf16"}
    return [
        Fixture("gpt-oss-bf16", bf16, "bf16", 121, "qwen2", 311, 1, 43),
        Fixture("gpt-oss-mxfp4", published, "mxfp4", 122, "qwen2", 311, 1, 41),
        Fixture("gpt-oss-mlx-mxfp4", mlx, "mlx-mxfp4", 123, "qwen2", 311, 1, 37, options=mlx_options),
        Fixture("gpt-oss-gguf-mxfp4", gguf, "gguf", 124, "qwen2", 311, 1, 39, options={"kind": "Q8_0", "tensors": kinds}),
    ]


def cohere():
    """Command R and its successors."""
    bf16 = families.cohere(64, 64, 2, 2, 1, 311, logits=1.4)
    gguf = families.cohere(64, 64, 2, 2, 1, 311, logits=1.7, normalised=True)
    windows = families.cohere2(64, 64, 4, 2, 2, 311, logits=1.5, window=7)
    bf16_2 = families.cohere2(64, 32, 4, 2, 1, 311, logits=1.4, window=5, tied=False)
    gguf2 = families.cohere2(64, 32, 4, 2, 1, 311, logits=1.6, window=9)
    mlx_options = {"bits": 8, "group": 32, "dtype": "bf16"}
    return [
        Fixture("cohere-bf16", bf16, "bf16", 131, "qwen2", 311, 1, 23),
        Fixture("cohere-gguf-q8_0", gguf, "gguf", 132, "qwen2", 311, 1, 23, options={"kind": "Q8_0"}),
        Fixture("cohere2-bf16", bf16_2, "bf16", 135, "qwen2", 311, 1, 23),
        Fixture("cohere2-mlx8-group32", windows, "mlx", 133, "qwen2", 311, 1, 23, options=mlx_options),
        Fixture("cohere2-gguf-q8_0", gguf2, "gguf", 134, "qwen2", 311, 1, 23, options={"kind": "Q8_0"}),
    ]


def glm4_moe():
    """GLM-4.5."""
    moe = families.glm4_moe
    bf16 = moe(32, 48, 3, 2, 1, 311, head_dim=32, experts=(8, 3), width=16, groups=(4, 2), scale=1.7, normalised=True)
    gguf = moe(32, 64, 2, 2, 1, 311, head_dim=32, experts=(6, 2), width=32, groups=(3, 2), scale=2.5)
    mlx = moe(64, 64, 2, 2, 1, 311, head_dim=32, experts=(4, 2), width=32, part=0.75)
    mlx_options = {"bits": 8, "group": 32, "dtype": "bf16"}
    return [
        Fixture("glm4-moe-bf16", bf16, "bf16", 141, "qwen2", 311, 1, 29, options={"published": True}),
        Fixture("glm4-moe-gguf-q8_0", gguf, "gguf", 142, "qwen2", 311, 1, 29, options={"kind": "Q8_0"}),
        Fixture("glm4-moe-mlx8-group32", mlx, "hybrid-mlx", 143, "qwen2", 311, 1, 29, options=mlx_options),
    ]


def deepseek():
    """DeepSeek-V2 and V3."""
    experts = {"experts": (8, 3), "width": 16, "groups": (4, 2), "scale": 1.7}
    v3 = families.deepseek_v3(32, 48, 3, 2, 2, 311, head=(24, 16, 32), ranks=(24, 16), yarn=(4.0, 1.0, 0.7), **experts)
    v2 = families.deepseek_v2(64, 64, 2, 2, 2, 311, head=(32, 16, 64), ranks=(None, 32), experts=(4, 2), width=32)
    mlx_options = {"bits": 8, "group": 32, "dtype": "bf16"}
    return [
        Fixture("deepseek-v3-bf16", v3, "bf16", 151, "qwen2", 311, 1, 23, options={"published": True}),
        Fixture("deepseek-v2-mlx8-group32", v2, "hybrid-mlx", 152, "qwen2", 311, 1, 23, options=mlx_options),
    ]
